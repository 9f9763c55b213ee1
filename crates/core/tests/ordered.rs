//! Several writes of a zone in flight, on a device that keeps their order: I1 becomes "at most N, on one queue, in order".
//! What is sent, who sends it, and how a zone goes on after a failure by itself.
#![allow(clippy::unwrap_used, clippy::vec_box)]

mod common;

use common::*;
use std::sync::{Arc, Mutex};
use std::task::Waker;
use zoneplug_core::zone::{Condition, Geometry, Limits};
use zoneplug_core::{
    Bio, Command, Commands, Device, Error, Flags, Nanos, Op, Queue, Status, ZoneNo,
};
use zoneplug_devices::emu::{EmuDisk, Fault};

/// What a device was sent.
#[derive(Default)]
struct Log {
    /// Writes: queue, first sector.
    writes: Vec<(usize, u64)>,
    /// Queue of each write of zone 0 that is at the device.
    flying: Vec<usize>,
    most: usize,
    /// Two queues had writes of zone 0 there at a time.
    two_homes: bool,
    /// Reports, with the writes that were at the device then.
    reports: Vec<usize>,
    /// Reports, or writes of zone 0, are kept until this is false.
    hold_reports: bool,
    hold_writes: bool,
}

struct Logged {
    dev: Arc<EmuDisk>,
    log: Arc<Mutex<Log>>,
    queues: Mutex<usize>,
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
        let mut id = self.queues.lock().unwrap();
        *id += 1;
        let (id, log, kept) = (*id, self.log.clone(), Commands::new());
        Ok(Box::new(LoggedQueue { queue, id, log, kept }))
    }
}

struct LoggedQueue {
    queue: Box<dyn Queue>,
    id: usize,
    log: Arc<Mutex<Log>>,
    kept: Commands,
}

fn in_zone_0(c: &Command) -> bool {
    matches!(c.op, Op::Write | Op::WriteZeroes) && c.sector.0 < 64
}

impl Queue for LoggedQueue {
    fn submit(&mut self, now: Nanos, commands: &mut Commands) {
        let mut log = self.log.lock().unwrap();
        for c in commands.iter() {
            if c.op == Op::ReportZones {
                let n = log.flying.len();
                log.reports.push(n);
            }
            if in_zone_0(c) {
                log.writes.push((self.id, c.sector.0));
                log.two_homes |= log.flying.iter().any(|&q| q != self.id);
                log.flying.push(self.id);
                log.most = log.most.max(log.flying.len());
            }
        }
        drop(log);
        self.queue.submit(now, commands);
        assert!(commands.is_empty());
    }

    fn poll(&mut self, now: Nanos, done: &mut Commands) {
        let mut back = Commands::new();
        self.queue.poll(now, &mut back);
        let mut log = self.log.lock().unwrap();
        for c in back.drain(..) {
            if in_zone_0(&c) {
                let at = log.flying.iter().position(|&q| q == self.id).unwrap();
                log.flying.remove(at);
            }
            if c.op == Op::ReportZones && log.hold_reports || in_zone_0(&c) && log.hold_writes {
                self.kept.push_back(c);
            } else {
                done.push_back(c);
            }
        }
        if !log.hold_reports && !log.hold_writes {
            done.append(&mut self.kept);
        }
    }

    fn next_deadline(&self) -> Option<Nanos> {
        self.queue.next_deadline()
    }

    fn arm(&mut self) {
        self.queue.arm();
    }
}

/// An ordered disk without merging, of which `n` writes of a zone may be in flight.
fn rig_with(n: u16, queues: &[(u32, u16)], f: impl FnOnce(&mut Make)) -> (Rig, Arc<Mutex<Log>>) {
    let mut m = make(4, 64, 64).limits(|l| l.keeps_write_order = true).config(|c| {
        (c.nomerges, c.zone_write_depth) = (true, n);
    });
    f(&mut m);
    let dev = EmuDisk::new(m.emu).unwrap();
    let log = Arc::new(Mutex::new(Log::default()));
    let logged = Logged { dev: dev.clone(), log: log.clone(), queues: Mutex::default() };
    let disk = open(Arc::new(logged), m.config);
    let queues =
        queues.iter().map(|&(d, t)| disk.open_polled_queue(d, t).unwrap()).collect::<Vec<_>>();
    *log.lock().unwrap() = Log::default();
    (Rig { dev, disk, queues, now: Nanos(0), done: Vec::new() }, log)
}

