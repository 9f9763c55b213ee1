//! What the clients of a hosted disk, its handles and its reactor share: the disk, the lanes, and what was withheld.

use crate::clock::Clock;
use crate::runtime::deferred_wake::Wakers;
use crate::runtime::reactor_signal::ReactorSignal;
use crate::runtime::shared_queue::{Lane, Work};
use crate::runtime::withheld::Shelf;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use zoneplug_core::Nanos;
use zoneplug_core::disk::{Disk, DiskQueue};
use zoneplug_core::poison::lock;

/// How long the drop of a disk's last handle waits until the reactor has left.
const CLOSE_PATIENCE: Duration = Duration::from_secs(2);

/// What the clients of a disk share.
#[derive(Debug)]
pub(crate) struct HostedShared {
    pub(crate) disk: Disk,
    pub(crate) clock: Clock,
    /// Whether commands have deadlines.
    pub(crate) deadlines: bool,
    pub(crate) lanes: Mutex<Vec<Arc<Lane>>>,
    /// Counts changes of `lanes`.
    pub(crate) version: AtomicU32,
    pub(crate) reactor: Arc<ReactorSignal>,
    pub(crate) wakers: Arc<Wakers>,
    pub(crate) shelf: Shelf,
    handles: AtomicUsize,
}

impl HostedShared {
    /// The time for the disk. Reads the clock only if the disk is timed.
    #[inline]
    pub(crate) fn now(&self) -> Nanos {
        if self.disk.is_timed() { self.clock.now() } else { Nanos(0) }
    }

    /// Has the reactor look at the lanes.
    pub(crate) fn kick(&self) {
        self.reactor.kick();
    }

    /// Removes the lanes of clients that have gone, once they are empty.
    pub(crate) fn bury(&self) {
        let mut lanes = lock(&self.lanes);
        let before = lanes.len();
        let mut gone = Vec::new();
        lanes.retain(|lane| {
            let dead = lane.is_orphan() && self.is_dead(lane);
            if dead {
                gone.push(lane.clone());
            }
            !dead
        });
        if lanes.len() != before {
            self.version.fetch_add(1, Ordering::Release);
        }
        drop(lanes);
        drop(gone);
    }

    /// Whether nothing is in flight on the lane of a client that has gone, neither BIOs of its own nor commands of
    /// others. Only then may the lane be removed: the reactor does not run a removed lane, even if a blocked client
    /// holds on to it.
    fn is_dead(&self, lane: &Lane) -> bool {
        let Some(mut queue) = lane.try_lock() else { return false };
        let work = Work::of(&queue);
        if work == Work::Busy {
            return false;
        }
        self.shelf.put(&self.disk, lane.take_legacy());
        if work == Work::Late {
            lane.lingers.store(true, Ordering::Release);
            return false;
        }
        // Others may still hold the lane, and will not run it: no freeze may wait for it.
        queue.close();
        true
    }

    /// Gives up late commands. No handle of the disk is left, and the commands had their time.
    #[cold]
    pub(crate) fn abandon(&self) {
        for lane in std::mem::take(&mut *lock(&self.lanes)) {
            lane.lock().abandon();
        }
    }

    /// Keeps a queue without a client until its commands are back.
    pub(crate) fn adopt(&self, queue: DiskQueue) {
        let lane = Lane::new(queue);
        lane.orphan.store(true, Ordering::Release);
        lock(&self.lanes).push(Arc::new(lane));
        self.version.fetch_add(1, Ordering::Release);
        self.kick();
    }
}

impl Drop for HostedShared {
    fn drop(&mut self) {
        self.shelf.end(&self.disk);
    }
}

/// A reference that keeps the disk open. A [`HostedDisk`], a client and a freeze hold one; the reactor does not.
#[derive(Debug)]
pub(crate) struct Handle(Arc<HostedShared>);

impl Handle {
    /// The first handle of a disk that has just been opened.
    pub(crate) fn first(disk: Disk, clock: Clock, deadlines: bool) -> Handle {
        Handle(Arc::new(HostedShared {
            disk,
            clock,
            deadlines,
            lanes: Mutex::default(),
            version: AtomicU32::new(0),
            reactor: Arc::default(),
            wakers: Arc::default(),
            shelf: Shelf::default(),
            handles: AtomicUsize::new(1),
        }))
    }
}

impl Clone for Handle {
    fn clone(&self) -> Handle {
        self.0.handles.fetch_add(1, Ordering::Relaxed);
        Handle(self.0.clone())
    }
}

impl std::ops::Deref for Handle {
    type Target = Arc<HostedShared>;

    #[inline]
    fn deref(&self) -> &Arc<HostedShared> {
        &self.0
    }
}

impl Drop for Handle {
    /// The last one waits until the reactor has given up the disk, unless something is in flight: then the reactor closes it
    /// when that is done.
    fn drop(&mut self) {
        if self.0.handles.fetch_sub(1, Ordering::AcqRel) > 1 || !self.0.reactor.close() {
            return;
        }
        let idle = lock(&self.0.lanes).iter().all(|l| Work::of(&l.lock()) == Work::None);
        if idle {
            self.0.reactor.wait_left(CLOSE_PATIENCE);
        }
    }
}
