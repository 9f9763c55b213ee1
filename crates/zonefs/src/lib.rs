//! Shows the zones of a disk as files, like Linux's zonefs, in user space.
//!
//! A [`Volume`] has the rules: sizes, writes at the end, truncation, errors. [`Mount`] serves it to
//! the kernel by FUSE. A volume has the super block that mkzonefs(8) writes, so Linux can mount the
//! same disk.
//!
//! | file | what it owns |
//! | --- | --- |
//! | `super_block.rs`, `format_options.rs` | the format of the super block; the options of a new one |
//! | `options.rs` | the options of a mount |
//! | `layout.rs` | the zones of each file |
//! | `volume/` | the files: sizes, writes, errors |
//! | `fuse.rs` | requests of the kernel |
//! | `mount.rs` | a mount from its start to its end |

#![forbid(unsafe_code)]

mod format_options;
mod fuse;
mod layout;
mod mount;
mod options;
mod super_block;
mod volume;

pub use layout::Group;
pub use mount::{Mount, MountError};
pub use options::{MountOptions, OnError};
pub use super_block::{NoSuperBlock, SUPER_BLOCK_LEN, SuperBlock};
pub use volume::{Attributes, FileNo, Observer, Usage, Volume, VolumeEvent, WriteMode};
