//! Files of blktrace: binary records, in both byte orders and both versions, of one processor or of several.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use zoneplug_core::{Error, Nanos, Op};
use zoneplug_devices::emu::timing::Profile;
use zoneplug_devices::spec::Spec;
use zoneplug_models::time::trace::{Events, Fit, Format, Reader, Seen, Survey, TraceEvent};

/// A trace of two processors, and of a third that did nothing.
const SAMPLE: [&[u8]; 3] = [
    include_bytes!("data/traces/blktrace/sdb.blktrace.0"),
    include_bytes!("data/traces/blktrace/sdb.blktrace.1"),
    include_bytes!("data/traces/blktrace/sdb.blktrace.2"),
];
/// The same, as `blkparse -i sdb` of blkparse 1.2.0 prints it.
const PRINTED: &str = include_str!("data/traces/blktrace/sdb.txt");

/// Recorded by blktrace 1.2.0 with Linux 6.1 on two processors, of a null_blk with zones of 4 MiB, the first eight
/// conventional: writes and reads of dd, then a reset, writes, finish, open, close, two resets, and two resets of all with
/// writes before each.
const LINUX_61: [&[u8]; 2] = [
    include_bytes!("data/traces/blktrace/linux61.blktrace.0"),
    include_bytes!("data/traces/blktrace/linux61.blktrace.1"),
];
const LINUX_61_PRINTED: &str = include_str!("data/traces/blktrace/linux61.txt");
/// The same with Linux 7.2, which was asked for version 8.
const LINUX_72: [&[u8]; 2] = [
    include_bytes!("data/traces/blktrace/linux72.blktrace.0"),
    include_bytes!("data/traces/blktrace/linux72.blktrace.1"),
];

const QUEUE: u32 = 1;
const ISSUE: u32 = 7;
const COMPLETE: u32 = 8;

const READ: u64 = 1 << 0;
const WRITE: u64 = 1 << 1;
const FLUSH: u64 = 1 << 2;
const SYNC: u64 = 1 << 3;
const FS: u64 = 1 << 8;
const SCSI: u64 = 1 << 9;
const NOTIFY: u64 = 1 << 10;
const AHEAD: u64 = 1 << 11;
const META: u64 = 1 << 12;
const DISCARD: u64 = 1 << 13;
const DRIVER: u64 = 1 << 14;
const FUA: u64 = 1 << 15;

/// A record, as a kernel writes it.
#[derive(Debug, Clone)]
struct Record {
    version: u8,
    big: bool,
    sequence: u32,
    time: u64,
    sector: u64,
    bytes: u32,
    event: u32,
    categories: u64,
    pid: u32,
    device: (u32, u32),
    cpu: u32,
    data: Vec<u8>,
}

impl Record {
    /// 4 KiB at sector 2048, 1 us after the start.
    fn new(event: u32, categories: u64) -> Record {
        Record {
            version: 7,
            big: false,
            sequence: 1,
            time: 1_000,
            sector: 2048,
            bytes: 4096,
            event,
            categories,
            pid: 697,
            device: (8, 16),
            cpu: 0,
            data: Vec::new(),
        }
    }

    fn at(mut self, time: u64, sector: u64, bytes: u32) -> Record {
        (self.time, self.sector, self.bytes) = (time, sector, bytes);
        self
    }

    fn data(mut self, data: &[u8]) -> Record {
        self.data = data.to_vec();
        self
    }

