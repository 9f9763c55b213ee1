//! What a worker lends its connections for a call.

use super::calls::Calls;
use super::io_queue::ServedDisks;
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
    pub(super) counters: &'a [Counters],
    pub(super) calls: &'a Calls,
    pub(super) now: Nanos,
}

impl WorkerContext<'_> {
    pub(super) fn io(&mut self) -> IoContext<'_, ServedDisks<'_>> {
        let disks = ServedDisks {
            disks: &self.shared.disks,
            fills_buffers: &self.shared.fills_buffers,
            counters: self.counters,
        };
        IoContext { disks, buffers: self.buffers, now: self.now }
    }

    pub(super) fn buffers_put(&mut self, buf: Option<AlignedBuf>) {
        buf.into_iter().for_each(|buf| self.buffers.put(buf));
    }
}
