//! The clients of one measurement, and its figures.

use super::arena::Arena;
use super::generator::{self, Slice, Tally, Worker};
use super::latency::Latency;
use super::notes::{Noted, Notes};
use crate::disk::{Named, one};
use crate::failure::Failure;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use zoneplug_core::disk::{Disk, DiskConfig, DiskQueue};
use zoneplug_core::{Bio, Op, Sector, Status};
use zoneplug_host::{Client, HostedDisk};
use zoneplug_models::by_status;
use zoneplug_models::work::{Offsets, Rw, Work, max_open};

enum Clients {
    /// One client, which the calling thread polls.
    Driven(Disk, Vec<Worker<DiskQueue>>),
    /// Each client has a thread.
    Hosted(HostedDisk, Vec<Worker<Client>>),
}

/// The clients of one disk.
pub(crate) struct Group {
    clients: Clients,
    work: Work,
    slices: Vec<Slice>,
    merged: u64,
    /// BIOs that failed before the measurement.
    before: BTreeMap<Status, u64>,
}

/// Empties a disk.
pub(crate) fn reset_all(disk: &Disk) -> Result<(), Failure> {
    let mut queue = disk.open_polled_queue(1, 1)?;
    let bio = one(&mut queue, Bio::new(Op::ZoneResetAll, Sector(0), 0));
    if bio.status.is_ok() {
        return Ok(());
    }
    Err(Failure::io(format!("resetting all zones: {}", bio.status))
        .hint("a disk that can be written"))
}

/// Bytes that reads cover on a disk that keeps data, rounded up to whole zones of each client. The group writes them
/// before it measures.
pub(crate) const READ_AREA: u64 = 256 << 20;

impl Group {
    /// Prepares `jobs` clients that do `work`, each on a thread if there are several. Resets all zones first, and writes
    /// what is to be read, unless no data is read or the disk is read-only.
    pub(crate) fn new(
        named: &Named,
        config: DiskConfig,
        work: Work,
        jobs: u32,
        arena: &mut Arena,
    ) -> Result<Group, Failure> {
        let timed = named.device.is_timed();
        let (g, l) = (named.device.geometry(), named.device.limits());
        let max_open = max_open(l);
        let mut offsets = Vec::new();
        for i in 0..jobs {
            let mut o = Offsets::new(g, work, i, jobs, max_open);
            if work.rw.is_read() && named.keeps_data {
                o.limit((READ_AREA >> 9) / u64::from(jobs));
            }
            if !o.is_usable() {
                return Err(Failure::usage(format!(
                    "no room for {} in the zones of client {i}",
                    work.rw
                ))
                .hint("a smaller bs or numjobs, or a disk with larger or more zones"));
            }
            offsets.push(o);
        }
        let clients = if jobs == 1 {
            Clients::Driven(named.driven(config)?, Vec::new())
        } else {
            Clients::Hosted(HostedDisk::open(named.device.clone(), config)?, Vec::new())
        };
        let mut group =
            Group { clients, work, slices: Vec::new(), merged: 0, before: BTreeMap::new() };
        // A read workload on a disk that keeps data resets the disk and writes what it will read. The caller has asked the
        // user whether the data of the disk may be destroyed.
        let fills = work.rw.is_read() && named.keeps_data && !l.read_only;
        if fills || !work.rw.is_read() {
            reset_all(group.disk())?;
        }
        if fills {
            let sectors: u64 = offsets.iter().map(Offsets::sectors).sum();
            group.prefill(named, sectors, max_open, arena)?;
        }
        let (depth, tags) = (work.depth, work.tags);
        for o in offsets {
            match &mut group.clients {
                Clients::Driven(disk, workers) => {
                    let queue = disk.open_polled_queue(depth, tags)?;
                    workers.push(Worker::new(queue, o, work, arena, timed)?);
                }
                Clients::Hosted(disk, workers) => {
                    let client = disk.open_client(depth, tags)?;
                    workers.push(Worker::new(client, o, work, arena, false)?);
                }
            }
        }
        Ok(group)
    }

