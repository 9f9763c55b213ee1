//! What a worker lends its connections for a call.

use super::calls::Calls;
use super::io_queue::{ClosingQueue, ServedDisks};
use super::{Shared, sys};
use crate::served::Counters;
use zoneplug_buf::AlignedBuf;
use zoneplug_core::Nanos;
use zoneplug_nvme::io_queue::IoContext;
use zoneplug_nvme::tcp::Buffers;

/// What a connection is called with.
pub(super) struct WorkerContext<'a> {
    pub(super) shared: &'a Shared,
    pub(super) worker: usize,
    pub(super) epoll: &'a sys::Epoll,
    pub(super) buffers: &'a mut Buffers,
    /// Queues of this worker whose connections have ended.
    pub(super) closing: &'a mut Vec<ClosingQueue>,
    pub(super) counters: &'a [Counters],
    pub(super) calls: &'a Calls,
    /// The server ends.
    pub(super) stops: bool,
    pub(super) now: Nanos,
}

impl WorkerContext<'_> {
    pub(super) fn io(&mut self) -> IoContext<'_, ServedDisks<'_>> {
        let disks = ServedDisks {
            disks: &self.shared.disks,
            fills_buffers: &self.shared.fills_buffers,
            recovery: &self.shared.recovery,
            counters: self.counters,
        };
        IoContext { disks, buffers: self.buffers, now: self.now }
    }

    pub(super) fn buffers_put(&mut self, buf: Option<AlignedBuf>) {
        buf.into_iter().for_each(|buf| self.buffers.put(buf));
    }
}
