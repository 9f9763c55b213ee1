//! A scheduler for tests: it sends any request that may be sent. It shows that no order of a scheduler breaks a zone.

use super::table::{Request, Table};
use crate::random::Random;

#[derive(Debug)]
pub(crate) struct Shuffle {
    /// Starts from a seed that the client gave; the engine draws no random numbers of its own.
    rng: Random,
    waiting: Vec<u32>,
}

impl Shuffle {
    pub(crate) fn new(seed: u64) -> Shuffle {
        Shuffle { rng: Random::new(seed), waiting: Vec::new() }
    }

    pub(crate) fn reserve(&mut self, n: usize) {
        self.waiting.reserve(n.saturating_sub(self.waiting.len()));
    }

    pub(crate) fn insert(&mut self, i: u32) {
        self.waiting.push(i);
    }

    pub(crate) fn remove(&mut self, i: u32) {
        self.waiting.retain(|&w| w != i);
    }

    /// Returns the first to arrive of those that `is` accepts.
    pub(crate) fn first_of(&self, t: &Table, is: impl Fn(&Request) -> bool) -> Option<u32> {
        self.waiting.iter().copied().find(|&i| is(t.get(i)))
    }

    pub(crate) fn next(&mut self, t: &Table, may: &dyn Fn(&Request) -> bool) -> Option<u32> {
        let n = self.waiting.len() as u32;
        let first = if n == 0 { 0 } else { self.rng.below(n) as usize };
        let (before, after) = self.waiting.split_at(first);
        after.iter().chain(before).copied().find(|&i| may(t.get(i)))
    }
}
