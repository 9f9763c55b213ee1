//! Random work, power cuts, and the list of records that says what must be left: on disks in memory, and on the durable
//! disk in a file whose storage forgets.

use super::common::{Memory, data, open};
use super::model::{Known, check, work};
use std::sync::Mutex;
use zoneplug::crash::{Crash, Random, Work};
use zoneplug::zone_log::{LogAddress, LogError, LogOptions, ZoneLog};
use zoneplug::{HostedDisk, Sector};
use zoneplug_devices::stack::{FaultDisk, FaultPlan};
use zoneplug_host::file::testing::{CutStorage, Left};
use zoneplug_host::file::{Access, CreateOptions};

fn on(spec: &str, seeds: std::ops::Range<u64>, cuts: u64) {
    let report = Crash::new(spec)
        .seeds(seeds)
        .cuts(cuts)
        .run(|w| work(w.disk(), w.seed(), 40, &|k| w.promise(k)), check)
        .unwrap();
    assert_eq!(report.cuts, cuts);
}

#[test]
fn no_cut_takes_what_was_synced() {
    on("mem,zones=5,zone-size=64K", 1..31, 600);
}

#[test]
fn no_cut_takes_what_was_synced_where_blocks_are_small_and_one_zone_is_active() {
    on(
        "mem,zones=6,zone-size=64K,zone-capacity=40K,lba-size=512,granularity=512,conv=1",
        1..31,
        600,
    );
    on("mem,zones=5,zone-size=64K,max-open=1,max-active=1", 31..41, 200);
}

/// Opening a log after a crash makes nothing worse when it is cut too.
#[test]
fn no_cut_of_a_recovery_takes_what_was_synced() {
    let report = Crash::new("mem,zones=5,zone-size=64K")
        .seeds(1..21)
        .cuts(300)
        .cut_check()
        .run(
            |w| work(w.disk(), w.seed(), 40, &|k| w.promise(k)),
            |disk, known: &[Known]| {
                // The record that the check of the first cut appended has the number of one that was lost.
                check_again(disk, known)
            },
        )
        .unwrap();
    assert!(report.cuts > 400, "{report}");
}

/// As the check, for a log that the check itself may have appended one record to.
fn check_again(disk: &HostedDisk, known: &[Known]) -> Result<(), String> {
    let log = ZoneLog::open(disk, LogOptions::new()).map_err(|e| e.to_string())?;
    let synced = known.iter().filter_map(|k| match k {
        Known::Synced(n) => Some(*n),
        _ => None,
    });
    let synced = synced.max().unwrap_or(0);
    let found: Result<Vec<_>, _> = log.iter().collect();
    let last = found.map_err(|e| e.to_string())?.last().map_or(0, |r| r.address.sequence());
    if last < synced {
        return Err(format!("the last record is {last}, and {synced} was durable"));
    }
    let _ = log.append_sync(b"more");
    Ok(())
}

