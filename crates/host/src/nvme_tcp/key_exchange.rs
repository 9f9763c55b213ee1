//! The thread that computes Diffie-Hellman values. One takes up to a tenth of a second, also for a peer that knows no
//! key, so no worker computes them.

use super::mailbox::{Mail, Mailbox};
use crate::network::connection_table::worker_of;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex};
use zoneplug_core::poison::lock;
use zoneplug_nvme::target::auth::Job;

/// A value to compute, and the key of the connection that waits for it.
struct Waiting<J> {
    key: u64,
    job: J,
}

struct Queue<J> {
    /// At most one job of each connection, because a connection waits for its answer. The jobs of ended connections
    /// are removed, so there are never more than connections.
    waiting: VecDeque<Waiting<J>>,
    stops: bool,
}

/// Jobs for the thread, in order of arrival.
pub(super) struct KeyExchange<J = Job> {
    queue: Mutex<Queue<J>>,
    changed: Condvar,
}

impl<J> Default for KeyExchange<J> {
    fn default() -> Self {
        let queue = Mutex::new(Queue { waiting: VecDeque::new(), stops: false });
        KeyExchange { queue, changed: Condvar::new() }
    }
}

impl<J> KeyExchange<J> {
    /// Adds a job of a connection. The result comes by mail.
    pub(super) fn put(&self, key: u64, job: J) {
        lock(&self.queue).waiting.push_back(Waiting { key, job });
        self.changed.notify_one();
    }

    /// Removes the job of a connection that has ended.
    pub(super) fn cancel(&self, key: u64) {
        lock(&self.queue).waiting.retain(|w| w.key != key);
    }

    /// Ends the thread after its current job.
    pub(super) fn stop(&self) {
        lock(&self.queue).stops = true;
        self.changed.notify_one();
    }

    /// Waits for the next job. `None`: the thread must end.
    fn next(&self) -> Option<Waiting<J>> {
        let mut queue = lock(&self.queue);
        loop {
            if queue.stops {
                return None;
            }
            if let Some(next) = queue.waiting.pop_front() {
                return Some(next);
            }
            queue = self.changed.wait(queue).unwrap_or_else(|e| e.into_inner());
        }
    }
}

impl KeyExchange {
    /// Computes until `stop` is called.
    pub(super) fn run(&self, workers: &[Arc<Mailbox>]) {
        while let Some(Waiting { key, job }) = self.next() {
            workers[worker_of(key)].put(Mail::Computed(key, Box::new(job.run())));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_connection_removes_its_own_job() {
        let jobs = KeyExchange::default();
        for (key, job) in [(7, 'a'), (9, 'b'), (8, 'c')] {
            jobs.put(key, job);
        }
        jobs.cancel(9);
        let left: Vec<_> = lock(&jobs.queue).waiting.iter().map(|w| (w.key, w.job)).collect();
        assert_eq!(left, [(7, 'a'), (8, 'c')]);
        jobs.put(9, 'd');
        jobs.stop();
        assert!(jobs.next().is_none(), "no job begins after the end");
    }
}
