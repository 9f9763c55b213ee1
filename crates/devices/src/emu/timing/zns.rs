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
    zone_free: Vec<Nanos>,
    /// The time from which the drive can look at the next write.
    looks_at_next: Nanos,
    /// The time from which the drive can take data of the next write.
    drive_free: Nanos,
    /// Commands at the drive, and their ends, in order.
    pending: VecDeque<(Nanos, CommandAtDrive)>,
    stats: DriveStats,
}

impl Zns {
    pub(super) fn new(profile: &Profile, p: &ZnsParams) -> Zns {
        Zns {
            p: p.clone(),
            zone_free: vec![Nanos(0); profile.zones as usize],
            looks_at_next: Nanos(0),
            drive_free: Nanos(0),
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
        let transfer = span(bytes, p.drive_rate);
        if held.command.op.has_data() || held.command.op == Op::WriteZeroes {
            self.stats.access(Nanos(0), transfer);
        }
        let end = match held.command.op {
            Op::Write | Op::WriteZeroes | Op::ZoneAppend => {
                // The drive looks at one write after the other; then zones take their data in parallel.
                let begin = self.looks_at_next.max(now).plus(p.write_occupancy);
                self.looks_at_next = begin;
                let zone_free = &mut self.zone_free[zone as usize];
                self.drive_free = self.drive_free.max(begin).plus(transfer);
                *zone_free =
                    (*zone_free).max(begin).plus(span(bytes, p.zone_rate)).max(self.drive_free);
                zone_free.plus(p.latency)
            }
            Op::Read => {
                self.drive_free = self.drive_free.max(now).plus(transfer);
                self.drive_free.plus(p.read_latency)
            }
            // A flush costs only the latency, because the buffers of such drives survive a loss of power. So does zone management.
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