    fn put(&self, to: &mut Vec<u8>) {
        // The category of the event itself, which no reader needs.
        let own = match self.event & 0xff {
            _ if self.categories & (NOTIFY | DRIVER) != 0 => 0,
            ISSUE => 1 << 6,
            COMPLETE => 1 << 7,
            _ => 1 << 4,
        };
        let action = u64::from(self.event) | (self.categories | own) << 16;
        let mut word = |n: u64, len: usize| match self.big {
            true => to.extend(&n.to_be_bytes()[8 - len..]),
            false => to.extend(&n.to_le_bytes()[..len]),
        };
        let new = self.version >= 8;
        word(0x6561_7400 | u64::from(self.version), 4);
        word(u64::from(self.sequence), 4);
        word(self.time, 8);
        word(self.sector, 8);
        word(u64::from(self.bytes), 4);
        if new {
            word(u64::from(self.pid), 4);
            word(action, 8);
        } else {
            word(action, 4);
            word(u64::from(self.pid), 4);
        }
        word(u64::from(self.device.0 << 20 | self.device.1), 4);
        word(u64::from(self.cpu), 4);
        word(0, 2);
        word(self.data.len() as u64, 2);
        if new {
            word(0, 8);
            word(0, 4);
        }
        to.extend(&self.data);
    }
}

fn file(records: &[Record]) -> Vec<u8> {
    let mut bytes = Vec::new();
    records.iter().for_each(|r| r.put(&mut bytes));
    bytes
}

/// The events of a trace, and what else was seen.
fn read(files: &[&[u8]], events: Events, device: Option<&str>) -> Result<Read, Error> {
    let mut r = Reader::of_files(files.to_vec(), events, device)?;
    let mut all = Vec::new();
    while let Some(event) = r.next_event()? {
        all.push(event);
    }
    Ok((all, r.seen().clone()))
}

type Read = (Vec<TraceEvent>, Seen);

fn one(bytes: &[u8]) -> Read {
    read(&[bytes], Events::Queued, None).unwrap()
}

/// All but the line.
fn what(e: &TraceEvent) -> (Nanos, Op, bool, bool, u64, u64) {
    (e.at, e.op, e.fua, e.preflush, e.sector, e.sectors)
}

fn whats(events: &[TraceEvent]) -> Vec<(Nanos, Op, bool, bool, u64, u64)> {
    events.iter().map(what).collect()
}

/// What the sample was written with.
fn sample() -> [Vec<Record>; 3] {
    let mut files = [Vec::new(), Vec::new(), Vec::new()];
    let name = |cpu: u32, pid: u32, name: &[u8; 16]| {
        let mut note = Record::new(0, NOTIFY).at(0, 0, 0).data(name);
        (note.sequence, note.pid, note.cpu) = (0, pid, cpu);
        note
    };
    files[0].push(name(0, 697, b"db writer\0\0\0\0\0\0\0"));
    files[1].push(name(1, 12, b"kworker/1:1H\0\0\0\0"));
    files[0].push(Record { sequence: 0, ..Record::new(1, NOTIFY).at(0, 0, 0).data(&[7; 8]) });
    let mut numbers = [0, 0];
    let mut put = |cpu: usize, mut r: Record| {
        numbers[cpu] += 1;
        (r.cpu, r.sequence) = (cpu as u32, numbers[cpu]);
        r.pid = if cpu == 0 { 697 } else { 12 };
        files[cpu].push(r);
    };
    let mut wp = 0;
    for i in 0..24u64 {
        let t = 5_000_000 + i * 1_250_000;
        let (op, sector, bytes) = match i {
            4 => (READ, 1_572_872, 4096),
            9 => (READ | AHEAD | META, 1_572_904, 8192),
            12 => (WRITE | FLUSH, 0, 0),
            13 => (WRITE | FLUSH | FUA | SYNC | META, 524_288, 4096),
            16 => (WRITE | DISCARD, 524_296, 1 << 20),
            // Version 7: a reset of a zone.
            18 => (WRITE | SYNC, 524_288, 0),
            _ => {
                let bytes = if i % 3 == 0 { 32 << 10 } else { 128 << 10 };
                (WRITE | SYNC, wp, bytes)
            }
        };
        if op == WRITE | SYNC {
            wp += u64::from(bytes >> 9);
        }
        put(0, Record::new(QUEUE, op).at(t, sector, bytes));
        if i == 7 {
            // A SCSI command.
            let r = Record::new(QUEUE, READ | SCSI).at(t + 400, 0, 36);
            put(0, r.data(&[0x12, 0, 0, 0, 36, 0]));
            // A remapping, with where it came from.
            let r = Record::new(15, READ).at(t + 500, 5000, 8192);
            put(0, r.data(b"\0\x80\0\x11\0\x80\0\x10\0\0\0\0\0\0\x0f\xa0"));
            // The number of unplugged requests.
            put(0, Record::new(10, READ).at(t + 600, 0, 0).data(&1u64.to_be_bytes()));
        }
        if op & FLUSH == 0 && bytes > 0 {
            put(0, Record::new(4, op).at(t + 700, sector, bytes));
            put(1, Record::new(ISSUE, op | FS).at(t + 2_300, sector, bytes));
            put(1, Record::new(COMPLETE, op | FS).at(t + 900_000 + i * 7, sector, bytes));
        }
    }
    files
}

