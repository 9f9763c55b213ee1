//! The single writers that wait with one queue, each for more from the zone of its turn (anticipation).

use crate::unit::Nanos;

/// A single writer that waits with a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wait {
    /// The spindle that it writes to.
    pub(crate) spindle: usize,
    /// The number of the wait: see `sched/writer.rs`.
    pub(crate) number: u64,
    pub(crate) until: Nanos,
}

/// The waits of one queue for more writes of a zone (anticipation), at most one for each spindle.
#[derive(Debug, Default)]
pub(crate) struct AnticipationWaits(Vec<Wait>);

impl AnticipationWaits {
    /// Makes room for `nr` spindles.
    pub(crate) fn reserve(&mut self, nr: usize) {
        self.0.reserve(nr);
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a wait of the single writer of a spindle. It replaces an older wait of the same writer here: another
    /// queue has gone on with that one.
    pub(crate) fn put(&mut self, wait: Wait) {
        match self.0.iter_mut().find(|w| w.spindle == wait.spindle) {
            Some(w) => *w = wait,
            None => self.0.push(wait),
        }
    }

    /// Returns wait number `i`.
    #[inline]
    pub(crate) fn get(&self, i: usize) -> Option<Wait> {
        self.0.get(i).copied()
    }

    /// Ends wait number `i`; those behind it move up.
    pub(crate) fn remove(&mut self, i: usize) {
        self.0.remove(i);
    }

    /// Returns the time at which the first wait ends.
    #[inline]
    pub(crate) fn next_deadline(&self) -> Option<Nanos> {
        self.0.iter().map(|w| w.until).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spindle_waits_once() {
        let mut waits = AnticipationWaits::default();
        let wait = |spindle, number, until| Wait { spindle, number, until: Nanos(until) };
        assert_eq!(waits.next_deadline(), None);
        waits.put(wait(0, 1, 50));
        waits.put(wait(1, 1, 20));
        waits.put(wait(0, 2, 10));
        assert_eq!((waits.get(0), waits.get(1)), (Some(wait(0, 2, 10)), Some(wait(1, 1, 20))));
        assert_eq!((waits.get(2), waits.next_deadline()), (None, Some(Nanos(10))));
        waits.remove(0);
        assert_eq!((waits.get(0), waits.next_deadline()), (Some(wait(1, 1, 20)), Some(Nanos(20))));
    }
}