fn rig(n: u16) -> (Rig, Arc<Mutex<Log>>) {
    rig_with(n, &[(64, 16), (64, 16)], |_| {})
}

/// `n` writes of 4 sectors from `from` on, with their sectors as tokens.
fn writes(from: u64, n: u64) -> Vec<Box<Bio>> {
    (0..n).map(|i| token(write(from + 4 * i, 4), from + 4 * i)).collect()
}

fn statuses(done: &[Box<Bio>]) -> Vec<Status> {
    done.iter().map(|b| b.status).collect()
}

fn sent(log: &Arc<Mutex<Log>>) -> Vec<u64> {
    log.lock().unwrap().writes.iter().map(|w| w.1).collect()
}

/// I1, I2: as many as the attribute says, in the order in which they came, and one where it says one.
#[test]
fn i1_as_many_writes_of_a_zone_are_in_flight_as_the_attribute_says() {
    for n in [1, 2, 3, 8, 16] {
        let (mut r, log) = rig(n);
        assert_eq!(r.run(0, writes(0, 16)), [Status::Ok; 16]);
        let expected: Vec<_> = (0..16).map(|i| i * 4).collect();
        assert_eq!(sent(&log), expected, "I2");
        assert_eq!(log.lock().unwrap().most, usize::from(n), "I1");
        assert_eq!(r.medium(0, 64), (0..64).collect::<Vec<_>>());
        assert_eq!(r.cached(0), Some((Condition::Full, 64)));
    }
}

/// Time is what it is for: at a latency of 100 eight at a time take an eighth.
#[test]
fn several_in_flight_take_less_time() {
    let time = |n| {
        let (mut r, _) = rig(n);
        r.run(0, writes(0, 16));
        r.now.0
    };
    assert!(time(8) * 7 < time(1), "{} against {}", time(8), time(1));
}

/// I2: on a device that shuffles all else, zones stay in order, whatever reads and other zones do.
#[test]
fn i2_a_device_that_shuffles_keeps_the_order_of_each_zone() {
    for seed in 0..50 {
        let (mut r, log) = rig_with(4, &[(200, 16), (200, 16)], |m| m.emu.reorder = Some(seed));
        for i in 0..16 {
            for zone in 0..4 {
                let q = (i + zone) as usize % 2;
                r.submit(q, [write(zone * 64 + i * 4, 4), read(0, 4)]);
            }
            if i % 3 == 0 {
                r.step();
            }
        }
        assert!(r.finish().iter().all(|b| b.status.is_ok()));
        assert_eq!(r.dev.stats().overlaps, 0, "one home at a time");
        assert!(!log.lock().unwrap().two_homes);
        for zone in 0..4 {
            assert_eq!(r.medium(zone * 64, 64), (zone * 64..zone * 64 + 64).collect::<Vec<_>>());
        }
    }
}

/// The writes of a zone that has a home go out there, and the home changes when nothing is in flight.
/// I1.
#[test]
fn a_zone_has_one_home_and_changes_it_at_rest() {
    let (mut r, log) = rig(4);
    r.submit(0, writes(0, 2));
    r.submit(1, writes(8, 2));
    assert_eq!(log.lock().unwrap().writes, [(2, 0), (2, 4)], "the second queue's wait");
    assert!(!r.queues[1].is_busy(), "and it need not be polled");
    r.now = Nanos(100);
    r.poll(0);
    assert_eq!(log.lock().unwrap().writes[2..], [(2, 8), (2, 12)], "the home sends them");
    r.drain();
    r.submit(1, writes(16, 2));
    assert_eq!(log.lock().unwrap().writes[4..], [(3, 16), (3, 20)], "now it is another's");
    r.drain();
    assert!(!log.lock().unwrap().two_homes);
}

