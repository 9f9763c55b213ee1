//! The end of a server ([`ServerEnd`]). The workers accept nothing more, answer all commands that have begun, and wait
//! for each other: no connection closes before the hosts of all workers have read their answers, or it is too late to
//! wait for them. The reason: when one connection ends, a Linux host discards what it has received on its other
//! connections and not read yet.

use super::{Connection, Timing, WaitingConnection, Worker, WorkerContext, context};
use std::sync::atomic::Ordering;
use zoneplug_nvme::association::ServerEnd;

/// The state of a worker's end.
#[derive(Debug)]
pub(super) struct Ending {
    end: ServerEnd,
    /// Whether the other workers know that this worker waits for no host any more: its hosts have read their answers,
    /// or it is too late.
    ready: bool,
}

impl<T: Timing> Worker<T> {
    /// Begins the end, after the worker was told to stop.
    pub(super) fn begin_end(&mut self) {
        self.listeners.close();
        for n in 0..self.table.len() {
            self.with(self.table.key(n), Connection::stop);
        }
        self.ending = Some(Ending { end: ServerEnd::new(self.shared.clock.now()), ready: false });
    }

    /// `None`: not all connections are answered. True: they are, and one of the last answers is to an append, which a
    /// host would send again if it had not read the answer.
    fn answered(&mut self) -> Option<bool> {
        let mut ctx = context!(self);
        let mut appended = false;
        for WaitingConnection { connection: c, .. } in self.table.iter_mut() {
            if !c.is_answered(&mut ctx) {
                return None;
            }
            appended |= c.association().has_answered_append();
        }
        Some(appended)
    }

    /// Continues the end. True: the worker has ended.
    #[cold]
    pub(super) fn continue_end(&mut self) -> bool {
        let Some(Ending { mut end, mut ready }) = self.ending.take() else { return true };
        let now = self.now;
        if end.is_done(now, || self.answered()) && !ready {
            ready = true;
            self.shared.unready_workers.fetch_sub(1, Ordering::AcqRel);
        }
        self.ending = Some(Ending { end, ready });
        let all_ready = ready && self.shared.unready_workers.load(Ordering::Acquire) == 0;
        if !all_ready && !end.is_late(now) {
            return false;
        }
        for n in 0..self.table.len() {
            // False: the connection closes.
            self.with(self.table.key(n), |_, _| false);
        }
        self.closing.drain(..).for_each(|c| c.queue.abandon());
        true
    }
}
