//! Counters of a disk (T5), and the plug dump (T2).

use super::handle::Disk;
use crate::plug::{Counters, WindowCounters, ZoneCounters};
use crate::sched::WriterCounters;
use crate::sync::{Ordering, lock};
use crate::unit::ZoneNo;
use std::fmt::{self, Write};

/// Counts of a disk since it was opened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DiskCounters {
    /// Counts of the plugs.
    pub plugs: Counters,
    /// Zones for which Linux would have a plug now: busy, stale or partly written.
    pub live_plugs: u32,
    /// BIOs that wait in plugs now.
    pub waiting: u64,
    /// Counts of the order window, and its present content.
    pub window: WindowCounters,
    /// Commands that were given up because they exceeded their time.
    pub timeouts: u64,
    /// The commands among `timeouts` that a device still has, or will never give back.
    pub late: u64,
    /// Queues of the device that have panicked.
    pub dead_queues: u64,
    /// The sum of the counts of all single writers. [`Disk::writers`] has each of them.
    pub writer: WriterCounters,
}

impl Disk {
    /// Writes the plug dump in the form of Linux's `zone_wplugs`: a line for each zone that is busy, stale or partly
    /// written, or has writes in the order window. `ref` is what Linux would count: one for the zone and one for each
    /// BIO. If the order window holds writes of a zone, its line also says how many. On a disk with several single
    /// writers a line also names the spindle of its zone. Fails only if `out` fails.
    pub fn zone_wplugs(&self, out: &mut dyn Write) -> fmt::Result {
        for z in 0..self.layout().geometry.nr_zones() {
            // Locked because a revalidation that commits rebuilds the plugs.
            let layout = lock(&self.shared.layout);
            if !layout.plugs || z >= layout.geometry.nr_zones() {
                break;
            }
            let spindles = if layout.single_writer { self.shared.spindles.count() } else { 1 };
            let (shard, i) = self.shared.shard(ZoneNo(z));
            let plug = &shard.plugs[i];
            let early = if plug.has_early() { self.shared.window().nr_of(ZoneNo(z)) } else { 0 };
            if !plug.is_live() && early == 0 {
                continue;
            }
            let (flags, cond) = (plug.linux_flags(), plug.condition());
            let (wp, parked) = (plug.write_pointer(), plug.parked());
            let refs = 1 + plug.nr_in_flight() + parked;
            drop(shard);
            drop(layout);
            write!(
                out,
                "Zone no: {z}, flags: 0x{flags:x}, ref: {refs}, cond: {cond}, wp ofst: {wp}, pending BIO: {parked}"
            )?;
            if early > 0 {
                write!(out, ", held: {early}")?;
            }
            if spindles > 1 {
                write!(out, ", spindle: {}", self.shared.spindles.of(ZoneNo(z)))?;
            }
            writeln!(out)?;
        }
        Ok(())
    }

    /// The counters of the order window: a part of [`Disk::counters`] that needs one lock.
    pub fn window_counters(&self) -> WindowCounters {
        self.shared.window().counters()
    }

    /// Returns the present counters.
    pub fn counters(&self) -> DiskCounters {
        let mut all = DiskCounters {
            timeouts: self.shared.late.timeouts.load(Ordering::Relaxed),
            late: self.shared.late.len(),
            dead_queues: self.shared.late.dead_queues.load(Ordering::Relaxed),
            ..DiskCounters::default()
        };
        if !self.layout().plugs {
            return all;
        }
        let queues = lock(&self.shared.queues);
        let open = queues.iter().flatten().map(|q| &q.counts.0);
        for c in open.chain([&self.shared.past]) {
            all.plugs.issued += c.issued.load(Ordering::Relaxed);
            all.plugs.merged += c.merged.load(Ordering::Relaxed);
            all.plugs.parked += c.parked.load(Ordering::Relaxed);
        }
        drop(queues);
        all.window = self.window_counters();
        for writer in &self.shared.single_writers {
            all.writer.add(&writer.0.inspect().counters());
        }
        for s in &self.shared.shards {
            let mut shard = lock(&s.0);
            all.plugs.add(&shard.counters);
            for i in 0..shard.plugs.len() {
                shard.lock_plug(i);
                let plug = &shard.plugs[i];
                all.live_plugs += u32::from(plug.is_live());
                all.waiting += u64::from(plug.parked());
                shard.unlock_plug(i);
            }
        }
        all
    }

    /// The counts of one zone. `None` unless the disk was opened with
    /// [`DiskConfig::zone_counters`](super::DiskConfig).
    pub fn zone_counters(&self, zone: ZoneNo) -> Option<ZoneCounters> {
        let layout = lock(&self.shared.layout);
        if !layout.config.zone_counters || zone.0 >= layout.geometry.nr_zones() {
            return None;
        }
        let (shard, i) = self.shared.shard(zone);
        shard.per_zone.get(i).copied()
    }

    /// Returns the error epoch, which grows with every write pointer that is lost, and with every resync.
    pub fn error_epoch(&self) -> u32 {
        self.shared.epoch.load(Ordering::Acquire)
    }
}
