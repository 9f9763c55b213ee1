//! What a client makes of a BIO that has come back.

use super::common::*;
use super::world::{Asked, World};
use zoneplug_core::disk::Mode;
use zoneplug_core::zone::Condition;
use zoneplug_core::{Bio, Flags, Op, Status, ZoneNo};

impl World {
    pub(crate) fn completed(&mut self, q: usize, bio: Box<Bio>) {
        self.trace.push(format!("  done {} {:?} {}", bio.token, bio.op, bio.status));
        let o = self.outstanding.remove(&bio.token).expect("I7: a BIO completes exactly once");
        assert_eq!(o.queue, q, "it comes back through its own queue");
        if !bio.status.is_ok() {
            self.seen.insert(bio.status);
            // Of several parts that fail, one says why.
            let z = self.zones.iter().rposition(|z| z.start <= bio.sector.0).unwrap_or(0);
            let end = self.zones[z].start + u64::from(self.zones[z].len);
            self.hidden |= bio.len_sectors > self.grain
                && (bio.len_sectors > self.max_transfer || bio.end().is_none_or(|e| e.0 > end));
            self.hidden |= bio.op == Op::WriteZeroes;
        }
        match o.asked {
            Asked::Write { parts, stamp } => self.wrote(&bio, parts, stamp),
            Asked::Append { zone, generation, at, len, stamp } => {
                self.appended(&bio, zone, generation, at, len, stamp);
            }
            Asked::Read { expect } => self.was_read(&bio, &expect),
            Asked::Manage { op, zones, quiet } => {
                assert_eq!(bio.op, op, "the engine never changes a BIO's operation");
                self.managed(&bio, &zones, quiet);
            }
            Asked::Report { zone, quiet, activity } => self.reported(&bio, zone, quiet, activity),
            Asked::Flush => assert!(bio.status.is_ok() || self.faults, "{bio:?}"),
            Asked::Bad { status } => assert_eq!(bio.status, status, "{bio:?}"),
        }
    }

    /// Whether a write to `z` has a reason to fail.
    fn excused(&self, z: usize) -> bool {
        let zone = &self.zones[z];
        self.faults || self.limited || zone.failed || zone.fuzzy || zone.dead
    }

    fn wrote(&mut self, bio: &Bio, parts: Vec<(usize, u64, u32, u32)>, stamp: Option<u64>) {
        if !bio.status.is_ok() {
            assert!(parts.iter().any(|p| self.excused(p.0)), "{bio:?} {parts:?}");
            self.check_failure(bio, parts.iter().any(|p| self.zones[p.0].dead));
        }
        let mut at = 0;
        for (z, generation, offset, len) in parts {
            let zone = &mut self.zones[z];
            zone.writes -= 1;
            if !bio.status.is_ok() {
                zone.unsure |= !zone.conventional;
                zone.failed = true;
            } else if zone.generation == generation && !zone.fuzzy {
                for i in 0..len {
                    let value = stamp.map_or(0, |s| s + u64::from(at + i));
                    let place = &mut zone.shadow[(offset + i) as usize];
                    assert!(place.is_none(), "written twice: zone {z}, offset {offset}, {i}");
                    *place = Some(value);
                }
            }
            at += len;
        }
    }

    fn appended(&mut self, bio: &Bio, z: usize, generation: u64, at: u32, len: u32, stamp: u64) {
        if !bio.status.is_ok() {
            assert!(self.excused(z), "{bio:?}");
            self.check_failure(bio, self.zones[z].dead);
        }
        let native = self.native;
        let zone = &mut self.zones[z];
        zone.writes -= 1;
        assert_eq!(bio.op, Op::ZoneAppend, "A3");
        if !bio.status.is_ok() {
            assert_eq!(bio.sector.0, zone.start, "a failed append reports no sector");
            (zone.unsure, zone.failed) = (true, true);
            return;
        }
        let offset = bio.sector.0.checked_sub(zone.start).expect("in the zone") as u32;
        assert!(offset + len <= zone.cap, "A4: {bio:?}");
        if zone.generation == generation && !zone.fuzzy {
            for i in 0..len {
                let place = &mut zone.shadow[(offset + i) as usize];
                assert!(place.is_none(), "R25: appends overlap in zone {z} at {offset}+{i}");
                *place = Some(stamp + u64::from(i));
            }
        }
        if !native {
            self.appends.push((z, at, offset));
        }
    }

