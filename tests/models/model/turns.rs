//! Models of which write goes first: the single writer's token, the schedulers' table, zone locks, and the switch from
//! one to another. They are as small as those in `cases`. The device checks Q1 (one write on the disk), `queue_depth`
//! and tags beside I1 and I2.

use super::client::*;
use super::*;

/// Where the second zone begins, in blocks.
const Z1: u64 = 8;

/// Two zones, and whatever `set` says.
pub(crate) fn world(set: impl FnOnce(&mut DiskConfig)) -> World {
    let mut config = DiskConfig { shards: 1, ..DiskConfig::default() };
    set(&mut config);
    World { zones: 2, config, ..World::default() }
}

fn single_writer() -> World {
    world(|c| c.zoned_qd1_writes = Some(true))
}

/// `mq-deadline`, with one place at the device.
fn one_place() -> World {
    world(|c| (c.scheduler, c.queue_depth) = (Scheduler::MqDeadline, 1))
}

/// Two threads write one zone each: one of them gets the token, the other is listed while the first submits, while it
/// has the token, or while its turn ends (Q1-Q3, Q8).
pub(crate) fn two_zones_one_writer() {
    let (disk, floor) = single_writer().open();
    let a = Client::new(&disk).with([zeroes(0, 1, 1)]);
    let b = Client::new(&disk).with([zeroes(Z1 * B, 1, 2)]);
    let a = thread::spawn(move || a.finish());
    assert_eq!(b.finish(), [ok(2, Z1)]);
    assert_eq!(a.join().expect("the other writer"), [ok(1, 0)]);
    floor.check_rest(&disk);
}

/// B has the turn and A sleeps, listed: B's poll sends A's write. Both zones have a second write, A's from B: the zone
/// of the turn is listed anew while the turn ends (Q5).
pub(crate) fn a_turn_is_handed_over() {
    let (disk, floor) = single_writer().open();
    let [b, a] = submitted(&disk, [zeroes(0, 1, 2), zeroes(Z1 * B, 1, 1)]);
    let a = a.with([zeroes(B, 1, 3)]);
    let a = thread::spawn(move || a.finish());
    assert_eq!(b.finish(), [ok(2, 0)]);
    assert_eq!(a.join().expect("the listed one"), [ok(1, Z1), ok(3, 1)]);
    floor.check_rest(&disk);
}

/// The queue that has the token is dropped while A, listed, goes to sleep (Q11).
pub(crate) fn a_turn_of_a_closing_queue() {
    let (disk, floor) = single_writer().open();
    let [b, a] = submitted(&disk, [zeroes(0, 1, 2), zeroes(Z1 * B, 1, 1)]);
    let a = thread::spawn(move || a.finish());
    drop(b);
    assert_eq!(a.join().expect("the listed one"), [ok(1, Z1)]);
    floor.check_rest(&disk);
}

/// An orphan has the token; A is listed, and C lists the zone of the turn while the orphan's turn ends.
pub(crate) fn a_turn_of_an_orphan() {
    let (disk, floor) = single_writer().open();
    let [b, a] = submitted(&disk, [zeroes(0, 1, 2), zeroes(Z1 * B, 1, 1)]);
    drop(b);
    let c = Client::new(&disk).with([zeroes(B, 1, 3)]);
    let a = thread::spawn(move || a.finish());
    assert_eq!(c.finish(), [ok(3, 1)]);
    assert_eq!(a.join().expect("the listed one"), [ok(1, Z1)]);
    floor.check_rest(&disk);
}

/// B waits with the token for more of its zone, and A is listed: A brings just that, while B's wait ends (Q3).
pub(crate) fn a_wait_that_another_ends() {
    let set = |c: &mut DiskConfig| {
        (c.zoned_qd1_writes, c.anticipation) = (Some(true), Nanos(10));
    };
    let (disk, floor) = world(set).open();
    let [mut b, a] = submitted(&disk, [zeroes(0, 1, 2), zeroes(Z1 * B, 1, 1)]);
    b.poll();
    let a = a.with([zeroes(B, 1, 3)]);
    let a = thread::spawn(move || a.finish());
    assert_eq!(b.finish(), [ok(2, 0)]);
    assert_eq!(a.join().expect("the listed one"), [ok(1, Z1), ok(3, 1)]);
    floor.check_rest(&disk);
}

