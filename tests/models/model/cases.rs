//! The models: what the threads do at the same time, and what must be true afterwards. Each is small enough for loom,
//! and runs under shuttle too. The larger ones are in `shuttle_disk.rs`.

use super::client::*;
use super::*;

/// The answers of one block each, in the order of their sectors.
fn sectors(answers: &[Answer]) -> Vec<u64> {
    let mut all: Vec<_> = answers
        .iter()
        .map(|a| {
            assert_eq!(a.status, Status::Ok, "{a:?}");
            a.sector.0 / B
        })
        .collect();
    all.sort();
    all
}

/// Two threads append to one zone, complete each other's BIOs and leave (I1-I4, W14, A4).
pub(crate) fn two_writers() {
    let (disk, floor) = World::default().open();
    let a = Client::new(&disk).with([append(0, 1)]);
    let b = Client::new(&disk).with([append(0, 2)]);
    let a = thread::spawn(move || a.finish());
    let mut all = b.finish();
    all.extend(a.join().expect("the other writer"));
    assert_eq!(sectors(&all), [0, 1], "A4: each append has a sector of its own");
    assert_eq!(floor.written(0), 2);
    floor.check_rest(&disk);
}

/// A's write is parked behind B's: B's poll completes its own, sends A's through B's queue and delivers it to A's
/// mailbox while A arms and sleeps.
pub(crate) fn hand_over() {
    let (disk, floor) = World::default().open();
    let [b, a] = submitted(&disk, [zeroes(0, 1, 2), zeroes(B, 1, 1)]);
    let a = thread::spawn(move || a.finish());
    assert_eq!(b.finish(), [ok(2, 0)]);
    assert_eq!(a.join().expect("the parked one"), [ok(1, 1)]);
    floor.check_rest(&disk);
}

/// Two of A's are parked behind B's, and merging is off: A collects the first delivery while B makes the second.
pub(crate) fn hand_over_one_by_one() {
    let config = DiskConfig { shards: 1, nomerges: true, ..DiskConfig::default() };
    let (disk, floor) = World { config, ..World::default() }.open();
    let mut b = Client::new(&disk).with([zeroes(0, 1, 3)]);
    let mut a = Client::new(&disk).with([zeroes(B, 1, 1), zeroes(2 * B, 1, 2)]);
    b.submit();
    a.submit();
    let a = thread::spawn(move || a.finish());
    assert_eq!(b.finish(), [ok(3, 0)]);
    assert_eq!(a.join().expect("the parked ones"), [ok(1, 1), ok(2, 2)]);
    floor.check_rest(&disk);
}

/// A's only tag is at a read: its append has the plug and waits for the tag, and B's append waits for A's (W21, C3).
pub(crate) fn tag_shortage() {
    let (disk, floor) = World::default().open();
    let mut a = Client::of_tags(&disk, 1).with([read(0, 1), append(0, 2)]);
    let b = Client::new(&disk).with([append(0, 3)]);
    a.submit();
    let a = thread::spawn(move || a.finish());
    assert_eq!(b.finish(), [ok(3, 1)]);
    assert_eq!(a.join().expect("the reader"), [ok(1, 0), ok(2, 0)]);
    floor.check_rest(&disk);
}

/// The same, but B's write fails: A's is aborted by B's poll, and delivered to A (E1, I7).
pub(crate) fn hand_over_of_an_abort() {
    let (disk, floor) = World { fails_at: B, ..World::default() }.open();
    let b = before_a_failure(&disk);
    let [a] = submitted(&disk, [zeroes(2 * B, 1, 1)]);
    let a = thread::spawn(move || a.finish());
    assert_eq!(b.finish(), [ok(0, 0), failed()]);
    let behind = Answer { token: 1, status: Status::AbortedBehind, sector: Sector(2 * B) };
    assert_eq!(a.join().expect("the parked one"), [behind]);
    floor.check_rest(&disk);
}

/// A's write comes before its place, and B's fills the gap. A's is admitted by either, or expires: the clocks of the
/// clients may run ahead (H3, H5).
pub(crate) fn early_write_against_its_gap() {
    let order_window = Nanos(1000);
    let config = DiskConfig { shards: 1, order_window, ..DiskConfig::default() };
    let (disk, floor) = World { config, ..World::default() }.open();
    let a = Client::new(&disk).with([zeroes(B, 1, 1)]);
    let b = Client::new(&disk).with([zeroes(0, 1, 2)]);
    let a = thread::spawn(move || a.finish());
    assert_eq!(b.finish(), [ok(2, 0)]);
    let early = Answer { token: 1, status: Status::NotAtWritePointer, sector: Sector(B) };
    let a = a.join().expect("the early one");
    assert!(a == [ok(1, 1)] || a == [early], "{a:?}");
    let window = disk.counters().window;
    assert_eq!((window.writes, window.held), (0, window.admitted + window.expired), "{window:?}");
    floor.check_rest(&disk);
}

