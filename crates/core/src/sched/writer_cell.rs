//! The place of a [`SingleWriter`]: its lock, and a word beside the lock. While no zone waits, a turn of one command takes
//! the token by one compare-and-exchange of the word, gives it back by another, and locks nothing (*short turn*).
//!
//! The word says where the token is:
//!
//! | word | the token |
//! | --- | --- |
//! | `LOCKED` | where the [`SingleWriter`] says, under the lock |
//! | `FREE` | free, and no zone is listed; with the zone of the last turn |
//! | `TURN` | with the queue that has one write of this zone on the way: a short turn |
//!
//! Taking the lock sets the word to `LOCKED` first ([`WriterCell::lock`]), and makes a short turn an ordinary one. The queue
//! with that turn finds the word changed at the end of its write, and then goes the ordinary way. A holder of the lock that
//! leaves the token free opens the word again ([`WriterCell::open`]). So the token has one owner at any time.

use super::writer::{SingleWriter, WriterCounters};
use crate::sync::{AtomicU64, Mutex, MutexGuard, Ordering, lock};
use crate::unit::{Sector, ZoneNo};
use std::ops::{Deref, DerefMut};

const LOCKED: u64 = 0;
const FREE: u64 = 1;
const TURN: u64 = 2;
const KIND: u64 = 3;
/// The number of the zone plus 1 is above the kind; 0: none.
const ZONE_SHIFT: u32 = 2;

fn word(kind: u64, zone: Option<ZoneNo>) -> u64 {
    kind | zone.map_or(0, |zone| u64::from(zone.0) + 1) << ZONE_SHIFT
}

fn zone_of(word: u64) -> Option<ZoneNo> {
    (word >> ZONE_SHIFT).checked_sub(1).map(|zone| ZoneNo(zone as u32))
}

/// A single writer, its lock and its word.
#[derive(Debug, Default)]
pub(crate) struct WriterCell {
    word: AtomicU64,
    /// The sector at which the last short turn ended, and the number of short turns. Only the queue with a short turn
    /// writes them, so counting is a load and a store.
    head: AtomicU64,
    turns: AtomicU64,
    writer: Mutex<SingleWriter>,
}

/// A short turn that has begun: the word from before it.
#[derive(Debug)]
pub(crate) struct Begun(u64);

impl WriterCell {
    pub(crate) fn new(writer: SingleWriter) -> WriterCell {
        WriterCell { writer: Mutex::new(writer), ..WriterCell::default() }
    }

    /// Returns whether [`WriterCell::begin_short_turn`] may succeed.
    #[inline]
    pub(crate) fn is_free(&self) -> bool {
        self.word.load(Ordering::Relaxed) & KIND == FREE
    }

    /// Begins a short turn of `zone`. `None`: the token is not free, a zone waits, or the disk has no short turns.
    #[inline]
    pub(crate) fn begin_short_turn(&self, zone: ZoneNo) -> Option<Begun> {
        let was = self.word.load(Ordering::Relaxed);
        if was & KIND != FREE {
            return None;
        }
        let turn = word(TURN, Some(zone));
        let begun =
            self.word.compare_exchange(was, turn, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        begun.then_some(Begun(was))
    }

    /// Takes back a short turn in which nothing was sent. Returns false if it has become an ordinary turn: the caller
    /// has the token and passes it on.
    #[cold]
    pub(crate) fn take_back(&self, zone: ZoneNo, begun: &Begun) -> bool {
        let turn = word(TURN, Some(zone));
        self.word.compare_exchange(turn, begun.0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Returns whether `zone` has a short turn.
    #[inline]
    pub(crate) fn is_short_turn(&self, zone: ZoneNo) -> bool {
        self.word.load(Ordering::Relaxed) == word(TURN, Some(zone))
    }

    /// Ends the short turn of `zone`, whose write ended at sector `end`. Returns false if it has become an ordinary
    /// turn: the caller has the token and passes it on.
    #[inline]
    pub(crate) fn end_short_turn(&self, zone: ZoneNo, end: Sector) -> bool {
        let turns = self.turns.load(Ordering::Relaxed);
        self.head.store(end.0, Ordering::Relaxed);
        self.turns.store(turns + 1, Ordering::Relaxed);
        let (turn, free) = (word(TURN, Some(zone)), word(FREE, Some(zone)));
        let ended =
            self.word.compare_exchange(turn, free, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if !ended {
            // An ordinary turn is counted where it ends. No short turn begins before that.
            self.turns.store(turns, Ordering::Relaxed);
        }
        ended
    }

    /// Locks the single writer for a queue that takes the token or passes it on. A short turn becomes an ordinary one.
    /// If the token is free at the end, the caller opens the word ([`WriterCell::open`]).
    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, SingleWriter> {
        let mut writer = lock(&self.writer);
        if self.word.load(Ordering::Relaxed) != LOCKED {
            self.close(&mut writer);
        }
        writer
    }

    /// Locks the single writer for anything else. At the end the word is as open as before.
    pub(crate) fn inspect(&self) -> WriterGuard<'_> {
        WriterGuard { writer: self.lock(), cell: self }
    }

    #[cold]
    fn close(&self, writer: &mut SingleWriter) {
        let was = self.word.swap(LOCKED, Ordering::AcqRel);
        let head = Sector(self.head.load(Ordering::Relaxed));
        writer.learn_short_turns(was & KIND == TURN, zone_of(was), head);
    }

    /// Opens the word if the token is free.
    #[inline]
    pub(crate) fn open(&self, writer: &SingleWriter) {
        if let Some((last, head)) = writer.before_short_turns() {
            self.head.store(head.0, Ordering::Relaxed);
            self.word.store(word(FREE, last), Ordering::Release);
        }
    }
}

/// A single writer that is locked. At the end the word is opened if the token is free.
pub(crate) struct WriterGuard<'a> {
    cell: &'a WriterCell,
    writer: MutexGuard<'a, SingleWriter>,
}

impl WriterGuard<'_> {
    /// The counts of the writer, with those of short turns.
    pub(crate) fn counters(&self) -> WriterCounters {
        let mut counters = self.writer.counters;
        counters.add_short_turns(self.cell.turns.load(Ordering::Relaxed));
        counters
    }
}

impl Deref for WriterGuard<'_> {
    type Target = SingleWriter;

