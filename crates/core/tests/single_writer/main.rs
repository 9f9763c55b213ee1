//! The single writer (Q1-Q12, R34-R36): one write to sequential zones at a time, zone after zone.
#![allow(clippy::unwrap_used)]

#[path = "../common/mod.rs"]
mod common;

mod policies;
mod spindles;

use common::*;
use std::sync::{Arc, Mutex};
use zoneplug_core::Random;
use zoneplug_core::disk::{DiskConfig, DiskQueue, Mode, WriterState};
use zoneplug_core::{Bios, Command, Commands, Device, ErrorKind, Nanos, Op, Queue, Status};
use zoneplug_devices::emu::EmuDisk;

/// What a device was sent: zone and length of each write to a sequential zone, and how many were there at a time.
#[derive(Default)]
struct Log {
    writes: Vec<(u32, u32)>,
    flying: u32,
    most: u32,
    /// Of any kind.
    most_of_all: u32,
    all: u32,
}

struct LoggedQueue {
    queue: Box<dyn Queue>,
    dev: Arc<EmuDisk>,
    log: Arc<Mutex<Log>>,
}

impl LoggedQueue {
    fn zone(&self, c: &Command) -> Option<u32> {
        let (zone, _) = self.dev.geometry().zone_of(c.sector);
        (c.op == Op::Write && !self.dev.geometry().is_conventional(zone)).then_some(zone.0)
    }
}

impl Queue for LoggedQueue {
    fn submit(&mut self, now: Nanos, commands: &mut Commands) {
        for c in commands.iter() {
            let mut log = self.log.lock().unwrap();
            log.all += 1;
            log.most_of_all = log.most_of_all.max(log.all);
            if let Some(zone) = self.zone(c) {
                log.writes.push((zone, c.len_sectors));
                log.flying += 1;
                log.most = log.most.max(log.flying);
            }
        }
        self.queue.submit(now, commands);
        assert!(commands.is_empty());
    }

    fn poll(&mut self, now: Nanos, done: &mut Commands) {
        let before = done.len();
        self.queue.poll(now, done);
        for c in done.iter().skip(before) {
            let mut log = self.log.lock().unwrap();
            log.all -= 1;
            if self.zone(c).is_some() {
                log.flying -= 1;
            }
        }
    }

    fn next_deadline(&self) -> Option<Nanos> {
        self.queue.next_deadline()
    }

    fn arm(&mut self) {
        self.queue.arm();
    }
}

/// `dev`, with a log of what it is sent.
fn logged(dev: &Arc<EmuDisk>, log: &Arc<Mutex<Log>>) -> Arc<dyn Device> {
    let (d, log) = (dev.clone(), log.clone());
    let wrap = move |queue| LoggedQueue { queue, dev: d.clone(), log: log.clone() };
    wrapped(dev.clone(), move |queue| Box::new(wrap(queue)))
}

/// 8 zones of 64 sectors, a single writer, and a log of what the device is sent. A command takes 100 ns.
fn rig(config: impl FnOnce(&mut DiskConfig), queues: &[(u32, u16)]) -> (Rig, Arc<Mutex<Log>>) {
    let mut m = make(8, 64, 64).config(|c| c.zoned_qd1_writes = Some(true)).config(config);
    m.emu.limits.max_transfer_sectors = 8;
    let dev = EmuDisk::new(m.emu).unwrap();
    let log = Arc::new(Mutex::new(Log::default()));
    let disk = open(logged(&dev, &log), m.config);
    let queues = queues.iter().map(|&(d, t)| disk.open_polled_queue(d, t).unwrap()).collect();
    (Rig { dev, disk, queues, now: Nanos(0), done: Vec::new() }, log)
}

fn zones(log: &Arc<Mutex<Log>>) -> Vec<u32> {
    let mut zones: Vec<u32> = log.lock().unwrap().writes.iter().map(|w| w.0).collect();
    zones.dedup();
    zones
}

/// Sector `i` of zone `z`.
fn at(z: u64, i: u64) -> u64 {
    z * 64 + i
}

/// Q2.
#[test]
fn q3_zones_in_the_order_in_which_they_came_and_each_drained() {
    let (mut r, log) = rig(|_| {}, &[(64, 8), (64, 8)]);
    r.submit(0, [write(at(3, 0), 8), write(at(1, 0), 8), write(at(3, 8), 8)]);
    r.submit(1, [write(at(5, 0), 8), write(at(1, 8), 8), write(at(3, 16), 8)]);
    assert!(r.finish().iter().all(|b| b.status.is_ok()));
    assert_eq!(zones(&log), [3, 1, 5], "first come, and each zone is left drained");
    assert_eq!(log.lock().unwrap().most, 1, "Q1: one write on the whole disk");
    let WriterState { counters, turn, listed, .. } = r.disk.single_writer();
    assert_eq!((counters.turns, turn, listed.len()), (3, None, 0));
    // Six commands of 8 sectors in three turns: of 3, of 2 and of 1.
    assert_eq!((counters.drained[0], counters.drained[1]), (1, 2));
}

