//! The device that the engine sees: the oracle watches its commands on their way down and up.

use super::SeamOracle;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Waker;
use zoneplug_core::zone::{Geometry, Limits, Spindles};
use zoneplug_core::{Commands, Device, Error, Nanos, Queue};

/// The device that the engine sees. Its queues report each command to the oracle.
pub(crate) struct ObservedDevice(pub(crate) Arc<SeamOracle>);

impl Device for ObservedDevice {
    fn geometry(&self) -> &Geometry {
        self.0.geometry()
    }

    fn limits(&self) -> &Limits {
        self.0.limits()
    }

    /// Keeps the engine from catching panics: a panic of the oracle must reach the world.
    fn never_panics(&self) -> bool {
        true
    }

    fn spindles(&self) -> Spindles {
        self.0.spindles.clone()
    }

    fn open_queue(&self, depth: u16, waker: Waker) -> Result<Box<dyn Queue>, Error> {
        let below = self.0.below.open_queue(depth, waker)?;
        let id = self.0.queues.fetch_add(1, Relaxed);
        Ok(Box::new(ObservedQueue { seam: self.0.clone(), id, below }))
    }
}

struct ObservedQueue {
    seam: Arc<SeamOracle>,
    id: usize,
    below: Box<dyn Queue>,
}

impl Queue for ObservedQueue {
    fn submit(&mut self, now: Nanos, commands: &mut Commands) {
        // Commands go down one at a time, so that the oracle learns which one the device did not take.
        let mut list = Commands::new();
        while let Some(c) = commands.pop_front() {
            self.seam.down(now, self.id, &c);
            list.push_back(c);
            self.below.submit(now, &mut list);
            if let Some(c) = list.pop_front() {
                self.seam.not_taken(self.id, &c);
                commands.push_front(c);
                return;
            }
        }
    }

    fn poll(&mut self, now: Nanos, done: &mut Commands) {
        let before = done.len();
        self.below.poll(now, done);
        for c in done.iter_mut().skip(before) {
            self.seam.up(self.id, c);
        }
        self.seam.polled(now, self.id);
    }

    fn next_deadline(&self) -> Option<Nanos> {
        self.below.next_deadline()
    }

    fn arm(&mut self) {
        self.below.arm();
    }
}
