//! `zoneplug._zoneplug`: what the Python package `zoneplug` is made of. The package's own files give it its names, its
//! exceptions and its documentation.
//!
//! | file | owns |
//! | --- | --- |
//! | `buffer.rs` | memory that a disk reads and writes without copies, with Python's buffer protocol |
//! | `disk.rs` | a disk, and calls that wait |
//! | `file.rs` | disks in files: making and checking them |
//! | `log.rs` | a log in zones |
//! | `crash.rs` | power cuts of code in Python |
//! | `serve.rs` | served disks |
//! | `queue.rs` | many operations at a time, with a descriptor for an event loop |
//! | `models/` | figures in virtual time, policies in Python |
//! | `signals.rs` | signals of Python while a call waits |
//! | `error.rs` | exceptions, and processes that were forked |

mod buffer;
mod crash;
mod disk;
mod error;
#[cfg(feature = "file")]
mod file;
mod log;
#[cfg(feature = "models")]
mod models;
mod queue;
#[cfg(feature = "serve")]
mod serve;
mod signals;

use pyo3::prelude::*;

#[pymodule]
mod _zoneplug {
    #[pymodule_export]
    #[expect(non_upper_case_globals)]
    const __version__: &str = env!("CARGO_PKG_VERSION");
    #[pymodule_export]
    use crate::buffer::Buffer;
    #[pymodule_export]
    use crate::crash::{_crash, PyPower, PyWork};
    #[pymodule_export]
    use crate::disk::{Disk, Opened};
    #[cfg(feature = "file")]
    #[pymodule_export]
    use crate::file::{_check, _create};
    #[pymodule_export]
    use crate::log::{_open_logs, PyAddress, PyLog, PyRecords};
    #[cfg(feature = "models")]
    #[pymodule_export]
    use crate::models::calls::{_measure, _replay, _reproduce, _simulate};
    #[cfg(feature = "models")]
    #[pymodule_export]
    use crate::models::policy::View;
    #[pymodule_export]
    use crate::queue::Queue;
    #[cfg(feature = "serve")]
    #[pymodule_export]
    use crate::serve::Served;
}
