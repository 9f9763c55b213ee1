//! Who fails must have a reason: what a BIO says is what the device said to it, and what the layer says by itself
//! follows from a failure that the spy has seen in the same zone. Owns nothing; `world/completions.rs` asks for every write.

use super::World;
use zoneplug_core::disk::Mode;
use zoneplug_core::{Bio, Op, Status};

impl World {
    /// The zone is at rest and its write pointer is known: failures so far explain nothing that comes.
    pub(super) fn settled(&mut self, z: usize) {
        self.zones[z].settled = self.spy.failures_of(z);
        (self.zones[z].loose, self.zones[z].half) = (false, false);
    }

    /// A BIO that went down as it was has the status of its command; one that did not was split, or failed before.
    pub(super) fn check_result(&self, bio: &Bio) {
        let Some(said) = self.spy.result_of(bio.token()) else {
            let whole = bio.status.is_ok() && !self.is_split(bio) && !self.is_in_gap(bio);
            assert!(!whole, "no command carried it, and it succeeded: {bio:?}");
            return;
        };
        // Given up, or turned away because the device has not answered for too long.
        let gone = matches!(bio.status, Status::Timeout | Status::NoDevice);
        let given_up = self.config.timeout.is_some() && gone;
        // What a range of zones says is what its last zone said; a report is judged by the layer too.
        let rare = bio.op == Op::ReportZones && bio.status == Status::ZoneBusy;
        assert!(said == bio.status || given_up || rare, "the device said {said}: {bio:?}");
    }

    /// Whether it takes several commands.
    pub(super) fn is_split(&self, bio: &Bio) -> bool {
        let max = match bio.op {
            Op::WriteZeroes => self.emu.config().limits.max_write_zeroes_sectors,
            Op::Read | Op::Write => self.max_transfer,
            _ => return false,
        };
        let (first, last) = (
            self.zone_at(bio.sector.0),
            self.zone_at(bio.sector.0 + u64::from(bio.len_sectors) - 1),
        );
        bio.len_sectors > max || first != last
    }

    /// Whether it reads what a layer above the spy has no device for.
    fn is_in_gap(&self, bio: &Bio) -> bool {
        let end = bio.sector.0 + u64::from(bio.len_sectors)
            - self.zones[self.zone_at(bio.sector.0)].start;
        bio.op == Op::Read && end > u64::from(self.spy.geometry().zone_sectors())
    }

    pub(super) fn zone_at(&self, sector: u64) -> usize {
        self.zones.iter().rposition(|z| z.start <= sector).unwrap_or(0)
    }

    /// A write to `zones` failed with what only the layer says: there is a reason in one of them.
    pub(super) fn check_reason(&self, bio: &Bio, zones: &[usize], stamps: Option<(u64, u64)>) {
        use Status as S;
        if self.mode != Mode::Plug {
            return;
        }
        let refused = matches!(
            bio.status,
            S::NotAtWritePointer | S::ZoneFull | S::PastCapacity | S::StaleWritePointer
        );
        let aborted = matches!(bio.status, S::AbortedBehind | S::AbortedByManagement);
        if let Some((first, len)) = stamps
            && (refused || aborted && zones.len() == 1 && !self.is_split(bio))
        {
            // A device that is full before us says so too.
            let device = bio.status == S::ZoneFull && self.spoiled;
            assert!(device || !self.spy.was_sent(first, len), "W9: refused, and sent: {bio:?}");
        }
        // What the device says needs no other reason; deadlines are above the spy.
        if !(refused || aborted) || self.config.timeout.is_some() {
            return;
        }
        let explained = |&z: &usize| {
            let zone = &self.zones[z];
            if zone.conventional {
                return false;
            }
            let odd = zone.fuzzy || zone.moved || zone.dead || zone.half || zone.spans > 0;
            let (now, then) = (self.spy.failures_of(z), zone.settled);
            odd || match bio.status {
                S::StaleWritePointer => now.unknown > then.unknown,
                S::AbortedByManagement => zone.loose,
                _ => now.any > then.any,
            }
        };
        let native = self.native && zones.iter().any(|z| z.is_multiple_of(2));
        assert!(native || zones.iter().any(explained), "E1, E2: no reason: {bio:?}");
    }
}