/// To write the sample anew: `cargo test -p zoneplug-models --test blktrace -- --ignored`, then `blkparse -i sdb > sdb.txt` in
/// its directory.
#[test]
#[ignore = "writes the sample"]
fn write_the_sample() {
    for (i, records) in sample().iter().enumerate() {
        let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/traces/blktrace");
        std::fs::write(format!("{dir}/sdb.blktrace.{i}"), file(records)).unwrap();
    }
}

#[test]
fn the_sample_is_what_the_writer_writes() {
    for (records, bytes) in sample().iter().zip(SAMPLE) {
        assert_eq!(file(records), bytes);
    }
}

/// What blkparse prints of the files is what is read from them.
#[test]
fn binary_records_are_what_blkparse_prints_of_them() {
    for events in [Events::Queued, Events::Issued] {
        let (printed, text) = read(&[PRINTED.as_bytes()], events, None).unwrap();
        let (ours, seen) = read(&SAMPLE, events, None).unwrap();
        assert_eq!(whats(&ours), whats(&printed));
        assert_eq!(ours.len(), if events == Events::Queued { 23 } else { 21 });
        assert_eq!(seen.last_completion, text.last_completion);
        assert_eq!(
            (seen.unclear, text.unclear),
            match events {
                Events::Queued => (1, 1),
                Events::Issued => (0, 0),
            }
        );
        assert_eq!((seen.unknown, seen.cut, seen.lost, seen.backwards), (0, 0, 0, 0));
        let bytes: usize = SAMPLE.iter().map(|f| f.len()).sum();
        assert_eq!(seen.bytes, bytes as u64);
        assert_eq!(seen.lines, sample().iter().map(|f| f.len() as u64).sum::<u64>());
    }
}

/// What kernels write: version 7 as blkparse prints it, and version 8 as the commands were.
#[test]
fn traces_of_linux_are_what_was_done() {
    let p = "sim-zns1,zones=64,zone-size=4M,zone-capacity=4M";
    let p = Profile::from_spec(&mut Spec::parse(p).unwrap()).unwrap().unwrap();
    let fit = |files: &[&[u8]], events| {
        let mut fits = [Fit::new(&p.geometry().unwrap(), &p.limits())];
        let r = Reader::of_files(files.to_vec(), events, None).unwrap();
        let survey = Survey::of(r, &mut fits).unwrap();
        (survey, fits[0].is_exact())
    };
    for events in [Events::Queued, Events::Issued] {
        let (printed, text) = read(&[LINUX_61_PRINTED.as_bytes()], events, None).unwrap();
        let (ours, seen) = read(&LINUX_61, events, None).unwrap();
        assert_eq!(whats(&ours), whats(&printed));
        assert_eq!(seen.last_completion, text.last_completion);
        assert_eq!((seen.unclear, text.unclear), (8, 8), "zone management without its kind");
        assert_eq!((seen.unknown, seen.lost, text.unknown), (0, 0, 0));
        let (survey, exact) = fit(&LINUX_61, events);
        assert_eq!((survey.writes, survey.reads, survey.management, exact), (21, 5, 0, false));
        let (survey, exact) = fit(&LINUX_72, events);
        assert_eq!((survey.writes, survey.reads, survey.management, exact), (21, 5, 8, true));
        assert_eq!((survey.seen.unknown, survey.seen.lost, survey.seen.unclear), (0, 0, 0));
        let (ours, _) = read(&LINUX_72, events, None).unwrap();
        let zones = ours.iter().filter(|e| e.op.is_zone_management());
        let zones: Vec<_> = zones.map(|e| (e.op, e.sector)).collect();
        let want = [
            (Op::ZoneReset, 65_536),
            (Op::ZoneFinish, 65_536),
            (Op::ZoneOpen, 81_920),
            (Op::ZoneClose, 81_920),
            (Op::ZoneReset, 65_536),
            (Op::ZoneReset, 73_728),
            (Op::ZoneResetAll, 0),
            (Op::ZoneResetAll, 0),
        ];
        assert_eq!(zones, want);
    }
}

