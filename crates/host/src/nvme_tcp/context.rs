//! The parts of a worker that it lends a connection for a call.

use super::Shared;
use super::io_queue::{ClosingQueue, ServedDisks, ToTell};
use crate::network::calls::Calls;
use crate::network::sys;
use crate::served::Counters;
use crate::served::timing::Timing;
use std::cell::RefCell;
use zoneplug_buf::Buffers;
use zoneplug_core::Nanos;
use zoneplug_nvme::io_queue::IoContext;

/// The context that a connection is called with.
pub(super) struct WorkerContext<'a, T> {
    pub(super) shared: &'a Shared,
    pub(super) worker: usize,
    pub(super) epoll: &'a sys::Epoll,
    pub(super) buffers: &'a mut Buffers,
    /// Queues of this worker whose connections have ended.
    pub(super) closing: &'a mut Vec<ClosingQueue<T>>,
    pub(super) counters: &'a [Counters],
    pub(super) calls: &'a Calls,
    pub(super) now: Nanos,
}

impl<'a, T: Timing> WorkerContext<'a, T> {
    /// Returns the context of a queue. The appends that it answers are added to `to_tell`.
    #[inline(always)]
    pub(super) fn io<'b>(
        &mut self,
        to_tell: &'b RefCell<Vec<ToTell>>,
    ) -> IoContext<'_, ServedDisks<'b, T>>
    where
        'a: 'b,
    {
        let disks = ServedDisks::new(self.shared, self.worker, to_tell, self.counters);
        IoContext { disks, buffers: self.buffers, now: self.now }
    }

    /// Writes the appends whose answers the next bytes contain into the journal. Call it directly before the kernel
    /// gets the bytes: if this process is killed between the two, the next server takes the appends for answered.
    pub(super) fn tell(&self, to_tell: &RefCell<Vec<ToTell>>) {
        for told in to_tell.borrow_mut().drain(..) {
            if let Some(journal) = &self.shared.journals[told.disk as usize] {
                journal.record(self.worker as u16, told.sector, told.len_sectors);
            }
        }
    }
}
