//! Opening a disk and its queues.

use super::bell::Bell;
use super::config::{self, DiskConfig, QueueConfig};
use super::dispatch::single_writer;
use super::events::EventLog;
use super::guard::inflight::{GuardedQueue, Losses};
use super::guard::late::LateTable;
use super::guard::late_commands::LateCommands;
use super::guard::resets::Resets;
use super::handle::Disk;
use super::mailbox::Counts;
use super::order_window::NOTHING_DUE;
use super::queue::DiskQueue;
use super::shared::{DRAIN_LIMIT, MAX_SHARDS, Shared};
use super::snapshot::Layout;
use crate::device::{Device, FuaQueue, MappedQueue, Queue};
use crate::error::Error;
use crate::sync::{AtomicBool, AtomicU32, AtomicU64, Mutex, Ordering, Padded, lock};
use crate::unit::Nanos;
use crate::zone::Limits;
use std::sync::Arc;
use std::task::Waker;

impl Disk {
    /// Opens `device` as a disk: reads its zones and makes their plugs (V1-V4).
    ///
    /// `clock` returns the time while the first report is in flight. Its argument is the next moment at which
    /// something can happen, if that is known; a virtual clock returns that moment.
    ///
    /// Fails if the device's limits or `config` are invalid or contradict each other, if the device opens no queue,
    /// or if its report fails or does not describe a zoned disk.
    pub fn open(
        device: Arc<dyn Device>,
        config: DiskConfig,
        clock: &mut dyn FnMut(Option<Nanos>) -> Nanos,
    ) -> Result<Disk, Error> {
        let geometry = *device.geometry();
        let limits = device.limits().clone();
        limits.check()?;
        config.check(&limits)?;
        let shard_bits = (MAX_SHARDS as u32)
            .min(geometry.nr_zones().next_power_of_two())
            .min(config.shards.max(1).next_power_of_two())
            .trailing_zeros();
        let spindles = device.spindles();
        let single_writers = single_writer::per_spindle(&geometry, &spindles);
        let layout = Layout::new(geometry, limits, config, Arc::default());
        let events = Arc::<EventLog>::default();
        let disk = Disk {
            shared: Arc::new(Shared {
                timed: AtomicBool::new(layout.timed || device.is_timed()),
                device,
                state: Padded(AtomicU32::new(0)),
                layout: Mutex::new(Arc::new(layout)),
                shards: (0..1usize << shard_bits).map(|_| Padded::default()).collect(),
                shard_bits,
                queues: Arc::default(),
                depths: AtomicU64::new(0),
                epoch: AtomicU32::new(0),
                orphans: Mutex::default(),
                past: Counts::default(),
                late: Arc::new(LateTable::new(events.clone())),
                events,
                resets: Resets::default(),
                order_window: Mutex::default(),
                window_due: AtomicU64::new(NOTHING_DUE),
                append_used: AtomicBool::new(false),
                single_writers,
                spindles,
                changes: Mutex::default(),
                drain_limit: AtomicU64::new(DRAIN_LIMIT.0),
                elevator: Padded::default(),
            }),
        };
        disk.shared.note(&disk.layout());
        let mut queue =
            disk.open_queue(QueueConfig { depth: 1, tags: 1, ..QueueConfig::default() })?;
        let mut revalidation = disk.revalidate();
        let mut now = clock(None);
        loop {
            if let Some(result) = revalidation.poll(&mut queue, now) {
                result?;
                break;
            }
            now = clock(queue.next_deadline());
        }
        disk.shared.events.clear();
        Ok(disk)
    }

    /// Opens a queue. Fails if depth or tags are out of range (*invalid*), or with the device's error if it opens no
    /// queue.
    pub fn open_queue(&self, config: QueueConfig) -> Result<DiskQueue, Error> {
        if config.depth == 0 || config.tags == 0 || config.tags > config::MAX_TAGS {
            return Err(Error::invalid(format!(
                "a queue of depth {} with {} tags",
                config.depth, config.tags
            ))
            .hint(format!("depth is at least 1, tags are 1 to {}", config::MAX_TAGS)));
        }
        // One more place for the disk's own reports, so that nothing a freeze waits for needs a tag (I9).
        let places = config.tags + 1;
        let bell = Bell::new(config.waker.clone(), self.shared.queues.clone());
        let waker = Waker::from(bell.clone());
        let settings = self.config();
        let device = &self.shared.device;
        let limits = device.limits();
        let (lower, watched) = if settings.timeout.is_some() || settings.survive_panics {
            // The notes must describe commands as the disk sends them, so an address map may only be below them.
            let device = open_below(&**device, limits, places, waker)?;
            let losses = Arc::new(Losses::default());
            let (timeout, tickets) = (settings.timeout, self.shared.late.clone());
            let guarded = GuardedQueue::new(device, timeout, places, losses.clone(), tickets);
            (MappedQueue::from(Box::new(guarded) as Box<dyn Queue>), Some(losses))
        } else if limits.fua {
            (device.open_mapped_queue(places, waker)?, None)
        } else {
            (open_below(&**device, limits, places, waker)?.into(), None)
        };
        let depth = u64::from(config.depth);
        let depths = self.shared.depths.fetch_add(depth, Ordering::Relaxed) + depth;
        for s in &self.shared.shards {
            lock(&s.0).reserve(depths as usize);
        }
        if self.layout().scheduled {
            lock(&self.shared.elevator.0).reserve(self.shared.usual_waiting());
        }
        let mut queue = DiskQueue::new(self.shared.clone(), lower, &config);
        queue.state.late_commands =
            LateCommands::new(watched, u32::from(places), self.shared.late.clone());
        queue.state.bell = Some(bell);
        Ok(queue)
    }

    /// Opens a queue whose waker does nothing, for owners that poll. Fails as [`Disk::open_queue`] does.
    pub fn open_polled_queue(&self, depth: u32, tags: u16) -> Result<DiskQueue, Error> {
        self.open_queue(QueueConfig { depth, tags, waker: Waker::noop().clone() })
    }
}

/// Opens a queue of the device, with a place more and a [`FuaQueue`] on it if the device has no FUA.
fn open_below(
    device: &dyn Device,
    limits: &Limits,
    places: u16,
    waker: Waker,
) -> Result<Box<dyn Queue>, Error> {
    if limits.fua {
        return device.open_queue(places, waker);
    }
    let below = device.open_queue(places + 1, waker)?;
    Ok(Box::new(FuaQueue::new(below, places, limits.write_cache)))
}
