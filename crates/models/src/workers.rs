//! Runs work on all processors.

use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use zoneplug_core::{Error, ErrorKind};

/// The threads of a computation, and whether it should end early.
#[derive(Clone, Copy)]
pub struct Workers<'a> {
    threads: usize,
    is_asked: &'a (dyn Fn() -> bool + Sync),
}

impl fmt::Debug for Workers<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workers").field("threads", &self.threads).finish_non_exhaustive()
    }
}

impl<'a> Workers<'a> {
    /// As many threads as there are processors. All threads call `is_asked` often: once it returns
    /// true, the computation ends with the results so far.
    pub fn all(is_asked: &'a (dyn Fn() -> bool + Sync)) -> Workers<'a> {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        Workers { threads, is_asked }
    }

    /// Limits the number of threads. With one thread, the calling thread does all the work.
    #[must_use]
    pub fn at_most(self, threads: usize) -> Workers<'a> {
        Workers { threads: threads.max(1), ..self }
    }

    /// Whether the computation should end.
    pub fn is_asked(&self) -> bool {
        (self.is_asked)()
    }

    /// Does `n` pieces of work. The results are in the order of the work. Once asked to end, begins
    /// no further piece, and the results of those are missing.
    ///
    /// ```
    /// use zoneplug_models::Workers;
    /// let squares = Workers::all(&|| false).spread(4, |i| Ok(i * i)).unwrap();
    /// assert_eq!(squares, [0, 1, 4, 9]);
    /// ```
    pub fn spread<T: Send>(
        &self,
        n: usize,
        work: impl Fn(usize) -> Result<T, Error> + Sync,
    ) -> Result<Vec<T>, Error> {
        let (next, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
        let found = Mutex::new(Vec::with_capacity(n));
        let some = || -> Result<(), Error> {
            loop {
                let i = next.fetch_add(1, Ordering::Relaxed);
                if i >= n || stop.load(Ordering::Relaxed) || self.is_asked() {
                    return Ok(());
                }
                let result = work(i).inspect_err(|_| stop.store(true, Ordering::Relaxed))?;
                zoneplug_core::poison::lock(&found).push((i, result));
            }
        };
        std::thread::scope(|s| {
            // The calling thread works too, and does all the work if the system gives it no other
            // thread.
            let more = (1..self.threads.min(n)).map_while(|_| {
                let thread = std::thread::Builder::new().name("zoneplug-run".to_owned());
                thread.spawn_scoped(s, some).ok()
            });
            let more: Vec<_> = more.collect();
            let own = some();
            more.into_iter().fold(own, |result, t| match t.join() {
                Ok(other) => result.and(other),
                Err(_) => Err(Error::new(ErrorKind::Io, "a run panicked").hint("this is a bug")),
            })
        })?;
        let mut found = zoneplug_core::poison::unpoisoned(found.into_inner());
        found.sort_by_key(|(i, _)| *i);
        Ok(found.into_iter().map(|(_, result)| result).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_that_is_spread_comes_back_in_order() {
        let workers = Workers::all(&|| false);
        for workers in [workers, workers.at_most(1), workers.at_most(7)] {
            assert_eq!(workers.spread(100, |i| Ok(i * i)).unwrap()[99], 99 * 99);
            let fail = |i| if i == 3 { Err(Error::invalid("x")) } else { Ok(i) };
            assert!(workers.spread(4, fail).is_err());
            assert!(workers.spread(0, Ok).unwrap().is_empty());
        }
    }

    #[test]
    fn with_one_thread_the_calling_thread_does_it_all() {
        let me = std::thread::current().id();
        let all = Workers::all(&|| false).at_most(1).spread(9, |_| Ok(std::thread::current().id()));
        assert!(all.unwrap().iter().all(|id| *id == me));
    }

    #[test]
    fn after_the_end_is_asked_for_no_piece_is_begun() {
        let done = AtomicUsize::new(0);
        let enough = || done.load(Ordering::Relaxed) >= 3;
        let workers = Workers::all(&enough).at_most(1);
        let all = workers.spread(100, |_| Ok(done.fetch_add(1, Ordering::Relaxed))).unwrap();
        assert_eq!(all.len(), 3);
    }
}
