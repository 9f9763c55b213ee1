//! Disks with the times of drives: as strict as the others, and their own clockwork.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use zoneplug_core::{Bio, Command, Commands, Device, Flags, Nanos, Op, Queue, Sector, Status};
use zoneplug_devices::conformance::{Target, run};
use zoneplug_devices::emu::timing::Profile;
use zoneplug_devices::emu::{EmuConfig, EmuDisk, EmuKind};
use zoneplug_devices::spec::Spec;

fn profile(text: &str) -> Profile {
    Profile::from_spec(&mut Spec::parse(text).unwrap()).unwrap().unwrap()
}

/// A timed disk refuses every violation that the other emulated disks refuse, and gives every command back.
#[test]
fn timed_disks_conform() {
    let zones = "zones=12,zone-size=640K,zone-capacity=600K";
    for spec in [
        format!("sim-smr30,{zones},max-open=3,max-active=5,cache=64K"),
        format!("sim-smr30,{zones},destage=fifo"),
        format!("sim-smr30,{zones},write-cache=0,protected=640K"),
        format!("sim-smr20,{zones},write-cache=0"),
        format!("sim-smr20,{zones},cache-entries=2"),
        format!("sim-zns1,{zones},max-open=3,max-active=5"),
    ] {
        let profile = profile(&spec);
        for kind in EmuKind::ALL {
            let mut make = || -> Arc<dyn Device> {
                let mut config = EmuConfig::new(kind, profile.geometry().unwrap());
                config.limits = profile.limits();
                config.paranoid = true;
                EmuDisk::timed_with(&profile, config).unwrap()
            };
            run(&mut Target::new(&mut make, kind == EmuKind::Mem));
        }
    }
}

struct Bench {
    queue: Box<dyn Queue>,
    now: Nanos,
    zone_sectors: u64,
}

impl Bench {
    fn new(spec: &str) -> Bench {
        let profile = profile(spec);
        let disk = EmuDisk::timed(&profile, EmuKind::Null).unwrap();
        let queue = disk.open_queue(64, std::task::Waker::noop().clone()).unwrap();
        Bench { queue, now: Nanos(0), zone_sectors: u64::from(profile.zone_sectors) }
    }

    fn send(&mut self, op: Op, zone: u64, offset: u64, sectors: u32, flags: Flags) {
        let mut bio = Bio::new(op, Sector(zone * self.zone_sectors + offset), sectors);
        bio.flags = flags;
        self.queue.submit(self.now, &mut Commands::from([Command::of(bio)]));
    }

    fn write(&mut self, zone: u64, offset: u64, sectors: u32) {
        self.send(Op::Write, zone, offset, sectors, Flags::NONE);
    }

    /// Until one command is back, or nothing is left: its operation and the time.
    fn next(&mut self) -> Option<(Op, u64)> {
        let mut done = Commands::new();
        loop {
            self.queue.poll(self.now, &mut done);
            if let Some(c) = done.pop_front() {
                assert!(done.is_empty(), "one at a time");
                assert_eq!(c.status, Status::Ok);
                return Some((c.op, self.now.0));
            }
            let next = self.queue.next_deadline()?;
            assert!(next > self.now, "a deadline that is over");
            self.now = next;
        }
    }
}

const SMALL: &str = "zones=1000,zone-size=256M";

/// A write is acknowledged when it is in the cache: the link decides, until the cache is full; then the medium does.
#[test]
fn a_cached_write_is_as_fast_as_the_link_until_the_cache_is_full() {
    let mut b = Bench::new(&format!("sim-smr30,{SMALL}"));
    let mut at = Vec::new();
    for i in 0..200 {
        b.write(7, i * 2048, 2048);
        at.push(b.next().unwrap().1);
    }
    let link = 20_000 + (1 << 20) * 1000 / 550;
    assert!(at[0].abs_diff(link) < 2, "{} ns, {link} expected", at[0]);
    assert!(at[9].abs_diff(10 * link) < 20);
    let rate = f64::from(100 << 20) / (at[199] - at[99]) as f64 * 1e3;
    assert!((rate - 244.0).abs() < 2.0, "{rate} MB/s");
}

/// Flush, FUA and preflush wait for the medium; a flush of a clean cache does not.
#[test]
fn what_is_to_be_on_the_medium_waits_for_it() {
    let mut b = Bench::new(&format!("sim-smr30,{SMALL},protected=0"));
    b.send(Op::Flush, 0, 0, 0, Flags::NONE);
    assert_eq!(b.next(), Some((Op::Flush, 20_000)));
    for i in 0..4 {
        b.write(7, i * 2048, 2048);
    }
    let cached = (0..4).map(|_| b.next().unwrap().1).last().unwrap();
    b.send(Op::Flush, 0, 0, 0, Flags::NONE);
    let (op, flushed) = b.next().unwrap();
    assert_eq!(op, Op::Flush);
    assert!(flushed - cached > 5_000_000, "4 MiB take 17 ms and a seek, the link half of it");
    b.send(Op::Write, 8, 0, 2048, Flags::FUA);
    let fua = b.next().unwrap().1;
    assert!(fua - flushed > 4_200_000, "1 MiB takes 4.3 ms on the medium");
    b.write(9, 0, 2048);
    let cached = b.next().unwrap().1;
    b.send(Op::Write, 10, 0, 8, Flags::PREFLUSH);
    assert!(b.next().unwrap().1 - cached > 2_000_000, "the cache is empty first");
    assert_eq!(b.next(), None);
}

