//! Power cuts as a product: bugs that the check must see, what a cut may leave, and how a failure is told.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::sync::Mutex;
use zoneplug::crash::{Crash, CrashFailure, REPEAT, Random, Work};
use zoneplug::zone::Condition;
use zoneplug::{AlignedBuf, BlockingDisk, HostedDisk, Sector};

const DISK: &str = "mem,zones=4,zone-size=64K";

fn block(n: u8, blocks: u32) -> AlignedBuf {
    let mut buf = AlignedBuf::zeroed(blocks * 4096);
    (0..blocks).for_each(|i| buf.write(i * 4096, &[n; 4096]));
    buf
}

/// A log of blocks in zone 0, in a few lines. Each bug is something that it forgets.
#[derive(Clone, Copy, PartialEq)]
enum Bug {
    None,
    /// It promises what is acknowledged.
    NoFlush,
    /// It flushes before it writes.
    FlushTooEarly,
    /// It makes room before the copy of what it keeps is durable.
    ResetTooEarly,
}

fn tiny_log(work: &Work<u8>, bug: Bug) -> Result<(), Box<dyn std::error::Error>> {
    let mut io = BlockingDisk::new(work.disk())?;
    for n in 1..=8 {
        if bug == Bug::FlushTooEarly {
            io.flush()?;
        }
        io.write(Sector(u64::from(n - 1) * 8), block(n, 1))?;
        if !matches!(bug, Bug::NoFlush | Bug::FlushTooEarly) {
            io.flush()?;
        }
        work.promise(n);
    }
    // Moves all to zone 1.
    let all = io.read(Sector(0), 64)?;
    io.write(Sector(128), all)?;
    if bug != Bug::ResetTooEarly {
        io.flush()?;
    }
    io.reset(Sector(0), 128)?;
    Ok(())
}

fn tiny_check(disk: &HostedDisk, promised: &[u8]) -> Result<(), String> {
    let mut io = BlockingDisk::new(disk).unwrap();
    let blocks = |io: &mut BlockingDisk, at| {
        let bytes = io.read(Sector(at), 64).unwrap().to_vec();
        bytes.chunks(4096).map(|b| b[0]).collect::<BTreeSet<_>>()
    };
    let found = &blocks(&mut io, 0) | &blocks(&mut io, 128);
    match promised.iter().find(|n| !found.contains(n)) {
        Some(n) => Err(format!("block {n} is gone")),
        None => Ok(()),
    }
}

fn tiny(bug: Bug) -> Result<u64, CrashFailure> {
    let crash = Crash::new(DISK).seeds(1..2).every();
    crash.run(|w| tiny_log(w, bug), tiny_check).map(|r| r.cuts)
}

/// Each planted bug is found at its first moment, and nothing is found without one.
#[test]
fn what_was_forgotten_is_found() {
    // 8 writes, 8 flushes, the move, its flush and the reset: 19 commands, 2 events each.
    assert_eq!(tiny(Bug::None).unwrap(), (19 * 2 + 1) * 4);
    let e = tiny(Bug::NoFlush).unwrap_err();
    assert_eq!((e.message.as_str(), e.point), ("block 1 is gone", Some(2)));
    let e = tiny(Bug::FlushTooEarly).unwrap_err();
    assert_eq!((e.message.as_str(), e.point), ("block 1 is gone", Some(4)));
    let e = tiny(Bug::ResetTooEarly).unwrap_err();
    // The reset was sent, and perhaps carried out.
    assert_eq!(e.point, Some(35), "{e}");
}

/// What is told has all that is needed to understand the failure, and no more.
#[test]
fn a_failure_is_a_short_story() {
    let e = tiny(Bug::ResetTooEarly).unwrap_err();
    let text = e.to_string();
    let expected = "\
after a power cut: block 8 is gone
seed 1, cut after event 35 (cut ";
    assert!(text.starts_with(expected), "{text}");
    assert!(text.contains("zone 1 kept 56 of 64 sectors; 0 were flushed\n"), "{text}");
    assert!(
        text.contains("  write zone 1 at 0, 64 sectors: ok\n  zone_reset zone 0: in flight\n"),
        "{text}"
    );
    assert!(text.contains("promises made before it: 8\n"), "{text}");
    assert_eq!(text, format!("{e:?}"));
}

/// A failure names its cut; the same program with that name makes this cut only.
#[test]
fn a_cut_is_repeated_by_its_name() {
    if std::env::var(REPEAT).is_ok() {
        let e = tiny(Bug::ResetTooEarly).unwrap_err();
        println!("repeated: {} {}", e.nr, e.message);
        return;
    }
    let e = tiny(Bug::ResetTooEarly).unwrap_err();
    let line = e.to_string().lines().last().unwrap().to_owned();
    let command = line.strip_prefix("repeat it: ").unwrap();
    let output = std::process::Command::new("sh")
        .args(["-c", &format!("{command} --nocapture")])
        .output()
        .unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("repeated: 1 block 8 is gone"), "{command}: {said}");
    // A wrong name is not a success.
    let wrong = command.replace(&e.repeat, "nonsense");
    let output =
        std::process::Command::new("sh").args(["-c", &format!("{wrong} --nocapture")]).output();
    let said = String::from_utf8(output.unwrap().stdout).unwrap();
    assert!(said.contains("repeated: 0 ZONEPLUG_CRASH=nonsense names no power cut"), "{said}");
}

