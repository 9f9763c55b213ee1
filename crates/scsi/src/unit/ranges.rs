//! Whether a range of blocks may be read or written, as far as the layout says. What the write pointers say is the
//! disk's answer.

use super::Unit;
use crate::command::BlockRange;
use crate::spec::sense::{
    INVALID_FIELD, OUT_OF_RANGE, READ_BOUNDARY, SenseData, UNALIGNED_WRITE, WRITE_BOUNDARY,
};
use zoneplug_core::ZoneNo;
use zoneplug_core::zone::Geometry;

/// The first and the last zone of a range.
fn zones(g: &Geometry, unit: &Unit, range: BlockRange) -> (ZoneNo, ZoneNo) {
    let last = range.lba + u64::from(range.blocks) - 1;
    (g.zone_of(unit.sector(range.lba)).0, g.zone_of(unit.sector(last)).0)
}

impl Unit {
    /// Checks that a range is on the unit.
    pub(super) fn check_range(&self, range: BlockRange) -> Result<(), SenseData> {
        if range.lba > self.blocks || u64::from(range.blocks) > self.blocks - range.lba {
            let information = Some(range.lba);
            return Err(SenseData { information, ..OUT_OF_RANGE.into() });
        }
        Ok(())
    }

    /// Checks the length of a transfer.
    pub(super) fn check_transfer(&self, range: BlockRange) -> Result<(), SenseData> {
        let bytes = u64::from(range.blocks) * u64::from(self.block_len());
        if bytes > u64::from(self.max_transfer()) { Err(INVALID_FIELD.into()) } else { Ok(()) }
    }

    /// Checks a range that is read. A read may not go from conventional zones into others, nor the other way. If reads
    /// are restricted, it stays within one sequential zone, which is returned.
    pub(super) fn check_read(&self, range: BlockRange) -> Result<Option<ZoneNo>, SenseData> {
        self.check_range(range)?;
        self.check_transfer(range)?;
        let Some(g) = self.zones.filter(|_| range.blocks > 0) else { return Ok(None) };
        let (first, last) = zones(&g, self, range);
        let sequential = !g.is_conventional(first);
        let restricted = sequential && !self.config.unrestricted_reads;
        let mixed = (first.0..=last.0).any(|z| g.is_conventional(ZoneNo(z)) == sequential);
        if mixed || restricted && first != last {
            return Err(READ_BOUNDARY.into());
        }
        Ok(restricted.then_some(first))
    }

    /// Checks a range that is written. It is within one sequential zone, and in whole physical blocks, or in
    /// conventional zones only. The disk would split a longer write, and ZBC refuses it.
    pub(super) fn check_write(&self, range: BlockRange) -> Result<(), SenseData> {
        self.check_range(range)?;
        let Some(g) = self.zones.filter(|_| range.blocks > 0) else { return Ok(()) };
        let (first, last) = zones(&g, self, range);
        if g.is_conventional(first) {
            let mixed = (first.0..=last.0).any(|z| !g.is_conventional(ZoneNo(z)));
            return if mixed { Err(WRITE_BOUNDARY.into()) } else { Ok(()) };
        }
        if first != last {
            return Err(WRITE_BOUNDARY.into());
        }
        let granularity = u64::from(self.limits.write_granularity_sectors);
        let sector = self.sector(range.lba).0;
        let end = sector + (u64::from(range.blocks) << self.shift);
        if !sector.is_multiple_of(granularity) || !end.is_multiple_of(granularity) {
            let information = Some(range.lba);
            return Err(SenseData { information, ..UNALIGNED_WRITE.into() });
        }
        Ok(())
    }

    /// Returns whether all blocks of a range of the unit are in conventional zones.
    pub(super) fn is_conventional(&self, range: BlockRange) -> bool {
        let Some(g) = self.zones.filter(|_| range.blocks > 0) else { return true };
        let (first, last) = zones(&g, self, range);
        (first.0..=last.0).all(|z| g.is_conventional(ZoneNo(z)))
    }
}
