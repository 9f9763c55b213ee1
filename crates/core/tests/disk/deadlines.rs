//! Command deadlines: a drive that does not answer neither corrupts nor hangs, and an answer that comes late changes
//! nothing.

use crate::common::*;
use std::sync::Arc;
use zoneplug_core::disk::DiskConfig;
use zoneplug_core::sched::Scheduler;
use zoneplug_core::{Flags, Nanos, Op, Status, ZoneNo, lost_bios};
use zoneplug_devices::emu::EmuDisk;
use zoneplug_devices::stack::FaultDisk;

/// Commands have 1 ms.
fn rig(plan: &str, queues: &[(u32, u16)]) -> (Rig, Arc<FaultDisk>) {
    rig_with(plan, queues, |_| ())
}

fn rig_with(
    plan: &str,
    queues: &[(u32, u16)],
    set: impl FnOnce(&mut DiskConfig),
) -> (Rig, Arc<FaultDisk>) {
    let make = make(8, 64, 64).queues(queues);
    let dev = EmuDisk::new(make.emu).expect("a device");
    let fault = FaultDisk::new(dev.clone(), &plan.parse().expect("a plan")).expect("a layer");
    let mut config = DiskConfig { timeout: Some(Nanos(1_000_000)), ..DiskConfig::default() };
    set(&mut config);
    let disk = open(fault.clone(), config);
    let queues = make.queues.iter().map(|&(d, t)| disk.open_polled_queue(d, t).expect("a queue"));
    let queues = queues.collect();
    (Rig { dev, disk, queues, now: Nanos(0), done: Vec::new() }, fault)
}

#[test]
fn a_write_that_does_not_come_back_times_out_and_its_zone_recovers() {
    let (mut r, _) = rig("write/lost", &[(64, 4)]);
    let bios = [token(write(0, 8), 0), token(write(8, 8), 1), token(write(64, 8), 2)];
    let bios = bios.map(|b| flags(b, Flags::NOMERGE));
    assert_eq!(r.run(0, bios), [Status::Timeout, Status::AbortedBehind, Status::Ok]);
    assert_eq!((r.now, r.queues[0].late()), (Nanos(1_000_000), 1));
    assert!(r.cached(0).is_none(), "the write pointer is unknown");
    assert_eq!(r.report(0, 1)[0].wp.0, 8, "it was carried out after all");
    assert_eq!(r.run(0, [write(8, 8)]), [Status::Ok]);
    assert_eq!(r.medium(0, 16), (0..16).collect::<Vec<_>>());
    assert_eq!(lost_bios(), 0);
}

#[test]
fn a_late_completion_changes_nothing() {
    let (mut r, _) = rig("write/delay=5ms", &[(64, 1)]);
    assert_eq!(r.run(0, [write(0, 8)]), [Status::Timeout]);
    assert_eq!(r.queues[0].late(), 1);
    let has_late = |r: &Rig| [0, 1].map(|zone| r.disk.has_late(ZoneNo(zone)));
    assert_eq!(has_late(&r), [true, false]);
    r.report(0, 1);
    assert_eq!(
        r.run(0, [write(8, 8)]),
        [Status::Ok],
        "its tag is free, its place at the device is not"
    );
    r.now = Nanos(6_000_000);
    r.poll(0);
    assert_eq!((r.done.len(), r.queues[0].late()), (0, 0), "nobody is told twice");
    assert_eq!(has_late(&r), [false; 2]);
    assert_eq!(r.wp(0), 16);
    assert_eq!(r.run(0, [write(16, 8), read(0, 8)]), [Status::Ok; 2]);
}

/// Appends, reads, flushes, management and reports have deadlines too; the parts of a split BIO as well.
#[test]
fn every_operation_has_a_deadline() {
    let (mut r, _) = rig("any/lost/count=all/skip=1", &[(64, 16)]);
    let bios = [
        append(0, 8, 7),
        read(60, 8),
        op(Op::Flush, 0, 0),
        op(Op::ZoneReset, 128, 64),
        op(Op::ZoneFinish, 192, 64),
        report(0, 1),
        write(256, 70),
    ];
    assert_eq!(r.run(0, bios), [Status::Timeout; 7]);
    assert!(
        r.cached(2).is_none() && r.cached(3).is_none(),
        "a reset that timed out may happen yet"
    );
    let late = [0, 1, 2, 3, 4, 5, 8].map(|zone| r.disk.has_late(ZoneNo(zone)));
    assert_eq!(late, [true, false, true, true, true, true, false], "reads and reports change none");
}

