//! The oracle for errors: every failure must have a reason. A BIO's status is the device's answer, or a status of the
//! layer that follows from a failure that the seam oracle, which checks the commands below the layer, has seen in the
//! same zone. `world/completions.rs` calls it when a BIO ends.

use super::World;
use zoneplug_core::disk::Mode;
use zoneplug_core::{Bio, Op, Status};

impl World {
    /// Notes that the zone is at rest and its write pointer is known, so earlier failures explain no later ones.
    pub(super) fn settled(&mut self, z: usize) {
        self.zones[z].settled = self.seam.failures_of(z);
        let zone = &mut self.zones[z];
        (zone.loose, zone.half, zone.crossed) = (false, false, false);
    }

    /// Checks that a BIO that went down unsplit has the status of its command.
    pub(super) fn check_result(&self, bio: &Bio) {
        let Some(said) = self.seam.result_of(bio.token()) else {
            let whole = bio.status.is_ok() && !self.is_split(bio) && !self.is_in_gap(bio);
            assert!(!whole, "no command carried it, and it succeeded: {bio:?}");
            return;
        };
        // The BIO was given up, or was refused because the device has not answered for too long.
        let gone = matches!(bio.status, Status::Timeout | Status::NoDevice);
        let given_up = self.config.timeout.is_some() && gone;
        // The layer refuses a resync that met a busy zone, although the device has answered the report.
        let refused = bio.op == Op::ReportZones && bio.status == Status::ZoneBusy;
        assert!(said == bio.status || given_up || refused, "the device said {said}: {bio:?}");
    }

    /// Returns whether the BIO needs several commands.
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

    /// Returns whether the BIO reads a gap, which a layer above the seam oracle answers without the device.
    fn is_in_gap(&self, bio: &Bio) -> bool {
        let end = bio.sector.0 + u64::from(bio.len_sectors)
            - self.zones[self.zone_at(bio.sector.0)].start;
        bio.op == Op::Read && end > u64::from(self.seam.geometry().zone_sectors())
    }

    pub(super) fn zone_at(&self, sector: u64) -> usize {
        self.zones.iter().rposition(|z| z.start <= sector).unwrap_or(0)
    }

    /// Checks a write to `zones` that failed with a status of the layer: one of the zones must have a reason.
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
            // The device returns ZoneFull too, if a zone became full without the layer.
            let device = bio.status == S::ZoneFull && self.spoiled;
            assert!(device || !self.seam.was_sent(first, len), "W9: refused, and sent: {bio:?}");
        }
        // A status of the device needs no other reason. With deadlines, failures begin above the seam oracle, which does
        // not see them.
        if !(refused || aborted) || self.config.timeout.is_some() {
            return;
        }
        let explained = |&z: &usize| {
            let zone = &self.zones[z];
            if zone.conventional {
                return false;
            }
            // Reasons that the failures of the zone do not show: see the fields of `WorldZone`.
            let odd = zone.crossed
                || zone.fuzzy
                || zone.moved
                || zone.dead
                || zone.half
                || zone.spans > 0;
            let (now, then) = (self.seam.failures_of(z), zone.settled);
            odd || match bio.status {
                S::StaleWritePointer => now.unknown > then.unknown,
                S::AbortedByManagement => zone.loose,
                _ => now.any > then.any,
            }
        };
        // In a zone that takes only native appends, these statuses may be the device's own.
        let native = zones.iter().any(|&z| !self.writes_to(z));
        assert!(native || zones.iter().any(explained), "E1, E2: no reason: {bio:?}");
    }
}
