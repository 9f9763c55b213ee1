//! Waits for a disk to drain that cannot end: a device has lost a command, and the disk has no deadlines.

#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use zoneplug_core::disk::DiskConfig;
use zoneplug_core::{Error, ErrorKind, Flags, Nanos, Status};
use zoneplug_devices::emu::EmuDisk;
use zoneplug_devices::stack::FaultDisk;

const S: u64 = 1_000_000_000;

fn rig(plan: &str, latency: Nanos, timeout: Option<Nanos>) -> Rig {
    let mut make = make(8, 64, 64).queues(&[(64, 4)]);
    make.emu.latency = latency;
    let dev = EmuDisk::new(make.emu).unwrap();
    let fault = FaultDisk::new(dev.clone(), &plan.parse().unwrap()).unwrap();
    let disk = open(fault, DiskConfig { timeout, ..DiskConfig::default() });
    let queues = make.queues.iter().map(|&(d, t)| disk.open_polled_queue(d, t).unwrap()).collect();
    Rig { dev, disk, queues, now: Nanos(0), done: Vec::new() }
}

/// Polls the queue once a second of virtual time until `wait` has a result. Returns that, and the seconds that it took.
fn seconds<T>(r: &mut Rig, mut wait: impl FnMut(Nanos) -> Option<T>) -> (T, u64) {
    let start = r.now.0;
    loop {
        r.poll(0);
        if let Some(result) = wait(r.now) {
            return (result, (r.now.0 - start) / S);
        }
        r.now.0 += S;
        assert!(r.now.0 < start + 1000 * S, "it waits for ever");
    }
}

fn not_drained(e: &Error) {
    assert_eq!(e.kind(), ErrorKind::Busy);
    assert!(e.what().starts_with("the disk does not drain: no command has ended for"), "{e}");
}

/// The freeze says so after 30 s, or what was set. After that the disk goes on.
#[test]
fn a_freeze_with_a_lost_command_ends() {
    for (set, limit) in [(None, 30), (Some(5), 5)] {
        let mut r = rig("read/lost/count=1", Nanos(100), None);
        if let Some(s) = set {
            r.disk.set_drain_limit(Nanos(s * S));
        }
        r.submit(0, [read(0, 8)]);
        let mut freeze = r.disk.begin_freeze();
        let (e, took) = seconds(&mut r, |now| {
            assert!(!freeze.poll());
            freeze.overdue(now)
        });
        not_drained(&e);
        assert_eq!(took, limit);
        drop(freeze);
        r.submit(0, [write(0, 8), read(0, 8)]);
        r.now.0 += S;
        r.poll(0);
        assert_eq!(r.done.iter().map(|b| b.status).collect::<Vec<_>>(), [Status::Ok; 2]);
    }
}

/// A slow disk drains as long as it takes, parked writes, reads without a tag and requests in a scheduler too: each
/// command that ends begins the limit anew.
#[test]
fn a_slow_disk_may_take_longer_than_the_limit() {
    for scheduler in ["none", "mq-deadline"] {
        let mut r = rig("flush/io", Nanos(25 * S), None);
        r.disk.set_attribute("scheduler", "none").unwrap();
        let mut change = r.disk.change_attribute("scheduler", scheduler).unwrap();
        seconds(&mut r, |_| change.poll().then_some(()));
        let parked = (0..4).map(|i| flags(write(i * 8, 8), Flags::NOMERGE));
        r.submit(0, parked);
        r.submit(0, (0..12).map(|i| read(64 * (1 + i % 7), 8)));
        let mut freeze = r.disk.begin_freeze();
        let (end, took) = seconds(&mut r, |now| {
            let drained = freeze.poll();
            let overdue = freeze.overdue(now).filter(|_| !drained);
            (drained || overdue.is_some()).then_some(overdue)
        });
        assert!(end.is_none(), "{scheduler}: {end:?} after {took} s");
        assert!(took >= 100, "{scheduler}: {took}");
        assert_eq!(r.done.len(), 16);
    }
}

/// A deadline that is longer than the limit is waited for: then the command is given up, and the freeze is there.
#[test]
fn a_deadline_is_not_cut_short() {
    let mut r = rig("read/lost/count=1", Nanos(100), Some(Nanos(60 * S)));
    r.submit(0, [read(0, 8)]);
    let mut freeze = r.disk.begin_freeze();
    let (drained, took) = seconds(&mut r, |now| match freeze.poll() {
        true => Some(Ok(())),
        false => freeze.overdue(now).map(Err),
    });
    drained.unwrap();
    assert!((60..=61).contains(&took), "{took}");
    assert_eq!(r.done[0].status, Status::Timeout);
}

/// The attribute keeps its value, and can be changed once there is nothing to wait for.
#[test]
fn a_change_with_a_lost_command_ends() {
    let mut r = rig("read/delay=100s/count=1", Nanos(100), None);
    r.submit(0, [read(0, 8)]);
    let mut change = r.disk.change_attribute("zoned_qd1_writes", "1").unwrap();
    let (e, took) = seconds(&mut r, |now| {
        assert!(!change.poll());
        change.overdue(now)
    });
    not_drained(&e);
    assert_eq!((took, r.disk.attribute("zoned_qd1_writes").unwrap()), (30, "0".to_owned()));
    drop(change);
    r.now.0 += 100 * S;
    r.poll(0);
    let mut change = r.disk.change_attribute("zoned_qd1_writes", "1").unwrap();
    seconds(&mut r, |_| change.poll().then_some(()));
    assert_eq!(r.disk.attribute("zoned_qd1_writes").unwrap(), "1");
}

/// A revalidation ends too, whether it waits for a client's command or for its own report.
#[test]
fn a_revalidation_with_a_lost_command_ends() {
    for plan in ["read/lost/count=1", "report/lost/skip=1"] {
        let mut r = rig(plan, Nanos(100), None);
        r.submit(0, [read(0, 8)]);
        let mut own = r.disk.open_polled_queue(1, 1).unwrap();
        let mut revalidation = r.disk.revalidate();
        let (result, took) = seconds(&mut r, |now| revalidation.poll(&mut own, now));
        not_drained(&result.unwrap_err());
        assert!((30..=34).contains(&took), "{plan}: {took}");
        r.now.0 += S;
        let before = r.done.len();
        r.submit(0, [write(0, 8)]);
        r.now.0 += S;
        r.poll(0);
        assert_eq!((r.done.len() - before, r.done[before].status), (1, Status::Ok), "{plan}");
    }
}
