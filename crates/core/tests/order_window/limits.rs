//! Held writes when a revalidation finds other limits.

use super::common::*;
use super::rules::rest;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;
use zoneplug_core::disk::DiskConfig;
use zoneplug_core::zone::{Geometry, Limits};
use zoneplug_core::{Bio, Device, Error, Flags, Nanos, Op, Queue, Status, ZoneNo};
use zoneplug_devices::emu::EmuDisk;

/// A device whose limits change.
struct Changing {
    dev: Arc<EmuDisk>,
    changed: Arc<AtomicBool>,
    after: Limits,
}

impl Device for Changing {
    fn geometry(&self) -> &Geometry {
        self.dev.geometry()
    }

    fn limits(&self) -> &Limits {
        if self.changed.load(Ordering::Relaxed) { &self.after } else { self.dev.limits() }
    }

    fn open_queue(&self, depth: u16, waker: Waker) -> Result<Box<dyn Queue>, Error> {
        self.dev.open_queue(depth, waker)
    }
}

/// Holds a write, revalidates a device whose limits `change`, moves its write pointer to `moved`, and submits `next`.
/// Returns how the held write ended, and where the zone's write pointer is at the device.
fn held_across(
    held: Box<Bio>,
    change: impl FnOnce(&mut Limits),
    moved: Option<u32>,
    next: Box<Bio>,
) -> (Status, u64) {
    let mut made = make(4, 64, 48);
    made.emu.limits.max_write_zeroes_sectors = 32;
    let dev = EmuDisk::new(made.emu).unwrap();
    let changed = Arc::new(AtomicBool::new(false));
    let mut after = dev.limits().clone();
    change(&mut after);
    let device = Changing { dev: dev.clone(), changed: changed.clone(), after };
    let disk =
        open(Arc::new(device), DiskConfig { order_window: Nanos(1_000_000), ..Default::default() });
    let queue = disk.open_polled_queue(16, 4).unwrap();
    let mut r = Rig { dev, disk, queues: vec![queue], now: Nanos(0), done: Vec::new() };
    r.submit(0, [token(held, 1)]);
    assert_eq!(r.disk.counters().window.writes, 1);
    changed.store(true, Ordering::Relaxed);
    let mut revalidation = r.disk.revalidate();
    loop {
        if let Some(result) = revalidation.poll(&mut r.queues[0], r.now) {
            break result.unwrap();
        }
        r.now = r.queues[0].next_deadline().unwrap_or(r.now).max(r.now);
    }
    drop(revalidation);
    if let Some(to) = moved {
        r.dev.set_write_pointer(ZoneNo(0), to);
    }
    r.submit(0, [token(next, 2)]);
    rest(&mut r);
    let at = r.device_wp(0);
    r.drain();
    let held = r.done.iter().find(|b| b.token() == 1).unwrap();
    (held.status, at)
}

/// A held write was checked for the limits of before. None of these would have been sent.
#[test]
fn h8_held_writes_do_not_outlive_the_limits_that_they_were_checked_for() {
    let early = Status::NotAtWritePointer;
    let shorter = |l: &mut Limits| l.max_transfer_sectors = 8;
    assert_eq!(held_across(write(8, 16), shorter, None, write(0, 8)), (early, 8));
    let coarser = |l: &mut Limits| l.write_granularity_sectors = 32;
    assert_eq!(held_across(write(32, 4), coarser, None, write(0, 32)), (early, 32));
    let no_zeroes = |l: &mut Limits| l.max_write_zeroes_sectors = 0;
    let zeroes = op(Op::WriteZeroes, 8, 16);
    assert_eq!(held_across(zeroes, no_zeroes, None, write(0, 8)), (early, 8));
    let read_only = |l: &mut Limits| l.read_only = true;
    let resync = flags(report(0, 4), Flags::RESYNC);
    assert_eq!(held_across(write(8, 8), read_only, Some(8), resync), (early, 8));
    // Nothing has changed: the held write follows.
    assert_eq!(held_across(write(8, 16), |_| {}, None, write(0, 8)), (Status::Ok, 24));
}
