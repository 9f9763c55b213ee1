//! What is wrong is told, and costs no more than it must.

use super::common::{Memory, data, open};
use std::sync::Arc;
use zoneplug::crash::Random;
use zoneplug::zone::Condition;
use zoneplug::zone_log::{LogAddress, LogError, LogOptions, ZoneLog};
use zoneplug::{AlignedBuf, BlockingDisk, Sector, Status, ZoneNo};
use zoneplug_core::Op;
use zoneplug_devices::stack::{FaultDisk, FaultPlan};

fn open_log(memory: &Memory) -> ZoneLog {
    ZoneLog::open(&memory.open(), LogOptions::new()).unwrap()
}

/// The numbers of the records, and what is told between them.
fn walk(log: &ZoneLog) -> Vec<Result<u64, LogError>> {
    log.iter().map(|r| r.map(|r| r.address.sequence())).collect()
}

/// A damaged record in the middle is named by reading, iterating and opening, and its neighbours are there.
#[test]
fn a_damaged_record_is_a_hole_of_one() {
    for (what, at) in [("header", 3), ("data", 64 + 9)] {
        let memory = Memory::new("mem,zones=4,zone-size=64K");
        let known = open_log(&memory).append_batch((0..5).map(|n| data(n, 2000))).unwrap();
        let third = 2 * (64 + 2000) + at;
        memory.change(0, |bytes| bytes[third] ^= 1);
        let log = open_log(&memory);
        let hole = LogError::Hole { first: 3, next: 4 };
        assert_eq!(log.recovery().holes, std::slice::from_ref(&hole), "{what}");
        assert_eq!(walk(&log), [Ok(1), Ok(2), Err(hole), Ok(4), Ok(5)], "{what}");
        assert_eq!(
            log.read(known[2]),
            Err(LogError::Corrupted { sector: known[2].sector() }),
            "{what}"
        );
        assert_eq!(log.read(known[3]).unwrap(), data(3, 2000), "{what}");
        // The log goes on behind it, and the hole stays where it is.
        assert_eq!(log.append(b"more").unwrap().sequence(), 6, "{what}");
        assert_eq!(walk(&open_log(&memory)).len(), 6, "{what}");
    }
}

/// A zone in the middle that lost its end, or all of it: the numbers say so.
#[test]
fn records_that_are_missing_between_zones_are_a_hole() {
    let memory = Memory::new("mem,zones=4,zone-size=64K");
    let log = open_log(&memory);
    (0..20).for_each(|n| assert!(log.append(&data(n, 8000)).is_ok()));
    memory.change(1, |bytes| bytes.truncate(3 * 8192));
    assert_eq!(
        walk(&open_log(&memory)),
        (1..=11)
            .map(Ok)
            .chain([Err(LogError::Hole { first: 12, next: 17 })])
            .chain((17..=20).map(Ok))
            .collect::<Vec<_>>()
    );
    assert_eq!(memory.active(), 1, "the shortened zone was finished");
    memory.0.set_condition(ZoneNo(1), Condition::Offline);
    let log = open_log(&memory);
    assert_eq!(log.recovery().lost, [(ZoneNo(1), Condition::Offline)]);
    assert_eq!(walk(&log)[8], Err(LogError::Hole { first: 9, next: 17 }));
}

/// Damage at the start of a zone costs the record there, not the zone.
#[test]
fn a_zone_whose_first_header_is_damaged_is_known_by_the_next() {
    let memory = Memory::new("mem,zones=4,zone-size=64K");
    let log = open_log(&memory);
    (0..20).for_each(|n| assert!(log.append(&data(n, 8000)).is_ok()));
    for zone in 0..3 {
        memory.0.set_data(Sector(zone * 128), &[0xa5; 512]);
    }
    let log = open_log(&memory);
    assert_eq!((log.recovery().foreign.len(), log.numbers()), (0, 2..21));
    let hole = |n| Err(LogError::Hole { first: n, next: n + 1 });
    let told = (2..=20).map(|n| if n % 8 == 1 { hole(n) } else { Ok(n) });
    assert_eq!(walk(&log), told.collect::<Vec<_>>());
}

/// What a crash tore at the end is dropped and counted; the log goes on behind it, and nothing is told of it later.
#[test]
fn a_torn_record_at_the_end_is_dropped() {
    let memory = Memory::new("mem,zones=4,zone-size=64K");
    let log = open_log(&memory);
    log.append(&data(1, 5000)).unwrap();
    log.append(&data(2, 9000)).unwrap();
    // One of its three blocks is there.
    memory.change(0, |bytes| bytes.truncate(8192 + 4096));
    let log = open_log(&memory);
    assert_eq!((log.recovery().last, log.recovery().torn_bytes), (Some(1), 4096));
    assert_eq!((walk(&log), log.recovery().holes.len()), (vec![Ok(1)], 0));
    let at = log.append(&data(3, 12000)).unwrap();
    assert_eq!((at.sequence(), at.sector()), (2, Sector((8192 + 4096) >> 9)));
    let log = open_log(&memory);
    assert_eq!((walk(&log), log.recovery().torn_bytes), (vec![Ok(1), Ok(2)], 0));
    assert_eq!(log.read(at).unwrap(), data(3, 12000));
}

