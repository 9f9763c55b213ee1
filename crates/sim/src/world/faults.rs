//! Disturbances of a world: faults, power cuts, zones that die, queues that are closed, other programs.

use super::setup::{DEPTHS, open};
use super::{Asked, World, trace};
use crate::class::Class;
use std::sync::atomic::Ordering::Relaxed;
use zoneplug_core::disk::{Mode, WriterState, ZoneRecovery};
use zoneplug_core::sched::{Policy, Scheduler};
use zoneplug_core::zone::Condition;
use zoneplug_core::{Nanos, Op, Status, ZoneNo};
use zoneplug_devices::stack::{FaultAction, FaultRule, OpSet};

impl World {
    /// Makes the next commands of some kind fail.
    pub(super) fn inject_fault(&mut self) {
        use FaultAction as A;
        if self.rng.one_in(12) && self.tear_next_write() {
            return;
        }
        let lost = [Status::Io, Status::Medium, Status::Timeout, Status::ShortTransfer];
        let kept = [Status::OpenLimit, Status::ActiveLimit, Status::Busy];
        let kinds = self.rng.pick(&[
            OpSet::of(&[Op::Write]),
            OpSet::WRITES,
            OpSet::of(&[Op::ZoneAppend]),
            OpSet::of(&[Op::Read]),
            OpSet::of(&[Op::ZoneReset]),
            OpSet::of(&[Op::ReportZones]),
            OpSet::ANY,
        ]);
        let action = match self.rng.below(8) {
            0..=1 => A::Fail(self.rng.pick(&lost)),
            2 => A::Fail(self.rng.pick(&kept)),
            3..=4 => A::Torn(self.rng.pick(&lost), None),
            5 => A::Torn(self.rng.pick(&lost), Some(self.grain * self.rng.range(0, 6))),
            _ if self.config.timeout.is_some() && self.rng.one_in(3) => A::Lost,
            _ if self.config.timeout.is_some() => {
                A::Delay(Nanos(u64::from(self.rng.range(1, 20_000))))
            }
            _ => A::Delay(Nanos(u64::from(self.rng.range(1, 5000)))),
        };
        let mut rule = FaultRule::next(kinds, action);
        rule.skip = u64::from(self.rng.below(3));
        rule.zone = self.rng.one_in(3).then(|| self.any_zone() as u32);
        if self.recovers() && self.rng.one_in(6) {
            // A command that is sent again meets the fault again.
            rule.count = Some(u64::from(self.rng.range(2, 12)));
        }
        self.add_fault(rule);
    }

    pub(super) fn add_fault(&mut self, rule: FaultRule) {
        trace!(self, "  fault {rule}");
        self.has_faults = true;
        self.troubles += 1;
        self.faults.add(rule);
    }

    /// Changes an attribute while commands are in flight.
    pub(super) fn change_attribute(&mut self) {
        let on = if self.rng.one_in(2) { "1" } else { "0" };
        let name = self.rng.pick(&["nomerges", "strict_management"]);
        if self.emu.config().limits.keeps_write_order && self.rng.one_in(2) {
            let n = self.rng.pick(&DEPTHS).to_string();
            return self.change_drained("zone_write_depth", &n);
        }
        if self.mode == Mode::Plug && self.rng.one_in(4) {
            return self.change_recovery();
        }
        let (name, value) = match self.rng.below(6) {
            0..=1 if self.mode == Mode::Plug => ("zoned_qd1_writes", on),
            2 if self.mode == Mode::Plug => {
                ("zoned_qd1_policy", self.rng.pick(&Policy::ALL.map(Policy::name)))
            }
            3 => {
                // Zone locks need a scheduler.
                let least = usize::from(self.mode == Mode::Lock);
                ("scheduler", self.rng.pick(&Scheduler::NAMES[least..]))
            }
            _ => return self.attribute(name, on),
        };
        self.change_drained(name, value);
    }

    /// Changes an attribute that takes effect on a drained disk.
    fn change_drained(&mut self, name: &str, value: &str) {
        trace!(self, "  {name}={value}");
        if !self.outstanding.is_empty() {
            match name {
                "zoned_qd1_writes" | "scheduler" => self.hit(Class::R34),
                "zone_write_depth" => self.hit(Class::Depth),
                _ => {}
            }
        }
        // An attribute that is being changed might contradict this one, so its change is abandoned.
        self.change = None;
        match self.disk.change_attribute(name, value) {
            Ok(change) => self.change = Some(change),
            Err(e) => {
                let c = self.disk.config();
                let other = c.zoned_qd1_writes == Some(true) || !c.scheduler.keeps_zone_order();
                let clash = c.zone_write_depth > 1 || name == "zone_write_depth" && other;
                assert!(clash, "a writable attribute: {name}={value}: {e}");
                self.hit(Class::DepthRefused);
            }
        }
        self.poll_freeze();
    }