/// When every place at the device is taken by commands that do not come back, it is offline: nothing waits for it.
#[test]
fn a_device_without_answers_is_offline() {
    let (mut r, f) = rig("any/lost/count=all/skip=1", &[(64, 2)]);
    let reads: Vec<_> = (0..12).map(|i| read(i * 8, 8)).collect();
    let statuses = r.run(0, reads);
    assert_eq!(
        statuses.iter().filter(|s| **s == Status::Timeout).count(),
        3,
        "two tags and one more"
    );
    assert_eq!(statuses.iter().filter(|s| **s == Status::NoDevice).count(), 9);
    assert_eq!(r.queues[0].late(), 3);
    assert_eq!(r.run(0, [write(0, 8)]), [Status::NoDevice]);
    assert_eq!(r.wp(0), 0, "the device has not seen it");
    // The device comes back: what was late ends, and the queue works again.
    f.clear();
    f.power_cut().expect("the power comes back");
    r.poll(0);
    assert_eq!(r.queues[0].late(), 0);
    assert_eq!(r.run(0, [read(0, 8)]), [Status::Ok]);
}

/// A queue that is dropped stays until the device has given back what it holds.
#[test]
fn a_dropped_queue_waits_for_its_late_commands() {
    let (mut r, _) = rig("write/delay=5ms", &[(64, 2), (64, 2)]);
    assert_eq!(r.run(1, [write(0, 8)]), [Status::Timeout]);
    drop(r.queues.remove(1));
    let freeze = r.disk.begin_freeze();
    r.poll(0);
    assert!(freeze.poll(), "a freeze does not wait for them");
    drop(freeze);
    r.now = Nanos(9_000_000);
    r.poll(0);
    assert_eq!(r.run(0, [write(64, 8)]), [Status::Ok]);
    assert_eq!(lost_bios(), 0);
}

/// The ticket of a BIO is of the disk: its write may be late on a queue that its owner has never seen.
#[test]
fn memory_is_in_use_until_the_queue_that_has_the_command_has_it_back() {
    let (mut r, _) = rig("write/delay=5ms/skip=1", &[(64, 2), (64, 2)]);
    r.submit(0, [token(write(0, 8), 0)]);
    let second = write(8, 8);
    let lent = second.data().range();
    r.submit(1, [flags(token(second, 1), Flags::NOMERGE)]);
    // The first comes back on queue 0, which sends the second in the name of queue 1.
    let done = r.finish();
    let statuses: Vec<_> = done.iter().map(|b| b.status).collect();
    assert_eq!(statuses, [Status::Ok, Status::Timeout]);
    assert_eq!((r.queues[0].late(), r.queues[1].late()), (1, 0), "on the other's queue");
    assert_eq!((done[0].late(), done[0].data().len()), (None, 4096));
    assert!(done[1].data().is_empty(), "it comes back without its memory");
    let late = done[1].late().expect("the device may still read it");
    r.now = Nanos(9_000_000);
    r.poll(1);
    assert!(r.disk.is_late(late), "queue 1 does not have it");
    assert!(r.disk.reclaim(lent).is_none());
    r.poll(0);
    assert!(!r.disk.is_late(late));
    assert_eq!(r.disk.reclaim(lent).map(|buf| buf.range()), Some(lent));
    assert!(r.disk.reclaim(lent).is_none(), "once");
}

/// A split BIO is late while any of its parts is, whatever its own status.
#[test]
fn a_split_bio_is_late_while_a_part_is() {
    let (mut r, _) = rig("read/io/zone=0+read/delay=3ms/zone=1+read/delay=5ms/zone=2", &[(64, 8)]);
    let bio = read(0, 192);
    let lent = bio.data().range();
    let mut bio = r.one(bio);
    assert_eq!(bio.status, Status::Io, "the first part failed first");
    let late = bio.late().expect("two of its parts are still at the device");
    r.now = Nanos(4_000_000);
    r.poll(0);
    assert_eq!(r.queues[0].late(), 1);
    assert!(r.disk.is_late(late) && r.disk.reclaim(lent).is_none(), "not even a part of it");
    r.now = Nanos(6_000_000);
    r.poll(0);
    assert!(!r.disk.is_late(late));
    bio.set_buf(r.disk.reclaim(lent).expect("all of it"));
    let again = r.one(bio);
    assert_eq!((again.status, again.late()), (Status::Ok, None), "a BIO that is used again");
    assert_eq!((r.disk.counters().timeouts, r.disk.counters().late), (2, 0));
}

