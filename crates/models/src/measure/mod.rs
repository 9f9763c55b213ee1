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
use crate::work::{Offsets, RANDOM_ZONES, Rw, Work, max_open, seed_of_disk};
use crate::workers::Workers;
use job::Job;
use zoneplug_core::disk::Mode;
use zoneplug_core::zone::{Geometry, Limits};
use zoneplug_core::{Bytes, Error, ErrorKind, Nanos};

/// The names that the caller's options have, for errors.
#[derive(Debug, Clone, Copy)]
pub struct Names {
    /// The length of a BIO, as in `--bs`.
    pub bs: &'static str,
    /// What is done, as in `--rw`.
    pub rw: &'static str,
    /// fio's lock on zones, as in `--zone-lock`.
    pub zone_lock: &'static str,
}

/// What is run.
#[derive(Debug, Clone)]
pub struct Workload {
    /// The load of each job. Its tags do not count: those of the disk do.
    pub work: Work,
    /// Clients, each with zones of its own.
    pub jobs: u32,
    /// Disks: each a drive of this kind, opened by itself, with jobs and reads of its own.
    pub disks: u32,
    /// What all drives are behind.
    pub adapter: Option<Adapter>,
    /// Random reads of the whole disk beside the jobs.
    pub reads: Option<Work>,
    /// Zones that random writes go to at a time, all jobs together, one each at least. `None`: 64, or what the disk
    /// allows.
    pub zones: Option<u32>,
    /// Random writes as fio's zoned mode sends them: a job holds a zone's lock until its writes there are reaped.
    pub zone_lock: bool,
    /// Virtual time before measuring starts.
    pub warm_up: Nanos,
    /// Virtual time that is measured.
    pub length: Nanos,
    /// Where random places come from; 1 is what the command `zoneplug bench` has.
    pub seed: u64,
}

impl Workload {
    /// One job with one BIO of 4 KiB in flight, for as long as is usual on such a disk.
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

    /// Measures for this long, after a quarter of it, or 5 s, that are not counted.
    pub fn last(&mut self, length: Nanos) {
        self.length = length;
        // Long enough to fill caches and queues.
        self.warm_up = Nanos((length.0 / 4).min(5_000_000_000));
    }

    /// Random reads of blocks of so many sectors, `depth` of them in flight.
    pub fn read_beside(&mut self, depth: u32, block_sectors: u32) {
        self.reads = Some(Work { rw: Rw::Randread, block_sectors, depth, tags: 1 });
    }

    /// Whether it makes sense in virtual time.
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
        (i, jobs): (u32, u32),
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

    /// Runs it on a disk that is opened in this way. If the end is asked for, the figures are those until then. `log`
    /// is told what is sent.
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
        // A run spreads its clients over the disks in turns.
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
                    let job = (i, self.jobs);
                    let offsets = self.offsets(&geometry, max, self.work, job, seeds(disk))?;
                    clients.push(Box::new(Job::new(i, offsets, depth, times, log)));
                }
            }
        }
        if let Some(work) = self.reads {
            for disk in 0..run.disks {
                let offsets = self.offsets(&geometry, max, work, (0, 1), seeds(disk))?;
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

/// Whether a disk that is opened in `mode` can do `work`.
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
        return Err(Error::new(ErrorKind::NotSupported, what)
            .hint("--mode plug, which emulates it, or append=native in the specification"));
    }
    if l.read_only && !work.rw.is_read() {
        return Err(Error::invalid("writes on a disk that is read-only").hint("--rw randread"));
    }
    Ok(())
}
