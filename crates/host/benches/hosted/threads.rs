//! Runs work on threads and processors of their own.

use crate::cpus;
use crate::slices::Alone;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

/// Work of one thread. A unit is a BIO, or what takes its place in a control.
pub(crate) trait Work: Send {
    /// Does `n` units, and says in its progress how far it is.
    fn run(&mut self, n: u64);
    fn progress(&self) -> &Progress;
    /// Panics if a unit failed. A thread that panicked by itself would leave the other one waiting for it.
    fn check(&self) {}
}

/// How many units of its run a thread has done. Another thread looks at it when its own run ends.
#[derive(Clone)]
pub(crate) struct Progress(Arc<Alone<AtomicU64>>);

impl Default for Progress {
    fn default() -> Self {
        Progress(Arc::new(Alone(AtomicU64::new(0))))
    }
}

impl Progress {
    #[inline]
    pub(crate) fn set(&self, done: u64) {
        self.0.0.store(done, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.0.load(Ordering::Relaxed)
    }
}

/// What a slice of one or two threads came to.
pub(crate) struct Together {
    /// ns per unit of all threads together.
    pub(crate) ns: f64,
    /// The part of its work that the slowest thread had done when the first thread ended.
    pub(crate) share: f64,
}

/// Runs each load on a thread and a processor of its own. Each thread does `ahead` units of work; then all begin at the
/// same time, and each does `n`.
pub(crate) fn together<W: Work>(loads: &mut [W], cpus: &[usize], ahead: u64, n: u64) -> Together {
    let threads = loads.len();
    let ready = AtomicUsize::new(0);
    let progress: Vec<_> = loads.iter().map(|load| load.progress().clone()).collect();
    let ends: Vec<(Instant, Instant, u64)> = std::thread::scope(|s| {
        let (ready, progress) = (&ready, &progress);
        let spawned: Vec<_> = loads
            .iter_mut()
            .zip(cpus)
            .map(|(load, &cpu)| {
                s.spawn(move || {
                    cpus::pin(cpu);
                    load.run(ahead);
                    load.progress().set(0);
                    ready.fetch_add(1, Ordering::SeqCst);
                    while ready.load(Ordering::SeqCst) < threads {
                        std::hint::spin_loop();
                    }
                    let start = Instant::now();
                    load.run(n);
                    let slowest = progress.iter().map(Progress::get).min();
                    (start, Instant::now(), slowest.expect("a thread"))
                })
            })
            .collect();
        spawned.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    loads.iter().for_each(Work::check);
    let start = ends.iter().map(|e| e.0).min().expect("a thread");
    let (_, end, slowest) = *ends.iter().min_by_key(|e| e.1).expect("a thread");
    // What a thread does alone, after the first one has ended, is left out.
    let done = if threads == 1 { n } else { n + slowest };
    Together { ns: (end - start).as_nanos() as f64 / done as f64, share: slowest as f64 / n as f64 }
}
