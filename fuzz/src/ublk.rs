//! Requests as the ublk driver hands them to a server, and the journal of acknowledged appends that a
//! killed server leaves.

use crate::input::Input;
use std::collections::BTreeMap;
use std::io::{Seek, SeekFrom, Write};
use std::path::PathBuf;
use zoneplug_buf::AlignedBuf;
use zoneplug_core::disk::{Disk, DiskConfig};
use zoneplug_core::zone::Geometry;
use zoneplug_core::{Bio, Bios, IoBuf, Nanos, Op, Sector, Status, ZoneNo};
use zoneplug_devices::emu::EmuDisk;
use zoneplug_host::ublk::testing::{Journal, Request, Shape};

const ZONE: u32 = 64;
/// Longest data of a request, in bytes.
const MOST: u32 = 1 << 25;

/// What all requests move: the disk keeps no data.
static MEMORY: [u8; MOST as usize] = [0; MOST as usize];

thread_local! {
    static DIR: PathBuf = {
        let shm = PathBuf::from("/dev/shm");
        let dir = if shm.is_dir() { shm } else { std::env::temp_dir() };
        dir.join(format!("zoneplug-fuzz-{}-{:?}.told", std::process::id(), std::thread::current().id()))
    };
}

/// Requests as descriptors. Each is answered with as many bytes as it has, or with an error that Linux
/// knows.
pub fn ublk_requests(data: &[u8]) {
    let config = "null,zones=8,zone-size=32K,zone-capacity=24K,conv=1,max-active=3";
    let device = EmuDisk::new(config.parse().expect("a device")).expect("a device");
    let disk = Disk::open(device, DiskConfig::default(), &mut |_| Nanos(0)).expect("a disk");
    let mut queue = disk.open_polled_queue(4, 4).expect("a queue");
    for (n, d) in data.chunks(24).take(64).enumerate() {
        let mut descriptor = [0; 24];
        descriptor[..d.len()].copy_from_slice(d);
        let r = match Request::of(&descriptor, ZONE) {
            Ok(r) => r,
            Err(errno) => {
                assert!(matches!(errno, libc::EOPNOTSUPP | libc::EINVAL), "{errno}");
                continue;
            }
        };
        let (sector, len) = r.range();
        assert!(r.bytes() <= MOST, "{r:?}");
        let (lent, buf) = match r.bytes() {
            0 => (None, IoBuf::empty()),
            // The answer to a report is written.
            n if r.op() == Op::ReportZones => {
                let (lent, buf) = AlignedBuf::zeroed(n).lend();
                (Some(lent), buf)
            }
            n => (None, IoBuf::from_static(&MEMORY[..n as usize])),
        };
        let mut bio = Bio::with_buf(r.op(), sector, len, buf);
        bio.flags = r.flags();
        let (mut list, mut done) = (Bios::from([bio]), Bios::new());
        let mut now = 0;
        while done.is_empty() {
            now += 1;
            assert!(now < 10_000, "{r:?} is never done");
            queue.submit(Nanos(now), &mut list);
            queue.poll(Nanos(now), &mut done);
        }
        if let Some(lent) = lent {
            let back = lent.take_back(done[0].take_buf());
            assert!(back.is_ok(), "the memory of a report comes back: {r:?}");
        }
        let result = r.result(done[0].status);
        match done[0].status {
            Status::Ok if matches!(r.op(), Op::Read | Op::Write) => {
                assert_eq!(u64::try_from(result), Ok(u64::from(len) << 9), "{r:?}");
            }
            Status::Ok => assert!(result >= 0, "{r:?}: {result}"),
            _ => {
                let nobody_tries_again = [libc::EAGAIN, libc::EBUSY, libc::ECANCELED];
                assert!(
                    result < 0 && !nobody_tries_again.contains(&-result),
                    "{n} {r:?}: {result}"
                );
            }
        }
    }
}

/// The ranges that a client was told of, by zone, each with its moment.
#[derive(Default)]
struct AcknowledgedAppends {
    /// Moment, start and end.
    ranges: BTreeMap<u32, Vec<(u32, u32, u32)>>,
    /// The moments at which the resets in flight of a zone began.
    resets: BTreeMap<u32, Vec<u32>>,
    now: u32,
}