/// Files of processors are one trace: one alone has other events, and their order does not matter.
#[test]
fn files_of_processors_are_merged_by_time() {
    let issued = |files: &[&[u8]]| read(files, Events::Issued, None).map(|r| whats(&r.0)).unwrap();
    let [a, b, c] = SAMPLE;
    assert_eq!(issued(&[a, b, c]), issued(&[c, b, a]));
    assert_eq!((issued(&[a, c]).len(), issued(&[b]).len()), (0, 21));
    // Writes in turns on four processors.
    let mut files = vec![Vec::new(); 4];
    for i in 0..200u64 {
        let mut r = Record::new(QUEUE, WRITE).at(1000 * i, i * 8, 4096);
        r.cpu = (i * i % 4) as u32;
        r.put(&mut files[(i * i % 4) as usize]);
    }
    let files: Vec<&[u8]> = files.iter().map(|f| &f[..]).collect();
    let (events, seen) = read(&files, Events::Queued, None).unwrap();
    assert!(
        events.iter().enumerate().all(|(i, e)| e.sector == i as u64 * 8 && e.line == i as u64 + 1)
    );
    assert_eq!(seen.backwards, 0);
    // Files that are longer than the window.
    let long = [0, 1].map(|odd| {
        let own = (0..40_000).map(|i| 2 * i + odd);
        file(&own.map(|i| Record::new(QUEUE, WRITE).at(i, i * 8, 4096)).collect::<Vec<_>>())
    });
    let (all, seen) = read(&[&long[0], &long[1]], Events::Queued, None).unwrap();
    assert!(all.iter().enumerate().all(|(i, e)| (e.sector, e.at.0) == (i as u64 * 8, i as u64)));
    assert_eq!((all.len(), seen.backwards), (80_000, 0));
    // Pieces of a stream one behind the other, as `blktrace -o -` writes them.
    let stream = files.concat();
    assert_eq!(whats(&one(&stream).0), whats(&events));
    assert_eq!(one(&stream).1.backwards, 0);
}

/// What comes later than the window holds is counted, and sent with the one before it.
#[test]
fn what_comes_too_late_is_counted() {
    let mut records: Vec<Record> =
        (0..40_000u64).map(|i| Record::new(QUEUE, WRITE).at(1000 + i, i * 8, 4096)).collect();
    records.push(Record::new(QUEUE, READ).at(10, 8, 4096));
    let (events, seen) = one(&file(&records));
    assert_eq!((events.len(), seen.backwards), (40_001, 1));
    assert!(events.windows(2).all(|w| w[0].at <= w[1].at));
    // 1000 less than 32 Ki, and it is in time.
    let (events, seen) = one(&file(&records[8_300..]));
    assert_eq!((seen.backwards, events[0].op), (0, Op::Read));
}

