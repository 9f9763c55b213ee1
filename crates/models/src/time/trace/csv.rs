//! Parses a line of a table. `columns.rs` maps columns to their meanings.
//!
//! | column | meaning |
//! | --- | --- |
//! | `time_s`, `time_ms`, `time_us`, `time_100ns`, `time_ns` | the time of the operation, from any epoch; it may have a fraction and an exponent |
//! | `op`, `rwbs` | `read`, `write`, `append`, `discard`, `flush`, `reset`, `finish`, `open`, `close`, or Linux's letters |
//! | `is_write` | 0 for a read, 1 for a write |
//! | `offset`, `length`, `bytes` | the place in bytes |
//! | `sector`, `sectors` | the place in sectors of 512 bytes |
//! | `device`, `disk` | the device of the operation |
//! | `action` | `Q`, `D` or `C`, as blkparse has it: selects the events taken |

use super::columns::{Columns, Found, Role};
use super::number::{shown, touched, whole, wide};
use super::rwbs::OpWithFlags;
use super::{Line, MAX_SECTOR, Raw, Wrong};
use zoneplug_core::Op;

/// Operations by their names.
const NAMES: [(&[u8], Op); 11] = [
    (b"read", Op::Read),
    (b"write", Op::Write),
    (b"append", Op::ZoneAppend),
    (b"discard", Op::Discard),
    (b"trim", Op::Discard),
    (b"flush", Op::Flush),
    (b"sync", Op::Flush),
    (b"reset", Op::ZoneReset),
    (b"finish", Op::ZoneFinish),
    (b"open", Op::ZoneOpen),
    (b"close", Op::ZoneClose),
];

/// Finds an operation by its name or by Linux's letters, in either case.
fn kind(word: &[u8]) -> Option<OpWithFlags> {
    let named = NAMES.iter().find(|(name, _)| word.eq_ignore_ascii_case(name));
    if let Some((_, op)) = named {
        return Some(OpWithFlags { op: Some(*op), preflush: false, fua: false });
    }
    let mut letters = [0; 8];
    let letters = letters.get_mut(..word.len())?;
    letters.copy_from_slice(word);
    letters.make_ascii_uppercase();
    let kind = OpWithFlags::of(letters)?;
    // A flush operation has no preflush flag.
    let flushes = kind.op == Some(Op::Flush);
    Some(OpWithFlags { preflush: kind.preflush && !flushes, ..kind })
}

/// Finds an operation by the value of `is_write`.
fn by_direction(word: &[u8]) -> Option<OpWithFlags> {
    let op = match word {
        b"0" => Op::Read,
        b"1" => Op::Write,
        _ if word.eq_ignore_ascii_case(b"false") => Op::Read,
        _ if word.eq_ignore_ascii_case(b"true") => Op::Write,
        _ => return None,
    };
    Some(OpWithFlags { op: Some(op), preflush: false, fua: false })
}

/// Finds the word that names an operation, and the operation.
fn operation<'a>(found: &Found<'a>) -> Option<(&'a [u8], Option<OpWithFlags>)> {
    match (found[Role::Op as usize], found[Role::IsWrite as usize]) {
        (Some(word), _) => Some((word, kind(word))),
        (None, Some(word)) => Some((word, by_direction(word))),
        (None, None) => None,
    }
}

/// Whether a line has titles: words in the place of numbers, and no operation.
pub(super) fn is_heading(c: &Columns, text: &[u8]) -> bool {
    c.has_words_for_numbers(text)
        && operation(&c.find(text)).is_some_and(|(_, kind)| kind.is_none())
}

/// Lets the first operation of a table tell what its columns leave open.
pub(super) fn settle_columns(c: &mut Columns, text: &[u8]) {
    c.take_first_operation(text, |c, found| {
        let time = wide(found[Role::Time as usize]?, c.unit(Role::Time))?;
        if c.is_named() {
            // Words that are no operation show another separator.
            operation(found)?.1?;
        }
        Some(time)
    });
}

