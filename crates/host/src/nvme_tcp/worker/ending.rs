//! The end of a server. The workers accept nothing more and answer all commands that have begun. Connections stay
//! until the TCP of each host has acknowledged its answers, and a little longer: when a connection ends, also that of
//! the admin queue, Linux discards bytes that it has received and not read. It would then send the commands again. A
//! resent write is compared with the disk, but an append would be appended again.

use super::{ClosingQueue, Connection, Timing, Worker};
use std::sync::atomic::Ordering;
use zoneplug_core::Nanos;
use zoneplug_nvme::io_queue::{END_LIMIT, END_LOOK};

/// The state of a worker's end.
#[derive(Debug)]
pub(super) struct Ending {
    /// The time at which the worker ends even if answers are missing.
    limit: Nanos,
    /// Once the hosts have all answers: the time by which they have read them.
    looked: Option<Nanos>,
    /// Whether the other workers know that this worker's hosts have read their answers.
    ready: bool,
}

impl<T: Timing> Worker<T> {
    /// Begins the end, after the worker was told to stop.
    pub(super) fn begin_end(&mut self) {
        self.listeners.close();
        for n in 0..self.places.len() {
            self.with(self.key(n), Connection::stop);
        }
        let limit = self.shared.clock.now().plus(END_LIMIT);
        self.ending = Some(Ending { limit, looked: None, ready: false });
    }

    /// The open connections.
    fn open(&mut self) -> impl Iterator<Item = &mut Connection<T>> {
        self.places.iter_mut().filter_map(|p| p.connection.as_deref_mut())
    }

    /// Continues the end. True: the worker has ended.
    #[cold]
    pub(super) fn turn_ending(&mut self) -> bool {
        let now = self.now;
        let Some(Ending { limit, mut looked, mut ready }) = self.ending else { return true };
        let is_over = now >= limit;
        if looked.is_none() && (is_over || self.open().all(Connection::is_answered)) {
            let any = self.open().any(|c| c.has_answered_append());
            looked = Some(if any { now.plus(END_LOOK) } else { now });
        }
        if !ready && looked.is_some_and(|at| now >= at || is_over) {
            ready = true;
            self.shared.unready_workers.fetch_sub(1, Ordering::AcqRel);
        }
        self.ending = Some(Ending { limit, looked, ready });
        let all_ready = ready && self.shared.unready_workers.load(Ordering::Acquire) == 0;
        if !all_ready && !is_over {
            return false;
        }
        for n in 0..self.places.len() {
            self.with(self.key(n), |_, _| false);
        }
        self.closing.drain(..).for_each(ClosingQueue::abandon);
        true
    }
}
