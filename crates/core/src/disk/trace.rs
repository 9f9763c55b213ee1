//! Trace events that show what the plugs do (T3).
//!
//! With the cargo feature `trace` they go through the `tracing` crate, target `zoneplug`, level TRACE; without it,
//! which is the default, neither they nor what they show is compiled.
//!
//! | event | when | fields |
//! | --- | --- | --- |
//! | `add-to-plug` | writes have to wait in their zone's plug | `zone`, `sector`, `count`, `bios` |
//! | `issue-from-plug` | writes that waited leave for the device, merged | `zone`, `sector`, `count`, `bios` |
//! | `zone-management` | a management BIO was accepted | `op`, `sector`, `count`: its whole range |
//! | `append-position` | an append has landed, emulated or native | `zone`, `sector`, `count` |
//!
//! Sectors throughout; `bios` counts the BIOs that share the range. No shard lock is held while a subscriber runs, but
//! the queue is in use: a subscriber must not use the disk.

/// An event, if this build has any. Its fields are not even looked at in one that has none.
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

/// Where the appends of a command that succeeded have landed.
#[cfg(feature = "trace")]
pub(super) fn appends(layout: &crate::disk::snapshot::Layout, bios: &[Box<crate::bio::Bio>]) {
    for bio in bios.iter().filter(|b| b.op == crate::bio::Op::ZoneAppend) {
        let zone = layout.geometry.zone_of(bio.sector).0.0;
        trace!("append-position", zone = zone, sector = bio.sector.0, count = bio.len_sectors);
    }
}

/// Writes that waited are on their way.
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
