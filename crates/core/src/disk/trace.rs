//! Trace events that show what the plugs do (T3).
//!
//! With the cargo feature `trace`, events go through the `tracing` crate with target `zoneplug` and level TRACE. By
//! default the feature is off, and no code of it is compiled.
//!
//! | event | when | fields |
//! | --- | --- | --- |
//! | `add-to-plug` | writes have to wait in their zone's plug, also held ones that a write before them has admitted | `zone`, `sector`, `count`, `bios` |
//! | `hold-write` | a write has come before its place, and is held in the order window | `zone`, `sector`, `count` |
//! | `expire-write` | a write was held for as long as it may be, and is refused | `zone`, `sector`, `count` |
//! | `issue-from-plug` | writes that waited leave for the device, merged | `zone`, `sector`, `count`, `bios` |
//! | `zone-management` | a management BIO was accepted | `op`, `sector`, `count`: its whole range |
//! | `append-position` | an append has landed, emulated or native | `zone`, `sector`, `count` |
//!
//! Held writes that a report admits, or that are refused for another reason than their time, have no event of that.
//!
//! `sector` and `count` are in sectors; `bios` is the number of BIOs in the range. No shard lock is held while a
//! subscriber runs, but the queue is in use: a subscriber must not use the disk.

/// Emits an event if this build has the feature. Otherwise its fields are not even evaluated.
#[cfg(feature = "trace")]
macro_rules! trace {
    ($event:literal, $($field:ident = $value:expr),+ $(,)?) => {
        tracing::trace!(target: "zoneplug", $($field = $value,)+ $event)
    };
}
#[cfg(not(feature = "trace"))]
macro_rules! trace {
    ($($event:tt)*) => {};
}
pub(super) use trace;

/// Reports where the appends of a command that succeeded have landed.
#[cfg(feature = "trace")]
pub(super) fn appends(layout: &crate::disk::snapshot::Layout, bios: &[Box<crate::bio::Bio>]) {
    for bio in bios.iter().filter(|b| b.op == crate::bio::Op::ZoneAppend) {
        let zone = layout.geometry.zone_of(bio.sector).0.0;
        trace!("append-position", zone = zone, sector = bio.sector.0, count = bio.len_sectors);
    }
}

/// Reports that writes which waited are being sent.
#[cfg(feature = "trace")]
pub(super) fn issued(cmd: &crate::bio::Command) {
    trace!(
        "issue-from-plug",
        zone = cmd.zone,
        sector = cmd.sector.0,
        count = cmd.len_sectors,
        bios = cmd.bios.len(),
    );
}