/// Parses a line other than the titles. `wanted` is the action whose events are taken, if the table
/// has actions.
pub(super) fn line<'a>(text: &'a [u8], c: &Columns, wanted: u8) -> Result<Line<'a>, Wrong> {
    if text.trim_ascii().is_empty() {
        return Ok(Line::Skipped);
    }
    if text.trim_ascii_start().starts_with(b"#") {
        return Ok(Line::NotOfFormat);
    }
    let found = c.find(text);
    let of = |role: Role| found[role as usize];
    let Some(time) = of(Role::Time) else { return Ok(Line::NotOfFormat) };
    let mut is_completion = false;
    if c.has(Role::Action) {
        let Some(action) = of(Role::Action).filter(|a| !a.is_empty()) else {
            return Ok(Line::NotOfFormat);
        };
        is_completion = action.eq_ignore_ascii_case(b"C");
        if !is_completion && !action.eq_ignore_ascii_case(&[wanted]) {
            return Ok(Line::Skipped);
        }
    }
    let Some((word, kind)) = operation(&found) else { return Ok(Line::NotOfFormat) };
    let at = || {
        c.time(time).ok_or_else(|| {
            let what = format!("{} is no time", shown(time));
            (what, "a number in the unit of the title, as in 12.5")
        })
    };
    let device = match (c.has(Role::Device), of(Role::Device)) {
        (true, named) => named.unwrap_or_default(),
        (false, _) => b"the table",
    };
    if is_completion {
        return Ok(Line::Completion(device, at()?));
    }
    let Some(kind) = kind else {
        return match c.titles_agree(text) {
            Some(true) => Ok(Line::Skipped),
            Some(false) => {
                let what = format!("{} are other titles than those of the first line", shown(text));
                Err((what, "tables with the same columns, or a replay for each"))
            }
            None => Ok(Line::UnknownOp(word)),
        };
    };
    let Some(op) = kind.op else { return Ok(Line::PassThrough) };
    let (fua, preflush) = (kind.fua, kind.preflush);
    let raw = Raw { at: at()?, op, fua, preflush, sector: 0, sectors: 0 };
    if matches!(op, Op::Flush | Op::ZoneResetAll) {
        return Ok(Line::Event(device, raw));
    }
    let is_zone = op.is_zone_management();
    let Some((sector, sectors)) = place(&found, c, is_zone)? else { return Ok(Line::NotOfFormat) };
    if sectors == 0 && !is_zone {
        let flush = Raw { op: Op::Flush, fua: false, preflush: false, ..raw };
        return Ok(if preflush { Line::Event(device, flush) } else { Line::Empty });
    }
    Ok(Line::Event(device, Raw { sector, sectors, ..raw }))
}

/// Whether a cell has no number: programs write tables with such cells.
fn is_missing(word: &[u8]) -> bool {
    [&b""[..], b"-", b"nan", b"na", b"null"].iter().any(|none| word.eq_ignore_ascii_case(none))
}