#[test]
fn errors_and_panics_are_told_apart_from_broken_promises() {
    let nothing = |_: &Work<u8>| Ok::<_, String>(());
    let e =
        Crash::new(DISK).run(nothing, |_, _| -> Result<(), String> { panic!("I am {}", "here") });
    assert_eq!(e.unwrap_err().message, "panicked: I am here");
    let e = Crash::new(DISK).run(|_: &Work<u8>| Err("no"), |_, _| Ok::<_, String>(())).unwrap_err();
    assert_eq!(e.to_string(), "the work of seed 1 failed before any power cut: no");
    for (spec, why) in [
        ("null,zones=4", "keeps no data"),
        ("mem,zones=0", "zones=0 is not possible"),
        ("mem,reorder=1", "reorder="),
    ] {
        let e = Crash::new(spec).run(nothing, |_, _| Ok::<_, String>(())).unwrap_err();
        assert!(e.to_string().contains(why), "{e}");
    }
}

/// Everything that a cut may leave of a zone is left by some cut, and nothing else.
#[test]
fn a_zone_keeps_every_first_part_that_it_may() {
    let seen = Mutex::new(BTreeSet::new());
    let work = |w: &Work<u8>| {
        let mut io = BlockingDisk::new(w.disk()).map_err(|e| e.to_string())?;
        let mut write = |at, n, blocks| {
            io.write(Sector(at), block(n, blocks)).map(drop).map_err(|e| e.to_string())
        };
        write(0, 1, 2)?;
        write(16, 2, 1)?;
        io.flush().map_err(|e| e.to_string())?;
        w.promise(0);
        io.write(Sector(24), block(3, 4)).map_err(|e| e.to_string())?;
        io.write_fua(Sector(56), block(4, 1)).map_err(|e| e.to_string())?;
        w.promise(1);
        Ok::<_, String>(())
    };
    let check = |disk: &HostedDisk, promised: &[u8]| {
        let mut io = BlockingDisk::new(disk).unwrap();
        let zone = io.report(Sector(0), 1).unwrap()[0];
        assert!(!zone.cond.is_open());
        let blocks = (zone.wp.0 / 8) as usize;
        let bytes = io.read(Sector(0), 128).unwrap().to_vec();
        let found: Vec<u8> = bytes.chunks(4096).map(|b| b[0]).collect();
        assert_eq!(found[..blocks], [1, 1, 2, 3, 3, 3, 3, 4][..blocks], "a first part");
        assert!(found[blocks..].iter().all(|n| *n == 0));
        seen.lock().unwrap().insert((promised.len(), blocks));
        Ok::<_, String>(())
    };
    Crash::new(DISK).seeds(1..2).cuts(3000).run(work, check).unwrap();
    let seen = seen.into_inner().unwrap();
    let all =
        |promised, blocks: std::ops::RangeInclusive<usize>| blocks.map(move |n| (promised, n));
    assert_eq!(seen, all(0, 0..=3).chain(all(1, 3..=8)).chain(all(2, 8..=8)).collect());
}

/// Resets and finishes: in flight they may have happened; acknowledged they have. A conventional zone keeps any blocks.
#[test]
fn management_and_conventional_zones() {
    let seen = Mutex::new(BTreeSet::new());
    let work = |w: &Work<u8>| -> Result<(), Box<dyn std::error::Error>> {
        let mut io = BlockingDisk::new(w.disk())?;
        io.write(Sector(128), block(1, 2))?;
        io.flush()?;
        io.write(Sector(0), block(5, 3))?;
        w.promise(0);
        io.manage(zoneplug_core::Op::ZoneFinish, Sector(128), 128)?;
        w.promise(1);
        io.reset(Sector(128), 128)?;
        w.promise(2);
        io.flush()?;
        w.promise(3);
        Ok(())
    };
    let check = |disk: &HostedDisk, promised: &[u8]| {
        let mut io = BlockingDisk::new(disk).unwrap();
        let zone = io.report(Sector(128), 1).unwrap()[0];
        let data = io.read(Sector(128), 8).unwrap().to_vec()[0];
        let conv: Vec<u8> =
            io.read(Sector(0), 24).unwrap().to_vec().chunks(4096).map(|b| b[0]).collect();
        let full = zone.cond == Condition::Full;
        match promised.len() {
            0 => assert!(!full),
            1 => assert!(data == 1),
            2 => assert!(full && data == 1 || zone.cond == Condition::Empty),
            _ => assert!(zone.cond == Condition::Empty && data == 0),
        }
        if promised.len() == 4 {
            assert_eq!(conv, [5, 5, 5]);
        }
        seen.lock().unwrap().insert((promised.len(), full, conv));
        Ok::<_, String>(())
    };
    let spec = "mem,zones=4,zone-size=64K,conv=1";
    Crash::new(spec).seeds(1..2).cuts(4000).run(work, check).unwrap();
    let seen = seen.into_inner().unwrap();
    // Eight subsets of three blocks: with the finish in flight done or not, with the zone full or (reset in flight)
    // not, and after the reset; one at the end.
    let with = |n| seen.iter().filter(|(p, ..)| *p == n).count();
    assert_eq!([1, 2, 3, 4].map(with), [16, 16, 8, 1]);
}

