//! Traces as tracers, spreadsheets and shells leave them: forms of tables, epochs, orders, and what is left out.
#![allow(clippy::unwrap_used)]

use zoneplug_core::{Error, Nanos, Op};
use zoneplug_models::time::trace::{Columns, Events, Format, Reader, Seen, TraceEvent};

fn read(of: Result<Reader<&[u8]>, Error>) -> Result<(Vec<TraceEvent>, Seen), Error> {
    let mut reader = of?;
    let mut all = Vec::new();
    while let Some(event) = reader.next_event()? {
        all.push(event);
    }
    Ok((all, reader.seen().clone()))
}

fn all(text: &str) -> (Vec<TraceEvent>, Seen) {
    read(Reader::new(text.as_bytes(), Events::Queued, None))
        .unwrap_or_else(|e| panic!("{text}: {e}"))
}

fn with(columns: &str, text: &str) -> (Vec<TraceEvent>, Seen) {
    let columns = Columns::parse(columns).unwrap();
    let reader = Reader::new(text.as_bytes(), Events::Queued, None);
    read(reader.and_then(|r| r.with_columns(&columns))).unwrap_or_else(|e| panic!("{text}: {e}"))
}

/// The time, operation, sector and length of each event.
fn what(events: &[TraceEvent]) -> Vec<(u64, Op, u64, u64)> {
    events.iter().map(|e| (e.at.0, e.op, e.sector, e.sectors)).collect()
}

/// A write of 64 KiB, and a read of 4 KiB 1.5 us later.
const TWO: [(u64, Op, u64, u64); 2] = [(0, Op::Write, 0, 128), (1_500, Op::Read, 8, 8)];

#[test]
fn a_table_may_have_byte_order_marks_quotes_and_any_separator() {
    for text in [
        "time_us,op,offset,length\n1,write,0,65536\n2.5,read,4096,4096\n",
        "\u{feff}time_us,op,offset,length\r\n1,write,0,65536\r\n2.5,read,4096,4096\r\n",
        "\"time_us\",\"op\",\"offset\",\"length\"\n\"1\",\"write\",\"0\",\"65536\"\n\"2.5\",\"read\",\"4096\",\"4096\"\n",
        "time_us;op;offset;length\n1;write;0;65536\n2,5;read;4096;4096\n",
        "time_us\top\toffset\tlength\n1\twrite\t0\t65536\n2.5\tread\t4096\t4096\n",
        "time_us op  offset   length\n1   write    0 65536\n2.5 read  4096 4096\n",
        "time_us,rwbs,offset,bytes\n1,WS,0,65536\n2.5,RA,4096,4096\n",
        "time_us,op,offset,length\n0x1,W,0x0,0x10000\n2.5,R,0x1000,0x1000\n",
        // The titles of biosnoop.
        "TIME(us)  COMM  DISK  RWBS  SECTOR  BYTES\n1 fio vda W 0 65536\n2.5 fio vda R 8 4096\n",
        // Two files that were joined, each with its mark and its titles.
        "\u{feff}time_us,op,offset,length\n1,write,0,65536\n\u{feff}time_us,op,offset,length\n2.5,read,4096,4096\n",
    ] {
        let (events, seen) = all(text);
        assert_eq!(what(&events), TWO, "{text}");
        assert_eq!((seen.unknown, seen.strange, seen.backwards), (0, 0, 0), "{text}");
    }
    let (events, _) = all("time_us,op,offset,length\n1,FWFS,0,512\n");
    assert!(events[0].fua && events[0].preflush && events[0].op == Op::Write);
    // Lines of a tool before its titles are counted.
    let (events, seen) =
        all("Tracing block I/O... Ctrl-C ends it\ntime_us,op,offset,length\n1,W,0,512\n");
    assert_eq!((events.len(), seen.unknown, seen.first_unknown), (1, 1, Some(1)));
    let reader =
        Reader::new(&b"hello\ntime_us,op,offset,length\n1,W,0,512\n"[..], Events::Queued, None);
    let mut reader = reader.unwrap();
    assert!(reader.next_event().unwrap().is_some() && reader.format() == Format::Csv);
}

