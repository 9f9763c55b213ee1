//! A device whose queue panics where a test says. Tests of other crates use this file too.

#![allow(dead_code)] // each test file uses a part

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::Waker;
use zoneplug_core::disk::{Disk, DiskConfig};
use zoneplug_core::zone::{Geometry, Limits};
use zoneplug_core::{Commands, Device, Error, Nanos, Queue};

/// Where a queue panics: before it has taken the commands,
pub(crate) const SUBMIT: u8 = 1;
/// after that,
pub(crate) const TAKEN: u8 = 2;
/// after it has given back what is finished,
pub(crate) const POLL: u8 = 3;
/// when it is asked for its next deadline,
pub(crate) const DEADLINE: u8 = 4;
/// when it is armed,
pub(crate) const ARM: u8 = 5;
/// and when it is dropped.
pub(crate) const DROP: u8 = 6;

/// Says where a [`Bomb`] panics next.
#[derive(Clone, Default)]
pub(crate) struct Fuse(Arc<AtomicU8>);

impl Fuse {
    /// The next call at `place` panics, in whichever queue. The calls after it do not.
    pub(crate) fn light(&self, place: u8) {
        self.0.store(place, Ordering::SeqCst);
    }

    fn at(&self, place: u8) {
        let hit = self.0.compare_exchange(place, 0, Ordering::SeqCst, Ordering::SeqCst);
        assert!(hit.is_err(), "the device panics on purpose");
    }
}

/// The device `dev`, which panics when its fuse is lit.
pub(crate) struct Bomb {
    dev: Arc<dyn Device>,
    fuse: Fuse,
}

impl Bomb {
    pub(crate) fn new(dev: Arc<dyn Device>) -> (Arc<Bomb>, Fuse) {
        let fuse = Fuse::default();
        (Arc::new(Bomb { dev, fuse: fuse.clone() }), fuse)
    }
}

impl Device for Bomb {
    fn geometry(&self) -> &Geometry {
        self.dev.geometry()
    }
    fn limits(&self) -> &Limits {
        self.dev.limits()
    }
    fn open_queue(&self, depth: u16, waker: Waker) -> Result<Box<dyn Queue>, Error> {
        let inner = self.dev.open_queue(depth, waker)?;
        Ok(Box::new(BombQueue { inner, fuse: self.fuse.clone() }))
    }
}

struct BombQueue {
    inner: Box<dyn Queue>,
    fuse: Fuse,
}

impl Queue for BombQueue {
    fn submit(&mut self, now: Nanos, commands: &mut Commands) {
        self.fuse.at(SUBMIT);
        self.inner.submit(now, commands);
        self.fuse.at(TAKEN);
    }
    fn poll(&mut self, now: Nanos, done: &mut Commands) {
        self.inner.poll(now, done);
        self.fuse.at(POLL);
    }
    fn next_deadline(&self) -> Option<Nanos> {
        self.fuse.at(DEADLINE);
        self.inner.next_deadline()
    }
    fn arm(&mut self) {
        self.fuse.at(ARM);
        self.inner.arm();
    }
}

impl Drop for BombQueue {
    fn drop(&mut self) {
        self.fuse.at(DROP);
    }
}

/// Opens a disk that survives such a device, in virtual time.
pub(crate) fn open_survivor(dev: Arc<dyn Device>) -> Disk {
    let config = DiskConfig { survive_panics: true, ..DiskConfig::default() };
    let mut now = Nanos(0);
    let clock = &mut |due: Option<Nanos>| {
        now = due.unwrap_or(now).max(now);
        now
    };
    Disk::open(dev, config, clock).expect("the disk opens")
}
