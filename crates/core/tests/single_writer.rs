//! The single writer (Q1-Q12, R34-R36): one write to sequential zones at a time, zone after zone.
#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use std::sync::{Arc, Mutex};
use std::task::Waker;
use zoneplug_core::Random;
use zoneplug_core::disk::{DiskConfig, DiskQueue, Mode};
use zoneplug_core::emu::EmuDisk;
use zoneplug_core::sched::Policy;
use zoneplug_core::zone::{Geometry, Limits};
use zoneplug_core::{Bios, Command, Commands, Device, Error, ErrorKind, Nanos, Op, Queue, Status};

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

struct Logged {
    dev: Arc<EmuDisk>,
    log: Arc<Mutex<Log>>,
}

impl Device for Logged {
    fn geometry(&self) -> &Geometry {
        self.dev.geometry()
    }
    fn limits(&self) -> &Limits {
        self.dev.limits()
    }
    fn open_queue(&self, depth: u16, waker: Waker) -> Result<Box<dyn Queue>, Error> {
        let queue = self.dev.open_queue(depth, waker)?;
        Ok(Box::new(LoggedQueue { queue, dev: self.dev.clone(), log: self.log.clone() }))
    }
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

/// 8 zones of 64 sectors, a single writer, and a log of what the device is sent. A command takes 100 ns.
fn rig(config: impl FnOnce(&mut DiskConfig), queues: &[(u32, u16)]) -> (Rig, Arc<Mutex<Log>>) {
    let mut m = make(8, 64, 64).config(|c| c.zoned_qd1_writes = Some(true)).config(config);
    m.emu.limits.max_transfer_sectors = 8;
    let dev = EmuDisk::new(m.emu).unwrap();
    let log = Arc::new(Mutex::new(Log::default()));
    let disk = open(Arc::new(Logged { dev: dev.clone(), log: log.clone() }), m.config);
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

#[test]
fn q3_zones_in_the_order_in_which_they_came_and_each_drained() {
    let (mut r, log) = rig(|_| {}, &[(64, 8), (64, 8)]);
    r.submit(0, [write(at(3, 0), 8), write(at(1, 0), 8), write(at(3, 8), 8)]);
    r.submit(1, [write(at(5, 0), 8), write(at(1, 8), 8), write(at(3, 16), 8)]);
    assert!(r.finish().iter().all(|b| b.status.is_ok()));
    assert_eq!(zones(&log), [3, 1, 5], "first come, and each zone is left drained");
    assert_eq!(log.lock().unwrap().most, 1, "Q1: one write on the whole disk");
    let (counters, turn, listed) = r.disk.single_writer();
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
    let disk = open(Arc::new(Logged { dev: dev.clone(), log: log.clone() }), m.config);
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

#[test]
fn r34_writes_aborted_while_their_zone_is_listed_leave_the_list() {
    let (mut r, log) = rig(|_| {}, &[(64, 8)]);
    r.submit(0, [token(write(at(1, 0), 8), 1), token(write(at(2, 0), 8), 2)]);
    r.submit(0, [token(op(Op::ZoneReset, at(2, 0), 64), 3), token(write(at(3, 0), 8), 4)]);
    r.now = Nanos(100);
    r.poll(0);
    // Zone 2 left with its only write, and is not next.
    r.submit(0, [token(write(at(2, 0), 8), 5)]);
    let statuses: Vec<_> = r.finish().iter().map(|b| (b.token, b.status)).collect();
    assert_eq!(statuses[1], (2, Status::AbortedByManagement), "M4");
    assert!(statuses.iter().all(|s| s.0 == 2 || s.1.is_ok()), "{statuses:?}");
    assert_eq!(zones(&log), [1, 3, 2], "Q7: who comes anew is listed anew");
    assert_eq!(r.medium(at(2, 0), 2), [at(2, 0), at(2, 1)]);
}

#[test]
fn r34_writes_aborted_during_their_turn_do_not_stop_the_writer() {
    let (mut r, log) = rig(|_| {}, &[(64, 8)]);
    r.submit(0, [token(write(at(1, 0), 8), 1), token(write(at(1, 8), 8), 2)]);
    r.submit(0, [token(write(at(2, 0), 8), 3), token(op(Op::ZoneReset, at(1, 0), 64), 4)]);
    let done = r.finish();
    let failed: Vec<_> = done.iter().filter(|b| !b.status.is_ok()).map(|b| b.token).collect();
    assert_eq!(failed, [2], "{done:?}");
    assert_eq!(zones(&log), [1, 2]);
}

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

/// Q11: whoever has the token may go away.
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
        assert!(r.disk.single_writer().1.is_none());
    }
}

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
        ("zoned_qd1_writes", "2", "0 or to 1"),
        ("zoned_qd1_policy", "lifo", "fifo, clook, score"),
        ("anticipation_us", "-1", "0 switches it off"),
        ("zone_deadline_ms", "99999999999", "0 to 86400000"),
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
        let (_, turn, listed) = r.disk.single_writer();
        assert!(turn.is_none() && listed.is_empty(), "Q9: nobody waits at the switch");
    }
    r.drain();
    assert!(r.done.iter().all(|b| b.status.is_ok()));
}

