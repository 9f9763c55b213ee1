//! Freeze: a moment at which nothing is in flight.
//!
//! While a freeze lasts, queues take no new BIOs and finish what they have: completions go on sending what is
//! parked. Each queue notices the freeze when it is next used, and says in its mailbox whether it still has
//! work; since nothing new comes in, a queue that was idle once stays idle. So nobody waits for anybody under a
//! lock, and the submission path pays nothing.

use super::handle::Disk;
use super::shared::Shared;
use super::state::{self, FREEZES, VERSION};
use crate::planted::{Bug, planted};
use crate::sync::{Ordering, lock};
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
        // Whatever a queue said before says nothing of this freeze, however often the version has wrapped.
        for q in queues.iter().flatten() {
            q.ack.store(state::word(version, true), Ordering::Release);
        }
        Freeze { shared: self.shared.clone(), version }
    }
}

impl Freeze {
    /// Whether nothing is in flight any more. Until then every queue of the disk must be polled.
    pub fn poll(&self) -> bool {
        if planted(Bug::FreezeTooEarly) {
            return true;
        }
        // Locked to the end: see `errands`.
        lock(&self.shared.queues)
            .iter()
            .flatten()
            .all(|q| state::is_idle_since(q.ack.load(Ordering::Acquire), self.version))
    }
}

impl Drop for Freeze {
    fn drop(&mut self) {
        // One freeze less, one version more.
        self.shared.state.0.fetch_add(VERSION - 1, Ordering::AcqRel);
        if !planted(Bug::ThawWakesNobody) {
            self.shared.wake_all();
        }
    }
}