/// Titles further down are those of another table. If they say that its lines are read otherwise, the trace is refused.
#[test]
fn tables_that_were_joined_have_the_same_columns() {
    let first = "time_us,op,offset,length\n0,write,0,65536\n";
    for other in [
        "time_ms,op,sector,sectors\n1,read,16,8\n",
        "time_us,op,length,offset\n1,read,4096,8192\n",
        "time_ms,op,offset,length\n1,read,4096,4096\n",
    ] {
        let joined = format!("{first}{other}");
        let e = read(Reader::new(joined.as_bytes(), Events::Queued, None)).unwrap_err().to_string();
        let titles = other.lines().next().unwrap();
        assert!(e.contains("line 3") && e.contains(titles), "{e}");
    }
    // Where the caller has named the columns, titles further down are counted: nothing says that they mean the same.
    let named = "5,read,4096,4096\ntime_ms,op,sector,sectors\n6,write,0,512\n";
    let (events, seen) = with("time_us,op,offset,length", named);
    assert_eq!((events.len(), seen.unknown, seen.strange), (2, 0, 1));
    // A name in a line of values is no title.
    for columns in [None, Some("time_us,op,offset,length")] {
        let lines = "1,write,0,4096,x\n2,verify,4096,4096,disk\n3,write,4096,4096,x\n";
        let (events, seen) = match columns {
            Some(columns) => with(columns, lines),
            None => all(&format!("time_us,op,offset,length,who\n{lines}")),
        };
        assert_eq!((events.len(), seen.unknown, seen.strange), (2, 0, 1), "{columns:?}");
        assert_eq!(
            seen.first_strange,
            Some((if columns.is_some() { 2 } else { 3 }, "verify".into()))
        );
    }
    // Words without a number are no titles: the lines are counted.
    let (events, seen) = all(&format!("{first}N/A,N/A,N/A,N/A\nnan,total,nan,nan\n9,read,0,512\n"));
    assert_eq!((events.len(), seen.strange), (2, 2));
    assert_eq!(seen.first_strange, Some((3, "N/A".to_owned())));
}

/// The first line of a table may be a comment, or the end of a line that was cut off. The caller's columns are then
/// separated as in the first line that is an operation. Each has two lines before those of [`TWO`].
#[test]
fn the_first_line_does_not_say_how_named_columns_are_separated() {
    let columns = "time_us,op,offset,length";
    for head in ["# of a, b, and c, d\n# 2026-11-30, by hand, 1, 2\n", "ite,4096;8192\n36;40\n"] {
        for text in [
            "1,write,0,65536\n2.5,read,4096,4096\n",
            "1;write;0;65536\n2,5;read;4096;4096\n",
            "1,0;write;0;65536\n2,5;read;4096;4096\n",
            "1\twrite\t0\t65536\n2.5\tread\t4096\t4096\n",
            "1 write 0 65536\n2.5 read 4096 4096\n",
        ] {
            let (events, seen) = with(columns, &format!("{head}{text}"));
            assert_eq!(what(&events), TWO, "{head}{text}");
            // Words in the place of numbers are taken for titles.
            assert!(seen.unknown + seen.strange >= 1, "{head}{text}: {seen:?}");
        }
    }
    // A first line without a number is titles only where it could be: not a comment, and not an operation.
    for (head, counted) in
        [("# made by hand, of a, b, c", 1), ("NA,write,NA,NA", 1), ("Time,Kind,Start,Len", 0)]
    {
        let (events, seen) = with("time_us,op,offset,length", &format!("{head}\n1,write,0,512\n"));
        assert_eq!((events.len(), seen.unknown + seen.strange), (1, counted), "{head}: {seen:?}");
    }
    // Blanks would give these lines other places.
    let columns = "time_s,op,-,offset,length";
    for text in [
        "1.5\tR\t\t4096\t512\t99\n2.5\tR\t\t8192\t512\t99\n",
        "1.5\tR\tfio\t4096\t512\n2.5\tR\tworker 7\t8192\t512\n",
        "1.5\tR\tDOM Worker\t4096\t512\n2.5\tR\tfio\t8192\t512\n",
    ] {
        let (events, _) = with(columns, &format!("# exported from the box on monday\n{text}"));
        let is = [(0, Op::Read, 8, 1), (1_000_000_000, Op::Read, 16, 1)];
        assert_eq!(what(&events), is, "{text}");
    }
    // Once a line has been an operation, what is wrong is an error.
    let columns = "time_us,op,offset,length";
    let columns = Columns::parse(columns).unwrap();
    let reader = Reader::new(&b"1,write,0,65536\nx,read,0,512\n"[..], Events::Queued, None);
    let e = read(reader.and_then(|r| r.with_columns(&columns))).unwrap_err().to_string();
    assert!(e.contains("line 2") && e.contains("'x' is no time"), "{e}");
}

