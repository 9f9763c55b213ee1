//! The rules for the medium: each stamp is there at most once, in its place, of this generation, and only if the disk
//! can have been asked to write it.

use super::commands::Purpose;
use super::{NetworkWorld, trace};
use crate::class::Class;
use crate::client_zone::{check_once, read_medium};
use zoneplug_core::ZoneNo;
use zoneplug_core::zone::Condition;

impl NetworkWorld {
    /// Notes that the write with this first stamp was refused, or never reached the disk.
    pub(super) fn never_written(&mut self, stamp: u64) {
        if let Some(s) = self.stamps.find(stamp) {
            s.never = true;
        }
    }

    /// Notes that the write with this first stamp is sent again.
    pub(super) fn written_after_all(&mut self, stamp: u64) {
        if let Some(s) = self.stamps.find(stamp) {
            s.never = false;
        }
    }

    /// Notes that the append with this first stamp has landed here.
    pub(super) fn placed(&mut self, stamp: u64, offset: u32) {
        if let Some(s) = self.stamps.find(stamp) {
            s.offset = Some(offset);
        }
    }

    /// Handles the end of a connection's queue at the server. Its writes that the disk has not accepted are never
    /// written: writes whose data had not all arrived, and writes that were held (H10).
    pub(super) fn held_are_gone(&mut self, c: usize) {
        let calm = self.is_calm();
        let mut never = Vec::new();
        for sent in self.commands.values().filter(|s| s.connection == c) {
            match sent.what {
                Purpose::Write { zone, stamp: Some(stamp), offset, .. } => {
                    let z = &self.zones[zone];
                    let wp = self.served.disk.cached_zone(ZoneNo(zone as u32)).ok();
                    let wp = wp.map_or(u64::MAX, |i| match i.cond {
                        Condition::Full => u64::MAX,
                        _ => i.wp.0 - i.start.0,
                    });
                    let held = u64::from(offset) >= wp && calm && !z.fuzzy && !z.conventional;
                    if !sent.came_up || held {
                        never.push(stamp);
                    }
                }
                Purpose::Append { stamp, .. } if !sent.came_up => never.push(stamp),
                _ => {}
            }
        }
        never.into_iter().for_each(|s| self.never_written(s));
    }

    /// Returns the stamps of sectors on the medium, read without the disk and its faults.
    pub(super) fn medium(&mut self, first: u64, len: u32) -> Vec<u64> {
        let most = self.emu.config().limits.transfer_sectors() / self.block * self.block;
        let read = read_medium(&mut *self.checker, first, len, most);
        read.expect("the medium can be read")
    }

    /// Checks that data that were just acknowledged are on the medium.
    pub(super) fn check_there(&mut self, z: usize, offset: u32, len: u32) {
        let found = self.medium(self.zones[z].start + u64::from(offset), len);
        let known = &self.zones[z].shadow[offset as usize..(offset + len) as usize];
        let same = found.iter().zip(known).all(|(found, known)| Some(*found) == *known);
        assert!(same, "acknowledged, and not there: zone {z}, {offset}: {known:?}, not {found:?}");
    }

    /// Takes `wp` as the write pointer of a zone at rest: checks the content before it, and remembers it from now on.
    pub(super) fn learn(&mut self, z: usize, wp: u32) {
        trace!(self, "  zone {z} is at {wp}");
        let unknown = self.zones[z].train.len();
        self.check_zone(z, wp);
        let medium = self.medium(self.zones[z].start, wp);
        let zone = &mut self.zones[z];
        let before = zone.shadow.iter().filter(|s| s.is_some()).count();
        zone.shadow.fill(None);
        for (i, stamp) in medium.into_iter().enumerate() {
            zone.shadow[i] = Some(stamp);
        }
        let landed = wp as usize > before && unknown > 0;
        (zone.wp, zone.unsure, zone.fuzzy) = (wp, false, false);
        zone.train.clear();
        if landed {
            self.hit(Class::LateLanding);
        }
    }

    /// Checks the medium of a zone at rest up to its write pointer.
    pub(super) fn check_zone(&mut self, z: usize, wp: u32) {
        let medium = self.medium(self.zones[z].start, self.zones[z].len);
        let zone = &self.zones[z];
        zone.check_acknowledged(&medium);
        if zone.conventional {
            return;
        }
        let end = zone.shadow.iter().rposition(Option::is_some).map_or(0, |i| i + 1);
        assert!(end <= wp as usize, "zone {z}: acknowledged to {end}, which is behind {wp}");
        let (zeroed, mixed, born, whole) = (zone.zeroed, zone.mixed, zone.born, self.is_calm());
        let (mut seen, mut i) = (Vec::new(), 0);
        while i < wp as usize {
            let stamp = medium[i];
            if stamp == 0 {
                assert!(zeroed || mixed, "zone {z} has a hole at {i} of {wp}");
                i += 1;
                continue;
            }
            let s = self.stamps.found(z, i, stamp);
            assert!(!s.never, "zone {z}, {i}: refused, or never received, and written: {s:?}");
            assert!(mixed || s.first >= born, "zone {z}, {i}: of an earlier generation: {s:?}");
            assert_eq!(stamp, s.first, "zone {z}, {i}: a piece of {s:?}");
            let there = s.offset.is_none_or(|at| at as usize == i);
            assert!(there, "zone {z}: at {i}, and not where it was written: {s:?}");
            let same = |n: &usize| medium.get(i + n) == Some(&(stamp + *n as u64));
            let n = (0..s.len as usize).take_while(same).count();
            let all = n == s.len as usize;
            assert!(all || mixed || !whole, "zone {z}, {i}: {n} sectors of {s:?}");
            seen.push(stamp);
            i += n;
        }
        check_once(z, seen);
    }

    /// Returns the write pointer of the device.
    pub(super) fn device_wp(&self, z: usize) -> u32 {
        let info = self.emu.zone_info(ZoneNo(z as u32));
        self.zones[z].write_pointer_of(&info)
    }
}
