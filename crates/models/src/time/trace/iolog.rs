//! Parses a line of fio's iologs: `FILE add|open|close`, or `FILE ACTION OFFSET LENGTH` in bytes.
//! In version 3 a time in microseconds precedes each line (fio 3.33 writes and reads microseconds).

use super::number::{number, shown, touched, words};
use super::{Line, MAX_SECTOR, MAX_SPAN, Raw, Wrong};
use zoneplug_core::{Nanos, Op};

/// Parses a line other than the first.
pub(super) fn line(text: &[u8], timed: bool) -> Result<Line<'_>, Wrong> {
    let mut w = words(text);
    let mut at = Nanos(0);
    let mut first = w.next();
    if timed && let Some(time) = first {
        let Some(us) = number(time) else { return Ok(Line::NotOfFormat) };
        at = us.checked_mul(1_000).map(Nanos).ok_or_else(|| {
            (
                format!("{} is no time", shown(time)),
                "microseconds since the start of the run or since 1970",
            )
        })?;
        first = w.next();
    }
    let Some(file) = first else { return Ok(Line::Skipped) };
    let Some(action) = w.next() else { return Ok(Line::NotOfFormat) };
    let op = match action {
        b"add" | b"open" | b"close" => return Ok(Line::Skipped),
        b"read" => Op::Read,
        b"write" => Op::Write,
        b"trim" => Op::Discard,
        b"sync" | b"datasync" | b"sync_file_range" => Op::Flush,
        // Stands for a wait: see below.
        b"wait" => Op::ReportZones,
        _ => {
            // If an offset and a length follow, the line is an action that this parser does not know. Otherwise it is no line of fio.
            let has_place = [w.next(), w.next()].iter().all(|n| n.and_then(number).is_some());
            return Ok(if has_place { Line::UnknownOp(action) } else { Line::NotOfFormat });
        }
    };
    let (Some(offset), Some(length)) = (w.next(), w.next()) else {
        let what = format!("{} without an offset and a length", shown(action));
        return Err((what, "FILE ACTION OFFSET LENGTH, the last two in bytes"));
    };
    let words = (offset, length);
    let place = || Some((number(offset)?, number(length)?));
    let (offset, length) =
        place().filter(|&(o, n)| o >> 9 < MAX_SECTOR && n >> 9 < MAX_SECTOR).ok_or_else(|| {
            let what = format!("{} {} is no place on a disk", shown(words.0), shown(words.1));
            (what, "an offset and a length in bytes, as in 4096 65536")
        })?;
    if op == Op::ReportZones {
        // A wait. Version 3 has times instead.
        if timed {
            let what = format!("wait {} in version 3", shown(words.0));
            return Err((what, "a time in each line; only version 2 waits"));
        }
        let ns = offset.checked_mul(1_000).filter(|ns| *ns < MAX_SPAN);
        return ns.map(|ns| Line::Wait(Nanos(ns))).ok_or_else(|| {
            let what = format!("wait {} is too long", shown(words.0));
            (what, "microseconds, less than 36 years in all")
        });
    }
    if op == Op::Flush {
        let raw = Raw { at, op, fua: false, preflush: false, sector: 0, sectors: 0 };
        return Ok(Line::Event(file, raw));
    }
    if length == 0 {
        return Ok(Line::Empty);
    }
    // A file may be written from any byte; a disk has sectors.
    let (sector, sectors) = touched(offset, length);
    let raw = Raw { at, op, fua: false, preflush: false, sector, sectors };
    Ok(Line::Event(file, raw))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_what_it_says() {
        let event = |text: &str, timed| match line(text.as_bytes(), timed) {
            Ok(Line::Event(file, raw)) => (String::from_utf8_lossy(file).into_owned(), raw),
            other => panic!("{text}: {other:?}"),
        };
        let (file, raw) = event("78 /dev/sda write 4096 65536", true);
        assert_eq!(
            (file.as_str(), raw.at, raw.sector, raw.sectors),
            ("/dev/sda", Nanos(78_000), 8, 128)
        );
        // An unaligned range becomes all sectors that it touches.
        let (_, raw) = event("f read 511 2", false);
        assert_eq!((raw.op, raw.sector, raw.sectors), (Op::Read, 0, 2));
        assert_eq!(event("f trim 0 512", false).1.op, Op::Discard);
        assert_eq!(event("5 f datasync 1900544 0", true).1.op, Op::Flush);
        assert_eq!(line(b"f wait 300000 0", false), Ok(Line::Wait(Nanos(300_000_000))));
        for (other, timed) in [("", false), ("5", true), ("f add", false), ("9 f close", true)] {
            assert_eq!(line(other.as_bytes(), timed), Ok(Line::Skipped), "{other}");
        }
        for (unknown, timed) in
            [("f", false), ("f write 0 512", true), ("f fly 0", false), ("hello world", false)]
        {
            assert_eq!(line(unknown.as_bytes(), timed), Ok(Line::NotOfFormat), "{unknown}");
        }
        assert_eq!(line(b"f read 0 0", false), Ok(Line::Empty));
        assert_eq!(line(b"f fly 0 512", false), Ok(Line::UnknownOp(b"fly")));
        // Microseconds since the Unix epoch.
        let (_, raw) = event("1700000000000000 f read 0 512", true);
        assert_eq!(raw.at, Nanos(1_700_000_000_000_000_000));
        for (wrong, timed) in [
            ("f write 0", false),
            ("f write -1 512", false),
            ("f write 0 18446744073709551615", false),
            ("18446744073709551615 f write 0 512", true),
            ("1 f wait 5 0", true),
        ] {
            assert!(line(wrong.as_bytes(), timed).is_err(), "{wrong}");
        }
        let (what, _) = line(b"f wait 9999999999999999 0", false).unwrap_err();
        assert_eq!(what, "wait '9999999999999999' is too long");
        let (what, _) = line(b"1 f wait 5 0", true).unwrap_err();
        assert_eq!(what, "wait '5' in version 3");
    }
}