/// The part of the cache that survives a power cut is as good as the medium: flush, FUA and preflush wait until no more than that is
/// left in the cache.
#[test]
fn what_the_drive_saves_need_not_be_on_the_medium() {
    let mut b = Bench::new(&format!("sim-smr30,{SMALL},protected=4M"));
    let write_4m = |b: &mut Bench, zone: u64| {
        for i in 0..4 {
            b.write(zone, i * 2048, 2048);
        }
        (0..4).map(|_| b.next().unwrap().1).last().unwrap()
    };
    let cached = write_4m(&mut b, 7);
    b.send(Op::Flush, 0, 0, 0, Flags::NONE);
    assert_eq!(b.next(), Some((Op::Flush, cached + 20_000)), "all of it is safe");
    b.send(Op::Write, 8, 0, 8, Flags::FUA.with(Flags::PREFLUSH));
    let fua = b.next().unwrap().1;
    assert!(fua - cached < 100_000, "4 KiB take 7 us on the link, and 20 us");
    write_4m(&mut b, 9);
    let cached = write_4m(&mut b, 10);
    b.send(Op::Flush, 0, 0, 0, Flags::NONE);
    let flushed = b.next().unwrap().1;
    assert!(flushed - cached > 2_000_000, "more than 4 MiB are in the cache");
    b.write(11, 0, 2048);
    let begun = b.next().unwrap().1;
    b.send(Op::Flush, 0, 0, 0, Flags::NONE);
    let again = b.next().unwrap().1;
    assert!(again - begun < 30_000_000, "not all of the cache was written");
    assert_eq!(b.next(), None);
}

/// With the write cache off each write waits until it is safe: on the medium, or in the part that the drive saves.
#[test]
fn with_the_cache_off_writes_wait_until_they_are_safe() {
    let took = |spec: &str| {
        let mut b = Bench::new(&format!("sim-smr30,{SMALL},{spec}"));
        let mut begun = 0;
        let each = (0..4).map(|i| {
            b.write(20 + 100 * i, 0, 2048);
            let done = b.next().unwrap().1;
            let took = done - begun;
            begun = done;
            took
        });
        each.collect::<Vec<_>>()
    };
    let on = took("protected=0");
    assert!(on.iter().all(|t| *t < 2_500_000), "1 MiB takes 1.9 ms on the link: {on:?}");
    assert_eq!(took("write-cache=0,protected=18M"), on);
    let off = took("write-cache=0,protected=0");
    assert!(off.iter().all(|t| *t > 4_200_000), "and 4.3 ms on the medium: {off:?}");
    // One fits beside the one that is being written.
    let little = took("write-cache=0,protected=1M");
    assert_eq!(little[0], on[0]);
    assert!(little[1] > on[1] && little[1] <= off[0] + off[1], "{little:?}");
}

/// Reads and cached writes take turns; each comes back once.
#[test]
fn reads_and_writes_take_turns() {
    let mut b = Bench::new(&format!("sim-smr30,{SMALL}"));
    for i in 0..30 {
        b.write(i, 0, 2048);
        b.send(Op::Read, 999 - i % 3, i * 256, 256, Flags::NONE);
        if i % 8 == 7 {
            b.next();
        }
    }
    let mut order = Vec::new();
    while let Some((op, _)) = b.next() {
        order.push(op);
    }
    assert_eq!(
        order.iter().filter(|o| **o == Op::Read).count()
            + order.iter().filter(|o| **o == Op::Write).count(),
        57
    );
    let longest = order.split(|o| *o == Op::Write).map(<[_]>::len).max().unwrap();
    assert!(longest < 20, "{longest} reads in a row while writes wait for the cache");
}

/// The model of the ZNS drive: latency and data of one zone, and what all zones share.
#[test]
fn zones_of_an_ssd_share_the_drive() {
    let mut b = Bench::new("sim-zns1");
    b.write(0, 0, 8);
    let one = 16_000 + 4096 * 1000 / 1108;
    assert!(b.next().unwrap().1.abs_diff(one) < 2);
    b.now = Nanos(1_000_000);
    b.write(1, 0, 2048);
    b.write(2, 0, 2048);
    let (a, c) = (b.next().unwrap().1, b.next().unwrap().1);
    let (own, shared) = ((1 << 20) * 1000 / 1108, (2 << 20) * 1000 / 1913);
    assert!(a.abs_diff(1_000_000 + 16_000 + own) < 2);
    assert!(c.abs_diff(1_000_000 + 16_000 + shared) < 2);
}

/// Two queues of one drive: each gets its own commands back, and one that goes leaves nothing behind.
#[test]
fn queues_share_the_drive() {
    let p = profile(&format!("sim-smr30,{SMALL}"));
    let disk = EmuDisk::timed(&p, EmuKind::Null).unwrap();
    let open = || disk.open_queue(4, std::task::Waker::noop().clone()).unwrap();
    let (mut a, mut b) = (open(), open());
    let write = |zone: u64| Command::of(Bio::new(Op::Write, Sector(zone << 19), 2048));
    a.submit(Nanos(0), &mut Commands::from([write(0), write(1)]));
    b.submit(Nanos(0), &mut Commands::from([write(2)]));
    let (mut done_a, mut done_b) = (Commands::new(), Commands::new());
    b.poll(Nanos(1_000_000_000), &mut done_b);
    assert_eq!((done_b.len(), b.next_deadline()), (1, None));
    assert_eq!(a.next_deadline(), Some(Nanos(0)), "what another's poll finished is there");
    a.poll(Nanos(1_000_000_000), &mut done_a);
    assert_eq!(done_a.len(), 2);
    a.submit(Nanos(1_000_000_000), &mut Commands::from([write(3)]));
    drop(a);
    let mut c = open();
    b.poll(Nanos(2_000_000_000), &mut done_b);
    c.poll(Nanos(2_000_000_000), &mut done_a);
    assert_eq!((done_a.len(), done_b.len()), (2, 1));
}
