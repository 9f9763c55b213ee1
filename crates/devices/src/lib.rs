//! Devices without hardware: for tests, as building blocks, and for measurements.
//!
//! | room | owns |
//! | --- | --- |
//! | [`emu`] | the emulated disks `null` and `mem`: strict state machines that refuse every violation |
//! | [`emu::timing`] | the times of real drives: models of an SMR hard disk and of a ZNS SSD |
//! | [`stack`] | devices on devices: faults and power cuts, zones of a power of two, joins, a tap |
//! | [`conformance`] | the checks that every device must pass |
//! | [`spec`] | the grammar in which a device is written as text |
//!
//! Like the engine, nothing here reads a clock, starts a thread or opens a file: `now` and seeds are arguments.

#![forbid(unsafe_code)]
// Lists hold boxes on purpose: BIOs and commands move by handle.
#![allow(clippy::vec_box)]

pub mod conformance;
pub mod emu;
pub mod spec;
pub mod stack;
