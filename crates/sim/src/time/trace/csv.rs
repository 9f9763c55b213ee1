//! A table with a line of titles: `time_us,op,offset,length`. The titles say what the columns are, in any order, and their
//! units; other columns are ignored. No field has quotes.
//!
//! | title | what it is |
//! | --- | --- |
//! | `time_s`, `time_ms`, `time_us`, `time_ns` | the time of the operation; it may have a fraction |
//! | `op` | `read`, `write`, `append`, `discard`, `flush`, `reset`, `finish`, `open`, `close`, or blkparse's letters |
//! | `offset`, `length` | the place in bytes |
//! | `sector`, `sectors` | the same in sectors of 512 bytes |
//! | `device` | whose operation it is |

use super::{Line, MAX_SECTOR, MAX_TIME, Raw, Wrong, number, scaled, shown, touched};
use zoneplug_core::{Nanos, Op};

/// Which column is what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Columns {
    /// And nanoseconds of its unit.
    time: (usize, u64),
    op: usize,
    /// Each with the bytes of its unit.
    begin: (usize, u64),
    length: (usize, u64),
    device: Option<usize>,
}

const TIMES: [(&[u8], u64); 4] =
    [(b"time_s", 1_000_000_000), (b"time_ms", 1_000_000), (b"time_us", 1_000), (b"time_ns", 1)];

fn fields(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|b| *b == b',').map(<[u8]>::trim_ascii)
}

impl Columns {
    /// Those of a line of titles; `None` if it is none.
    pub(super) fn of(titles: &[u8]) -> Option<Columns> {
        let find = |title: &[u8]| fields(titles).position(|f| f.eq_ignore_ascii_case(title));
        let one_of =
            |all: &[(&[u8], u64)]| all.iter().find_map(|(title, unit)| Some((find(title)?, *unit)));
        Some(Columns {
            time: one_of(&TIMES)?,
            op: find(b"op")?,
            begin: one_of(&[(b"offset", 1), (b"sector", 512)])?,
            length: one_of(&[(b"length", 1), (b"sectors", 512)])?,
            device: find(b"device"),
        })
    }
}

fn op(word: &[u8]) -> Option<Op> {
    Some(match word.to_ascii_lowercase().as_slice() {
        b"read" | b"r" => Op::Read,
        b"write" | b"w" => Op::Write,
        b"append" | b"za" => Op::ZoneAppend,
        b"discard" | b"trim" | b"d" => Op::Discard,
        b"flush" | b"sync" | b"f" => Op::Flush,
        b"reset" | b"zr" => Op::ZoneReset,
        b"finish" | b"zf" => Op::ZoneFinish,
        b"open" | b"zo" => Op::ZoneOpen,
        b"close" | b"zc" => Op::ZoneClose,
        _ => return None,
    })
}

/// Parses a line other than the first.
pub(super) fn line<'a>(text: &'a [u8], c: &Columns) -> Result<Line<'a>, Wrong> {
    if text.trim_ascii().is_empty() {
        return Ok(Line::Other);
    }
    let field = |n: usize| fields(text).nth(n);
    let (Some(time), Some(word)) = (field(c.time.0), field(c.op)) else { return Ok(Line::Unknown) };
    let Some(op) = op(word) else { return Ok(Line::Unknown) };
    let at = scaled(time, c.time.1).filter(|ns| *ns < MAX_TIME).map(Nanos).ok_or_else(|| {
        (format!("{} is no time", shown(time)), "a number in the unit of the title, as in 12.5")
    })?;
    let device = match c.device {
        Some(n) => field(n).unwrap_or_default(),
        None => b"the table",
    };
    let raw = Raw { at, op, fua: false, preflush: false, sector: 0, sectors: 0 };
    if op == Op::Flush {
        return Ok(Line::Event(device, raw));
    }
    // The end of a file that was cut off.
    let (Some(begin), Some(length)) = (field(c.begin.0), field(c.length.0)) else {
        return Ok(Line::Unknown);
    };
    let bytes = |word, unit| number(word)?.checked_mul(unit).filter(|n| n >> 9 < MAX_SECTOR);
    let (begin, length) =
        bytes(begin, c.begin.1).zip(bytes(length, c.length.1)).ok_or_else(|| {
            let what = format!("{} {} is no place on a disk", shown(begin), shown(length));
            (what, "an offset and a length in the units of the titles, as in 4096,65536")
        })?;
    let is_zone = matches!(op, Op::ZoneReset | Op::ZoneFinish | Op::ZoneOpen | Op::ZoneClose);
    if length == 0 && !is_zone {
        return Ok(Line::Other);
    }
    let (sector, sectors) = touched(begin, length);
    Ok(Line::Event(device, Raw { sector, sectors, ..raw }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_titles_say_what_the_columns_are() {
        let c = Columns::of(b"time_us,op,offset,length\r\n").unwrap();
        let event = |text: &str, c| match line(text.as_bytes(), &c) {
            Ok(Line::Event(device, raw)) => (String::from_utf8_lossy(device).into_owned(), raw),
            other => panic!("{text}: {other:?}"),
        };
        let (_, raw) = event("12.5,write,4096,65536", c);
        assert_eq!((raw.at, raw.op, raw.sector, raw.sectors), (Nanos(12_500), Op::Write, 8, 128));
        // An unaligned range becomes all sectors that it touches.
        let (_, raw) = event("1,R,511,2", c);
        assert_eq!((raw.op, raw.sector, raw.sectors), (Op::Read, 0, 2));
        assert_eq!(event("1,flush", c).1.op, Op::Flush);
        // Another order, other units, more columns.
        let c = Columns::of(b"who, Sectors ,device,OP,sector,time_s").unwrap();
        let (device, raw) = event("me,8,sda,ZA,2048,0.000001001", c);
        assert_eq!(device, "sda");
        assert_eq!(
            (raw.at, raw.op, raw.sector, raw.sectors),
            (Nanos(1_001), Op::ZoneAppend, 2048, 8)
        );
        assert_eq!(event("me,0,sda,reset,2048,7", c).1.op, Op::ZoneReset);
        for none in
            ["time,op,offset,length", "time_us,op,offset", "8,0 1 2 0.0 697 Q W 8 + 8 [fio]", ""]
        {
            assert_eq!(Columns::of(none.as_bytes()), None, "{none}");
        }
    }

    #[test]
    fn what_is_wrong_or_cut_off_is_said() {
        let c = Columns::of(b"time_us,op,offset,length").unwrap();
        for (text, is) in [
            ("", Line::Other),
            ("1,read,0,0", Line::Other),
            ("1,fly,0,512", Line::Unknown),
            ("1", Line::Unknown),
            ("1,write,40", Line::Unknown),
        ] {
            assert_eq!(line(text.as_bytes(), &c), Ok(is), "{text}");
        }
        for wrong in [
            "x,read,0,512",
            "1.x,read,0,512",
            "-1,read,0,512",
            "18446744073709551615,read,0,512",
            "1,write,-1,512",
            "1,write,0,18446744073709551615",
            "1,write,,512",
        ] {
            assert!(line(wrong.as_bytes(), &c).is_err(), "{wrong}");
        }
    }
}
