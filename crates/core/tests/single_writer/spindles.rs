//! One single writer for each spindle: devices joined end to end and in stripes, cut, and with layers between.

use super::*;
use zoneplug_core::ZoneNo;
use zoneplug_core::sched::Policy;
use zoneplug_devices::stack::{FaultDisk, JoinDisk, Po2Disk, TapDisk};

/// Zones of each disk.
const EACH: u64 = 8;

type Logs = Vec<Arc<Mutex<Log>>>;
type Join = fn(Vec<Arc<dyn Device>>) -> Arc<dyn Device>;

fn linear(disks: Vec<Arc<dyn Device>>) -> Arc<dyn Device> {
    JoinDisk::linear(disks).unwrap()
}

fn stripe(disks: Vec<Arc<dyn Device>>) -> Arc<dyn Device> {
    JoinDisk::stripe(disks).unwrap()
}

/// Layers between, and layers on top.
fn layered(disks: Vec<Arc<dyn Device>>) -> Arc<dyn Device> {
    let wrap = |d: Arc<dyn Device>| -> Arc<dyn Device> {
        let d = FaultDisk::new(d, &"seed=1".parse().unwrap()).unwrap();
        TapDisk::new(JoinDisk::cut(d, 0..EACH as u32).unwrap(), Arc::new(|_: &_| {}))
    };
    let disk = JoinDisk::stripe(disks.into_iter().map(wrap).collect()).unwrap();
    FaultDisk::new(Po2Disk::new(disk).unwrap(), &"seed=1".parse().unwrap()).unwrap()
}

/// Halves of each disk, one after the other: a disk's zones are in two places.
fn halves(disks: Vec<Arc<dyn Device>>) -> Arc<dyn Device> {
    let half = EACH as u32 / 2;
    let cut = |zones: std::ops::Range<u32>| {
        disks.iter().map(|d| JoinDisk::cut(d.clone(), zones.clone()).unwrap() as _).collect()
    };
    linear(vec![linear(cut(0..half)), stripe(cut(half..2 * half))])
}

const JOINS: [(&str, Join); 4] =
    [("linear", linear), ("stripe", stripe), ("layered", layered), ("halves", halves)];

/// `n` disks as one, each with a log of its own. A command takes 100 ns.
fn shelf(
    n: usize,
    join: Join,
    config: impl FnOnce(&mut DiskConfig),
    queues: &[(u32, u16)],
) -> (Rig, Logs) {
    let m = make(EACH, 64, 64).config(|c| c.zoned_qd1_writes = Some(true)).config(config);
    let mut emu = m.emu;
    emu.limits.max_transfer_sectors = 8;
    let disk = || EmuDisk::new(emu.clone()).unwrap();
    let (disks, logs): (Vec<_>, Logs) = (0..n).map(|_| (disk(), Arc::default())).unzip();
    let parts = disks.iter().zip(&logs).map(|(dev, log)| logged(dev, log)).collect();
    let disk = open(join(parts), m.config);
    let queues = queues.iter().map(|&(d, t)| disk.open_polled_queue(d, t).unwrap()).collect();
    (Rig { dev: disks[0].clone(), disk, queues, now: Nanos(0), done: Vec::new() }, logs)
}

/// Writes in all zones, from queues with many tags and few. Each disk sees one write at a time, and all see one at the
/// same time; so `n` disks take an `n`th of the time.
#[test]
fn q1_one_write_for_each_spindle() {
    for (name, join) in JOINS {
        for n in [1, 2, 3, 4] {
            let (mut r, logs) = shelf(n, join, |_| {}, &[(64, 8), (64, 4)]);
            let zones = r.disk.geometry().nr_zones();
            assert_eq!((u64::from(zones), r.disk.writers().len()), (EACH * n as u64, n), "{name}");
            for i in 0..4 {
                for z in 0..zones {
                    r.submit(z as usize % 2, [write(at(z.into(), i * 8), 8)]);
                }
                // 32 or fewer of each queue's 64.
                r.drain();
            }
            assert!(r.done.iter().all(|b| b.status.is_ok()));
            assert_eq!(r.now.0, 4 * EACH * 100, "{name} of {n}: all spindles write at all times");
            for log in &logs {
                let log = log.lock().unwrap();
                assert_eq!((log.most, log.writes.len() as u64), (1, 4 * EACH), "{name} of {n}");
            }
        }
    }
}

