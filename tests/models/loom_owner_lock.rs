//! Every interleaving of an owner and other threads in the lock of a hosted disk's queue: `scripts/loom`. loom reports
//! two threads that use the value at a time. It knows no membarrier(2), so both barriers are ordinary ones here.

#![cfg(loom)]

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use owner_lock::OwnerLock;

// The owner's turns are a hint and not modelled.
#[allow(dead_code)]
#[path = "../../crates/host/src/runtime/owner_lock.rs"]
mod owner_lock;

mod barrier {
    use loom::sync::atomic::{Ordering, fence};

    pub(crate) fn has_membarrier() -> bool {
        false
    }

    pub(crate) fn light(_free: bool) {
        fence(Ordering::SeqCst);
    }

    pub(crate) fn heavy(_free: bool) -> bool {
        fence(Ordering::SeqCst);
        true
    }
}

type Counter = UnsafeCell<u32>;

fn add(counter: &Counter) -> u32 {
    counter.with_mut(|n| {
        // SAFETY: loom ends the test if another thread uses the value now.
        unsafe { *n += 1 };
    });
    1
}

/// The owner locks `n` times. With `keep`, claims stay.
fn owner(lock: &OwnerLock<Counter>, n: u32, keep: bool) -> u32 {
    // SAFETY: each model has one owner, and no guard of it is left when it locks again.
    (0..n).map(|_| add(&*unsafe { lock.lock_owner(keep) })).sum()
}

fn try_owner(lock: &OwnerLock<Counter>) -> u32 {
    // SAFETY: as in `owner`.
    unsafe { lock.try_lock_owner(false) }.map_or(0, |value| add(&value))
}

fn try_other(lock: &OwnerLock<Counter>) -> u32 {
    lock.try_lock().map_or(0, |value| add(&value))
}

/// Runs the model; at the end the counter must have what the threads have added. `bound`: how often a thread is
/// interrupted at most.
fn check(
    bound: Option<usize>,
    first: fn(&OwnerLock<Counter>) -> u32,
    others: &'static [fn(&OwnerLock<Counter>) -> u32],
) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = bound;
    builder.check(move || {
        let lock = Arc::new(OwnerLock::new(Counter::new(0)));
        let others: Vec<_> = others
            .iter()
            .map(|other| {
                let lock = lock.clone();
                thread::spawn(move || other(&lock))
            })
            .collect();
        let mut added = first(&lock);
        for other in others {
            added += other.join().expect("the thread ends");
        }
        // SAFETY: the other threads have ended.
        let all = lock.lock().with(|n| unsafe { *n });
        assert_eq!(all, added);
    });
}

#[test]
fn loom_owner_lock_against_another_thread() {
    check(None, |l| owner(l, 2, false), &[|l| try_other(l) + try_other(l)]);
}

#[test]
fn loom_owner_lock_with_claims_that_stay() {
    check(None, |l| owner(l, 2, true) + owner(l, 1, false), &[|l| try_other(l) + try_other(l)]);
}

#[test]
fn loom_owner_lock_against_two_threads() {
    check(Some(4), |l| owner(l, 2, false), &[try_other, try_other]);
}

#[test]
fn loom_owner_lock_against_a_thread_that_waits() {
    check(Some(4), |l| try_owner(l) + owner(l, 1, false), &[|l| add(&l.lock()), try_other]);
}

#[test]
fn loom_owner_lock_that_its_owner_leaves() {
    fn leaves(lock: &OwnerLock<Counter>) -> u32 {
        // SAFETY: as in `owner`.
        let left = add(&*unsafe { lock.lock_leaving_owner() });
        left + owner(lock, 1, false)
    }
    check(Some(4), leaves, &[|l| try_other(l) + try_other(l), try_other]);
}
