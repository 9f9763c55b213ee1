//! What reviews and stress tests broke once: each failed before it was mended.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)]

mod common;
use common::*;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Wake, Waker};
use zoneplug_core::disk::DiskConfig;
use zoneplug_core::zone::Condition;
use zoneplug_core::{Bios, Commands, Device, Flags, Nanos, Op, Queue, Status, ZoneNo};
use zoneplug_devices::stack::JoinDisk;

/// The dump and cached reports index plugs that a revalidation has just cleared.
#[test]
fn dump_against_revalidation() {
    let m = make(20_000, 64, 64);
    let mut emu = m.emu;
    emu.latency = Nanos(0);
    let dev = zoneplug_devices::emu::EmuDisk::new(emu).unwrap();
    let disk = open(dev, DiskConfig::default());
    let stop = Arc::new(AtomicBool::new(false));
    let t = {
        let (disk, stop) = (disk.clone(), stop.clone());
        std::thread::spawn(move || {
            let mut z = 0;
            while !stop.load(Ordering::Relaxed) {
                let _ = disk.cached_zone(ZoneNo(19_999 - z % 64));
                z += 1;
            }
        })
    };
    let mut q = disk.open_polled_queue(1, 1).unwrap();
    for _ in 0..30 {
        let mut v = disk.revalidate();
        while v.poll(&mut q, Nanos(0)).is_none() {}
    }
    stop.store(true, Ordering::Relaxed);
    assert!(t.join().is_ok(), "cached_zone panicked");
}

/// A revalidation that is dropped while its report is on the way takes the reserved command with it.
#[test]
fn a_dropped_revalidation_blocks_the_next_one() {
    let mut r = make(4, 64, 64).rig();
    let mut v = r.disk.revalidate();
    for _ in 0..3 {
        assert!(v.poll(&mut r.queues[0], r.now).is_none());
    }
    drop(v);
    let mut v = r.disk.revalidate();
    for _ in 0..1000 {
        r.now = r.now.plus(Nanos(100));
        if v.poll(&mut r.queues[0], r.now).is_some() {
            return;
        }
    }
    panic!("the second revalidation never ends, and the disk is frozen");
}

/// A queue whose last answer is half the numbers old looks as if it had answered.
#[test]
fn freeze_versions_wrap() {
    let mut r = make(4, 64, 64).queues(&[(8, 2), (8, 2)]).rig();
    for _ in 0..2_097_200u32 {
        drop(r.disk.begin_freeze());
    }
    r.submit(1, [write(0, 8)]);
    let f = r.disk.begin_freeze();
    r.poll(0);
    assert!(r.queues[1].is_busy());
    assert!(!f.poll(), "frozen, and a write is in flight");
}

/// More freezes than the state has room for are a bug of the caller, not a disk that takes BIOs.
#[test]
#[should_panic(expected = "255 freezes overlap")]
fn freezes_do_not_overflow() {
    let r = make(4, 64, 64).rig();
    let all: Vec<_> = (0..256).map(|_| r.disk.begin_freeze()).collect();
    drop(all);
}

/// W11, W9: refused, yet the zone is poisoned and others' writes are aborted.
#[test]
fn a_refused_native_append_changes_the_plug() {
    let mut r =
        make(4, 64, 64).limits(|l| l.zone_append_max_sectors = 16).queues(&[(8, 1), (8, 1)]).rig();
    r.submit(0, [read(64, 8)]); // the only tag
    r.submit(1, [write(0, 8), flags(token(write(8, 8), 1), Flags::NOMERGE)]);
    r.submit(0, [flags(token(append(0, 8, 0), 2), Flags::NOWAIT)]);
    let done = r.finish();
    assert!(done.iter().any(|b| b.status == Status::WouldBlock));
    assert!(
        done.iter().all(|b| b.op != Op::Write || b.status.is_ok()),
        "aborted by an append that was refused"
    );
}

/// B13: only the first zone of a range is asked whether it is conventional.
#[test]
fn an_unaligned_write_from_a_conventional_zone_into_a_sequential_one() {
    let mut r =
        make(4, 64, 64).conventional(&[0]).limits(|l| l.write_granularity_sectors = 8).rig();
    let before = r.commands(Op::Write);
    let s = r.status(write(60, 4 + 5));
    assert_eq!(
        (s, r.commands(Op::Write)),
        (Status::Unaligned, before),
        "refused before the device sees it"
    );
}