/// Zones 0 and 1 are under one head, zone 2 under another.
fn two_spindles() -> World {
    World { zones: 3, spindles: &[7, 7, 9], ..single_writer() }
}

/// B has a turn under each head, and both writes are at the device. A is listed under the first one, and brings more
/// for the turn under the second: neither waits for what the other head does.
pub(crate) fn one_writer_for_each_spindle() {
    let (disk, floor) = two_spindles().open();
    let mut b = Client::new(&disk).with([zeroes(0, 1, 1), zeroes(2 * Z1 * B, 1, 2)]);
    b.submit();
    assert_eq!(floor.flying(), 2, "one write for each spindle");
    let a = Client::new(&disk).with([zeroes(Z1 * B, 1, 3), zeroes((2 * Z1 + 1) * B, 1, 4)]);
    let a = thread::spawn(move || a.finish());
    assert_eq!(b.finish(), [ok(1, 0), ok(2, 2 * Z1)]);
    assert_eq!(a.join().expect("the listed one"), [ok(3, Z1), ok(4, 2 * Z1 + 1)]);
    floor.check_rest(&disk);
}

/// The queue that has the tokens of both spindles is dropped while A, listed under one head, goes to sleep (Q11).
pub(crate) fn two_turns_of_a_closing_queue() {
    let (disk, floor) = two_spindles().open();
    let mut b = Client::new(&disk).with([zeroes(0, 1, 1), zeroes(2 * Z1 * B, 1, 2)]);
    let mut a = Client::new(&disk).with([zeroes(Z1 * B, 1, 3)]);
    b.submit();
    a.submit();
    let a = thread::spawn(move || a.finish());
    drop(b);
    assert_eq!(a.join().expect("the listed one"), [ok(3, Z1)]);
    // The orphan's turn under the other head has ended for the next client.
    assert_eq!(
        Client::new(&disk).with([zeroes((2 * Z1 + 1) * B, 1, 5)]).finish(),
        [ok(5, 2 * Z1 + 1)]
    );
    floor.check_rest(&disk);
}

/// B's write fails, and with it its turn ends; A is listed, and goes on (Q6).
pub(crate) fn a_turn_that_fails() {
    let (disk, floor) = World { fails_at: B, ..single_writer() }.open();
    let b = before_a_failure(&disk);
    let [a] = submitted(&disk, [zeroes(Z1 * B, 1, 1)]);
    let a = thread::spawn(move || a.finish());
    assert_eq!(b.finish(), [ok(0, 0), failed()]);
    assert_eq!(a.join().expect("the listed one"), [ok(1, Z1)]);
    floor.check_rest(&disk);
}

/// What waits for its turn is aborted by a reset while the turn before it ends (Q7, M4): the list and the plug agree,
/// and the next write of the zone is not forgotten.
pub(crate) fn an_abort_against_a_turn() {
    let (disk, floor) = World { strict: false, ..single_writer() }.open();
    let [b, a] = submitted(&disk, [zeroes(0, 1, 2), zeroes(Z1 * B, 1, 1)]);
    let r = Client::new(&disk).with([reset(Z1 * B, 8, 3)]);
    let b = thread::spawn(move || b.finish());
    assert_eq!(r.finish(), [ok(3, Z1)]);
    assert_eq!(b.join().expect("the one with the turn"), [ok(2, 0)]);
    let status = a.finish()[0].status;
    assert!(matches!(status, Status::Ok | Status::AbortedByManagement), "M4: {status:?}");
    // After a reset and a write at the same time the write pointer may be anywhere. After another reset the next write
    // is listed anew.
    assert_eq!(Client::new(&disk).with([reset(Z1 * B, 8, 4)]).finish(), [ok(4, Z1)]);
    assert_eq!(Client::new(&disk).with([append(Z1 * B, 5)]).finish(), [ok(5, Z1)], "Q7");
    floor.check_rest(&disk);
}

