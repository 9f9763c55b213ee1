//! A lock for a value that one thread, the owner, uses nearly always, and other threads use rarely.
//!
//! The owner enters with plain loads and stores: it marks its word, and then checks whether another thread has
//! *claimed* the lock. Another thread takes a mutex, claims the lock, passes a barrier that makes the owner's mark
//! visible, and then reads the owner's word (`barrier.rs`). So at least one of the two sees the other. If the owner
//! is inside, the other thread leaves. If the lock is claimed, the owner takes the mutex and withdraws the claim, so
//! that its next entry is cheap again, unless it expects other threads to return before it does.
//!
//! `tests/models/loom_owner_lock.rs` has every interleaving of an owner and two other threads.

use super::barrier;
use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::sync::TryLockError;
use zoneplug_core::poison::unpoisoned;

#[cfg(loom)]
use loom::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU32, Ordering},
};
#[cfg(not(loom))]
use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU32, Ordering},
};

/// Set in the owner's word while the owner is inside without the mutex. The other bits count the owner's turns.
const INSIDE: u32 = 1;
/// One turn of the owner.
const TURN: u32 = 2;

/// A value that its owner locks without a locked instruction.
pub(crate) struct OwnerLock<T> {
    /// Written by the owner only.
    owner: AtomicU32,
    /// Another thread may be inside. Written under the mutex only.
    claimed: AtomicBool,
    /// The result of [`barrier::has_membarrier`].
    free: bool,
    /// Held by a thread other than the owner while it is inside, and by each thread that writes `claimed`.
    mutex: Mutex<()>,
    value: UnsafeCell<T>,
}

// SAFETY: guards give access to the value, and only one guard exists at a time (see `OwnerGuard` and `OtherGuard`). So
// threads share the lock as they share a mutex of the value.
unsafe impl<T: Send> Sync for OwnerLock<T> {}

/// Like a mutex: a thread that panics inside unlocks.
impl<T> std::panic::RefUnwindSafe for OwnerLock<T> {}
impl<T> std::panic::UnwindSafe for OwnerLock<T> {}

impl<T> std::fmt::Debug for OwnerLock<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OwnerLock").finish_non_exhaustive()
    }
}

impl<T> OwnerLock<T> {
    pub(crate) fn new(value: T) -> OwnerLock<T> {
        OwnerLock {
            owner: AtomicU32::new(0),
            claimed: AtomicBool::new(false),
            free: barrier::has_membarrier(),
            mutex: Mutex::new(()),
            value: UnsafeCell::new(value),
        }
    }

    /// Marks the owner as inside. If the lock is claimed, removes the mark and returns false.
    #[inline]
    fn mark(&self) -> bool {
        let word = self.owner.load(Ordering::Relaxed);
        self.owner.store(word | INSIDE, Ordering::Relaxed);
        barrier::light(self.free);
        if !self.claimed.load(Ordering::Acquire) {
            return true;
        }
        self.owner.store(word & !INSIDE, Ordering::Release);
        false
    }

