//! The error of an adapter's operation, with the buffer of the operation.

use std::{fmt, io};
use zoneplug_buf::AlignedBuf;
use zoneplug_core::{Error, ErrorDetail, ErrorKind, Hint, Op, Sector, Status};

/// The error of an operation, with its buffer: [`IoError::into_buf`].
///
/// ```
/// use zoneplug_host::{BlockingDisk, HostedDisk};
/// use zoneplug_buf::AlignedBuf;
/// use zoneplug_core::{Sector, Status};
/// let disk = HostedDisk::open_spec("mem,zones=4,zone-size=1M").unwrap();
/// let mut io = BlockingDisk::new(&disk).unwrap();
/// let e = io.write(Sector(800), AlignedBuf::from_slice(&[7; 4096])).unwrap_err();
/// assert_eq!(e.status, Status::NotAtWritePointer);
/// assert_eq!(e.to_string(), "write at sector 800: not at the write pointer");
/// let again = e.into_buf().unwrap();
/// assert_eq!(io.write(Sector(0), again).unwrap().as_slice(), [7; 4096]);
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct IoError {
    /// The operation.
    pub op: Op,
    /// Its sector of 512 bytes.
    pub sector: Sector,
    /// The result of the operation. [`Status::Timeout`] if it has not ended within the adapter's timeout.
    pub status: Status,
    buf: Option<AlignedBuf>,
}

impl IoError {
    /// An error of an operation that has no buffer, or whose buffer is not given back.
    pub fn new(op: Op, sector: Sector, status: Status) -> IoError {
        IoError { op, sector, status, buf: None }
    }

    pub(crate) fn with_buf(self, buf: Option<AlignedBuf>) -> IoError {
        IoError { buf, ..self }
    }

    /// The buffer of the operation. `None`: it had none, or the device may still use it, as after a timeout. The disk
    /// keeps such a buffer and frees it when the device is done with it: see
    /// [`HostedDisk::withheld`](crate::HostedDisk::withheld).
    pub fn into_buf(self) -> Option<AlignedBuf> {
        self.buf
    }

    /// A hint for the user, if the cause does not depend on the program.
    pub fn what_to_try(&self) -> Option<&'static str> {
        Some(match self.status {
            // Programs in C and Python get these texts too, so they name no item of this crate.
            Status::Unaligned | Status::BadBuffer => {
                "addresses and lengths that are multiples of the disk's logical block"
            }
            Status::OutOfRange => "at least one block, and no sector past the end of the disk",
            Status::NotZoneStart => "the first sector of a zone, as a report has it",
            Status::NotAtWritePointer => "append, or write where the zone's report says",
            Status::PastCapacity | Status::ZoneFull => "another zone, or reset this one",
            Status::ZoneReadOnly | Status::ZoneOffline => "another zone",
            Status::ConventionalZone => "a sequential zone",
            Status::StaleWritePointer => "resync the zone, or reset it",
            Status::OpenLimit => "close a zone: the disk has a limit of open zones",
            Status::ActiveLimit => "finish or reset a zone: the disk has a limit of active zones",
            Status::ReadOnlyDisk => "open the disk for writing",
            Status::UnalignedWrite => {
                "look for what else writes to this disk, then resync the zone"
            }
            _ => return None,
        })
    }
}

impl fmt::Display for IoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}: ", self.op.name(), self.sector)?;
        // The range of a management command may begin with a zone and not end with one.
        match self.status {
            Status::NotZoneStart if self.op.is_zone_management() => f.write_str("not whole zones"),
            status => status.fmt(f),
        }
    }
}

impl std::error::Error for IoError {}

/// For functions that do more than I/O. [`Error::detail`] returns the error with its status.
///
/// ```
/// use zoneplug_host::{BlockingDisk, HostedDisk, IoError};
/// use zoneplug_core::{Error, Sector, Status};
/// fn work() -> Result<(), Error> {
///     let disk = HostedDisk::open_spec("mem,zones=4,zone-size=1M")?;
///     let mut io = BlockingDisk::new(&disk)?;
///     io.read_into(Sector(u64::MAX), &mut [0; 4096])?;
///     Ok(())
/// }
/// let e = work().unwrap_err();
/// assert!(e.to_string().contains("out of range; try: at least one block"), "{e}");
/// assert_eq!(e.detail::<IoError>().unwrap().status, Status::OutOfRange);
/// ```
impl ErrorDetail for IoError {
    fn kind(&self) -> ErrorKind {
        match self.status {
            Status::NotSupported => ErrorKind::NotSupported,
            Status::Busy | Status::ZoneBusy | Status::WouldBlock => ErrorKind::Busy,
            Status::OutOfRange
            | Status::Unaligned
            | Status::BadBuffer
            | Status::NotZoneStart
            | Status::AppendTooLarge => ErrorKind::Invalid,
            _ => ErrorKind::Io,
        }
    }

    fn hint(&self) -> Option<Hint> {
        self.what_to_try().map(Hint::from)
    }
}

/// For functions that also use files. The kind is that of the status's errno; the text has the hint. Drops the buffer.
///
/// ```
/// use std::io::{self, ErrorKind};
/// use zoneplug_core::Sector;
/// use zoneplug_host::{BlockingDisk, HostedDisk};
/// fn work() -> io::Result<()> {
///     let disk = HostedDisk::open_spec("mem,zones=4,zone-size=1M").map_err(io::Error::other)?;
///     let mut disk = BlockingDisk::new(&disk).map_err(io::Error::other)?;
///     disk.read_into(Sector(u64::MAX), &mut [0; 4096])?;
///     Ok(())
/// }
/// let e = work().unwrap_err();
/// assert_eq!(e.kind(), ErrorKind::InvalidInput);
/// assert!(e.to_string().contains("out of range"), "{e}");
/// ```
impl From<IoError> for io::Error {
    fn from(e: IoError) -> io::Error {
        let kind = io::Error::from_raw_os_error(e.status.errno()).kind();
        io::Error::new(kind, Error::from(e))
    }
}
