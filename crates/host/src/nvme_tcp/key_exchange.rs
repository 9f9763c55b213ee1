//! The thread that computes Diffie-Hellman values. One takes up to a tenth of a second, also for a peer that knows no
//! key, so no worker computes them.

use super::mailbox::{Mail, Mailbox};
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex};
use zoneplug_core::poison::lock;
use zoneplug_nvme::target::auth::Job;

/// A value to compute, and the connection that waits for it: its worker and its key.
struct Waiting {
    worker: usize,
    key: u64,
    job: Job,
}

#[derive(Default)]
struct Queue {
    /// At most one job of each connection, because a connection waits for its answer. The jobs of ended connections
    /// are removed, so there are never more than connections.
    waiting: VecDeque<Waiting>,
    stops: bool,
}

/// Jobs for the thread, in order of arrival.
#[derive(Default)]
pub(super) struct KeyExchange {
    queue: Mutex<Queue>,
    changed: Condvar,
}

impl KeyExchange {
    /// Adds a job of a connection. The result comes by mail.
    pub(super) fn put(&self, worker: usize, key: u64, job: Job) {
        lock(&self.queue).waiting.push_back(Waiting { worker, key, job });
        self.changed.notify_one();
    }

    /// Removes the job of a connection that has ended.
    pub(super) fn cancel(&self, worker: usize, key: u64) {
        lock(&self.queue).waiting.retain(|w| (w.worker, w.key) != (worker, key));
    }

    /// Ends the thread after its current job.
    pub(super) fn stop(&self) {
        lock(&self.queue).stops = true;
        self.changed.notify_one();
    }

    /// Computes until `stop` is called.
    pub(super) fn run(&self, workers: &[Arc<Mailbox>]) {
        while let Some(Waiting { worker, key, job }) = self.next() {
            workers[worker].put(Mail::Computed(key, Box::new(job.run())));
        }
    }

    /// Waits for the next job. `None`: the thread must end.
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
