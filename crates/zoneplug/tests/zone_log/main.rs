//! The log in zones, on disks in memory: what its documentation promises, one promise a test.
#![allow(clippy::unwrap_used)]

mod common;
mod crashes;
mod damage;
mod model;
mod sets;
mod sharing;

use common::{Memory, data};
use zoneplug::ZoneNo;
use zoneplug::zone::Condition;
use zoneplug::zone_log::{LogAddress, LogError, LogOptions, ZoneLog};

/// Disks that differ in what a log could get wrong.
const DISKS: [&str; 5] = [
    "mem,zones=4,zone-size=64K",
    "mem,zones=4,zone-size=64K,lba-size=512,granularity=512",
    "mem,zones=4,zone-size=64K,zone-capacity=40K",
    "mem,zones=6,zone-size=64K,conv=2,max-open=1,max-active=1",
    "mem,zones=5,zone-size=96K,lba-size=512,granularity=4096,max-transfer=8K,append-max=4K",
];

/// Every record is there, in order, by iteration and by address; also after opening the log again.
#[test]
fn records_come_back_in_order_and_by_address() {
    for spec in DISKS {
        let memory = Memory::new(spec);
        let mut known: Vec<(LogAddress, Vec<u8>)> = Vec::new();
        for round in 0..3 {
            let log = ZoneLog::open(&memory.open(), LogOptions::new()).unwrap();
            assert_eq!(log.recovery().last, known.last().map(|(at, _)| at.sequence()), "{spec}");
            assert_eq!(log.recovery().torn_bytes, 0, "{spec}");
            for n in 0..8 {
                let record = data(n + round * 100, (n as usize * 997) % 9000);
                known.push((log.append(&record).unwrap(), record));
                assert!(memory.active() <= 1, "{spec}: more than one zone is active");
            }
            for log in [log, ZoneLog::open(&memory.open(), LogOptions::new()).unwrap()] {
                let all: Vec<_> =
                    log.iter().map(|r| r.map(|r| (r.address, r.data)).unwrap()).collect();
                assert_eq!(all, known, "{spec}");
                for (at, record) in &known {
                    assert_eq!(log.read(*at).as_ref(), Ok(record), "{spec}: {at}");
                }
                let (from, _) = known[known.len() / 2];
                let rest = log.iter_from(from).unwrap().map(|r| r.unwrap().address);
                assert!(rest.eq(known[known.len() / 2..].iter().map(|(at, _)| *at)), "{spec}");
            }
        }
        assert!(
            known.windows(2).all(|w| w[0].0 < w[1].0 && w[0].0.sequence() + 1 == w[1].0.sequence())
        );
    }
}

/// A full log takes nothing and loses nothing; making room is the caller's, and takes the oldest zone only.
#[test]
fn a_full_log_says_so_until_room_is_made() {
    for spec in DISKS {
        let memory = Memory::new(spec);
        let log = ZoneLog::open(&memory.open(), LogOptions::new()).unwrap();
        let mut known = Vec::new();
        let e = loop {
            match log.append(&data(known.len() as u64, 5000)) {
                Ok(at) => known.push(at),
                Err(e) => break e,
            }
        };
        assert_eq!(e, LogError::Full, "{spec}");
        assert!(known.iter().all(|at| log.read(*at).is_ok()), "{spec}");
        let zone = log.reset_oldest().unwrap().unwrap();
        assert_eq!(memory.cond(zone.0), Condition::Empty, "{spec}");
        let gone =
            known.iter().take_while(|at| log.read(**at) == Err(LogError::Stale(**at))).count();
        assert!(gone > 0 && gone < known.len(), "{spec}");
        assert!(known[gone..].iter().all(|at| log.read(*at).is_ok()), "{spec}");
        let at = log.append(b"again").unwrap();
        // Its place is that of another record now, and its address still names the one that is gone.
        assert_eq!(log.read(known[0]), Err(LogError::Stale(known[0])), "{spec}");
        let again = ZoneLog::open(&memory.open(), LogOptions::new()).unwrap();
        assert_eq!(again.read(at).unwrap(), b"again", "{spec}");
        assert_eq!(again.read(known[0]), Err(LogError::Stale(known[0])), "{spec}");
        assert_eq!(again.recovery().first, Some(known[gone].sequence()), "{spec}");
    }
}

#[test]
fn a_trim_keeps_the_zone_of_the_record_that_it_names() {
    let memory = Memory::new("mem,zones=5,zone-size=64K");
    let log = ZoneLog::open(&memory.open(), LogOptions::new()).unwrap();
    let known: Vec<_> = (0..40).map(|n| log.append(&data(n, 5000)).unwrap()).collect();
    assert_eq!(log.trim(known[3]), Ok(vec![]), "all in the first zone");
    let zones = log.trim(known[20]).unwrap();
    assert_eq!(
        zones,
        [ZoneNo(0), ZoneNo(1)],
        "eight records fit a zone, and number 21 is in the third"
    );
    assert_eq!(log.read(known[20]).unwrap(), data(20, 5000));
    assert_eq!(log.read(known[16]).unwrap(), data(16, 5000), "it shares the zone");
    assert_eq!(log.read(known[15]), Err(LogError::Stale(known[15])));
    // The newest zone is kept, whatever is asked: it carries the numbers on.
    let last = *known.last().unwrap();
    log.trim(last).unwrap();
    while log.reset_oldest().unwrap().is_some() {}
    assert_eq!(log.reset_oldest(), Ok(None));
    let again = ZoneLog::open(&memory.open(), LogOptions::new()).unwrap();
    assert!(again.append(b"next").unwrap().sequence() == last.sequence() + 1);
}

