//! When a queue that has nothing to do looks for requests for a moment before it sleeps. `queue.rs` tells it of each request and
//! asks it before each sleep; it reads no clock and makes no call.
//!
//! Whoever uses less processor time than the others is owed time, and Linux gives it to him when he wakes. A server whose part of
//! a request is cheaper than its client's therefore preempts the client at every request where they share a processor: requests
//! that could come together come one by one, with two switches each, and writes that could have waited for one another and
//! merged do not. Nothing ends that by itself, because so it is the client that pays for the switches. A moment without sleep
//! uses up what the server is owed; the client goes on until its own depth stops it, and from then on the server is the one that
//! uses more. On a processor of its own the moment is a look that may find the next request without a wake-up.
//!
//! A client that has one request at a time gains nothing by it, and looks the same from here. So a moment that brings nothing
//! makes the next one twice as rare.

use std::time::Duration;

/// How long is looked: a client can hand over some requests in that time.
pub(super) const MOMENT: Duration = Duration::from_micros(40);
/// Sleeps in a row that ended with a single request, after which it is tried.
const OFTEN: u32 = 64;
/// As many where it has brought nothing: then it is less than a thousandth of the time.
const SELDOM: u32 = 4096;

/// What came between sleeps.
#[derive(Debug)]
pub(super) struct BusyPoll {
    /// Requests since the last sleep.
    requests: u32,
    /// Sleeps in a row that ended with one request.
    alone: u32,
    /// How many of them it takes.
    every: u32,
    /// Whether the last sleep came after a moment.
    tried: bool,
}

impl BusyPoll {
    pub(super) fn new() -> BusyPoll {
        BusyPoll { requests: 0, alone: 0, every: OFTEN, tried: false }
    }

    /// A request has come.
    pub(super) fn took(&mut self) {
        self.requests = self.requests.saturating_add(1);
    }

    /// Asked before a sleep with nothing in hand: whether to look for requests for a [`MOMENT`] first.
    pub(super) fn before_sleep(&mut self) -> bool {
        let requests = std::mem::take(&mut self.requests);
        let tried = std::mem::take(&mut self.tried);
        if requests > 1 {
            (self.alone, self.every) = (0, OFTEN);
            return false;
        }
        if tried && requests > 0 {
            self.every = (self.every * 2).min(SELDOM);
        }
        // A wake-up without a request says nothing.
        self.alone += requests;
        self.tried = self.alone >= self.every;
        if self.tried {
            self.alone = 0;
        }
        self.tried
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After how many sleeps, each after `n` requests, a moment is tried.
    fn sleeps_until_tried(busy_poll: &mut BusyPoll, n: u32, most: u32) -> Option<u32> {
        (1..=most).find(|_| {
            (0..n).for_each(|_| busy_poll.took());
            busy_poll.before_sleep()
        })
    }

    #[test]
    fn single_requests_are_lingered_for_more_and_more_seldom() {
        let mut busy_poll = BusyPoll::new();
        let mut after = || sleeps_until_tried(&mut busy_poll, 1, 10_000);
        let found: Vec<_> = (0..9).map(|_| after().unwrap()).collect();
        assert_eq!(found, [64, 128, 256, 512, 1024, 2048, 4096, 4096, 4096]);
    }

    #[test]
    fn requests_that_come_together_are_not_lingered_for() {
        let mut busy_poll = BusyPoll::new();
        assert_eq!(sleeps_until_tried(&mut busy_poll, 2, 10_000), None);
        // Nor for wake-ups that bring none.
        assert_eq!(sleeps_until_tried(&mut busy_poll, 0, 10_000), None);
    }

    #[test]
    fn a_moment_that_brought_several_is_tried_again_as_soon_as_they_are_alone_again() {
        let mut busy_poll = BusyPoll::new();
        assert_eq!(sleeps_until_tried(&mut busy_poll, 1, 100), Some(64));
        assert_eq!(sleeps_until_tried(&mut busy_poll, 1, 200), Some(128));
        assert_eq!(sleeps_until_tried(&mut busy_poll, 4, 3), None);
        assert_eq!(sleeps_until_tried(&mut busy_poll, 1, 100), Some(64));
    }
}
