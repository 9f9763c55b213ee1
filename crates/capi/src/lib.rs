//! `libzoneplug`: zoned disks for programs in C. `include/zoneplug.h` is generated from this crate; `docs/c.md` says how
//! to build, link and use it.
//!
//! | file | owns |
//! | --- | --- |
//! | `boundary.rs` | what every call does first and last: panics, forks, errors and their texts |
//! | `types.rs` | operations, flags, statuses, zones, as C sees them |
//! | `disk.rs` | a disk: open, close, properties, attributes, the plug dump |
//! | `files.rs` | disks in files: made, checked, copied |
//! | `blocking.rs` | calls that wait |
//! | `log.rs` | a log in the zones of a disk |
//! | `crash.rs` | power cuts of code in C |
//! | `serve.rs` | served disks |
//! | `queue.rs`, `queue_state.rs` | queues: many operations at a time |
//! | `events.rs` | what happened to a disk |
//! | `memory.rs` | memory of arguments; buffers that are aligned for any device |
//!
//! A C program gives pointers, which no code here can check. The header says what each must point to; a program that
//! violates this has undefined behaviour, as with any C library. Everything else is checked.

// The names of types are those in the header.
#![allow(non_camel_case_types)]
// The header says what each pointer must point to, for C programmers.
#![allow(clippy::missing_safety_doc)]

#[cfg(target_endian = "big")]
compile_error!("a report is in the byte order of the disk, which is little endian");

mod blocking;
mod boundary;
mod crash;
mod disk;
mod events;
mod files;
mod log;
mod memory;
mod queue;
mod queue_state;
mod serve;
mod types;

pub use blocking::*;
pub use boundary::{zp_error_hint, zp_error_message, zp_error_reason, zp_line};
pub use crash::*;
pub use disk::*;
pub use events::*;
pub use files::*;
pub use log::*;
pub use memory::*;
pub use queue::*;
pub use serve::*;
pub use types::*;
