//! The thread of a ublk queue, with a kernel's side that needs no kernel.

#![cfg(feature = "ublk")]
#![allow(clippy::unwrap_used)]

#[path = "common/lost_writes.rs"]
mod lost_writes;

use std::collections::VecDeque;
use zoneplug_buf::AlignedBuf;
use zoneplug_host::file::{CreateOptions, create};
use zoneplug_host::ublk::testing::{Answer, BlockClient, serve, serve_part};
use zoneplug_host::{DiskSpec, HostedDisk};

const READ: u8 = 0;
const WRITE: u8 = 1;
const FLUSH: u8 = 2;
const APPEND: u8 = 13;
const RESET_ALL: u8 = 14;
const RESET: u8 = 15;
const REPORT: u8 = 18;
/// No operation of the driver.
const UNKNOWN: u8 = 77;

const ZONE_SECTORS: u64 = 8192;
const BYTES: usize = 1 << 16;

#[derive(Debug, Clone, Copy)]
struct Request {
    op: u8,
    sector: u64,
    /// Length in sectors, or number of zones.
    len: u32,
    /// What a write brings.
    fill: u8,
}

const fn request(op: u8, sector: u64, len: u32, fill: u8) -> Request {
    Request { op, sector, len, fill }
}

/// Sends each request when all before it are answered, or several together.
struct Script {
    left: VecDeque<Request>,
    in_flight: Vec<(u16, Request)>,
    answers: Vec<(Request, Answer, Vec<u8>)>,
}

impl BlockClient for Script {
    fn next(&mut self, tag: u16, data: &mut [u8]) -> Option<[u8; 24]> {
        let r = self.left.pop_front()?;
        data.fill(r.fill);
        let mut descriptor = [0; 24];
        descriptor[0] = r.op;
        descriptor[4..8].copy_from_slice(&r.len.to_le_bytes());
        descriptor[8..16].copy_from_slice(&r.sector.to_le_bytes());
        self.in_flight.push((tag, r));
        Some(descriptor)
    }

    fn answered(&mut self, answer: Answer, data: &[u8]) {
        let at = self.in_flight.iter().position(|(tag, _)| *tag == answer.tag);
        let (_, request) = self.in_flight.remove(at.expect("a request in flight"));
        self.answers.push((request, answer, data.to_vec()));
    }
}

fn disk(spec: &str) -> HostedDisk {
    let spec = DiskSpec::parse(spec).expect("a good specification");
    HostedDisk::open(spec.device, spec.config).expect("an emulated disk opens")
}

/// The answers in the order in which the queue gave them.
fn run(disk: &HostedDisk, depth: u16, requests: &[Request]) -> Vec<(Request, Answer, Vec<u8>)> {
    let left = requests.iter().copied().collect();
    let mut script = Script { left, in_flight: Vec::new(), answers: Vec::new() };
    serve(disk, depth, BYTES, &mut script).expect("all is served");
    assert!(script.in_flight.is_empty(), "answered: {:?}", script.in_flight);
    assert_eq!(script.answers.len(), requests.len());
    script.answers
}

/// Each request is answered once, with the bytes that moved or an error number, and data arrives where it belongs.
/// U4, U6.
#[test]
fn requests_are_carried_out_and_answered() {
    for spec in ["mem,zones=4,zone-size=4M", "mem,zones=4,zone-size=4M,latency=200us"] {
        let disk = disk(spec);
        let zone = ZONE_SECTORS;
        let script = [
            request(WRITE, 0, 16, 1),
            request(WRITE, 16, 8, 2),
            request(APPEND, zone, 8, 3),
            request(APPEND, zone, 16, 4),
            request(READ, 8, 16, 0xff),
            request(READ, zone + 8, 8, 0xff),
            request(WRITE, 8, 8, 9),
            request(FLUSH, 0, 0, 0),
            request(UNKNOWN, 0, 8, 0),
            request(RESET, zone, 0, 0),
            request(REPORT, 0, 4, 0),
        ];
        let answers = run(&disk, 1, &script);
        let results: Vec<_> = answers.iter().map(|(_, a, _)| (a.result, a.append)).collect();
        let (refused, unknown) = (-libc::EIO, -libc::EOPNOTSUPP);
        assert_eq!(
            results,
            [
                (8192, 0),
                (4096, 0),
                (0, zone),
                (0, zone + 8),
                (8192, 0),
                (4096, 0),
                (refused, 0),
                (0, 0),
                (unknown, 0),
                (0, 0),
                (1 << 25, 0)
            ],
            "{spec}"
        );
        let read = &answers[4].2;
        assert!(read[..4096].iter().all(|b| *b == 1) && read[4096..8192].iter().all(|b| *b == 2));
        assert!(read[8192..].iter().all(|b| *b == 0xff), "no more than was asked for");
        assert!(answers[5].2[..4096].iter().all(|b| *b == 4));
        // The write pointer of a record is its third word.
        let wp = |nth: usize| {
            u64::from_le_bytes(answers[10].2[nth * 64 + 16..][..8].try_into().unwrap())
        };
        assert_eq!((wp(0), wp(1)), (24, zone));
    }
}

