//! Observation of the plugs: probes (T3).
//!
//! With the cargo feature `probes` these are USDT probes of the provider `zoneplug`, which bpftrace, perf and SystemTap
//! can attach to while a program runs. Without the feature no code of them is compiled.
//!
//! | probe | when | fields |
//! | --- | --- | --- |
//! | `add_to_plug` | writes have to wait in their zone's plug, also held ones that a write before them has admitted | `zone`, `sector`, `count`, `bios` |
//! | `hold_write` | a write has come before its place, and is held in the order window | `zone`, `sector`, `count` |
//! | `expire_write` | a write was held for as long as it may be, and is refused | `zone`, `sector`, `count` |
//! | `issue_from_plug` | writes that waited leave for the device, merged | `zone`, `sector`, `count`, `bios` |
//! | `zone_management` | a management BIO was accepted | `op`, `sector`, `count`: its whole range |
//! | `zone_recovery` | the layer asks the device for the write pointer of a zone | `zone`, `number` |
//! | `append_position` | the place of an append is known: an emulated one's when the layer chooses it, a native one's when it has landed | `zone`, `sector`, `count` |
//! | `issue` | a command goes to the device | `command`, `op`, `sector`, `count`, `bios` |
//! | `complete` | a command comes back | `command`, `op`, `sector`, `count`, `status` |
//! | `error` | a command has failed at the device | `op`, `status`, `zone`, `sector`, `aborted` |
//! | `zone_event` | something else that the disk records: see [`EventKind`](super::EventKind) | `kind`, `zone`, `sector` |
//!
//! No probe shows that a report admits a held write, or that a held write is refused for another reason than its
//! time.
//!
//! `sector` and `count` are in sectors; `bios` is the number of BIOs in the range. `command` is the same number from
//! `issue` to `complete`. `op`, `status` and `kind` are numbers: [`Op`](crate::bio::Op), whose numbers are in
//! the order of its names, [`Status`](crate::bio::Status), 0 for success, and `EventKind`.
//!
//! A probe that no program watches costs a comparison with a word in memory and a jump.

use super::snapshot::Layout;
use crate::bio::{Bio, Command, Op, Status};

/// Makes a probe, if this build has the feature. The values are computed only for a program that watches.
#[cfg(feature = "probes")]
macro_rules! probe {
    ($name:ident, $($value:expr),+) => {
        if zoneplug_probe::$name::is_watched() {
            zoneplug_probe::$name::fire($(u64::from($value)),+);
        }
    };
}
#[cfg(not(feature = "probes"))]
macro_rules! probe {
    ($($name:tt)*) => {};
}

/// Makes the function of an event.
macro_rules! event {
    ($(#[$doc:meta])* $name:ident, $($field:ident: $ty:ty),+) => {
        $(#[$doc])*
        #[inline(always)]
        #[cfg_attr(not(feature = "probes"), allow(dead_code, unused_variables))]
        pub(in crate::disk) fn $name($($field: $ty),+) {
            probe!($name, $($field),+);
        }
    };
}

event!(
    /// Writes that must wait in their plug.
    add_to_plug, zone: u32, sector: u64, count: u32, bios: u32
);
event!(
    /// A write that is held in the order window.
    hold_write, zone: u32, sector: u64, count: u32
);
event!(
    /// A write that was held for too long.
    expire_write, zone: u32, sector: u64, count: u32
);
event!(
    /// Writes that waited and are being sent.
    issue_from_plug, zone: u32, sector: u64, count: u32, bios: u32
);
event!(
    /// A request of the layer for the write pointer of a zone.
    zone_recovery, zone: u32, number: u32
);

/// Reports writes that waited and are being sent.
#[inline(always)]
pub(super) fn issued(cmd: &Command) {
    issue_from_plug(cmd.zone, cmd.sector.0, cmd.len_sectors, cmd.bios.len() as u32);
}

/// Reports a management BIO that was accepted.
#[inline(always)]
#[cfg_attr(not(feature = "probes"), allow(dead_code, unused_variables))]
pub(super) fn zone_management(op: Op, sector: u64, count: u64) {
    probe!(zone_management, op as u8, sector, count);
}

/// Reports the places of appends, which are known now.
#[inline(always)]
#[cfg_attr(not(feature = "probes"), allow(unused_variables))]
pub(super) fn append_positions(layout: &Layout, bios: &[Box<Bio>]) {
    #[cfg(feature = "probes")]
    if zoneplug_probe::append_position::is_watched() {
        seen::append_positions(layout, bios);
    }
}

/// Reports a command that goes to the device.
#[inline(always)]
#[cfg_attr(not(feature = "probes"), allow(unused_variables))]
pub(super) fn issue(cmd: &Command) {
    #[cfg(feature = "probes")]
    if zoneplug_probe::issue::is_watched() {
        seen::issue(cmd);
    }
}

/// Reports a command that comes back.
#[inline(always)]
#[cfg_attr(not(feature = "probes"), allow(unused_variables))]
pub(super) fn complete(cmd: &Command) {
    #[cfg(feature = "probes")]
    if zoneplug_probe::complete::is_watched() {
        seen::complete(cmd);
    }
}

/// Computes the arguments of probes on the path of every BIO: out of line, so that the path keeps its registers.
#[cfg(feature = "probes")]
mod seen {
    use super::{Bio, Command, Layout};

    #[cold]
    #[inline(never)]
    pub(super) fn append_positions(layout: &Layout, bios: &[Box<Bio>]) {
        for bio in bios {
            let (zone, count) = (layout.geometry.zone_of(bio.sector).0.0, bio.len_sectors);
            zoneplug_probe::append_position::fire(zone.into(), bio.sector.0, count.into());
        }
    }

    #[cold]
    #[inline(never)]
    pub(super) fn issue(cmd: &Command) {
        let (op, count, bios) = (cmd.op as u64, cmd.len_sectors.into(), cmd.bios.len() as u64);
        zoneplug_probe::issue::fire(&raw const *cmd as u64, op, cmd.sector.0, count, bios);
    }

    #[cold]
    #[inline(never)]
    pub(super) fn complete(cmd: &Command) {
        let (op, count, status) = (cmd.op as u64, cmd.len_sectors.into(), cmd.status as u64);
        zoneplug_probe::complete::fire(&raw const *cmd as u64, op, cmd.sector.0, count, status);
    }
}

/// Reports a command that has failed. `zone` is `u32::MAX` if it belongs to no zone.
#[inline(always)]
#[cfg_attr(not(feature = "probes"), allow(unused_variables))]
pub(super) fn error(op: Option<Op>, status: Status, zone: u32, sector: u64, aborted: u32) {
    probe!(error, op.map_or(0, |op| op as u8), status as u8, zone, sector, aborted);
}

/// Reports another event that the disk has recorded.
#[inline(always)]
#[cfg_attr(not(feature = "probes"), allow(unused_variables))]
pub(super) fn zone_event(kind: u8, zone: u32, sector: u64) {
    probe!(zone_event, kind, zone, sector);
}
