//! What emulated disks have beyond the device seam: hooks, reordering, sharing between threads, and the data of
//! `mem` against a naive model.

use proptest::prelude::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::task::{Wake, Waker};
use zoneplug_buf::IoBuf;
use zoneplug_core::zone::Condition::{
    Closed, Empty, ExpOpen, Full, ImpOpen, NotWp, Offline, ReadOnly,
};
use zoneplug_core::zone::{Condition, ZoneInfo};
use zoneplug_core::{Bio, Command, Commands, Device, Nanos, Op, Queue, Sector, Status, ZoneNo};
use zoneplug_devices::emu::{EmuDisk, Fault, ZonesInUse};

const OK: Status = Status::Ok;

fn disk(spec: &str) -> Arc<EmuDisk> {
    let config = spec.parse().unwrap_or_else(|e| panic!("{spec}: {e}"));
    EmuDisk::new(config).expect("it was checked")
}

fn queue(d: &EmuDisk) -> Box<dyn Queue> {
    d.open_queue(64, Waker::noop().clone()).expect("a queue opens")
}

/// Memory that is never freed, filled with `byte`.
fn lend(len: u32, byte: u8) -> IoBuf {
    let mut buf = IoBuf::leaked(len);
    buf.copy_from(0, &vec![byte; len as usize]);
    buf
}

fn command(op: Op, sector: u64, len: u32, byte: u8) -> Box<Command> {
    if op.has_data() {
        Command::of(Bio::with_buf(op, Sector(sector), len, lend(len * 512, byte)))
    } else {
        Command::without_data(op, Sector(sector), len)
    }
}

/// Carries out one command on a disk without reordering or latency.
fn run(d: &EmuDisk, c: Box<Command>) -> Box<Command> {
    let (mut q, mut list) = (queue(d), Commands::from([c]));
    q.submit(Nanos(0), &mut list);
    q.poll(Nanos(0), &mut list);
    list.pop_front().expect("it finishes at once")
}

fn status(d: &EmuDisk, op: Op, sector: u64, len: u32) -> Status {
    run(d, command(op, sector, len, 7)).status
}

fn read(d: &EmuDisk, sector: u64, len: u32) -> Vec<u8> {
    let c = run(d, command(Op::Read, sector, len, 0xff));
    assert_eq!(c.status, OK);
    let mut bytes = vec![0; len as usize * 512];
    c.bios[0].data().copy_to(0, &mut bytes);
    bytes
}

fn wp(z: &ZoneInfo) -> u64 {
    z.wp.0 - z.start.0
}

/// Zones of 128 sectors.
const SMALL: &str = "mem,zones=8,zone-size=64K";

#[test]
fn a_fault_hits_the_command_that_it_is_meant_for() {
    let d = disk(SMALL);
    d.fail_next(Fault { skip: 1, ..Fault::next(Op::Write, Status::Medium) });
    d.fail_next(Fault { op: None, skip: 3, ..Fault::next(Op::Read, Status::Timeout) });
    assert_eq!(status(&d, Op::Read, 0, 8), OK);
    assert_eq!(status(&d, Op::Write, 0, 8), OK);
    assert_eq!(status(&d, Op::Write, 8, 8), Status::Medium);
    assert_eq!(wp(&d.zone_info(ZoneNo(0))), 8, "a fault that tears nothing changes nothing");
    assert_eq!(status(&d, Op::Flush, 0, 0), Status::Timeout);
    assert_eq!(status(&d, Op::Write, 8, 8), OK);
    let s = d.stats();
    assert_eq!((s.commands(Op::Write), s.commands(Op::Read), s.total()), (3, 1, 5));
    assert_eq!((s.failed(Status::Medium), s.failed(Status::Timeout), s.failed(OK)), (1, 1, 0));
    assert_eq!(s.failures().count(), 2);
    assert_eq!(s.written_sectors, 16);
}