/// C3, R19: a zone waits for tags like anybody, and reads get theirs.
#[test]
fn a_home_without_tags_goes_on_when_it_has_some() {
    let (mut r, log) = rig_with(8, &[(64, 2)], |_| {});
    r.submit(0, writes(0, 8));
    r.submit(0, [token(read(128, 4), 1000)]);
    assert_eq!(log.lock().unwrap().most, 2, "as many as there are tags");
    r.now = Nanos(100);
    r.poll(0);
    r.now = Nanos(200);
    r.poll(0);
    assert!(r.done.iter().any(|b| b.token() == 1000), "C3: the read does not wait for all writes");
    assert!(r.finish().iter().all(|b| b.status.is_ok()));
    assert_eq!(sent(&log), [0, 4, 8, 12, 16, 20, 24, 28]);
}

/// The first failure takes those behind it with it at the device; the layer waits for all of them, looks, and sends them
/// again: nobody is told.
/// E7.
#[test]
fn after_a_failure_the_zone_is_drained_reported_and_goes_on() {
    for status in [Status::Io, Status::ShortTransfer, Status::UnalignedWrite] {
        let (mut r, log) = rig(4);
        r.dev.fail_next(Fault { skip: 1, ..Fault::next(Op::Write, status) });
        assert_eq!(r.run(0, writes(0, 8)), [Status::Ok; 8], "{status}");
        assert_eq!(log.lock().unwrap().reports, [0], "one report, with nothing in flight");
        assert_eq!(sent(&log)[..8], [0, 4, 8, 12, 4, 8, 12, 16], "the first one was there");
        assert_eq!(r.medium(0, 32), (0..32).collect::<Vec<_>>());
        let c = r.disk.counters();
        assert_eq!((c.plugs.retried, c.plugs.resynced, c.plugs.lost), (3, 1, 0));
        assert_eq!(r.cached(0), Some((Condition::Active, 32)));
    }
}

/// E8, E9: of a write that failed with some of its data on the medium nothing is sent again. Positional writes behind it
/// fail; appends find a place.
#[test]
fn what_may_be_on_the_medium_is_not_sent_again() {
    for torn in [1, 3, 4] {
        let (mut r, _) = rig(4);
        r.dev.fail_next(Fault { torn_sectors: Some(torn), ..Fault::next(Op::Write, Status::Io) });
        let mut list = writes(0, 2);
        list.extend([token(append(0, 4, 100), 8), token(append(0, 4, 200), 12)]);
        r.submit(0, list);
        let done = r.finish();
        if torn == 4 {
            // The device was wrong: the second write was carried out behind it.
            assert_eq!(statuses(&done), [Status::Io, Status::Ok, Status::Ok, Status::Ok]);
            assert_eq!((done[2].sector.0, done[3].sector.0), (8, 12));
            continue;
        }
        let expected = [Status::Io, Status::UnalignedWrite, Status::Ok, Status::Ok];
        assert_eq!(statuses(&done), expected);
        let at = u64::from(torn);
        assert_eq!((done[2].sector.0, done[3].sector.0), (at, at + 4), "placed anew");
        assert_eq!(r.medium(at, 8), [100, 101, 102, 103, 200, 201, 202, 203]);
        assert_eq!(r.wp(0), at + 8, "and the zone is known");
    }
}

