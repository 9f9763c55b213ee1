//! Load on disks in real time: clients that keep BIOs in flight, and what they find.
//!
//! | file | what it owns |
//! | --- | --- |
//! | `arena.rs` | memory for I/O, used again by every measurement |
//! | `clock.rs` | sleep until a device has something, processor time |
//! | `latency.rs` | how long BIOs take |
//! | `pattern.rs` | data that identify the BIO that wrote them, read back |
//! | `generator.rs` | the load generator |
//! | `notes.rs` | counters that clients publish while they work |
//! | `group.rs` | the clients of one measurement, and its figures |
//! | `verify.rs` | a workload with patterns, read back |
//!
//! `zoneplug-lab demo` needs the first four, and is built from them alone.

pub(crate) mod arena;
pub(crate) mod clock;
#[cfg(feature = "models")]
pub(crate) mod generator;
#[cfg(feature = "models")]
pub(crate) mod group;
pub(crate) mod latency;
#[cfg(feature = "models")]
pub(crate) mod notes;
pub(crate) mod pattern;
#[cfg(feature = "models")]
pub(crate) mod verify;

use zoneplug_core::disk::{DiskConfig, Mode};

/// The configuration of a disk for a mode. Only `plug` emulates append; the other modes use the device's.
pub(crate) fn config(mode: Mode) -> DiskConfig {
    DiskConfig { mode, emulate_append: mode == Mode::Plug, ..DiskConfig::default() }
}