/// A clock may count from any year, with more than 64 bits of nanoseconds, or begin below 0. Lines may be out of order.
#[test]
fn a_clock_may_begin_in_the_year_1_or_below_zero() {
    for (title, times) in [
        ("time_100ns", ["638000000000000000", "638000000000000015"]),
        ("time_us", ["-1", "0.5"]),
        ("time_s", ["-62135596800", "-62135596799.9999985"]),
        ("time_us", ["-0.75", "7.5e-1"]),
        // As numpy, R and awk write numbers.
        ("time_us", ["1.000000000000000000e+00", "2.500000000000000000e+00"]),
        ("time_100ns", ["6.38e17", "638000000000000015"]),
        ("time_ms", [".0005", ".002"]),
    ] {
        let lines = ["write,0,65536", "read,4096,4096"].iter().zip(times);
        let lines: Vec<String> = lines.map(|(line, time)| format!("{time},{line}\n")).collect();
        for (first, second) in [(0, 1), (1, 0)] {
            let text = format!("{title},op,offset,length\n{}{}", lines[first], lines[second]);
            let (events, seen) = all(&text);
            assert_eq!(what(&events), TWO, "{text}");
            assert_eq!(seen.backwards, first as u64, "{text}");
        }
    }
    let (events, _) = all("time_us,op,offset,length\n0,write,1e+05,4096.0\n");
    assert_eq!(what(&events), [(0, Op::Write, 195, 9)]);
    // A completion without an operation may be the first line.
    let text = "time_100ns,action,op,offset,length\n638000000000000000,C,,0,4096\n638000000000000010,Q,write,0,4096\n";
    let (events, seen) = all(text);
    assert_eq!((events.len(), seen.unknown, seen.earliest), (1, 0, Some(Nanos((1 << 62) + 1_000))));
    // A century and a half before the first line is another clock.
    let text = "time_s,op,offset,length\n0,write,0,512\n-5000000000,read,0,512\n";
    let e = read(Reader::new(text.as_bytes(), Events::Queued, None)).unwrap_err().to_string();
    assert!(e.contains("line 3") && e.contains("'-5000000000' is no time"), "{e}");
}

