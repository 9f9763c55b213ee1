//! What must hold when everything rests.

use super::World;
use crate::class::Class;
use crate::memory::{buf, stamps};
use std::task::Waker;
use zoneplug_core::disk::{DiskQueue, Mode};
use zoneplug_core::zone::{Condition, ZoneInfo};
use zoneplug_core::{Bio, Bios, Command, Commands, Nanos, Op, Sector, Status, ZoneNo};

impl World {
    pub(crate) fn check_at_rest(&mut self) {
        let (stats, counters) = (self.emu.stats(), self.disk.counters());
        self.account();
        let faults = self.faults.counts();
        let shuffles = u64::from(self.emu.config().reorder.is_some());
        let ordered = self.spy.ordered();
        let queueing = std::mem::take(&mut *self.spy.queueing());
        for (class, n) in [
            (Class::Several, u64::from(ordered.most > 1)),
            (Class::Recovery, u64::from(ordered.retried > 0)),
            (Class::Placed, ordered.placed),
            (Class::Asked, ordered.asked),
            (Class::GivenUp, ordered.given_up),
            (Class::Torn, faults.torn),
            (Class::Delay, faults.delayed),
            (Class::Storm, self.spy.busy()),
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
        // What failed at the device failed for somebody.
        let hidden = self.hidden || ordered.reports > 0;
        for (status, n) in self.spy.failures().into_iter().filter(|_| !hidden) {
            assert!(self.seen.contains(&status), "{n} commands: {status}, and no BIO");
        }
        if self.mode == Mode::Plug {
            // A power cut makes the device forget by writing zones again.
            let late = self.ground.is_some();
            assert!(stats.overlaps == 0 || late || self.cover.of(Class::Cut) > 0, "I1");
            // Those behind a failure fail at the device.
            let behind = ordered.most > 1 && (self.has_faults || self.limited);
            if !self.spoiled && !behind {
                assert_eq!(stats.failed(Status::UnalignedWrite), 0, "I2, I3");
            }
            if !self.spoiled && !self.spoiled_blocks {
                assert_eq!(stats.failed(Status::InvalidField), 0);
            }
            assert_eq!(counters.waiting, 0);
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

    /// The end of a world: what its device has kept for ever comes back, and nothing keeps the disk. It tells nobody any more.
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
        self.lay_ghosts();
        let zone = &self.zones[z];
        let info = self.on_device(z);
        if zone.dead {
            return;
        }
        let medium = self.medium(z);
        let zone = &self.zones[z];
        // What was acknowledged is there.
        for (i, expected) in zone.shadow.iter().enumerate() {
            if let Some(s) = expected {
                assert_eq!(medium[i], *s, "zone {z}, offset {i} of {zone:?}");
            }
        }
        if zone.conventional {
            return;
        }
        // I2: what is there was submitted in the order in which it lies there.
        let written = match info.cond {
            Condition::Full => zone.cap,
            _ => (info.wp.0 - info.start.0) as u32,
        };
        let order: Vec<_> =
            medium[..written as usize].iter().copied().filter(|&s| s != 0).collect();
        if !(zone.fuzzy || zone.mixed || self.native && z.is_multiple_of(2)) {
            assert!(order.windows(2).all(|w| w[0] < w[1]), "I2: zone {z} holds {medium:?}");
        }
        self.check_medium(z, &medium, written);
        let zone = &self.zones[z];
        // What was acknowledged, and nothing else, has moved the write pointer.
        if !zone.failed && !zone.fuzzy && !zone.unsure {
            assert_eq!(written, zone.wp, "zone {z}: {zone:?}");
        }
        // R29: what the layer believes is what the device has.
        if self.mode == Mode::Plug && !zone.fuzzy && !zone.moved && !self.native {
            if let Ok(cached) = self.disk.cached_zone(ZoneNo(z as u32)) {
                assert_eq!(cached.wp, info.wp, "zone {z}: {zone:?}");
                let active = info.cond.is_active() && cached.cond == Condition::Active;
                // ZBC: an empty zone that was opened explicitly is open; the layer keeps wp 0 as empty.
                let opened = info.cond.is_active() && cached.cond == Condition::Empty;
                assert!(active || opened || cached.cond == info.cond, "{cached:?} {info:?}");
            } else {
                assert!(zone.failed, "only an error makes a zone stale");
            }
        }
    }

    /// Keeps what the disk has counted: it may be closed.
    pub(super) fn account(&mut self) {
        let counters = self.disk.counters();
        self.parked += counters.plugs.parked;
        if self.inline && counters.plugs.parked > 0 {
            self.hit(Class::R3);
        }
        let merged = self.spy.merged();
        for (class, yes) in [(Class::R23, merged.0), (Class::R24, merged.1), (Class::R16, merged.2)]
        {
            if yes {
                self.hit(class);
            }
        }
    }

    /// The zone of the device that is zone `z` of the disk.
    pub(super) fn below_zone(&self, z: usize) -> usize {
        self.join.map_or(z, |j| j.below(z))
    }

    /// What the device says of a zone, in the addresses of the disk.
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

    /// What is stamped on a zone, read past the layer and past all faults.
    pub(super) fn medium(&self, z: usize) -> Vec<u64> {
        let zone = &self.zones[z];
        let mut queue = self.bare.open_queue(1, Waker::noop().clone()).expect("a queue");
        let mut all = Vec::new();
        let mut now = Nanos(0);
        while (all.len() as u32) < zone.len {
            let n = self.max_transfer.min(zone.len - all.len() as u32);
            let bio = Bio::with_buf(Op::Read, Sector(zone.start + all.len() as u64), n, buf(n));
            let mut list = Commands::from([Command::of(bio)]);
            let mut done = Commands::new();
            while done.is_empty() {
                queue.submit(now, &mut list);
                now = queue.next_deadline().unwrap_or(now).max(now);
                queue.poll(now, &mut done);
            }
            if !done[0].status.is_ok() {
                // An offline zone tells nothing.
                return vec![0; zone.len as usize];
            }
            all.extend(stamps(done[0].bios[0].data()));
        }
        all
    }
}
