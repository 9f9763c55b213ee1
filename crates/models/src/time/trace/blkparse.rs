//! Parses a line of `blkparse`'s default output: `%D %2c %8s %5T.%9t %5p %2a %3d`, then the fields
//! of its action.

use super::number::{number, scaled, shown, words};
use super::rwbs::OpWithFlags;
use super::{Line, MAX_SECTOR, Raw, Wrong};
use zoneplug_core::{Nanos, Op};

/// The actions of blkparse. `ZP` and `ZU` are plugging of zones; `m` is a message.
const ACTIONS: &[&[u8]] = &[
    b"Q", b"M", b"F", b"G", b"S", b"R", b"D", b"C", b"P", b"U", b"UT", b"T", b"I", b"X", b"B",
    b"A", b"m", b"ZP", b"ZU",
];

/// The first words of the tables that blkparse prints at the end.
const TABLES: &[&[u8]] = &[
    b"CPU",
    b"Total",
    b"PC",
    b"Reads",
    b"Read",
    b"IO",
    b"Throughput",
    b"Events",
    b"Skips",
    b"Input",
    b"Writes",
];

/// Parses a line. `wanted` is the action whose events are taken: `Q` or `D`.
pub(super) fn line(text: &[u8], wanted: u8) -> Result<Line<'_>, Wrong> {
    let mut w = words(text);
    let Some(device) = w.next() else { return Ok(Line::Skipped) };
    if !is_device(device) {
        let known = TABLES.iter().any(|t| device.starts_with(t));
        return Ok(if known { Line::Skipped } else { Line::NotOfFormat });
    }
    let (Some(cpu), Some(seq), Some(time), Some(pid), Some(action)) =
        (w.next(), w.next(), w.next(), w.next(), w.next())
    else {
        return Ok(Line::NotOfFormat);
    };
    let numbers = [cpu, seq, pid].into_iter().all(|n| number(n).is_some());
    if !numbers || !ACTIONS.contains(&action) {
        return Ok(Line::NotOfFormat);
    }
    let is_wanted = action == [wanted];
    if !is_wanted && action != b"C" {
        return Ok(Line::Skipped);
    }
    let at = seconds(time).ok_or_else(|| {
        (format!("{} is no time", shown(time)), "seconds and nanoseconds, as in 0.000001500")
    })?;
    if action == b"C" {
        return Ok(Line::Completion(device, at));
    }
    let Some(rwbs) = w.next() else { return Ok(Line::NotOfFormat) };
    let Some(kind) = OpWithFlags::of(rwbs) else { return Ok(Line::UnknownOp(rwbs)) };
    let flush = Raw { at, op: Op::Flush, fua: false, preflush: false, sector: 0, sectors: 0 };
    let (sector, plus, sectors) = (w.next(), w.next(), w.next());
    let (Some(sector), Some(b"+"), Some(sectors)) = (sector, plus, sectors) else {
        // A line without a place is an operation without data, or a SCSI command with a payload,
        // which is no operation of a block device.
        let flushes = kind.preflush || kind.op == Some(Op::Flush);
        let is_bare = sector.is_some_and(|w| w.starts_with(b"["));
        return Ok(match kind.op {
            _ if flushes => Line::Event(device, flush),
            Some(op @ Op::ZoneResetAll) if is_bare => Line::Event(device, Raw { op, ..flush }),
            Some(op) if is_bare && (op == Op::Write || op.is_zone_management()) => Line::Unclear,
            None => Line::PassThrough,
            Some(_) if is_bare => Line::Empty,
            Some(_) => Line::PassThrough,
        });
    };
    let place = || Some((number(sector)?, number(sectors)?));
    let is_place = |&(s, n): &(u64, u64)| n == 0 || s < MAX_SECTOR && n < MAX_SECTOR;
    let (sector, sectors) = place().filter(is_place).ok_or_else(|| {
        let what = format!("{} + {} is no place on a disk", shown(sector), shown(sectors));
        (what, "a sector and a number of sectors, as in 2048 + 8")
    })?;
    if kind.op == Some(Op::Flush) || sectors == 0 && kind.preflush {
        return Ok(Line::Event(device, flush));
    }
    let Some(op) = kind.op else { return Ok(Line::PassThrough) };
    let whole_disk = op == Op::ZoneResetAll;
    if sectors == 0 && !whole_disk {
        return Ok(Line::Empty);
    }
    let raw = Raw { at, op, fua: kind.fua, preflush: kind.preflush, sector, sectors };
    Ok(Line::Event(device, raw))
}

