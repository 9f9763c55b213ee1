//! Where BIOs that another queue completed wait for their owner.

use crate::bio::Bio;
use crate::sync::{AtomicBool, AtomicU32, AtomicU64, Mutex, Ordering, Padded, lock};
use crate::unit::ZoneNo;
use std::sync::Arc;
use std::task::Waker;

#[derive(Debug, Default)]
struct Inner {
    bios: Vec<Box<Bio>>,
    /// Zones that a queue which is down has left to this one, and whether to ask the scheduler (`dispatch/handoff.rs`).
    errands: Vec<ZoneNo>,
    ask: bool,
    waker: Option<Waker>,
    closed: bool,
}

/// Calls a waker, without any lock. It is a client's code, and its panic is its own: what the engine is in the middle
/// of is others' I/O.
fn call(waker: Option<Waker>) {
    if let Some(w) = waker {
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| w.wake()));
    }
}

/// What a queue's writes did. Written by the queue's owner alone, so that counting is a load and a store, and read by
/// any thread.
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

    /// A command of `bios` BIOs was sent.
    #[inline]
    pub(crate) fn issued(&self, bios: usize) {
        Self::bump(&self.issued, 1);
        Self::bump(&self.merged, bios as u64 - 1);
    }

    #[inline]
    pub(crate) fn parked(&self, bios: usize) {
        Self::bump(&self.parked, bios as u64);
    }

    /// Adds the counts of a queue that closes. Here several may write.
    pub(crate) fn add(&self, o: &Counts) {
        self.issued.fetch_add(o.issued.load(Ordering::Relaxed), Ordering::Relaxed);
        self.merged.fetch_add(o.merged.load(Ordering::Relaxed), Ordering::Relaxed);
        self.parked.fetch_add(o.parked.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// One for each queue: shared by the owner, which collects, and by every other queue, which delivers.
#[derive(Debug, Default)]
pub(crate) struct Mailbox {
    inner: Mutex<Inner>,
    /// A hint that saves the owner the lock.
    filled: AtomicBool,
    /// The freeze that the owner has seen, with the lowest bit set while it still had work (see `freeze`).
    pub(crate) ack: AtomicU32,
    /// How much work the owner had when it last answered a freeze. A change means progress.
    pub(crate) work_left: AtomicU32,
    /// There are errands.
    errands: AtomicBool,
    /// The owner's queue of the device takes nothing any more: no errands for it.
    pub(crate) down: AtomicBool,
    /// `lock` mode: requests of the owner that others have completed.
    pub(crate) tags_back: AtomicU32,
    /// On a line of its own: the owner writes it while others deliver.
    pub(crate) counts: Padded<Counts>,
}

impl Mailbox {
    /// Delivers. The owner is woken if it armed. Gives the BIOs back if the owner has gone.
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

    /// Whether there may be something to collect.
    #[inline]
    pub(crate) fn is_filled(&self) -> bool {
        self.filled.load(Ordering::Acquire)
    }

    /// Takes everything: exchanges it for the empty `into`, so that nothing is allocated.
    pub(crate) fn collect(&self, into: &mut Vec<Box<Bio>>) {
        debug_assert!(into.is_empty());
        let mut inner = lock(&self.inner);
        std::mem::swap(&mut inner.bios, into);
        self.filled.store(false, Ordering::Release);
    }

    /// Registers `waker` for the next delivery. False: something is there already, do not sleep. Because both
    /// sides hold the lock, a delivery either is seen here or wakes.
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

    /// Wakes an armed owner without a delivery: the disk was thawed.
    pub(crate) fn wake(&self) {
        let waker = lock(&self.inner).waker.take();
        call(waker);
    }

    /// Leaves `zones` to the owner and wakes it. False: it has gone.
    pub(crate) fn push_errands(&self, zones: &mut Vec<ZoneNo>, ask: bool) -> bool {
        let mut inner = lock(&self.inner);
        if inner.closed {
            return false;
        }
        inner.errands.append(zones);
        inner.ask |= ask;
        self.errands.store(true, Ordering::Release);
        // The owner has work again, even if it has acknowledged a freeze before.
        self.ack.fetch_or(1, Ordering::AcqRel);
        let waker = inner.waker.take();
        drop(inner);
        call(waker);
        true
    }

    /// Whether there are errands.
    #[inline]
    pub(crate) fn has_errands(&self) -> bool {
        self.errands.load(Ordering::Acquire)
    }

    /// Gives each of them to `take`; returns whether the scheduler is to be asked.
    pub(crate) fn take_errands(&self, take: impl FnMut(ZoneNo)) -> bool {
        let mut inner = lock(&self.inner);
        inner.errands.drain(..).for_each(take);
        self.errands.store(false, Ordering::Release);
        std::mem::take(&mut inner.ask)
    }

    /// The owner's word to a freeze; `idle` does not hold while there are errands.
    pub(crate) fn acknowledge(&self, word: u32) {
        let inner = lock(&self.inner);
        let busy = inner.ask || !inner.errands.is_empty();
        self.ack.store(word | u32::from(busy), Ordering::Release);
    }

    /// Nothing is delivered any more. `None`: there are errands, and it stays open.
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

/// `scripts/loom`: every interleaving of two threads. The models of whole disks are in `tests/models/loom_disk.rs`.
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

    /// Arm, poll once more, sleep: after that either the BIO has been seen or the waker has been or will be called.
    /// A sleeper that neither saw nor is woken is a hang.
    /// R6.
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

    /// An owner that goes and a peer that delivers: the BIO is with one of them, never lost.
    /// R6.
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