/// (columns, lines, microseconds from the first to the second): traces that are public, and what tools print.
#[test]
fn a_table_without_titles_has_the_columns_that_the_caller_names() {
    let p = 3.0 / 2.0;
    for (columns, text, us) in [
        // MSR Cambridge: ticks of 100 ns since 1601.
        (
            "time_100ns,-,device,op,offset,length",
            "128166372003061629,hm,0,Write,0,65536,413\n128166372003061644,hm,0,Read,4096,4096,9\n",
            p,
        ),
        // Alibaba's block traces.
        (
            "device,op,offset,length,time_us",
            "419,W,0,65536,1577808144360767\n419,R,4096,4096,1577808144360769\n",
            2.0,
        ),
        // Tencent's, of seconds and sectors.
        (
            "time_s,sector,sectors,is_write,device",
            "1538323200,0,128,1,1283\n1538323200,8,8,0,1283\n",
            0.0,
        ),
        // SPC's, as the traces of UMass are.
        ("device,sector,length,op,time_s", "0,0,65536,W,0.5\n0,8,4096,r,0.5000015\n", p),
        // SYSTOR 2017, with titles that name no units.
        (
            "time_s,-,op,device,offset,length",
            "Timestamp,Response,IOType,LUN,Offset,Size\n1455592169.000001,0.1,W,3,0,65536\n1455592169.0000025,,R,3,4096,4096\n",
            p,
        ),
        // blkparse -f "%T.%9t %a %d %S %n\n"
        (
            "time_s,action,op,sector,sectors",
            "0.000000500 Q WS 0 128\n0.000001000 G WS 0 128\n0.000002000 Q RA 8 8\n0.000009500 C WS 0 128\n",
            p,
        ),
        ("time_us,op,offset,length", "\n\n1;W;0;65536\n2,5;R;4096;4096\n", p),
    ] {
        let (events, seen) = with(columns, text);
        let mut want = TWO;
        want[1].0 = (us * 1_000.0) as u64;
        assert_eq!(what(&events), want, "{text}");
        assert_eq!((seen.unknown, seen.strange), (0, 0), "{text}");
        let completes = text.contains(" C ").then_some(Nanos(9_000));
        assert_eq!(seen.last_completion, completes, "{text}");
    }
    let columns = Columns::parse("time_us,op,offset,length").unwrap();
    let e = Reader::new(&b"\x07tae"[..], Events::Queued, None);
    let e = e.unwrap().with_columns(&columns).unwrap_err();
    assert!(e.to_string().contains("blktrace"), "{e}");
}

/// In every format that has times, the epoch does not matter: the events are those of a trace that starts at 0.
#[test]
fn the_epoch_of_a_trace_does_not_matter() {
    // 0, 2006-07-14, 2023-11-14, and the last nanoseconds of 64 bits.
    for epoch in [0, 1 << 60, 1_700_000_000_123_456_000, u64::MAX / 1_000 * 1_000 - 9_000] {
        let (a, b) = (epoch, epoch + 3_000);
        let point = |ns: u64, unit: u64| {
            let digits = unit.ilog10() as usize;
            format!("{}.{:0digits$}", ns / unit, ns % unit)
        };
        for text in [
            format!("time_ns,op,offset,length\n{a},write,0,65536\n{b},read,4096,4096\n"),
            format!(
                "time_us,op,offset,length\n{},write,0,65536\n{},read,4096,4096\n",
                a / 1_000,
                b / 1_000
            ),
            format!(
                "time_ms,op,offset,length\n{},write,0,65536\n{},read,4096,4096\n",
                point(a, 1_000_000),
                point(b, 1_000_000)
            ),
            format!(
                "time_s,op,offset,length\n{},write,0,65536\n{},read,4096,4096\n",
                point(a, 1_000_000_000),
                point(b, 1_000_000_000)
            ),
            format!(
                "8,0 0 1 {} 7 Q WS 0 + 128 [x]\n8,0 0 2 {} 7 Q RA 8 + 8 [x]\n",
                point(a, 1_000_000_000),
                point(b, 1_000_000_000)
            ),
            format!(
                "fio version 3 iolog\n{} d write 0 65536\n{} d read 4096 4096\n",
                a / 1_000,
                b / 1_000
            ),
        ] {
            let (events, _) = all(&text);
            let want = [TWO[0], (3_000, Op::Read, 8, 8)];
            assert_eq!(what(&events), want, "{text}");
        }
    }
    // Two clocks in one trace.
    let text = "time_s,op,offset,length\n0,W,0,512\n1700000000,W,512,512\n";
    let e = read(Reader::new(text.as_bytes(), Events::Queued, None)).unwrap_err();
    assert!(e.to_string().contains("line 3 of the trace: 53 years after the earliest"), "{e}");
}