/// E6: a report from before the native append landed clears the mark.
#[test]
fn a_report_that_overtakes_a_native_append() {
    for seed in 0..200 {
        let mut m =
            make(4, 64, 64).limits(|l| l.zone_append_max_sectors = 16).queues(&[(8, 4), (8, 4)]);
        m.emu.reorder = Some(seed);
        let mut r = m.rig();
        assert_eq!(r.status(append(0, 8, 0)), Status::Ok);
        r.submit(0, [append(0, 8, 8), token(report(0, 1), 1)]);
        r.finish();
        // what the layer now believes
        let mut dump = String::new();
        r.disk.zone_wplugs(&mut dump).unwrap();
        let dev = r.device_wp(0);
        let believes =
            dump.lines().find(|l| l.contains("no: 0,")).map(str::to_owned).unwrap_or_default();
        if believes.contains("flags: 0x0") && !believes.contains(&format!("wp ofst: {dev},")) {
            panic!("seed {seed}: device at {dev}, the layer: {believes}");
        }
    }
}

/// E6: an old report brings a read-only zone back.
#[test]
fn an_old_report_of_a_zone_that_went_readonly() {
    let mut r = make(4, 64, 64).queues(&[(8, 4), (8, 4)]).rig();
    r.submit(1, [report(0, 1)]); // snapshot: empty
    r.submit(0, [write(0, 8)]);
    while r.queues[0].outstanding() > 0 {
        r.now = r.now.plus(Nanos(50));
        r.poll(0);
    }
    r.dev.set_condition(ZoneNo(0), Condition::ReadOnly);
    r.submit(0, [write(8, 8)]);
    while r.queues[0].outstanding() > 0 {
        r.now = r.now.plus(Nanos(50));
        r.poll(0);
    }
    r.drain();
    assert_eq!(
        r.cached(0).map(|c| c.0),
        Some(Condition::ReadOnly),
        "the report is older than the refusal"
    );
}

struct Panics;
impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic!("a client's waker");
    }
}

/// A waker that panics in a peer's poll: the next command of the zone is lost.
#[test]
fn a_waker_that_panics_in_a_peers_poll() {
    let mut r = make(4, 64, 64).queues(&[(8, 4), (8, 4), (8, 4)]).rig();
    r.submit(0, [flags(write(0, 8), Flags::NOMERGE)]);
    r.submit(1, [flags(write(8, 8), Flags::NOMERGE)]);
    r.submit(2, [flags(write(16, 8), Flags::NOMERGE)]);
    assert!(r.queues[1].arm(&Waker::from(Arc::new(Panics))));
    for _ in 0..8 {
        r.now = r.now.plus(Nanos(100));
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| r.poll(0)));
    }
    for q in 0..3 {
        r.poll(q);
    }
    let mut d = String::new();
    r.disk.zone_wplugs(&mut d).unwrap();
    assert_eq!(
        r.queues[2].outstanding(),
        0,
        "queue 2's write never comes back; lost {}; {d}; {:?}",
        zoneplug_core::lost_bios(),
        r.queues[0]
    );
}

/// A thaw between a submit that took nothing and `arm`.
#[test]
fn thaw_before_arm() {
    struct Flag(AtomicBool);
    impl Wake for Flag {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::SeqCst);
        }
    }
    let mut r = make(4, 64, 64).rig();
    let f = r.disk.begin_freeze();
    let mut l = Bios::from([write(0, 8)]);
    assert_eq!(r.queues[0].submit(r.now, &mut l), 0);
    drop(f);
    let flag = Arc::new(Flag(AtomicBool::new(false)));
    assert!(
        !r.queues[0].arm(&Waker::from(flag.clone())) || flag.0.load(Ordering::SeqCst),
        "asleep for ever"
    );
}

/// Strict: a mark is taken away by a command that did not set it.
#[test]
fn strict_mark_of_another_command() {
    let mut r = make(4, 64, 64).queues(&[(8, 4), (8, 4), (8, 4)]).rig();
    assert_eq!(r.status(write(0, 8)), Status::Ok);
    r.submit(0, [token(op(Op::ZoneReset, 0, 64), 0)]);
    r.now = r.now.plus(Nanos(50));
    r.disk.set_attribute("strict_management", "1").unwrap();
    r.submit(1, [token(op(Op::ZoneReset, 0, 64), 1)]);
    r.now = r.now.plus(Nanos(50));
    r.poll(0); // the first reset is back
    r.submit(2, [token(write(0, 8), 2), flags(token(write(8, 8), 3), Flags::NOMERGE)]);
    let done = r.finish();
    assert!(done.iter().all(|b| b.status != Status::AbortedByManagement));
}