/// A journal of any content, and requests after it. A range that a client was told of is never taken for
/// space that no client knows.
pub fn append_journal(data: &[u8]) {
    let mut s = Input::new(data);
    let flags = s.byte();
    let zones = u32::from(s.byte() % 6) + 2;
    let geometry = Geometry::new(zones.into(), ZONE, ZONE - 8).expect("zones");
    let shape = Shape { geometry, queues: 2, depth: 1 };
    DIR.with(|path| {
        let written: Vec<u32> = (0..zones).map(|_| s.number() as u32 % ZONE).collect();
        let hidden: Vec<u32> = (0..zones).map(|_| s.number() as u32).collect();
        Journal::create(path, &shape, 1, &hidden).expect("a record");
        let mut file = std::fs::OpenOptions::new().write(true).open(path).expect("the record");
        let len = file.metadata().expect("a length").len();
        for _ in 0..s.byte() % 16 {
            // Damages the header, the zones, the rings, or anything.
            let at = match s.byte() % 8 {
                0 => u64::from(s.byte() % 16),
                1..=3 => 512 + u64::from(s.byte()) % u64::from(zones),
                4..=6 => 512 + u64::from(zones).next_multiple_of(8) + u64::from(s.byte() % 80),
                _ => s.number() % (len / 8),
            };
            let value = s.number();
            file.seek(SeekFrom::Start(at * 8)).expect("a place");
            file.write_all(&value.to_le_bytes()).expect("written");
        }
        if flags & 15 == 15 {
            file.set_len(s.number() % (2 * len)).expect("a length");
        }
        drop(file);
        if let Some(paths) = Journal::paths(path, 1) {
            assert!(!paths.contains('\0') && paths.len() < 3 * 4096);
        }
        match Journal::open(path, &shape, u64::from(flags >> 4 != 15), 2, &written) {
            Ok(journal) => serve(&journal, &shape, &mut s, &written),
            Err(why) => assert!(!why.is_empty()),
        }
        let _ = std::fs::remove_file(path);
    });
}

fn request(op: u8, sector: u64, len: u32) -> Option<Request> {
    let mut d = [0; 24];
    d[0] = op;
    d[4..8].copy_from_slice(&len.to_le_bytes());
    d[8..16].copy_from_slice(&sector.to_le_bytes());
    Request::of(&d, ZONE).ok()
}

fn serve(journal: &Journal, shape: &Shape, s: &mut Input<'_>, written: &[u32]) {
    check(journal, shape, &AcknowledgedAppends::default(), written);
    let zones = shape.geometry.nr_zones();
    let all = vec![ZONE; zones as usize];
    let mut appends = AcknowledgedAppends::default();
    for _ in 0..64 {
        if s.is_empty() {
            break;
        }
        appends.now += 1;
        let (what, zone) = (s.byte(), u32::from(s.byte()) % zones);
        let start = u64::from(zone) * u64::from(ZONE);
        match what % 6 {
            // An append is acknowledged.
            0 | 1 => {
                let from = u32::from(s.byte()) % ZONE;
                let len = 1 + u32::from(s.byte()) % (ZONE - from);
                journal.record((what >> 7).into(), Sector(start + u64::from(from)), len);
                appends.ranges.entry(zone).or_default().push((appends.now, from, from + len));
            }
            // A reset begins.
            2 => {
                let Some(r) = request(15, start, 0) else { continue };
                journal.begin(&r);
                appends.resets.entry(zone).or_default().push(appends.now);
            }
            // The oldest reset of a zone ends.
            3 => {
                let Some(r) = request(15, start, 0) else { continue };
                let resets = appends.resets.entry(zone).or_default();
                if resets.is_empty() {
                    continue;
                }
                let (begun, succeeded) = (resets.remove(0), what & 8 != 0);
                journal.end(&r, succeeded);
                if succeeded {
                    appends.ranges.entry(zone).or_default().retain(|r| r.0 > begun);
                }
            }
            // Any other operation, anywhere.
            4 => {
                let (op, sector, len) = (s.byte() % 20, s.number(), s.number() as u32);
                if (14..=15).contains(&op) {
                    continue;
                }
                let Some(r) = request(op, sector, len) else { continue };
                journal.begin(&r);
                journal.end(&r, what & 8 != 0);
            }
            // A write of the zone.
            _ => {
                let Some(r) = request(1, start, 8) else { continue };
                journal.begin(&r);
                assert!(!journal.only_appends(ZoneNo(zone)), "it is being written");
                journal.end(&r, what & 8 != 0);
                assert!(!journal.only_appends(ZoneNo(zone)), "it was written");
            }
        }
        check(journal, shape, &appends, &all);
    }
}

fn check(journal: &Journal, shape: &Shape, appends: &AcknowledgedAppends, written: &[u32]) {
    let unacked = journal.unacked(written);
    assert!(unacked.is_sorted_by(|a, b| a.0.0 < b.0.0), "{unacked:?}");
    for (zone, ranges) in unacked {
        assert!(zone.0 < shape.geometry.nr_zones() && !ranges.is_empty());
        let mut end = 0;
        for r in &ranges {
            assert!(end <= r.start && r.start < r.end, "{ranges:?}");
            assert!(r.end <= written[zone.0 as usize], "{ranges:?}");
            end = r.end;
            for (_, from, to) in appends.ranges.get(&zone.0).into_iter().flatten() {
                assert!(
                    *to <= r.start || r.end <= *from,
                    "{zone:?}: told of {from}..{to}, {r:?} is not"
                );
            }
        }
    }
}
