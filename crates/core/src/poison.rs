//! Ignores the poison of locks: a thread goes on although another one has panicked while it held the lock.
//!
//! The standard library poisons a lock when a thread panics while it holds it. The engine's own code does not panic
//! under a lock, and client code never runs under one (I8). So the data under a poisoned lock are still consistent.

use std::sync::{LockResult, Mutex, MutexGuard, PoisonError, TryLockError};

/// Returns the guard or value of a lock, whether or not a thread has panicked while it held the lock.
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

/// Locks a static mutex, but gives up after a few milliseconds, or less than a second on a busy machine. In a child of a
/// fork, the holder may be a thread that exists in the parent only, and then the mutex never opens. So the caller must be
/// able to do without the lock.
pub fn lock_soon<T: ?Sized>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    /// More than enough tries for a holder that changes a list.
    const TRIES: u32 = 10_000;
    /// Tries between two offers of the processor to a holder that does not run. Where many threads want to run, each
    /// offer may cost all of them a turn of some milliseconds, so there are few.
    const SPINS: u32 = 200;
    for nth in 1..=TRIES {
        match mutex.try_lock() {
            Ok(guard) => return Some(guard),
            Err(TryLockError::Poisoned(p)) => return Some(p.into_inner()),
            Err(TryLockError::WouldBlock) if nth % SPINS == 0 => std::thread::yield_now(),
            Err(TryLockError::WouldBlock) => std::hint::spin_loop(),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn a_mutex_that_never_opens_is_given_up() {
        let mutex = Mutex::new(1);
        let held = lock(&mutex);
        assert!(lock_soon(&mutex).is_none());
        drop(held);
        assert_eq!(lock_soon(&mutex).map(|v| *v), Some(1));
    }

    /// The child of a fork would otherwise stand still for a minute on a busy machine.
    #[test]
    #[allow(clippy::disallowed_methods, reason = "the test needs a thread that may stand still")]
    fn it_is_given_up_soon_beside_busy_threads() {
        static MUTEX: Mutex<u32> = Mutex::new(1);
        let (stop, held) = (AtomicBool::new(false), lock(&MUTEX));
        let (tell, told) = std::sync::mpsc::channel();
        let given_up = std::thread::scope(|s| {
            for _ in 0..16 {
                s.spawn(|| {
                    while !stop.load(Relaxed) {
                        std::hint::spin_loop();
                    }
                });
            }
            std::thread::spawn(move || tell.send(lock_soon(&MUTEX).is_none()));
            let given_up = told.recv_timeout(std::time::Duration::from_secs(10));
            stop.store(true, Relaxed);
            given_up
        });
        drop(held);
        assert_eq!(given_up, Ok(true));
    }

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
