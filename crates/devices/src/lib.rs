//! What stands below a disk when no hardware does: devices to test with, to build on and to measure against.
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
// BIOs and commands move by handle: a list of boxes is what is meant.
#![allow(clippy::vec_box)]

pub mod conformance;
pub mod emu;
pub mod spec;
pub mod stack;