/// A recovery that does harm when it is cut too is found only if it is cut too.
#[test]
fn a_recovery_is_cut_as_well() {
    // Moves zone 0 to zone 1, or finishes a move: without a flush before the reset.
    let check = |disk: &HostedDisk, promised: &[u8]| -> Result<(), String> {
        let mut io = BlockingDisk::new(disk).unwrap();
        let at = |io: &mut BlockingDisk, s| io.read(Sector(s), 8).unwrap().to_vec()[0];
        if at(&mut io, 0) == 7 {
            if at(&mut io, 128) == 0 {
                io.write(Sector(128), block(7, 1)).unwrap();
            }
            io.reset(Sector(0), 128).unwrap();
        }
        let lost = !promised.is_empty() && at(&mut io, 128) != 7;
        if lost { Err("lost in the recovery".to_owned()) } else { Ok(()) }
    };
    let work = |w: &Work<u8>| -> Result<(), Box<dyn std::error::Error>> {
        let mut io = BlockingDisk::new(w.disk())?;
        io.write(Sector(0), block(7, 1))?;
        io.flush()?;
        w.promise(7);
        Ok(())
    };
    let crash = Crash::new(DISK).seeds(1..2).every();
    crash.run(work, check).unwrap();
    let e = crash.cut_check().seeds(1..20).run(work, check).unwrap_err();
    assert_eq!(e.message, "lost in the recovery");
    assert!(e.repeat.contains('/') && e.to_string().contains("once more after event"), "{e}");
}

/// Threads: each promise holds at every cut after it.
#[test]
fn threads_may_work_and_promise() {
    let work = |w: &Work<(u8, u8)>| {
        std::thread::scope(|s| {
            for t in 0..3u8 {
                s.spawn(move || {
                    let mut io = BlockingDisk::new(w.disk()).unwrap();
                    for n in 0..5 {
                        let at = Sector(u64::from(t) * 128 + u64::from(n) * 8);
                        io.write(at, block(n + 1, 1)).unwrap();
                        io.flush().unwrap();
                        w.promise((t, n));
                    }
                });
            }
        });
        Ok::<_, String>(())
    };
    let check = |disk: &HostedDisk, promised: &[(u8, u8)]| {
        let mut io = BlockingDisk::new(disk).unwrap();
        for (t, n) in promised {
            let at = Sector(u64::from(*t) * 128 + u64::from(*n) * 8);
            assert_eq!(io.read(at, 8).unwrap().to_vec()[0], n + 1, "{t} {n}");
        }
        Ok::<_, String>(())
    };
    Crash::new(DISK).seeds(1..6).cuts(500).run(work, check).unwrap();
}

/// The same seeds make the same cuts, and find the same.
#[test]
fn what_is_found_does_not_change_from_run_to_run() {
    let find = || {
        let work = |w: &Work<u8>| {
            let mut random = Random::new(w.seed());
            let mut io = BlockingDisk::new(w.disk()).map_err(|e| e.to_string())?;
            for n in 0..10u8 {
                io.append(Sector(0), block(n, 1)).map_err(|e| e.to_string())?;
                if random.one_in(2) {
                    io.flush().map_err(|e| e.to_string())?;
                }
                w.promise(n);
            }
            Ok::<_, String>(())
        };
        let check = |disk: &HostedDisk, promised: &[u8]| {
            let mut io = BlockingDisk::new(disk).unwrap();
            let zone = io.report(Sector(0), 1).unwrap()[0];
            if zone.wp.0 / 8 >= promised.len() as u64 { Ok(()) } else { Err("short") }
        };
        Crash::new(DISK).seeds(3..9).cuts(300).run(work, check).unwrap_err()
    };
    assert_eq!(find(), find());
}
