//! The zoneplug engine: zone write plugging without a kernel.
//!
//! The engine has no clock, thread, file, socket, randomness or printing. `now`, seeds and limits are arguments, so a
//! simulation in virtual time runs the very code that drives a disk. `docs/architecture.md` names the rooms and
//! follows one write through them.

#![forbid(unsafe_code)]
// Lists hold boxes on purpose: BIOs and commands move by handle.
#![allow(clippy::vec_box)]

pub mod bio;
pub mod device;
pub mod disk;
mod error;
mod fnv;
pub mod form;
mod hint;
mod plain;
#[doc(hidden)]
pub mod plug;
#[doc(hidden)]
pub mod poison;
mod random;
pub mod sched;
mod status;
mod sync;
pub mod unit;
pub mod zone;

pub use bio::{
    Bio, BioPool, Bios, Command, Commands, DiskClient, Flags, IoRequest, IoResult, Op, Sense,
    Status, WritePointer, lost_bios,
};
pub use device::{Device, Queue};
pub use error::{Error, ErrorDetail, ErrorKind};
pub use fnv::{FNV_START, fnv1a};
pub use hint::{CommandLine, Hint, Spelling};
pub use plain::{is_plain, one_line, plain, plain_lines, status_key};
pub use random::Random;
pub use unit::{Bytes, Lba, Nanos, Sector, ZoneNo, ZoneOffset};
pub use zoneplug_buf::{IoBuf, IoRange, Parts};
