//! Traces of the block layer and of fio: what is read, and what a replay does with it.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use std::cell::RefCell;
use std::collections::BTreeMap;
use zoneplug_core::{Nanos, Op, Status};
use zoneplug_devices::emu::timing::Profile;
use zoneplug_devices::spec::Spec;
use zoneplug_models::time::trace::{Events, Fit, Format, Reader, Survey, TraceEvent};
use zoneplug_models::time::{Adapted, Pace, Placement, Replayed, Report, Run, TraceClient};

/// Recorded by fio 3.33:
/// `--filename=disk.dat --size=8M --bs=64k --rw=randrw --io_size=2M --ioengine=libaio --iodepth=8 --direct=1 --fsync=8
/// --thinktime=500 --write_iolog=fio-v3.log`
const FIO3: &str = include_str!("data/traces/fio-v3.log");
/// The same without times, as fio before 3.31 wrote it; fio 3.33 replays it.
const FIO2: &str = include_str!("data/traces/fio-v2.log");
/// `--filename=disk.dat --size=8M --bs=128k --rw=write --ioengine=psync --io_size=4M --fdatasync=8`
const FIO_SEQ: &str = include_str!("data/traces/fio-seq.log");
/// Printed by blkparse 1.2.0, from a binary trace that was made by hand: every action and letter that it prints.
const BLKPARSE: &str = include_str!("data/traces/blkparse.txt");

fn reader(text: &str) -> Reader<&[u8]> {
    Reader::new(text.as_bytes(), Events::Queued, None).unwrap()
}

fn events(text: &str) -> Vec<TraceEvent> {
    let mut r = reader(text);
    std::iter::from_fn(|| r.next_event().unwrap()).collect()
}

fn profile(spec: &str) -> Profile {
    Profile::from_spec(&mut Spec::parse(spec).unwrap()).unwrap().unwrap()
}

fn fit(profile: &Profile, text: &str) -> (Survey, Fit) {
    let mut fits = [Fit::new(&profile.geometry().unwrap(), &profile.limits())];
    let survey = Survey::of(reader(text), &mut fits).unwrap();
    let [fit] = fits;
    (survey, fit)
}

/// What became of a trace.
struct Done {
    all: Vec<Replayed>,
    report: Report,
    makespan: Nanos,
    busy: Nanos,
    adapted: Adapted,
}

fn replay(profile: &Profile, text: &str, place: Placement, pace: Pace) -> Done {
    let mut trace = reader(text);
    let all = RefCell::new(Vec::new());
    let mut run = Run::new(profile.clone());
    (run.warm_up, run.length, run.paranoid) = (Nanos(0), Nanos(u64::MAX >> 2), true);
    let limits = profile.limits();
    let mut client = TraceClient::new(
        place,
        &limits,
        pace,
        Box::new(|| trace.next_event()),
        Box::new(|r| all.borrow_mut().push(*r)),
    );
    let report = run.go_with(&mut [&mut client]).unwrap();
    let (makespan, busy, adapted) = (client.makespan(), client.busy(), client.adapted());
    drop(client);
    Done { all: all.into_inner(), report, makespan, busy, adapted }
}

const ASAP: Pace = Pace { speed: None, window: Some(32) };
const RECORDED: Pace = Pace { speed: Some(1.0), window: None };

/// A trace as fio writes it: `op offset length`, in KiB, each a microsecond after the one above.
fn iolog(ops: &[(&str, u64, u64)]) -> String {
    let mut text = "fio version 3 iolog\n".to_owned();
    for (i, (op, at, len)) in ops.iter().enumerate() {
        text += &format!("{i} d {op} {} {}\n", at << 10, len << 10);
    }
    text
}