#[test]
fn q3_what_comes_during_a_turn_is_served_in_it_and_q5_a_zone_that_comes_back_goes_to_the_end() {
    let (mut r, log) = rig(|_| {}, &[(64, 8)]);
    r.submit(0, [write(at(0, 0), 8), write(at(1, 0), 8)]);
    r.submit(0, [write(at(0, 8), 8)]);
    r.step();
    r.drain();
    assert_eq!(zones(&log), [0, 1]);
    r.submit(0, [write(at(1, 8), 8), write(at(0, 16), 8), write(at(2, 0), 8)]);
    r.drain();
    assert_eq!(zones(&log), [0, 1, 0, 2]);
}

#[test]
fn q1_only_writes_to_sequential_zones_wait() {
    let mut m = make(8, 64, 64).config(|c| c.zoned_qd1_writes = Some(true)).conventional(&[0, 1]);
    m.emu.limits.max_transfer_sectors = 8;
    let dev = EmuDisk::new(m.emu).unwrap();
    let log = Arc::new(Mutex::new(Log::default()));
    let disk = open(logged(&dev, &log), m.config);
    let queues = vec![disk.open_polled_queue(64, 8).unwrap()];
    let mut r = Rig { dev, disk, queues, now: Nanos(0), done: Vec::new() };
    let bios = [
        write(at(2, 0), 8),
        write(at(3, 0), 8),
        write(at(0, 8), 8),
        write(at(0, 0), 8),
        read(at(5, 0), 8),
        op(Op::Flush, 0, 0),
    ];
    r.submit(0, bios);
    assert!(r.finish().iter().all(|b| b.status.is_ok()));
    let log = log.lock().unwrap();
    assert_eq!((log.most, log.most_of_all), (1, 5), "all but one write went at once");
}

#[test]
fn q12_what_waits_in_a_zone_goes_out_as_one_command() {
    let (mut r, log) = rig(|_| {}, &[(64, 8)]);
    r.submit(0, [write(at(1, 0), 1)]);
    for i in 0..8 {
        r.submit(0, [write(at(2, i), 1)]);
    }
    r.drain();
    assert_eq!(log.lock().unwrap().writes, [(1, 1), (2, 8)]);
}

/// Q1.
#[test]
fn a_single_writer_takes_appends_and_writes_that_span_zones() {
    let (mut r, log) = rig(|c| c.emulate_append = true, &[(64, 2), (64, 2)]);
    r.submit(0, [token(write(at(1, 0), 128), 1)]);
    r.submit(1, [token(append(at(3, 0), 4, 700), 2), token(append(at(3, 0), 4, 800), 3)]);
    let done = r.finish();
    assert!(done.iter().all(|b| b.status.is_ok()), "{done:?}");
    assert_eq!((done[1].sector.0, done[2].sector.0), (at(3, 0), at(3, 4)));
    assert_eq!((zones(&log), log.lock().unwrap().most), (vec![1, 2, 3], 1));
    assert_eq!(r.medium(at(2, 60), 4), [at(2, 60), at(2, 61), at(2, 62), at(2, 63)]);
}

/// Q7.
#[test]
fn r34_writes_aborted_while_their_zone_is_listed_leave_the_list() {
    let (mut r, log) = rig(|_| {}, &[(64, 8)]);
    r.submit(0, [token(write(at(1, 0), 8), 1), token(write(at(2, 0), 8), 2)]);
    r.submit(0, [token(op(Op::ZoneReset, at(2, 0), 64), 3), token(write(at(3, 0), 8), 4)]);
    r.now = Nanos(100);
    r.poll(0);
    // Zone 2 left with its only write, and is not next.
    r.submit(0, [token(write(at(2, 0), 8), 5)]);
    let statuses: Vec<_> = r.finish().iter().map(|b| (b.token(), b.status)).collect();
    assert_eq!(statuses[1], (2, Status::AbortedByManagement), "M4");
    assert!(statuses.iter().all(|s| s.0 == 2 || s.1.is_ok()), "{statuses:?}");
    assert_eq!(zones(&log), [1, 3, 2], "Q7: who comes anew is listed anew");
    assert_eq!(r.medium(at(2, 0), 2), [at(2, 0), at(2, 1)]);
}