    fn prefill(
        &self,
        named: &Named,
        sectors: u64,
        max_open: u32,
        arena: &mut Arena,
    ) -> Result<(), Failure> {
        let block = named.device.limits().write_granularity_sectors.max(512);
        let work = Work { rw: Rw::Write, block_sectors: block, depth: 4, tags: 4 };
        let mut o = Offsets::new(named.device.geometry(), work, 0, 1, max_open);
        o.limit(sectors);
        let queue = self.disk().open_polled_queue(work.depth, work.tags)?;
        let mut worker = Worker::new(queue, o, work, arena, named.device.is_timed())?;
        generator::fill(&mut worker);
        match worker.tally.refused.first_key_value() {
            None => Ok(()),
            Some((status, _)) => Err(Failure::io(format!("filling the disk: {status}"))
                .hint("--mode plug, if the disk reorders")),
        }
    }

    pub(crate) fn disk(&self) -> &Disk {
        match &self.clients {
            Clients::Driven(disk, _) => disk,
            Clients::Hosted(disk, _) => disk.disk(),
        }
    }

    /// Makes each client publish its counters from now on, and returns them.
    pub(crate) fn watch(&mut self) -> Vec<Arc<Noted>> {
        let mut all = Vec::new();
        let mut new = || {
            let (notes, noted) = Notes::new(generator::SAMPLE);
            all.push(noted);
            notes
        };
        match &mut self.clients {
            Clients::Driven(_, workers) => workers.iter_mut().for_each(|w| w.watch(new())),
            Clients::Hosted(_, workers) => workers.iter_mut().for_each(|w| w.watch(new())),
        }
        all
    }

    /// The threading model of the clients.
    pub(crate) fn kind(&self) -> &'static str {
        match &self.clients {
            Clients::Driven(..) => "one thread, Driven",
            Clients::Hosted(..) => "a thread each, Hosted",
        }
    }

    /// Works for `time`. `counts`: whether the slice is measured; the first slice of a group only warms up.
    pub(crate) fn run_slice(&mut self, time: Duration, counts: bool) -> Result<(), Failure> {
        let merged_before = self.disk().counters().plugs.merged;
        let slice = match &mut self.clients {
            Clients::Driven(_, workers) => generator::run(workers, time)?,
            Clients::Hosted(_, workers) => generator::run_threads(workers, time)?,
        };
        if counts {
            self.merged += self.disk().counters().plugs.merged - merged_before;
            self.slices.push(slice);
        } else {
            let mut warm_up = Tally::new();
            self.tallies(|t| warm_up.add(&std::mem::replace(t, Tally::new())));
            for (status, n) in warm_up.refused {
                *self.before.entry(status).or_default() += n;
            }
        }
        Ok(())
    }

    fn tallies(&mut self, mut f: impl FnMut(&mut Tally)) {
        match &mut self.clients {
            Clients::Driven(_, workers) => workers.iter_mut().for_each(|w| f(&mut w.tally)),
            Clients::Hosted(_, workers) => workers.iter_mut().for_each(|w| f(&mut w.tally)),
        }
    }

    /// Makes the first client pass once over its zones, and returns the ns per BIO. The zones are full then, so this
    /// consumes the group.
    pub(crate) fn fill(mut self) -> f64 {
        let slice = match &mut self.clients {
            Clients::Driven(_, workers) => workers.first_mut().map(generator::fill),
            Clients::Hosted(_, workers) => workers.first_mut().map(generator::fill),
        };
        slice.map_or(0.0, |s| s.wall_ns as f64 / s.bios.max(1) as f64)
    }

    /// The figures of the slices that counted.
    pub(crate) fn measure(mut self) -> Measure {
        let mut all = Tally::new();
        self.tallies(|t| all.add(t));
        let mut measure = Measure::of(self.work, &self.slices, &all, self.merged);
        measure.refused_before = self.before.iter().map(|(s, &n)| (s.name(), n)).collect();
        measure
    }
}

/// The figures of one measurement.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Measure {
    /// BIOs that were completed, failed ones included.
    pub(crate) bios: u64,
    /// Wall-clock time.
    pub(crate) elapsed_s: f64,
    /// The median of the slices.
    pub(crate) ns_per_bio: f64,
    pub(crate) cpu_ns_per_bio: f64,
    /// Rate of the BIOs that succeeded; 1 MB is 10^6 bytes.
    pub(crate) mb_per_s: f64,
    pub(crate) kiops: f64,
    pub(crate) merged_percent: f64,
    pub(crate) latency: Latency,
    /// BIOs that failed.
    pub(crate) refused: u64,
    #[serde(serialize_with = "by_status")]
    pub(crate) refused_by_status: BTreeMap<&'static str, u64>,
    /// BIOs that failed before the measurement, by status. They are in no other figure.
    #[serde(serialize_with = "by_status")]
    pub(crate) refused_before: BTreeMap<&'static str, u64>,
}