    /// Follows up an attribute whose change has taken effect.
    pub(super) fn attribute_changed(&mut self) {
        let single_writer = self.disk.attribute("zoned_qd1_writes").as_deref() == Some("1");
        trace!(self, "  changed; single writer {single_writer}");
        self.seam.set_single_writer(single_writer);
        // After a power cut the disk is opened with this value.
        let now = self.disk.config();
        self.config.zoned_qd1_writes = now.zoned_qd1_writes;
        self.config.zoned_qd1_policy = now.zoned_qd1_policy;
        self.config.scheduler = now.scheduler;
        self.config.zone_write_depth = now.zone_write_depth;
        self.seam.set_depth(usize::from(now.zone_write_depth));
        self.seam.queueing().configure(&now);
    }

    /// Returns the zone that has waited for the single writer past its deadline, if there is one, and since when; and
    /// the number of turns so far.
    pub(super) fn overdue(&self) -> Option<(ZoneNo, Nanos, u64)> {
        let deadline = self.config.zone_deadline;
        if deadline == Nanos(0) {
            return None;
        }
        // Each writer has its own deadline and looks only at the zones that wait for it.
        self.disk.writers().into_iter().find_map(|w| {
            let first = w.listed.first()?;
            let overdue = self.now.0.saturating_sub(first.since.0) > deadline.0;
            overdue.then_some((first.zone, first.since, w.counters.turns))
        })
    }

    /// Checks that no other zone got its turn before the overdue one.
    pub(super) fn check_overdue(&mut self, before: Option<(ZoneNo, Nanos, u64)>) {
        let Some((zone, since, turns)) = before else { return };
        let WriterState { counters, turn, listed, .. } = self.disk.writer_of(zone);
        if counters.turns == turns {
            return;
        }
        self.hit(Class::R35);
        let still = listed.iter().any(|c| c.zone == zone && c.since == since);
        assert!(!still, "R35: {zone} waits since {since:?}, and the turn is that of {turn:?}");
    }

    /// Makes the device busy for a while.
    pub(super) fn make_device_busy(&mut self) {
        let n = self.rng.range(1, 4);
        self.troubles += 1;
        // Commands between the faults and the device are not counted. Where commands may be given up, the
        // device is made busy in another way.
        if self.rng.one_in(2) && self.config.timeout.is_none() {
            trace!(self, "  the device takes nothing {n} times");
            return self.emu.force_busy(u64::from(n));
        }
        let mut rule = FaultRule::next(OpSet::ANY, FaultAction::Fail(Status::Busy));
        rule.count = Some(u64::from(n));
        self.add_fault(rule);
    }

    /// Gives the device more zones.
    pub(super) fn grow(&mut self) {
        if self.seam.grow() {
            trace!(self, "  the device grows");
            self.troubles += 1;
            self.revalidate();
        }
    }

    /// Adopts the layout that a revalidation or an opening has found.
    pub(super) fn adopt_layout(&mut self) {
        let g = self.disk.geometry();
        if g.nr_zones() as usize > self.zones.len() {
            self.hit(Class::Grow);
            self.add_zones(&g);
        }
    }

    /// Returns whether the layer reports a zone by itself after a failure with one write in flight.
    pub(super) fn is_auto(&self) -> bool {
        self.disk.attribute("zone_recovery").as_deref() == Some("auto")
    }

    /// Returns whether zones recover by themselves.
    fn recovers(&self) -> bool {
        self.config.zone_write_depth > 1 || self.is_auto()
    }

    /// Changes which side finds write pointers. A recovery that has begun goes on.
    fn change_recovery(&mut self) {
        let value = self.rng.pick(&ZoneRecovery::ALL);
        trace!(self, "  zone_recovery={}", value.name());
        self.disk.set_attribute("zone_recovery", value.name()).expect("a writable attribute");
        // After a power cut the disk is opened with this value.
        self.config.zone_recovery = Some(value);
        if self.is_auto() {
            self.seam.set_auto_recovery(true);
        }
        if !self.outstanding.is_empty() {
            self.hit(Class::Attribute);
        }
    }

    /// Sometimes cuts the power while a zone is being recovered, which is rare by chance.
    pub(super) fn has_cut_a_recovery(&mut self) -> bool {
        if !self.recovers() {
            return false;
        }
        let reports = self.seam.ordered().reports;
        let cut = reports > self.recoveries && self.rng.one_in(8);
        self.recoveries = reports;
        if cut {
            self.power_cut();
        }
        cut
    }

