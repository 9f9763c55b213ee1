//! A scheduler for tests: of those that may be sent, any. What it proves is that no order of a scheduler breaks a zone.

use super::table::{Request, Table};
use crate::random::Random;

#[derive(Debug)]
pub(crate) struct Shuffle {
    /// Not the engine's: a seed that the client gave.
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

    /// Of those that `is` finds, the first that came.
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
