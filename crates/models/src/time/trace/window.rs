//! A bounded number of operations, sorted by time. Owns those that were read and not yet taken.

use super::Raw;
use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};
use zoneplug_core::Nanos;

/// An operation that waits for earlier ones.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) raw: Raw,
    /// The number of its line or record.
    pub(super) n: u64,
}

impl Held {
    fn key(&self) -> (Nanos, u64) {
        (self.raw.at, self.n)
    }
}

impl PartialEq for Held {
    fn eq(&self, other: &Held) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Held {}

impl PartialOrd for Held {
    fn partial_cmp(&self, other: &Held) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Held {
    /// The earliest operation is the greatest, because a heap returns the greatest first.
    fn cmp(&self, other: &Held) -> Ordering {
        other.key().cmp(&self.key())
    }
}

/// Operations that were read. Most come in order, and need no heap.
#[derive(Debug)]
pub(super) struct Window {
    /// Operations in the order of their times.
    sorted: VecDeque<Held>,
    /// Operations that came after a later one.
    late: BinaryHeap<Held>,
    room: usize,
}

impl Window {
    /// A window of this many operations.
    pub(super) fn new(room: usize) -> Window {
        Window { sorted: VecDeque::new(), late: BinaryHeap::new(), room: room.max(1) }
    }

    pub(super) fn has_room(&self) -> bool {
        self.sorted.len() + self.late.len() < self.room
    }

    pub(super) fn push(&mut self, held: Held) {
        match self.sorted.back() {
            Some(last) if held.key() < last.key() => self.late.push(held),
            _ => self.sorted.push_back(held),
        }
    }

    /// Takes the earliest operation.
    pub(super) fn pop(&mut self) -> Option<Held> {
        match (self.sorted.front(), self.late.peek()) {
            (Some(first), Some(late)) if late.key() < first.key() => self.late.pop(),
            (None, _) => self.late.pop(),
            _ => self.sorted.pop_front(),
        }
    }
}
