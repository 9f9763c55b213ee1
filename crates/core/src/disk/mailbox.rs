//! The mailbox of a queue. Other queues put BIOs into it that they have completed for the queue's owner.

use crate::bio::Bio;
use crate::sync::{AtomicBool, AtomicU32, AtomicU64, Mutex, Ordering, Padded, lock};
use crate::unit::ZoneNo;
use std::sync::Arc;
use std::task::Waker;

#[derive(Debug, Default)]
struct Inner {
    bios: Vec<Box<Bio>>,
    /// Zones that a queue which is down has left to this queue (`dispatch/handoff.rs`), and whether this queue is to
    /// ask the scheduler.
    errands: Vec<ZoneNo>,
    ask: bool,
    waker: Option<Waker>,
    closed: bool,
}

/// Calls a waker without holding a lock. A waker is client code. Its panic is caught here, because the engine is in
/// the middle of I/O of other clients.
fn call(waker: Option<Waker>) {
    if let Some(w) = waker {
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| w.wake()));
    }
}

/// Counts of the writes of one queue. Only the queue's owner writes these counts, so counting is a load and a store;
/// any thread may read them.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) issued: AtomicU64,
    pub(crate) merged: AtomicU64,
    pub(crate) parked: AtomicU64,
}

impl Counts {
    #[inline]
    fn bump(counter: &AtomicU64, n: u64) {
        counter.store(counter.load(Ordering::Relaxed) + n, Ordering::Relaxed);
    }

    /// Counts a command of `bios` BIOs that was sent.
    #[inline]
    pub(crate) fn issued(&self, bios: usize) {
        Self::bump(&self.issued, 1);
        Self::bump(&self.merged, bios as u64 - 1);
    }

    #[inline]
    pub(crate) fn parked(&self, bios: usize) {
        Self::bump(&self.parked, bios as u64);
    }

