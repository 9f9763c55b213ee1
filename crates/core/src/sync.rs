//! The locks and atomics of the engine: the standard library's, or one of the model checkers' (`scripts/loom`,
//! `scripts/shuttle`). Every word that threads share goes through here; a test in `tests/models/` cannot see what
//! does not. Never adds a lock or an atomic of its own.

#[cfg(not(any(loom, shuttle)))]
pub(crate) use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
};

#[cfg(loom)]
pub(crate) use loom::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
};

#[cfg(shuttle)]
pub(crate) use shuttle::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
};

/// Locks, whatever a client that panicked left behind: the engine's own code does not panic under a lock, and
/// a client's code never runs under one (I8).
#[inline]
pub(crate) fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    match m.lock() {
        Ok(g) => g,
        Err(poisoned) => poisoned.into_inner(),
    }
}

/// Keeps neighbours off each other's cache lines (two, because they are fetched in pairs).
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Padded<T>(pub(crate) T);