/// The middle value of a list; 0 if it is empty.
pub(crate) fn median(mut v: Vec<f64>) -> f64 {
    v.sort_by(f64::total_cmp);
    v.get(v.len() / 2).copied().unwrap_or(0.0)
}

impl Measure {
    fn of(work: Work, slices: &[Slice], all: &Tally, merged: u64) -> Measure {
        let full: Vec<_> = slices.iter().filter(|s| s.bios > 0).collect();
        let each = |f: fn(&Slice) -> u64| {
            median(full.iter().map(|s| f(s) as f64 / s.bios as f64).collect())
        };
        let ns = each(|s| s.wall_ns);
        let refused: u64 = all.refused.values().sum();
        let ok = if all.bios == 0 { 0.0 } else { 1.0 - refused as f64 / all.bios as f64 };
        let per_s = if ns > 0.0 { 1e9 / ns * ok } else { 0.0 };
        Measure {
            bios: all.bios,
            elapsed_s: slices.iter().map(|s| s.wall_ns).sum::<u64>() as f64 / 1e9,
            ns_per_bio: ns,
            cpu_ns_per_bio: each(|s| s.cpu_ns),
            mb_per_s: per_s * f64::from(work.block_sectors) * 512.0 / 1e6,
            kiops: per_s / 1e3,
            merged_percent: if all.bios == 0 {
                0.0
            } else {
                merged as f64 * 100.0 / all.bios as f64
            },
            latency: Latency::of(&all.latency),
            refused,
            refused_by_status: all.refused.iter().map(|(s, &n)| (s.name(), n)).collect(),
            refused_before: BTreeMap::new(),
        }
    }

    /// The number of BIOs that failed, including those before the measurement.
    pub(crate) fn all_refused(&self) -> u64 {
        self.refused + self.refused_before.values().sum::<u64>()
    }

    /// CPU time divided by wall-clock time.
    pub(crate) fn cpu_share(&self) -> f64 {
        if self.ns_per_bio > 0.0 { self.cpu_ns_per_bio / self.ns_per_bio } else { 1.0 }
    }

    /// The rate in the unit of the published table.
    pub(crate) fn rate(&self, rw: Rw) -> f64 {
        if rw.is_counted() { self.kiops } else { self.mb_per_s }
    }
}

#[cfg(test)]
mod tests {
    use super::super::config;
    use super::*;
    use zoneplug_core::disk::Mode;
    use zoneplug_core::zone::Condition;

    /// The clients pass many times over a small disk with limits: no BIO fails, and each slice leaves written zones empty
    /// and read ones full.
    #[test]
    fn a_slice_goes_over_the_disk_again_and_again() {
        let spec = "mem,zones=6,zone-size=64K,zone-capacity=48K,conv=1,max-open=3,max-active=4";
        let named = Named::open(spec).unwrap();
        for rw in [Rw::Write, Rw::Randwrite, Rw::Append, Rw::Read, Rw::Randread] {
            for (jobs, mode) in [(1, Mode::Plug), (2, Mode::Plug), (1, Mode::None)] {
                if rw == Rw::Append && mode == Mode::None {
                    continue;
                }
                let work = Work { rw, block_sectors: 32, depth: 4, tags: 4 };
                let mut arena = Arena::default();
                let mut group = Group::new(&named, config(mode), work, jobs, &mut arena).unwrap();
                for counts in [false, true, true] {
                    group.run_slice(Duration::from_millis(3), counts).unwrap();
                    if mode == Mode::Plug {
                        let zone = group.disk().cached_zone(zoneplug_core::ZoneNo(1)).unwrap();
                        let full = rw.is_read();
                        let want = if full { Condition::Full } else { Condition::Empty };
                        assert_eq!(zone.cond, want, "{rw}");
                    }
                }
                let m = group.measure();
                assert!(m.bios > 100 && m.refused == 0 && m.ns_per_bio > 0.0, "{rw} {mode}: {m:?}");
                assert!(m.latency.samples > 0 && m.latency.p50_ns <= m.latency.p99_ns);
            }
        }
    }

    #[test]
    fn the_median_of_nothing_is_nothing() {
        assert_eq!(median(vec![]), 0.0);
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
    }
}