/// A queue is dropped with its write in flight, and A's behind it (R40): A finishes both.
pub(crate) fn dropped_queue() {
    let (disk, floor) = World::default().open();
    let [b, a] = submitted(&disk, [zeroes(0, 1, 2), zeroes(B, 1, 1)]);
    let a = thread::spawn(move || a.finish());
    drop(b);
    assert_eq!(a.join().expect("the parked one"), [ok(1, 1)]);
    floor.check_rest(&disk);
}

/// The queue is gone already, and two others meet over what it left: A waits for its write, C has a read and leaves.
pub(crate) fn two_pollers_of_an_orphan() {
    let (disk, floor) = World::default().open();
    let c = Client::new(&disk).with([read(0, 3)]);
    let [b, a] = submitted(&disk, [zeroes(0, 1, 2), zeroes(B, 1, 1)]);
    drop(b);
    let a = thread::spawn(move || a.finish());
    assert_eq!(c.finish(), [ok(3, 0)]);
    assert_eq!(a.join().expect("the parked one"), [ok(1, 1)]);
    floor.check_rest(&disk);
}

/// The queue is gone already; C polls once, and then does something else for as long as A waits. So many writes are
/// before A's that A sleeps between them.
pub(crate) fn a_poller_that_turns_away() {
    let config = DiskConfig { shards: 1, nomerges: true, ..DiskConfig::default() };
    let (disk, floor) = World { config, ..World::default() }.open();
    let mut b = Client::new(&disk).with((0..3).map(|n| zeroes(n * B, 1, 2 + n)));
    let mut a = Client::new(&disk).with([zeroes(3 * B, 1, 1)]);
    let mut c = Client::new(&disk);
    b.submit();
    a.submit();
    drop(b);
    let a = thread::spawn(move || a.finish());
    c.poll();
    assert_eq!(a.join().expect("the parked one"), [ok(1, 3)]);
    drop(c);
    floor.check_rest(&disk);
}

/// While A polls one orphan, another is dropped: A's write is behind the second.
pub(crate) fn a_second_orphan() {
    let (disk, floor) = World { zones: 2, ..World::default() }.open();
    let bios = [zeroes(8 * B, 1, 3), zeroes(0, 1, 2), zeroes(B, 1, 1)];
    let [first, b, a] = submitted(&disk, bios);
    drop(first);
    let a = thread::spawn(move || a.finish());
    drop(b);
    assert_eq!(a.join().expect("the parked one"), [ok(1, 1)]);
    assert_eq!((floor.written(0), floor.written(1)), (2, 1));
    floor.check_rest(&disk);
}

/// Two writes that span both zones, at the same place: one is admitted whole, the other not at all (W4, P16).
pub(crate) fn spanning_writes() {
    let config = DiskConfig { shards: 2, ..DiskConfig::default() };
    let (disk, floor) = World { zones: 2, zone_blocks: 2, config, ..World::default() }.open();
    let a = Client::new(&disk).with([zeroes(0, 3, 1)]);
    let b = Client::new(&disk).with([zeroes(0, 3, 2)]);
    let a = thread::spawn(move || a.finish());
    let mut all = b.finish();
    all.extend(a.join().expect("the other writer"));
    let won = all.iter().filter(|a| a.status == Status::Ok).count();
    assert_eq!((all.len(), won), (2, 1), "W4: {all:?}");
    assert_eq!((floor.written(0), floor.written(1)), (2, 1));
    floor.check_rest(&disk);
}

/// Freeze and thaw against a client that submits, is turned away, sleeps and is woken (W13, W22).
pub(crate) fn freeze_against_a_submit() {
    let (disk, floor) = World::default().open();
    let a = Client::new(&disk).with([append(0, 1)]);
    let a = thread::spawn(move || a.finish());
    hold(disk.begin_freeze(), &floor, 2);
    assert_eq!(a.join().expect("the client"), [ok(1, 0)]);
    floor.check_rest(&disk);
}

/// Freeze against polls: A's write is parked behind B's, and both drain (W13).
pub(crate) fn freeze_against_polls() {
    let (disk, floor) = World::default().open();
    let [b, a] = submitted(&disk, [zeroes(0, 1, 2), zeroes(B, 1, 1)]);
    let a = thread::spawn(move || a.finish());
    let b = thread::spawn(move || b.finish());
    hold(disk.begin_freeze(), &floor, 1);
    assert_eq!(b.join().expect("the first"), [ok(2, 0)]);
    assert_eq!(a.join().expect("the parked one"), [ok(1, 1)]);
    floor.check_rest(&disk);
}