    /// Cuts the power and restores it, with or without a restart of the program.
    pub(super) fn power_cut(&mut self) {
        if self.gone {
            return;
        }
        trace!(self, "  power cut");
        self.troubles += 1;
        (self.has_faults, self.spoiled, self.hidden) = (true, true, true);
        for z in &mut self.zones {
            // A conventional zone is checked only if it is durable as a whole.
            if z.conventional && (z.firm != Some(z.generation) || z.writes > 0) {
                z.shadow.fill(None);
            }
            // A finish that is carried out afterwards would cover data that is gone.
            if z.managed > 0 && !z.conventional {
                let durable = z.durable as usize;
                z.shadow[durable..].fill(None);
            }
            z.activity += 1;
            z.generation += 1;
            z.firm = None;
            (z.unsure, z.failed) = (z.unsure || !z.conventional, true);
        }
        self.faults.power_cut().expect("an emulated disk reports its zones");
        self.faults.clear();
        self.drain();
        self.settle_late();
        if self.zones.iter().any(|z| z.orphans > 0) {
            self.freeze = Some(self.disk.begin_freeze());
            self.drain();
        }
        self.settle_late();
        self.hit(Class::Cut);
        if self.rng.one_in(2) {
            // The device may still be starting.
            for _ in 0..4 {
                self.revalidate();
                self.drain();
                if self.is_read {
                    break;
                }
            }
        } else {
            trace!(self, "  the disk is opened again");
            self.account();
            let n = self.queues.len();
            self.queues = (0..n).map(|_| None).collect();
            self.seam.restart();
            self.nomerges = self.config.nomerges;
            self.strict = self.config.strict_management;
            self.note_attributes();
            self.seam.asked_only.store(false, Relaxed);
            self.disk = open(&self.device, &self.config);
            self.seam
                .set_single_writer(self.disk.attribute("zoned_qd1_writes").as_deref() == Some("1"));
            self.seam.set_depth(usize::from(self.config.zone_write_depth));
            self.seam.queueing().configure(&self.config);
            self.seam.set_auto_recovery(self.is_auto());
            for q in 0..n {
                self.open_queue(q);
            }
            self.adopt_layout();
            self.hit(Class::Restart);
        }
        self.after_cut();
    }

    /// Runs until the device has carried out everything that was given up.
    fn settle_late(&mut self) {
        let Some(device_pending) = self.device_pending.clone() else { return };
        let mut rounds = 0;
        let late = |w: &World| w.queues.iter().flatten().any(|q| q.late() > 0);
        while device_pending.is_any_pending() || late(self) {
            self.poll_round();
            rounds += 1;
            let pending = device_pending.is_any_pending();
            assert!(rounds < 20_000, "hang: what is late stays: {pending} {:?}", self.queues);
        }
    }

    /// Looks at the zones after a cut, as a client does.
    fn after_cut(&mut self) {
        for z in 0..self.zones.len() {
            let info = self.on_device(z);
            let medium = self.medium(z);
            let appends = self.is_native(z);
            let zone = &mut self.zones[z];
            zone.activity += 1;
            if zone.conventional {
                zone.check_acknowledged(&medium);
                continue;
            }
            if zone.dead {
                continue;
            }
            let wp = zone.write_pointer_of(&info);
            if !zone.fuzzy && !zone.moved {
                let durable = zone.durable;
                assert!(
                    wp >= durable,
                    "a cut took what a flush covered: zone {z} at {wp} of {zone:?}"
                );
                let other = |i: &usize| zone.shadow[*i].is_some_and(|s| medium[*i] != s);
                let lost = (0..wp as usize).find(other).unwrap_or(wp as usize);
                // Appends that were in flight may land as soon as there is room again.
                assert!(
                    lost == wp as usize || appends && lost >= durable as usize,
                    "zone {z} holds another's data at {lost}: {zone:?}"
                );
                for s in zone.shadow[lost..].iter().flatten().filter(|&&s| s != 0) {
                    let held = medium[..wp as usize].contains(s);
                    assert!(!held, "zone {z}: {s} survives what was before it: {zone:?}");
                }
            }
            for (i, s) in zone.shadow.iter_mut().enumerate() {
                if i >= wp as usize || medium[i] != s.unwrap_or_default() {
                    *s = None;
                }
            }
            if zone.fuzzy || zone.moved {
                zone.shadow.fill(None);
            }
            zone.durable = zone.durable.min(wp);
            zone.wp = wp;
            // The content of a zone that was written past the known data stays unknown.
            zone.mixed |= zone.moved || zone.fuzzy;
            let torn = !wp.is_multiple_of(self.grain);
            (zone.unsure, zone.moved, zone.fuzzy, zone.may_change) = (torn, false, false, false);
            self.settled(z);
            self.check_medium(z, &medium, wp);
            if self.mode == Mode::Plug && !self.native {
                let cached = self.disk.cached_zone(ZoneNo(z as u32)).expect("it was just read");
                assert_eq!(cached.wp, info.wp, "zone {z} after a cut");
            }
        }
    }

