//! The queues of a device leave it to the next server in two steps. First each queue answers the requests that it has
//! begun and begins no others. When all have done so, the server decides: either the queues end, and Linux keeps the
//! other requests for the next server, or they stay and begin the requests that have come meanwhile.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;
use std::time::{Duration, Instant};
use zoneplug_core::poison::lock;

/// How long a server that ends waits for requests that its queues have begun. Requests that are still in flight then
/// are sent to the next server again, as if this server had died.
const DRAIN_LIMIT: Duration = Duration::from_secs(10);
/// The interval at which the server checks queues that leave.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// The bit of [`Leave::last`] at which the number of the order begins.
const NUMBER_SHIFT: u32 = 32;
/// The amount that one drained queue adds to [`Leave::last`]. The bits below are the step.
const ONE_DRAINED: u64 = 1 << 8;

/// The step that a server orders the queues of a device to take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum LeaveStep {
    /// Serve.
    Serve,
    /// Answer the requests that were begun, and begin no others.
    Drain,
    /// End.
    End,
}

/// A step, and the number of the order. A queue that has drained for one order has not for the next: it may have served
/// in between.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LeaveOrder {
    pub(super) step: LeaveStep,
    number: u32,
}

/// The last order to a device's queues, and the wakers of their threads.
pub(super) struct Leave {
    /// From the high bits: the number of the last order, how many queues have drained for it, and its step.
    last: AtomicU64,
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
        let last = AtomicU64::new(LeaveStep::Serve as u64);
        Leave { last, wakers: Mutex::default(), patience }
    }

    /// Adds a queue, which checks [`Leave::order`] each time that `waker` wakes it.
    pub(super) fn join(&self, waker: &Waker) {
        lock(&self.wakers).push(waker.clone());
    }

    /// Orders all queues to take this step.
    pub(super) fn tell(&self, step: LeaveStep) {
        // Called under the lock, which orders concurrent calls. The wakers are those of this crate's own queues.
        let wakers = lock(&self.wakers);
        let number = u64::from(self.order().number.wrapping_add(1));
        self.last.store(number << NUMBER_SHIFT | step as u64, Ordering::Release);
        wakers.iter().for_each(Waker::wake_by_ref);
    }

    pub(super) fn order(&self) -> LeaveOrder {
        let last = self.last.load(Ordering::Acquire);
        let step = match last & (ONE_DRAINED - 1) {
            0 => LeaveStep::Serve,
            1 => LeaveStep::Drain,
            _ => LeaveStep::End,
        };
        LeaveOrder { step, number: (last >> NUMBER_SHIFT) as u32 }
    }

    pub(super) fn step(&self) -> LeaveStep {
        self.order().step
    }

    /// Counts a queue that has answered all requests that it had begun, and has passed the answers to the kernel. Counts
    /// nothing if there is another order by now.
    pub(super) fn add_drained(&self, order: LeaveOrder) {
        let is_last = |last: u64| last >> NUMBER_SHIFT == u64::from(order.number);
        let add = |last| is_last(last).then_some(last + ONE_DRAINED);
        let _ = self.last.fetch_update(Ordering::AcqRel, Ordering::Acquire, add);
    }

    /// Whether all queues have answered all requests that they had begun before the last order.
    pub(super) fn is_drained(&self) -> bool {
        let drained = self.last.load(Ordering::Acquire) as u32 / ONE_DRAINED as u32;
        drained as usize >= lock(&self.wakers).len()
    }

    /// Whether a server that ends and has waited since `since` may go on: all queues have drained, or its patience is over.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// U9. A queue that drained for a hand-over that was refused has to drain again for the next one, even if it has not seen yet
    /// that it may serve.
    #[test]
    fn u9_a_queue_that_drained_for_one_order_has_not_for_the_next() {
        let leave = Leave::default();
        leave.join(Waker::noop());
        leave.tell(LeaveStep::Drain);
        let first = leave.order();
        assert!(first.step == LeaveStep::Drain && !leave.is_drained());
        leave.add_drained(first);
        assert!(leave.is_drained());
        leave.tell(LeaveStep::Serve);
        leave.tell(LeaveStep::Drain);
        assert!(!leave.is_drained(), "it may be serving");
        leave.add_drained(first);
        assert!(!leave.is_drained(), "it was slow to say so");
        leave.add_drained(leave.order());
        assert!(leave.is_drained());
    }
}
