//! A workload in virtual time: the engine on the model of a drive. Processor time is not measured.
//!
//! ```
//! use zoneplug_core::Nanos;
//! use zoneplug_models::measure::Workload;
//! use zoneplug_models::work::Rw;
//! use zoneplug_models::{VirtualDisk, Workers};
//! let disk = VirtualDisk::parse("sim-smr30").unwrap().unwrap();
//! let mut load = Workload::new(&disk, Rw::Randwrite);
//! (load.work.block_sectors, load.work.depth, load.zones) = (2048, 16, Some(2));
//! load.last(Nanos(500_000_000));
//! let row = load.run(&disk, &disk.config.clone().into(), &Workers::all(&|| false), None).unwrap();
//! assert_eq!((row.layer.as_str(), row.jobs.refused), ("plug none qd1 fifo", 0));
//! assert!(row.virtual_s == 0.5 && row.jobs.mb_per_s > 50.0);
//! ```

mod job;
mod row;

pub use job::Log;
pub use row::{Latency, Part, Row, Shelf};

use crate::time::{Adapter, Client, HostTimes, MAX_BYTES, ZoneWriter};
use crate::virtual_disk::{VirtualDisk, Way};
use crate::watch::Watch;
use crate::work::{Offsets, RANDOM_ZONES, Rw, SLOT_BYTES, Work, max_open, seed_of_disk};
use crate::workers::Workers;
use job::Job;
use zoneplug_core::disk::Mode;
use zoneplug_core::zone::{Geometry, Limits};
use zoneplug_core::{Bytes, Error, ErrorKind, Hint, Nanos};

/// The names of the caller's options, for errors.
#[derive(Debug, Clone, Copy)]
pub struct Names {
    /// The length of a BIO, such as `--bs`.
    pub bs: &'static str,
    /// The kind of workload, such as `--rw`.
    pub rw: &'static str,
    /// The option for fio's lock on zones, such as `--zone-lock`.
    pub zone_lock: &'static str,
}

/// A workload.
#[derive(Debug, Clone)]
pub struct Workload {
    /// The load of each job. Its tags do not count: those of the disk do.
    pub work: Work,
    /// The number of clients, each with zones of its own.
    pub jobs: u32,
    /// The number of disks: each is a drive of this kind, opened separately, with its own jobs and
    /// reads.
    pub disks: u32,
    /// The adapter that all drives share.
    pub adapter: Option<Adapter>,
    /// Random reads of the whole disk beside the jobs.
    pub reads: Option<Work>,
    /// The number of zones that random writes go to at a time, over all jobs, at least one each.
    /// `None`: 64, or as many as the disk allows.
    pub zones: Option<u32>,
    /// Sends random writes as fio's zoned mode does: a job holds a zone's lock until its writes
    /// there are reaped.
    pub zone_lock: bool,
    /// Virtual time before measuring starts.
    pub warm_up: Nanos,
    /// Virtual time that is measured.
    pub length: Nanos,
    /// The seed of random places; the command `zoneplug-lab bench` uses 1.
    pub seed: u64,
}

impl Workload {
    /// One job with one BIO of 4 KiB in flight, for the usual time on such a disk.
    pub fn new(disk: &VirtualDisk, rw: Rw) -> Workload {
        let mut load = Workload {
            work: Work { rw, block_sectors: 8, depth: 1, tags: 1 },
            jobs: 1,
            disks: 1,
            adapter: None,
            reads: None,
            zones: None,
            zone_lock: false,
            warm_up: Nanos(0),
            length: Nanos(0),
            seed: 1,
        };
        let seconds = if disk.rotational() { 60 } else { 5 };
        load.last(Nanos(seconds * 1_000_000_000));
        load
    }

    /// Measures for `length`, after an uncounted warm-up of a quarter of it, at most 5 s.
    pub fn last(&mut self, length: Nanos) {
        self.length = length;
        // Long enough to fill caches and queues.
        self.warm_up = Nanos((length.0 / 4).min(5_000_000_000));
    }

    /// Adds random reads of blocks of this many sectors, `depth` of them in flight.
    pub fn read_beside(&mut self, depth: u32, block_sectors: u32) {
        self.reads = Some(Work { rw: Rw::Randread, block_sectors, depth, tags: 1 });
    }

    /// Refuses a workload that cannot run in virtual time.
    pub fn check(&self, names: &Names) -> Result<(), Error> {
        if self.zone_lock && self.work.rw != Rw::Randwrite {
            let what = format!("{} with {}", names.zone_lock, self.work.rw);
            let hint = format!("{} randwrite: only random writes meet on zones", names.rw);
            return Err(Error::invalid(what).hint(hint));
        }
        let longest = self.reads.map_or(0, |w| w.block_sectors).max(self.work.block_sectors);
        if longest > MAX_BYTES >> 9 {
            let max = Bytes(u64::from(MAX_BYTES));
            let what = format!("a BIO of more than {max} in virtual time");
            return Err(Error::invalid(what).hint(format!("{} {max}", names.bs)));
        }
        Ok(())
    }

