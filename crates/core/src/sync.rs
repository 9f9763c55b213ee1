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

#[cfg(not(any(loom, shuttle)))]
pub(crate) use crate::poison::lock;

/// Locks a mutex of the model checker.
#[cfg(any(loom, shuttle))]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    crate::poison::unpoisoned(mutex.lock())
}

/// Keeps neighbours off each other's cache lines (two, because they are fetched in pairs).
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Padded<T>(pub(crate) T);
