//! A device whose queue panics: what it had and what it gets ends with *no device*, its zones recover through another
//! queue, and no caller of `poll` panics.

use crate::bomb::{ARM, Bomb, DEADLINE, DROP, Fuse, POLL, SUBMIT, TAKEN};
use crate::common::*;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;
use zoneplug_core::disk::{Disk, DiskConfig};
use zoneplug_core::sched::Scheduler;
use zoneplug_core::{Bios, Flags, Nanos, Op, Status, lost_bios};
use zoneplug_devices::emu::EmuDisk;

fn rig(queues: &[(u32, u16)]) -> (Rig, Fuse) {
    rig_with(queues, |_| ())
}

fn rig_with(queues: &[(u32, u16)], set: impl FnOnce(&mut DiskConfig)) -> (Rig, Fuse) {
    let make = make(8, 64, 64).queues(queues);
    let dev = EmuDisk::new(make.emu).expect("a device");
    let (bomb, fuse) = Bomb::new(dev.clone());
    let mut config = DiskConfig { survive_panics: true, ..DiskConfig::default() };
    set(&mut config);
    let disk = open(bomb, config);
    let queues = make.queues.iter().map(|&(d, t)| disk.open_polled_queue(d, t).expect("a queue"));
    let queues = queues.collect();
    (Rig { dev, disk, queues, now: Nanos(0), done: Vec::new() }, fuse)
}

fn late(disk: &Disk, bio: &zoneplug_core::Bio) -> bool {
    bio.late().is_some_and(|l| disk.is_late(l))
}

/// Wherever it panics: every BIO comes back once, and says whether its memory is still with the device.
#[test]
fn a_device_that_panics_is_no_device() {
    for place in [SUBMIT, TAKEN, POLL, DEADLINE, ARM] {
        let (mut r, fuse) = rig(&[(64, 4), (64, 4)]);
        assert_eq!(r.run(0, [write(0, 8)]), [Status::Ok]);
        if place > TAKEN {
            r.submit(0, [token(write(8, 8), 0), token(read(0, 8), 1), token(report(0, 1), 2)]);
        }
        r.submit(0, []);
        fuse.light(place);
        if place <= TAKEN {
            r.submit(0, [token(write(8, 8), 0), token(read(0, 8), 1), token(report(0, 1), 2)]);
        } else if place == ARM {
            assert!(r.queues[0].arm(Waker::noop()));
        }
        let done = r.finish();
        assert_eq!(done.len(), 3, "place {place}");
        for bio in &done {
            assert_eq!(bio.status, Status::NoDevice, "place {place}");
            // What the device never took is free.
            assert_eq!(late(&r.disk, bio), place != SUBMIT, "place {place}");
        }
        // The queue is dead, and says so at once.
        assert_eq!(r.run(0, [read(0, 8), op(Op::Flush, 0, 0)]), [Status::NoDevice; 2]);
        assert_eq!(r.disk.counters().dead_queues, 1);
        // What a dead queue turns away leaves write pointers alone.
        assert_eq!(r.run(0, [write(64, 8), op(Op::ZoneReset, 128, 64)]), [Status::NoDevice; 2]);
        assert_eq!((r.cached(1).map(|c| c.1), r.cached(2).map(|c| c.1)), (Some(0), Some(0)));
        assert_eq!(r.run(1, [write(64, 8)]), [Status::Ok]);
        // The others are not: the zone recovers there.
        assert!(r.cached(0).is_none(), "the write pointer is unknown");
        r.submit(1, [report(0, 1)]);
        r.finish();
        let (_, wp) = r.cached(0).expect("known again");
        assert_eq!(r.run(1, [write(wp, 8)]), [Status::Ok], "place {place}");
        assert_eq!(lost_bios(), 0);
    }
}