/// A record that a crash took and the record that has its number and its place later have different addresses.
#[test]
fn a_lost_record_is_stale_though_another_has_its_place() {
    let memory = Memory::new("mem,zones=4,zone-size=64K");
    let log = open_log(&memory);
    log.append(b"first").unwrap();
    let lost = log.append(b"lost").unwrap();
    memory.change(0, |bytes| bytes.truncate(4096));
    let log = open_log(&memory);
    assert_eq!(log.read(lost), Err(LogError::Stale(lost)), "it is not there");
    let other = log.append(b"other").unwrap();
    assert_eq!((other.sector(), other.sequence()), (lost.sector(), lost.sequence()));
    assert_eq!(log.read(lost), Err(LogError::Stale(lost)));
    assert_eq!(log.read(other).unwrap(), b"other");
}

/// A zone that dies under the log is named once, and the log goes on in the next one.
#[test]
fn a_zone_that_dies_is_named_and_left() {
    for cond in [Condition::ReadOnly, Condition::Offline] {
        let memory = Memory::new("mem,zones=4,zone-size=64K");
        let log = open_log(&memory);
        let first = log.append(b"first").unwrap();
        memory.0.set_condition(ZoneNo(0), cond);
        let e = log.append(b"second").unwrap_err();
        assert_eq!(e, LogError::ZoneLost { zone: ZoneNo(0), condition: cond });
        let at = log.append(b"third").unwrap();
        assert_eq!(at.sector(), Sector(128), "in zone 1");
        assert_eq!(log.read(first).is_ok(), cond == Condition::ReadOnly);
        let log = open_log(&memory);
        assert_eq!(log.recovery().lost, [(ZoneNo(0), cond)]);
        assert_eq!(log.read(at).unwrap(), b"third");
        let (offline, hole) = (cond == Condition::Offline, log.recovery().holes.clone());
        assert_eq!((log.recovery().first, hole), (Some(if offline { 2 } else { 1 }), vec![]));
    }
}

/// A zone that went offline under the log is no longer its oldest one, which would stop it from giving room back.
#[test]
fn a_zone_that_went_offline_does_not_keep_the_log_from_its_room() {
    let memory = Memory::new("mem,zones=4,zone-size=64K");
    let log = open_log(&memory);
    log.append(b"first").unwrap();
    memory.0.set_condition(ZoneNo(0), Condition::Offline);
    log.append(b"second").unwrap_err();
    let last = loop {
        let at = log.append(&data(3, 20_000)).unwrap();
        if at.sector() >= Sector(2 * 128) {
            break at;
        }
    };
    assert_eq!(log.trim(last).unwrap(), [ZoneNo(1)]);
    while log.append(&data(4, 20_000)).unwrap().sector() >= Sector(2 * 128) {}
    assert_eq!(log.reset_oldest().unwrap(), Some(ZoneNo(2)));
}

fn with_faults(plan: &str) -> (Memory, Arc<FaultDisk>, ZoneLog) {
    let memory = Memory::new("mem,zones=4,zone-size=64K");
    let faults = FaultDisk::new(memory.0.clone(), &FaultPlan::default()).unwrap();
    let log = ZoneLog::open(&open(faults.clone()), LogOptions::new()).unwrap();
    log.append(b"first").unwrap();
    for rule in plan.parse::<FaultPlan>().unwrap().rules {
        faults.add(rule);
    }
    (memory, faults, log)
}

/// After a write that failed, in whichever way, the log finds its end again and goes on.
#[test]
fn a_log_goes_on_after_a_write_that_failed() {
    for plan in [
        "write/io/count=1",
        "write/torn=4K/count=1",
        "write/torn=8K/count=1",
        "write/torn=12K/count=1",
    ] {
        let (memory, _, log) = with_faults(plan);
        let e = log.append(&data(2, 9000)).unwrap_err();
        assert!(matches!(e, LogError::Io { op: Op::Write, status: Status::Io, .. }), "{plan}: {e}");
        // All of it was written in the last case: then it is there.
        let sequence = if plan.contains("12K") { 3 } else { 2 };
        let at = log.append(&data(3, 5000)).unwrap();
        assert_eq!(at.sequence(), sequence, "{plan}");
        for log in [log, open_log(&memory)] {
            assert_eq!(walk(&log), (1..=sequence).map(Ok).collect::<Vec<_>>(), "{plan}");
            assert_eq!(log.read(at).unwrap(), data(3, 5000), "{plan}");
            assert!(log.recovery().holes.is_empty(), "{plan}");
        }
    }
}