#[test]
fn golden_traces_of_fio_and_blkparse_are_read() {
    let p = profile("sim-smr30");
    let (s, f) = fit(&p, FIO3);
    assert_eq!((s.format, s.writes, s.reads, s.flushes), (Format::Iolog3, 17, 15, 4));
    assert_eq!((s.written, s.read), (17 << 16, 15 << 16));
    assert_eq!((s.seen.lines, s.seen.unknown), (40, 0));
    let lines: Vec<&str> = FIO3.lines().collect();
    assert_eq!(f.first.map(|m| m.line), Some(10), "{}", lines[9]);
    // Microseconds: the run took 45 ms.
    assert!((40_000_000..46_000_000).contains(&s.span.0), "{:?}", s.span);

    let (two, _) = fit(&p, FIO2);
    assert_eq!((two.format, two.span), (Format::Iolog2, Nanos(0)));
    let same = |e: &TraceEvent| (e.op, e.sector, e.sectors);
    assert!(events(FIO2).iter().map(same).eq(events(FIO3).iter().map(same)));

    let (s, f) = fit(&p, FIO_SEQ);
    assert_eq!((s.writes, s.flushes, f.is_exact()), (32, 3, true));

    let (s, f) = fit(&p, BLKPARSE);
    assert_eq!(s.format, Format::Blkparse);
    assert_eq!((s.writes, s.reads, s.flushes, s.discards), (13, 3, 1, 1));
    assert_eq!((s.seen.lines, s.seen.unknown, s.seen.backwards), (85, 0, 0));
    assert!(f.is_exact());
    assert_eq!(s.makespan(), Nanos(20_450_000), "the last completion");
    let fua: Vec<_> = events(BLKPARSE).into_iter().filter(|e| e.fua).collect();
    assert_eq!(fua.len(), 1);
    assert_eq!((fua[0].preflush, fua[0].sector, fua[0].op), (true, 524_288, Op::Write));
    // What was sent to the driver: as many writes, later.
    let mut issued = Reader::new(BLKPARSE.as_bytes(), Events::Issued, None).unwrap();
    let first = issued.next_event().unwrap().unwrap();
    assert_eq!((first.line, first.sectors, first.at), (4, 64, Nanos(0)));
}

#[test]
fn a_trace_that_is_none_says_why_and_where() {
    let of = |text: &str| {
        Reader::new(text.as_bytes(), Events::Queued, None).and_then(|r| Survey::of(r, &mut []))
    };
    for (text, says) in [
        ("", "the trace is empty"),
        ("hello\nworld\n", "line 1 is of no known format"),
        ("fio version 2 iolog\nd add\n", "no operation in 2 lines"),
        (
            "fio version 3 iolog\n1 d add\n2 d write 0 x\n",
            "line 3 of the trace: '0' 'x' is no place",
        ),
        ("fio version 3 iolog\n1 d wait 5 0\n", "line 2 of the trace: wait"),
        ("8,0 0 1 0.000000001 7 Q W 5 + y [x]\n", "line 1 of the trace"),
        ("\u{7}tae", "no operation in 0 records"),
        (
            "fio version 2 iolog\na write 0 512\nb write 0 512\n",
            "line 3 of the trace: a second device 'b' beside 'a'",
        ),
    ] {
        let e = of(text).unwrap_err();
        assert!(e.to_string().contains(says), "{text}: {e}");
        assert!(e.what_to_try().is_some_and(|h| !h.is_empty()), "{text}");
    }
    let long = format!("8,0 {}\n", "x".repeat(70_000));
    assert!(of(&long).unwrap_err().to_string().contains("64 KiB"));
    assert!(of(&"x\n".repeat(2000)).unwrap_err().to_string().contains("1000 lines"));
    // Another device is passed over if one was asked for.
    let two = "fio version 2 iolog\na write 0 512\nb write 0 512\n?\n";
    let r = Reader::new(two.as_bytes(), Events::Queued, Some("b")).unwrap();
    let s = Survey::of(r, &mut []).unwrap();
    assert_eq!(
        (s.writes, s.seen.elsewhere, s.seen.unknown, s.seen.first_unknown),
        (1, 1, 1, Some(4))
    );
    let r = Reader::new(two.as_bytes(), Events::Queued, Some("c")).unwrap();
    assert!(Survey::of(r, &mut []).unwrap_err().to_string().contains("none of that device"));
}

