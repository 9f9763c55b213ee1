//! Locks whose holder may have panicked. This is the one place that decides to go on.
//!
//! The standard library poisons a lock when a thread panics while it holds it. The engine's own code does not panic
//! under a lock, and client code never runs under one (I8). So the data under a poisoned lock is still consistent.

use std::sync::{LockResult, Mutex, MutexGuard, PoisonError};

/// The value of a lock, whether or not a thread has panicked while it held the lock.
///
/// ```
/// use std::sync::RwLock;
/// use zoneplug_core::poison::unpoisoned;
/// assert_eq!(*unpoisoned(RwLock::new(7).read()), 7);
/// ```
#[inline]
pub fn unpoisoned<G>(locked: LockResult<G>) -> G {
    locked.unwrap_or_else(PoisonError::into_inner)
}

/// Locks a mutex, whether or not a thread has panicked while it held it.
#[inline]
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    unpoisoned(mutex.lock())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_whose_holder_panicked_still_opens() {
        let mutex = Mutex::new(1);
        let holder = || {
            let mut held = lock(&mutex);
            *held = 2;
            panic!("while it holds the lock");
        };
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(holder));
        assert!(ended.is_err() && mutex.is_poisoned());
        assert_eq!(*lock(&mutex), 2);
    }
}
