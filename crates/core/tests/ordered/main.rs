//! Several writes of a zone in flight, on a device that keeps their order: I1 becomes "at most N, on one queue, in
//! order". This file has what is sent, and by which queue. `failures.rs` has how a zone goes on after a failure, and
//! `meanwhile.rs` what happens beside that.
#![allow(clippy::unwrap_used, clippy::vec_box)]

#[path = "../common/mod.rs"]
mod common;
mod device;
mod failures;
mod meanwhile;

use common::*;
use device::*;
use zoneplug_core::zone::Condition;
use zoneplug_core::{Flags, Nanos, Op, Random, Status};
use zoneplug_devices::emu::Fault;

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

/// C3, R19: a zone waits for tags in line with reads, and the reads get theirs.
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

/// Merged commands, write-zeroes, FUA and writes that span zones, several at a time and with failures.
/// E7.
#[test]
fn all_kinds_of_writes_come_through_failures() {
    for seed in 0..40 {
        let mut rng = Random::new(seed);
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