/// Every operation ends, once, with its latency; two replays are the same.
#[test]
fn every_operation_of_the_golden_traces_ends() {
    for text in [FIO3, FIO2, FIO_SEQ, BLKPARSE] {
        for spec in ["sim-smr30", "sim-smr20", "sim-zns1"] {
            let p = profile(spec);
            for pace in [RECORDED, ASAP, Pace { speed: Some(10.0), window: Some(2) }] {
                let d = replay(&p, text, Placement::Log, pace);
                let mut lines: Vec<u64> = d.all.iter().map(|r| r.event.line).collect();
                lines.sort_unstable();
                let want: Vec<u64> = events(text).iter().map(|e| e.line).collect();
                assert_eq!(lines, want, "{spec}");
                assert!(d.all.iter().all(|r| r.status == Status::Ok), "{spec}");
                assert!(d.busy <= d.makespan && d.busy > Nanos(0));
                let again = replay(&p, text, Placement::Log, pace);
                assert_eq!((d.makespan, d.report), (again.makespan, again.report));
            }
        }
    }
}

/// At the recorded times a disk that keeps up is done when the recording was, and with twice the speed in half the
/// time.
#[test]
fn times_are_those_of_the_trace() {
    let text = "fio version 3 iolog\n1000 d write 0 4096\n501000 d write 4096 4096\n1001000 d read 0 4096\n";
    let p = profile("sim-zns1");
    for (speed, ms) in [(1.0, 1000), (2.0, 500), (0.5, 2000)] {
        let d = replay(&p, text, Placement::Log, Pace { speed: Some(speed), window: None });
        assert_eq!(d.makespan.0 / 1_000_000, ms, "{speed}");
        assert!(d.all.iter().all(|r| r.took < Nanos(200_000)));
    }
    // Waits of version 2, in microseconds.
    let text = "fio version 2 iolog\nd write 0 4096\nd wait 250000 0\nd write 4096 4096\nd wait 250000 0\nd read 0 4096\n";
    let d = replay(&p, text, Placement::Log, Pace { speed: Some(1.0), window: Some(1) });
    assert_eq!(d.makespan.0 / 1_000_000, 500);
}

/// W8: what is not at a write pointer is refused, the others are not; the first write of a zone says where it began.
#[test]
fn exact_replays_refuse_what_is_at_no_write_pointer() {
    let text = iolog(&[
        ("write", 512, 4),
        ("write", 516, 4),
        ("write", 512, 4),
        ("write", 520, 4),
        ("read", 0, 4),
    ]);
    let p = profile("sim-smr30");
    let (_, fit) = fit(&p, &text);
    assert_eq!(
        (fit.misplaced, fit.first.map(|m| (m.line, m.zone, m.write_pointer))),
        (1, Some((4, 0, 1040)))
    );
    let d = replay(&p, &text, Placement::Exact { begin: fit.begin() }, ASAP);
    let refused: Vec<_> = d.all.iter().filter(|r| r.status != Status::Ok).collect();
    assert_eq!(refused.len(), 1);
    assert_eq!((refused[0].event.line, refused[0].status), (4, Status::NotAtWritePointer));
    assert_eq!(d.adapted, Adapted::default());
    // Beyond the end.
    let text = iolog(&[("write", 0, 4), ("write", 1 << 50, 4)]);
    let d = replay(&p, &text, Placement::Exact { begin: vec![] }, ASAP);
    assert_eq!(d.all.iter().filter(|r| r.status != Status::Ok).count(), 1);
}