/// Whether a word is a device number, such as `8,16`.
fn is_device(word: &[u8]) -> bool {
    let mut parts = word.split(|b| *b == b',');
    let pair = (parts.next().and_then(number), parts.next().and_then(number), parts.next());
    matches!(pair, (Some(_), Some(_), None))
}

/// Parses a time with nine decimals, such as `12.000000345`.
fn seconds(word: &[u8]) -> Option<Nanos> {
    let dot = word.iter().position(|b| *b == b'.')?;
    let nine_digits = word.len() - dot == 10;
    scaled(word, 1_000_000_000).filter(|_| nine_digits).map(Nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_what_it_says() {
        let event = |text: &str| match line(text.as_bytes(), b'Q') {
            Ok(Line::Event(device, raw)) => (String::from_utf8_lossy(device).into_owned(), raw),
            other => panic!("{text}: {other:?}"),
        };
        let (device, raw) =
            event("  8,16   0        3     1.000002000   100  Q WSM 9000 + 8 [two words]");
        assert_eq!(
            (device.as_str(), raw.at, raw.sector, raw.sectors),
            ("8,16", Nanos(1_000_002_000), 9000, 8)
        );
        let (_, raw) = event("259,0   11    12345     0.000000001     1  Q  FW [fio]");
        assert_eq!((raw.op, raw.sectors), (Op::Flush, 0));
        assert_eq!(event("8,16 0 3 0.000000500 100 Q ZRA [x]").1.op, Op::ZoneResetAll);
        // blkparse prints no place for an operation without data.
        for unclear in ["WS [two words]", "ZR [x]", "ZFS [x]"] {
            let text = format!("8,16 0 3 0.000000500 100 Q {unclear}");
            assert_eq!(line(text.as_bytes(), b'Q'), Ok(Line::Unclear), "{unclear}");
        }
        for other in [
            "",
            "  8,16   0        3     0.000000500   100  G   W 2048 + 128 [fio]",
            "  8,16   0       14     0.000009500   100 UT   N [fio] 1",
            "  8,16   0       13     0.000009000   100  P   N [fio]",
            "  8,0    0       15     0.000009600   100  A   R 5000 + 16 <- (8,1) 4000",
            "  8,16   0        0     0.000009800     0  m   N cfq hello Q W 5 + 8",
            "CPU0 (b):",
            " PC Reads Queued:        1,        0KiB	 PC Writes Queued:        0,        0KiB",
            " Reads Queued:           2,        8KiB\t Writes Queued:           5,     1096KiB",
            "Throughput (R/W): 0KiB/s / 0KiB/s",
        ] {
            assert_eq!(line(other.as_bytes(), b'Q'), Ok(Line::Skipped), "{other}");
        }
        for (left_out, is) in [
            ("R 255 (12 00 00 00) [x]", Line::PassThrough),
            ("N 8 + 8 [x]", Line::PassThrough),
            ("R 8 + 0 [x]", Line::Empty),
            ("R [x]", Line::Empty),
            ("XW 8 + 8 [x]", Line::UnknownOp(b"XW")),
        ] {
            let text = format!("8,16 0 3 0.000000500 100 Q {left_out}");
            assert_eq!(line(text.as_bytes(), b'Q'), Ok(is), "{left_out}");
        }
        // Seconds since the Unix epoch.
        let at = event("8,16 0 3 1700000000.000000001 100 Q W 8 + 8 [x]").1.at;
        assert_eq!(at, Nanos(1_700_000_000_000_000_001));
        for unknown in
            ["hello", "8 0 3 0.5 1 Q W 1 + 1", "8,16 0 3", "8,16 0 3 0.000000001 7 ! W 1 + 1"]
        {
            assert_eq!(line(unknown.as_bytes(), b'Q'), Ok(Line::NotOfFormat), "{unknown}");
        }
        for wrong in [
            "8,16 0 3 0.5 1 Q W 1 + 1",
            "8,16 0 3 0.000000001 1 Q W x + 1",
            "8,16 0 3 0.000000001 1 Q W 99999999999999999999999 + 1",
            "8,16 0 3 99999999999999.000000001 1 Q W 1 + 1",
        ] {
            assert!(line(wrong.as_bytes(), b'Q').is_err(), "{wrong}");
        }
    }
}