/// Two cuts of one disk share its head, whatever is between.
#[test]
fn q1_parts_of_one_disk_have_one_writer() {
    let cuts = |disks: Vec<Arc<dyn Device>>| -> Arc<dyn Device> {
        let cut =
            |z| TapDisk::new(JoinDisk::cut(disks[0].clone(), z).unwrap(), Arc::new(|_: &_| {}));
        JoinDisk::stripe(vec![cut(0..4), cut(4..8)]).unwrap()
    };
    let (mut r, logs) = shelf(1, cuts, |_| {}, &[(64, 8)]);
    assert_eq!(r.disk.writers().len(), 1);
    (0..8).for_each(|z| r.submit(0, [write(at(z, 0), 8)]));
    r.drain();
    assert_eq!((logs[0].lock().unwrap().most, r.now.0), (1, 800));
}

/// Any policy, anticipation and deadline; clients that come and go, resets that abort, errors: one write a
/// spindle, no zone is forgotten, and no zone waits while no zone of its spindle has a turn.
/// Q1.
#[test]
fn q8_spindles_make_progress_by_themselves() {
    for seed in 0..150 {
        let mut rng = Random::new(seed);
        let join = JOINS[rng.below(4) as usize].1;
        let n = rng.range(2, 4) as usize;
        let set = |c: &mut DiskConfig| {
            c.zoned_qd1_policy = rng.pick(&Policy::ALL);
            c.anticipation = Nanos(rng.pick(&[0, 0, 50, 5000]));
            c.zone_deadline = Nanos(rng.pick(&[0, 0, 300, 2000]));
        };
        let mut rng = Random::new(seed + 1000);
        let (mut r, logs) = shelf(n, join, set, &[(8, 1), (8, 2), (8, 8), (8, 1)]);
        let zones = r.disk.geometry().nr_zones();
        let mut wp = vec![0u64; zones as usize];
        for _ in 0..120 {
            let z = rng.below(zones) as usize;
            let q = rng.below(r.queues.len() as u32) as usize;
            if r.queues[q].room() > 0 {
                if wp[z] == 64 {
                    r.drain();
                    r.submit(q, [op(Op::ZoneReset, at(z as u64, 0), 64)]);
                    r.drain();
                    wp[z] = 0;
                } else {
                    r.submit(q, [write(at(z as u64, wp[z]), 4)]);
                    wp[z] += 4;
                }
            }
            match rng.below(12) {
                0 if r.queues.len() > 1 => {
                    // Its BIOs go with it; what it had at the device does not.
                    let mut gone = r.queues.remove(q);
                    let mut done = Bios::new();
                    while gone.outstanding() > 0 && rng.one_in(2) {
                        gone.poll(r.now, &mut done);
                        r.now = Nanos(r.now.0 + 50);
                    }
                    let all = gone.outstanding() == 0;
                    drop(gone);
                    if !all {
                        break;
                    }
                }
                1..=4 => drop(r.step()),
                5 => r.drain(),
                _ => r.poll(rng.below(r.queues.len() as u32) as usize),
            }
        }
        r.drain();
        // No client waits for what a dropped queue has left.
        for _ in 0..1000 {
            r.step();
        }
        assert!(r.done.iter().all(|b| b.status.is_ok()), "seed {seed}");
        for log in &logs {
            assert!(log.lock().unwrap().most <= 1, "seed {seed}: Q1");
        }
        for w in r.disk.writers() {
            assert!(w.turn.is_none() && w.listed.is_empty(), "seed {seed}: {w:?}");
        }
    }
}

/// A queue that has every token goes away; the others go on with each.
#[test]
fn r34_a_queue_that_goes_away_passes_every_token_on() {
    for anticipation in [0, 1000] {
        let (mut r, logs) =
            shelf(3, linear, |c| c.anticipation = Nanos(anticipation), &[(64, 8); 2]);
        for spindle in 0..3 {
            r.submit(0, [write(at(spindle * EACH, 0), 8)]);
            r.submit(1, [write(at(spindle * EACH + 1, 0), 8), write(at(spindle * EACH + 2, 0), 8)]);
        }
        if anticipation != 0 {
            r.now = Nanos(100);
            r.poll(0);
            assert_eq!((r.done.len(), r.queues[0].next_deadline()), (3, Some(Nanos(1100))));
        }
        drop(r.queues.remove(0));
        r.drain();
        for log in &logs {
            assert_eq!((zones(log), log.lock().unwrap().most), (vec![0, 1, 2], 1));
        }
        assert!(r.disk.writers().iter().all(|w| w.turn.is_none() && w.listed.is_empty()));
    }
}