/// E8.
#[test]
fn a_torn_write_leaves_its_first_part() {
    let d = disk(&format!("{SMALL},append=native"));
    let torn = |op, n| Fault { torn_sectors: Some(n), ..Fault::next(op, Status::Io) };
    d.fail_next(torn(Op::Write, 24));
    assert_eq!(status(&d, Op::Write, 0, 64), Status::Io);
    let z = d.zone_info(ZoneNo(0));
    assert_eq!((z.cond, wp(&z)), (ImpOpen, 24));
    let data = read(&d, 0, 32);
    assert!(data[..24 * 512].iter().all(|&b| b == 7) && data[24 * 512..].iter().all(|&b| b == 0));
    d.fail_next(torn(Op::ZoneAppend, 8));
    let c = run(&d, command(Op::ZoneAppend, 0, 16, 9));
    assert_eq!((c.status, c.sector), (Status::Io, Sector(0)), "no sector of a failed append");
    assert_eq!(wp(&d.zone_info(ZoneNo(0))), 32);
    // Nothing of one that the disk would have refused anyway.
    d.fail_next(torn(Op::Write, 8));
    assert_eq!(status(&d, Op::Write, 40, 16), Status::Io);
    d.fail_next(torn(Op::Write, 8));
    assert_eq!(status(&d, Op::Write, 32, 104), Status::Io);
    assert_eq!(wp(&d.zone_info(ZoneNo(0))), 32);
    // All of it, and still an error.
    d.fail_next(torn(Op::Write, 1000));
    assert_eq!(status(&d, Op::Write, 32, 96), Status::Io);
    assert_eq!(d.zone_info(ZoneNo(0)).cond, Full);
}

/// R32.
#[test]
fn read_only_and_offline_zones_fail_with_statuses_of_their_own() {
    for kind in ["mem", "null"] {
        let d = disk(&format!("{kind},zones=8,zone-size=64K,conv=1,max-open=2,max-active=3"));
        for (zone, cond, want) in
            [(1, ReadOnly, Status::ZoneReadOnly), (2, Offline, Status::ZoneOffline)]
        {
            let at = u64::from(zone) * 128;
            assert_eq!(status(&d, Op::Write, at, 8), OK);
            assert!(d.set_condition(ZoneNo(zone), cond));
            for (op, len) in [
                (Op::Write, 8),
                (Op::ZoneOpen, 128),
                (Op::ZoneClose, 128),
                (Op::ZoneFinish, 128),
                (Op::ZoneReset, 128),
            ] {
                let at = if op == Op::Write { at + 8 } else { at };
                assert_eq!(status(&d, op, at, len), want, "{op:?}");
            }
            let reads = if cond == Offline { want } else { OK };
            assert_eq!(status(&d, Op::Read, at, 8), reads);
            let z = d.zone_info(ZoneNo(zone));
            assert_eq!((z.cond, z.wp), (cond, Sector(u64::MAX)));
        }
        assert_eq!(d.zones_in_use(), ZonesInUse::default(), "they hold no resources");
        assert_eq!(status(&d, Op::ZoneResetAll, 0, 0), OK);
        assert_eq!(d.zone_info(ZoneNo(2)).cond, Offline);
        assert!(!d.set_condition(ZoneNo(0), Offline), "a conventional zone");
        assert!(!d.set_condition(ZoneNo(3), NotWp));
        assert!(d.set_condition(ZoneNo(2), Empty));
        assert_eq!(status(&d, Op::Read, 256, 8), OK);
        assert_eq!(status(&d, Op::Write, 256, 8), OK);
    }
}

/// E10.
#[test]
fn a_write_pointer_that_moved_from_outside_shows_no_old_data() {
    let d = disk(&format!("{SMALL},zone-capacity=48K,max-open=2,max-active=3"));
    assert_eq!(status(&d, Op::Write, 0, 96), OK);
    assert_eq!(status(&d, Op::ZoneReset, 0, 128), OK);
    d.set_write_pointer(ZoneNo(0), 16);
    let z = d.zone_info(ZoneNo(0));
    assert_eq!((z.cond, wp(&z), d.zones_in_use()), (Closed, 16, ZonesInUse { open: 0, active: 1 }));
    assert!(read(&d, 0, 32).iter().all(|&b| b == 0));
    assert_eq!(status(&d, Op::Write, 16, 8), OK);
    d.set_write_pointer(ZoneNo(0), 8);
    assert_eq!(d.zone_info(ZoneNo(0)).cond, ImpOpen);
    d.set_write_pointer(ZoneNo(0), 24);
    assert!(read(&d, 0, 32).iter().all(|&b| b == 0), "what was skipped is not what was there");
    d.set_write_pointer(ZoneNo(0), 1 << 20);
    assert_eq!((d.zone_info(ZoneNo(0)).cond, d.zones_in_use()), (Full, ZonesInUse::default()));
    d.set_write_pointer(ZoneNo(0), 0);
    let z = d.zone_info(ZoneNo(0));
    assert_eq!((z.cond, wp(&z)), (Empty, 0));
}

