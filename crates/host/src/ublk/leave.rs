//! The queues of a device leave it to the next server in two steps. First each queue answers the requests that it has
//! begun and begins no others. When all have done so, the server decides: either the queues end, and Linux keeps the
//! other requests for the next server, or they stay and begin the requests that have come meanwhile.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::task::Waker;
use std::time::{Duration, Instant};
use zoneplug_core::poison::lock;

/// How long a server that ends waits for requests that its queues have begun. Requests that are still in flight then
/// are sent to the next server again, as if this server had died.
const DRAIN_LIMIT: Duration = Duration::from_secs(10);
/// The interval at which the server checks queues that leave.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// The order that a server gives to the queues of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum LeaveStep {
    /// Serve.
    Serve,
    /// Answer the requests that were begun, and begin no others.
    Drain,
    /// End.
    Go,
}

/// The step of a device's queues, and the wakers of their threads.
pub(super) struct Leave {
    step: AtomicU8,
    /// Queues that have answered all requests that they had begun.
    drained: AtomicUsize,
    wakers: Mutex<Vec<Waker>>,
    /// How long a server that ends waits for requests that the queues have begun.
    patience: Duration,
}

impl Default for Leave {
    fn default() -> Leave {
        Leave::within(DRAIN_LIMIT)
    }
}

impl Leave {
    /// A server that ends waits at most `patience` for requests that the queues have begun.
    pub(super) fn within(patience: Duration) -> Leave {
        let (step, drained) = (AtomicU8::new(LeaveStep::Serve as u8), AtomicUsize::new(0));
        Leave { step, drained, wakers: Mutex::default(), patience }
    }

    /// Adds a queue, which checks [`Leave::step`] each time that `waker` wakes it.
    pub(super) fn join(&self, waker: &Waker) {
        lock(&self.wakers).push(waker.clone());
    }

    /// Orders all queues to take this step.
    pub(super) fn tell(&self, step: LeaveStep) {
        self.step.store(step as u8, Ordering::Release);
        lock(&self.wakers).iter().for_each(Waker::wake_by_ref);
    }

    pub(super) fn step(&self) -> LeaveStep {
        match self.step.load(Ordering::Acquire) {
            0 => LeaveStep::Serve,
            1 => LeaveStep::Drain,
            _ => LeaveStep::Go,
        }
    }

    /// Counts a queue that has answered all requests that it had begun, and has passed the answers to the kernel.
    pub(super) fn add_drained(&self) {
        self.drained.fetch_add(1, Ordering::AcqRel);
    }

    /// Removes a queue from that count: it serves again.
    pub(super) fn remove_drained(&self) {
        self.drained.fetch_sub(1, Ordering::AcqRel);
    }

    /// Whether all queues have answered all requests that they had begun.
    pub(super) fn is_drained(&self) -> bool {
        self.drained.load(Ordering::Acquire) >= lock(&self.wakers).len()
    }

    /// Whether a server that ends, and has waited since `since`, stops waiting.
    pub(super) fn is_over(&self, since: Instant) -> bool {
        self.is_drained() || since.elapsed() >= self.patience
    }

    /// Waits until `is_over`.
    pub(super) fn wait_over(&self) {
        let since = Instant::now();
        while !self.is_over(since) {
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Waits until `is_drained`. False: `end` has come first.
    pub(super) fn wait_drained(&self, end: Instant) -> bool {
        while !self.is_drained() {
            if Instant::now() >= end {
                return false;
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        true
    }
}