/// A queue that is given up with late commands leaves their memory in use for ever, and holds up nothing.
#[test]
fn an_abandoned_queue_leaves_its_late_commands_late() {
    let (mut r, _) = rig("write/lost", &[(64, 2), (64, 2)]);
    r.submit(1, [write(0, 8)]);
    let bio = r.finish().remove(0);
    let late = bio.late().expect("it is late");
    assert_eq!(r.queues[1].abandon(), 1);
    drop(r.queues.remove(1));
    r.now = Nanos(99_000_000);
    r.poll(0);
    assert!(r.disk.is_late(late));
    assert_eq!((r.queues[0].next_deadline(), r.disk.counters().late, lost_bios()), (None, 1, 0));
}

/// Deadlines are kept in the order of submission, and early completions do not leave old ones behind.
#[test]
fn a_deadline_is_there_while_a_command_is() {
    let (mut r, _) = rig("read/delay=900us/from=0/to=512", &[(64, 8)]);
    r.submit(0, [read(0, 8), read(8, 8)]);
    r.poll(0);
    r.now = Nanos(100);
    r.poll(0);
    assert_eq!(r.done.len(), 1);
    assert_eq!(r.queues[0].next_deadline(), Some(Nanos(900_100)));
    r.drain();
    assert_eq!(r.queues[0].next_deadline(), None);
    r.submit(0, [read(16, 8)]);
    assert_eq!(r.finish().len(), 3);
    assert_eq!(r.disk.counters().timeouts, 0);
}

/// Q8: a queue whose places at the device are all late fails no work of other queues: its turn, and its place in
/// the scheduler, go to another queue.
#[test]
fn a_queue_that_is_all_late_takes_nothing_of_others() {
    for single_writer in [false, true] {
        let set = |c: &mut DiskConfig| {
            (c.scheduler, c.queue_depth) = (Scheduler::MqDeadline, 1);
            c.zoned_qd1_writes = Some(single_writer);
        };
        // Two places: one tag, and that of the disk's own reports.
        let (mut r, _) = rig_with("read/lost/count=all", &[(64, 1), (64, 4)], set);
        for _ in 0..2 {
            assert_eq!(r.run(0, [read(0, 8)]), [Status::Timeout]);
        }
        assert_eq!(r.queues[0].late(), 2);
        r.submit(0, [token(write(0, 8), 0)]);
        r.submit(1, (1..5).map(|z| token(write(z * 64, 8), z)));
        assert!(r.finish().iter().all(|b| b.status.is_ok()), "single_writer: {single_writer}");
        assert_eq!(lost_bios(), 0);
    }
}

/// A queue that late commands keep takes no BIOs and has one tag when it has shrunk. It carries out what a queue that is all late
/// leaves to it, and closes as ever. A queue that has work does not shrink.
#[test]
fn a_queue_that_has_shrunk_carries_out_what_others_leave_to_it() {
    for single_writer in [false, true] {
        let set = |c: &mut DiskConfig| {
            (c.scheduler, c.queue_depth) = (Scheduler::MqDeadline, 1);
            c.zoned_qd1_writes = Some(single_writer);
        };
        let (mut r, fault) = rig_with("read/lost/count=all", &[(64, 1), (64, 4)], set);
        assert_eq!(r.run(1, [read(0, 8)]), [Status::Timeout]);
        r.submit(1, [write(448, 8)]);
        r.queues[1].shrink();
        assert_eq!(r.queues[1].room(), 63, "it has work");
        assert!(r.finish()[0].status.is_ok());
        r.queues[1].shrink();
        assert_eq!((r.queues[1].room(), r.queues[1].late()), (0, 1));
        assert!(format!("{:?}", r.queues[1]).contains("free_tags: 1"));
        for _ in 0..2 {
            assert_eq!(r.run(0, [read(0, 8)]), [Status::Timeout]);
        }
        r.submit(0, (0..5).map(|z| token(write(z * 64, 8), z)));
        assert!(r.finish().iter().all(|b| b.status.is_ok()), "single_writer: {single_writer}");
        fault.clear();
        fault.power_cut().expect("the power comes back");
        r.poll(1);
        assert_eq!(r.queues[1].late(), 0);
        drop(r.queues.remove(1));
        r.poll(0);
        assert_eq!((r.run(0, [read(0, 8)]), lost_bios()), (vec![Status::Ok], 0));
    }
}