#[test]
fn a_busy_disk_takes_nothing_and_wants_to_be_asked_again() {
    let d = disk(SMALL);
    let mut q = queue(&d);
    d.force_busy(2);
    q.submit(Nanos(3), &mut Commands::new());
    assert_eq!(q.next_deadline(), None, "an empty list is not turned away");
    let mut list = Commands::from([command(Op::Flush, 0, 0, 0)]);
    for _ in 0..2 {
        q.submit(Nanos(5), &mut list);
        assert_eq!((list.len(), q.next_deadline()), (1, Some(Nanos(5))));
    }
    q.submit(Nanos(6), &mut list);
    let mut done = Commands::new();
    q.poll(Nanos(6), &mut done);
    assert_eq!((list.len(), done.len(), q.next_deadline()), (0, 1, None));
    // Found by the simulation (seed 128670): the client gives up what was not taken, and is not called for ever.
    d.force_busy(1);
    let mut list = Commands::from([command(Op::Flush, 0, 0, 0)]);
    q.submit(Nanos(7), &mut list);
    list.clear();
    q.poll(Nanos(7), &mut done);
    assert_eq!(q.next_deadline(), None);
}

#[test]
fn no_command_crosses_the_end_of_a_zone() {
    for kind in ["mem", "null"] {
        let d = disk(&format!("{kind},zones=4,zone-size=64K,conv=2"));
        for zone in 1..4 {
            let at = zone * 128 - 8;
            assert_eq!(status(&d, Op::Read, at, 16), Status::Boundary);
            assert_eq!(status(&d, Op::Write, at, 16), Status::Boundary);
            assert_eq!(status(&d, Op::WriteZeroes, at, 16), Status::Boundary);
        }
        assert_eq!(status(&d, Op::Discard, 120, 16), Status::Boundary);
        assert_eq!(d.stats().written_sectors, 0);
    }
}

#[test]
fn a_latency_is_kept_to_the_nanosecond() {
    let d = disk("null,zones=4,latency=100ns");
    let (mut q, mut done) = (queue(&d), Commands::new());
    let flush = || Commands::from([Command::without_data(Op::Flush, Sector(0), 0)]);
    q.submit(Nanos(1000), &mut flush());
    q.submit(Nanos(1050), &mut flush());
    for (now, finished, next) in
        [(1099, 0, Some(1100)), (1100, 1, Some(1150)), (1149, 1, Some(1150)), (1150, 2, None)]
    {
        q.poll(Nanos(now), &mut done);
        assert_eq!((done.len(), q.next_deadline()), (finished, next.map(Nanos)), "at {now}");
    }
    assert!(d.is_timed() && !disk("null,reorder=1").is_timed());
}

#[derive(Default)]
struct Bell(AtomicU64);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

#[test]
fn an_armed_queue_wakes_once() {
    for spec in ["null,zones=4", "null,zones=4,reorder=3"] {
        let (d, bell) = (disk(spec), Arc::new(Bell::default()));
        let mut q = d.open_queue(4, Waker::from(Arc::clone(&bell))).expect("a queue opens");
        let rings = || bell.0.load(SeqCst);
        let mut list = Commands::from([Command::without_data(Op::Flush, Sector(0), 0)]);
        q.arm();
        assert_eq!(rings(), 0, "nothing has finished");
        q.submit(Nanos(0), &mut list);
        assert_eq!(rings(), 1, "{spec}: it finished while the queue was armed");
        q.poll(Nanos(0), &mut list);
        q.submit(Nanos(0), &mut list);
        assert_eq!(rings(), 1, "not armed");
        q.arm();
        assert_eq!(rings(), 2, "it had finished before");
        q.poll(Nanos(0), &mut list);
        assert_eq!((list.len(), rings()), (1, 2));
    }
}