/// The sectors that an operation touches; `None` if the line is cut off. An operation without a length has no place, whatever
/// its line says: a kernel writes -1, or 2^64 - 1, as the sector of a flush. `is_zone`: the operation is one of a zone, which
/// needs a place.
fn place(found: &Found<'_>, c: &Columns, is_zone: bool) -> Result<Option<(u64, u64)>, Wrong> {
    let (Some(begin), Some(length)) = (found[Role::Begin as usize], found[Role::Length as usize])
    else {
        return Ok(None);
    };
    let bytes = |word, role| whole(word)?.checked_mul(c.unit(role)).filter(|n| n >> 9 < MAX_SECTOR);
    match (bytes(begin, Role::Begin), bytes(length, Role::Length)) {
        (Some(begin), Some(0)) => Ok(Some((begin >> 9, 0))),
        (Some(begin), Some(length)) => Ok(Some(touched(begin, length))),
        (None, Some(0)) if !is_zone && (is_missing(begin) || wide(begin, 1).is_some()) => {
            Ok(Some((0, 0)))
        }
        (None, None) if !is_zone && is_missing(begin) && is_missing(length) => Ok(Some((0, 0))),
        _ => {
            let what = format!("{} {} is no place on a disk", shown(begin), shown(length));
            Err((what, "an offset and a length in the units of the titles, as in 4096,65536"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zoneplug_core::Nanos;

    fn columns(titles: &str) -> Columns {
        Columns::of(titles.as_bytes()).unwrap()
    }

    fn event(text: &str, c: &Columns) -> (String, Raw) {
        match line(text.as_bytes(), c, b'Q') {
            Ok(Line::Event(device, raw)) => (String::from_utf8_lossy(device).into_owned(), raw),
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn an_operation_without_a_length_needs_no_place() {
        let c = columns("TIME(s) COMM PID DISK T SECTOR BYTES LAT(ms)");
        for nowhere in ["18446744073709551615 0", "-1 0", "- 0", "nan nan", "null -"] {
            let of = |op: &str| format!("0.0002 jbd2/sda1-8 411 sda {op} {nowhere} 0.11");
            assert!(matches!(line(of("R").as_bytes(), &c, b'Q'), Ok(Line::Empty)), "{nowhere}");
            assert_eq!(event(&of("FWS"), &c).1.op, Op::Flush);
            assert!(line(of("ZR").as_bytes(), &c, b'Q').is_err(), "a reset of {nowhere}");
        }
        let c = columns("time_us,op,offset,length");
        assert!(matches!(line(b"3,WFS,,", &c, b'Q'), Ok(Line::Empty)));
        for wrong in
            ["3,R,-1,4096", "3,R,,4096", "3,R,nan,4096", "3,R,4096,", "3,R,4096,nan", "3,R,x,0"]
        {
            assert!(line(wrong.as_bytes(), &c, b'Q').is_err(), "{wrong}");
        }
    }

    #[test]
    fn names_of_processes_may_have_blanks() {
        let c = columns("TIME(s) COMM PID DISK T SECTOR BYTES LAT(ms)");
        for name in ["jbd2", "jbd2 sda1", "VM Thread 1 W 7"] {
            let text = format!("0.0002 {name} 411 sdb W 2048 4096 0.11");
            let (device, raw) = event(&text, &c);
            assert_eq!((&*device, raw.op), ("sdb", Op::Write), "{name}");
            assert_eq!((raw.sector, raw.sectors), (2048, 8), "{name}");
        }
        // A line that has been cut off within its name.
        assert!(matches!(line(b"0.0002 VM Thread", &c, b'Q'), Ok(Line::NotOfFormat)));
    }

    #[test]
    fn the_titles_say_what_the_columns_are() {
        let c = columns("time_us,op,offset,length\r\n");
        let (_, raw) = event("12.5,write,4096,65536", &c);
        assert_eq!((raw.at, raw.op, raw.sector, raw.sectors), (Nanos(12_500), Op::Write, 8, 128));
        // An unaligned range becomes all sectors that it touches.
        let (_, raw) = event("1,R,511,2", &c);
        assert_eq!((raw.op, raw.sector, raw.sectors), (Op::Read, 0, 2));
        assert_eq!(event("1,flush", &c).1.op, Op::Flush);
        let (_, raw) = event("\"0x10\",\"Write\",\"0x1000\",\"0X200\"\r\n", &c);
        assert_eq!((raw.at, raw.op, raw.sector, raw.sectors), (Nanos(16_000), Op::Write, 8, 1));
        // Another order, other units, more columns.
        let c = columns("who, Sectors ,device,OP,sector,time_s");
        let (device, raw) = event("me,8,sda,ZA,2048,0.000001001", &c);
        assert_eq!(device, "sda");
        assert_eq!(
            (raw.at, raw.op, raw.sector, raw.sectors),
            (Nanos(1_001), Op::ZoneAppend, 2048, 8)
        );
        assert_eq!(event("me,0,sda,reset,2048,7", &c).1.op, Op::ZoneReset);
        // Times of any epoch; a comma as decimal separator.
        let c = columns("time_s;op;sector;sectors");
        assert_eq!(event("1700000000,000000001;r;0;8", &c).1.at, Nanos(1_700_000_000_000_000_001));
    }

    /// Each row: the word, its operation, preflush, FUA.
    #[test]
    fn operations_may_be_the_letters_of_linux() {
        let c = columns("time_us,rwbs,sector,sectors");
        for (word, op, preflush, fua) in [
            ("WS", Op::Write, false, false),
            ("ra", Op::Read, false, false),
            ("RSM", Op::Read, false, false),
            ("FWFS", Op::Write, true, true),
            ("WFS", Op::Write, false, true),
            ("FF", Op::Flush, false, false),
            ("f", Op::Flush, false, false),
            ("DE", Op::Discard, false, false),
            ("WZ", Op::WriteZeroes, false, false),
            ("ZRA", Op::ZoneResetAll, false, false),
            ("ZFS", Op::ZoneFinish, false, false),
            ("Trim", Op::Discard, false, false),
        ] {
            let (_, raw) = event(&format!("1,{word},8,8"), &c);
            assert_eq!((raw.op, raw.preflush, raw.fua), (op, preflush, fua), "{word}");
        }
        // A flush that Linux puts before an empty write.
        assert_eq!(event("1,FW,0,0", &c).1.op, Op::Flush);
        let c = columns("time_s,sector,sectors,is_write,device");
        assert_eq!(event("1,8,8,1,5", &c).1.op, Op::Write);
        assert_eq!(event("1,8,8,False,5", &c).1.op, Op::Read);
        assert_eq!(line(b"1,8,8,2,5", &c, b'Q'), Ok(Line::UnknownOp(b"2")));
    }

    #[test]
    fn actions_say_which_events_are_taken() {
        let c = columns("time_ns,action,op,sector,sectors");
        assert_eq!(event("1,q,W,0,8", &c).1.sectors, 8);
        assert_eq!(line(b"1,D,W,0,8", &c, b'Q'), Ok(Line::Skipped));
        assert!(matches!(line(b"1,D,W,0,8", &c, b'D'), Ok(Line::Event(..))));
        assert_eq!(line(b"9,C,W,0,8", &c, b'Q'), Ok(Line::Completion(b"the table", Nanos(9))));
        assert_eq!(line(b"9,,W,0,8", &c, b'Q'), Ok(Line::NotOfFormat));
    }

    #[test]
    fn what_is_wrong_or_cut_off_is_said() {
        let c = columns("time_us,op,offset,length");
        for (text, is) in [
            ("", Line::Skipped),
            ("# 1,read,0,512", Line::NotOfFormat),
            ("time_us,op,offset,length", Line::Skipped),
            ("1,read,0,0", Line::Empty),
            ("1,fly,0,512", Line::UnknownOp(b"fly")),
            ("1,,0,512", Line::UnknownOp(b"")),
            ("1,N,0,512", Line::PassThrough),
            ("1", Line::NotOfFormat),
            ("1,write,40", Line::NotOfFormat),
        ] {
            assert_eq!(line(text.as_bytes(), &c, b'Q'), Ok(is), "{text}");
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
            assert!(line(wrong.as_bytes(), &c, b'Q').is_err(), "{wrong}");
        }
    }
}
