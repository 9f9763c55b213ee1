//! Exceptions, and processes that were forked.

use pyo3::call::PyCallArgs;
use pyo3::prelude::*;
use zoneplug::crash::CrashFailure;
use zoneplug::zone_log::LogError;
use zoneplug_core::{Error, ErrorKind, Status};
use zoneplug_host::IoError;

/// Linux's numbers.
const ENOENT: i32 = 2;
const EPERM: i32 = 1;
const EIO: i32 = 5;
const EBUSY: i32 = 16;
const EINVAL: i32 = 22;
const ENOSPC: i32 = 28;
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
    make(py, "_make", (name, errno, text, hint, op, sector))
}

/// The exception that a function of `zoneplug.errors` makes.
fn make<'py>(py: Python<'py>, function: &str, arguments: impl PyCallArgs<'py>) -> PyErr {
    let made = py.import("zoneplug.errors").and_then(|m| m.call_method1(function, arguments));
    match made {
        Ok(e) => PyErr::from_value(e),
        Err(e) => e,
    }
}

fn errno_of(kind: ErrorKind) -> i32 {
    match kind {
        ErrorKind::Invalid => EINVAL,
        ErrorKind::NotFound => ENOENT,
        ErrorKind::Busy => EBUSY,
        ErrorKind::NotSupported => EOPNOTSUPP,
        _ => EIO,
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
    exception(py, None, errno.unwrap_or(errno_of(e.kind())), e.what(), e.what_to_try(), None)
}

/// An error of an operation.
pub(crate) fn io_failed(py: Python<'_>, e: &IoError) -> PyErr {
    let op = Some((e.op.name(), e.sector.0));
    exception(py, Some(e.status), e.status.errno(), &e.to_string(), e.what_to_try(), op)
}

/// An error of a log.
pub(crate) fn log_failed(py: Python<'_>, e: &LogError) -> PyErr {
    let name = match e {
        LogError::Full => "LogFull",
        LogError::TooLong { .. } => "RecordTooLong",
        LogError::Stale(_) => "StaleRecord",
        LogError::Corrupted { .. } => "DamagedRecord",
        LogError::Hole { .. } => "MissingRecords",
        LogError::ZoneLost { .. } => "ZoneLost",
        LogError::NotALog { .. } => "NotALog",
        LogError::Failed => "LogFailed",
        _ => "LogError",
    };
    let errno = match e {
        LogError::Io { status, .. } => status.errno(),
        LogError::Full => ENOSPC,
        _ => errno_of(Error::from(e.clone()).kind()),
    };
    let general = Error::from(e.clone());
    let hint = general.what_to_try();
    make(py, "_make_log", (name, errno, general.what(), hint))
}

/// A power cut that a check did not pass, or work that failed before. `cause`: what the check has raised.
pub(crate) fn power_cut(py: Python<'_>, e: &CrashFailure, cause: Option<PyErr>) -> PyErr {
    let text = e.to_string();
    let made = make(py, "_make_cut", (text, &e.message, e.seed, e.point, e.nr, &e.repeat));
    made.set_cause(py, cause);
    made
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