/// Why plugging exists: without it, writes that are in flight together are refused.
#[test]
fn a_reordering_disk_refuses_writes_that_are_in_flight_together() {
    let mut orders = std::collections::BTreeSet::new();
    let mut polls = 0;
    for seed in 0..20 {
        let d = disk(&format!("null,zones=8,zone-size=64K,reorder={seed},latency=10us,paranoid=1"));
        let mut q = queue(&d);
        let mut list: Commands =
            (0..16).map(|i| Command::of(Bio::new(Op::Write, Sector(i * 8), 8))).collect();
        q.submit(Nanos(0), &mut list);
        assert_eq!(q.next_deadline(), Some(Nanos(10_000)));
        let mut done = Commands::new();
        while let Some(at) = q.next_deadline() {
            let before = done.len();
            q.poll(at, &mut done);
            assert!(done.len() > before, "a poll with something due picks at least one");
            polls += 1;
        }
        assert_eq!(done.len(), 16);
        let good = done.iter().filter(|c| c.status.is_ok()).count() as u64;
        let s = d.stats();
        assert_eq!((s.overlaps, s.written_sectors), (15, good * 8));
        assert_eq!(s.failed(Status::UnalignedWrite), 16 - good);
        assert!(good < 16);
        orders.insert(done.iter().map(|c| c.sector).collect::<Vec<_>>());
    }
    assert!(polls > 40, "some are left for later: {polls} polls");
    assert!(orders.len() > 15, "{} orders of 20 seeds", orders.len());
}

#[test]
fn a_seed_gives_the_same_order_again() {
    let order = || {
        let d = disk("null,zones=8,zone-size=64K,reorder=5");
        let (mut q, mut done) = (queue(&d), Commands::new());
        let mut list: Commands =
            (0..64).map(|i| Command::without_data(Op::Read, Sector(i * 8), 8)).collect();
        q.submit(Nanos(0), &mut list);
        while q.next_deadline().is_some() {
            q.poll(Nanos(0), &mut done);
        }
        done.iter().map(|c| c.sector.0).collect::<Vec<_>>()
    };
    assert_eq!(order(), order());
}

#[test]
fn one_write_at_a_time_never_overlaps() {
    let d = disk("null,zones=8,zone-size=64K,paranoid=1,latency=1us,conv=1");
    let mut q = queue(&d);
    let mut now = Nanos(0);
    for i in 0..8 {
        let at = |z: u64| Sector(z * 128 + i * 8);
        let mut list: Commands = [0, 0, 1, 2, 3]
            .map(|z| Command::of(Bio::new(Op::Write, at(z), 8)))
            .into_iter()
            .collect();
        q.submit(now, &mut list);
        now = q.next_deadline().expect("they wait");
        q.poll(now, &mut list);
        assert!(list.iter().all(|c| c.status.is_ok()));
    }
    assert_eq!(d.stats().overlaps, 0);
    drop(q);
    assert_eq!(d.stats().commands(Op::Write), 40, "a queue that is gone still counts");
}

/// Condition changes under the budget, writes under shards alone, from several threads: the counts stay right.
#[test]
fn threads_share_a_disk() {
    let d = disk("null,zones=32,zone-size=64K,max-open=4,max-active=6");
    std::thread::scope(|s| {
        for t in 0..4u64 {
            let d = &d;
            s.spawn(move || {
                let mut q = queue(d);
                let mut list = Commands::new();
                // Each thread owns every fourth zone; eviction closes zones of the others.
                for round in 0..2000u64 {
                    let zone = (round % 8) * 4 + t;
                    let z = d.zone_info(ZoneNo(zone as u32));
                    let c = match z.cond {
                        Full => Command::without_data(Op::ZoneReset, z.start, 128),
                        _ if round % 13 == 0 => Command::without_data(Op::ZoneOpen, z.start, 128),
                        ExpOpen => Command::without_data(Op::ZoneClose, z.start, 128),
                        _ => Command::of(Bio::new(Op::Write, z.wp, 16)),
                    };
                    list.push_back(c);
                    q.submit(Nanos(0), &mut list);
                    q.poll(Nanos(0), &mut list);
                    let c = list.pop_front().expect("it finishes at once");
                    let limits = [OK, Status::OpenLimit, Status::ActiveLimit];
                    assert!(limits.contains(&c.status), "{:?} {:?}", c.op, c.status);
                }
            });
        }
    });
    let zones: Vec<_> = (0..32).map(|z| d.zone_info(ZoneNo(z)).cond).collect();
    let count = |f: fn(Condition) -> bool| zones.iter().filter(|&&c| f(c)).count() as u32;
    let in_use = d.zones_in_use();
    assert_eq!(in_use.open, count(Condition::is_open));
    assert_eq!(in_use.active, count(Condition::is_active));
    assert!(count(Condition::is_open) <= 4 && count(Condition::is_active) <= 6);
    assert_eq!(d.stats().total(), 8000);
}