/// A revalidation with a client that submits: it drains, reads what the device has, commits, and the client goes on.
pub(crate) fn revalidate_against_a_submit() {
    let (disk, floor) = World::default().open();
    let a = Client::new(&disk).with([append(0, 1)]);
    let mut c = Client::new(&disk);
    let a = thread::spawn(move || a.finish());
    revalidate(&disk, &mut c);
    assert_eq!(a.join().expect("the client"), [ok(1, 0)]);
    floor.check_rest(&disk);
}

/// A whole revalidation through the queue of `c`.
pub(crate) fn revalidate(disk: &Disk, c: &mut Client) {
    let mut revalidation = disk.revalidate();
    loop {
        if let Some(result) = revalidation.poll(&mut c.queue, NOW) {
            return result.expect("the report is good");
        }
        thread::yield_now();
    }
}

/// With strict management a reset and a write never meet in a zone: one of them is turned away, or they come one after
/// the other, and the layer knows the write pointer either way (M5).
pub(crate) fn strict_reset_against_a_write() {
    let config = DiskConfig { shards: 1, strict_management: true, ..DiskConfig::default() };
    let (disk, floor) = World { zones: 2, config, ..World::default() }.open();
    let r = Client::new(&disk).with([reset(0, 8, 1)]);
    let a = Client::new(&disk).with([append(0, 2)]);
    let a = thread::spawn(move || a.finish());
    let both = [r.finish(), a.join().expect("the writer")].concat();
    let busy = both.iter().filter(|a| a.status == Status::ZoneBusy).count();
    let done = both.iter().filter(|a| a.status == Status::Ok).count();
    assert!(done >= 1 && done + busy == 2, "M5: {both:?}");
    floor.check_rest(&disk);
}

/// A world whose zones recover by themselves, and of which the write to the second block fails with all of its data
/// there. The first block is written, and the second is at the device.
fn failing() -> (Disk, Arc<Floor>, Client) {
    let zone_recovery = Some(ZoneRecovery::Auto);
    let config = DiskConfig { shards: 1, zone_recovery, ..DiskConfig::default() };
    let (disk, floor) = World { fails_at: B, tears: true, config, ..World::default() }.open();
    let b = before_a_failure(&disk);
    (disk, floor, b)
}

/// A zone recovers, and an append comes before, while or after the layer's report is at the device (E12): it is aborted
/// with what it waited for, or lands behind what the report found.
pub(crate) fn recovery_against_a_submit() {
    let (disk, floor, b) = failing();
    let a = Client::new(&disk).with([append(0, 1)]);
    let a = thread::spawn(move || a.finish());
    assert_eq!(b.finish(), [ok(0, 0), failed()]);
    let a = a.join().expect("the append");
    let behind = Answer { token: 1, status: Status::AbortedBehind, sector: Sector(0) };
    assert!(a == [behind] || a == [ok(1, 2)], "{a:?}");
    assert!(disk.cached_zone(ZoneNo(0)).is_ok(), "E12: the zone goes on");
    floor.check_rest(&disk);
}

/// A freeze waits for the report of a zone that recovers, and for what waits behind it (R11).
pub(crate) fn recovery_against_a_freeze() {
    let (disk, floor, b) = failing();
    let b = thread::spawn(move || b.finish());
    hold(disk.begin_freeze(), &floor, 2);
    assert_eq!(b.join().expect("the writer"), [ok(0, 0), failed()]);
    assert!(disk.cached_zone(ZoneNo(0)).is_ok(), "E12: the zone goes on");
    floor.check_rest(&disk);
}

/// A queue goes away with the report of a zone at the device, and A's append waits for that (R40): A finishes both.
pub(crate) fn recovery_of_a_dropped_queue() {
    let (disk, floor, mut b) = failing();
    b.poll();
    let mut a = Client::new(&disk).with([append(0, 1)]);
    a.submit();
    let a = thread::spawn(move || a.finish());
    drop(b);
    assert_eq!(a.join().expect("the one that waits"), [ok(1, 2)]);
    floor.check_rest(&disk);
}

/// A reset ends a recovery (M4): the report that is at the device is not believed, whenever it is seen.
pub(crate) fn recovery_against_a_reset() {
    let (disk, floor, mut b) = failing();
    b.poll();
    let r = Client::new(&disk).with([reset(0, 8, 1)]);
    let r = thread::spawn(move || r.finish());
    assert_eq!(b.finish(), [ok(0, 0), failed()]);
    assert_eq!(r.join().expect("the reset"), [ok(1, 0)]);
    assert_eq!(floor.written(0), 0);
    floor.check_rest(&disk);
}
