//! The errors of a log.

use super::LogAddress;
use std::fmt;
use zoneplug_core::zone::Condition;
use zoneplug_core::{Error, ErrorKind, Op, Sector, Status, ZoneNo};

/// Why an operation on a [`ZoneLog`](super::ZoneLog) failed. `Display` and `Debug` print one line,
/// with a hint where there is one.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum LogError {
    /// No zone is left for the record. Nothing was written; [`trim`](super::ZoneLog::trim) or
    /// [`reset_oldest`](super::ZoneLog::reset_oldest) makes room.
    Full,
    /// The record is longer than a zone can hold. Both lengths are in bytes.
    TooLong {
        /// The length of the record.
        len: u64,
        /// The length of the longest record that fits.
        max: u64,
    },
    /// The record is not there (any more): its zone was reset, or a crash took it before a sync.
    Stale(LogAddress),
    /// The checksum of a record is wrong.
    Corrupted {
        /// Where the damage begins.
        sector: Sector,
    },
    /// Records are missing between two others: from number `first` to before `next`. An iteration
    /// continues with the record `next`.
    Hole {
        /// The first missing record.
        first: u64,
        /// The record after the hole.
        next: u64,
    },
    /// The zone that was being written can no longer be written. The log continues in the next
    /// zone.
    ZoneLost {
        /// The lost zone.
        zone: ZoneNo,
        /// [`Condition::ReadOnly`]: its records can still be read. [`Condition::Offline`]: they cannot.
        condition: Condition,
    },
    /// A zone of the set holds data that no log with this id has written.
    NotALog {
        /// The first such zone.
        zone: ZoneNo,
    },
    /// The disk failed an operation. A record whose append fails with this error may be in
    /// the log or not.
    Io {
        /// The failed operation.
        op: Op,
        /// Its sector.
        sector: Sector,
        /// Its status.
        status: Status,
    },
    /// A sync of this log, or of another log of its set, failed earlier. It is unknown which
    /// records are durable, so the log takes no more records until it is opened again.
    Failed,
    /// The operation was dropped before it completed. A record may be in the log or not.
    Aborted,
    /// The options do not fit the disk, or the disk could not be opened.
    Setup(String),
}

impl LogError {
    /// The hint of the error, if there is one.
    pub fn what_to_try(&self) -> Option<&'static str> {
        Some(match self {
            LogError::Full => "trim the log, or reset its oldest zone",
            LogError::TooLong { .. } => "split the record",
            LogError::ZoneLost { .. } => "append again: the log goes on in the next zone",
            LogError::NotALog { .. } => "other zones, or the id that the log was made with",
            LogError::Failed => "open the log again: it then shows what is durable",
            _ => return None,
        })
    }

    /// Returns the positive Linux `errno`, a number of its own for each kind of error but [`LogError::Io`], which has that of
    /// its status.
    ///
    /// ```
    /// use zoneplug::zone_log::LogError;
    /// assert_eq!(LogError::Full.errno(), 28);
    /// ```
    pub fn errno(&self) -> i32 {
        match self {
            LogError::Full => 28,             // ENOSPC
            LogError::TooLong { .. } => 90,   // EMSGSIZE
            LogError::Stale(_) => 116,        // ESTALE
            LogError::Corrupted { .. } => 74, // EBADMSG
            LogError::Hole { .. } => 61,      // ENODATA
            LogError::ZoneLost { .. } => 30,  // EROFS
            LogError::NotALog { .. } => 17,   // EEXIST
            LogError::Io { status, .. } => status.errno(),
            LogError::Failed => 131,  // ENOTRECOVERABLE
            LogError::Aborted => 125, // ECANCELED
            LogError::Setup(_) => 22, // EINVAL
        }
    }

    fn what(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LogError::Full => f.write_str("the log is full"),
            LogError::TooLong { len, max } => {
                write!(f, "a record of {len} bytes: the longest is {max}")
            }
            LogError::Stale(at) => write!(f, "record {} is not in the log", at.sequence()),
            LogError::Corrupted { sector } => write!(f, "the record at {sector} is damaged"),
            LogError::Hole { first, next } => {
                write!(f, "records {first} to {} are missing", next.saturating_sub(1))
            }
            LogError::ZoneLost { zone, condition: Condition::Offline } => {
                write!(f, "zone {} went offline", zone.0)
            }
            LogError::ZoneLost { zone, .. } => write!(f, "zone {} became read-only", zone.0),
            LogError::NotALog { zone } => write!(f, "zone {} holds no part of this log", zone.0),
            LogError::Io { op, sector, status } => {
                write!(f, "{} at {sector}: {status}", op.name())
            }
            LogError::Failed => f.write_str("an earlier sync failed"),
            LogError::Aborted => f.write_str("the operation was dropped before it was done"),
            LogError::Setup(what) => f.write_str(what),
        }
    }
}

impl fmt::Display for LogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.what(f)?;
        self.what_to_try().map_or(Ok(()), |hint| write!(f, "; try: {hint}"))
    }
}

impl fmt::Debug for LogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for LogError {}

/// Converts the error for functions that also use other parts of the library.
///
/// ```
/// use zoneplug::{HostedDisk, ZoneLog, zone_log::LogOptions};
/// fn first() -> Result<u64, zoneplug::Error> {
///     let disk = HostedDisk::open_spec("mem,zones=4,zone-size=1M")?;
///     let log = ZoneLog::open(&disk, LogOptions::new())?;
///     Ok(log.append_sync(b"first")?.sequence())
/// }
/// assert_eq!(first().unwrap(), 1);
/// ```
impl From<LogError> for Error {
    fn from(e: LogError) -> Error {
        let kind = match &e {
            LogError::TooLong { .. } | LogError::NotALog { .. } | LogError::Setup(_) => {
                ErrorKind::Invalid
            }
            LogError::Stale(_) => ErrorKind::NotFound,
            LogError::Full | LogError::Failed | LogError::Aborted => ErrorKind::Busy,
            _ => ErrorKind::Io,
        };
        let error = Error::new(kind, What(&e).to_string());
        let error = match e.what_to_try() {
            Some(hint) => error.hint(hint),
            None => error,
        };
        error.source(e)
    }
}

/// The error's message without the hint.
struct What<'a>(&'a LogError);

impl fmt::Display for What<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.what(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_a_log_is_one_of_the_library_with_its_hint() {
        let e = Error::from(LogError::Full);
        assert_eq!((e.kind(), e.what_to_try()), (ErrorKind::Busy, LogError::Full.what_to_try()));
        assert_eq!(e.to_string(), LogError::Full.to_string());
        let zone = LogError::ZoneLost { zone: ZoneNo(3), condition: Condition::Offline };
        assert_eq!(Error::from(zone).kind(), ErrorKind::Io);
    }
}
