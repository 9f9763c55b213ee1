//! The rules for the medium: each stamp is there at most once, in the zone and at the place to which it was written,
//! and none is of an earlier generation.

use super::World;
use crate::class::Class;
use crate::client_zone::check_once;

impl World {
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
            let s = self.stamps.found(z, i, stamp);
            let zone = &self.zones[z];
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
        check_once(z, seen);
        if appended && self.native && self.cover.of(Class::Cut) > 0 {
            self.hit(Class::CutAppend);
        }
    }
}
