//! A ZNS SSD. Each zone takes data at its own rate, all zones share the rate of the drive, and each command has a
//! latency in addition. This file notes when each of these is free again. Dies, planes and pages are not modelled,
//! because no published result gives their numbers.

use super::profile::{Profile, ZnsParams};
use super::{CommandAtDrive, DriveStats, Outbox, span};
use std::collections::VecDeque;
use zoneplug_core::bio::Op;
use zoneplug_core::unit::{Nanos, SECTOR_SHIFT};

/// The drive.
#[derive(Debug)]
pub(super) struct Zns {
    p: ZnsParams,
    /// For each zone, the time from which it can take data of its next write.
    zones: Vec<Nanos>,
    /// The time from which the drive can look at the next write.
    begun: Nanos,
    /// The time from which the drive can take data of the next write.
    drive: Nanos,
    /// Commands at the drive, and their ends, in order.
    pending: VecDeque<(Nanos, CommandAtDrive)>,
    stats: DriveStats,
}

impl Zns {
    pub(super) fn new(profile: &Profile, p: &ZnsParams) -> Zns {
        Zns {
            p: p.clone(),
            zones: vec![Nanos(0); profile.zones as usize],
            begun: Nanos(0),
            drive: Nanos(0),
            pending: VecDeque::new(),
            stats: DriveStats::default(),
        }
    }

    pub(super) fn stats(&self) -> DriveStats {
        self.stats
    }

    pub(super) fn take(&mut self, now: Nanos, zone: u32, held: CommandAtDrive) {
        let p = &self.p;
        let bytes = u64::from(held.command.len_sectors) << SECTOR_SHIFT;
        let path = span(bytes, p.drive_rate);
        if held.command.op.has_data() || held.command.op == Op::WriteZeroes {
            self.stats.access(Nanos(0), path);
        }
        let end = match held.command.op {
            Op::Write | Op::WriteZeroes | Op::ZoneAppend => {
                // The drive looks at one write after the other; then zones take their data in parallel.
                let begin = self.begun.max(now).plus(p.write_occupancy);
                self.begun = begin;
                let own = &mut self.zones[zone as usize];
                self.drive = self.drive.max(begin).plus(path);
                *own = (*own).max(begin).plus(span(bytes, p.zone_rate)).max(self.drive);
                own.plus(p.latency)
            }
            Op::Read => {
                self.drive = self.drive.max(now).plus(path);
                self.drive.plus(p.read_latency)
            }
            // Acknowledged data are safe, because such drives have safe buffers.
            _ => now.plus(p.latency),
        };
        let i = self.pending.partition_point(|(e, _)| *e <= end);
        self.pending.insert(i, (end, held));
    }

    pub(super) fn advance(&mut self, now: Nanos, out: &mut Outbox) {
        while let Some((_, held)) = self.pending.pop_front_if(|(end, _)| *end <= now) {
            out.finish(held);
        }
    }

    pub(super) fn next(&self) -> Option<Nanos> {
        self.pending.front().map(|p| p.0)
    }
}