/// I4, W21: a zone whose write was on the queue that died is not stuck, and those behind it are told.
#[test]
fn those_behind_a_write_on_a_dead_queue_are_aborted() {
    let (mut r, fuse) = rig(&[(64, 4), (64, 4)]);
    r.submit(0, [token(write(0, 8), 0)]);
    r.submit(1, [flags(token(write(8, 8), 1), Flags::NOMERGE), token(write(64, 8), 2)]);
    fuse.light(POLL);
    let done = r.finish();
    let statuses: Vec<_> = done.iter().map(|b| b.status).collect();
    assert_eq!(statuses, [Status::NoDevice, Status::AbortedBehind, Status::Ok]);
    assert!(late(&r.disk, &done[0]) && done[1].late().is_none() && done[2].late().is_none());
}

/// What the device gave back in the very call in which it panicked has ended as it says.
#[test]
fn what_came_back_before_the_panic_counts() {
    let (mut r, fuse) = rig(&[(64, 4)]);
    r.submit(0, [token(write(0, 8), 0)]);
    r.now = Nanos(1000);
    fuse.light(POLL);
    r.poll(0);
    assert_eq!((r.done.len(), r.done[0].status), (1, Status::Ok));
    assert_eq!(r.wp(0), 8);
}

/// A freeze, a revalidation and a drop do not wait for a dead queue.
#[test]
fn a_dead_queue_holds_up_nobody() {
    let (mut r, fuse) = rig(&[(64, 4), (64, 4)]);
    r.submit(0, [write(0, 70), read(0, 8)]);
    fuse.light(POLL);
    r.poll(0);
    let mut v = r.disk.revalidate();
    let mut rounds = 0;
    let result = loop {
        r.poll(0);
        if let Some(result) = v.poll(&mut r.queues[1], r.now) {
            break result;
        }
        r.now = r.now.plus(Nanos(100));
        rounds += 1;
        assert!(rounds < 1000, "hang");
    };
    result.expect("the other queue reports");
    drop(r.queues.remove(0));
    assert_eq!(r.cached(0).map(|c| c.1), Some(64), "written after all");
    assert_eq!((r.disk.counters().dead_queues, lost_bios()), (1, 0));
}

/// A queue of the device that panics when it is dropped does not make the drop of the disk's queue panic.
#[test]
fn a_panic_in_a_drop_is_contained() {
    let (mut r, fuse) = rig(&[(64, 4), (64, 4)]);
    fuse.light(DROP);
    drop(r.queues.remove(1));
    assert_eq!((r.disk.counters().dead_queues, r.status(write(0, 8))), (1, Status::Ok));
}

/// A disk whose device panics in the first report does not open, and says why.
#[test]
fn a_device_that_panics_at_once_does_not_open() {
    let dev = EmuDisk::new(make(8, 64, 64).emu).expect("a device");
    let (bomb, fuse) = Bomb::new(dev);
    fuse.light(POLL);
    let e = try_open(bomb, DiskConfig { survive_panics: true, ..DiskConfig::default() });
    let e = e.expect_err("it panicked").to_string();
    assert!(e.contains("report zones failed: no device"), "{e}");
}

/// What others wait with in the scheduler, or for their turn of the single writer, does not go through a dead queue
/// because that one is the first that has a place for it.
/// Q8.
#[test]
fn a_dead_queue_takes_nothing_of_others() {
    for single_writer in [false, true] {
        let set = |c: &mut DiskConfig| {
            if single_writer {
                c.zoned_qd1_writes = Some(true);
            } else {
                (c.scheduler, c.queue_depth) = (Scheduler::MqDeadline, 1);
            }
        };
        let (mut r, fuse) = rig_with(&[(64, 4), (64, 4)], set);
        r.submit(0, [token(write(0, 8), 0)]);
        r.submit(1, [token(write(64, 8), 1), token(write(128, 8), 2), token(write(192, 8), 3)]);
        fuse.light(POLL);
        r.poll(0);
        let done: Vec<_> = r.finish().iter().map(|b| b.status).collect();
        assert_eq!(
            done,
            [Status::NoDevice, Status::Ok, Status::Ok, Status::Ok],
            "single_writer: {single_writer}"
        );
        // Later, too; and what the dead queue is given goes the way of all, which is another's.
        r.submit(0, [token(write(256, 8), 0)]);
        r.submit(1, [token(write(320, 8), 1)]);
        let done: Vec<_> = r.finish().iter().map(|b| b.status).collect();
        assert_eq!(done, [Status::Ok, Status::Ok], "single_writer: {single_writer}");
        // Until there is no other.
        drop(r.queues.remove(1));
        assert_eq!(r.run(0, [write(384, 8)]), [Status::NoDevice]);
        assert!(r.disk.single_writer().turn.is_none() && r.disk.scheduled() == 0);
        assert_eq!(lost_bios(), 0);
    }
}

