//! Busy polling: decides when a queue thread without work polls for requests for a moment before it sleeps.
//! `queue.rs` reports each request and asks before each sleep. This module reads no clock and makes no call.
//!
//! When a process wakes that used less processor time, Linux gives it the processor. If a request costs the server
//! less than the client, and both share a processor, the server preempts the client at every request. Requests that
//! could come together then come one by one, with two switches each, and writes that could wait for each other do not
//! merge. This state is stable, because the client pays for the switches. A moment without sleep uses up the time
//! that Linux owes the server. The client then runs until its queue depth stops it, and from then on the server uses
//! more time. On a processor of its own, the server may find the next request without a wake-up.
//!
//! A client with one request at a time gains nothing, and cannot be recognised here. So a busy poll that finds
//! nothing makes the next one half as frequent.

use std::time::Duration;

/// Length of a busy poll. A client can submit several requests in this time.
pub(super) const MOMENT: Duration = Duration::from_micros(40);
/// Consecutive sleeps that ended with one request before the first busy poll.
const OFTEN: u32 = 64;
/// The most such sleeps between two busy polls, after busy polls that found nothing. Busy polling then takes less
/// than a thousandth of the time.
const SELDOM: u32 = 4096;

/// The requests that came between sleeps.
#[derive(Debug)]
pub(super) struct BusyPoll {
    /// Requests since the last sleep.
    requests: u32,
    /// Consecutive sleeps that ended with one request.
    alone: u32,
    /// Value of `alone` at which the next busy poll starts.
    every: u32,
    /// Whether a busy poll came before the last sleep.
    tried: bool,
}

impl BusyPoll {
    pub(super) fn new() -> BusyPoll {
        BusyPoll { requests: 0, alone: 0, every: OFTEN, tried: false }
    }

    /// Counts a request.
    pub(super) fn took(&mut self) {
        self.requests = self.requests.saturating_add(1);
    }

    /// Called before a sleep without work. Returns whether to poll for a [`MOMENT`] first.
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
        // A wake-up without a request does not count.
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

    /// The number of sleeps, each after `n` requests, until a busy poll is tried.
    fn sleeps_until_tried(busy_poll: &mut BusyPoll, n: u32, most: u32) -> Option<u32> {
        (1..=most).find(|_| {
            (0..n).for_each(|_| busy_poll.took());
            busy_poll.before_sleep()
        })
    }

    #[test]
    fn single_requests_are_polled_for_more_and_more_seldom() {
        let mut busy_poll = BusyPoll::new();
        let mut after = || sleeps_until_tried(&mut busy_poll, 1, 10_000);
        let found: Vec<_> = (0..9).map(|_| after().unwrap()).collect();
        assert_eq!(found, [64, 128, 256, 512, 1024, 2048, 4096, 4096, 4096]);
    }

    #[test]
    fn requests_that_come_together_are_not_polled_for() {
        let mut busy_poll = BusyPoll::new();
        assert_eq!(sleeps_until_tried(&mut busy_poll, 2, 10_000), None);
        // Wake-ups that bring no request start no busy poll either.
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
