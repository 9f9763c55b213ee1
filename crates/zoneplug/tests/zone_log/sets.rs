//! Sets of logs: they share zones, and nothing else.

use super::common::{Memory, block_on, counting, data, open};
use super::model::{Known, check_log, step};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};
use zoneplug::crash::{Crash, Random, Work};
use zoneplug::zone_log::{AsyncZoneLog, LogAddress, LogError, LogOptions, ZoneLog};
use zoneplug::{HostedDisk, Op, ZoneNo};
use zoneplug_devices::stack::{FaultDisk, FaultPlan};

fn set(disk: &HostedDisk, logs: u32) -> Vec<ZoneLog> {
    ZoneLog::open_set(disk, LogOptions::new(), logs).unwrap()
}

fn zone(at: LogAddress) -> u64 {
    at.sector().0 / 128
}

/// Threads that write to the logs of a set: each record comes back from its log in its order, no two logs are in one
/// zone, and the set has no more zones active than logs.
#[test]
fn logs_of_a_set_share_zones_and_keep_their_records_apart() {
    for spec in [
        "mem,zones=40,zone-size=64K,max-open=4,max-active=4",
        "mem,zones=70,zone-size=64K,zone-capacity=40K,conv=3",
    ] {
        let memory = Memory::new(spec);
        let mut known: [Vec<(LogAddress, Vec<u8>)>; 4] = Default::default();
        for round in 0..2u64 {
            let logs = set(&memory.open(), 4);
            std::thread::scope(|s| {
                for (i, (log, known)) in logs.iter().zip(&mut known).enumerate() {
                    s.spawn(move || {
                        let mut r = Random::new(round * 4 + i as u64);
                        for n in 0..40 {
                            let record = data(i as u64 * 1000 + n, r.below(8000) as usize);
                            known.push((log.append(&record).unwrap(), record));
                        }
                        log.sync().unwrap();
                    });
                }
            });
            // The disk with limits has refused nothing either.
            assert!(memory.active() <= 4, "{spec}");
            for logs in [logs, set(&memory.open(), 4)] {
                let mut zones = BTreeSet::new();
                for (i, log) in logs.iter().enumerate() {
                    let all: Vec<_> =
                        log.iter().map(|r| r.map(|r| (r.address, r.data)).unwrap()).collect();
                    assert_eq!(all, known[i], "{spec}: log {i}");
                    assert_eq!(log.numbers(), 1..known[i].len() as u64 + 1);
                    let mine: BTreeSet<_> = all.iter().map(|(at, _)| zone(*at)).collect();
                    assert!(mine.is_disjoint(&zones), "{spec}: log {i} is in a zone of another");
                    zones.extend(mine);
                    let (other, _) = known[(i + 1) % 4][0];
                    assert_eq!(log.read(other), Err(LogError::Stale(other)));
                    assert_eq!(
                        (&*log.recovery().foreign, &*log.recovery().lost),
                        (&[][..], &[][..])
                    );
                }
            }
        }
    }
}

/// What one log gives up another one takes, and an empty zone never has two logs.
#[test]
fn a_zone_that_one_log_resets_may_go_to_another() {
    let memory = Memory::new("mem,zones=5,zone-size=64K");
    let disk = memory.open();
    let [a, b] = set(&disk, 2).try_into().unwrap();
    let first = a.append(&data(0, 60_000)).unwrap();
    let other = b.append(&data(1, 60_000)).unwrap();
    let mut zones = vec![zone(first), zone(other)];
    for n in 2..5 {
        zones.push(zone(a.append(&data(n, 60_000)).unwrap()));
    }
    zones.sort_unstable();
    assert_eq!(zones, [0, 1, 2, 3, 4]);
    assert_eq!(b.append(&data(5, 60_000)), Err(LogError::Full), "the other log has the rest");
    assert_eq!(b.reset_oldest(), Ok(None), "its newest zone stays");
    // What is left of its head is still its own.
    let short = b.append(&data(6, 1000)).unwrap();
    assert_eq!(a.reset_oldest(), Ok(Some(ZoneNo(zone(first) as u32))));
    let taken = b.append(&data(5, 60_000)).unwrap();
    assert_eq!((zone(taken), a.append(b"x").is_ok()), (zone(first), true));
    assert_eq!(a.append(&data(7, 60_000)), Err(LogError::Full));
    assert_eq!(a.read(first), Err(LogError::Stale(first)));
    drop((a, b));
    let [a, b] = set(&disk, 2).try_into().unwrap();
    assert_eq!((a.recovery().zones_in_use, b.recovery().zones_in_use), (3, 2));
    assert_eq!(b.read(taken).unwrap(), data(5, 60_000));
    assert_eq!(b.read(short).unwrap(), data(6, 1000));
    assert_eq!(a.append(&data(7, 60_000)), Err(LogError::Full));
}

