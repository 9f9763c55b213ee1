//! What the logs of a set share: the zones that no log has, and the flushes.
//!
//! The flushes of a set are one after the other, and logs that wait share the next one. The disk reports a failure once
//! only. So the next flush begins when the outcome of the last one is known, and any log that waits finds it out: the
//! log that began a flush may have gone, or its tasks may not be polled.

use super::io::Flush;
use super::sleepers::Sleepers;
use super::{LogError, lock};
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

/// The flushes of a set.
struct Flushes {
    /// How many were begun. The last one of them may not have ended.
    begun: u64,
    ended: u64,
    /// The one that has not ended.
    current: Option<Flush>,
    /// A thread polls that one.
    polled: bool,
    /// Another log looked meanwhile. It may have used up the wake-up of the flush.
    missed: bool,
    /// The outcome of the last one that has ended.
    outcome: Result<(), LogError>,
}

/// The state that the logs of a set have in common.
pub(super) struct Pool {
    /// Which zones can be written from their start, by their place in the table of a log.
    free: Mutex<Vec<bool>>,
    flushes: Mutex<Flushes>,
    flush_failed: AtomicBool,
    /// The logs that wait for a flush, by their ids.
    sleepers: Arc<Sleepers>,
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").field("free", &self.free).finish_non_exhaustive()
    }
}

impl Pool {
    pub(super) fn new(free: Vec<bool>) -> Pool {
        let flushes = Flushes {
            begun: 0,
            ended: 0,
            current: None,
            polled: false,
            missed: false,
            outcome: Ok(()),
        };
        Pool {
            free: Mutex::new(free),
            flushes: Mutex::new(flushes),
            flush_failed: AtomicBool::new(false),
            sleepers: Arc::default(),
        }
    }

    /// Takes a zone out. `false`: it is not in the pool.
    pub(super) fn take(&self, zone: usize) -> bool {
        lock(&self.free).get_mut(zone).is_some_and(std::mem::take)
    }

    /// Puts an empty zone in again, for any log of the set.
    pub(super) fn give_back(&self, zone: usize) {
        if let Some(free) = lock(&self.free).get_mut(zone) {
            *free = true;
        }
    }

    /// Whether a flush failed. The disk may have dropped data of any log then.
    pub(super) fn has_flush_failed(&self) -> bool {
        self.flush_failed.load(Ordering::SeqCst)
    }

    /// Returns the outcome of a flush that begins after this call. `begin` begins one.
    pub(super) async fn flush(
        &self,
        log: u64,
        begin: impl Fn() -> Flush + Send,
    ) -> Result<(), LogError> {
        let _asleep = Asleep { sleepers: &self.sleepers, log };
        let mut number = None;
        poll_fn(|cx| {
            // First: a flush that ends from now on wakes this log.
            self.sleepers.insert(log, cx.waker());
            let (outcome, wake) = self.work(&mut number, &begin);
            if wake {
                self.sleepers.wake_all();
            }
            outcome
        })
        .await
    }

    /// Goes on with the flushes until the one with this number has ended, or has to wait. Returns also whether the
    /// logs that wait have to look.
    fn work(
        &self,
        number: &mut Option<u64>,
        begin: &impl Fn() -> Flush,
    ) -> (Poll<Result<(), LogError>>, bool) {
        let waker = Waker::from(self.sleepers.clone());
        let mut cx = Context::from_waker(&waker);
        let mut news = false;
        let mut f = lock(&self.flushes);
        let number = *number.get_or_insert(f.begun + 1);
        loop {
            if f.ended >= number {
                return (Poll::Ready(f.outcome.clone()), news);
            }
            if self.has_flush_failed() {
                return (Poll::Ready(Err(LogError::Failed)), news);
            }
            if f.polled {
                // The thread that polls it wakes this log.
                f.missed = true;
                return (Poll::Pending, news);
            }
            let current = f.current.take();
            if current.is_none() {
                f.begun += 1;
            }
            (f.polled, f.missed) = (true, false);
            drop(f);
            // Unlocked: the disk may call wakers, and those may use other logs of the set.
            let unknown = Unknown(self);
            let mut now = current.unwrap_or_else(begin);
            let polled = now.as_mut().poll(&mut cx);
            std::mem::forget(unknown);
            f = lock(&self.flushes);
            f.polled = false;
            match polled {
                Poll::Pending => {
                    f.current = Some(now);
                    return (Poll::Pending, news || f.missed);
                }
                Poll::Ready(outcome) => {
                    if outcome.is_err() {
                        self.flush_failed.store(true, Ordering::SeqCst);
                    }
                    f.outcome = outcome;
                    f.ended = f.begun;
                    news = true;
                }
            }
        }
    }
}

/// Dropped if a flush panics: its outcome is unknown.
struct Unknown<'a>(&'a Pool);

impl Drop for Unknown<'_> {
    fn drop(&mut self) {
        self.0.flush_failed.store(true, Ordering::SeqCst);
        self.0.sleepers.wake_all();
    }
}

/// Exists while a log waits for a flush.
struct Asleep<'a> {
    sleepers: &'a Sleepers,
    log: u64,
}

impl Drop for Asleep<'_> {
    fn drop(&mut self) {
        self.sleepers.remove(self.log);
    }
}
