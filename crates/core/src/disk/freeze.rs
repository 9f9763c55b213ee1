//! Freeze: a moment at which nothing is in flight.
//!
//! While a freeze lasts, queues take no new BIOs and finish what they have: completions go on sending what is
//! parked. Each queue notices the freeze when it is next used, and says in its mailbox whether it still has
//! work; since nothing new comes in, a queue that was idle once stays idle. So nobody waits for anybody under a
//! lock, and the submission path pays nothing.

use super::{Disk, FREEZES, Shared, VERSION};
use crate::disk::queue::Lane;
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

/// The word of a queue that has work, or has not been asked yet.
fn busy(version: u32) -> u32 {
    version << 1 | 1
}

/// The word of a queue that is opened while `state` is.
pub(crate) fn first_word(state: u32) -> u32 {
    busy(state / VERSION)
}

/// Says in the mailbox of `lane` what it knows of a freeze. Returns whether the disk is frozen.
pub(crate) fn acknowledge(lane: &Lane, state: u32) -> bool {
    let frozen = state & FREEZES != 0;
    if frozen {
        let version = state / VERSION;
        let busy = lane.is_busy() && !planted(Bug::AckBeforeIdle);
        let word = version << 1 | u32::from(busy);
        if lane.outlook.is_watched() {
            lane.mailbox.acknowledge(word);
        } else {
            lane.mailbox.ack.store(word, Ordering::Release);
        }
    }
    frozen
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
            q.ack.store(busy(version), Ordering::Release);
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
        lock(&self.shared.queues).iter().flatten().all(|q| {
            let ack = q.ack.load(Ordering::Acquire);
            // 23 bits of version, wrapping.
            let newer = (ack >> 1).wrapping_sub(self.version) & (u32::MAX / VERSION);
            newer < u32::MAX / VERSION / 2 && ack & 1 == 0
        })
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