/// Q7.
#[test]
fn r34_writes_aborted_during_their_turn_do_not_stop_the_writer() {
    let (mut r, log) = rig(|_| {}, &[(64, 8)]);
    r.submit(0, [token(write(at(1, 0), 8), 1), token(write(at(1, 8), 8), 2)]);
    r.submit(0, [token(write(at(2, 0), 8), 3), token(op(Op::ZoneReset, at(1, 0), 64), 4)]);
    let done = r.finish();
    let failed: Vec<_> = done.iter().filter(|b| !b.status.is_ok()).map(|b| b.token()).collect();
    assert_eq!(failed, [2], "{done:?}");
    assert_eq!(zones(&log), [1, 2]);
}

/// Q6.
#[test]
fn r34_an_error_ends_the_turn_and_the_writer_goes_on() {
    let (mut r, log) = rig(|_| {}, &[(64, 8), (64, 8)]);
    r.fail(Op::Write, Status::Io);
    r.submit(0, [token(write(at(1, 0), 8), 1), token(write(at(1, 8), 8), 2)]);
    r.submit(1, [token(write(at(2, 0), 8), 3)]);
    let statuses: Vec<_> = r.finish().iter().map(|b| b.status).collect();
    assert_eq!(statuses, [Status::Io, Status::AbortedBehind, Status::Ok]);
    assert_eq!(zones(&log), [1, 2]);
    assert_eq!(r.status(write(at(1, 8), 8)), Status::StaleWritePointer);
    assert_eq!(r.status(op(Op::ZoneReset, at(1, 0), 64)), Status::Ok);
    assert_eq!(r.status(write(at(1, 0), 8)), Status::Ok);
}

/// Q8: the writer rests, and N clients write once each, polled in any order.
#[test]
fn r34_no_wake_up_is_lost() {
    for seed in 0..200 {
        let mut rng = Random::new(seed);
        let (mut r, log) = rig(|_| {}, &[(4, 1); 6]);
        let mut wp = [0u64; 8];
        for _ in 0..20 {
            let n = rng.range(1, 6) as usize;
            for q in 0..n {
                let z = rng.below(7) as usize;
                if wp[z] < 64 && r.queues[q].room() > 0 {
                    r.submit(q, [write(at(z as u64, wp[z]), 4)]);
                    wp[z] += 4;
                }
                if rng.one_in(3) {
                    r.poll(rng.below(6) as usize);
                }
            }
            if rng.one_in(2) {
                r.drain();
            }
        }
        r.drain();
        assert!(r.done.iter().all(|b| b.status.is_ok()));
        assert_eq!(log.lock().unwrap().most, 1, "seed {seed}");
    }
}

/// Q11: the queue that has the token may be dropped.
#[test]
fn r34_a_queue_that_goes_away_with_the_token_passes_it_on() {
    for anticipation in [0, 1000] {
        let (mut r, log) = rig(|c| c.anticipation = Nanos(anticipation), &[(64, 8), (64, 8)]);
        r.submit(0, [write(at(1, 0), 8)]);
        r.submit(1, [write(at(2, 0), 8), write(at(3, 0), 8)]);
        if anticipation != 0 {
            // It waits for more from zone 1.
            r.now = Nanos(100);
            r.poll(0);
            assert_eq!(r.done.len(), 1);
        }
        drop(r.queues.remove(0));
        r.drain();
        assert_eq!((zones(&log), log.lock().unwrap().most), (vec![1, 2, 3], 1));
        assert!(r.disk.single_writer().turn.is_none());
    }
}

/// Q10.
#[test]
fn q9_the_attribute_is_there_where_it_does_something() {
    let shown = |m: Make| m.rig().disk.attribute("zoned_qd1_writes");
    assert_eq!(shown(make(4, 64, 64)).as_deref(), Some("0"));
    assert_eq!(shown(make(4, 64, 64).limits(|l| l.rotational = true)).as_deref(), Some("1"), "Q10");
    let off = |c: &mut DiskConfig| c.zoned_qd1_writes = Some(false);
    let rotational = make(4, 64, 64).limits(|l| l.rotational = true).config(off);
    assert_eq!(shown(rotational).as_deref(), Some("0"));
    for mode in [Mode::None, Mode::Lock] {
        assert_eq!(shown(make(4, 64, 64).mode(mode)), None, "hidden rather than without effect");
        let e = make(4, 64, 64).mode(mode).rig().disk.set_attribute("zoned_qd1_writes", "1");
        assert_eq!(e.unwrap_err().kind(), ErrorKind::NotFound);
    }
}

