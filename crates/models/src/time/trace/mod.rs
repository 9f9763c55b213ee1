//! Block traces, read line by line or record by record. Owns the formats. A reader keeps one line
//! and a bounded number of operations, and knows neither disks nor zones; only [`Survey`] and
//! [`Fit`] look at a whole trace once.
//!
//! | format | recognised by | times |
//! | --- | --- | --- |
//! | `blktrace`'s own, binary | its first four bytes | of each event, in nanoseconds |
//! | `blkparse`'s default output | a line `8,0 1 2 0.000000000 697 Q W 223490 + 8 [fio]` | of each event, in nanoseconds |
//! | fio's iolog, version 2 | its first line | none but `wait` |
//! | fio's iolog, version 3 | its first line | of each line, in microseconds |
//! | a table, `csv.rs` | a line of titles such as `time_us,op,offset,length`, or the caller names its columns | of each line, in the unit of the title |
//!
//! Times may be of any epoch: the time of an event counts from the earliest one. Tracers write
//! lines out of order, so a window sorts them by time. A replay sorts the events that come too late
//! for the window.
//!
//! A line that is not of the format is counted. A line of the format with impossible numbers is an
//! error with its line number. A record cut off by the end of its file is counted; bytes that are
//! no record are an error.
//!
//! | file | what it owns |
//! | --- | --- |
//! | `blkparse.rs`, `iolog.rs`, `csv.rs` | a line of each format |
//! | `columns.rs` | the meaning of each column of a table |
//! | `rwbs.rs` | the letters by which Linux denotes an operation |
//! | `blktrace.rs` | binary records |
//! | `number.rs` | numbers and words of a line |
//! | `reader.rs`, `window.rs` | lines and records to events, in the order of their times |
//! | `seen.rs` | counts of what was read and left out |
//! | `survey.rs` | the content of a trace, and whether it is from a zoned disk |
//! | `changes.rs` | the zones that it changes |

mod blkparse;
mod blktrace;
mod changes;
#[cfg(test)]
mod changes_tests;
mod columns;
mod csv;
mod iolog;
mod number;
mod reader;
mod rwbs;
mod seen;
mod survey;
mod window;

pub use changes::Changes;
pub use columns::Columns;
pub(crate) use reader::no_trace;
pub use reader::{Reader, WINDOW};
pub use seen::Seen;
pub use survey::{Fit, Misplaced, MisplacedWhy, Survey};

use std::fmt;
use zoneplug_core::zone::Geometry;
use zoneplug_core::{Nanos, Op, Sector};

/// The format of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// `blktrace`'s binary records.
    Blktrace,
    /// `blkparse`'s default output.
    Blkparse,
    /// fio's `--write_iolog` before 3.31.
    Iolog2,
    /// fio's `--write_iolog` since 3.31.
    Iolog3,
    /// A table of separated values.
    Csv,
}

impl Format {
    /// The unit that the format consists of: lines or records.
    pub fn unit(self) -> &'static str {
        if self == Format::Blktrace { "record" } else { "line" }
    }

    /// Whether its events have times.
    pub fn has_times(self) -> bool {
        self != Format::Iolog2
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Format::Blktrace => "blktrace",
            Format::Blkparse => "blkparse",
            Format::Iolog2 => "fio iolog version 2",
            Format::Iolog3 => "fio iolog version 3",
            Format::Csv => "CSV",
        })
    }
}

/// Which events of the block layer are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Events {
    /// `Q`: requests of programs, before merging.
    #[default]
    Queued,
    /// `D`: commands sent to the driver.
    Issued,
}

impl Events {
    fn letter(self) -> u8 {
        match self {
            Events::Queued => b'Q',
            Events::Issued => b'D',
        }
    }
}

/// An operation of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceEvent {
    /// Its line in the file, from 1; for blktrace, the number of its record.
    pub line: u64,
    /// Its time after the earliest event.
    pub at: Nanos,
    /// The operation. A trim is a discard.
    pub op: Op,
    /// Whether it has FUA.
    pub fua: bool,
    /// Whether it has a preflush.
    pub preflush: bool,
    /// First sector of 512 bytes.
    pub sector: u64,
    /// Length in sectors; 0 for a flush, for all zones, and for management of the one zone at
    /// `sector`.
    pub sectors: u64,
}

impl TraceEvent {
    /// Length in sectors on a disk: management without a length covers one zone.
    pub(crate) fn sectors_on(&self, g: &Geometry) -> u64 {
        if self.sectors > 0 || !self.op.is_zone_management() {
            return self.sectors;
        }
        // Past the end of the disk, any length is refused or wraps around.
        let (zone, _) = g.zone_of(Sector(self.sector % g.capacity().0.max(1)));
        u64::from(g.zone_len_sectors(zone))
    }
}

/// Limit of a sector number, so that sums of two addresses do not overflow.
const MAX_SECTOR: u64 = 1 << 54;
/// Longest operation that reads or writes, in sectors: 2 TiB.
const MAX_OPERATION: u64 = 1 << 32;
/// Longest trace, in nanoseconds: 36 years.
const MAX_SPAN: u64 = 1 << 60;

/// An operation with the time of its line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Raw {
    at: Nanos,
    op: Op,
    fua: bool,
    preflush: bool,
    sector: u64,
    sectors: u64,
}

/// The meaning of a line.
#[derive(Debug, PartialEq)]
enum Line<'a> {
    /// An operation on a device or a file.
    Event(&'a [u8], Raw),
    /// Later lines are delayed by this time: fio's `wait`.
    Wait(Nanos),
    /// A completion, in blkparse.
    Completion(&'a [u8], Nanos),
    /// An operation of an unknown kind, as the line names it.
    UnknownOp(&'a [u8]),
    /// An empty read or write.
    Empty,
    /// A command that bypasses the block layer, such as one of SCSI.
    PassThrough,
    /// Zone management without its kind or its zone.
    Unclear,
    /// A line of the format whose event is not taken.
    Skipped,
    /// A line of no known form.
    NotOfFormat,
}

/// An error message and a hint.
type Wrong = (String, &'static str);