    /// Locks the value for its owner. Waits while another thread is inside. With `keep`, a claim of other threads
    /// stays, because they use the value as often as the owner now.
    ///
    /// # Safety
    ///
    /// Among the calls of `lock_owner`, `try_lock_owner` and `lock_leaving_owner` of one lock, each must happen before
    /// the next, and no guard from one of them may be in use when the next is called.
    #[inline]
    pub(crate) unsafe fn lock_owner(&self, keep: bool) -> OwnerGuard<'_, T> {
        if self.mark() { self.owner_guard(None) } else { self.lock_claimed(keep) }
    }

    #[cold]
    fn lock_claimed(&self, keep: bool) -> OwnerGuard<'_, T> {
        self.claimed_guard(unpoisoned(self.mutex.lock()), keep)
    }

    /// Locks the value for its owner, unless another thread is inside. `keep`: as for [`OwnerLock::lock_owner`].
    ///
    /// # Safety
    ///
    /// The contract of [`OwnerLock::lock_owner`].
    #[inline]
    pub(crate) unsafe fn try_lock_owner(&self, keep: bool) -> Option<OwnerGuard<'_, T>> {
        if self.mark() { Some(self.owner_guard(None)) } else { self.try_lock_claimed(keep) }
    }

    #[cold]
    fn try_lock_claimed(&self, keep: bool) -> Option<OwnerGuard<'_, T>> {
        Some(self.claimed_guard(self.try_mutex()?, keep))
    }

    /// Withdraws the claim, unless `keep`.
    fn claimed_guard<'a>(&'a self, mutex: MutexGuard<'a, ()>, keep: bool) -> OwnerGuard<'a, T> {
        if keep {
            return self.owner_guard(Some(mutex));
        }
        let word = self.owner.load(Ordering::Relaxed);
        self.owner.store(word | INSIDE, Ordering::Relaxed);
        self.claimed.store(false, Ordering::Relaxed);
        // The next thread that takes the mutex sees both stores.
        drop(mutex);
        self.owner_guard(None)
    }

    #[inline]
    fn owner_guard<'a>(&'a self, mutex: Option<MutexGuard<'a, ()>>) -> OwnerGuard<'a, T> {
        OwnerGuard { lock: self, turn: 0, _mutex: mutex, value: PhantomData }
    }

    /// Locks the value for its owner, which will not return soon. The lock stays claimed, so the next thread needs no
    /// barrier.
    ///
    /// # Safety
    ///
    /// The contract of [`OwnerLock::lock_owner`].
    pub(crate) unsafe fn lock_leaving_owner(&self) -> OtherGuard<'_, T> {
        let mutex = unpoisoned(self.mutex.lock());
        self.claimed.store(true, Ordering::Relaxed);
        // A forgotten guard may have left the mark.
        let word = self.owner.load(Ordering::Relaxed);
        self.owner.store(word & !INSIDE, Ordering::Release);
        OtherGuard { lock: self, _mutex: mutex, value: PhantomData }
    }

    /// Locks the value for a thread that is not the owner, unless another thread is inside.
    pub(crate) fn try_lock(&self) -> Option<OtherGuard<'_, T>> {
        self.enter(self.try_mutex()?).ok()
    }

    /// Locks the value for a thread that is not the owner. Waits while another thread is inside.
    pub(crate) fn lock(&self) -> OtherGuard<'_, T> {
        let mut mutex = unpoisoned(self.mutex.lock());
        loop {
            match self.enter(mutex) {
                Ok(guard) => return guard,
                Err(still) => mutex = still,
            }
            wait_a_moment();
        }
    }

    fn enter<'a>(
        &'a self,
        mutex: MutexGuard<'a, ()>,
    ) -> Result<OtherGuard<'a, T>, MutexGuard<'a, ()>> {
        if !self.claimed.load(Ordering::Relaxed) {
            self.claimed.store(true, Ordering::Relaxed);
            if !barrier::heavy(self.free) {
                // The owner may be inside without a visible mark.
                self.claimed.store(false, Ordering::Relaxed);
                return Err(mutex);
            }
        }
        // If the owner is inside, the claim stays. The owner withdraws it at its next entry.
        if self.owner.load(Ordering::Acquire) & INSIDE != 0 {
            return Err(mutex);
        }
        Ok(OtherGuard { lock: self, _mutex: mutex, value: PhantomData })
    }

    fn try_mutex(&self) -> Option<MutexGuard<'_, ()>> {
        match self.mutex.try_lock() {
            Ok(mutex) => Some(mutex),
            Err(TryLockError::Poisoned(p)) => Some(p.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    #[cfg(all(test, not(loom)))]
    pub(crate) fn is_claimed(&self) -> bool {
        self.claimed.load(Ordering::Relaxed)
    }

    /// The number of turns that the owner has counted. If it changes, the owner was inside meanwhile.
    pub(crate) fn turns(&self) -> u32 {
        self.owner.load(Ordering::Relaxed) & !INSIDE
    }
}

/// Lets the owner run, also if it has a lower priority.
fn wait_a_moment() {
    #[cfg(loom)]
    loom::thread::yield_now();
    #[cfg(not(loom))]
    std::thread::sleep(std::time::Duration::from_micros(20));
}

/// The owner's access to the value.
///
/// Any earlier guard has ended: it held the mutex, and since then the owner has found the lock unclaimed or has taken
/// the mutex. While this guard exists, the owner holds the mutex, or its word says that it is inside; a thread that
/// reads the word after its claim and its barrier then makes no guard.
pub(crate) struct OwnerGuard<'a, T> {
    lock: &'a OwnerLock<T>,
    turn: u32,
    /// The mutex, if the claim was kept.
    _mutex: Option<MutexGuard<'a, ()>>,
    /// Threads may share the guard if they may share the value.
    value: PhantomData<&'a mut T>,
}

impl<T> OwnerGuard<'_, T> {
    /// Makes this guard count a turn of the owner when it ends.
    #[inline]
    pub(crate) fn count_turn(&mut self) {
        self.turn = TURN;
    }
}

impl<T> Drop for OwnerGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        let word = self.lock.owner.load(Ordering::Relaxed);
        let next = (word & !INSIDE).wrapping_add(self.turn);
        self.lock.owner.store(next, Ordering::Release);
    }
}