/// With several requests in flight none is lost, on a disk that answers at once and on one that takes its time.
#[test]
fn many_requests_in_flight_are_all_answered() {
    for spec in ["mem,zones=8,zone-size=4M", "mem,zones=8,zone-size=4M,latency=100us"] {
        let disk = disk(spec);
        let of = |op, n| {
            let at = move |i: u64| (i % 8) * ZONE_SECTORS + i / 8 * 8;
            (0..n).map(move |i| request(op, at(i), 8, i as u8))
        };
        let answers = run(&disk, 16, &of(WRITE, 400).collect::<Vec<_>>());
        assert!(answers.iter().all(|(_, a, _)| a.result == 4096), "{spec}");
        for (request, answer, data) in run(&disk, 16, &of(READ, 400).collect::<Vec<_>>()) {
            assert_eq!(answer.result, 4096);
            let at = request.sector;
            let nth = at % ZONE_SECTORS / 8 * 8 + at / ZONE_SECTORS;
            assert!(data[..4096].iter().all(|b| *b == nth as u8), "{spec}: sector {at}");
        }
    }
}

/// A device may report fewer zones than it was asked for. Linux takes what is behind the last record for more zones,
/// unless it is zeroes, and the buffer may have held the data of another request.
#[test]
fn what_is_behind_the_last_zone_of_a_report_is_zeroes() {
    let disk = disk("mem,zones=4,zone-size=4M");
    let script = [request(WRITE, 0, 128, 7), request(REPORT, 2 * ZONE_SECTORS, 8, 7)];
    let answers = run(&disk, 1, &script);
    let start = |nth: usize| u64::from_le_bytes(answers[1].2[nth * 64..][..8].try_into().unwrap());
    assert_eq!((start(0), start(1)), (2 * ZONE_SECTORS, 3 * ZONE_SECTORS));
    assert!(answers[1].2[2 * 64..8 * 64].iter().all(|b| *b == 0), "no data of the write");
}

/// A client that leaves the device to another server once it has sent so many requests.
struct Leaver {
    script: Script,
    sent: usize,
    leaves_after: usize,
    /// Whether the other server gives up.
    kept: bool,
}

impl BlockClient for Leaver {
    fn next(&mut self, tag: u16, data: &mut [u8]) -> Option<[u8; 24]> {
        self.sent += 1;
        self.script.next(tag, data)
    }

    fn answered(&mut self, answer: Answer, data: &[u8]) {
        self.script.answered(answer, data);
    }

    fn is_left(&self) -> bool {
        self.sent >= self.leaves_after
    }

    fn is_kept(&self) -> bool {
        self.kept
    }
}

/// What a queue has begun when it leaves is on the disk and answered. Of the rest nothing is on the disk, and none is
/// answered: the next server carries it out. U9.
#[test]
fn u9_a_queue_that_leaves_answers_what_it_has_begun_and_begins_nothing_more() {
    let specs = ["mem,zones=8,zone-size=4M", "mem,zones=8,zone-size=4M,latency=300us"];
    let mut unanswered = 0;
    for (spec, leaves_after) in
        specs.into_iter().flat_map(|s| [1, 16, 17, 100, 333].map(|n| (s, n)))
    {
        let disk = disk(spec);
        let at = |i: u64| (i % 8) * ZONE_SECTORS + i / 8 * 8;
        let left = (0..400).map(|i| request(WRITE, at(i), 8, i as u8)).collect();
        let script = Script { left, in_flight: Vec::new(), answers: Vec::new() };
        let mut client = Leaver { script, sent: 0, leaves_after, kept: false };
        serve(&disk, 16, BYTES, &mut client).expect("it leaves");
        let Script { in_flight, answers, left } = client.script;
        assert!(answers.iter().all(|(_, a, _)| a.result == 4096), "{spec}");
        assert_eq!(in_flight.len() + answers.len() + left.len(), 400);
        assert!(in_flight.len() <= 16 && !left.is_empty(), "{spec}: {} left", left.len());
        unanswered += in_flight.len();
        let mut written = [0; 8];
        let mut io = zoneplug_host::BlockingDisk::new(&disk).unwrap();
        let zones = io.report(zoneplug_core::Sector(0), 8).unwrap();
        for (zone, written) in zones.iter().zip(&mut written) {
            *written = zone.wp.0 - zone.start.0;
        }
        for (request, ..) in answers {
            let (zone, end) = (request.sector / ZONE_SECTORS, request.sector % ZONE_SECTORS + 8);
            assert!(written[zone as usize] >= end, "{spec}: an answered write is on the disk");
        }
        for (_, request) in in_flight {
            let (zone, start) = (request.sector / ZONE_SECTORS, request.sector % ZONE_SECTORS);
            assert!(written[zone as usize] <= start, "{spec}: one that was left is not");
        }
    }
    assert!(unanswered > 0, "nothing was left: the test shows nothing");
}