/// After a flush that failed it is unknown what is durable: the log says so and takes nothing until it is opened again.
#[test]
fn a_log_stops_after_a_sync_that_failed() {
    let (memory, _, log) = with_faults("flush/io/count=1");
    log.append(b"second").unwrap();
    let e = log.sync().unwrap_err();
    assert!(matches!(e, LogError::Io { op: Op::Flush, .. }), "{e}");
    assert_eq!((log.sync(), log.append(b"third")), (Err(LogError::Failed), Err(LogError::Failed)));
    assert_eq!(log.iter().count(), 2, "reading goes on");
    assert!(open_log(&memory).append(b"third").is_ok());
}

/// The record of a zone that something else has reset.
#[test]
fn records_that_vanish_under_a_log_stop_it() {
    let memory = Memory::new("mem,zones=4,zone-size=64K");
    let log = open_log(&memory);
    let at: Vec<LogAddress> = (0..3).map(|n| log.append(&data(n, 5000)).unwrap()).collect();
    memory.0.set_write_pointer(ZoneNo(0), 16);
    assert!(log.append(b"lost").is_err());
    assert_eq!(log.append(b"lost"), Err(LogError::Failed));
    let log = open_log(&memory);
    assert_eq!((log.recovery().last, log.read(at[0]).is_ok()), (Some(1), true));
}

/// Damage anywhere: what is read is what was written, what is missing is told, and the log goes on.
#[test]
fn any_damage_is_told_and_never_read_as_data() {
    let (mut holes, mut found) = (0, 0);
    for seed in 0..150 {
        let mut r = Random::new(seed);
        let memory = Memory::new("mem,zones=5,zone-size=64K");
        let mut at = Vec::new();
        let log = open_log(&memory);
        for n in 0..24 {
            let len = r.below(9000) as usize;
            at.push((log.append(&data(n, len)).unwrap(), data(n, len)));
        }
        drop(log);
        for _ in 0..=r.below(3) {
            let zone = u64::from(r.below(3));
            let longest = if r.one_in(3) { 40 } else { 1 };
            let (from, len) = (r.below(127), 1 + r.below(longest));
            let bytes: Vec<u8> = (0..len.min(128 - from) * 512).map(|_| r.draw() as u8).collect();
            memory.0.set_data(Sector(zone * 128 + u64::from(from)), &bytes);
        }
        let log = match ZoneLog::open(&memory.open(), LogOptions::new()) {
            Ok(log) => log,
            Err(e) => panic!("seed {seed}: {e}"),
        };
        let mut next = 1;
        for item in log.iter() {
            match item {
                Ok(record) => {
                    let n = record.address.sequence();
                    assert!(
                        n == next || next == 1,
                        "seed {seed}: {n} after {next}, and nothing told"
                    );
                    assert_eq!(
                        (record.address, &record.data),
                        (at[n as usize - 1].0, &at[n as usize - 1].1)
                    );
                    (next, found) = (n + 1, found + 1);
                }
                Err(LogError::Hole { first, next: behind }) => {
                    assert_eq!((first, behind > first), (next, true), "seed {seed}");
                    (next, holes) = (behind, holes + 1);
                }
                Err(LogError::Corrupted { .. }) => {}
                Err(e) => panic!("seed {seed}: {e}"),
            }
        }
        // At the end damage looks like what a crash tears; it is counted. A zone of which no header is left is named.
        let told = log.recovery().torn_bytes > 0 || !log.recovery().foreign.is_empty();
        assert!(next == 25 || told, "seed {seed}: the end is {next}");
        for (at, data) in &at {
            match log.read(*at) {
                Ok(found) => assert_eq!(found, *data, "seed {seed}"),
                Err(LogError::Corrupted { .. } | LogError::Stale(_)) => {}
                Err(e) => panic!("seed {seed}: {e}"),
            }
        }
        let more = log.append(b"more").unwrap();
        assert_eq!(open_log(&memory).read(more).unwrap(), b"more", "seed {seed}");
    }
    assert!(holes > 50 && found > 2000, "{holes} holes, {found} records");
}

/// Others hold the only zone that may be active: the log says which limit that is, and goes on when there is room.
#[test]
fn a_limit_that_others_use_up_is_told() {
    let memory = Memory::new("mem,zones=4,zone-size=64K,max-open=1,max-active=1");
    let disk = memory.open();
    let log = ZoneLog::open(&disk, LogOptions::new().zones(0..2)).unwrap();
    let mut other = BlockingDisk::new(&disk).unwrap();
    other.write(Sector(384), AlignedBuf::zeroed(4096)).unwrap();
    let e = log.append(b"first").unwrap_err();
    assert!(matches!(e, LogError::Io { status: Status::ActiveLimit, .. }), "{e}");
    other.finish(Sector(384), 128).unwrap();
    let at = log.append(b"first").unwrap();
    assert_eq!((log.numbers(), log.read(at).unwrap()), (1..2, b"first".to_vec()));
}