/// As a log: nothing is refused, zones are reset when they are full, and finished when no more may be active.
#[test]
fn log_replays_reset_full_zones_and_finish_old_ones() {
    let p = profile("sim-zns1,zones=16,zone-size=2M,zone-capacity=1M,max-open=3,max-active=3");
    // Random writes of 64 KiB over 4 zones: more than fit, and in more zones than may be active.
    let at = |i: u64| (i * 7919 + i * i * 31) % 128 * 64;
    let ops: Vec<_> = (0..400).map(|i| ("write", at(i), 64)).collect();
    let text = iolog(&ops);
    for pace in [ASAP, RECORDED, Pace { speed: None, window: Some(1) }] {
        let d = replay(&p, &text, Placement::Log, pace);
        let bad: Vec<_> = d.all.iter().filter(|r| r.status != Status::Ok).collect();
        assert!(bad.is_empty(), "{} {:?}", bad.len(), bad.first());
        assert_eq!(d.all.len(), 400);
        assert!(
            d.adapted.resets > 10 && d.adapted.finishes > 0 && d.adapted.moved > 300,
            "{:?}",
            d.adapted
        );
    }
    // What is beyond the end begins anew; a write that is longer than a BIO may be is sent in parts.
    let text =
        iolog(&[("write", 64 << 10, 64), ("write", 0, 4096), ("read", (32 << 10) - 64, 128)]);
    let d = replay(&p, &text, Placement::Log, ASAP);
    assert!(d.all.iter().all(|r| r.status == Status::Ok));
    assert_eq!(d.adapted.wrapped, 2);
    // A log also writes what would be between the capacity of a zone and its end.
    for ops in
        [[("write", 0, 4096), ("write", 4, 2044)], [("write", 1020, 8), ("write", 2000, 1500)]]
    {
        let d = replay(&p, &iolog(&ops), Placement::Log, ASAP);
        assert!(d.all.iter().all(|r| r.status == Status::Ok));
        let all: u64 = ops.iter().map(|(_, _, kib)| kib * 2).sum();
        assert_eq!(d.report.written_sectors, all, "{ops:?}");
    }
}

/// M2: a reset that was recorded waits for the writes before it, and writes behind it wait for it, on a disk that is
/// slower.
#[test]
fn management_keeps_its_place_among_the_writes_of_its_zone() {
    let mut text = String::new();
    let mut at = 0;
    let mut line = |rwbs: &str, sector: u64, n: u64| {
        at += 1;
        text += &format!("8,0 0 {at} 0.{at:09} 7 Q {rwbs} {sector} + {n} [x]\n");
    };
    for _ in 0..20 {
        for i in 0..32 {
            line("W", i * 128, 128);
        }
        line("ZR", 0, 524_288);
    }
    line("ZA", 524_288, 8);
    line("ZF", 524_288, 524_288);
    line("ZRA", 0, 0);
    line("D", 524_288, 524_288);
    line("FN", 0, 0);
    let p = profile("sim-smr30");
    let (s, fit) = fit(&p, &text);
    assert_eq!((s.management, s.writes, s.flushes, fit.is_exact()), (22, 641, 1, true));
    let d = replay(&p, &text, Placement::Exact { begin: vec![] }, RECORDED);
    let mut refused = BTreeMap::new();
    for r in d.all.iter().filter(|r| r.status != Status::Ok) {
        *refused.entry(r.status).or_insert(0) += 1;
    }
    assert!(refused.is_empty(), "{refused:?}");
    assert_eq!(d.all.len() as u64, s.operations());
}

/// Zone management without a length is of one zone: blktrace records none, and a table need not have one.
#[test]
fn management_without_a_length_is_of_one_zone() {
    let mut text = "time_us,op,sector,sectors\n".to_owned();
    for i in 0..20 {
        text += &format!("{},write,524288,64\n{},reset,524288,0\n", i * 10, i * 10 + 5);
    }
    let p = profile("sim-smr30");
    let (s, fit) = fit(&p, &text);
    assert_eq!((s.management, fit.is_exact()), (20, true));
    for place in [Placement::Exact { begin: vec![] }, Placement::Log] {
        let d = replay(&p, &text, place, RECORDED);
        assert_eq!(d.all.iter().filter(|r| r.status == Status::Ok).count(), 40);
        assert_eq!(d.adapted.moved, 0, "the write pointer is at the start again");
    }
    // Past the end of the disk there is no zone.
    let d = replay(
        &p,
        "time_us,op,sector,sectors\n0,reset,900000000000,0\n",
        Placement::Exact { begin: vec![] },
        ASAP,
    );
    assert_eq!(d.all[0].status, Status::OutOfRange);
}