#[test]
fn q9_attributes_say_what_they_take() {
    let r = make(4, 64, 64).rig();
    for (name, value, hint) in [
        ("zoned_qd1_writes", "2", "0 or 1"),
        ("zoned_qd1_policy", "lifo", "fifo, clook, score"),
        ("anticipation_us", "-1", "from 0 to 1000000"),
        ("zone_deadline_ms", "99999999999", "from 0 to 3600000"),
    ] {
        let e = r.disk.set_attribute(name, value).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Invalid);
        assert!(format!("{e} {:?}", e).contains(hint), "{e:?}");
    }
    for (name, value) in
        [("zoned_qd1_policy", "clook"), ("anticipation_us", "300"), ("zone_deadline_ms", "4000")]
    {
        r.disk.set_attribute(name, value).unwrap();
        assert_eq!(r.disk.attribute(name).as_deref(), Some(value));
    }
    assert!(!r.disk.is_timed() || r.dev.is_timed());
    let e = r.disk.set_attribute("zoned_qd1_writes", "1").unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Busy, "Q9: a queue is open, and may have work");
    assert_eq!(r.disk.attribute("zoned_qd1_writes").as_deref(), Some("0"));
    r.disk.set_attribute("zoned_qd1_writes", "0").unwrap();
}

/// Q9: on and off a thousand times, with work pending each time.
#[test]
fn r34_toggled_a_thousand_times_under_load() {
    let (mut r, log) = rig(|_| {}, &[(16, 4), (16, 4), (16, 1)]);
    let mut rng = Random::new(34);
    let mut wp = [0u64; 8];
    for n in 0..1000 {
        for q in 0..3 {
            for _ in 0..rng.range(1, 4) {
                let z = rng.below(8) as usize;
                if wp[z] == 64 && r.queues[q].room() > 0 {
                    r.drain();
                    r.submit(q, [op(Op::ZoneReset, at(z as u64, 0), 64)]);
                    r.drain();
                    wp[z] = 0;
                } else if wp[z] < 64 && r.queues[q].room() > 0 {
                    r.submit(q, [write(at(z as u64, wp[z]), 4)]);
                    wp[z] += 4;
                }
            }
        }
        let on = if n % 2 == 0 { "0" } else { "1" };
        if on == "0" {
            assert!(log.lock().unwrap().most <= 1, "Q1 while it was on");
        }
        let mut change = r.disk.change_attribute("zoned_qd1_writes", on).unwrap();
        let mut rounds = 0;
        while !change.poll() {
            r.step();
            rounds += 1;
            assert!(rounds < 1000, "hang: {:?}", r.queues);
        }
        let mut log = log.lock().unwrap();
        assert_eq!(log.all, 0, "nothing is in flight at the switch");
        log.most = 0;
        drop(log);
        assert_eq!(r.disk.attribute("zoned_qd1_writes").as_deref(), Some(on));
        let WriterState { turn, listed, .. } = r.disk.single_writer();
        assert!(turn.is_none() && listed.is_empty(), "Q9: nobody waits at the switch");
    }
    r.drain();
    assert!(r.done.iter().all(|b| b.status.is_ok()));
}

/// The zone with the turn is written by one queue and waited for by others: C3 holds for their reads.
#[test]
fn reads_beside_a_single_writer_find_tags() {
    let (mut r, _) = rig(|_| {}, &[(256, 2)]);
    for z in 1..8 {
        for i in 0..16 {
            r.submit(0, [write(at(z, i * 4), 4)]);
        }
    }
    r.submit(0, [token(read(0, 4), 1000)]);
    let start = r.now;
    while !r.done.iter().any(|b| b.token() == 1000) {
        r.step();
    }
    assert!(r.now.0 - start.0 <= 200, "a read waits for no turn: {:?}", r.now);
    r.drain();
    assert!(r.done.iter().all(|b| b.status.is_ok()));
}

/// The list is empty when the layout changes, and the writer works on the new one.
#[test]
fn revalidation_under_load_with_a_single_writer() {
    let (mut r, log) = rig(|_| {}, &[(64, 8)]);
    for z in 0..8 {
        r.submit(0, [write(at(z, 0), 8)]);
    }
    let mut revalidation = r.disk.revalidate();
    let queue: &mut DiskQueue = &mut r.queues[0];
    let mut now = Nanos(0);
    while revalidation.poll(queue, now).is_none() {
        now = Nanos(now.0 + 100);
    }
    r.now = now;
    let mut done = Bios::new();
    r.queues[0].poll(now, &mut done);
    assert_eq!((done.len(), zones(&log).len()), (8, 8));
    assert_eq!(r.status(write(at(3, 8), 8)), Status::Ok);
    assert_eq!(r.wp(3), 16);
}