/// Changes an attribute; `poll` is called meanwhile. The device expects what the new value promises from the thaw on,
/// and what the old one did until the change begins.
pub(crate) fn change(disk: &Disk, floor: &Floor, name: &str, value: &str, mut poll: impl FnMut()) {
    let on = |name: &str, off: &str| disk.attribute(name).is_some_and(|v| v != off);
    let now = |floor: &Floor, but: &str| {
        let (writer, scheduler) = ("zoned_qd1_writes", "scheduler");
        floor.expects(but != writer && on(writer, "0"), but != scheduler && on(scheduler, "none"));
    };
    now(floor, name);
    let mut change = disk.change_attribute(name, value).expect("it is an attribute");
    while !change.poll() {
        poll();
        thread::yield_now();
    }
    now(floor, "");
}

/// The attribute is changed while A submits, is turned away, sleeps and goes on under the new rules (Q9).
pub(crate) fn change_against_a_submit(name: &str, value: &str) {
    let (disk, floor) = world(|_| ()).open();
    let a = Client::new(&disk).with([append(0, 1), append(Z1 * B, 2)]);
    let a = thread::spawn(move || a.finish());
    change(&disk, &floor, name, value, || ());
    assert_eq!(a.join().expect("the client"), [ok(1, 0), ok(2, Z1)]);
    floor.check_rest(&disk);
}

/// [`change_against_a_submit`]: a single writer.
pub(crate) fn a_writer_is_switched_on() {
    change_against_a_submit("zoned_qd1_writes", "1");
}

/// [`change_against_a_submit`]: a scheduler.
pub(crate) fn a_scheduler_is_switched_on() {
    change_against_a_submit("scheduler", "mq-deadline");
}

/// One place at the device, two threads that read: the one that finds it taken leaves its request behind and sleeps.
/// The one that gives the place back takes the request (I4).
pub(crate) fn one_place_at_the_device() {
    let (disk, floor) = one_place().open();
    let a = Client::new(&disk).with([read(0, 1)]);
    let b = Client::new(&disk).with([read(B, 2)]);
    let a = thread::spawn(move || a.finish());
    assert_eq!(b.finish(), [ok(2, 1)]);
    assert_eq!(a.join().expect("the other reader"), [ok(1, 0)]);
    floor.check_rest(&disk);
}

/// The queue that has the one place is dropped, and A's request is in the scheduler (R40).
pub(crate) fn one_place_and_a_closing_queue() {
    let (disk, floor) = one_place().open();
    let [b, a] = submitted(&disk, [read(0, 2), append(0, 1)]);
    let a = thread::spawn(move || a.finish());
    drop(b);
    assert_eq!(a.join().expect("who waits"), [ok(1, 0)]);
    floor.check_rest(&disk);
}

/// A turn goes through the scheduler: B's read has the place that A's turn needs, and A's tag is at neither.
pub(crate) fn a_turn_in_the_scheduler() {
    let set = |c: &mut DiskConfig| {
        (c.scheduler, c.queue_depth) = (Scheduler::MqDeadline, 1);
        c.zoned_qd1_writes = Some(true);
    };
    let (disk, floor) = world(set).open();
    let mut b = Client::new(&disk).with([read(0, 2)]);
    let a = Client::new(&disk).with([append(0, 1)]);
    b.submit();
    let b = b.with([append(Z1 * B, 3)]);
    let a = thread::spawn(move || a.finish());
    assert_eq!(b.finish(), [ok(2, 0), ok(3, Z1)]);
    assert_eq!(a.join().expect("the writer"), [ok(1, 0)]);
    floor.check_rest(&disk);
}

fn locks() -> World {
    world(|c| c.mode = Mode::Lock)
}