    /// A status that makes sense for a write that failed.
    fn check_failure(&self, bio: &Bio, dead: bool) {
        use Status as S;
        let s = bio.status;
        if self.mode != Mode::Plug {
            return;
        }
        let own = matches!(s, S::StaleWritePointer | S::NotAtWritePointer | S::AbortedBehind);
        let device = matches!(s, S::Io | S::Medium | S::Timeout | S::ShortTransfer);
        let limit = matches!(s, S::OpenLimit | S::ActiveLimit);
        let spoiled = matches!(
            s,
            S::AbortedByManagement
                | S::UnalignedWrite
                | S::ZoneFull
                | S::PastCapacity
                | S::Boundary
                | S::InvalidTransition
        );
        let gone = matches!(s, S::ZoneReadOnly | S::ZoneOffline | S::AbortedByManagement);
        let ok = own
            || device && self.faults
            || limit && (self.limited || self.faults)
            || spoiled
            || gone && (dead || self.spoiled);
        assert!(ok, "{bio:?}");
    }

    fn was_read(&mut self, bio: &Bio, expect: &[(usize, u64, Option<u64>)]) {
        let nowait = bio.flags.contains(Flags::NOWAIT) && bio.status == Status::WouldBlock;
        if !bio.status.is_ok() {
            let dead = expect.iter().any(|e| self.zones[e.0].dead);
            assert!(self.faults || dead || nowait, "{bio:?}");
            return;
        }
        for (i, (found, (z, generation, stamp))) in stamps(&bio.buf).iter().zip(expect).enumerate()
        {
            let zone = &self.zones[*z];
            if let Some(s) = stamp
                && zone.generation == *generation
                && !zone.dead
            {
                assert_eq!(found, s, "sector {i} of {bio:?}: zone {z}");
            }
        }
    }

    fn managed(&mut self, bio: &Bio, zones: &[usize], quiet: bool) {
        let ok = bio.status.is_ok();
        let changes = matches!(bio.op, Op::ZoneReset | Op::ZoneResetAll | Op::ZoneFinish);
        for &z in zones {
            let zone = &mut self.zones[z];
            zone.managed -= 1;
            if !changes {
                continue;
            }
            if !ok && zones.len() > 1 {
                // Some of them were.
                zone.shadow.fill(None);
                (zone.unsure, zone.failed) = (true, true);
            }
            if ok && quiet && zone.quiet() {
                let reset = bio.op != Op::ZoneFinish;
                zone.wp = if reset { 0 } else { zone.cap };
                (zone.unsure, zone.moved) = (false, false);
                if reset {
                    zone.shadow.fill(None);
                    zone.fuzzy = false;
                }
            }
        }
        if !ok && quiet {
            let dead = zones.iter().any(|&z| self.zones[z].dead);
            let open = matches!(bio.op, Op::ZoneOpen | Op::ZoneClose);
            assert!(self.faults || self.limited || dead || open, "{bio:?}");
        }
    }

    fn reported(&mut self, bio: &Bio, z: usize, quiet: bool, activity: u64) {
        if !bio.status.is_ok() {
            assert!(self.faults || bio.status == Status::ZoneBusy, "{bio:?}");
            if bio.status != Status::ZoneBusy {
                assert_eq!(bio.result, 0, "a report that failed describes nothing");
            }
            return;
        }
        let info = records(bio)[0];
        let zone = &mut self.zones[z];
        if zone.conventional || !quiet || !zone.quiet() || zone.activity != activity || zone.dead {
            return;
        }
        let resync = bio.flags.contains(Flags::RESYNC);
        if (zone.moved || zone.fuzzy) && !resync {
            return;
        }
        zone.wp = match info.cond {
            Condition::Full => zone.cap,
            _ => (info.wp.0 - info.start.0) as u32,
        };
        // A torn write may have left a write pointer that is no multiple of a block.
        assert_eq!(zone.wp % self.grain, 0);
        (zone.unsure, zone.moved) = (false, false);
        if self.mode == Mode::Plug && !self.native {
            let cached =
                self.disk.cached_zone(ZoneNo(z as u32)).expect("E4: the report cleared it");
            assert_eq!(cached.wp, info.wp, "E4: {:?}", self.zones[z]);
        }
    }
}
