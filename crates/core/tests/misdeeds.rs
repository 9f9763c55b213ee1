//! Devices that do not give back what they were given: the engine loses nothing but what they keep, and does not panic.
//! Such a device is written in safe Rust, or it is a drive whose reports make no sense.

#![allow(clippy::vec_box)] // a BIO moves by its box

#[path = "common/bomb.rs"]
mod bomb;
mod common;

use bomb::{Bomb, POLL};
use common::*;
use std::sync::{Arc, Mutex};
use zoneplug_core::disk::{DiskConfig, Mode, ZoneRecovery};
use zoneplug_core::sched::Scheduler;
use zoneplug_core::zone::{Condition, ZoneInfo, ZoneType};
use zoneplug_core::{
    Bio, Bios, Command, Commands, Device, Error, Flags, Nanos, Op, Queue, Sector, Status, lost_bios,
};
use zoneplug_devices::emu::EmuDisk;
use zoneplug_devices::stack::Po2Disk;

/// What a device does to each command that it has carried out.
type Deed = Box<dyn FnMut(&mut Command) + Send>;
type Slot = Arc<Mutex<Option<Deed>>>;

/// A queue of an emulated disk that commits a deed while there is one.
struct CrookQueue {
    inner: Box<dyn Queue>,
    deed: Slot,
}

impl Queue for CrookQueue {
    fn submit(&mut self, now: Nanos, commands: &mut Commands) {
        self.inner.submit(now, commands);
    }
    fn poll(&mut self, now: Nanos, done: &mut Commands) {
        let first = done.len();
        self.inner.poll(now, done);
        if let Some(deed) = &mut *self.deed.lock().expect("one thread") {
            done.range_mut(first..).for_each(|c| deed(c));
        }
    }
    fn next_deadline(&self) -> Option<Nanos> {
        self.inner.next_deadline()
    }
    fn arm(&mut self) {
        self.inner.arm();
    }
}

/// A disk with two queues on a device that is honest so far. `po2`: with a layer between them.
fn rig(set: fn(&mut DiskConfig), po2: bool) -> (Rig, Slot) {
    recycle_buffers();
    let size = if po2 { 48 } else { 64 };
    let mut make = make(8, size, size).limits(|l| l.keeps_write_order = true).config(set);
    make.emu.paranoid = false;
    let dev = EmuDisk::new(make.emu).expect("a device");
    let deed = Slot::default();
    let slot = deed.clone();
    let crook =
        wrapped(dev.clone(), move |inner| Box::new(CrookQueue { inner, deed: slot.clone() }));
    let top: Arc<dyn Device> = if po2 { Po2Disk::new(crook).expect("a layer") } else { crook };
    let disk = open(top, make.config);
    let queues = (0..2).map(|_| disk.open_polled_queue(64, 4).expect("a queue")).collect();
    let mut r = Rig { dev, disk, queues, now: Nanos(0), done: Vec::new() };
    assert_eq!(r.status(write(64, 8)), Status::Ok);
    (r, deed)
}

fn begins(slot: &Slot, deed: impl FnMut(&mut Command) + Send + 'static) {
    *slot.lock().expect("one thread") = Some(Box::new(deed));
}

fn ends(slot: &Slot) {
    *slot.lock().expect("one thread") = None;
}

/// Time in which everything comes back that ever will.
fn pass(r: &mut Rig) {
    for _ in 0..40 {
        r.step();
        r.now = r.now.plus(Nanos(50));
    }
}

/// Reads the zones again through queue 1.
fn revalidate(r: &mut Rig) -> Option<Result<(), Error>> {
    let mut revalidation = r.disk.revalidate();
    for _ in 0..40 {
        let result = revalidation.poll(&mut r.queues[1], r.now);
        if result.is_some() {
            return result;
        }
        r.poll(0);
        r.now = r.now.plus(Nanos(50));
    }
    None
}

fn keep_bios(c: &mut Command) {
    c.bios.clear();
}

/// A zone that no disk has.
fn wild(start: u64) -> ZoneInfo {
    let (len_sectors, wp) = (u64::MAX, Sector(start / 2));
    let (zone_type, cond) = (ZoneType::SeqWriteRequired, Condition::ImpOpen);
    ZoneInfo { start: Sector(start), len_sectors, capacity_sectors: 64, wp, zone_type, cond }
}

