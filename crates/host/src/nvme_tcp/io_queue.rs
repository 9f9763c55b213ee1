//! The disks of this server for the I/O queues of connections: a client of the hosted disk for each queue.

use super::{Disk, Shared, journal};
use crate::network::listeners::ConnectionSlot;
use crate::recovery::journal::Journal;
use crate::recovery::lost_writes::late_limit;
use crate::served::Counters;
use crate::served::timing::Timing;
use std::cell::RefCell;
use std::marker::PhantomData;
use std::sync::atomic::Ordering;
use zoneplug_core::zone::Geometry;
use zoneplug_core::{Nanos, Op, Sector};
use zoneplug_nvme::io_queue::{self, Disks};
use zoneplug_nvme::target::QueueId;
use zoneplug_nvme::target::io::IoRequest;
use zoneplug_recovery::{ClientKey, DiskRecovery};

pub(super) use crate::network::queue_client::{QueueClient, arm};

/// An I/O queue whose connection has ended. The queue keeps its memory, so it counts as a connection until its
/// commands have ended.
pub(super) struct ClosingQueue<T> {
    pub(super) queue: io_queue::ClosingQueue<QueueClient<T>>,
    pub(super) _slot: ConnectionSlot,
}

/// The disks for the queues of one thread.
pub(super) struct ServedDisks<'a, T> {
    shared: &'a Shared,
    /// The number of this thread.
    worker: usize,
    /// Appends whose answers are to be sent next, and that are not in the journal yet.
    to_tell: &'a RefCell<Vec<ToTell>>,
    /// The counters of this thread, for each disk.
    counters: &'a [Counters],
    timing: PhantomData<T>,
}

impl<'a, T> ServedDisks<'a, T> {
    pub(super) fn new(
        shared: &'a Shared,
        worker: usize,
        to_tell: &'a RefCell<Vec<ToTell>>,
        counters: &'a [Counters],
    ) -> Self {
        ServedDisks { shared, worker, to_tell, counters, timing: PhantomData }
    }

    fn journal(&self, disk: u32) -> Option<&Journal> {
        self.shared.journals[disk as usize].as_ref()
    }
}

impl<T: Timing> Disks for ServedDisks<'_, T> {
    type Client = QueueClient<T>;

    fn open(&self, disk: u32, entries: u32) -> Option<QueueClient<T>> {
        let Disk { disk: hosted, tags, .. } = self.shared.disks.get(disk as usize)?;
        let tags = tags.unwrap_or(entries.min(u32::from(u16::MAX)) as u16);
        let client = hosted.open_client(entries, tags).ok()?;
        let timing = T::of(self.shared.latencies[self.worker].get(disk as usize))?;
        Some(QueueClient::new(client, timing))
    }

    fn fills_buffers(&self, disk: u32) -> bool {
        self.shared.fills_buffers[disk as usize]
    }

    fn geometry(&self, disk: u32) -> Geometry {
        self.shared.disks[disk as usize].disk.geometry()
    }

    fn recovery(&self, disk: u32) -> &DiskRecovery {
        &self.shared.recovery[disk as usize]
    }

    fn owes(&self, disk: u32, host: ClientKey) -> bool {
        self.shared.disks[disk as usize].disk.owes(host.number())
    }

    fn late_limit(&self, disk: u32, at: Sector) -> Option<Nanos> {
        late_limit(&self.shared.disks[disk as usize].disk, at)
    }

    fn begins(&self, request: &IoRequest) {
        if let Some(journal) = self.journal(request.disk)
            && let Some(change) = journal::change(request)
        {
            journal.begin(&change);
        }
    }

    fn ended(&self, request: &IoRequest, ok: bool) {
        if let Some(journal) = self.journal(request.disk)
            && let Some(change) = journal::change(request)
        {
            journal.end(&change, ok);
        }
    }

    fn acknowledges(&self, append: &IoRequest) {
        if self.journal(append.disk).is_some() {
            let IoRequest { disk, sector, len_sectors, .. } = *append;
            self.to_tell.borrow_mut().push(ToTell { disk, sector, len_sectors });
        }
    }

    fn ask(&self, queues: &[QueueId]) {
        self.shared.ask(queues);
    }

    fn queries_answered(&self) {
        self.shared.ring();
    }

    fn refuses(&self, write: &IoRequest) {
        let n = write.disk as usize;
        let Disk { disk, spec, .. } = &self.shared.disks[n];
        let expired = disk.disk().window_counters().expired;
        if self.shared.expired[n].fetch_max(expired, Ordering::Relaxed) < expired {
            log_expired(spec, write.sector, disk.disk().config().order_window);
        }
    }

    fn count(&self, disk: u32, op: Op, bytes: u32, ok: bool) {
        if let Some(counters) = self.counters.get(disk as usize) {
            counters.count(op, bytes, ok);
        }
    }

    fn count_replayed(&self, disk: u32) {
        if let Some(counters) = self.counters.get(disk as usize) {
            counters.count_replayed();
        }
    }
}

/// Logs that a write was held in vain, with a hint.
#[cold]
fn log_expired(disk: &str, sector: Sector, window: Nanos) {
    let (sector, ms) = (sector.0, window.0 / 1_000_000);
    log::warn!(
        event = "held-in-vain", disk, sector;
        "{disk}: a write at sector {sector} was refused: the writes before it in its zone did not come within {ms} ms. \
         A longer order_window helps if they are late; on Linux 6.1 the scheduler mq-deadline, and nvme connect -Q 1024"
    );
}

/// An append whose answer is to be sent next.
#[derive(Debug, Clone, Copy)]
pub(super) struct ToTell {
    pub(super) disk: u32,
    pub(super) sector: Sector,
    pub(super) len_sectors: u32,
}
