//! Block traces as text: what was recorded, read line by line. Owns the formats; reads from whatever it is given, holds one
//! line at a time, and knows neither disks nor zones, but for [`Survey`] and [`Fit`], which look at a whole trace once.
//!
//! | format | known by | times |
//! | --- | --- | --- |
//! | `blkparse`'s default output | a line `8,0 1 2 0.000000000 697 Q W 223490 + 8 [fio]` | of each event, in nanoseconds |
//! | fio's iolog, version 2 | its first line | none but `wait` |
//! | fio's iolog, version 3 | its first line | of each line, in microseconds |
//!
//! A line that is nothing of the format is counted; one that is, with numbers that are not possible, is an error with its
//! number.
//!
//! | file | what |
//! | --- | --- |
//! | `blkparse.rs`, `iolog.rs` | a line of each |
//! | `reader.rs` | lines to events |
//! | `survey.rs` | what is in a trace, and whether it is one of a zoned disk |

mod blkparse;
mod iolog;
mod reader;
mod survey;

pub use reader::{Events, Reader, Seen};
pub use survey::{Fit, Misplaced, Survey};

use std::fmt;
use zoneplug_core::{Nanos, Op};

/// How a trace is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// `blkparse`'s default output.
    Blkparse,
    /// fio's `--write_iolog`, as it was before 3.31.
    Iolog2,
    /// fio's `--write_iolog` since 3.31.
    Iolog3,
}

impl Format {
    /// Whether its events have times.
    pub fn has_times(self) -> bool {
        self != Format::Iolog2
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Format::Blkparse => "blkparse",
            Format::Iolog2 => "fio iolog version 2",
            Format::Iolog3 => "fio iolog version 3",
        })
    }
}

/// An operation of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceEvent {
    /// Where it is in the file, from 1.
    pub line: u64,
    /// When, from the first event on. Never before the one above it.
    pub at: Nanos,
    /// What. A trim is a discard.
    pub op: Op,
    /// Written through the cache.
    pub fua: bool,
    /// After the cache was flushed.
    pub preflush: bool,
    /// First sector of 512 bytes.
    pub sector: u64,
    /// Length; 0 of a flush.
    pub sectors: u64,
}

/// No disk has sectors beyond this: sums of two addresses do not overflow.
const MAX_SECTOR: u64 = 1 << 54;
/// No trace is longer than this.
const MAX_TIME: u64 = 1 << 60;

/// What a line says of an operation, before it is known when the trace began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Raw {
    at: Nanos,
    op: Op,
    fua: bool,
    preflush: bool,
    sector: u64,
    sectors: u64,
}

/// What a line is.
#[derive(Debug, PartialEq)]
enum Line<'a> {
    /// An operation on a device or a file.
    Event(&'a [u8], Raw),
    /// From here on `0` later: fio's `wait`.
    Wait(Nanos),
    /// The completion of one, in blkparse.
    Completion(&'a [u8], Nanos),
    /// Of the format, and no operation that is asked for.
    Other,
    /// Not of the format.
    Unknown,
}

/// Why a line is wrong: what, and what to try.
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

/// Words of a line, without allocating.
fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(u8::is_ascii_whitespace).filter(|w| !w.is_empty())
}

/// A word for people.
fn shown(word: &[u8]) -> String {
    let text = String::from_utf8_lossy(word);
    let short: String = text.chars().filter(|c| !c.is_control()).take(40).collect();
    format!("'{short}'")
}