/// Writes each time that one is done, so that its zone never has nothing to write, until the zone is full.
fn keep_writing(r: &mut Rig, q: usize, zone: u64, wp: &mut u64, ahead: u64, done: u64) {
    while *wp < 64 && *wp - done < ahead {
        r.submit(q, [write(at(zone, *wp), 4)]);
        *wp += 4;
    }
}

/// When zone 2 was first written, with somebody writing zone 1 without end.
fn second_zone_after(deadline: u64) -> (u64, u64) {
    let (mut r, log) = rig(|c| c.zone_deadline = Nanos(deadline), &[(64, 8), (64, 8)]);
    let mut wp = 0;
    keep_writing(&mut r, 0, 1, &mut wp, 8, 0);
    r.submit(1, [write(at(2, 0), 4)]);
    loop {
        r.step();
        let writes = r.done.iter().filter(|b| b.sector.0 < at(2, 0)).count() as u64;
        if log.lock().unwrap().writes.iter().any(|w| w.0 == 2) {
            return (r.now.0, writes * 4);
        }
        keep_writing(&mut r, 0, 1, &mut wp, 8, writes * 4);
        assert!(r.now.0 < 100_000, "{writes}");
    }
}

/// Q4: as published, a writer that never stops keeps the others waiting until its zone is full; with a deadline, until
/// that has passed and what it had when its turn began is written.
#[test]
fn r35_nobody_waits_longer_than_the_deadline_and_one_service() {
    let (_, sectors) = second_zone_after(0);
    assert_eq!(sectors, 64, "the whole zone");
    let (when, _) = second_zone_after(400);
    // A command takes 100: the deadline passes in the fourth, and the turn's own work was two commands.
    assert!((400..=600).contains(&when), "{when}");
    let (when, sectors) = second_zone_after(1);
    assert!(
        sectors >= 4 && when <= 300,
        "what waited when the turn began is written first: {when}"
    );
}

