//! Exceptions, and processes that were forked.

use pyo3::call::PyCallArgs;
use pyo3::prelude::*;
use zoneplug::crash::CrashFailure;
use zoneplug::zone_log::LogError;
use zoneplug_core::{CommandLine, Error, Spelling};
use zoneplug_host::IoError;

/// Linux's numbers.
const EPERM: i32 = 1;
const EINVAL: i32 = 22;

/// How hints name options and commands: `force=True`, `zoneplug.create(path, size="20G")`.
struct PythonSpelling;

impl Spelling for PythonSpelling {
    fn option(&self, name: &str, value: Option<&str>) -> String {
        let value = match value {
            None => "True".to_owned(),
            Some(client @ ("NQN" | "IQN")) => format!("[{client}]"),
            Some("NQN=FILE") => "{NQN: FILE}".to_owned(),
            Some("IQN=FILE") => "{IQN: FILE}".to_owned(),
            Some(value) => format!("\"{value}\""),
        };
        format!("{}={value}", name.replace('-', "_"))
    }

    fn command(&self, command: &CommandLine) -> String {
        match command.name() {
            name @ ("create" | "check") => {
                let options = command.options().map(|(name, value)| self.option(name, value));
                let arguments = std::iter::once("path".to_owned()).chain(options);
                format!("zoneplug.{name}({})", arguments.collect::<Vec<_>>().join(", "))
            }
            _ => command.to_string(),
        }
    }
}

/// The exception that a function of `zoneplug.errors` makes.
fn make<'py>(py: Python<'py>, function: &str, arguments: impl PyCallArgs<'py>) -> PyErr {
    let made = py.import("zoneplug.errors").and_then(|m| m.call_method1(function, arguments));
    match made {
        Ok(e) => PyErr::from_value(e),
        Err(e) => e,
    }
}

/// An error of opening or configuring.
pub(crate) fn failed(py: Python<'_>, e: &Error) -> PyErr {
    let hint = e.what_to_try_in(&PythonSpelling);
    make(py, "_make", (e.reason(), e.errno(), e.what(), hint))
}

/// An error of an operation.
pub(crate) fn io_failed(py: Python<'_>, e: &IoError) -> PyErr {
    let (name, errno, text) = (format!("{:?}", e.status), e.status.errno(), e.to_string());
    make(py, "_make_io", (name, errno, text, e.what_to_try(), e.op.name(), e.sector.0))
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
    let general = Error::from(e.clone());
    let hint = general.what_to_try();
    make(py, "_make_log", (name, e.errno(), general.what(), hint))
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
    make(py, "_make", (None::<&str>, EINVAL, "the disk is closed", "open it again"))
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
        Err(make(py, "_make", (None::<&str>, EPERM, text, hint)))
    }
}