/// One sector per byte: what a disk holds, naively.
struct Model {
    data: Vec<u8>,
    wp: Vec<u64>,
}

const ZONES: u64 = 5;
/// 1500 sectors: chunks of memory end inside a zone.
const ZONE: u64 = 1500;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// R44, O7: data, write pointers and refusals of a `mem` disk agree with arrays, and old data never shows.
    #[test]
    fn a_mem_disk_agrees_with_an_array(
        ops in prop::collection::vec((0u8..10, 0..ZONES, 0..ZONE, 1u64..600, any::<bool>(), 1u8..255), 1..80),
    ) {
        let d = disk("mem,zones=5,zone-size=750K,zone-capacity=700K,conv=1,lba-size=512,append=native");
        let cap = 1400;
        let mut m = Model { data: vec![0; (ZONES * ZONE) as usize], wp: vec![0; ZONES as usize] };
        for (what, zone, off, len, at_wp, byte) in ops {
            let (start, z) = (zone * ZONE, zone as usize);
            let off = if at_wp && zone > 0 { m.wp[z].min(ZONE - 1) } else { off };
            let len = len.min(ZONE - off) as u32;
            let (from, end) = ((start + off) as usize, (start + off) as usize + len as usize);
            match what {
                0..=3 => {
                    let got = run(&d, command(Op::Write, start + off, len, byte)).status;
                    let fits = zone == 0 || off == m.wp[z] && off + u64::from(len) <= cap;
                    prop_assert_eq!(got.is_ok(), fits, "{:?}", got);
                    if fits {
                        m.data[from..end].fill(byte);
                        m.wp[z] = if zone == 0 { 0 } else { off + u64::from(len) };
                    }
                }
                4 => {
                    let c = run(&d, command(Op::ZoneAppend, start, len, byte));
                    let (at, fits) = (m.wp[z], zone > 0 && m.wp[z] + u64::from(len) <= cap);
                    prop_assert_eq!(c.status.is_ok(), fits, "{:?}", c.status);
                    if fits {
                        prop_assert_eq!(c.sector, Sector(start + at));
                        let from = (start + at) as usize;
                        m.data[from..from + len as usize].fill(byte);
                        m.wp[z] += u64::from(len);
                    }
                }
                5 => {
                    let got = status(&d, Op::ZoneReset, start, ZONE as u32);
                    prop_assert_eq!(got.is_ok(), zone > 0);
                    if zone > 0 {
                        m.wp[z] = 0;
                        m.data[start as usize..(start + ZONE) as usize].fill(0);
                    }
                }
                6 => {
                    let got = status(&d, Op::ZoneFinish, start, ZONE as u32);
                    prop_assert_eq!(got.is_ok(), zone > 0);
                    // Full: no write fits any more.
                    m.wp[z] = if zone > 0 { u64::MAX / 2 } else { 0 };
                }
                7 => {
                    let got = status(&d, Op::WriteZeroes, start + off, len);
                    let fits = zone == 0 || off == m.wp[z] && off + u64::from(len) <= cap;
                    prop_assert_eq!(got.is_ok(), fits, "{:?}", got);
                    if fits {
                        m.data[from..end].fill(0);
                        m.wp[z] = if zone == 0 { 0 } else { off + u64::from(len) };
                    }
                }
                _ => {
                    let got = read(&d, start + off, len);
                    for (i, sector) in got.chunks(512).enumerate() {
                        prop_assert!(sector.iter().all(|&b| b == m.data[from + i]), "sector {}", from + i);
                    }
                }
            }
        }
    }
}