#[test]
fn a_record_that_no_zone_can_hold_is_refused_before_anything_is_written() {
    for (spec, max) in [(DISKS[0], (64 << 10) - 64), (DISKS[2], (40 << 10) - 64)] {
        let memory = Memory::new(spec);
        let log = ZoneLog::open(&memory.open(), LogOptions::new()).unwrap();
        assert_eq!(log.max_record_len(), max);
        let len = max + 1;
        assert_eq!(log.append(&data(1, len as usize)), Err(LogError::TooLong { len, max }));
        assert_eq!(memory.cond(0), Condition::Empty);
        let at = log.append(&data(1, max as usize)).unwrap();
        let next = log.append(b"").unwrap();
        assert_eq!(log.read(at).unwrap(), data(1, max as usize));
        assert_eq!(log.read(next).unwrap(), b"");
        assert_eq!(memory.cond(0), Condition::Full, "it fills its zone");
    }
}

/// A batch takes as few blocks as its records need.
#[test]
fn records_of_a_batch_share_blocks() {
    let memory = Memory::new("mem,zones=4,zone-size=64K");
    let log = ZoneLog::open(&memory.open(), LogOptions::new()).unwrap();
    let at = log.append_batch((0..50).map(|n| data(n, 10))).unwrap();
    assert_eq!(memory.0.zone_info(ZoneNo(0)).wp.0, 8, "50 records of 80 bytes in one block");
    for (n, at) in at.iter().enumerate() {
        assert_eq!(log.read(*at).unwrap(), data(n as u64, 10));
    }
    assert_eq!(log.append_batch(Vec::<Vec<u8>>::new()), Ok(vec![]));
    // One that does not fit into a zone goes on in the next.
    let at = log.append_batch((0..30).map(|n| data(n, 4000))).unwrap();
    assert!(at.iter().enumerate().all(|(n, at)| log.read(*at).unwrap() == data(n as u64, 4000)));
}

#[test]
fn zones_of_others_are_neither_read_as_a_log_nor_touched() {
    let memory = Memory::new("mem,zones=8,zone-size=64K");
    let disk = memory.open();
    let first = ZoneLog::open(&disk, LogOptions::new().id(1).zones(0..4)).unwrap();
    let second = ZoneLog::open(&disk, LogOptions::new().id(2).zones(4..8)).unwrap();
    let (a, b) = (first.append(b"first").unwrap(), second.append(b"second").unwrap());
    assert_eq!((first.read(b), second.read(a)), (Err(LogError::Stale(b)), Err(LogError::Stale(a))));
    let e = ZoneLog::open(&disk, LogOptions::new().id(2).zones(0..4)).unwrap_err();
    assert_eq!(e, LogError::NotALog { zone: ZoneNo(0) });
    // With a zone of its own among those of another it keeps to its own.
    let both = ZoneLog::open(&disk, LogOptions::new().id(1)).unwrap();
    assert_eq!(both.recovery().foreign, [ZoneNo(4)]);
    while both.append(&data(1, 60000)).is_ok() {}
    assert_eq!(second.read(b).unwrap(), b"second");
    // Unless it is told to.
    let new = ZoneLog::create(&disk, LogOptions::new().id(3).zones(0..4)).unwrap();
    assert_eq!((new.recovery().zones_in_use, new.iter().count()), (0, 0));
    let e = ZoneLog::open(&disk, LogOptions::new().zones(7..9)).unwrap_err();
    assert_eq!(e.to_string(), "zones 7 to 9 of a disk of 8");
    let e = ZoneLog::open(&disk, LogOptions::new().zones(7..8)).unwrap_err();
    assert_eq!(e.to_string(), "a log needs two sequential zones, and the set has 1");
}

#[test]
fn an_address_is_twenty_bytes_that_can_be_kept() {
    let memory = Memory::new("mem,zones=4,zone-size=64K");
    let log = ZoneLog::open(&memory.open(), LogOptions::new()).unwrap();
    let at = log.append(b"kept").unwrap();
    let bytes = at.to_bytes();
    assert_eq!(
        ZoneLog::open(&memory.open(), LogOptions::new())
            .unwrap()
            .read(LogAddress::from_bytes(bytes))
            .unwrap(),
        b"kept"
    );
    for i in 0..LogAddress::LEN {
        let mut other = bytes;
        other[i] ^= 0x81;
        assert!(log.read(LogAddress::from_bytes(other)).is_err(), "byte {i} says nothing");
    }
}