/// A torn write leaves the write pointer inside of a block that can only be written whole. Nothing can be written there: who
/// waits fails, and nothing is sent that the device would have to refuse.
/// E8.
#[test]
fn a_zone_does_not_go_on_in_the_middle_of_a_block() {
    for torn in [1, 3, 7, 9] {
        let (mut r, log) = rig_with(4, &[(64, 16)], |m| {
            m.emu.limits.write_granularity_sectors = 8;
        });
        let fault = Fault { torn_sectors: Some(torn), ..Fault::next(Op::Write, Status::Io) };
        r.dev.fail_next(fault);
        r.submit(0, (0..6).map(|i| token(append(0, 16, 100 * (i + 1)), i)));
        let done = r.finish();
        assert_eq!(done[0].status, Status::Io, "torn after {torn}");
        assert!(done.iter().all(|b| !b.status.is_ok()), "{:?}", statuses(&done));
        assert_eq!(sent(&log).len(), 4, "those that were in flight, and no more");
        assert_eq!(
            r.dev.stats().failed(Status::InvalidField),
            0,
            "an unaligned write at the device"
        );
        assert_eq!(r.wp(0), u64::from(torn), "the zone is known, and a reset begins it again");
        assert_eq!(r.run(0, [op(Op::ZoneReset, 0, 64), append(64, 8, 1)]), [Status::Ok; 2]);
        assert_eq!(r.run(0, [append(0, 8, 1)]), [Status::Ok]);
    }
}

/// An append of which the device wrote all, or some, and said that it failed: a second copy would be one too many.
/// E9.
#[test]
fn an_append_that_cannot_be_told_apart_fails() {
    for torn in 1..=4 {
        let (mut r, _) = rig(4);
        r.dev.fail_next(Fault { torn_sectors: Some(torn), ..Fault::next(Op::Write, Status::Io) });
        r.submit(0, (0..4).map(|i| token(append(0, 4, 1 + i * 100), i)));
        let done = r.finish();
        assert_eq!(statuses(&done), [Status::Io, Status::Ok, Status::Ok, Status::Ok]);
        assert_eq!(done[0].sector.0, 0, "A10: a failed append has no sector");
        let medium = r.medium(0, 64);
        assert_eq!(medium.iter().filter(|&&s| s == 1).count(), 1, "once");
        for (i, b) in done.iter().enumerate().skip(1) {
            assert_eq!(medium[b.sector.0 as usize], 1 + i as u64 * 100, "A4");
        }
    }
}

/// An append that failed and left nothing is placed anew, at the place of the one that will not be there.
/// E7.
#[test]
fn an_append_that_left_nothing_is_placed_anew() {
    let (mut r, _) = rig(4);
    r.fail(Op::Write, Status::Io);
    r.submit(0, [token(append(0, 4, 1), 0), token(append(0, 2, 50), 1)]);
    let done = r.finish();
    assert_eq!(statuses(&done), [Status::Ok; 2]);
    assert_eq!((done[0].sector.0, done[1].sector.0), (0, 4));
    assert_eq!(r.medium(0, 6), [1, 2, 3, 4, 50, 51]);
}

/// E1: a device that goes on failing is left alone after a few attempts; those behind it fail too, each as what it was.
#[test]
fn a_zone_that_goes_on_failing_is_given_up() {
    let (mut r, log) = rig(2);
    for _ in 0..40 {
        r.fail(Op::Write, Status::Io);
    }
    r.submit(0, writes(0, 4));
    let done = r.finish();
    assert_eq!(statuses(&done[..2]), [Status::Io; 2]);
    assert_eq!(statuses(&done[2..]), [Status::AbortedBehind; 2], "these were never sent");
    assert_eq!(log.lock().unwrap().reports.len(), 3, "bounded");
    assert_eq!(r.cached(0), None, "E2");
    assert_eq!(r.status(write(0, 4)), Status::StaleWritePointer);
    // E3: as ever, by a report of the client's.
    r.report(0, 1);
    assert_eq!(r.cached(0), Some((Condition::Empty, 0)));
}

/// What succeeds in between begins the count again.
/// E1.
#[test]
fn attempts_are_counted_without_progress() {
    let (mut r, log) = rig(2);
    for i in 0..6 {
        r.dev.fail_next(Fault { skip: 3 * i + 2, ..Fault::next(Op::Write, Status::Io) });
    }
    assert_eq!(r.run(0, writes(0, 12)), [Status::Ok; 12]);
    assert!(log.lock().unwrap().reports.len() > 3);
}

