//! Exceptions, and processes that were forked.

use pyo3::prelude::*;
use zoneplug_core::{Error, ErrorKind, Status};
use zoneplug_host::IoError;

/// Linux's numbers.
const ENOENT: i32 = 2;
const EPERM: i32 = 1;
const EIO: i32 = 5;
const EBUSY: i32 = 16;
const EINVAL: i32 = 22;
const EOPNOTSUPP: i32 = 95;

/// The exception of `zoneplug.errors` for a failure.
fn exception(
    py: Python<'_>,
    status: Option<Status>,
    errno: i32,
    text: &str,
    hint: Option<&str>,
    op: Option<(&str, u64)>,
) -> PyErr {
    let name = status.map(|s| format!("{s:?}"));
    let (op, sector) = op.map_or((None, None), |(op, sector)| (Some(op), Some(sector)));
    let made = py
        .import("zoneplug.errors")
        .and_then(|m| m.call_method1("_make", (name, errno, text, hint, op, sector)));
    match made {
        Ok(e) => PyErr::from_value(e),
        Err(e) => e,
    }
}

/// An error of opening or configuring.
pub(crate) fn failed(py: Python<'_>, e: &Error) -> PyErr {
    let mut cause = std::error::Error::source(e);
    let mut errno = None;
    while let Some(e) = cause {
        errno = errno.or(e.downcast_ref::<std::io::Error>().and_then(|e| e.raw_os_error()));
        cause = e.source();
    }
    let by_kind = match e.kind() {
        ErrorKind::Invalid => EINVAL,
        ErrorKind::NotFound => ENOENT,
        ErrorKind::Busy => EBUSY,
        ErrorKind::NotSupported => EOPNOTSUPP,
        _ => EIO,
    };
    exception(py, None, errno.unwrap_or(by_kind), e.what(), e.what_to_try(), None)
}

/// An error of an operation.
pub(crate) fn io_failed(py: Python<'_>, e: &IoError) -> PyErr {
    let op = Some((e.op.name(), e.sector.0));
    exception(py, Some(e.status), e.status.errno(), &e.to_string(), e.what_to_try(), op)
}

/// The disk or queue is closed.
pub(crate) fn closed(py: Python<'_>) -> PyErr {
    exception(py, None, EINVAL, "the disk is closed", Some("open it again"), None)
}

/// The process that opened a disk. Its threads do not exist in a child of a fork.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Process(u32);

impl Process {
    pub(crate) fn this() -> Process {
        Process(std::process::id())
    }

    /// Whether the calling process is a child that has inherited the disk.
    pub(crate) fn is_other(self) -> bool {
        std::process::id() != self.0
    }

    /// Refuses such a child.
    pub(crate) fn check(self, py: Python<'_>) -> PyResult<()> {
        if !self.is_other() {
            return Ok(());
        }
        let text = "the disk was opened before this process was forked";
        let hint = "open the disk in the child, or use multiprocessing's method \"spawn\"";
        Err(exception(py, None, EPERM, text, Some(hint), None))
    }
}
