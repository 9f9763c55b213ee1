//! Devices that misbehave, for tests of hosted disks.

#![allow(dead_code)]

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;
use zoneplug_core::disk::DiskConfig;
use zoneplug_core::zone::{Geometry, Limits};
use zoneplug_core::{Command, Commands, Device, Error, Nanos, Op, Queue};
use zoneplug_devices::emu::{EmuConfig, EmuDisk};

/// Nothing here takes as long: what does hangs.
pub(crate) const LONG: Duration = Duration::from_secs(20);

/// The result of `f`, or a panic if it hangs.
pub(crate) fn within<T: Send + 'static>(what: &str, f: impl FnOnce() -> T + Send + 'static) -> T {
    let (tx, rx) = mpsc::channel();
    let t = std::thread::spawn(move || {
        let _ = tx.send(f());
    });
    match rx.recv_timeout(LONG) {
        Ok(result) => result,
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("hang: {what}"),
        Err(mpsc::RecvTimeoutError::Disconnected) => {
            std::panic::resume_unwind(t.join().expect_err("it sent nothing"))
        }
    }
}

/// Until `done`, or a panic.
pub(crate) fn until(what: &str, mut done: impl FnMut() -> bool) {
    let end = std::time::Instant::now() + LONG;
    while !done() {
        assert!(std::time::Instant::now() < end, "hang: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

struct Unpark(std::thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// What a future comes to. It is polled only when it was woken: a lost wake-up is a panic after `LONG`, not a busy loop
/// that hides it.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let end = std::time::Instant::now() + LONG;
    loop {
        if let Poll::Ready(x) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return x;
        }
        let left = end.saturating_duration_since(std::time::Instant::now());
        assert!(!left.is_zero(), "nobody woke the future");
        std::thread::park_timeout(left);
    }
}

pub(crate) fn timeout(ms: u64) -> DiskConfig {
    DiskConfig { timeout: Some(Nanos(ms * 1_000_000)), ..DiskConfig::default() }
}

/// Where a [`Bad`] device panics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum PanicPlace {
    Nowhere,
    Submit,
    Taken,
    Poll,
    Deadline,
    Arm,
}

/// What a [`Bad`] device does next.
#[derive(Default)]
pub(crate) struct Plan {
    place: AtomicU32,
    /// Reads that come are carried out so many nanoseconds later, whatever the layer thinks of them by then.
    slow_reads: AtomicU64,
    /// A descriptor to sleep on: until a client arms with it nothing comes back, and after that the next submit panics.
    gate: AtomicI32,
    /// Reports have no zones.
    pub(crate) mute: AtomicBool,
    /// Queues of the device that exist.
    pub(crate) queues: AtomicU32,
    /// Polls of its queues.
    pub(crate) polls: AtomicU64,
    /// Its queues have had work since the first moment, and no poll ends it.
    pub(crate) overdue: AtomicBool,
}

impl Plan {
    /// The next call at `place` panics, once.
    pub(crate) fn panic_at(&self, place: PanicPlace) {
        self.place.store(place as u32, Ordering::SeqCst);
    }

    pub(crate) fn slow_reads(&self, by: Duration) {
        self.slow_reads.store(by.as_nanos() as u64, Ordering::SeqCst);
    }

    pub(crate) fn gate(&self, fd: i32) {
        self.gate.store(fd, Ordering::SeqCst);
    }

    fn at(&self, place: PanicPlace) {
        let hit = self.place.compare_exchange(place as u32, 0, Ordering::SeqCst, Ordering::SeqCst);
        assert!(hit.is_err(), "the device panics on purpose");
    }
}

/// An emulated disk that panics, or touches memory late.
pub(crate) struct Bad {
    pub(crate) dev: Arc<EmuDisk>,
    pub(crate) plan: Arc<Plan>,
}

impl Bad {
    pub(crate) fn new(spec: &str) -> Arc<Bad> {
        let config: EmuConfig = spec.parse().expect("a specification");
        let dev = EmuDisk::new(config).expect("a device");
        Arc::new(Bad { dev, plan: Arc::default() })
    }
}

impl Device for Bad {
    fn geometry(&self) -> &Geometry {
        self.dev.geometry()
    }

    fn limits(&self) -> &Limits {
        self.dev.limits()
    }

    fn open_queue(&self, depth: u16, waker: Waker) -> Result<Box<dyn Queue>, Error> {
        let inner = self.dev.open_queue(depth, waker)?;
        self.plan.queues.fetch_add(1, Ordering::SeqCst);
        let plan = self.plan.clone();
        Ok(Box::new(BadQueue { inner, plan, held: Vec::new(), armed: false }))
    }
}

struct BadQueue {
    inner: Box<dyn Queue>,
    plan: Arc<Plan>,
    held: Vec<(Nanos, Box<Command>)>,
    armed: bool,
}

impl Queue for BadQueue {
    fn submit(&mut self, now: Nanos, commands: &mut Commands) {
        self.plan.at(PanicPlace::Submit);
        let slow = self.plan.slow_reads.load(Ordering::SeqCst);
        let mut pass = Commands::new();
        for c in commands.drain(..) {
            if c.op == Op::Read && slow > 0 {
                self.held.push((now.plus(Nanos(slow)), c));
            } else {
                pass.push_back(c);
            }
        }
        self.inner.submit(now, &mut pass);
        commands.append(&mut pass);
        self.plan.at(PanicPlace::Taken);
    }

    fn poll(&mut self, now: Nanos, done: &mut Commands) {
        self.plan.polls.fetch_add(1, Ordering::SeqCst);
        if self.plan.gate.load(Ordering::SeqCst) > 0 && !self.armed {
            return;
        }
        while let Some(i) = self.held.iter().position(|h| h.0 <= now) {
            self.inner.submit(now, &mut Commands::from([self.held.remove(i).1]));
        }
        self.inner.poll(now, done);
        if self.plan.mute.load(Ordering::SeqCst) {
            done.iter_mut().for_each(|c| c.report.clear());
        }
        self.plan.at(PanicPlace::Poll);
    }

    fn next_deadline(&self) -> Option<Nanos> {
        self.plan.at(PanicPlace::Deadline);
        if self.plan.gate.load(Ordering::SeqCst) > 0 {
            return None;
        }
        if self.plan.overdue.load(Ordering::SeqCst) {
            return Some(Nanos(0));
        }
        let held = self.held.iter().map(|h| h.0).min();
        self.inner.next_deadline().into_iter().chain(held).min()
    }

    fn arm(&mut self) {
        self.plan.at(PanicPlace::Arm);
        self.inner.arm();
    }

    fn arm_fd(&mut self) -> Option<i32> {
        let fd = self.plan.gate.load(Ordering::SeqCst);
        if fd > 0 {
            self.armed = true;
            self.plan.panic_at(PanicPlace::Submit);
            return Some(fd);
        }
        self.arm();
        None
    }
}

impl Drop for BadQueue {
    fn drop(&mut self) {
        self.plan.queues.fetch_sub(1, Ordering::SeqCst);
    }
}