/// Memory for each part of a range that a client names with 64 bytes.
#[test]
fn parts_of_a_long_write_zeroes() {
    let mut r = make(16, 1 << 22, 1 << 22)
        .conventional(&[0, 1, 2, 3, 4, 5, 6, 7])
        .limits(|l| l.max_write_zeroes_sectors = 8);
    r.emu.kind = zoneplug_devices::emu::EmuKind::Null;
    r.emu.paranoid = false;
    let mut r = r.rig();
    let rss = || {
        let s = std::fs::read_to_string("/proc/self/statm").unwrap();
        s.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4 / 1024
    };
    let a = rss();
    r.submit(0, [op(Op::WriteZeroes, 0, 1 << 25)]);
    assert!(rss() - a < 64, "{} MiB for one BIO of 16 GiB", rss() - a);
}

/// A depth is a bound, not an allocation.
#[test]
fn a_depth_of_four_billion() {
    let r = make(4, 64, 64).rig();
    assert_eq!(r.disk.open_polled_queue(u32::MAX, 1).unwrap().room(), u32::MAX);
}

/// M5: strict management keeps native appends out too.
#[test]
fn a_native_append_in_strict_mode_while_a_reset_is_on_its_way() {
    let mut r = make(4, 64, 64)
        .limits(|l| l.zone_append_max_sectors = 16)
        .config(|c| c.strict_management = true)
        .queues(&[(8, 4), (8, 4)])
        .rig();
    r.submit(0, [op(Op::ZoneReset, 0, 64)]);
    r.now = r.now.plus(Nanos(50));
    r.submit(1, [token(append(0, 8, 0), 1)]);
    let done = r.finish();
    let s: Vec<_> = done.iter().map(|b| b.status).collect();
    let mut d = String::new();
    r.disk.zone_wplugs(&mut d).unwrap();
    assert!(
        s[1] == Status::ZoneBusy || r.device_wp(0) == 0 || d.contains("flags: 0x2"),
        "{s:?}: the device is at {}, the layer says empty: {d:?}",
        r.device_wp(0)
    );
}

type What = Box<dyn FnOnce() + Send>;

/// A queue below, with something that happens during one poll.
struct MeanwhileQueue(Box<dyn Queue>, Arc<Mutex<Option<What>>>);

impl Queue for MeanwhileQueue {
    fn submit(&mut self, now: Nanos, commands: &mut Commands) {
        self.0.submit(now, commands);
    }
    fn poll(&mut self, now: Nanos, done: &mut Commands) {
        let what = self.1.lock().unwrap().take();
        if let Some(what) = what {
            what();
        }
        self.0.poll(now, done);
    }
    fn next_deadline(&self) -> Option<Nanos> {
        self.0.next_deadline()
    }
    fn arm(&mut self) {
        self.0.arm();
    }
}

/// R40: a queue that looks for orphans while another queue has them off the list finds none, and sleeps. It must be
/// woken when the orphans come back with work, because the other queue may not poll again. (Found by loom.)
#[test]
fn r40_orphans_that_come_back_wake_who_missed_them() {
    let mut emu = make(4, 64, 64).emu;
    emu.latency = Nanos(0);
    let lower = zoneplug_devices::emu::EmuDisk::new(emu).unwrap();
    let what = Arc::new(Mutex::new(None));
    let slot = what.clone();
    let device = wrapped(lower, move |queue| Box::new(MeanwhileQueue(queue, slot.clone())));
    let disk = open(device, DiskConfig::default());
    let [a, mut b, mut c] = [0; 3].map(|_| disk.open_polled_queue(8, 2).unwrap());
    let a = Arc::new(Mutex::new(a));
    b.submit(Nanos(0), &mut Bios::from([write(0, 8)]));
    a.lock().unwrap().submit(Nanos(0), &mut Bios::from([write(8, 8)]));
    drop(b);
    let woken = Arc::new(Woken(AtomicBool::new(false)));
    *what.lock().unwrap() = Some(Box::new({
        let (a, waker) = (a.clone(), Waker::from(woken.clone()));
        move || {
            let (mut a, mut done) = (a.lock().unwrap(), Bios::new());
            a.poll(Nanos(0), &mut done);
            assert!(a.arm(&waker), "nothing was delivered");
            a.poll(Nanos(0), &mut done);
            assert_eq!((done.len(), a.next_deadline()), (0, None), "A sleeps");
        }
    }) as What);
    c.poll(Nanos(0), &mut Bios::new());
    assert!(!c.is_busy(), "C has no reason to come again");
    assert!(woken.0.load(Ordering::SeqCst), "A's write is in flight, and A sleeps");
    let (mut a, mut done) = (a.lock().unwrap(), Bios::new());
    a.poll(Nanos(0), &mut done);
    assert!(done.len() == 1 && done[0].status.is_ok(), "{done:?}");
}

struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// A queue that is closed while its own report is at the device must not take the device's queue away from under it.
/// R40.
#[test]
fn a_queue_closed_with_its_own_report_in_flight() {
    let mut r = make(4, 64, 64).queues(&[(8, 2), (8, 2)]).rig();
    r.now = Nanos(1000);
    let mut v = r.disk.revalidate();
    while r.queues[0].next_deadline().is_none() {
        r.poll(1);
        assert!(v.poll(&mut r.queues[0], r.now).is_none());
    }
    drop(v);
    drop(r.queues.remove(0));
    // Still there: an orphan that waits for its report, which the other queue polls.
    assert_eq!(r.queues[0].next_deadline(), Some(Nanos(1100)), "the report is at the device");
    r.now = Nanos(1100);
    r.poll(0);
    assert_eq!(r.queues[0].next_deadline(), None, "back, and the queue has gone");
}

/// Counts how often it was woken.
#[derive(Default)]
struct Wakes(std::sync::atomic::AtomicU32);
impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// What a sleeper waits for is behind the write of a queue that goes: it may be the only one left to poll that.
/// R40.
#[test]
fn a_sleeper_is_told_of_an_orphan() {
    let mut r = make(4, 64, 64).queues(&[(8, 2), (8, 2)]).rig();
    r.submit(0, [write(0, 8)]);
    r.submit(1, [flags(write(8, 8), Flags::NOMERGE)]);
    let woken = Arc::new(Wakes::default());
    assert!(r.queues[1].arm(&Waker::from(woken.clone())));
    r.poll(1);
    assert_eq!(r.queues[1].next_deadline(), None, "nothing of its own is at the device");
    drop(r.queues.remove(0));
    assert_eq!(woken.0.load(Ordering::SeqCst), 1, "nobody else polls the orphan");
    assert_eq!(r.finish().pop().map(|b| b.status), Some(Status::Ok));
}

/// The queue that polled an orphan is dropped, without work of its own: a queue that sleeps must take over.
/// R40.
#[test]
fn a_sleeper_is_told_when_the_one_that_polled_an_orphan_goes() {
    let mut r = make(4, 64, 64).queues(&[(8, 2), (8, 2), (8, 2)]).rig();
    r.submit(0, [write(0, 8)]);
    r.submit(1, [flags(write(8, 8), Flags::NOMERGE)]);
    drop(r.queues.remove(0)); // queue 2, now at 1, polls it
    r.poll(1);
    let woken = Arc::new(Wakes::default());
    assert!(r.queues[0].arm(&Waker::from(woken.clone())));
    drop(r.queues.remove(1));
    assert_eq!(woken.0.load(Ordering::SeqCst), 1, "nobody else polls the orphan");
    assert_eq!(r.finish().pop().map(|b| b.status), Some(Status::Ok));
}