/// E1: statuses that another attempt would not change fail at once. A limit proves that nothing moved.
#[test]
fn what_is_not_worth_another_attempt_fails_as_ever() {
    for (status, wp) in [
        (Status::Medium, None),
        (Status::NoSpace, None),
        (Status::OpenLimit, Some((Condition::Active, 4))),
        (Status::InvalidField, Some((Condition::Active, 4))),
    ] {
        let (mut r, log) = rig(2);
        assert_eq!(r.status(write(0, 4)), Status::Ok);
        r.fail(Op::Write, status);
        r.submit(0, writes(4, 3));
        let done = r.finish();
        let expected = [status, Status::UnalignedWrite, Status::AbortedBehind];
        assert_eq!(statuses(&done), expected, "{status}");
        assert_eq!(log.lock().unwrap().reports, [] as [usize; 0]);
        assert_eq!(r.cached(0), wp, "{status}");
    }
}

/// W23: a device that is busy is asked again, without an end, and those behind it that found it missing too.
#[test]
fn w23_busy_is_tried_again_in_order() {
    let (mut r, log) = rig(4);
    for i in 0..8 {
        r.dev.fail_next(Fault { skip: 2 * i, ..Fault::next(Op::Write, Status::Busy) });
    }
    assert_eq!(r.run(0, writes(0, 8)), [Status::Ok; 8]);
    assert!(log.lock().unwrap().reports.iter().all(|&n| n == 0));
    assert_eq!(r.medium(0, 32), (0..32).collect::<Vec<_>>());
    // One that is alone is simply sent again.
    let before = log.lock().unwrap().reports.len();
    r.fail(Op::Write, Status::Busy);
    assert_eq!(r.status(write(32, 4)), Status::Ok);
    assert_eq!(log.lock().unwrap().reports.len(), before);
}

/// E4: if even the report fails nobody knows, as ever.
#[test]
fn a_report_that_fails_leaves_the_zone_stale() {
    let (mut r, _) = rig(2);
    r.fail(Op::Write, Status::Io);
    r.fail(Op::ReportZones, Status::Io);
    r.submit(0, writes(0, 3));
    let done = r.finish();
    let expected = [Status::Io, Status::UnalignedWrite, Status::AbortedBehind];
    assert_eq!(statuses(&done), expected);
    assert_eq!(r.cached(0), None);
    assert_eq!(r.run(1, [write(64, 4)]), [Status::Ok], "E2: others do not notice");
}

/// What was acknowledged and is not there any more is not written over before the client has looked.
/// E7.
#[test]
fn a_zone_that_lost_acknowledged_data_does_not_go_on() {
    let (mut r, log) = rig(2);
    assert_eq!(r.run(0, writes(0, 2)), [Status::Ok; 2]);
    r.fail(Op::Write, Status::Io);
    r.submit(0, (0..3).map(|i| token(append(0, 4, 100 + i), i)));
    r.dev.set_write_pointer(ZoneNo(0), 4);
    let done = r.finish();
    let expected = [Status::Io, Status::UnalignedWrite, Status::AbortedBehind];
    assert_eq!(statuses(&done), expected);
    assert_eq!(log.lock().unwrap().reports, [0]);
    assert_eq!(r.cached(0), None);
    r.report(0, 1);
    assert_eq!(r.wp(0), 4);
}

/// R32: a zone that the report says is read-only has no more writes.
#[test]
fn r32_a_zone_that_died_is_not_tried_again() {
    let (mut r, log) = rig(2);
    r.fail(Op::Write, Status::Io);
    r.submit(0, writes(0, 3));
    r.dev.set_condition(ZoneNo(0), Condition::ReadOnly);
    let done = r.finish();
    assert!(done.iter().all(|b| !b.status.is_ok()));
    let seen = log.lock().unwrap().writes.len();
    assert_eq!(r.status(write(0, 4)), Status::ZoneReadOnly);
    assert_eq!(log.lock().unwrap().writes.len(), seen);
}

