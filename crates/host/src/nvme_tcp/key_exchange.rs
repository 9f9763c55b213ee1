//! The thread that computes values of Diffie-Hellman. They take up to a tenth of a second each, for peers that know no key too,
//! so no worker waits for them.

use super::mailbox::{Mail, Mailbox};
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex};
use zoneplug_core::poison::lock;
use zoneplug_nvme::target::auth::Job;

/// The value that is to be computed, and for which connection: its worker and its key.
struct Waiting {
    worker: usize,
    key: u64,
    job: Job,
}

#[derive(Default)]
struct Queue {
    /// One of each connection at most: it waits for the answer. Those of connections that have ended are taken out, so it is
    /// never longer than the server has connections.
    waiting: VecDeque<Waiting>,
    stops: bool,
}

/// Jobs for the thread, in the order in which they came.
#[derive(Default)]
pub(super) struct KeyExchange {
    queue: Mutex<Queue>,
    changed: Condvar,
}

impl KeyExchange {
    /// Has a job of a connection computed. The result comes by mail.
    pub(super) fn put(&self, worker: usize, key: u64, job: Job) {
        lock(&self.queue).waiting.push_back(Waiting { worker, key, job });
        self.changed.notify_one();
    }

    /// The connection has ended.
    pub(super) fn cancel(&self, worker: usize, key: u64) {
        lock(&self.queue).waiting.retain(|w| (w.worker, w.key) != (worker, key));
    }

    /// Ends the thread, once it has computed what it has begun.
    pub(super) fn stop(&self) {
        lock(&self.queue).stops = true;
        self.changed.notify_one();
    }

    /// Computes until it is told to stop.
    pub(super) fn run(&self, workers: &[Arc<Mailbox>]) {
        while let Some(Waiting { worker, key, job }) = self.next() {
            workers[worker].put(Mail::Computed(key, Box::new(job.run())));
        }
    }

    /// The next job, when there is one. `None`: the end.
    fn next(&self) -> Option<Waiting> {
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
