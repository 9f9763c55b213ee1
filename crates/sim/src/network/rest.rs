//! The conditions that must hold at rest.

use super::NetworkWorld;
use super::commands::Purpose;
use crate::class::Class;
use std::sync::atomic::Ordering::Relaxed;
use zoneplug_core::{Nanos, Status, ZoneNo};

impl NetworkWorld {
    /// Ends all troubles and lets all commands end.
    pub(crate) fn come_to_rest(&mut self) {
        self.faults.clear();
        let mut rounds = 0;
        loop {
            self.reconnect();
            self.learn_zones();
            let waits = |s: &super::HostCommand| !matches!(s.what, Purpose::Event) || s.ghost;
            let busy = self.commands.values().any(waits) || self.freeze.is_some();
            let busy = busy || !self.closing.is_empty();
            if !busy && self.zones.iter().all(|z| !z.unsure) {
                break;
            }
            let any = self.run_to_next_event();
            rounds += 1;
            let hang = rounds > 20_000 || !any && self.next_moment().is_none();
            let unsure: Vec<_> = self.zones.iter().filter(|z| z.unsure).collect();
            let commands: Vec<_> = self.commands.iter().map(|(id, s)| (id, &s.what)).collect();
            assert!(!hang, "hang: {commands:?} {unsure:?} {:?}", self.served);
        }
        self.check_rest();
    }

    /// Checks that no BIO waits on the disk, and that its counters agree.
    pub(super) fn check_disk(&mut self) {
        let counters = self.served.disk.counters();
        let w = counters.window;
        assert_eq!((w.writes, w.sectors), (0, 0), "H12: {w:?}");
        assert_eq!(w.held, w.admitted + w.expired + w.dropped, "H12: {w:?}");
        assert!(self.config.order_window != Nanos(0) || w.held == 0, "H1: {w:?}");
        for (class, n) in [(Class::HeldForOrder, w.admitted), (Class::HeldTooLong, w.expired)] {
            self.cover.0[class as usize] += n;
        }
        assert_eq!(counters.waiting, 0, "I4");
        assert!(self.closing.is_empty(), "a queue without a connection has commands");
        let mut dump = String::new();
        self.served.disk.zone_wplugs(&mut dump).expect("a string takes everything");
        for line in dump.lines() {
            assert!(line.ends_with("pending BIO: 0") && line.contains("ref: 1,"), "{line}");
        }
    }

    fn check_rest(&mut self) {
        self.check_disk();
        let stats = self.emu.stats();
        assert_eq!(stats.overlaps, 0, "I1");
        let moved = self.has_faults || self.limited || self.cover.of(Class::FuzzyReset) > 0;
        assert!(moved || stats.failed(Status::UnalignedWrite) == 0, "I2, I3");
        for c in self.connections.iter().filter(|c| c.initiator.is_some()) {
            let events = usize::from(c.qid == 0);
            let initiator = c.initiator.as_ref().map_or(0, |i| i.in_flight());
            assert!(initiator <= events, "queue {} has {initiator} commands", c.qid);
        }
        for z in 0..self.zones.len() {
            let wp = self.device_wp(z);
            let zone = &self.zones[z];
            let moves = !zone.conventional;
            assert!(!moves || wp == zone.wp, "zone {z}: the device is at {wp}: {zone:?}");
            self.check_zone(z, wp);
            let cached = self.served.disk.cached_zone(ZoneNo(z as u32));
            if let (true, Ok(info)) = (moves, cached) {
                let at = self.zones[z].write_pointer_of(&info);
                assert_eq!(at, wp, "R29: zone {z}");
            }
        }
        self.seam.asked_only.store(false, Relaxed);
    }
}