/// Runs until the report of a recovery is at the device.
fn until_reported(r: &mut Rig, log: &Arc<Mutex<Log>>) {
    log.lock().unwrap().hold_reports = true;
    for _ in 0..10 {
        if !log.lock().unwrap().reports.is_empty() {
            break;
        }
        r.step();
    }
    assert_eq!(log.lock().unwrap().reports, [0]);
    r.step();
}

/// R11, I9: a freeze waits for a recovery, and a recovery needs nothing that a freeze takes.
#[test]
fn r11_a_freeze_waits_for_a_recovery() {
    let (mut r, log) = rig_with(4, &[(64, 4)], |_| {});
    r.fail(Op::Write, Status::Io);
    r.submit(0, writes(0, 6));
    let freeze = r.disk.begin_freeze();
    until_reported(&mut r, &log);
    assert!(!freeze.poll() && r.queues[0].is_busy());
    log.lock().unwrap().hold_reports = false;
    r.drain();
    assert!(r.done.iter().all(|b| b.status.is_ok()));
    r.step();
    assert!(freeze.poll());
    assert_eq!(r.device_wp(0), 24);
}

/// M4: a reset during a recovery ends it. What was sent says how it failed, what waited that it was aborted, and the
/// report says nothing any more.
#[test]
fn m4_a_reset_during_a_recovery_ends_it() {
    for finish in [false, true] {
        let (mut r, log) = rig(2);
        r.fail(Op::Write, Status::Io);
        r.submit(0, writes(0, 4));
        until_reported(&mut r, &log);
        let what = if finish { Op::ZoneFinish } else { Op::ZoneReset };
        r.submit(1, [token(op(what, 0, 64), 99)]);
        while r.done.len() < 5 {
            r.step();
        }
        let mut done = std::mem::take(&mut r.done);
        done.sort_by_key(|b| b.token());
        use Status as S;
        let expected = [S::Io, S::UnalignedWrite, S::AbortedByManagement, S::AbortedByManagement];
        assert_eq!(statuses(&done[..4]), expected);
        assert_eq!(done[4].status, S::Ok);
        // Writes of the new generation, before the report is back.
        if !finish {
            assert_eq!(r.run(1, writes(0, 2)), [S::Ok; 2]);
        }
        log.lock().unwrap().hold_reports = false;
        r.step();
        r.step();
        let wp = if finish { 64 } else { 8 };
        assert_eq!((r.wp(0), r.device_wp(0)), (wp, wp));
        assert!(!r.queues[0].is_busy());
    }
}

/// M5: a zone that is being recovered is busy for strict management.
#[test]
fn m5_strict_management_waits_for_a_recovery() {
    let (mut r, log) = rig_with(2, &[(64, 8), (64, 8)], |m| m.config.strict_management = true);
    r.fail(Op::Write, Status::Io);
    r.submit(0, writes(0, 4));
    until_reported(&mut r, &log);
    r.submit(1, [token(op(Op::ZoneReset, 0, 64), 99)]);
    r.step();
    assert_eq!(r.done.iter().find(|b| b.token() == 99).unwrap().status, Status::ZoneBusy);
    log.lock().unwrap().hold_reports = false;
    assert!(r.finish().iter().all(|b| b.status.is_ok() || b.token() == 99));
}

/// Writes that come during a recovery wait behind what failed, and are placed with it.
/// E7.
#[test]
fn writes_that_come_during_a_recovery_wait() {
    let (mut r, log) = rig(4);
    r.fail(Op::Write, Status::Io);
    r.submit(0, writes(0, 2));
    until_reported(&mut r, &log);
    r.submit(1, [token(write(8, 4), 8), token(append(0, 4, 12), 12)]);
    r.step();
    assert_eq!(sent(&log).len(), 2, "nothing is sent");
    log.lock().unwrap().hold_reports = false;
    assert_eq!(statuses(&r.finish()), [Status::Ok; 4]);
    assert_eq!(r.medium(0, 16), (0..16).collect::<Vec<_>>());
}

