//! The shared part of a set of logs: the zones that no log has, and the flushes.
//!
//! The flushes of a set run one after the other, and waiting logs share the next one. The disk
//! reports a failure only once. So the next flush begins only when the outcome of the last one is
//! known, and any waiting log may poll for it: the log that began a flush may have been dropped, or
//! its tasks may not be polled.

use super::io::Flush;
use super::sleepers::Sleepers;
use super::{LogError, lock};
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

/// The flushes of a set.
struct Flushes {
    /// The number of flushes begun. The last one may not have ended.
    begun: u64,
    ended: u64,
    /// The flush that has not ended.
    current: Option<Flush>,
    /// Whether a thread is polling that flush.
    polled: bool,
    /// Whether another log polled meanwhile. It may have consumed the wake-up of the flush.
    missed: bool,
    /// The outcome of the last flush that has ended.
    outcome: Result<(), LogError>,
}

/// The shared state of the logs of a set.
pub(super) struct Pool {
    /// Whether each zone can be written from its start, by its index in the table of a log.
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

    /// Takes a zone out. `false` if it is not in the pool.
    pub(super) fn take(&self, zone: usize) -> bool {
        lock(&self.free).get_mut(zone).is_some_and(std::mem::take)
    }

    /// Returns an empty zone to the pool, for any log of the set.
    pub(super) fn give_back(&self, zone: usize) {
        if let Some(free) = lock(&self.free).get_mut(zone) {
            *free = true;
        }
    }

    /// Whether a flush failed. The disk may then have dropped data of any log.
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
            // Registered first, so that a flush that ends from now on wakes this log.
            self.sleepers.insert(log, cx.waker());
            let (outcome, wake) = self.work(&mut number, &begin);
            if wake {
                self.sleepers.wake_all();
            }
            outcome
        })
        .await
    }

    /// Advances the flushes until the one with this number has ended, or has to wait. Also returns
    /// whether the waiting logs have to be woken.
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
                // The polling thread wakes this log.
                f.missed = true;
                return (Poll::Pending, news);
            }
            let current = f.current.take();
            if current.is_none() {
                f.begun += 1;
            }
            (f.polled, f.missed) = (true, false);
            drop(f);
            // Unlocked: the disk may call wakers, which may use other logs of the set.
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

/// Dropped if a flush panics, whose outcome is then unknown.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A log that asks while another one polls the flush may have had its wake-up, so the waiting logs are woken.
    #[test]
    fn a_flush_that_another_log_missed_wakes_the_waiting_logs() {
        let pool = Arc::new(Pool::new(Vec::new()));
        let begin = |asks: bool| {
            let pool = pool.clone();
            move || -> Flush {
                let pool = pool.clone();
                Box::pin(poll_fn(move |_| {
                    let never = || -> Flush { Box::pin(std::future::pending()) };
                    if asks {
                        let (polled, _) = pool.work(&mut None, &never);
                        assert!(polled.is_pending());
                    }
                    Poll::Pending
                }))
            }
        };
        let (polled, wakes) = pool.work(&mut None, &begin(true));
        assert!(polled.is_pending() && wakes, "another log asked meanwhile");
        let pool = Arc::new(Pool::new(Vec::new()));
        let (polled, wakes) = pool.work(&mut None, &begin(false));
        assert!(polled.is_pending() && !wakes, "no log asked");
    }
}