/// Access to the value under the mutex. While this exists, the lock is claimed, and the owner waits for the mutex.
pub(crate) struct OtherGuard<'a, T> {
    lock: &'a OwnerLock<T>,
    _mutex: MutexGuard<'a, ()>,
    /// See [`OwnerGuard`].
    value: PhantomData<&'a mut T>,
}

macro_rules! access {
    ($guard:ident) => {
        impl<T> std::ops::Deref for $guard<'_, T> {
            type Target = T;

            #[inline]
            fn deref(&self) -> &T {
                // SAFETY: this is the only guard (see its type), and it is borrowed as long as the result.
                unsafe { &*self.lock.value.get() }
            }
        }

        impl<T> std::ops::DerefMut for $guard<'_, T> {
            #[inline]
            fn deref_mut(&mut self) -> &mut T {
                // SAFETY: as above, and the guard is borrowed exclusively.
                unsafe { &mut *self.lock.value.get() }
            }
        }
    };
}
access!(OwnerGuard);
access!(OtherGuard);

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Each test has one owner, and no guard of it is in use when it locks again.
    fn owner<T>(lock: &OwnerLock<T>) -> OwnerGuard<'_, T> {
        // SAFETY: as above.
        unsafe { lock.lock_owner(false) }
    }

    /// The first time the lock is not claimed; the second time the owner withdraws a claim.
    #[test]
    fn others_stay_out_while_the_owner_is_inside() {
        let lock = OwnerLock::new(0);
        for round in 1..=2 {
            let mut inside = owner(&lock);
            *inside += 1;
            std::thread::scope(|s| {
                s.spawn(|| assert!(lock.try_lock().is_none()));
            });
            drop(inside);
            assert_eq!(lock.try_lock().map(|value| *value), Some(round));
        }
    }

    #[test]
    fn the_owner_waits_for_others_or_turns_away() {
        let lock = OwnerLock::new(0);
        let mut other = lock.lock();
        // SAFETY: the owner's guards are gone when it locks again.
        assert!(unsafe { lock.try_lock_owner(false) }.is_none());
        std::thread::scope(|s| {
            let waits = s.spawn(|| *owner(&lock));
            std::thread::yield_now();
            *other = 7;
            drop(other);
            assert_eq!(waits.join().ok(), Some(7));
        });
    }

    #[test]
    fn the_owner_withdraws_a_claim_unless_it_keeps_it() {
        let lock = OwnerLock::new(());
        assert!(lock.try_lock().is_some() && lock.is_claimed());
        // SAFETY: the owner's guards are gone when it locks again.
        drop(unsafe { lock.lock_owner(true) });
        assert!(lock.is_claimed());
        drop(owner(&lock));
        assert!(!lock.is_claimed());
        // SAFETY: as above.
        drop(unsafe { lock.lock_leaving_owner() });
        assert!(lock.is_claimed() && lock.try_lock().is_some());
    }

    #[test]
    fn a_guard_that_was_forgotten_keeps_others_out_until_the_owner_is_back() {
        let lock = OwnerLock::new(());
        std::mem::forget(owner(&lock));
        assert!(lock.try_lock().is_none());
        drop(owner(&lock));
        assert!(lock.try_lock().is_some());
    }

    #[test]
    fn turns_count_what_the_owner_says() {
        let lock = OwnerLock::new(());
        let before = lock.turns();
        drop(owner(&lock));
        assert_eq!(lock.turns(), before);
        owner(&lock).count_turn();
        assert_ne!(lock.turns(), before);
        // Turns are also counted under the mutex.
        let (before, other) = (lock.turns(), lock.lock());
        drop(other);
        owner(&lock).count_turn();
        assert_ne!(lock.turns(), before);
    }

    /// A lost increment would show that two threads were inside.
    #[test]
    fn one_thread_is_inside_at_a_time() {
        const ROUNDS: u64 = 100_000;
        let lock = OwnerLock::new([0u64; 2]);
        let inside = |value: &mut [u64; 2]| {
            assert_eq!(value[0], value[1]);
            value[0] += 1;
            std::hint::spin_loop();
            value[1] += 1;
        };
        let taken: u64 = std::thread::scope(|s| {
            s.spawn(|| {
                for i in 0..ROUNDS {
                    // SAFETY: this thread is the owner.
                    let mut value = unsafe { lock.lock_owner(i % 5 == 0) };
                    inside(&mut value);
                }
            });
            let other = || {
                let rounds = (0..ROUNDS / 50).filter(|_| {
                    std::thread::yield_now();
                    lock.try_lock().map(|mut value| inside(&mut value)).is_some()
                });
                rounds.count() as u64
            };
            let others = [s.spawn(other), s.spawn(other)];
            others.into_iter().filter_map(|o| o.join().ok()).sum()
        });
        assert_eq!(lock.lock()[0], ROUNDS + taken);
    }
}