/// Operations are sorted by time, those of the same time by line. Lines out of order are counted.
#[test]
fn lines_are_sorted_by_time() {
    let text = "time_us,op,sector,sectors\n30,W,24,8\n10,W,8,8\n10,W,0,8\n20,W,16,8\n";
    let (events, seen) = all(text);
    let sectors: Vec<u64> = events.iter().map(|e| e.sector).collect();
    assert_eq!(sectors, [8, 0, 16, 24]);
    assert_eq!(events.iter().map(|e| e.at.0).collect::<Vec<_>>(), [0, 0, 10_000, 20_000]);
    assert_eq!(events.iter().map(|e| e.line).collect::<Vec<_>>(), [3, 4, 5, 2]);
    assert_eq!((seen.backwards, seen.furthest_back, seen.late), (3, Nanos(20_000), 0));
    // Events that come too late for the window are counted, and the caller may ask for the order of lines.
    let small = |text| Reader::new(text, Events::Queued, None).map(|r| r.with_window(1));
    let (events, seen) = read(small(text.as_bytes())).unwrap();
    assert_eq!(events.iter().map(|e| e.at.0).collect::<Vec<_>>(), [0, 0, 0, 0]);
    assert_eq!((seen.backwards, seen.late), (3, 3));
    let earliest = seen.earliest.unwrap();
    let lines = small(text.as_bytes()).map(|r| r.in_order_of_lines(earliest));
    let (events, _) = read(lines).unwrap();
    assert_eq!(events.iter().map(|e| e.at.0).collect::<Vec<_>>(), [20_000, 0, 0, 10_000]);
    // A completion may stand before what it completes, and before the first operation.
    let done = "8,0 0 2 0.000009000 7 C W 0 + 8 [x]\n8,0 0 1 0.000001000 7 Q W 0 + 8 [x]\n";
    assert_eq!(all(done).1.last_completion, Some(Nanos(8_000)));
}

/// Operations that a replay leaves out are counted by the reason for it.
#[test]
fn what_is_left_out_is_counted() {
    let (events, seen) = all(
        "time_us,op,offset,length\n1,W,0,512\n2,verify,0,512\n3,XY,0,512\n4,verify,0,512\n5,R,0,0\n6,N,0,512\n?\n",
    );
    assert_eq!(
        (events.len(), seen.strange, seen.empty, seen.pass_through, seen.unknown),
        (1, 3, 1, 1, 1)
    );
    assert_eq!(seen.first_strange, Some((3, "verify".to_owned())));
    assert_eq!(
        seen.strange_kinds.into_iter().collect::<Vec<_>>(),
        [("XY".to_owned(), 1), ("verify".to_owned(), 2)]
    );
    let (_, seen) = all(
        "fio version 2 iolog\nd write 0 512\nd fly 0 512\nd read 0 0\nhello\nfio version 2 iolog\n",
    );
    assert_eq!((seen.strange, seen.empty, seen.unknown), (1, 1, 1));
    let (_, seen) = all(
        "8,0 0 1 0.000000001 7 Q W 0 + 8 [x]\n8,0 0 1 0.000000001 7 Q QQ 0 + 8 [x]\n8,0 0 1 0.000000001 7 Q R 36 (12 00) [x]\n8,0 0 1 0.000000001 7 Q R 8 + 0 [x]\n",
    );
    assert_eq!((seen.strange, seen.pass_through, seen.empty), (1, 1, 1));
    // A text with only strange operations is not a trace.
    let e = |text: &str| read(Reader::new(text.as_bytes(), Events::Queued, None)).unwrap_err();
    let many = format!("time_us,op,offset,length\n{}", "1,what,0,512\n".repeat(2_000));
    assert!(
        e(&many).to_string().contains("line 2 has 'what', which is not an operation"),
        "{}",
        e(&many)
    );
}