    /// Adds the counts of a queue that closes. Several queues may do so at a time.
    pub(crate) fn add(&self, o: &Counts) {
        self.issued.fetch_add(o.issued.load(Ordering::Relaxed), Ordering::Relaxed);
        self.merged.fetch_add(o.merged.load(Ordering::Relaxed), Ordering::Relaxed);
        self.parked.fetch_add(o.parked.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// The mailbox of one queue. Its owner collects from it, and every other queue delivers to it.
#[derive(Debug, Default)]
pub(crate) struct Mailbox {
    inner: Mutex<Inner>,
    /// Whether there may be something to collect. Saves the owner the lock.
    filled: AtomicBool,
    /// The version of the freeze that the owner has seen last. The lowest bit is set while the owner still had work
    /// then (`state.rs`).
    pub(crate) ack: AtomicU32,
    /// The owner's remaining work when it last answered a freeze. A freeze that sees it change is making progress.
    pub(crate) work_left: AtomicU32,
    /// Whether there are errands.
    errands: AtomicBool,
    /// Whether the owner's queue of the device takes nothing any more. Such a queue gets no errands.
    pub(crate) down: AtomicBool,
    /// In `lock` mode: how many requests of the owner other queues have completed.
    pub(crate) returned_tags: AtomicU32,
    /// On a cache line of its own, because the owner writes it while others deliver.
    pub(crate) counts: Padded<Counts>,
}

impl Mailbox {
    /// Delivers BIOs, and wakes the owner if it has armed. If the owner has gone, returns the BIOs.
    pub(crate) fn push(&self, bios: impl Iterator<Item = Box<Bio>>) -> Result<(), Vec<Box<Bio>>> {
        let mut inner = lock(&self.inner);
        if inner.closed {
            return Err(bios.collect());
        }
        inner.bios.extend(bios);
        self.filled.store(true, Ordering::Release);
        let waker = inner.waker.take();
        drop(inner);
        call(waker);
        Ok(())
    }

    /// Makes room for `n` BIOs.
    pub(crate) fn reserve(&self, n: usize) {
        lock(&self.inner).bios.reserve(n);
    }

    /// Returns whether there may be something to collect.
    #[inline]
    pub(crate) fn is_filled(&self) -> bool {
        self.filled.load(Ordering::Acquire)
    }

    /// Takes all BIOs. Exchanges the lists, so that nothing is allocated; `into` must be empty.
    pub(crate) fn collect(&self, into: &mut Vec<Box<Bio>>) {
        debug_assert!(into.is_empty());
        let mut inner = lock(&self.inner);
        std::mem::swap(&mut inner.bios, into);
        self.filled.store(false, Ordering::Release);
    }

    /// Registers `waker` for the next delivery. Returns false if there is something to collect already; the owner
    /// must not sleep then. Both sides hold the lock, so a delivery is either seen here or wakes the owner.
    pub(crate) fn arm(&self, waker: &Waker) -> bool {
        let mut inner = lock(&self.inner);
        if !inner.bios.is_empty() || inner.ask || !inner.errands.is_empty() {
            return false;
        }
        match &mut inner.waker {
            Some(w) => w.clone_from(waker),
            none => *none = Some(waker.clone()),
        }
        true
    }

    /// Wakes an armed owner without a delivery, because the disk goes on after a freeze.
    pub(crate) fn wake(&self) {
        let waker = lock(&self.inner).waker.take();
        call(waker);
    }

    /// Leaves `zones` to the owner and wakes it. Returns false if the owner has gone.
    pub(crate) fn push_errands(&self, zones: &mut Vec<ZoneNo>, ask: bool) -> bool {
        let mut inner = lock(&self.inner);
        if inner.closed {
            return false;
        }
        inner.errands.append(zones);
        inner.ask |= ask;
        self.errands.store(true, Ordering::Release);
        // The owner has work again, even if it has told a freeze that it is idle.
        self.ack.fetch_or(1, Ordering::AcqRel);
        let waker = inner.waker.take();
        drop(inner);
        call(waker);
        true
    }

    /// Returns whether there are errands.
    #[inline]
    pub(crate) fn has_errands(&self) -> bool {
        self.errands.load(Ordering::Acquire)
    }

    /// Gives each errand to `take`. Returns whether the owner is to ask the scheduler.
    pub(crate) fn take_errands(&self, take: impl FnMut(ZoneNo)) -> bool {
        let mut inner = lock(&self.inner);
        inner.errands.drain(..).for_each(take);
        self.errands.store(false, Ordering::Release);
        std::mem::take(&mut inner.ask)
    }

    /// Sets the owner's answer to a freeze. With errands it counts as busy, even if `word` says idle.
    pub(crate) fn acknowledge(&self, word: u32) {
        let inner = lock(&self.inner);
        let busy = inner.ask || !inner.errands.is_empty();
        self.ack.store(word | u32::from(busy), Ordering::Release);
    }

    /// Closes the mailbox and returns the BIOs in it. `None`: there are errands, and the mailbox stays open.
    pub(crate) fn close(&self) -> Option<Vec<Box<Bio>>> {
        let mut inner = lock(&self.inner);
        if inner.ask || !inner.errands.is_empty() {
            return None;
        }
        inner.closed = true;
        Some(std::mem::take(&mut inner.bios))
    }
}

/// The mailboxes of the open queues of a disk, by id.
pub(crate) type Queues = Mutex<Vec<Option<Arc<Mailbox>>>>;

/// Wakes all sleeping queues with no lock held, since a waker may use the disk (I8).
pub(crate) fn wake_all(queues: &Queues) {
    let all: Vec<_> = lock(queues).iter().flatten().cloned().collect();
    for q in all {
        q.wake();
    }
}

/// For `scripts/loom`: every interleaving of two threads. The models of whole disks are in
/// `tests/models/loom_disk.rs`.
#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::bio::{Op, Status};
    use crate::unit::Sector;
    use loom::sync::atomic::AtomicUsize;
    use loom::thread;
    use std::sync::Arc;
    use std::task::Wake;

    struct Flag(AtomicUsize);

    impl Wake for Flag {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn take(mailbox: &Mailbox) -> usize {
        let mut bios = Vec::new();
        if mailbox.is_filled() {
            mailbox.collect(&mut bios);
        }
        bios.iter().filter(|b| b.status == Status::Ok).count()
    }

    /// R6. After arming and polling once more, either the owner has seen the BIO, or its waker has been called or
    /// will be. Otherwise the owner would sleep for ever.
    #[test]
    fn loom_arm_against_push() {
        loom::model(|| {
            let mailbox = Arc::new(Mailbox::default());
            let flag = Arc::new(Flag(AtomicUsize::new(0)));
            let pusher = {
                let mailbox = mailbox.clone();
                thread::spawn(move || {
                    let bio = Bio::new(Op::Flush, Sector(0), 0);
                    mailbox.push(std::iter::once(bio)).expect("the owner is there");
                })
            };
            let waker = Waker::from(flag.clone());
            let mut got = take(&mailbox);
            let mut asleep = false;
            if got == 0 && mailbox.arm(&waker) {
                got = take(&mailbox);
                asleep = got == 0;
            }
            pusher.join().expect("the pusher ends");
            if asleep {
                assert_eq!(flag.0.load(Ordering::SeqCst), 1, "a sleeper that nobody wakes");
            }
            got += take(&mailbox);
            assert_eq!(got, 1, "delivered exactly once");
        });
    }

    /// R6. If an owner closes while a peer delivers, one of them has the BIO; it is never lost.
    #[test]
    fn loom_close_against_push() {
        loom::model(|| {
            let mailbox = Arc::new(Mailbox::default());
            let pusher = {
                let mailbox = mailbox.clone();
                thread::spawn(move || {
                    let bio = Bio::new(Op::Flush, Sector(0), 0);
                    mailbox.push(std::iter::once(bio)).map_or_else(|back| back.len(), |()| 0)
                })
            };
            let left = mailbox.close().map_or(0, |bios| bios.len());
            let back = pusher.join().expect("the pusher ends");
            assert_eq!(left + back, 1);
        });
    }
}