/// Two writers wait with one queue, until different times: each wait ends by itself, and one goes on while the other
/// waits.
/// Q1.
#[test]
fn a_queue_waits_with_several_tokens() {
    let (mut r, logs) = shelf(2, linear, |c| c.anticipation = Nanos(500), &[(64, 8), (64, 8)]);
    r.submit(0, [write(at(0, 0), 4)]);
    r.submit(1, [write(at(1, 0), 4), write(at(EACH + 1, 0), 4)]);
    r.now = Nanos(60);
    r.poll(1);
    r.poll(0);
    r.now = Nanos(100);
    r.poll(0);
    assert_eq!(r.queues[0].next_deadline(), Some(Nanos(600)), "spindle 0 waits for zone 0");
    r.poll(1);
    r.submit(0, [write(at(EACH, 0), 4), write(at(EACH, 4), 4)]);
    // Spindle 1 waits with queue 1, because no zone was listed when its write ended. Queue 0's zone is listed, and
    // waits.
    let state =
        |r: &Rig| r.disk.writers().iter().map(|w| (w.turn, w.listed.len())).collect::<Vec<_>>();
    assert_eq!(state(&r), [(Some(ZoneNo(0)), 1), (Some(ZoneNo(EACH as u32 + 1)), 1)]);
    // What spindle 1 waits for comes, and changes nothing for spindle 0.
    r.submit(1, [write(at(EACH + 1, 4), 4)]);
    assert_eq!(logs[1].lock().unwrap().writes.len(), 2);
    assert_eq!(logs[0].lock().unwrap().writes.len(), 1);
    r.drain();
    assert_eq!((zones(&logs[0]), zones(&logs[1])), (vec![0, 1], vec![1, 0]));
    assert_eq!(r.now.0.max(700), r.now.0, "spindle 0 waited to the end");
    let anticipated: Vec<_> = r.disk.writers().iter().map(|w| w.counters.anticipated).collect();
    assert_eq!((anticipated, r.disk.counters().writer.anticipated), (vec![0, 1], 1));
}

/// R35: a zone that is late ends a turn of its own spindle, and no other's.
/// Q1.
#[test]
fn r35_a_late_zone_ends_no_turn_of_another_spindle() {
    let (mut r, logs) = shelf(2, linear, |c| c.zone_deadline = Nanos(150), &[(64, 8), (64, 8)]);
    // Spindle 0: zone 0 never stops, zone 1 waits. Spindle 1: zone 0 never stops, no zone waits.
    let mut wp = [8u64; 2];
    r.submit(0, [write(at(0, 0), 8), write(at(1, 0), 8), write(at(EACH, 0), 8)]);
    while r.now.0 < 600 {
        for (spindle, wp) in wp.iter_mut().enumerate() {
            if *wp < 64 {
                r.submit(1, [write(at(spindle as u64 * EACH, *wp), 8)]);
                *wp += 8;
            }
        }
        r.step();
        r.now = Nanos(r.now.0.next_multiple_of(100));
    }
    r.drain();
    let cut: Vec<_> = r.disk.writers().iter().map(|w| w.counters.cut_off).collect();
    assert_eq!((cut[0] > 0, cut[1]), (true, 0), "{cut:?}");
    assert_eq!(zones(&logs[1]), [0]);
    assert!(zones(&logs[0]).starts_with(&[0, 1, 0]), "{:?}", zones(&logs[0]));
}

/// Policies see their own spindle: a sweep goes over its zones, and the stroke is as long as its disk.
/// Q1.
#[test]
fn policies_see_one_spindle() {
    for (join, name) in [(linear as Join, "linear"), (stripe, "stripe")] {
        let (mut r, logs) = shelf(2, join, |c| c.zoned_qd1_policy = Policy::Clook, &[(64, 8)]);
        let zone = |spindle: u64, z: u64| {
            if name == "linear" { spindle * EACH + z } else { z * 2 + spindle }
        };
        for z in [4, 6, 1, 5] {
            r.submit(0, [write(at(zone(0, z), 0), 8), write(at(zone(1, 7 - z), 0), 8)]);
        }
        r.drain();
        assert_eq!(zones(&logs[0]), [4, 5, 6, 1], "{name}");
        assert_eq!(zones(&logs[1]), [3, 6, 1, 2], "{name}");
    }
}

