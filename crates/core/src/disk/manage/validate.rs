//! Checks BIOs of the rare kinds against the layout. Nothing is changed here; `begin` in `manage.rs` does that.

use crate::bio::{Bio, Flags, Op, Status};
use crate::disk::snapshot::Layout;
use crate::unit::{Sector, ZoneNo};
use crate::zone::ZONE_RECORD_LEN;
use std::ops::Range;

/// Checks a BIO that is neither a read nor a write. `idle_tags` counts the BIOs that the queue can send now.
pub(super) fn validate(
    layout: &Layout,
    bio: &Bio,
    idle_tags: impl Fn() -> usize,
) -> Result<(), Status> {
    match bio.op {
        Op::Flush => Ok(()),
        // The queue checks and sends these without coming here.
        Op::Read | Op::Write | Op::WriteZeroes => layout.check_write(bio),
        Op::Discard => discard(layout, bio),
        Op::ZoneAppend => native_append(layout, bio, idle_tags),
        Op::ReportZones => report(layout, bio, idle_tags),
        Op::ZoneOpen | Op::ZoneClose | Op::ZoneFinish | Op::ZoneReset | Op::ZoneResetAll => {
            management(layout, bio)
        }
    }
}

/// Checks a discard. Only conventional zones can be discarded.
fn discard(layout: &Layout, bio: &Bio) -> Result<(), Status> {
    layout.check_write(bio)?;
    let (first, _) = layout.geometry.zone_of(bio.sector);
    let last = bio.sector.plus(u64::from(bio.len_sectors) - 1);
    let (last, _) = layout.geometry.zone_of(last);
    let conventional = (first.0..=last.0).all(|z| layout.geometry.is_conventional(ZoneNo(z)));
    if layout.limits.discard && conventional { Ok(()) } else { Err(Status::NotSupported) }
}

fn native_append(layout: &Layout, bio: &Bio, idle_tags: impl Fn() -> usize) -> Result<(), Status> {
    if !layout.native_append {
        return Err(Status::NotSupported);
    }
    layout.check_write(bio)?;
    let (zone, offset) = layout.geometry.zone_of(bio.sector);
    if layout.geometry.is_conventional(zone) {
        return Err(Status::ConventionalZone);
    }
    layout.check_append(offset, bio.len_sectors)?;
    would_not_wait(bio, idle_tags)
}

fn report(layout: &Layout, bio: &Bio, idle_tags: impl Fn() -> usize) -> Result<(), Status> {
    if bio.sector.0 >= layout.geometry.capacity().0 {
        return Err(Status::OutOfRange);
    }
    would_not_wait(bio, idle_tags)?;
    let len = bio.data().len() as usize;
    if len == 0 || !len.is_multiple_of(ZONE_RECORD_LEN) || bio.data().is_shared() {
        return Err(Status::BadBuffer);
    }
    Ok(())
}

fn would_not_wait(bio: &Bio, idle_tags: impl Fn() -> usize) -> Result<(), Status> {
    let would_wait = bio.flags.contains(Flags::NOWAIT) && idle_tags() == 0;
    if would_wait { Err(Status::WouldBlock) } else { Ok(()) }
}

/// Checks zone management. The BIO must cover whole zones, and no conventional ones (M1, M6).
fn management(layout: &Layout, bio: &Bio) -> Result<(), Status> {
    if layout.limits.read_only {
        return Err(Status::ReadOnlyDisk);
    }
    if resets_all(layout, bio) {
        return Ok(());
    }
    let g = &layout.geometry;
    if !g.contains(bio.sector, bio.len_sectors) {
        return Err(Status::OutOfRange);
    }
    let (_, offset) = g.zone_of(bio.sector);
    let end = bio.sector.plus(u64::from(bio.len_sectors));
    if offset != 0 || (g.zone_of(end).1 != 0 && end != g.capacity()) {
        return Err(Status::NotZoneStart);
    }
    if zones_of(layout, bio).any(|z| g.is_conventional(ZoneNo(z))) {
        return Err(Status::ConventionalZone);
    }
    Ok(())
}

/// The zones of a valid management BIO.
pub(super) fn zones_of(layout: &Layout, bio: &Bio) -> Range<u32> {
    let g = &layout.geometry;
    if resets_all(layout, bio) {
        return 0..g.nr_zones();
    }
    let (first, _) = g.zone_of(bio.sector);
    let (last, _) = g.zone_of(bio.sector.plus(u64::from(bio.len_sectors) - 1));
    first.0..last.0 + 1
}

/// Returns whether a BIO resets all zones. A reset of exactly the whole disk does too (M1).
pub(super) fn resets_all(layout: &Layout, bio: &Bio) -> bool {
    bio.op == Op::ZoneResetAll
        || bio.op == Op::ZoneReset
            && bio.sector == Sector(0)
            && u64::from(bio.len_sectors) == layout.geometry.capacity().0
}