#[test]
fn both_byte_orders_and_both_versions_say_the_same() {
    let flat: Vec<Record> = sample().concat();
    let (want, _) = read(&SAMPLE, Events::Queued, None).unwrap();
    for (version, big) in [(7, true), (8, false), (8, true)] {
        let records: Vec<Record> =
            flat.iter().map(|r| Record { version, big, ..r.clone() }).collect();
        let (events, seen) = one(&file(&records));
        assert_eq!(whats(&events), whats(&want), "version {version}, big {big}");
        assert_eq!((seen.unknown, seen.cut, seen.lost), (0, 0, 0));
    }
}

/// (version, categories, bytes) and what is read: operation, preflush, FUA, sectors
#[test]
fn categories_of_an_operation() {
    let v7 = [
        (READ, 4096, Op::Read, false, false, 8),
        (READ | AHEAD | META | SYNC, 1537, Op::Read, false, false, 3),
        (WRITE, 512, Op::Write, false, false, 1),
        (WRITE | FUA, 512, Op::Write, false, true, 1),
        (WRITE | FLUSH | FUA, 512, Op::Write, true, true, 1),
        (WRITE | FLUSH, 0, Op::Flush, false, false, 0),
        (READ | FLUSH, 0, Op::Flush, false, false, 0),
        (WRITE | DISCARD, !511, Op::Discard, false, false, (1 << 23) - 1),
    ];
    let v8 = [
        (WRITE | 1 << 16, 4096, Op::ZoneAppend, false, false, 8),
        (WRITE | 1 << 16 | FUA, 4096, Op::ZoneAppend, false, true, 8),
        (WRITE | 1 << 17, 0, Op::ZoneReset, false, false, 0),
        (WRITE | 1 << 18, 0, Op::ZoneResetAll, false, false, 0),
        (WRITE | 1 << 19, 0, Op::ZoneFinish, false, false, 0),
        (WRITE | 1 << 20, 0, Op::ZoneOpen, false, false, 0),
        (WRITE | 1 << 21, 0, Op::ZoneClose, false, false, 0),
        (WRITE | 1 << 22, 1 << 20, Op::WriteZeroes, false, false, 2048),
    ];
    let both = [7, 8].into_iter().flat_map(|v| v7.map(|c| (v, c)));
    for (version, (categories, bytes, op, preflush, fua, sectors)) in both.chain(v8.map(|c| (8, c)))
    {
        let mut r = Record::new(QUEUE, categories).at(5, 4096, bytes);
        r.version = version;
        let (events, _) = one(&file(&[r]));
        let sector = if matches!(op, Op::Flush | Op::ZoneResetAll) { 0 } else { 4096 };
        let want = (Nanos(0), op, fua, preflush, sector, sectors);
        assert_eq!(whats(&events), [want], "version {version}, {categories:x}");
    }
    // With a cgroup, whose number is data of the record.
    let of_a_cgroup = Record::new(QUEUE | 1 << 8, READ).data(&41u64.to_le_bytes());
    assert_eq!(one(&file(&[of_a_cgroup, Record::new(QUEUE, WRITE)])).0.len(), 2);
    // No operation of a disk, or not one that was asked for.
    for r in [
        Record::new(QUEUE, READ | SCSI),
        Record::new(QUEUE, READ).at(5, 0, 0),
        Record::new(QUEUE, WRITE | DISCARD).at(5, 0, 0),
        Record::new(1, NOTIFY),
        Record::new(17, DRIVER),
        Record::new(ISSUE, WRITE),
        Record::new(COMPLETE, WRITE),
        Record::new(2, WRITE),
        Record::new(18, READ),
        Record::new(19, READ),
    ] {
        let (events, seen) = one(&file(std::slice::from_ref(&r)));
        assert_eq!((events.len(), seen.unknown, seen.lines), (0, 0, 1), "{r:?}");
    }
    for r in [Record::new(0, WRITE), Record::new(20, WRITE), Record::new(1 << 9 | QUEUE, WRITE)] {
        let (_, seen) = one(&file(std::slice::from_ref(&r)));
        assert_eq!((seen.unknown, seen.first_unknown), (1, Some(1)), "{r:?}");
    }
}