/// An error ends the turn of its spindle; the others are in the middle of theirs.
#[test]
fn r34_an_error_ends_one_spindles_turn() {
    let failing = |disks: Vec<Arc<dyn Device>>| -> Arc<dyn Device> {
        let plan = "write/io/zone=1".parse().unwrap();
        linear(vec![FaultDisk::new(disks[0].clone(), &plan).unwrap(), disks[1].clone()])
    };
    let (mut r, logs) = shelf(2, failing, |_| {}, &[(64, 8)]);
    let all = |spindle: u64| {
        (0..3).flat_map(move |z| [0, 8].map(|i| write(at(spindle * EACH + z, i), 8)))
    };
    r.submit(0, all(0).chain(all(1)).zip(0..).map(|(b, i)| token(b, i)));
    let bad: Vec<_> =
        r.finish().iter().filter(|b| !b.status.is_ok()).map(|b| (b.token(), b.status)).collect();
    assert_eq!(bad, [(2, Status::Io), (3, Status::AbortedBehind)]);
    assert_eq!((zones(&logs[0]), zones(&logs[1])), (vec![0, 2], vec![0, 1, 2]));
}

/// Q9: switched under load, again and again: every list is empty at the switch.
#[test]
fn q9_every_writer_is_drained_at_the_switch() {
    let (mut r, logs) = shelf(3, stripe, |c| c.anticipation = Nanos(70), &[(16, 4), (16, 1)]);
    let mut rng = Random::new(9);
    let mut wp = [0u64; 3 * EACH as usize];
    for n in 0..300 {
        for q in 0..2 {
            for _ in 0..rng.range(1, 6) {
                let z = rng.below(3 * EACH as u32) as usize;
                if wp[z] < 64 && r.queues[q].room() > 0 {
                    r.submit(q, [write(at(z as u64, wp[z]), 4)]);
                    wp[z] += 4;
                }
            }
        }
        if wp.iter().all(|w| *w > 40) {
            r.drain();
            r.submit(0, [op(Op::ZoneResetAll, 0, 0)]);
            r.drain();
            wp.fill(0);
        }
        let on = if n % 2 == 0 { "0" } else { "1" };
        for log in &logs {
            assert!(on == "1" || log.lock().unwrap().most <= 1, "Q1 while it was on");
        }
        let mut change = r.disk.change_attribute("zoned_qd1_writes", on).unwrap();
        while !change.poll() {
            r.step();
        }
        for log in &logs {
            log.lock().unwrap().most = 0;
        }
        for w in r.disk.writers() {
            assert!(w.turn.is_none() && w.listed.is_empty(), "Q9: nobody waits at the switch");
        }
        assert_eq!(r.disk.attribute("spindles").as_deref(), (on == "1").then_some("3"));
    }
    r.drain();
    assert!(r.done.iter().all(|b| b.status.is_ok()));
}

/// The attribute, the counters and the dump name the spindle. On a disk with one spindle they do not.
/// Q9.
#[test]
fn what_is_shown_says_which_spindle() {
    let dump = |r: &Rig| {
        let mut text = String::new();
        r.disk.zone_wplugs(&mut text).unwrap();
        let ends = |l: &str| l.split("pending BIO: ").nth(1).unwrap().to_owned();
        text.lines().map(ends).collect::<Vec<_>>()
    };
    let (mut r, _) = shelf(2, stripe, |_| {}, &[(64, 8)]);
    for z in [0, 1, 2, 4] {
        r.submit(0, [write(at(z, 0), 4)]);
    }
    let writers = r.disk.writers();
    let listed = |s: usize| writers[s].listed.iter().map(|c| c.zone.0).collect::<Vec<_>>();
    assert_eq!((writers[0].spindle, writers[0].turn, listed(0)), (0, Some(ZoneNo(0)), vec![2, 4]));
    assert_eq!((writers[1].spindle, writers[1].turn, listed(1)), (1, Some(ZoneNo(1)), vec![]));
    assert_eq!(dump(&r), ["0, spindle: 0", "0, spindle: 1", "1, spindle: 0", "1, spindle: 0"]);
    r.drain();
    let turns: Vec<_> = r.disk.writers().iter().map(|w| w.counters.turns).collect();
    assert_eq!((turns, r.disk.counters().writer.turns), (vec![3, 1], 4));
    assert_eq!(r.disk.attribute("spindles").as_deref(), Some("2"));

    let (mut r, _) = shelf(1, linear, |_| {}, &[(64, 8)]);
    r.submit(0, [write(at(0, 0), 4)]);
    assert_eq!((dump(&r), r.disk.attribute("spindles")), (vec!["0".to_owned()], None));
    let (mut r, _) = shelf(2, linear, |c| c.zoned_qd1_writes = Some(false), &[(64, 8)]);
    r.submit(0, [write(at(0, 0), 4)]);
    assert_eq!((dump(&r), r.disk.attribute("spindles")), (vec!["0".to_owned()], None));
}
