//! Freeze: a time in which nothing is in flight.
//!
//! While a freeze lasts, queues take no new BIOs and finish those that they have: completions go on sending parked writes.
//! Each queue notices the freeze when it is next used, and says in its mailbox whether it still has work. Since it takes
//! nothing new, a queue that was idle once stays idle. So no lock is held while the disk drains, and submission costs nothing
//! more.
//!
//! A command that the device never gives back would keep a freeze for ever. On a disk with command deadlines it is given up. On
//! any disk, a freeze without progress for the drain limit says so, and its owner drops it.

use super::handle::Disk;
use super::shared::Shared;
use super::state::{self, FREEZES, VERSION};
use crate::error::{Error, ErrorKind};
use crate::sync::{Ordering, lock};
use crate::unit::Nanos;
use std::sync::Arc;

/// A disk that is being frozen, or is frozen: until this is dropped.
///
/// ```no_run
/// # use zoneplug_core::{disk::{Disk, DiskQueue}, Bios, Nanos};
/// # fn f(disk: Disk, mut queue: DiskQueue) {
/// let freeze = disk.begin_freeze();
/// let mut done = Bios::new();
/// while !freeze.poll() {
///     queue.poll(Nanos(0), &mut done); // every queue of the disk, until it is drained
/// }
/// // nothing is in flight now
/// drop(freeze);
/// # }
/// ```
#[derive(Debug)]
pub struct Freeze {
    shared: Arc<Shared>,
    version: u32,
    /// What [`Freeze::overdue`] saw last, and since when.
    seen: Option<(Progress, Nanos)>,
}

/// What changes while a disk drains: commands sent by plugs, and the work left in queues and in the scheduler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Progress {
    issued: u64,
    left: u64,
}

impl Disk {
    /// Starts to freeze the disk. Several freezes may overlap; the disk goes on when all have been dropped.
    ///
    /// # Panics
    ///
    /// If 255 freezes overlap already.
    pub fn begin_freeze(&self) -> Freeze {
        let queues = lock(&self.shared.queues);
        let before = self.shared.state.0.fetch_add(VERSION + 1, Ordering::AcqRel);
        assert!(before & FREEZES != FREEZES, "255 freezes overlap");
        let version = before.wrapping_add(VERSION + 1) / VERSION;
        // An earlier acknowledgement must not count for this freeze, even if the version has wrapped.
        for q in queues.iter().flatten() {
            q.ack.store(state::word(version, true), Ordering::Release);
        }
        Freeze { shared: self.shared.clone(), version, seen: None }
    }

    /// Sets how long a freeze, a change of an attribute and a revalidation wait for the device while no command ends. The default is
    /// 30 s. On a disk with a [timeout](crate::disk::DiskConfig::timeout) the limit is at least a second more than that.
    ///
    /// Applies to waits under way too.
    pub fn set_drain_limit(&self, limit: Nanos) {
        self.shared.drain_limit.store(limit.0, Ordering::Relaxed);
    }
}

impl Shared {
    pub(super) fn drain_limit(&self) -> Nanos {
        let set = self.drain_limit.load(Ordering::Relaxed);
        let timeout = lock(&self.layout).config.timeout;
        Nanos(timeout.map_or(set, |t| set.max(t.0.saturating_add(1_000_000_000))))
    }

    /// The error of a wait that got over its limit.
    pub(super) fn not_drained(&self, waited: Nanos) -> Error {
        let what = format!(
            "the disk does not drain: no command has ended for {} ms",
            waited.0 / 1_000_000
        );
        Error::new(ErrorKind::Busy, what)
            .hint("the device may have lost a command: open the disk with timeout=30s")
    }
}

impl Freeze {
    /// Whether nothing is in flight any more. Until then every queue of the disk must be polled.
    pub fn poll(&self) -> bool {
        // Locked to the end: see `errands`.
        lock(&self.shared.queues)
            .iter()
            .flatten()
            .all(|q| state::is_idle_since(q.ack.load(Ordering::Acquire), self.version))
    }
}

impl Freeze {
    /// The error with which to give up: `Some` if the disk still drains, and no command has ended for the drain limit
    /// ([`Disk::set_drain_limit`]). Call it after [`Freeze::poll`] has said no, with the time that queues are polled with.
    ///
    /// The freeze goes on until it is dropped. Dropping it thaws the disk; commands in flight are not changed.
    pub fn overdue(&mut self, now: Nanos) -> Option<Error> {
        let mut progress = Progress {
            issued: self.shared.past.issued.load(Ordering::Relaxed),
            left: u64::from(lock(&self.shared.elevator.0).waiting()),
        };
        for q in lock(&self.shared.queues).iter().flatten() {
            progress.issued += q.counts.0.issued.load(Ordering::Relaxed);
            progress.left += u64::from(q.work_left.load(Ordering::Relaxed));
        }
        match self.seen {
            Some((seen, since)) if seen == progress => {
                let waited = Nanos(now.0.saturating_sub(since.0));
                (waited >= self.shared.drain_limit()).then(|| self.shared.not_drained(waited))
            }
            _ => {
                self.seen = Some((progress, now));
                None
            }
        }
    }
}

impl Drop for Freeze {
    fn drop(&mut self) {
        // One freeze less, one version more.
        self.shared.state.0.fetch_add(VERSION - 1, Ordering::AcqRel);
        self.shared.wake_all();
    }
}
