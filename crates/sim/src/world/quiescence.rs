//! The conditions that must hold at rest.

use super::World;
use crate::class::Class;
use crate::client_zone::read_medium;
use std::task::Waker;
use zoneplug_core::disk::{DiskQueue, Mode};
use zoneplug_core::zone::{Condition, ZoneInfo};
use zoneplug_core::{Bios, Sector, Status, ZoneNo};

impl World {
    pub(crate) fn check_at_rest(&mut self) {
        let (stats, counters) = (self.emu.stats(), self.disk.counters());
        self.account();
        let faults = self.faults.counts();
        let shuffles = u64::from(self.emu.config().reorder.is_some());
        let ordered = self.seam.ordered();
        let queueing = std::mem::take(&mut *self.seam.queueing());
        for (class, n) in [
            (Class::Several, u64::from(ordered.most > 1)),
            (Class::Recovery, u64::from(ordered.retried > 0)),
            (Class::Placed, ordered.placed),
            (Class::Asked, ordered.asked),
            (Class::GivenUp, ordered.given_up),
            (Class::Torn, faults.torn),
            (Class::Delay, faults.delayed),
            (Class::Storm, self.seam.busy()),
            (Class::Shuffle, shuffles),
            (Class::Full, queueing.full),
            (Class::Expired, queueing.expired),
            (Class::AtOnce, queueing.at_once),
        ] {
            self.cover.0[class as usize] += n;
        }
        for q in self.queues.iter().flatten() {
            assert_eq!(q.outstanding(), 0);
        }
        // A failure at the device must be a failure of some BIO.
        let hidden = self.hidden || ordered.reports > 0;
        for (status, n) in self.seam.failures().into_iter().filter(|_| !hidden) {
            assert!(self.seen.contains(&status), "{n} commands: {status}, and no BIO");
        }
        if self.mode == Mode::Plug {
            // The power cut makes the device lose data by writing zones again.
            let late = self.device_pending.is_some();
            assert!(stats.overlaps == 0 || late || self.cover.of(Class::Cut) > 0, "I1");
            // Writes behind a failed one fail at the device.
            let behind = ordered.most > 1 && (self.has_faults || self.limited);
            if !self.spoiled && !behind {
                assert_eq!(stats.failed(Status::UnalignedWrite), 0, "I2, I3");
            }
            if !self.spoiled && !self.spoiled_blocks {
                assert_eq!(stats.failed(Status::InvalidField), 0);
            }
            assert_eq!(counters.waiting, 0);
            self.check_window();
            let mut dump = String::new();
            self.disk.zone_wplugs(&mut dump).expect("a string takes everything");
            for line in dump.lines() {
                assert!(line.ends_with("pending BIO: 0") && line.contains("ref: 1,"), "{line}");
            }
            assert!(counters.plugs.aborted <= counters.plugs.parked);
            assert!(counters.plugs.resynced <= self.next_token * self.zones.len() as u64);
        }
        for &(zone, _, expected, at) in &self.appends {
            let z = &self.zones[zone];
            assert!(z.failed || z.fuzzy || expected == at, "A5: {expected}, not {at}, in {z:?}");
        }
        for z in 0..self.zones.len() {
            self.check_zone(z);
        }
    }

    /// Ends the world: the commands that its device has kept come back, and the disk is released. Makes no more
    /// checks.
    pub(crate) fn let_go(&mut self) {
        self.faults.vanish();
        let mut done = Bios::new();
        for _ in 0..100 {
            for queue in self.queues.iter_mut().flatten() {
                queue.poll(self.now, &mut done);
            }
            let next = self.queues.iter().flatten().filter_map(DiskQueue::next_deadline).min();
            let Some(next) = next else { break };
            self.now = next.max(self.now);
        }
    }

    pub(super) fn check_zone(&mut self, z: usize) {
        self.end_late();
        let zone = &self.zones[z];
        let info = self.on_device(z);
        if zone.dead {
            return;
        }
        let medium = self.medium(z);
        let zone = &self.zones[z];
        // Acknowledged data are there.
        zone.check_acknowledged(&medium);
        if zone.conventional {
            return;
        }
        // The order on the medium is the order of submission (I2).
        let written = zone.write_pointer_of(&info);
        let order: Vec<_> =
            medium[..written as usize].iter().copied().filter(|&s| s != 0).collect();
        if !(zone.fuzzy || zone.mixed || self.is_native(z)) {
            assert!(order.windows(2).all(|w| w[0] < w[1]), "I2: zone {z} holds {medium:?}");
        }
        self.check_medium(z, &medium, written);
        let zone = &self.zones[z];
        // Only acknowledged writes have moved the write pointer.
        if !zone.failed && !zone.fuzzy && !zone.unsure {
            assert_eq!(written, zone.wp, "zone {z}: {zone:?}");
        }
        // The layer's zones equal the device's (R29).
        if self.mode == Mode::Plug && !zone.fuzzy && !zone.moved && !self.native {
            if let Ok(cached) = self.disk.cached_zone(ZoneNo(z as u32)) {
                assert_eq!(cached.wp, info.wp, "zone {z}: {zone:?}");
                let active = info.cond.is_active() && cached.cond == Condition::Active;
                // In ZBC an empty zone that was opened explicitly is open. The layer treats a zone with write pointer
                // 0 as empty.
                let opened = info.cond.is_active() && cached.cond == Condition::Empty;
                assert!(active || opened || cached.cond == info.cond, "{cached:?} {info:?}");
            } else {
                assert!(zone.failed, "only an error makes a zone stale");
            }
        }
    }

    /// Keeps the counters of the disk, because it may be closed.
    pub(super) fn account(&mut self) {
        let counters = self.disk.counters();
        self.parked += counters.plugs.parked;
        if self.inline && counters.plugs.parked > 0 {
            self.hit(Class::R3);
        }
        let merged = self.seam.merged();
        for (class, yes) in [(Class::R23, merged.0), (Class::R24, merged.1), (Class::R16, merged.2)]
        {
            if yes {
                self.hit(class);
            }
        }
    }

    /// Returns the zone of the device for zone `z` of the disk.
    pub(super) fn below_zone(&self, z: usize) -> usize {
        self.join.map_or(z, |j| j.below(z))
    }

    /// Returns the device's record of a zone, in the addresses of the disk.
    pub(super) fn on_device(&self, z: usize) -> ZoneInfo {
        let mut info = self.emu.zone_info(ZoneNo(self.below_zone(z) as u32));
        let zone = &self.zones[z];
        let (start, len) = (Sector(zone.start), u64::from(zone.len));
        info.wp = match info.wp {
            Sector(u64::MAX) => info.wp,
            _ if info.cond == Condition::Full => start.plus(len),
            wp => start.plus(wp.0 - info.start.0),
        };
        (info.start, info.len_sectors) = (start, len);
        info
    }

    /// Returns the stamps in a zone, read without the layer and without faults.
    pub(super) fn medium(&self, z: usize) -> Vec<u64> {
        let zone = &self.zones[z];
        let mut queue = self.bare.open_queue(1, Waker::noop().clone()).expect("a queue");
        let most = self.max_transfer;
        // An offline zone cannot be read.
        read_medium(&mut *queue, zone.start, zone.len, most)
            .unwrap_or_else(|| vec![0; zone.len as usize])
    }
}