#[test]
fn the_error_for_a_foreign_file_says_how_to_convert_it() {
    let tar = [&[0; 257][..], &b"ustar\x0000"[..], &[0; 100]].concat();
    for (bytes, says, hint) in [
        (&tar[..], "tar archive", "tar -xOf"),
        (&b"\x1f\x8b\x08\x00"[..], "is compressed", "zcat"),
        (b"\x28\xb5\x2f\xfd\x04", "by zstd", "zstd -dc"),
        (b"\xfd7zXZ\x00", "by xz", "xz -dc"),
        (b"BZh91AY", "by bzip2", "bzip2 -dc"),
        (b"PK\x03\x04\x14", "zip archive", "unzip -p"),
        (b"\xff\xfet\0i\0", "UTF-16", "iconv"),
        (b"\xfe\xff\0t\0i", "UTF-16", "iconv -f UTF-16 "),
        (b"t\0i\0m\0", "UTF-16", "iconv -f UTF-16LE "),
        (b"\0t\0i\0m", "UTF-16", "iconv -f UTF-16BE "),
        (b"\xff\xfe\0\0t\0\0\0", "UTF-32", "iconv -f UTF-32 "),
    ] {
        let e = Reader::new(bytes, Events::Queued, None).unwrap_err();
        assert!(e.to_string().contains(says), "{e}");
        let way = e.what_to_try().unwrap();
        assert!(way.contains(hint) && way.ends_with(" FILE > TRACE, and that file"), "{way}");
    }
}

/// Numbers as Python and its libraries write them: small ones with an exponent, whole ones with `.0`.
#[test]
fn numbers_may_be_those_of_a_floating_point_program() {
    let (events, _) = all(
        "time_s,op,offset,length\n0.0,write,0.0,4096.0\n5e-06,write,4096.0,4096\n1.25E-5,write,8192,4096\n",
    );
    let of: Vec<_> = events.iter().map(|e| (e.at.0, e.sector, e.sectors)).collect();
    assert_eq!(of, [(0, 0, 8), (5_000, 8, 8), (12_500, 16, 8)]);
    let e = |line: &str| {
        let text = format!("time_s,op,offset,length\n{line}\n");
        read(Reader::new(text.as_bytes(), Events::Queued, None)).unwrap_err().to_string()
    };
    for (line, says) in [
        ("0,write,4.096,4096", "is no place"),
        ("0,write,8.000,4096", "is no place"),
        ("0,write,0,1.5e0", "is no place"),
        ("1e99,write,0,4096", "is no time"),
    ] {
        assert!(e(line).contains(says), "{line}: {}", e(line));
    }
}

/// Each part of an operation becomes a BIO, so a length that no command has must not reach a replay.
#[test]
fn a_length_that_no_command_has_is_refused() {
    let read = |text: String| read(Reader::new(text.as_bytes(), Events::Queued, None));
    let most = 1u64 << 32;
    let csv = |op: &str, n: u64| format!("time_us,op,sector,sectors\n1,{op},0,{n}\n");
    let iolog = |n: u64| format!("fio version 2 iolog\nd add\nd write 0 {}\n", n << 9);
    let blkparse = |n: u64| format!("8,0 0 1 0.000000001 7 Q W 0 + {n} [x]\n");
    for op in ["R", "W", "WZ", "ZA"] {
        assert_eq!(read(csv(op, most)).unwrap().0[0].sectors, most, "{op}");
        let e = read(csv(op, most + 1)).unwrap_err();
        assert!(
            e.to_string().starts_with("line 2 of the trace: an operation of 4294967297"),
            "{e}"
        );
    }
    for text in [iolog(most + 1), blkparse(most + 1)] {
        let e = read(text).unwrap_err();
        assert!(e.what_to_try().is_some_and(|h| h.starts_with("at most 2 TiB")), "{e}");
    }
    // A discard and a reset end at the end of the disk.
    assert_eq!(read(csv("D", 1 << 53)).unwrap().0[0].sectors, 1 << 53);
    assert_eq!(read(csv("reset", 1 << 53)).unwrap().0[0].sectors, 1 << 53);
}