/// What it is called, and what it does.
type Named = (&'static str, fn(&mut Command));

const DEEDS: [Named; 16] = [
    ("keeps the BIOs", keep_bios),
    ("keeps the BIOs of a failure", |c| {
        c.status = Status::Medium;
        keep_bios(c);
    }),
    ("replaces the BIOs", |c| {
        c.bios.iter_mut().for_each(|b| *b = Bio::new(Op::Write, Sector(0), 8));
    }),
    ("adds a BIO in front", |c| c.bios.insert(0, op(Op::ZoneReset, u64::MAX, 0))),
    ("adds a BIO behind", |c| c.bios.push(read(u64::MAX, 8))),
    ("keeps the memory", |c| c.bios.iter_mut().for_each(|b| _ = b.take_buf())),
    ("moves the BIOs", |c| c.bios.iter_mut().for_each(|b| b.sector = Sector(u64::MAX))),
    ("moves the BIOs off the disk", |c| {
        c.bios.iter_mut().for_each(|b| b.sector = Sector(1 << 20));
    }),
    ("shortens the BIOs", |c| c.bios.iter_mut().for_each(|b| b.len_sectors = 0)),
    ("makes the BIOs longer", |c| c.bios.iter_mut().for_each(|b| b.len_sectors = u32::MAX)),
    ("changes what the BIOs are", |c| c.bios.iter_mut().for_each(|b| b.op = Op::ZoneResetAll)),
    ("moves the command", |c| c.sector = Sector(u64::MAX)),
    ("moves the command to the start", |c| c.sector = Sector(0)),
    ("makes the command longer", |c| c.len_sectors = u32::MAX),
    ("reports nothing", |c| c.report.clear()),
    ("reports zones that are none", |c| {
        c.report.extend([0, 1, 64, 512, 1 << 40, u64::MAX - 63].map(wild));
    }),
];

const CONFIGS: [fn(&mut DiskConfig); 9] = [
    |_| (),
    |c| c.zone_recovery = Some(ZoneRecovery::Auto),
    |c| c.strict_management = true,
    |c| (c.survive_panics, c.timeout) = (true, Some(Nanos(1000))),
    |c| c.mode = Mode::None,
    |c| c.mode = Mode::Lock,
    |c| c.scheduler = Scheduler::MqDeadline,
    |c| c.zoned_qd1_writes = Some(true),
    |c| (c.zone_write_depth, c.zone_recovery) = (4, Some(ZoneRecovery::Auto)),
];

/// What two clients do meanwhile.
fn work() -> [[Vec<Box<Bio>>; 2]; 6] {
    [
        [vec![write(72, 8), write(80, 8), append(128, 8, 0)], vec![write(88, 8)]],
        [vec![flags(write(72, 8), Flags::NOMERGE), write(80, 8)], vec![op(Op::ZoneReset, 64, 64)]],
        [vec![read(60, 80), write(72, 64)], vec![read(130, 80), op(Op::Flush, 0, 0)]],
        [vec![report(0, 8), report(64, 1)], vec![flags(report(0, 8), Flags::RESYNC)]],
        [vec![op(Op::ZoneReset, 64, 192), write(256, 8)], vec![op(Op::ZoneFinish, 320, 128)]],
        [vec![op(Op::ZoneResetAll, 0, 0), op(Op::ZoneOpen, 64, 128)], vec![read(64, 8)]],
    ]
}

/// Whatever a device gives back: no panic, no BIO comes back twice, and when the device is honest again so is the disk.
#[test]
fn no_misdeed_makes_the_engine_panic() {
    for (c, &set) in CONFIGS.iter().enumerate() {
        for (what, deed) in DEEDS {
            for (w, clients) in work().into_iter().enumerate() {
                let (mut r, slot) = rig(set, w % 2 == 1);
                let at = format!("configuration {c}, work {w}: {what}");
                begins(&slot, deed);
                let mut tokens = 0..;
                for (q, bios) in clients.into_iter().enumerate() {
                    let bios = bios.into_iter().zip(&mut tokens).map(|(bio, n)| token(bio, 1 + n));
                    r.submit(q, bios.collect::<Vec<_>>());
                }
                pass(&mut r);
                revalidate(&mut r);
                ends(&slot);
                pass(&mut r);
                let mut seen: Vec<_> = r.done.drain(..).map(|b| b.token()).collect();
                seen.retain(|&token| token != 0);
                let all = seen.len();
                seen.sort_unstable();
                seen.dedup();
                assert_eq!(seen.len(), all, "{at}: a BIO came back twice");
                let result = revalidate(&mut r);
                assert!(result.is_some_and(|r| r.is_ok()), "{at}: the zones cannot be read again");
                let mut list = Bios::from([token(read(64, 8), 99)]);
                r.queues[1].submit(r.now, &mut list);
                pass(&mut r);
                let ok = r.done.iter().any(|b| b.token() == 99 && b.status == Status::Ok);
                assert!(ok, "{at}: a read fails");
            }
        }
    }
}

/// V5. A client's report without its BIO is not the answer to the next revalidation.
#[test]
fn a_report_without_its_bio_is_not_the_layers_own() {
    let (mut r, slot) = rig(|_| (), false);
    let lost = lost_bios();
    begins(&slot, keep_bios);
    r.submit(0, [report(0, 8)]);
    pass(&mut r);
    ends(&slot);
    assert!(r.done.is_empty() && lost_bios() > lost, "the device has dropped it");
    r.submit(1, [write(72, 8)]);
    pass(&mut r);
    revalidate(&mut r).expect("an answer").expect("of a good device");
    assert_eq!(r.wp(1), 16, "what was written after the client's report");
    // Its tag is free again: the queue has four.
    let seen = r.commands(Op::Read);
    r.submit(0, (0..5).map(|n| read(n * 64, 8)));
    assert_eq!(r.commands(Op::Read), seen + 4);
}

/// What waits for a command decides how it ends, not the operation that a device may have changed.
#[test]
fn a_report_that_comes_back_as_a_read_is_still_the_layers_own() {
    for op in [Op::Read, Op::Write] {
        let (mut r, slot) = rig(|_| (), false);
        begins(&slot, move |c| c.op = op);
        revalidate(&mut r);
        ends(&slot);
        pass(&mut r);
        let result = revalidate(&mut r);
        assert!(result.is_some_and(|r| r.is_ok()), "{op:?}: the command for reports is lost");
    }
}

/// A scheduler counts the operation that it sent, and frees the zone lock of that one, whatever operation comes back.
#[test]
fn a_write_that_comes_back_as_a_read_frees_its_place_and_its_zone() {
    let configs: [fn(&mut DiskConfig); 2] =
        [|c| c.scheduler = Scheduler::MqDeadline, |c| c.mode = Mode::Lock];
    for set in configs {
        let (mut r, slot) = rig(set, false);
        begins(&slot, |c| c.op = if c.op == Op::Read { Op::Write } else { Op::Read });
        r.submit(0, [write(72, 8), read(64, 8)]);
        pass(&mut r);
        ends(&slot);
        r.done.clear();
        for sector in [80, 88, 96, 104, 112] {
            assert_eq!(r.status(write(sector, 8)), Status::Ok, "{sector}");
            assert_eq!(r.status(read(64, 8)), Status::Ok);
        }
    }
}

/// M1, M5. A reset without its BIO goes on to the end of its range and no further, and its zones take writes again.
#[test]
fn a_reset_without_its_bio_ends() {
    for strict in [false, true] {
        let set =
            if strict { |c: &mut DiskConfig| c.strict_management = true } else { |_: &mut _| () };
        let (mut r, slot) = rig(set, false);
        assert_eq!(r.run(0, [write(128, 8), write(192, 8)]), [Status::Ok; 2]);
        begins(&slot, keep_bios);
        r.submit(0, [op(Op::ZoneReset, 64, 128)]);
        pass(&mut r);
        ends(&slot);
        let wps = [1, 2, 3].map(|z| (r.wp(z), r.device_wp(z)));
        assert_eq!(wps, [(0, 0), (0, 0), (8, 8)], "strict: {strict}");
        r.submit(1, [token(write(64, 8), 1), token(write(128, 8), 2)]);
        pass(&mut r);
        let statuses: Vec<_> = r.done.iter().map(|b| b.status).collect();
        assert_eq!(statuses, [Status::Ok; 2], "strict: {strict}");
    }
}

/// M5. A reset has lost its BIO in its first zone, and its queue panics in the second one: the zones take writes again.
#[test]
fn a_reset_without_its_bio_ends_with_its_queue() {
    let dev = EmuDisk::new(make(8, 64, 64).emu).expect("a device");
    let deed = Slot::default();
    let slot = deed.clone();
    let crook =
        wrapped(dev.clone(), move |inner| Box::new(CrookQueue { inner, deed: slot.clone() }));
    let (bomb, fuse) = Bomb::new(crook);
    let mut config = DiskConfig::default();
    (config.strict_management, config.survive_panics) = (true, true);
    let disk = open(bomb, config);
    let queues = (0..2).map(|_| disk.open_polled_queue(64, 4).expect("a queue")).collect();
    let mut r = Rig { dev, disk, queues, now: Nanos(0), done: Vec::new() };
    begins(&deed, keep_bios);
    r.submit(0, [op(Op::ZoneReset, 64, 128)]);
    r.now = Nanos(100);
    r.poll(0);
    ends(&deed);
    assert_eq!(r.commands(Op::ZoneReset), 2, "the second zone is on its way");
    fuse.light(POLL);
    r.poll(0);
    assert_eq!(r.disk.counters().dead_queues, 1);
    r.submit(1, [write(64, 8)]);
    pass(&mut r);
    let statuses: Vec<_> = r.done.iter().map(|b| b.status).collect();
    assert_eq!(statuses, [Status::Ok]);
}

/// E1. Several writes of a zone in flight: one fails and its BIO is kept. What waits behind it is told.
#[test]
fn a_failed_write_without_its_bio_does_not_block_its_zone() {
    let set: fn(&mut DiskConfig) = |c| (c.zone_write_depth, c.nomerges) = (2, true);
    let (mut r, slot) = rig(set, false);
    begins(&slot, |c| {
        c.status = Status::Medium;
        keep_bios(c);
    });
    r.submit(0, [token(write(72, 8), 1), token(write(80, 8), 2)]);
    r.submit(1, [token(write(88, 8), 3)]);
    pass(&mut r);
    ends(&slot);
    let statuses: Vec<_> = r.done.iter().map(|b| (b.token(), b.status)).collect();
    assert_eq!(statuses, [(3, Status::AbortedBehind)]);
    assert!(r.cached(1).is_none(), "the write pointer is unknown");
}

/// I7. A BIO too many in a command of two clients: each client gets its own.
#[test]
fn a_bio_too_many_is_not_delivered_in_the_place_of_another() {
    let (mut r, slot) = rig(|_| (), false);
    r.submit(0, [token(write(72, 8), 1), flags(token(write(80, 8), 2), Flags::NOMERGE)]);
    r.submit(0, [token(write(88, 8), 3)]);
    r.submit(1, [token(write(96, 8), 4)]);
    begins(&slot, |c| {
        if c.bios.len() == 2 {
            c.bios.insert(0, read(0, 8));
        }
    });
    let mut own = [Vec::new(), Vec::new()];
    for _ in 0..20 {
        for (q, own) in own.iter_mut().enumerate() {
            r.poll(q);
            own.extend(r.done.drain(..).map(|b| b.token()).filter(|&token| token != 0));
        }
        r.now = r.now.plus(Nanos(100));
    }
    assert_eq!(own, [vec![1, 2, 3], vec![4]]);
}

/// V2, V6. A report that makes no sense is an error, also where it never ends.
#[test]
fn a_wild_report_does_not_become_the_layout() {
    for po2 in [false, true] {
        for zone in [0, 64, 1 << 40, u64::MAX - 63].map(wild) {
            let (mut r, slot) = rig(|_| (), po2);
            for len in [u64::MAX, 64, 0] {
                begins(&slot, move |c| c.report = vec![ZoneInfo { len_sectors: len, ..zone }]);
                let result = revalidate(&mut r).expect("an answer, whatever it says");
                assert!(result.is_err(), "{zone:?} with {len} sectors");
            }
            ends(&slot);
            assert_eq!(r.wp(1), 8, "the zones are as they were");
        }
    }
}

/// I7. Parts of two clients' BIOs are exchanged: neither client gets what is not its own.
#[test]
fn parts_that_change_queues_are_lost() {
    let (mut r, slot) = rig(|_| (), false);
    let lost = lost_bios();
    let mut held: Option<Box<Bio>> = None;
    begins(&slot, move |c| {
        // Each gets what the one before it had.
        if let Some(bio) = c.bios.pop() {
            c.bios.extend(held.replace(bio));
        }
    });
    // Queue 1 has no split BIO.
    for (q, bio) in [(0, token(read(60, 8), 2)), (1, token(read(192, 8), 3))] {
        r.submit(q, [bio]);
        r.now = r.now.plus(Nanos(100));
        r.poll(q);
    }
    pass(&mut r);
    ends(&slot);
    assert!(!r.done.iter().any(|b| b.token() == 2), "one of its parts is gone");
    assert!(lost_bios() > lost);
    r.submit(1, [token(read(64, 8), 4)]);
    pass(&mut r);
    assert!(r.done.iter().any(|b| b.token() == 4 && b.status == Status::Ok));
}