/// More that is due than a disk takes: it waits outside, its latency counts, and all of it ends.
#[test]
fn what_is_due_waits_when_the_disk_is_slower() {
    let ops: Vec<_> = (0..50_000).map(|i| ("write", i * 4, 4)).collect();
    let d = replay(&profile("sim-smr30"), &iolog(&ops), Placement::Log, RECORDED);
    assert_eq!(d.all.len(), 50_000);
    let longest = d.all.iter().map(|r| r.took.0).max().unwrap();
    // 205 MB at 245 MB/s, all due in 50 ms.
    assert!((700_000_000..1_000_000_000).contains(&longest), "{longest}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 300 } else { 3000 }))]

    /// Any text: events or an error with help, never a panic; events are in order, and of this disk or beyond.
    #[test]
    fn any_text_is_read_without_a_panic(
        head in prop_oneof![Just("fio version 2 iolog\n"), Just("fio version 3 iolog\n"), Just("")],
        lines in prop::collection::vec(line(), 0..30),
    ) {
        let text = head.to_owned() + &lines.join("\n");
        let Ok(mut r) = Reader::new(text.as_bytes(), Events::Queued, None) else { return Ok(()) };
        let (mut last, mut line) = (Nanos(0), 0);
        loop {
            match r.next_event() {
                Ok(Some(e)) => {
                    prop_assert!(e.at > last || e.at == last && (e.line > line || r.seen().late > 0));
                    prop_assert!(e.sectors > 0 || matches!(e.op, Op::Flush | Op::ZoneResetAll));
                    (last, line) = (e.at, e.line);
                }
                Ok(None) => break,
                Err(e) => {
                    prop_assert!(e.what_to_try().is_some_and(|h| !h.is_empty()));
                    break;
                }
            }
        }
        prop_assert!(r.seen().bytes <= text.len() as u64);
    }

    /// Any operations on a small disk: all end, and as a log none is refused.
    #[test]
    fn any_trace_ends(ops in prop::collection::vec((0u8..8, 0u64..40_000, 1u64..3000), 1..80), window in 0u32..6) {
        let p = profile("sim-zns1,zones=7,zone-size=2M,zone-capacity=1500K,max-open=2,max-active=3");
        let mut text = String::new();
        for (i, (op, sector, n)) in ops.iter().enumerate() {
            let (rwbs, sector, n) = match op {
                0..=3 => ("W", *sector, *n),
                4 => ("R", *sector, *n),
                5 => ("ZA", sector / 4096 % 7 * 4096, n % 64 + 1),
                6 => ("ZR", sector / 4096 % 7 * 4096, 4096),
                _ => ("D", sector / 4096 % 7 * 4096, 4096),
            };
            text += &format!("8,0 0 1 0.{i:09} 7 Q {rwbs} {sector} + {n} [x]\n");
        }
        let pace = Pace { speed: Some(1.0), window: (window > 0).then_some(window) };
        let (_, fit) = fit(&p, &text);
        for place in [Placement::Log, Placement::Exact { begin: fit.begin() }] {
            let log = place == Placement::Log;
            let d = replay(&p, &text, place, pace);
            prop_assert_eq!(d.all.len(), ops.len());
            for r in d.all.iter().filter(|r| log && r.event.op == Op::Write) {
                prop_assert_eq!(r.status, Status::Ok, "{}", text);
            }
        }
    }
}

/// Lines that are nearly right.
fn line() -> impl Strategy<Value = String> {
    let n = prop_oneof![
        (0u64..5000).prop_map(|n| n.to_string()),
        any::<u64>().prop_map(|n| n.to_string()),
        "[0-9x.-]{0,30}",
    ];
    let rwbs = prop_oneof!["[FWRDZASM]{1,4}", Just("W".to_owned()), Just("R".to_owned())];
    let action = prop_oneof![Just("Q"), Just("C"), Just("D"), Just("m"), Just("?")];
    let time = prop_oneof!["[0-9]{1,3}\\.[0-9]{9}", "\\PC{0,12}"];
    prop_oneof![
        (time, action, rwbs, n.clone(), n.clone())
            .prop_map(|(t, a, k, s, l)| format!("  8,0 0 1 {t} 7  {a} {k} {s} + {l} [x]")),
        (n.clone(), "(add|read|write|trim|sync|wait|close|fly)", n.clone(), n.clone())
            .prop_map(|(t, a, o, l)| format!("{t} d {a} {o} {l}")),
        ("(add|read|write|trim|sync|wait|close|fly)", n.clone(), n)
            .prop_map(|(a, o, l)| format!("d {a} {o} {l}")),
        "\\PC{0,60}",
    ]
}