/// Two threads that reset their oldest zone whenever the set is full: a zone changes hands only when it is empty.
#[test]
fn zones_change_hands_while_both_logs_are_written() {
    let memory = Memory::new("mem,zones=5,zone-size=64K,max-open=2,max-active=2");
    let logs = set(&memory.open(), 2);
    let start = Instant::now();
    std::thread::scope(|s| {
        for (i, log) in logs.iter().enumerate() {
            s.spawn(move || {
                for n in 0..1500 {
                    let record = data(i as u64 * 100 + n, 3000);
                    let at = loop {
                        match log.append(&record) {
                            Ok(at) => break at,
                            Err(LogError::Full) => {
                                assert!(start.elapsed() < Duration::from_secs(60), "no zone comes");
                                // With one zone it waits until the other log gives one up.
                                if log.reset_oldest().unwrap().is_none() {
                                    std::thread::yield_now();
                                }
                            }
                            Err(e) => panic!("log {i}, record {n}: {e}"),
                        }
                    };
                    assert_eq!((at.sequence(), log.read(at)), (n + 1, Ok(record)));
                }
                while log.reset_oldest().unwrap().is_some() {}
            });
        }
    });
    for log in logs.iter().chain(&set(&memory.open(), 2)) {
        assert_eq!(log.numbers().end, 1501);
        let found: Result<Vec<_>, _> = log.iter().collect();
        assert_eq!(found.unwrap().len() as u64, 1501 - log.numbers().start);
    }
}

