//! The locks and atomics of the engine: those of the standard library, or of one of the model checkers
//! (`scripts/loom`, `scripts/shuttle`). Every word that threads share must be of these types, because a model checker
//! sees no others. This file adds no lock or atomic of its own.

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

/// Keeps a value on cache lines of its own. It takes two lines, because processors fetch them in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Padded<T>(pub(crate) T);