/// R35: each policy, with a deadline, against writers that never stop: no zone waits for ever, and whoever is past the
/// deadline is next, oldest first.
#[test]
fn r35_with_a_deadline_no_policy_starves_a_zone() {
    for policy in Policy::ALL {
        let set = |c: &mut DiskConfig| {
            c.zoned_qd1_policy = policy;
            c.zone_deadline = Nanos(1000);
        };
        let (mut r, log) = rig(set, &[(64, 8); 2]);
        let mut wp = [0u64; 3];
        r.submit(1, [token(write(at(7, 0), 1), 99)]);
        for round in 0.. {
            for (z, wp) in wp.iter_mut().enumerate() {
                if *wp < 64 && r.queues[0].room() > 0 {
                    r.submit(0, [write(at(z as u64, *wp), 4)]);
                    *wp += 4;
                } else if *wp == 64 && r.queues[0].room() > 1 {
                    r.submit(0, [op(Op::ZoneReset, at(z as u64, 0), 64)]);
                    r.drain();
                    *wp = 0;
                }
            }
            let before = r.disk.single_writer();
            r.step();
            let after = r.disk.single_writer();
            if let Some(first) = before.2.first()
                && before.0.turns != after.0.turns
                && r.now.0.saturating_sub(first.since.0) > 1100
            {
                let waits = after.2.iter().any(|c| c.zone == first.zone && c.since == first.since);
                assert!(!waits, "{policy}: {first:?} was passed over: {after:?}");
            }
            if r.done.iter().any(|b| b.token == 99) {
                break;
            }
            assert!(round < 200 && r.now.0 < 10_000, "{policy}: zone 7 starves");
        }
        assert_eq!(log.lock().unwrap().most, 1);
    }
}

/// R35: earliest deadline first. Who is late waits for the command at the device, not for all that the zone of the turn has;
/// and what that zone had keeps its own deadline.
#[test]
fn r35_who_is_late_waits_for_one_command_and_those_before_it() {
    let set = |c: &mut DiskConfig| {
        (c.zoned_qd1_policy, c.zone_deadline) = (Policy::Clook, Nanos(300));
    };
    let (mut r, log) = rig(set, &[(64, 8)]);
    r.submit(0, [write(at(4, 0), 8)]);
    r.now = Nanos(10);
    r.submit(0, [write(at(1, 0), 8), write(at(1, 8), 8)]);
    r.now = Nanos(20);
    r.submit(0, (0..6).map(|i| write(at(5, i * 8), 8)));
    r.now = Nanos(30);
    r.submit(0, [write(at(6, 0), 8)]);
    r.drain();
    // Zone 5 is next above 4, at 100. At 310 zone 1 is late, and has its turn when the third command ends. It is left
    // at 600; then 5 and 6 are late too, and 5 was listed first: it has what it had before 6 has anything.
    assert_eq!(zones(&log), [4, 5, 1, 5, 6]);
    let writes: Vec<u32> = log.lock().unwrap().writes.iter().map(|w| w.0).collect();
    assert_eq!(writes, [4, 5, 5, 5, 1, 1, 5, 5, 5, 6]);
    let (counters, ..) = r.disk.single_writer();
    assert_eq!(
        (counters.cut_off, counters.longest_wait),
        (1, Nanos(900 - 30)),
        "zone 6 waited for all"
    );
}

/// R35: the promise itself, with everybody late at the same time: a zone's turn begins at most one command and the services
/// of those listed before it after its deadline.
#[test]
fn r35_a_late_zone_waits_only_for_those_listed_before_it() {
    for seed in 0..60 {
        let mut rng = Random::new(seed);
        let deadline = u64::from(rng.range(1, 1500));
        let set = |c: &mut DiskConfig| {
            c.zoned_qd1_policy = Policy::ALL[seed as usize % Policy::ALL.len()];
            c.zone_deadline = Nanos(deadline);
            c.anticipation = Nanos(if seed % 2 == 0 { 0 } else { 150 });
        };
        let (mut r, _) = rig(set, &[(256, 8); 2]);
        let mut wp = [0u64; 8];
        // Of each zone that is listed: since when, when its turn is due.
        let mut due: Vec<(u32, u64, u64)> = Vec::new();
        let mut late = 0;
        while wp.iter().any(|&w| w < 64) {
            let (z, q) = (rng.below(8) as usize, rng.below(2) as usize);
            let n = u64::from(rng.range(1, 4)).min((64 - wp[z]) / 4);
            if rng.one_in(3) && n > 0 && r.queues[q].room() > 4 {
                r.submit(q, (0..n).map(|i| write(at(z as u64, wp[z] + i * 4), 4)));
                wp[z] += n * 4;
            } else if r.queues.iter().any(|q| q.outstanding() > 0) {
                r.step();
            }
            let (_, _, listed) = r.disk.single_writer();
            // Who is off the list has its turn by now.
            due.retain(|&(zone, since, by)| {
                let waits = listed.iter().any(|c| c.zone.0 == zone && c.since.0 == since);
                late += u32::from(waits && r.now.0 > since + deadline);
                assert!(
                    !waits || r.now.0 <= by,
                    "seed {seed}: zone {zone} since {since}, due {by}, now {}",
                    r.now.0
                );
                waits
            });
            for (i, c) in listed.iter().enumerate() {
                if !due.iter().any(|d| (d.0, d.1) == (c.zone.0, c.since.0)) {
                    // A zone has 64 sectors: 8 commands at most, and twice that with cuts; the turn of one is over.
                    let before = (i as u64 + 1) * 16 * 100;
                    due.push((c.zone.0, c.since.0, c.since.0 + deadline + 100 + before));
                }
            }
        }
        r.drain();
        assert!(r.done.iter().all(|b| b.status.is_ok()));
        assert!(late > 0 || deadline > 300, "seed {seed}: nobody was late");
    }
}

