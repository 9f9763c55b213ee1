//! Freeze: a time in which nothing is in flight.
//!
//! During a freeze, queues take no new BIOs and finish those that they have: completions go on sending parked writes.
//! Each queue notices the freeze when it is next used, and says in its mailbox whether it still has work. A queue
//! that takes nothing new stays idle once it is idle. So no lock is held while the disk drains, and submission costs
//! nothing more.
//!
//! A command that the device never gives back would keep the disk from draining. On a disk with command deadlines
//! such a command is given up. On any disk, a freeze that makes no progress for the drain limit reports that, and its
//! owner drops it.

use super::handle::Disk;
use super::shared::Shared;
use super::state::{self, FREEZES, VERSION};
use crate::error::{Error, ErrorKind};
use crate::sync::{Ordering, lock};
use crate::unit::Nanos;
use std::sync::Arc;

/// A freeze of a disk. The disk is being frozen, or is frozen, until this is dropped.
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
    /// The progress that [`Freeze::overdue`] saw last, and the time since which it has not changed.
    seen: Option<(Progress, Nanos)>,
}

/// Numbers that change while a disk drains: commands sent by plugs, and the work left in queues and in the scheduler.
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

    /// Sets how long a freeze, a change of an attribute and a revalidation wait for the device while no command ends.
    /// The default is 30 s. On a disk with a [timeout](crate::disk::DiskConfig::timeout) the limit is at least one
    /// second longer than that. The new limit also applies to waits that have begun.
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

    /// The error of a wait that has exceeded its limit.
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
    /// Returns whether the disk is frozen: nothing is in flight. Until then the caller must poll every queue of the
    /// disk.
    pub fn poll(&self) -> bool {
        // The lock is held to the end of the loop. `dispatch/handoff.rs` says why.
        lock(&self.shared.queues)
            .iter()
            .flatten()
            .all(|q| state::is_idle_since(q.ack.load(Ordering::Acquire), self.version))
    }
}

impl Freeze {
    /// Returns an error of kind *busy* if the disk still drains and no command has ended for the drain limit
    /// ([`Disk::set_drain_limit`]). Call this after [`Freeze::poll`] has returned false, with the time that queues
    /// are polled with.
    ///
    /// The freeze goes on until it is dropped. Dropping it lets the disk go on, and does not change commands in
    /// flight.
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
        // One freeze less, and a new version.
        self.shared.state.0.fetch_add(VERSION - 1, Ordering::AcqRel);
        self.shared.wake_all();
    }
}