/// Power cut after power cut: each leaves a first part of the log, at least what was synced or shown before, and an
/// address names one record for ever.
#[test]
fn cut_after_cut_leaves_a_log_without_a_gap() {
    let mut lost = 0;
    for seed in 0..60 {
        let spec =
            ["mem,zones=4,zone-size=64K", "mem,zones=5,zone-size=32K,lba-size=512,granularity=512"];
        let memory = Memory::new(spec[seed as usize % 2]);
        let plan = FaultPlan { rules: Vec::new(), seed };
        let disk = FaultDisk::new(memory.0.clone(), &plan).unwrap();
        disk.watch_cache().unwrap();
        let mut r = Random::new(seed);
        // What was appended by number, what is durable of it, and what may have been trimmed.
        let (mut tried, mut synced, mut given) = (Vec::new(), 0, 1);
        let mut addresses: Vec<(LogAddress, Vec<u8>)> = Vec::new();
        for session in 0..8u64 {
            let log = ZoneLog::open(&open(disk.clone()), LogOptions::new()).unwrap();
            let numbers = log.numbers();
            let why = format!(
                "seed {seed}, session {session}: {numbers:?}, {synced} durable, {given} given"
            );
            assert_eq!(log.recovery().holes, [], "{why}");
            assert!(numbers.start <= given && numbers.end > synced, "{why}");
            let found: Result<Vec<_>, _> = log.iter().collect();
            let found = found.unwrap_or_else(|e| panic!("{why}: {e}"));
            assert!(found.iter().map(|r| r.address.sequence()).eq(numbers.clone()), "{why}");
            for record in &found {
                assert_eq!(record.data, tried[record.address.sequence() as usize - 1], "{why}");
            }
            for (at, data) in &addresses {
                match log.read(*at) {
                    Ok(found) => assert_eq!(found, *data, "{why}: {at}"),
                    Err(e) => assert_eq!(e, LogError::Stale(*at), "{why}"),
                }
            }
            lost += tried.len() as u64 + 1 - numbers.end;
            synced = numbers.end - 1;
            tried.truncate(synced as usize);
            for _ in 0..r.below(16) {
                let record =
                    data(seed * 100 + session * 10 + tried.len() as u64, r.below(7000) as usize);
                match log.append(&record) {
                    Ok(at) => {
                        tried.push(record.clone());
                        addresses.push((at, record));
                    }
                    Err(LogError::Full) => {
                        let (before, _) = addresses[addresses.len() - 1];
                        // It flushes.
                        assert_ne!(log.trim(before), Ok(vec![]), "{why}");
                        (given, synced) = (before.sequence(), tried.len() as u64);
                    }
                    Err(e) => panic!("{why}: {e}"),
                }
                if r.one_in(4) {
                    log.sync().unwrap();
                    synced = tried.len() as u64;
                }
            }
            drop(log);
            disk.power_cut().unwrap();
        }
    }
    assert!(lost > 200, "{lost} records were lost that were not synced");
}

/// Trimming leaves the newest zone, and it is durable: a cut right after it does not make the log begin anew.
#[test]
fn a_trim_keeps_what_carries_the_numbers_on() {
    let work = |w: &Work<u64>| {
        let log = ZoneLog::open(w.disk(), LogOptions::new())?;
        let mut at = log.append(&data(0, 5000))?;
        while at.sector() < Sector(128) {
            at = log.append(&data(1, 5000))?;
        }
        log.trim(at)?;
        w.promise(at.sequence());
        Ok::<_, LogError>(())
    };
    let check = |disk: &HostedDisk, promised: &[u64]| {
        let log = ZoneLog::open(disk, LogOptions::new())?;
        let at = log.append(b"next")?;
        assert!(promised.iter().all(|n| *n < at.sequence()), "{at} after {promised:?}");
        Ok::<_, LogError>(())
    };
    Crash::new("mem,zones=4,zone-size=64K").seeds(1..2).every().run(work, check).unwrap();
}

/// The durable disk: any subset of what its storage was not told to sync may be missing.
#[test]
fn no_cut_of_a_disk_in_a_file_takes_what_was_synced() {
    let options = CreateOptions {
        zones: Some(5),
        zone_size: Some(64 << 10),
        lba_size: Some(4096),
        ..CreateOptions::default()
    };
    let mut cuts = 0;
    for seed in 1..13 {
        let mut r = Random::new(seed);
        let storage = CutStorage::create(&options).unwrap();
        let known = Mutex::new(Vec::new());
        {
            let disk = open(storage.open(Access::ReadWrite).unwrap());
            storage.make_durable();
            let tell = |k| known.lock().unwrap().push((storage.moments(), k));
            work(&disk, seed, 40, &tell).unwrap();
        }
        let known = known.into_inner().unwrap();
        let moments = storage.moments();
        for _ in 0..15 {
            let moment = r.below(moments as u32 + 1) as usize;
            let odds = r.below(5);
            let after = storage.after_cut(moment, &mut || match r.below(4) {
                n if n >= odds => Left::Nothing,
                _ => Left::All,
            });
            let by_then = known.iter().take_while(|(at, _)| *at <= moment).map(|(_, k)| k.clone());
            let by_then: Vec<Known> = by_then.collect();
            let disk = open(after.open(Access::ReadWrite).unwrap());
            if let Err(e) = check(&disk, &by_then) {
                panic!("seed {seed}, after event {moment} of {moments}, odds {odds}: {e}");
            }
            cuts += 1;
        }
    }
    assert_eq!(cuts, 180);
}