    /// Removes the device under load, for good.
    pub(crate) fn vanish(&mut self) {
        trace!(self, "  the device vanishes");
        (self.has_faults, self.spoiled, self.hidden, self.gone) = (true, true, true, true);
        self.troubles += 1;
        for z in &mut self.zones {
            (z.unsure, z.failed) = (z.unsure || !z.conventional, true);
        }
        self.faults.vanish();
        self.hit(Class::Gone);
    }

    /// Closes a queue with work in flight. A freeze shows when that work has finished.
    pub(super) fn drop_queue(&mut self) {
        let q = self.rng.below(self.queues.len() as u32) as usize;
        let open = self.queues.iter().flatten().count();
        if self.mode != Mode::Plug || open < 2 || self.queues[q].is_none() {
            return;
        }
        trace!(self, "  queue {q} goes away");
        self.troubles += 1;
        if self.outstanding.values().any(|o| o.queue == q) {
            self.hit(Class::R40);
        }
        self.hidden = true;
        self.queues[q] = None;
        let tokens: Vec<_> =
            self.outstanding.iter().filter(|(_, o)| o.queue == q).map(|(&t, _)| t).collect();
        for t in tokens {
            let gone = self.outstanding.remove(&t).expect("just listed");
            self.orphaned(gone.asked);
        }
        if self.rng.one_in(2) {
            self.open_queue(q);
        }
        self.freeze = Some(self.disk.begin_freeze());
    }

    pub(super) fn orphaned(&mut self, asked: Asked) {
        match asked {
            Asked::Write { parts, .. } => {
                let several = parts.len() > 1;
                for (z, ..) in parts {
                    self.zones[z].spans -= u32::from(several);
                    self.zones[z].half |= several;
                    self.orphan_write(z);
                }
            }
            Asked::Append { zone, .. } => {
                self.zones[zone].appends -= u32::from(self.native);
                self.orphan_write(zone);
            }
            Asked::Manage { zones, .. } => {
                for z in zones {
                    self.note_late(z, false);
                    let zone = &mut self.zones[z];
                    zone.managed -= 1;
                    zone.orphans += 1;
                    (zone.unsure, zone.failed, zone.fuzzy) = (true, true, true);
                    zone.shadow.fill(None);
                    // The client was not told of this reset.
                    zone.durable = 0;
                }
                self.spoiled = true;
            }
            // The disk had accepted no part of a held write.
            Asked::Early { .. }
            | Asked::Read { .. }
            | Asked::Report { .. }
            | Asked::Flush { .. }
            | Asked::Bad { .. } => {}
        }
    }

    pub(super) fn orphan_write(&mut self, z: usize) {
        self.note_late(z, false);
        let zone = &mut self.zones[z];
        zone.writes -= 1;
        zone.orphans += 1;
        zone.activity += 1;
        if !zone.conventional {
            (zone.unsure, zone.failed) = (true, true);
        }
    }

    /// Moves a write pointer as another program does (E10).
    pub(super) fn out_of_band(&mut self) {
        let z = self.any_zone();
        let zone = &mut self.zones[z];
        if zone.conventional || !zone.quiet() || zone.dead || self.mode != Mode::Plug {
            return;
        }
        let wp = self.grain * self.rng.below(zone.cap / self.grain + 1);
        trace!(self, "  something else sets the write pointer of zone {z} to {wp}");
        let below = self.join.map_or(z, |j| j.below(z));
        self.emu.set_write_pointer(ZoneNo(below as u32), wp);
        self.seam.moved(z);
        zone.durable = zone.durable.min(wp);
        zone.shadow[wp as usize..].fill(None);
        (zone.unsure, zone.failed, zone.moved, zone.mixed) = (true, true, true, true);
        zone.generation += 1;
        zone.activity += 1;
    }

    /// Makes a zone read-only or offline.
    pub(super) fn kill_zone(&mut self) {
        let z = self.any_zone();
        if !self.zones[z].conventional && self.rng.one_in(2) {
            let cond = self.rng.pick(&[Condition::ReadOnly, Condition::Offline]);
            trace!(self, "  zone {z}: {cond}");
            self.troubles += 1;
            let below = ZoneNo(self.below_zone(z) as u32);
            if self.rng.one_in(2) {
                assert!(self.emu.set_condition(below, cond));
            } else {
                self.faults.kill_zone(below, cond);
            }
            let zone = &mut self.zones[z];
            (zone.dead, zone.failed) = (true, true);
            zone.shadow.fill(None);
        }
    }
}