/// A reset that was recorded is one of a whole zone, though its record has no length.
#[test]
fn management_without_a_length_is_of_one_zone() {
    let spec = "sim-zns1,zones=16,zone-size=2M,zone-capacity=2M";
    let p = Profile::from_spec(&mut Spec::parse(spec).unwrap()).unwrap().unwrap();
    let mut records = Vec::new();
    for i in 0..40u64 {
        records.push(Record::new(QUEUE, WRITE).at(i * 100, 4096, 4096));
        records.push(Record::new(QUEUE, WRITE | 1 << 17).at(i * 100 + 50, 4096, 0));
    }
    records.iter_mut().for_each(|r| r.version = 8);
    let fit = |bytes: &[u8]| {
        let mut fits = [Fit::new(&p.geometry().unwrap(), &p.limits())];
        let r = Reader::new(bytes, Events::Queued, None).unwrap();
        let survey = Survey::of(r, &mut fits).unwrap();
        let [fit] = fits;
        (survey, fit)
    };
    let (survey, f) = fit(&file(&records));
    assert_eq!((survey.format, survey.writes, survey.management), (Format::Blktrace, 40, 40));
    assert!(f.is_exact(), "{f:?}");
    records.retain(|r| r.bytes > 0);
    assert_eq!(fit(&file(&records)).1.misplaced, 39);
}

#[test]
fn a_device_is_named_as_blkparse_names_it() {
    let mut records = vec![Record::new(QUEUE, WRITE), Record::new(QUEUE, READ).at(2000, 8, 512)];
    (records[1].device, records[1].sequence) = ((259, 1_000_000), 1);
    let bytes = file(&records);
    let e = read(&[&bytes], Events::Queued, None).unwrap_err();
    let said = "record 2 of the trace: a second device '259,1000000' beside '8,16'";
    assert!(e.to_string().starts_with(said), "{e}");
    assert_eq!(e.what_to_try(), Some("'device' 8,16 takes one of them"));
    for (device, op) in [("8,16", Op::Write), ("259,1000000", Op::Read)] {
        let (events, seen) = read(&[&bytes], Events::Queued, Some(device)).unwrap();
        assert_eq!((events.len(), events[0].op, seen.elsewhere), (1, op, 1));
    }
    let (events, seen) = read(&[&bytes], Events::Queued, Some("8,17")).unwrap();
    assert_eq!((events.len(), seen.elsewhere), (0, 2));
}

/// A file that ends within a record is read up to it, and this is said of each file.
#[test]
fn a_record_that_is_cut_off_is_counted() {
    let records =
        [Record::new(QUEUE, WRITE), Record::new(QUEUE, READ).at(2000, 8, 512).data(b"abcdefgh")];
    let bytes = file(&records);
    // Less than its first four bytes is no trace of blktrace's.
    for end in 4..bytes.len() {
        let (events, seen) = one(&bytes[..end]);
        assert_eq!(events.len(), usize::from(end >= 48), "{end}");
        assert_eq!((seen.cut, seen.bytes), (u64::from(end != 48), end as u64), "{end}");
    }
    let (events, seen) =
        read(&[&bytes[..50], &bytes[..103], &bytes], Events::Queued, None).unwrap();
    assert_eq!((events.len(), seen.cut), (4, 2));
}

#[test]
fn numbers_that_are_missing_were_lost() {
    let numbered = |cpu: u32, n: u32| {
        let mut r = Record::new(QUEUE, WRITE).at(u64::from(n) * 10, 8, 512);
        (r.cpu, r.sequence) = (cpu, n);
        r
    };
    let of = |all: &[Record]| one(&file(all)).1.lost;
    // A trace may begin anywhere.
    assert_eq!(of(&[numbered(0, 7), numbered(1, 90), numbered(0, 8), numbered(1, 91)]), 0);
    assert_eq!(of(&[numbered(0, 7), numbered(0, 11), numbered(0, 12)]), 3);
    // In another order nothing is lost.
    assert_eq!(of(&[numbered(0, 7), numbered(0, 9), numbered(0, 8)]), 0);
    assert_eq!(of(&[numbered(0, u32::MAX), numbered(0, 0)]), u64::from(u32::MAX) - 1);
}

