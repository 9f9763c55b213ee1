//! What stands between the faults and the device of a world: it counts the commands of each zone that the device
//! has taken and not carried out.
//!
//! A command that the layer has given up is at the device still, and one that shuffles may carry it out when nobody
//! expects it any more. Whoever wants to know what such a zone holds has to wait until there is none.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use zoneplug_core::zone::{Geometry, Limits, Spindles};
use zoneplug_core::{Command, Commands, Device, Error, Nanos, Op, Queue};

pub(crate) struct Ground {
    below: Arc<dyn Device>,
    /// Changing commands at the device, by zone.
    zones: Mutex<Vec<u32>>,
    /// Those of all zones together, and resets of all zones.
    all: AtomicU32,
}

/// What a command at the device may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Touches {
    Nothing,
    Zone(u32),
    All,
}

impl Ground {
    pub(crate) fn new(below: Arc<dyn Device>) -> Arc<Ground> {
        let nr_zones = below.geometry().nr_zones() as usize;
        Arc::new(Ground { below, zones: Mutex::new(vec![0; nr_zones]), all: AtomicU32::new(0) })
    }

    fn zones(&self) -> MutexGuard<'_, Vec<u32>> {
        self.zones.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the device may still change zone `z` by itself.
    pub(crate) fn is_pending(&self, z: usize) -> bool {
        self.all.load(Relaxed) > 0 || self.zones()[z] > 0
    }

    /// Whether it may change any.
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

/// The device that the faults see.
pub(crate) struct Grounded(pub(crate) Arc<Ground>);

impl Device for Grounded {
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
        Ok(Box::new(GroundQueue { ground: self.0.clone(), below, held: Vec::new() }))
    }
}

struct GroundQueue {
    ground: Arc<Ground>,
    below: Box<dyn Queue>,
    /// What it counts in `ground`.
    held: Vec<Touches>,
}

impl Queue for GroundQueue {
    fn submit(&mut self, now: Nanos, commands: &mut Commands) {
        let all: Vec<_> = commands.iter().map(|c| self.ground.touches(c)).collect();
        self.below.submit(now, commands);
        for &what in &all[..all.len() - commands.len()] {
            self.ground.add(what, 1);
            self.held.push(what);
        }
    }

    fn poll(&mut self, now: Nanos, done: &mut Commands) {
        let before = done.len();
        self.below.poll(now, done);
        for c in done.iter().skip(before) {
            let what = self.ground.touches(c);
            if let Some(i) = self.held.iter().position(|&h| h == what) {
                self.held.swap_remove(i);
                self.ground.add(what, -1);
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

impl Drop for GroundQueue {
    fn drop(&mut self) {
        for &what in &self.held {
            self.ground.add(what, -1);
        }
    }
}