    #[inline]
    fn deref(&self) -> &SingleWriter {
        &self.writer
    }
}

impl DerefMut for WriterGuard<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut SingleWriter {
        &mut self.writer
    }
}

impl Drop for WriterGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.cell.open(&self.writer);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::sched::writer::{Listed, WriterParams};
    use crate::unit::Nanos;

    const A: ZoneNo = ZoneNo(3);
    const B: ZoneNo = ZoneNo(4);

    fn cell() -> WriterCell {
        let cell = WriterCell::default();
        assert!(!cell.is_free(), "short turns are allowed first");
        cell.inspect().allow_short_turns(true);
        assert!(cell.is_free());
        cell
    }

    #[test]
    fn a_short_turn_counts_as_a_turn_of_one_command() {
        let cell = cell();
        for _ in 0..3 {
            cell.begin_short_turn(A).expect("the token is free");
            assert!(cell.begin_short_turn(B).is_none() && cell.is_short_turn(A));
            assert!(cell.end_short_turn(A, Sector(8)));
        }
        let writer = cell.inspect();
        assert!(writer.is_idle());
        let counters = writer.counters();
        assert_eq!((counters.turns, counters.drained[0], counters.longest_wait), (3, 3, Nanos(0)));
        drop(writer);
        assert!(cell.is_free(), "a look leaves the word open");
    }

    /// A zone that is listed during a short turn waits for its end, and gets the token from the queue that had it.
    #[test]
    fn a_zone_that_is_listed_makes_a_short_turn_an_ordinary_one() {
        let (cell, params) = (cell(), WriterParams::default());
        cell.begin_short_turn(A).expect("the token is free");
        let mut writer = cell.lock();
        assert_eq!(writer.state().0, Some(A));
        assert_eq!(writer.list(B, 0, Nanos(0), &params), Listed::Queued);
        drop(writer);
        assert!(!cell.is_short_turn(A) && !cell.end_short_turn(A, Sector(8)));
        let mut writer = cell.lock();
        writer.wrote(Sector(8));
        assert_eq!(writer.drained(Some(Sector(8)), Nanos(0), false, &params), None);
        assert_eq!(writer.next(Nanos(0), &params).map(|(zone, _)| zone), Some(B));
        cell.open(&writer);
        drop(writer);
        assert!(!cell.is_free(), "B has the token");
        assert_eq!((cell.inspect().counters().turns, cell.turns.load(Ordering::Relaxed)), (1, 0));
    }

    /// The last zone and the head are where short turns have left them, for the policy of the next turn.
    #[test]
    fn an_ordinary_turn_begins_where_short_turns_have_ended() {
        let cell = cell();
        cell.begin_short_turn(A).expect("the token is free");
        assert!(cell.end_short_turn(A, Sector(80)));
        let writer = cell.lock();
        assert_eq!(writer.before_short_turns(), Some((Some(A), Sector(80))));
    }

    #[test]
    fn a_short_turn_in_which_nothing_was_sent_is_taken_back() {
        let cell = cell();
        let begun = cell.begin_short_turn(A).expect("the token is free");
        assert!(cell.take_back(A, &begun) && cell.is_free());
        assert_eq!(cell.inspect().counters().turns, 0);
        let begun = cell.begin_short_turn(A).expect("the token is free");
        drop(cell.lock());
        assert!(!cell.take_back(A, &begun), "the token stays with its queue");
        assert!(!cell.is_free());
    }

    #[test]
    fn a_disk_that_needs_more_of_its_turns_has_no_short_ones() {
        let cell = cell();
        cell.inspect().allow_short_turns(false);
        assert!(!cell.is_free() && cell.begin_short_turn(A).is_none());
    }
}

/// For `scripts/loom`.
#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::sched::writer::{Listed, WriterParams};
    use crate::unit::Nanos;
    use loom::thread;
    use std::sync::Arc;

    /// A short turn of one zone ends while another zone is listed. One of the two begins the other's turn, and only one.
    #[test]
    fn loom_end_of_a_short_turn_against_a_listing() {
        loom::model(|| {
            let cell = Arc::new(WriterCell::default());
            cell.inspect().allow_short_turns(true);
            cell.begin_short_turn(ZoneNo(0)).expect("the token is free");
            let other = cell.clone();
            let other = thread::spawn(move || {
                let params = WriterParams::default();
                let mut writer = other.lock();
                let go = writer.list(ZoneNo(1), 0, Nanos(0), &params) == Listed::Go;
                go && writer.next(Nanos(0), &params).is_some()
            });
            let passes_on = !cell.end_short_turn(ZoneNo(0), Sector(8));
            let begun_by_other = other.join().expect("the other queue");
            let begun_here = passes_on && {
                let mut writer = cell.lock();
                writer.wrote(Sector(8));
                writer.next(Nanos(0), &WriterParams::default()).is_some()
            };
            assert!(begun_here != begun_by_other, "Q8: {begun_here}, {begun_by_other}");
            assert!(!cell.is_free(), "Q1: the second zone has the token");
        });
    }
}