/// W13: a queue that dies while the disk is being frozen leaves its turn, or its place in the scheduler, to one that
/// has said that it is idle. The freeze waits for that one again; a queue that is dropped with an errand becomes an
/// orphan.
#[test]
fn a_freeze_waits_for_what_a_dead_queue_left() {
    for single_writer in [false, true] {
        for drops in [false, true] {
            let set = |c: &mut DiskConfig| {
                (c.scheduler, c.queue_depth) = (Scheduler::MqDeadline, 1);
                c.zoned_qd1_writes = Some(single_writer);
            };
            let (mut r, fuse) = rig_with(&[(64, 4), (64, 4), (64, 4)], set);
            r.submit(0, [write(0, 8)]);
            r.submit(2, [write(64, 8), write(128, 8)]);
            let freeze = r.disk.begin_freeze();
            r.poll(1);
            r.poll(2);
            assert!(!freeze.poll());
            fuse.light(POLL);
            r.poll(0);
            assert_eq!(r.done.pop().map(|b| b.status), Some(Status::NoDevice));
            // It has nothing any more, and says so.
            r.poll(0);
            assert!(!freeze.poll(), "single_writer: {single_writer}: two writes are on their way");
            assert!(r.queues[1].is_busy());
            if drops {
                drop(r.queues.remove(1));
            }
            let mut rounds = 0;
            while !freeze.poll() {
                r.step();
                rounds += 1;
                assert!(rounds < 100, "hang: {:?}", r.queues);
            }
            assert_eq!(r.disk.counters().waiting, 0);
            drop(freeze);
            let done: Vec<_> = r.finish().iter().map(|b| b.status).collect();
            assert_eq!(done, [Status::Ok; 2], "single_writer: {single_writer}, drops: {drops}");
        }
    }
}

/// P14. A disk that does not survive panics: the panic of one orphan's queue reaches the thread that polls or arms. All
/// orphans are polled on after that.
#[test]
fn a_panic_of_one_orphan_does_not_lose_the_others() {
    for place in [POLL, ARM] {
        let (mut r, fuse) = rig_with(&[(8, 4); 4], |c| c.survive_panics = false);
        for (q, sector) in [(0, 0), (1, 64), (2, 128)] {
            r.submit(q, [write(sector, 8)]);
        }
        // These wait behind the writes of the others.
        r.submit(3, [write(8, 8), write(72, 8), write(136, 8)]);
        r.queues.drain(..3);
        fuse.light(place);
        let last = &mut r.queues[0];
        let panic = catch_unwind(AssertUnwindSafe(|| match place {
            ARM => _ = last.arm(Waker::noop()),
            _ => last.poll(Nanos(0), &mut Bios::new()),
        }));
        assert!(panic.is_err(), "place {place}");
        let freeze = r.disk.begin_freeze();
        let done: Vec<_> = r.finish().iter().map(|b| b.status).collect();
        assert_eq!(done, [Status::Ok; 3], "place {place}");
        r.step();
        assert!(freeze.poll() && lost_bios() == 0, "place {place}");
    }
}