/// A queue that leaves waits for a flush that takes long. Writes come meanwhile, and it begins none of them. U9.
#[test]
fn u9_a_queue_that_leaves_begins_nothing_while_it_waits() {
    let disk = disk("delay,flush=100ms@mem,zones=8,zone-size=4M");
    let writes = (0..400).map(|i| request(WRITE, (i % 8) * ZONE_SECTORS + i / 8 * 8, 8, 1));
    let left = std::iter::once(request(FLUSH, 0, 0, 0)).chain(writes).collect();
    let script = Script { left, in_flight: Vec::new(), answers: Vec::new() };
    let mut client = Leaver { script, sent: 0, leaves_after: 17, kept: false };
    serve(&disk, 16, BYTES, &mut client).expect("it leaves");
    let Script { in_flight, answers, .. } = client.script;
    assert!(
        answers.iter().any(|(r, a, _)| r.op == FLUSH && a.result == 0),
        "the flush is answered"
    );
    // 16 that were there before it was asked, and 16 that came before it heard of that.
    assert!(answers.len() <= 33, "{} requests were answered", answers.len());
    assert!(!in_flight.is_empty(), "no write was left: the test shows nothing");
}

/// U11. The first flush of a device whose acknowledged writes were lost below an earlier server fails, whatever disks and
/// layers are between, and no request that does not ask for durability.
#[test]
fn u11_a_device_is_told_of_a_loss_once() {
    let dir = std::env::temp_dir().join(format!("zoneplug-ublk-owed-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let path = dir.join("disk.zbd");
    let size =
        CreateOptions { zones: Some(4), zone_size: Some(4 << 20), ..CreateOptions::default() };
    create(&path, &size, false).unwrap();
    let spec = format!("po2@{}", path.display());
    drop(HostedDisk::open_spec(&spec).unwrap());
    lost_writes::lose_writes(&path);
    let flush = request(FLUSH, 0, 0, 0);
    let script = [request(WRITE, 0, 8, 1), request(READ, 0, 8, 0), flush, flush];
    let disk = HostedDisk::open_spec(&spec).unwrap();
    let results: Vec<i32> = run(&disk, 1, &script).iter().map(|(_, a, _)| a.result).collect();
    assert_eq!(results, [4096, 4096, -libc::EIO, 0]);
    drop(disk);
    let disk = HostedDisk::open_spec(&spec).unwrap();
    let results: Vec<i32> =
        run(&disk, 1, &[flush, flush]).iter().map(|(_, a, _)| a.result).collect();
    assert_eq!(results, [0, 0], "it knows");
    drop(disk);
    std::fs::remove_dir_all(&dir).unwrap();
}

/// A hand-over that is taken back: the queue answers every request once, those too that came while it was to leave. U9.
#[test]
fn u9_a_queue_that_stays_after_all_answers_every_request() {
    for leaves_after in [1, 17, 100] {
        let disk = disk("delay,flush=20ms@mem,zones=8,zone-size=4M");
        let writes = (0..400).map(|i| request(WRITE, (i % 8) * ZONE_SECTORS + i / 8 * 8, 8, 1));
        let left = std::iter::once(request(FLUSH, 0, 0, 0)).chain(writes).collect();
        let script = Script { left, in_flight: Vec::new(), answers: Vec::new() };
        let mut client = Leaver { script, sent: 0, leaves_after, kept: true };
        serve(&disk, 16, BYTES, &mut client).expect("it stays, and ends with the device");
        let Script { in_flight, answers, left } = client.script;
        assert!(in_flight.is_empty() && left.is_empty(), "{} in flight", in_flight.len());
        assert_eq!(answers.len(), 401);
        assert!(answers.iter().all(|(_, a, _)| a.result >= 0));
    }
}

/// U4. A device shows some zones of a disk, so a reset of all its zones takes several commands. If one fails the reset fails,
/// and the zones behind keep their data.
#[test]
fn u4_a_reset_of_all_zones_that_fails_in_part_fails_and_stops() {
    let part = "mem,zones=3,zone-size=4M,conv=1";
    let disk = HostedDisk::open_spec(&format!("linear@{part},fault=reset/io/count=1%{part}"));
    let disk = disk.unwrap();
    let mut io = zoneplug_host::BlockingDisk::new(&disk).unwrap();
    for zone in [1, 4, 5] {
        io.append(zoneplug_core::Sector(zone * ZONE_SECTORS), AlignedBuf::zeroed(4096)).unwrap();
    }
    let mut reset_all = || {
        let left = VecDeque::from([request(RESET_ALL, 0, 0, 0)]);
        let mut script = Script { left, in_flight: Vec::new(), answers: Vec::new() };
        serve_part(&disk, 0..5, BYTES, &mut script).expect("all is served");
        let zones = io.report(zoneplug_core::Sector(0), 6).unwrap();
        let written = [1, 4, 5].map(|zone: usize| zones[zone].wp.0 - zones[zone].start.0);
        (script.answers[0].1.result, written)
    };
    assert_eq!(reset_all(), (-libc::EIO, [8, 8, 8]));
    assert_eq!(reset_all(), (0, [0, 0, 8]), "the device does not show the last zone");
}