/// A report that says of a sequential zone that it is conventional, or the reverse, is not believed: its plug would not
/// be one.
/// V8.
#[test]
fn a_report_whose_zone_type_disagrees() {
    use zoneplug_core::zone::ZoneType;
    let m = make(4, 64, 64).conventional(&[0]);
    let dev = zoneplug_devices::emu::EmuDisk::new(m.emu).unwrap();
    let lie = Arc::new(AtomicBool::new(false));
    let on = lie.clone();
    let liar = Liar::new(dev.clone(), move |zones| {
        for z in zones.iter_mut().filter(|_| on.load(Ordering::Relaxed)) {
            (z.zone_type, z.cond) = match z.zone_type {
                ZoneType::Conventional => (ZoneType::SeqWriteRequired, Condition::Full),
                _ => (ZoneType::Conventional, Condition::NotWp),
            };
        }
    });
    let disk = open(Arc::new(liar), DiskConfig::default());
    let queues = vec![disk.open_polled_queue(8, 4).unwrap()];
    let mut r = Rig { dev, disk, queues, now: Nanos(0), done: Vec::new() };
    assert_eq!(r.run(0, [write(64, 8)]), [Status::Ok]);
    lie.store(true, Ordering::Relaxed);
    // With and without a resync, of a zone that is known and of one that is not.
    r.fail(Op::Write, Status::Io);
    assert_eq!(r.run(0, [write(128, 8)]), [Status::Io]);
    assert_eq!(r.run(0, [report(0, 4)]), [Status::Ok]);
    assert_eq!(r.run(0, [flags(report(0, 4), Flags::RESYNC)]), [Status::Ok]);
    assert_eq!(r.cached(1), Some((Condition::Active, 8)));
    assert_eq!(r.cached(2), None, "still unknown");
    assert_eq!(r.run(0, [write(0, 8), write(72, 8)]), [Status::Ok; 2], "both are what they were");
    lie.store(false, Ordering::Relaxed);
    assert_eq!(r.run(0, [report(0, 4)]), [Status::Ok]);
    assert_eq!(r.cached(2).map(|c| c.1), Some(0));
}

/// W9, W11: a report that would have to wait for a tag is refused before it has changed anything.
#[test]
fn a_refused_report_changes_nothing() {
    let mut r = make(4, 64, 64).queues(&[(8, 1), (8, 4)]).rig();
    assert_eq!(r.run(1, [write(0, 8)]), [Status::Ok]);
    r.submit(0, [token(read(64, 8), 0)]); // the only tag
    let epoch = r.disk.error_epoch();
    let mut bio = token(report(0, 4), 1);
    bio.flags = Flags(Flags::RESYNC.0 | Flags::NOWAIT.0);
    r.submit(0, [bio]);
    assert_eq!(r.disk.error_epoch(), epoch, "a resync that was never sent");
    let done = r.finish();
    assert_eq!((done[0].status, done[1].status), (Status::Ok, Status::WouldBlock));
    assert_eq!(done[1].result, 0, "no zones, and no number of the engine's");
}

/// Devices that are joined reset all zones one by one. Where one of them fails those before it have been reset, and the
/// layer does not go on believing what it knew of them (found by the worlds).
#[test]
fn a_reset_of_all_zones_that_fails_half_way_leaves_no_old_write_pointers() {
    let m = make(4, 64, 64);
    let dev = zoneplug_devices::emu::EmuDisk::new(m.emu).unwrap();
    let cut = |zones| -> Arc<dyn Device> { JoinDisk::cut(dev.clone(), zones).unwrap() };
    let disk = open(JoinDisk::linear(vec![cut(0..2), cut(2..4)]).unwrap(), m.config);
    let queues = vec![disk.open_polled_queue(8, 4).unwrap()];
    let mut r = Rig { dev, disk, queues, now: Nanos(0), done: Vec::new() };
    let writes = || (0..4).map(|z| write(z * 64, 8));
    assert_eq!(r.run(0, writes()), [Status::Ok; 4]);
    let fault = zoneplug_devices::emu::Fault::next(Op::ZoneReset, Status::Medium);
    r.dev.fail_next(zoneplug_devices::emu::Fault { skip: 1, ..fault });
    assert_eq!(r.run(0, [op(Op::ZoneResetAll, 0, 0)]), [Status::Medium]);
    let reset = (0..4).filter(|&z| r.device_wp(z) == 0).count();
    assert!(reset > 0 && reset < 4, "some were: {reset}");
    assert!((0..4).all(|z| r.cached(z).is_none()), "which, a report says");
    r.report(0, 4);
    for z in 0..4 {
        assert_eq!(r.cached(z).map(|c| c.1), Some(r.device_wp(z)));
        let at = u64::from(z) * 64 + r.device_wp(z);
        assert_eq!(r.run(0, [write(at, 8)]), [Status::Ok]);
    }
}