    fn offsets(
        &self,
        g: &Geometry,
        max: u32,
        work: Work,
        i: u32,
        jobs: u32,
        seed: u64,
    ) -> Result<Offsets, Error> {
        let mut o = Offsets::seeded(g, work, i, jobs, max, seed);
        if !o.is_usable() {
            let what = format!("no room for {} in the zones of job {i}", work.rw);
            return Err(Error::invalid(what).hint("a smaller bs or numjobs, or a larger disk"));
        }
        if let Some(zones) = self.zones {
            let zones = if max == 0 { zones } else { zones.min(max) };
            o.spread_over(zones / jobs + u32::from(i < zones % jobs));
        }
        Ok(o)
    }

    /// Runs the workload on a disk opened in this way. If asked to end early, returns the figures
    /// until then. `log` receives each BIO sent and completed.
    pub fn run(
        &self,
        disk: &VirtualDisk,
        way: &Way,
        workers: &Workers<'_>,
        log: Option<&dyn Log>,
    ) -> Result<Row, Error> {
        let (geometry, max) = (*disk.geometry(), max_open(disk.limits()));
        let times = HostTimes::of(&disk.profile);
        let mut run = disk.run(&way.config);
        (run.warm_up, run.length) = (self.warm_up, self.length);
        (run.disks, run.adapter) = (self.disks.max(1), self.adapter);
        run.check_memory(SLOT_BYTES * (1 + u64::from(self.reads.is_some())))?;
        // A run assigns its clients to the disks in turns.
        let seeds = |disk| seed_of_disk(self.seed, disk);
        let mut clients: Vec<Box<dyn Client + '_>> = Vec::new();
        let Work { depth, block_sectors, .. } = self.work;
        if self.zone_lock {
            let zones = self.zones.unwrap_or(RANDOM_ZONES);
            let zones = if max == 0 { zones } else { zones.min(max) };
            let bs = block_sectors << 9;
            for disk in 0..run.disks {
                let mut fio = ZoneWriter::fio_zbd(self.jobs, depth, bs, zones, seeds(disk));
                (fio.reap, fio.wake) = (times.reap, times.wake);
                clients.push(Box::new(fio));
            }
        } else {
            for i in 0..self.jobs {
                for disk in 0..run.disks {
                    let offsets =
                        self.offsets(&geometry, max, self.work, i, self.jobs, seeds(disk))?;
                    clients.push(Box::new(Job::new(i, offsets, depth, times, log)));
                }
            }
        }
        if let Some(work) = self.reads {
            for disk in 0..run.disks {
                let offsets = self.offsets(&geometry, max, work, 0, 1, seeds(disk))?;
                clients.push(Box::new(Job::new(self.jobs, offsets, work.depth, times, log)));
            }
        }
        let mut all: Vec<&mut dyn Client> = Vec::with_capacity(clients.len());
        for client in &mut clients {
            all.push(&mut **client);
        }
        let mut watch = Watch(*workers);
        all.push(&mut watch);
        let mut report = way.during(|| run.go_with(&mut all))?;
        report.clients.pop();
        Ok(Row::new(way, disk, run.disks, self.reads.is_some(), &report))
    }
}

/// Refuses work that a disk opened in `mode` cannot do.
pub fn check(work: Work, g: &Geometry, l: &Limits, mode: Mode, names: &Names) -> Result<(), Error> {
    let bs = names.bs;
    let unit =
        if work.rw.is_read() { l.logical_block_sectors } else { l.write_granularity_sectors };
    let bytes = |sectors: u32| Bytes(u64::from(sectors) * 512);
    if !work.block_sectors.is_multiple_of(unit) {
        return Err(Error::invalid(format!(
            "{bs} {} is not a multiple of the disk's {}",
            bytes(work.block_sectors),
            bytes(unit)
        ))
        .hint(format!("{bs} {}", bytes(work.block_sectors.next_multiple_of(unit)))));
    }
    let append_max = l.visible_append_sectors(g.zone_sectors());
    if work.rw == Rw::Append && work.block_sectors > append_max {
        return Err(Error::invalid(format!(
            "{bs} {} is more than the disk appends at a time",
            bytes(work.block_sectors)
        ))
        .hint(format!("{bs} {} or less", bytes(append_max))));
    }
    if work.rw == Rw::Append && mode != Mode::Plug && l.zone_append_max_sectors == 0 {
        let what = format!("mode {mode} has no zone append on this disk");
        return Err(Error::new(ErrorKind::NotSupported, what).hint(
            Hint::from("")
                .option_with("mode", "plug")
                .text(", which emulates it, or append=native in the specification"),
        ));
    }
    if l.read_only && !work.rw.is_read() {
        return Err(Error::invalid("writes on a disk that is read-only")
            .hint(Hint::from("").option_with("rw", "randread")));
    }
    Ok(())
}