/// A zone that is being reset is in no log, and no log can take it yet.
#[test]
fn a_zone_goes_to_another_log_after_its_reset_only() {
    let memory = Memory::new("mem,zones=3,zone-size=64K,latency=5ms");
    let disk = memory.open();
    block_on(async {
        let logs = AsyncZoneLog::create_set(&disk, LogOptions::new(), 2).await.unwrap();
        for log in [0, 1, 0] {
            logs[log].append_sync(&data(0, 60_000)).await.unwrap();
        }
        let mut reset = pin!(logs[0].reset_oldest());
        assert!(reset.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        assert_eq!(logs[1].append(&data(1, 60_000)).await, Err(LogError::Full));
        assert_eq!(reset.await, Ok(Some(ZoneNo(0))));
        let at = logs[1].append(&data(1, 60_000)).await.unwrap();
        assert_eq!((zone(at), at.sequence()), (0, 2));
    });
}

/// The number of logs is part of what is opened: with fewer nothing of the others is touched, with more the new ones
/// begin.
#[test]
fn a_set_may_be_opened_with_more_or_fewer_logs() {
    let memory = Memory::new("mem,zones=6,zone-size=64K,max-open=3");
    let disk = memory.open();
    let at: Vec<_> = set(&disk, 2).iter().map(|log| log.append_sync(b"kept").unwrap()).collect();
    let one = ZoneLog::open(&disk, LogOptions::new()).unwrap();
    assert_eq!(one.recovery().foreign, [ZoneNo(zone(at[1]) as u32)]);
    while one.append(&data(0, 30_000)).is_ok() {}
    drop(one);
    let logs = set(&disk, 3);
    assert_eq!(logs[1].read(at[1]).unwrap(), b"kept");
    assert_eq!((logs[2].numbers(), logs[2].append(b"none")), (1..1, Err(LogError::Full)));
    let e = ZoneLog::open_set(&disk, LogOptions::new().id(7), 2).unwrap_err();
    assert_eq!(e, LogError::NotALog { zone: ZoneNo(0) });
    let logs = ZoneLog::create_set(&disk, LogOptions::new().id(7), 2).unwrap();
    assert!(logs.iter().all(|log| log.append(b"new").unwrap().sequence() == 1));
    for (logs, zones, id, why) in [
        (0, 0..6, 0, "a set of no logs"),
        (4, 0..6, 0, "4 logs on a disk that allows 3 open zones"),
        (3, 1..4, 0, "3 logs need 4 sequential zones, and the set has 3"),
        (2, 0..6, u64::MAX, "2 logs from id 18446744073709551615 on: there are not so many"),
    ] {
        let options = LogOptions::new().id(id).zones(zones);
        let e = ZoneLog::open_set(&disk, options, logs).unwrap_err();
        assert_eq!(e, LogError::Setup(why.to_owned()));
    }
}

/// A flush that fails may have dropped records of any log: none of them promises anything more, whichever sent it.
#[test]
fn a_sync_that_fails_stops_all_logs_of_a_set() {
    let memory = Memory::new("mem,zones=6,zone-size=64K");
    // The first three flushes are those of the first append of each log.
    let plan = "flush/io/skip=3/count=1".parse().unwrap();
    let logs = set(&open(FaultDisk::new(memory.0.clone(), &plan).unwrap()), 3);
    let at: Vec<_> = logs.iter().map(|log| log.append(b"first").unwrap()).collect();
    for log in &logs {
        log.append(b"second").unwrap();
    }
    let e = logs[1].sync().unwrap_err();
    assert!(matches!(e, LogError::Io { op: Op::Flush, .. }), "{e}");
    for (log, at) in logs.iter().zip(&at) {
        assert_eq!(log.sync(), Err(LogError::Failed));
        assert_eq!(log.append(b"third"), Err(LogError::Failed));
        assert_eq!(log.reset_oldest(), Err(LogError::Failed));
        assert_eq!(log.read(*at).unwrap(), b"first");
    }
    assert!(set(&memory.open(), 3).iter().all(|log| log.append(b"third").is_ok()));
}

/// A log that fails to go on leaves the next zone to the others: it may never try again.
#[test]
fn a_log_that_cannot_go_on_keeps_no_empty_zone() {
    let memory = Memory::new("mem,zones=3,zone-size=64K");
    let plan = "finish/io/count=1".parse().unwrap();
    let [a, b] = set(&open(FaultDisk::new(memory.0, &plan).unwrap()), 2).try_into().unwrap();
    for log in [&a, &b] {
        log.append(&data(0, 60_000)).unwrap();
    }
    let e = a.append(&data(1, 60_000)).unwrap_err();
    assert!(matches!(e, LogError::Io { op: Op::ZoneFinish, .. }), "{e}");
    assert_eq!(zone(b.append(&data(2, 60_000)).unwrap()), 2);
    assert_eq!(a.append(&data(1, 60_000)), Err(LogError::Full));
}

/// The failure of a flush stops all logs of a set also if the task that asked for the flush is never polled again, or
/// its log has gone.
#[test]
fn a_flush_that_fails_for_a_dropped_task_stops_all_logs_of_a_set() {
    for drop_the_log in [false, true] {
        let memory = Memory::new("mem,zones=6,zone-size=64K");
        // The first two flushes are those of the first append of each log. The third one fails, and takes its time.
        let fails = FaultDisk::new(memory.0, &"flush/io/skip=2/count=1".parse().unwrap()).unwrap();
        let plan = "flush/delay=20ms/skip=2/count=1".parse().unwrap();
        let disk = open(FaultDisk::new(fails, &plan).unwrap());
        block_on(async {
            let logs = AsyncZoneLog::create_set(&disk, LogOptions::new(), 2).await.unwrap();
            let [a, b] = logs.try_into().unwrap();
            for log in [&a, &b] {
                log.append(b"first").await.unwrap();
            }
            a.append(b"second").await.unwrap();
            let mut sync = Box::pin(b.sync());
            assert!(sync.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            drop(sync);
            if drop_the_log {
                drop(b);
            }
            // The device reports a failure once.
            std::thread::sleep(Duration::from_millis(40));
            assert!(a.sync().await.is_err(), "dropped log: {drop_the_log}");
            assert_eq!(a.append(b"third").await, Err(LogError::Failed));
        });
    }
}

/// A flush that another log had begun before says nothing of what was written since: a sync waits for the next one.
#[test]
fn a_sync_does_not_count_a_flush_that_began_before_it() {
    let memory = Memory::new("mem,zones=6,zone-size=64K");
    let slow =
        FaultDisk::new(memory.0, &"flush/delay=20ms/skip=2/count=9".parse().unwrap()).unwrap();
    let (disk, flushes) = counting(slow, [Op::Flush]);
    block_on(async {
        let logs = AsyncZoneLog::create_set(&disk, LogOptions::new(), 2).await.unwrap();
        let [a, b] = logs.try_into().unwrap();
        for log in [&a, &b] {
            log.append(b"first").await.unwrap();
        }
        a.append(b"second").await.unwrap();
        let before = flushes[0].load(Ordering::Relaxed);
        let mut sync = pin!(a.sync());
        assert!(sync.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        b.append(b"behind the flush").await.unwrap();
        b.sync().await.unwrap();
        assert_eq!(flushes[0].load(Ordering::Relaxed) - before, 2);
        sync.await.unwrap();
    });
}

/// The writes of four logs are at the device together; those of one log are one after the other.
#[test]
fn logs_of_a_set_do_not_wait_for_each_other() {
    let memory = Memory::new("mem,zones=16,zone-size=64K,latency=20ms");
    let (disk, sent) = counting(memory.0, [Op::Write]);
    block_on(async {
        let logs = AsyncZoneLog::create_set(&disk, LogOptions::new(), 4).await.unwrap();
        for log in &logs {
            log.append_sync(b"first").await.unwrap();
        }
        let before = sent[0].load(Ordering::Relaxed);
        let mut tasks: Vec<_> = logs.iter().map(|log| Box::pin(log.append(b"second"))).collect();
        let mut again = pin!(logs[0].append(b"third"));
        let mut cx = Context::from_waker(Waker::noop());
        for task in &mut tasks {
            assert!(task.as_mut().poll(&mut cx).is_pending());
        }
        assert!(again.as_mut().poll(&mut cx).is_pending());
        // No write can have ended: a future sees that only when it is polled.
        while sent[0].load(Ordering::Relaxed) < before + 4 {
            std::thread::yield_now();
        }
        for task in tasks {
            assert_eq!(task.await.unwrap().sequence(), 2);
        }
        assert_eq!(again.await.unwrap().sequence(), 3);
        let logs = AsyncZoneLog::open_set(&disk, LogOptions::new(), 4).await.unwrap();
        assert_eq!((logs[0].numbers(), logs[3].numbers()), (1..4, 1..3));
    });
}

const LOGS: u32 = 3;

/// Random work on the logs of a set, by turns.
fn work(w: &Work<(usize, Known)>) -> Result<(), LogError> {
    let disk = w.disk();
    let mut r = Random::new(w.seed());
    let mut logs = ZoneLog::open_set(disk, LogOptions::new(), LOGS)?;
    let mut known: Vec<Vec<LogAddress>> = vec![Vec::new(); LOGS as usize];
    for _ in 0..60 {
        if r.one_in(15) {
            drop(logs);
            logs = ZoneLog::open_set(disk, LogOptions::new(), LOGS)?;
            for (i, known) in known.iter().enumerate() {
                // What opening shows is durable.
                w.promise((i, Known::Synced(known.len() as u64)));
            }
        }
        let i = r.below(LOGS) as usize;
        match step(&logs[i], &mut r, &mut known[i], &|k| w.promise((i, k))) {
            Ok(()) | Err(LogError::Full) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

fn check(disk: &HostedDisk, promised: &[(usize, Known)]) -> Result<(), String> {
    let set = || ZoneLog::open_set(disk, LogOptions::new(), LOGS).map_err(|e| e.to_string());
    let logs = set()?;
    let mut more = Vec::new();
    for (i, log) in logs.iter().enumerate() {
        let known: Vec<Known> =
            promised.iter().filter(|(l, _)| *l == i).map(|(_, k)| k.clone()).collect();
        more.push(check_log(log, &known).map_err(|e| format!("log {i}: {e}"))?);
    }
    drop(logs);
    for (i, (log, (nr, new))) in set()?.iter().zip(more).enumerate() {
        let found = log.iter().filter(Result::is_ok).count();
        if found != nr || new.is_some_and(|(at, data)| log.read(at) != Ok(data)) {
            return Err(format!("log {i} has {found} records after opening again, and had {nr}"));
        }
    }
    Ok(())
}

/// Power cuts of a set: each log keeps what it promised, whatever the others do.
#[test]
fn no_cut_takes_what_a_log_of_a_set_has_synced() {
    for spec in [
        "mem,zones=9,zone-size=64K,max-open=3,max-active=3",
        "mem,zones=8,zone-size=64K,zone-capacity=40K,lba-size=512,granularity=512,conv=1",
    ] {
        let report = Crash::new(spec).seeds(1..31).cuts(600).run(work, check).unwrap();
        assert_eq!(report.cuts, 600);
    }
}

/// What the client of one log of a set knows.
#[derive(Default)]
struct Client {
    tried: Vec<Vec<u8>>,
    synced: u64,
    given: u64,
}

/// Power cut after power cut of a set: each leaves of each log a first part, at least what was synced or shown before.
/// An address names one record for ever, also when its zone has gone to another log.
#[test]
fn cut_after_cut_leaves_a_set_of_logs_without_a_gap() {
    let mut lost = 0;
    for seed in 0..100 {
        let memory = Memory::new("mem,zones=7,zone-size=64K,max-open=3,max-active=3");
        let disk =
            FaultDisk::new(memory.0.clone(), &FaultPlan { rules: Vec::new(), seed }).unwrap();
        disk.watch_cache().unwrap();
        let mut r = Random::new(seed);
        let clients: Vec<RefCell<Client>> = (0..LOGS).map(|_| RefCell::default()).collect();
        let mut known: Vec<Vec<LogAddress>> = vec![Vec::new(); LOGS as usize];
        let mut addresses: Vec<(usize, LogAddress, Vec<u8>)> = Vec::new();
        for session in 0..8 {
            let logs = set(&open(disk.clone()), LOGS);
            for (i, log) in logs.iter().enumerate() {
                let mut c = clients[i].borrow_mut();
                let numbers = log.numbers();
                let why = format!("seed {seed}, session {session}, log {i}: {numbers:?}");
                assert_eq!(
                    (&log.recovery().holes, numbers.end > c.synced),
                    (&vec![], true),
                    "{why}"
                );
                assert!(numbers.start <= c.given.max(1), "{why}: {} given", c.given);
                let found: Vec<_> = log.iter().map(Result::unwrap).collect();
                assert!(found.iter().map(|r| r.address.sequence()).eq(numbers.clone()), "{why}");
                for record in &found {
                    assert_eq!(
                        record.data,
                        c.tried[record.address.sequence() as usize - 1],
                        "{why}"
                    );
                }
                lost += c.tried.len() as u64 + 1 - numbers.end;
                let left = numbers.end - 1;
                c.synced = left;
                c.tried.truncate(left as usize);
                known[i].truncate(left as usize);
            }
            for (i, at, data) in &addresses {
                match logs[*i].read(*at) {
                    Ok(found) => assert_eq!(found, *data, "seed {seed}, session {session}: {at}"),
                    Err(e) => assert_eq!(e, LogError::Stale(*at), "seed {seed}, {session}"),
                }
            }
            for _ in 0..r.below(40) {
                let i = r.below(LOGS) as usize;
                let tell = |k| {
                    let mut c = clients[i].borrow_mut();
                    match k {
                        Known::Tried(data) => c.tried.push(data),
                        Known::Refused => drop(c.tried.pop()),
                        Known::Acknowledged(_) => {}
                        Known::Synced(n) => c.synced = c.synced.max(n),
                        Known::Given(n) => c.given = c.given.max(n),
                    }
                };
                let before = known[i].len();
                match step(&logs[i], &mut r, &mut known[i], &tell) {
                    Ok(()) | Err(LogError::Full) => {}
                    Err(e) => panic!("seed {seed}, session {session}: {e}"),
                }
                if let Some(at) = known[i].get(before) {
                    addresses.push((i, *at, clients[i].borrow().tried[before].clone()));
                }
            }
            drop(logs);
            disk.power_cut().unwrap();
        }
    }
    assert!(lost > 50, "{lost} records were lost that were not synced");
}