/// A wait for more ends when another zone is late.
#[test]
fn r35_anticipation_ends_at_a_deadline() {
    let set = |c: &mut DiskConfig| (c.anticipation, c.zone_deadline) = (Nanos(5000), Nanos(300));
    let (mut r, log) = rig(set, &[(64, 8), (64, 8)]);
    r.submit(0, [write(at(1, 0), 4)]);
    r.now = Nanos(50);
    r.submit(1, [write(at(2, 0), 4)]);
    r.now = Nanos(100);
    r.poll(0);
    assert_eq!(r.queues[0].next_deadline(), Some(Nanos(350)));
    r.drain();
    assert_eq!((zones(&log), r.disk.single_writer().0.longest_wait), (vec![1, 2], Nanos(300)));
}

/// A policy says how long a turn goes on, too: two zones of which each always has more in time.
#[test]
fn a_policy_decides_how_long_a_turn_is() {
    let turns = |policy| {
        let set = |c: &mut DiskConfig| (c.zoned_qd1_policy, c.anticipation) = (policy, Nanos(50));
        let (mut r, log) = rig(set, &[(64, 8), (64, 8)]);
        let mut wp = [0u64; 2];
        for (q, wp) in wp.iter_mut().enumerate() {
            r.submit(q, [write(at(q as u64, 0), 4)]);
            *wp = 4;
        }
        while wp.iter().any(|&w| w < 64) {
            let before = r.done.len();
            // None: what one queue has completed waits for the other's poll.
            let next = r.queues.iter().filter_map(DiskQueue::next_deadline).min();
            r.now = next.unwrap_or(r.now).max(r.now);
            (0..2).for_each(|q| r.poll(q));
            for i in before..r.done.len() {
                // Whose write is done has the next one 10 ns later.
                let z = (r.done[i].sector.0 / 64) as usize;
                if wp[z] < 64 {
                    r.now.0 += 10;
                    r.submit(z, [write(at(z as u64, wp[z]), 4)]);
                    wp[z] += 4;
                }
            }
        }
        r.drain();
        let log = log.lock().unwrap();
        log.writes.chunk_by(|a, b| a.0 == b.0).map(<[_]>::len).collect::<Vec<_>>()
    };
    assert_eq!(turns(Policy::Fifo), [16, 16], "as long as it has more");
    // In the end one zone is full, and the other alone.
    let longest = |policy| turns(policy).into_iter().take(4).max().unwrap();
    assert_eq!(longest(Policy::Brief), 2, "one wait");
    assert_eq!(longest(Policy::Steady), 7, "six");
}