/// Zone locks: B's write has the lock that A's waits for, and A sleeps (C1).
pub(crate) fn a_locked_zone() {
    let (disk, floor) = locks().open();
    let [b, a] = submitted(&disk, [zeroes(0, 1, 2), zeroes(B, 1, 1)]);
    let a = thread::spawn(move || a.finish());
    assert_eq!(b.finish(), [ok(2, 0)]);
    assert_eq!(a.join().expect("who waits for the lock"), [ok(1, 1)]);
    floor.check_idle(&disk);
}

/// The same, and A's only tag is with the write that B sends: its read waits for the tag to come back from B (C1, C3).
pub(crate) fn a_tag_comes_back_from_another() {
    let (disk, floor) = locks().open();
    let mut b = Client::new(&disk).with([zeroes(0, 1, 2)]);
    let mut a = Client::of_tags(&disk, 1).with([zeroes(B, 1, 1), read(0, 3)]);
    b.submit();
    a.submit();
    let a = thread::spawn(move || a.finish());
    assert_eq!(b.finish(), [ok(2, 0)]);
    assert_eq!(a.join().expect("who waits for its tag"), [ok(1, 1), ok(3, 0)]);
    floor.check_idle(&disk);
}

/// A's write is parked behind one that a dropped queue left at a device that says nothing of when it will be done: what
/// it wakes is that queue's waker (R40).
pub(crate) fn an_orphan_that_the_device_tells_of() {
    let (disk, floor) = World { tells: true, ..World::default() }.open();
    let [b, a] = submitted(&disk, [zeroes(0, 1, 2), zeroes(B, 1, 1)]);
    drop(b);
    let a = thread::spawn(move || a.finish());
    floor.ring();
    assert_eq!(a.join().expect("the parked one"), [ok(1, 1)]);
    floor.check_rest(&disk);
}

/// A device queue dies with B's write; A is listed, or in the scheduler, and C too.
fn doomed(scheduler: Scheduler) -> World {
    let set = |c: &mut DiskConfig| {
        (c.scheduler, c.queue_depth, c.survive_panics) = (scheduler, 1, true);
        c.zoned_qd1_writes = Some(scheduler == Scheduler::None);
    };
    World { dies_at: Some(0), ..world(set) }
}

fn a_dead_queue(scheduler: Scheduler) {
    let (disk, floor) = doomed(scheduler).open();
    let [b, a] = submitted(&disk, [zeroes(0, 1, 2), zeroes(Z1 * B, 1, 1)]);
    let a = thread::spawn(move || a.finish());
    let dead = Answer { token: 2, status: Status::NoDevice, sector: Sector(0) };
    assert_eq!(b.finish(), [dead]);
    assert_eq!(a.join().expect("the listed one"), [ok(1, Z1)], "the dead queue failed it");
    floor.check_idle(&disk);
}

/// B's queue of the device dies with the write of its turn: A, which is listed and sleeps, goes on in its place.
pub(crate) fn a_dead_queue_leaves_its_turn() {
    a_dead_queue(Scheduler::None);
}

/// The same with a scheduler: A's request is in it, and A sleeps.
pub(crate) fn a_dead_queue_leaves_its_place() {
    a_dead_queue(Scheduler::MqDeadline);
}

/// What a dead queue leaves goes to one that has told a freeze that it is idle (W13).
pub(crate) fn a_dead_queue_against_a_freeze() {
    let (disk, floor) = doomed(Scheduler::MqDeadline).open();
    let mut a = Client::new(&disk).with([read(Z1 * B, 1)]);
    let mut b = Client::new(&disk).with([zeroes(0, 1, 2)]);
    b.submit();
    a.submit();
    let freeze = disk.begin_freeze();
    // It has nothing that it could do, and says so.
    a.poll();
    let b = thread::spawn(move || b.finish());
    if freeze.poll() {
        floor.frozen();
        a.poll();
        floor.thawing();
    }
    drop(freeze);
    assert_eq!(a.finish(), [ok(1, Z1)], "it goes on in its place");
    let dead = Answer { token: 2, status: Status::NoDevice, sector: Sector(0) };
    assert_eq!(b.join().expect("whose queue died"), [dead]);
    floor.check_idle(&disk);
}
