//! Times of short slices. The benchmarks of `core` and `host` share this file.
//!
//! On a machine that is shared, the median of long runs says more about the other programs than about the code. A slice
//! of some hundred microseconds often passes without being disturbed, and all cases take their slices in turns, so that
//! they meet the same machine. The minimum repeats within a few percent.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// The times of the slices of one case: ns per BIO.
#[derive(Default)]
pub(crate) struct Slices(Vec<f64>);

/// The figures of the slices of one case.
#[derive(Clone, Copy)]
pub(crate) struct Figures {
    pub(crate) min: f64,
    pub(crate) p10: f64,
    pub(crate) median: f64,
}

impl Slices {
    /// Adds a slice.
    pub(crate) fn push(&mut self, ns: f64) {
        self.0.push(ns);
    }

    /// The figures. There is at least one slice.
    pub(crate) fn figures(&self) -> Figures {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        Figures { min: sorted[0], p10: sorted[sorted.len() / 10], median: sorted[sorted.len() / 2] }
    }
}

/// Returns the nanoseconds for each of the `n` operations that `f` does.
pub(crate) fn timed(n: u64, f: impl FnOnce()) -> f64 {
    let start = Instant::now();
    f();
    start.elapsed().as_nanos() as f64 / n as f64
}

/// Keeps a value on cache lines of its own.
#[repr(align(128))]
pub(crate) struct Alone<T>(pub(crate) T);

/// `n` compare-and-exchange operations without contention, the unit of other figures. `n` is even. Nothing else is
/// stored in the loop, because an operation waits for earlier stores.
pub(crate) fn cas(n: u64) {
    let word = Alone(AtomicU64::new(0));
    let word = &black_box(&word).0;
    let swap = |old, new| {
        let swapped = word.compare_exchange(old, new, Ordering::AcqRel, Ordering::Relaxed);
        assert!(swapped.is_ok());
    };
    for _ in 0..n / 2 {
        swap(0, 1);
        swap(1, 0);
    }
}
