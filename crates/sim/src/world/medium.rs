//! The rules for the medium: each stamp is there at most once, in the zone and at the place to which it was written,
//! and none is of an earlier generation. This file owns the list of all stamps; `world/quiescence.rs` and
//! `world/faults.rs` use it.

use super::World;
use crate::class::Class;

/// A range of stamps, and its place.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stamped {
    pub(crate) first: u64,
    pub(crate) len: u32,
    pub(crate) zone: usize,
    /// The offset in the zone; `None` for an append until its client is told.
    pub(crate) offset: Option<u32>,
}

impl World {
    /// Notes that stamps from `first` on are written, or appended, to a zone.
    pub(super) fn stamped(&mut self, first: u64, len: u32, zone: usize, offset: Option<u32>) {
        self.stamps.push(Stamped { first, len, zone, offset });
    }

    fn stamp_of(&self, stamp: u64) -> Option<&Stamped> {
        let i = self.stamps.partition_point(|s| s.first <= stamp).checked_sub(1)?;
        self.stamps.get(i).filter(|s| stamp < s.first + u64::from(s.len))
    }

    /// Checks the first `wp` sectors of zone `z`.
    pub(super) fn check_medium(&mut self, z: usize, medium: &[u64], wp: u32) {
        let zone = &self.zones[z];
        if zone.mixed
            || zone.fuzzy
            || zone.moved
            || zone.may_change
            || zone.dead
            || zone.conventional
        {
            return;
        }
        let mut appended = false;
        let mut seen = Vec::new();
        for (i, &stamp) in medium.iter().enumerate().take(wp as usize) {
            if stamp == 0 {
                let native = !self.writes_to(z);
                if self.emu.config().limits.max_write_zeroes_sectors > 0 && !native {
                    continue;
                }
                // If the zone was finished, the rest is zeroes.
                let finished = wp == zone.cap && medium[i..].iter().all(|&s| s == 0);
                assert!(finished, "zone {z} has a hole at {i} of {wp}: {zone:?}");
                break;
            }
            let s = self.stamp_of(stamp);
            let s = s.unwrap_or_else(|| panic!("zone {z}, {i}: nobody wrote {stamp}"));
            assert_eq!(s.zone, z, "zone {z} holds another's data at {i}: {stamp}, {s:?}");
            assert!(s.first >= zone.born, "zone {z}, {i}: {stamp} is of an earlier generation");
            match s.offset {
                Some(at) => assert_eq!(
                    u64::from(at) + stamp - s.first,
                    i as u64,
                    "zone {z}: {stamp} is not where it was written: {s:?}"
                ),
                None => {
                    appended = true;
                    // An append begins with its first sector, and its sectors are contiguous.
                    let follows = i > 0 && medium[i - 1] + 1 == stamp;
                    assert!(stamp == s.first || follows, "zone {z}, {i}: a piece of {s:?}");
                    if stamp == s.first {
                        seen.push(stamp);
                    }
                }
            }
        }
        seen.sort_unstable();
        assert!(seen.windows(2).all(|w| w[0] != w[1]), "zone {z}: an append is there twice");
        if appended && self.native && self.cover.of(Class::Cut) > 0 {
            self.hit(Class::CutAppend);
        }
    }
}
