//! Block traces, read line by line or record by record. Owns the formats. It keeps one line at a time, of blktrace a
//! bounded number of operations, and knows neither disks nor zones, except [`Survey`] and [`Fit`], which look at a whole
//! trace once.
//!
//! | format | recognised by | times |
//! | --- | --- | --- |
//! | `blktrace`'s own, binary | its first four bytes | of each event, in nanoseconds |
//! | `blkparse`'s default output | a line `8,0 1 2 0.000000000 697 Q W 223490 + 8 [fio]` | of each event, in nanoseconds |
//! | fio's iolog, version 2 | its first line | none but `wait` |
//! | fio's iolog, version 3 | its first line | of each line, in microseconds |
//! | a table, `csv.rs` | a first line such as `time_us,op,offset,length` | of each line, in the unit of the title |
//!
//! A line that is not of the format is counted. A line of the format with impossible numbers is an error
//! with its line number. A record that the file ends within is counted; bytes that are no record are an error.
//!
//! | file | what it owns |
//! | --- | --- |
//! | `blkparse.rs`, `iolog.rs`, `csv.rs` | a line of each format |
//! | `blktrace.rs`, `window.rs` | binary records, and their order by time |
//! | `reader.rs` | lines and records to events |
//! | `survey.rs` | what a trace contains, and whether it is of a zoned disk |
//! | `changes.rs` | the zones that it changes |

mod blkparse;
mod blktrace;
mod changes;
#[cfg(test)]
mod changes_tests;
mod csv;
mod iolog;
mod reader;
mod survey;
mod window;

pub use changes::Changes;
pub use reader::Reader;
pub use survey::{Fit, Misplaced, Survey};

use std::fmt;
use zoneplug_core::zone::Geometry;
use zoneplug_core::{Nanos, Op, Sector};

/// The format of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// `blktrace`'s own, binary.
    Blktrace,
    /// `blkparse`'s default output.
    Blkparse,
    /// fio's `--write_iolog`, as it was before 3.31.
    Iolog2,
    /// fio's `--write_iolog` since 3.31.
    Iolog3,
    /// A table of values between commas.
    Csv,
}

impl Format {
    /// What it consists of: lines or records.
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
    /// `D`: commands that were sent to the driver.
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

/// What was read so far, besides the events.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Seen {
    /// Number of lines, or of blktrace's records.
    pub lines: u64,
    /// Number of bytes.
    pub bytes: u64,
    /// Lines of no known form.
    pub unknown: u64,
    /// The number of the first line of no known form.
    pub first_unknown: Option<u64>,
    /// Operations of other devices.
    pub elsewhere: u64,
    /// Zone management of which the trace does not say the kind, or the zone.
    pub unclear: u64,
    /// Records that their file ends within.
    pub cut: u64,
    /// Events that blktrace lost, by their numbers.
    pub lost: u64,
    /// Events with a time before that of the event above them.
    pub backwards: u64,
    /// The time of the last completion after the first event.
    pub last_completion: Option<Nanos>,
}

/// An operation of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceEvent {
    /// Its line in the file, from 1; of blktrace the number of its record.
    pub line: u64,
    /// Its time after the first event. Never before that of the event above it.
    pub at: Nanos,
    /// The operation. A trim is a discard.
    pub op: Op,
    /// Whether it has FUA.
    pub fua: bool,
    /// Whether it has a preflush.
    pub preflush: bool,
    /// First sector of 512 bytes.
    pub sector: u64,
    /// Length in sectors; 0 for a flush, for all zones, and for management of the one zone at `sector`.
    pub sectors: u64,
}

impl TraceEvent {
    /// Length in sectors on a disk: management without a length is that of a zone.
    pub(crate) fn sectors_on(&self, g: &Geometry) -> u64 {
        if self.sectors > 0 || !self.op.is_zone_management() {
            return self.sectors;
        }
        // Past the end of the disk any length is too long.
        let (zone, _) = g.zone_of(Sector(self.sector % g.capacity().0.max(1)));
        u64::from(g.zone_len_sectors(zone))
    }
}

/// Limit of a sector number, so that sums of two addresses do not overflow.
const MAX_SECTOR: u64 = 1 << 54;
/// Longest trace, in nanoseconds.
const MAX_TIME: u64 = 1 << 60;

/// An operation, with the time that its line has.
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
    /// Zone management without its kind or its zone.
    Unclear,
    /// A line of the format that was not asked for.
    Other,
    /// A line of no known form.
    Unknown,
}

/// Why a line is wrong, and a hint.
type Wrong = (String, &'static str);

/// A number of decimal digits.
fn number(text: &[u8]) -> Option<u64> {
    if text.is_empty() || text.len() > 20 {
        return None;
    }
    text.iter().try_fold(0u64, |n, b| {
        let digit = b.is_ascii_digit().then(|| u64::from(b - b'0'))?;
        n.checked_mul(10)?.checked_add(digit)
    })
}

/// A number that may have a fraction, times `unit`. What is less than 1 is left out.
fn scaled(word: &[u8], unit: u64) -> Option<u64> {
    let (whole, fraction) = match word.iter().position(|b| *b == b'.') {
        Some(i) => (&word[..i], &word[i + 1..]),
        None => (word, &b""[..]),
    };
    let mut parts = number(whole)?.checked_mul(unit)?;
    let mut place = unit;
    for digit in fraction {
        let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        place /= 10;
        parts = parts.checked_add(digit * place)?;
    }
    Some(parts)
}

/// The first of the sectors that a range of bytes touches, and how many they are.
fn touched(begin: u64, length: u64) -> (u64, u64) {
    let (sector, end) = (begin >> 9, (begin + length).div_ceil(512));
    (sector, end - sector)
}

/// Words of a line, without allocating.
fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(u8::is_ascii_whitespace).filter(|w| !w.is_empty())
}

/// A word, made printable.
fn shown(word: &[u8]) -> String {
    let text = String::from_utf8_lossy(word);
    let short: String = text.chars().filter(|c| !c.is_control()).take(40).collect();
    format!("'{short}'")
}
