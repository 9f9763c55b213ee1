//! A queue of items for a reader that may stall: a full pipe, a stopped journal, a paused terminal. One thread writes
//! the items, and may wait for the reader. Other threads put items in and never wait. A full queue drops further items
//! and counts them.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};
use zoneplug_core::poison::{lock, unpoisoned};

/// The largest number of waiting items.
const MOST: usize = 4096;

struct State<T> {
    waiting: VecDeque<T>,
    /// The writer has taken an item that is not written yet.
    writing: bool,
    /// The writer must return from its wait.
    nudged: bool,
    /// Items that were dropped.
    lost: u64,
}

/// A bounded queue to a writing thread.
pub struct Outbox<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

impl<T> Default for Outbox<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Outbox<T> {
    /// An empty queue.
    pub const fn new() -> Outbox<T> {
        let state = State { waiting: VecDeque::new(), writing: false, nudged: false, lost: 0 };
        Outbox { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Adds an item, or drops it if too many wait. Does not wait for the reader.
    pub fn put(&self, item: T) {
        let mut state = lock(&self.state);
        if state.waiting.len() < MOST {
            state.waiting.push_back(item);
            self.changed.notify_all();
        } else {
            state.lost += 1;
        }
    }

    /// Ends the writer's wait for an item: the current one, or else the next.
    pub fn nudge(&self) {
        lock(&self.state).nudged = true;
        self.changed.notify_all();
    }

    /// Waits for the next item and takes it. Only the writer calls this, after it has written the previous item. `None`: no
    /// item has come within `most`, or the writer was nudged.
    pub fn take(&self, most: Option<Duration>) -> Option<T> {
        let end = most.map(|most| Instant::now() + most);
        let mut state = lock(&self.state);
        state.writing = false;
        self.changed.notify_all();
        loop {
            if let Some(item) = state.waiting.pop_front() {
                state.writing = true;
                return Some(item);
            }
            if std::mem::take(&mut state.nudged) {
                return None;
            }
            state = match end.map(|end| end.saturating_duration_since(Instant::now())) {
                Some(Duration::ZERO) => return None,
                left => self.wait(state, left),
            };
        }
    }

    /// The number of items dropped since the last call.
    pub fn take_lost(&self) -> u64 {
        std::mem::take(&mut lock(&self.state).lost)
    }

    /// Waits until everything is written, for at most `most`. Returns the number of items that are not written or
    /// were dropped.
    pub fn finish(&self, most: Duration) -> u64 {
        let end = Instant::now() + most;
        let mut state = lock(&self.state);
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let unwritten = state.waiting.len() as u64 + u64::from(state.writing);
            if unwritten == 0 || left.is_zero() {
                return unwritten + state.lost;
            }
            state = self.wait(state, Some(left));
        }
    }

    fn wait<'a>(
        &self,
        state: std::sync::MutexGuard<'a, State<T>>,
        most: Option<Duration>,
    ) -> std::sync::MutexGuard<'a, State<T>> {
        match most {
            None => unpoisoned(self.changed.wait(state)),
            Some(most) => unpoisoned(self.changed.wait_timeout(state, most)).0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::mpsc::sync_channel;

    const LONG: Duration = Duration::from_secs(60);

    /// T8: the reader reads nothing.
    #[test]
    fn t8_a_stalled_reader_holds_up_nothing_and_what_is_lost_is_counted() {
        let outbox = Arc::new(Outbox::new());
        let (stall, go_on) = sync_channel::<()>(0);
        let (tell, told) = sync_channel::<usize>(2 * MOST);
        let writer = outbox.clone();
        std::thread::spawn(move || {
            while let Some(item) = writer.take(None) {
                let _ = go_on.recv();
                let _ = tell.send(item);
            }
        });
        outbox.put(0);
        // The writer has taken the item and waits for the reader.
        while !lock(&outbox.state).waiting.is_empty() {
            std::thread::yield_now();
        }
        (1..=MOST + 7).for_each(|item| outbox.put(item));
        let start = Instant::now();
        assert_eq!(outbox.finish(Duration::from_millis(50)), 1 + MOST as u64 + 7);
        assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
        // The reader goes on.
        drop(stall);
        assert_eq!(outbox.take_lost(), 7);
        assert_eq!(outbox.finish(LONG), 0);
        assert_eq!(told.try_iter().collect::<Vec<_>>(), (0..=MOST).collect::<Vec<_>>());
        outbox.nudge();
    }

    #[test]
    fn a_writer_is_nudged_and_wakes_in_time() {
        let outbox = Outbox::<u8>::new();
        outbox.nudge();
        assert_eq!(outbox.take(Some(LONG)), None);
        assert_eq!(outbox.take(Some(Duration::from_millis(1))), None);
        outbox.put(1);
        outbox.nudge();
        assert_eq!(outbox.take(None), Some(1));
        assert_eq!(outbox.finish(Duration::ZERO), 1, "taken, and not written");
        assert_eq!(outbox.take(None), None);
        assert_eq!(outbox.finish(Duration::ZERO), 0);
    }
}
