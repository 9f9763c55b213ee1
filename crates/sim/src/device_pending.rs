//! Counts the commands of each zone that the device has taken and not carried out. The counter stands between the
//! faults and the device of a world.
//!
//! A command that the layer has given up is still at the device, and a device that reorders may carry it out later.
//! The content of such a zone is unknown, so the world waits until the count is 0.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Waker;
use zoneplug_core::zone::{Geometry, Limits, Spindles};
use zoneplug_core::{Command, Commands, Device, Error, Nanos, Op, Queue};

pub(crate) struct DevicePending {
    below: Arc<dyn Device>,
    /// Commands at the device that change a zone, by zone.
    zones: Mutex<Vec<u32>>,
    /// Resets of all zones at the device.
    all: AtomicU32,
}

/// The zones that a command at the device may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Touches {
    Nothing,
    Zone(u32),
    All,
}

impl DevicePending {
    pub(crate) fn new(below: Arc<dyn Device>) -> Arc<DevicePending> {
        let nr_zones = below.geometry().nr_zones() as usize;
        Arc::new(DevicePending {
            below,
            zones: Mutex::new(vec![0; nr_zones]),
            all: AtomicU32::new(0),
        })
    }

    fn zones(&self) -> MutexGuard<'_, Vec<u32>> {
        zoneplug_core::poison::lock(&self.zones)
    }

    /// Returns whether the device may still change zone `z`.
    pub(crate) fn is_pending(&self, z: usize) -> bool {
        self.all.load(Relaxed) > 0 || self.zones()[z] > 0
    }

    /// Returns whether the device may still change any zone.
    pub(crate) fn is_any_pending(&self) -> bool {
        self.all.load(Relaxed) > 0 || self.zones().iter().any(|&n| n > 0)
    }

    fn touches(&self, c: &Command) -> Touches {
        match c.op {
            Op::Read | Op::Flush | Op::ReportZones => Touches::Nothing,
            Op::ZoneResetAll => Touches::All,
            _ => Touches::Zone(self.below.geometry().zone_of(c.sector).0.0),
        }
    }

    fn add(&self, what: Touches, n: i32) {
        match what {
            Touches::Nothing => {}
            Touches::Zone(z) => {
                if let Some(count) = self.zones().get_mut(z as usize) {
                    *count = count.wrapping_add_signed(n);
                }
            }
            Touches::All => {
                self.all.fetch_add(n as u32, Relaxed);
            }
        }
    }
}

/// The device below the faults.
pub(crate) struct CountedDevice(pub(crate) Arc<DevicePending>);

impl Device for CountedDevice {
    fn geometry(&self) -> &Geometry {
        self.0.below.geometry()
    }

    fn limits(&self) -> &Limits {
        self.0.below.limits()
    }

    fn is_timed(&self) -> bool {
        self.0.below.is_timed()
    }

    fn spindles(&self) -> Spindles {
        self.0.below.spindles()
    }

    fn open_queue(&self, depth: u16, waker: Waker) -> Result<Box<dyn Queue>, Error> {
        let below = self.0.below.open_queue(depth, waker)?;
        Ok(Box::new(CountedQueue { device_pending: self.0.clone(), below, held: Vec::new() }))
    }
}

struct CountedQueue {
    device_pending: Arc<DevicePending>,
    below: Box<dyn Queue>,
    /// The commands of this queue that are counted.
    held: Vec<Touches>,
}

impl Queue for CountedQueue {
    fn submit(&mut self, now: Nanos, commands: &mut Commands) {
        let all: Vec<_> = commands.iter().map(|c| self.device_pending.touches(c)).collect();
        self.below.submit(now, commands);
        for &what in &all[..all.len() - commands.len()] {
            self.device_pending.add(what, 1);
            self.held.push(what);
        }
    }

    fn poll(&mut self, now: Nanos, done: &mut Commands) {
        let before = done.len();
        self.below.poll(now, done);
        for c in done.iter().skip(before) {
            let what = self.device_pending.touches(c);
            if let Some(i) = self.held.iter().position(|&h| h == what) {
                self.held.swap_remove(i);
                self.device_pending.add(what, -1);
            }
        }
    }

    fn next_deadline(&self) -> Option<Nanos> {
        self.below.next_deadline()
    }

    fn arm(&mut self) {
        self.below.arm();
    }
}

impl Drop for CountedQueue {
    fn drop(&mut self) {
        for &what in &self.held {
            self.device_pending.add(what, -1);
        }
    }
}
