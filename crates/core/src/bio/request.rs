//! A request of a protocol's command for a disk, as numbers: the protocol has no buffers of its own.

use super::{Flags, Op, Status};
use crate::unit::Sector;

/// A BIO that a command of a protocol such as NVMe or SCSI needs. The program that carries the command out makes it.
///
/// ```
/// use zoneplug_core::{IoRequest, Op, Sector};
/// let report = IoRequest { sector: Sector(0x8000), memory: (0, 64), ..IoRequest::new(0, Op::ReportZones) };
/// assert_eq!((report.disk, report.len_sectors), (0, 0));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IoRequest {
    /// The caller's number of the disk.
    pub disk: u32,
    /// The operation.
    pub op: Op,
    /// First sector.
    pub sector: Sector,
    /// Length of the range in sectors.
    pub len_sectors: u32,
    /// Flags.
    pub flags: Flags,
    /// The part of the command's buffer that the BIO moves: offset and bytes. (0, 0): none.
    pub memory: (u32, u32),
}

impl IoRequest {
    /// Returns a request without a range, flags and memory.
    #[inline]
    pub const fn new(disk: u32, op: Op) -> IoRequest {
        let (sector, flags) = (Sector(0), Flags::NONE);
        IoRequest { disk, op, sector, len_sectors: 0, flags, memory: (0, 0) }
    }
}

/// The result of the BIO of an [`IoRequest`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IoResult {
    /// The status of the BIO.
    pub status: Status,
    /// The BIO's sector. For an append, the place where the data landed.
    pub sector: Sector,
    /// Zones of a report.
    pub zones: u32,
}