#[test]
fn what_is_no_record_says_where() {
    let good = file(&[Record::new(QUEUE, WRITE), Record::new(QUEUE, READ).data(b"12345")]);
    let big = file(&[Record { big: true, ..Record::new(QUEUE, WRITE) }]);
    let strange = file(&[Record { version: 9, ..Record::new(QUEUE, WRITE) }]);
    let far = file(&[Record::new(QUEUE, WRITE).at(5, u64::MAX, 512)]);
    let late = [5, u64::MAX].map(|t| Record::new(QUEUE, WRITE).at(t, 5, 512));
    let late = file(&late);
    let shifted = [&good[..], &good[1..]].concat();
    let long = file(&[Record::new(QUEUE, READ).data(&[0; 4097])]);
    let (good, strange) = (&good[..], &strange[..]);
    for (files, says) in [
        (vec![&shifted[..]], "no record of blktrace's at byte 101"),
        (vec![&[good, &big].concat()], "no record of blktrace's at byte 101"),
        (vec![&long], "a record with 4097 bytes of data at byte 0"),
        (vec![strange], "a record of version 9 at byte 0"),
        (vec![good, strange], "a record of version 9 at byte 0 of file 2 of 2"),
        (vec![good, b"fio version 2 iolog\n"], "no record of blktrace's at byte 0 of file 2 of 2"),
        (vec![&far], "record 1 of the trace: 18446744073709551615 + 1 is no place on a disk"),
        (vec![&late], "record 2 of the trace: 584 years after the earliest"),
    ] {
        let e = read(&files, Events::Queued, None).unwrap_err();
        assert!(e.to_string().starts_with(says), "{e}");
        assert!(e.what_to_try().is_some_and(|h| !h.is_empty()), "{says}");
    }
    // All files are empty.
    let e = read(&[b"", b""], Events::Queued, None).unwrap_err();
    assert!(e.to_string().contains("the trace is empty"), "{e}");
    // A flush has no place, whatever its record says.
    let flush = file(&[Record::new(QUEUE, WRITE | FLUSH).at(5, u64::MAX, 0)]);
    assert_eq!(one(&flush).0[0].op, Op::Flush);
    let r = Reader::new(&file(&[Record::new(ISSUE, READ)])[..], Events::Queued, None)
        .map(|r| Survey::of(r, &mut []).unwrap_err().to_string());
    assert!(r.unwrap().contains("no operation in 1 record;"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 300 } else { 3000 }))]

    /// Damaged files: events or an error with help, never a panic; events are in the order of their times.
    #[test]
    fn damaged_files_are_read_without_a_panic(
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cut in any::<prop::sample::Index>(),
        version in 7u8..9,
        big in any::<bool>(),
    ) {
        let records = sample().concat().into_iter().map(|r| Record { version, big, ..r });
        let mut bytes = file(&records.collect::<Vec<_>>());
        bytes.truncate(cut.index(bytes.len() + 1));
        for (at, byte) in damage {
            if !bytes.is_empty() {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
        }
        let half = bytes.len() / 2;
        for files in [vec![&bytes[..]], vec![&bytes[..half], &bytes[half..]]] {
            match read(&files, Events::Queued, Some("8,16")) {
                Ok((events, seen)) => {
                    prop_assert!(events.windows(2).all(|w| w[0].at <= w[1].at));
                    prop_assert_eq!(seen.bytes, bytes.len() as u64);
                }
                Err(e) => prop_assert!(e.what_to_try().is_some_and(|h| !h.is_empty())),
            }
        }
    }
}