/// R40: a queue that goes away with several writes of a zone in flight, one of which fails, is finished by others.
#[test]
fn r40_a_home_that_goes_away_is_finished_by_the_others() {
    for fails in [false, true] {
        let (mut r, log) = rig(4);
        if fails {
            r.dev.fail_next(Fault { skip: 1, ..Fault::next(Op::Write, Status::Io) });
        }
        r.submit(0, writes(0, 6));
        r.submit(1, writes(24, 2));
        drop(r.queues.remove(0));
        let done = r.finish();
        assert_eq!(statuses(&done), [Status::Ok; 2], "the other queue's own");
        let freeze = r.disk.begin_freeze();
        for _ in 0..20 {
            r.step();
        }
        assert!(freeze.poll());
        assert_eq!(r.medium(0, 32), (0..32).collect::<Vec<_>>());
        assert!(!log.lock().unwrap().two_homes);
    }
}

/// E6: while writes of a zone that is lost are in flight no report says anything of it.
#[test]
fn e6_a_report_among_writes_that_end_is_not_believed() {
    let (mut r, _) = rig(4);
    assert_eq!(r.run(0, writes(0, 2)), [Status::Ok; 2]);
    // A reset in the middle: what fails then is of an older generation, and not tried again.
    r.submit(0, writes(8, 2));
    r.submit(1, [op(Op::ZoneReset, 0, 64)]);
    r.submit(0, writes(16, 2));
    r.submit(1, [report(0, 1)]);
    r.finish();
    r.report(0, 1);
    assert_eq!(r.wp(0), r.device_wp(0));
}

/// Merged commands, write-zeroes, FUA and writes that span zones, several at a time and with failures.
/// E7.
#[test]
fn all_kinds_of_writes_come_through_failures() {
    for seed in 0..40 {
        let mut rng = Rng(seed);
        let (mut r, log) = rig_with(3, &[(64, 4), (64, 4)], |m| {
            m.config.nomerges = false;
            m.emu.limits.max_transfer_sectors = 8;
            m.emu.reorder = (seed % 2 == 0).then_some(seed);
        });
        let mut at = 0;
        while at < 192 {
            if rng.one_in(3) {
                let status = rng.pick(&[Status::Io, Status::ShortTransfer, Status::Busy]);
                let skip = u64::from(rng.below(3));
                r.dev.fail_next(Fault { skip, ..Fault::next(Op::Write, status) });
            }
            let q = rng.below(2) as usize;
            let len = rng.range(1, 20).min(192 - at);
            let bio = match rng.below(4) {
                0 => op(Op::WriteZeroes, u64::from(at), len),
                1 => flags(write(u64::from(at), len), Flags::FUA),
                _ => write(u64::from(at), len),
            };
            r.submit(q, [bio]);
            at += len;
            if rng.one_in(3) {
                r.step();
            }
        }
        for b in r.finish() {
            assert_eq!(b.status, Status::Ok, "seed {seed}: {b:?}");
        }
        for (i, s) in r.medium(0, 192).into_iter().enumerate() {
            assert!(s == i as u64 || s == 0, "seed {seed}: {s} at {i}");
        }
        assert!(!log.lock().unwrap().two_homes);
    }
}

/// A deadline: what nobody knows the outcome of is not sent again, nor is what was behind it.
/// E1.
#[test]
fn an_unknown_outcome_is_not_tried_again() {
    let (mut r, log) = rig_with(4, &[(64, 8)], |m| m.config.timeout = Some(Nanos(500)));
    log.lock().unwrap().hold_writes = true;
    r.submit(0, writes(0, 3));
    let done = r.finish();
    assert_eq!(statuses(&done), [Status::Timeout; 3]);
    assert_eq!(log.lock().unwrap().reports, [] as [usize; 0]);
    assert_eq!(r.cached(0), None);
    log.lock().unwrap().hold_writes = false;
    r.step();
    assert_eq!(r.queues[0].late(), 0);
    r.report(0, 1);
    assert_eq!(r.wp(0), 12, "they were carried out after all, once");
    assert_eq!(r.run(0, writes(12, 3)), [Status::Ok; 3]);
}
