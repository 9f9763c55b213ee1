//! H6: how much is held, and that no client uses up what others may use.

use super::common::*;
use super::rules::rest;
use zoneplug_core::disk::WindowCounters;
use zoneplug_core::{Bio, Nanos, Op, Status};

const EARLY: Status = Status::NotAtWritePointer;

/// 8 zones of 8192 sectors, write-zeroes of any length, and `queues` deep queues.
fn rig(queues: usize) -> Rig {
    let mut m = make(8, 8192, 8192).queues(&vec![(8192, 4); queues]);
    m.emu.limits.max_write_zeroes_sectors = 1 << 20;
    m.config.order_window = Nanos(1000);
    m.rig()
}

fn zeroes(zone: u64, at: u64, len: u32) -> Box<Bio> {
    op(Op::WriteZeroes, zone * 8192 + at, len)
}

/// How many of `n` writes of a sector each, two sectors apart, queue `q` has held in `zone`, from `first` on.
fn hold(r: &mut Rig, q: usize, zone: u64, first: u64, n: u64) -> u64 {
    let before = counters(r).writes;
    r.submit(q, (first..first + n).map(|i| zeroes(zone, 1 + 2 * i, 1)));
    r.poll(q);
    assert!(r.done.drain(..).all(|b| b.status == EARLY));
    counters(r).writes - before
}

fn counters(r: &Rig) -> WindowCounters {
    r.disk.counters().window
}

fn over(r: &Rig) -> (u64, u64, u64) {
    let c = counters(r);
    (c.over_zone, c.over_client, c.over_disk)
}

/// H6: a client has its share whatever others hold. A zone has its bound too, whichever clients the writes are of.
#[test]
fn h6_a_zone_and_a_client_hold_so_many_writes() {
    let mut r = rig(1);
    assert_eq!(hold(&mut r, 0, 0, 0, 1100), 1024, "a zone");
    assert_eq!(over(&r), (76, 0, 0));
    r.now = Nanos(1000);
    r.drain();
    r.done.clear();
    assert_eq!((counters(&r).writes, counters(&r).expired), (0, 1024));
    // 128 clients have 512 writes each.
    for _ in 1..128 {
        r.queues.push(r.disk.open_polled_queue(2048, 4).unwrap());
    }
    assert_eq!(hold(&mut r, 0, 0, 0, 600), 512, "a client");
    assert_eq!(hold(&mut r, 0, 1, 0, 10), 0, "in any zone");
    assert_eq!(over(&r), (76, 98, 0));
    assert_eq!(hold(&mut r, 1, 0, 600, 512), 512, "another has its own share");
    assert_eq!(hold(&mut r, 2, 0, 1200, 10), 0, "the zone");
    assert_eq!(hold(&mut r, 2, 1, 0, 512), 512, "and another zone is free");
    assert_eq!(over(&r), (86, 98, 0));
}

/// H6: bytes count, too.
#[test]
fn h6_a_zone_and_a_client_hold_so_many_bytes() {
    let mut m = make(8, 1 << 21, 1 << 21).queues(&[(64, 4); 128]);
    m.emu.kind = zoneplug_devices::emu::EmuKind::Null;
    m.emu.limits.max_write_zeroes_sectors = 1 << 21;
    m.config.order_window = Nanos(1000);
    let mut r = m.rig();
    const MIB: u32 = 2048;
    let zeroes = |zone: u64, mib: u32, len: u32| {
        op(Op::WriteZeroes, (zone << 21) + u64::from(mib * MIB), len)
    };
    let held = |r: &mut Rig, q: usize, zone: u64, mib: u32, len: u32| {
        let before = counters(r).sectors;
        r.submit(q, [zeroes(zone, mib, len)]);
        r.poll(q);
        r.done.clear();
        counters(r).sectors - before == u64::from(len)
    };
    // Each of 128 clients may have 32 MiB.
    assert!(held(&mut r, 0, 0, 1, 31 * MIB) && held(&mut r, 0, 1, 1, MIB));
    assert!(!held(&mut r, 0, 2, 1, 1), "the client");
    assert_eq!(over(&r), (0, 1, 0));
    for q in 1..8 {
        assert!(held(&mut r, q, 0, 32 * q as u32, 32 * MIB), "client {q} has its own share");
    }
    assert!(held(&mut r, 8, 0, 500, MIB) && !held(&mut r, 8, 0, 600, 1), "256 MiB of the zone");
    assert_eq!(over(&r), (1, 1, 0));
    // A client that has nothing held may have one write held, however long.
    r.queues[0].refuse_held();
    assert!(held(&mut r, 0, 4, 1, 64 * MIB), "one long write");
    assert!(!held(&mut r, 0, 4, 100, 1));
}

/// H6: the room of a write that was admitted, or refused in any way, is free again.
#[test]
fn h6_room_is_given_back() {
    let mut r = rig(1);
    r.disk.set_attribute("order_window", "1s").unwrap();
    for round in 0..4 {
        assert_eq!(hold(&mut r, 0, 0, 0, 1024), 1024, "round {round}");
        match round {
            0 => {
                // All gaps fill.
                for i in 0..1024 {
                    r.submit(0, [zeroes(0, 2 * i, 1)]);
                    rest(&mut r);
                }
                r.submit(0, [op(Op::ZoneReset, 0, 8192)]);
            }
            1 => r.queues[0].refuse_held(),
            2 => r.submit(0, [op(Op::ZoneReset, 0, 8192)]),
            _ => r.now = Nanos(r.now.0 + 1_000_000_000),
        }
        rest(&mut r);
        assert_eq!((counters(&r).writes, r.queues[0].outstanding()), (0, 0));
        r.done.clear();
    }
    let c = counters(&r);
    assert_eq!((c.held, c.admitted, c.dropped, c.expired), (4096, 1024, 2048, 1024));
}