/// R36: two clients write two zones in small turns: how often the device is sent to another zone.
#[test]
fn r36_a_single_writer_seeks_less() {
    let mut seeks = Vec::new();
    for on in [false, true] {
        let (mut r, log) = rig(|c| c.zoned_qd1_writes = Some(on), &[(64, 8), (64, 8)]);
        for q in 0..2 {
            let bios = (0..16).map(|i| write(at(1 + q, i * 4), 4)).collect::<Vec<_>>();
            // One by one, so that they are commands of 4 to 8 sectors.
            for b in bios {
                r.submit(q as usize, [b]);
            }
        }
        r.drain();
        seeks.push(zones(&log).len());
    }
    assert!(seeks[0] >= 8, "per zone, two writes are there at a time and alternate: {seeks:?}");
    assert_eq!(seeks[1], 2, "one visit of each zone");
}

#[test]
fn the_policy_decides_who_is_next() {
    let order = |policy| {
        let (mut r, log) = rig(|c| c.zoned_qd1_policy = policy, &[(64, 8)]);
        r.submit(0, [write(at(4, 0), 4)]);
        r.submit(0, [write(at(6, 0), 4), write(at(1, 0), 4), write(at(5, 0), 4)]);
        for i in 0..6 {
            r.submit(0, [write(at(1, 4 + i * 8), 8)]);
        }
        r.drain();
        zones(&log)
    };
    assert_eq!(order(Policy::Fifo), [4, 6, 1, 5]);
    assert_eq!(order(Policy::Clook), [4, 5, 6, 1]);
    assert_eq!(order(Policy::Score), [4, 1, 5, 6], "much, then near");
}

/// Anticipation: the writer waits a moment for the zone that it has just written.
#[test]
fn anticipation_waits_for_more_and_no_longer() {
    let ask = |pause: u64| {
        let (mut r, log) = rig(|c| c.anticipation = Nanos(50), &[(64, 8), (64, 8)]);
        r.submit(0, [write(at(1, 0), 4)]);
        r.submit(1, [write(at(2, 0), 4)]);
        r.now = Nanos(100);
        r.poll(0);
        assert_eq!(r.done.len(), 1);
        assert_eq!(r.queues[0].next_deadline(), Some(Nanos(150)), "the wait has an end");
        r.now = Nanos(100 + pause);
        if pause >= 50 {
            r.poll(0);
        }
        r.submit(0, [write(at(1, 4), 4)]);
        r.drain();
        (zones(&log), r.disk.single_writer().0.anticipated)
    };
    assert_eq!(ask(20), (vec![1, 2], 1), "zone 1 went on");
    assert_eq!(ask(60), (vec![1, 2, 1], 0), "too late");
}

#[test]
fn anticipation_goes_on_with_whichever_queue_the_write_comes_from() {
    let (mut r, log) = rig(|c| c.anticipation = Nanos(50), &[(64, 8), (64, 8)]);
    r.submit(0, [write(at(1, 0), 4)]);
    r.submit(1, [write(at(2, 0), 4)]);
    r.now = Nanos(100);
    r.poll(0);
    r.submit(1, [write(at(1, 4), 4)]);
    assert_eq!(log.lock().unwrap().writes, [(1, 4), (1, 4)]);
    // Queue 0 finds that nobody waits with it any more.
    r.poll(0);
    assert!(!r.queues[0].is_busy());
    r.drain();
    assert_eq!(zones(&log), [1, 2]);
}

#[test]
fn anticipation_does_not_wait_when_the_disk_is_frozen() {
    let (mut r, log) = rig(|c| c.anticipation = Nanos(1 << 40), &[(64, 8), (64, 8)]);
    r.submit(0, [write(at(1, 0), 4)]);
    r.submit(1, [write(at(2, 0), 4)]);
    r.now = Nanos(100);
    r.poll(0);
    let freeze = r.disk.begin_freeze();
    for _ in 0..20 {
        for q in 0..2 {
            r.poll(q);
        }
        r.now = Nanos(r.now.0 + 100);
        if freeze.poll() {
            break;
        }
    }
    assert!(freeze.poll(), "Q9: a freeze drains the list");
    assert_eq!(zones(&log), [1, 2]);
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
    while !r.done.iter().any(|b| b.token == 1000) {
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
