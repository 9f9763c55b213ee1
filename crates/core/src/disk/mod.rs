//! A disk: a device with plugs above it, and the queues through which clients use it.
//!
//! The only room of core with synchronisation. A [`Disk`] is a handle that is cloned freely. A [`DiskQueue`] is
//! used by one owner at a time; it holds its own queue of the device, and whoever polls it does the work:
//! completes what the device finished, sends the next parked writes at once, delivers BIOs to their owners.
//!
//! Opened like this a disk is *Driven*: somebody polls every queue that has work. `zoneplug-host` adds the threads
//! that make a disk *Hosted*.

mod attributes;
mod config;
mod counters;
mod dispatch;
mod freeze;
mod guard;
mod mailbox;
mod manage;
mod orphans;
mod queue;
mod recovery;
mod revalidate;
mod snapshot;
mod trace;

pub use crate::bio::Late;
pub use attributes::{
    ATTRIBUTES, Attribute, AttributeChange, AttributeInfo, Change, TAGS, find_attribute,
};
pub use config::{DiskConfig, MAX_TAGS, Mode, QueueConfig, ZoneRecovery};
pub use counters::DiskCounters;
pub use dispatch::single_writer::WriterState;
pub use freeze::Freeze;
pub use queue::DiskQueue;
pub use revalidate::Revalidation;

use crate::device::{Device, MappedQueue, Queue};
use crate::disk::guard::outlook::Outlook;
use crate::error::{Error, ErrorKind};
use crate::plug::Shard;
use crate::sched::elevator::Elevator;
use crate::sched::writer::Gate;
use crate::sync::{AtomicBool, AtomicU32, AtomicU64, Mutex, Ordering, Padded, lock};
use crate::unit::{Nanos, ZoneNo};
use crate::zone::{Geometry, Limits, Spindles, ZoneInfo, ZoneType};
use mailbox::Counts;
use snapshot::Layout;
use std::sync::Arc;
use std::task::Waker;

/// Most shards of a disk.
pub(crate) const MAX_SHARDS: usize = 64;

/// `state`: how many freezes hold the disk.
const FREEZES: u32 = 0xff;
/// `state`: queues that were dropped with work in flight wait for somebody to poll them.
const ORPHANS: u32 = 0x100;
/// `state`: the version of layout, freezes and queues counts up from here.
const VERSION: u32 = 0x200;

/// What all queues of a disk share.
pub(crate) struct Shared {
    pub(crate) device: Arc<dyn Device>,
    /// One word that every submit and poll compares with what it saw last: see the constants above.
    pub(crate) state: Padded<AtomicU32>,
    pub(crate) layout: Mutex<Arc<Layout>>,
    pub(crate) shards: Box<[Padded<Mutex<Shard>>]>,
    shard_bits: u32,
    pub(crate) queues: Arc<orphans::Queues>,
    /// Sum of the depths of all open queues; its maximum is the size of the slot tables.
    depths: AtomicU64,
    /// Counts lost write pointers and resyncs (E6).
    pub(crate) epoch: AtomicU32,
    pub(crate) orphans: Mutex<Vec<DiskQueue>>,
    /// The counts of queues that have closed.
    pub(crate) past: Counts,
    /// Commands that were given up and are still at the device.
    pub(crate) late: Arc<guard::late::LateTable>,
    /// Resets and finishes that are not over.
    pub(crate) resets: guard::resets::Resets,
    /// A native append has been used since the last reset of all zones (A8).
    pub(crate) append_used: AtomicBool,
    /// Whether the device or the layer looks at the time.
    pub(crate) timed: AtomicBool,
    /// The single writer of each spindle. Taken before a shard's lock, never after it, and never two.
    pub(crate) gates: Box<[Padded<Mutex<Gate>>]>,
    /// Which of them is a zone's. As the device said when the disk was opened.
    pub(crate) spindles: Spindles,
    /// What waits where a scheduler is on. No other lock is taken under it.
    pub(crate) elevator: Padded<Mutex<Elevator>>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("shards", &self.shards.len()).finish_non_exhaustive()
    }
}

impl Shared {
    /// The shard of a zone and its index there. A bijection: `1 << shard_bits` zones in a row go to as many shards,
    /// in an order that differs from row to row, so that evenly spaced zones do not meet in one.
    #[inline]
    pub(crate) fn place(&self, zone: ZoneNo) -> (usize, usize) {
        let row = zone.0 >> self.shard_bits;
        let mix = (row.wrapping_mul(0x9e37_79b1)) >> 16;
        // There are `1 << shard_bits` shards, and the compiler sees that the index is in range.
        let mask = self.shards.len() - 1;
        ((zone.0 ^ mix) as usize & mask, row as usize)
    }

    /// The shard of a zone, locked, and the zone's index in it.
    #[inline]
    pub(crate) fn shard(&self, zone: ZoneNo) -> (crate::sync::MutexGuard<'_, Shard>, usize) {
        let (s, i) = self.place(zone);
        (lock(&self.shards[s].0), i)
    }

    /// Wakes every queue that sleeps.
    pub(crate) fn wake_all(&self) {
        orphans::wake_all(&self.queues);
    }

    /// The layout that holds from now on is this: notes what others go by than who has a copy of it.
    pub(crate) fn note(&self, layout: &Layout) {
        // Once it has looked at the time it goes on: what it remembers is compared with what comes.
        if layout.timed || self.device.is_timed() {
            self.timed.store(true, Ordering::Relaxed);
        }
        self.configure_elevator(layout);
        for s in &self.shards {
            lock(&s.0).keep_tracks(layout.zone_depth > 1);
        }
    }

    pub(crate) fn bump(&self) {
        self.state.0.fetch_add(VERSION, Ordering::AcqRel);
    }

    /// New plugs for all zones, as `zones` describes them.
    pub(crate) fn rebuild_plugs(
        &self,
        zones: &[ZoneInfo],
        per_zone: bool,
        aborted: &mut Vec<Box<crate::Bio>>,
    ) {
        let depths = self.depths.load(Ordering::Relaxed) as usize;
        self.gates.iter().for_each(|gate| lock(&gate.0).clear());
        for s in &self.shards {
            let mut g = lock(&s.0);
            g.abort_all(aborted);
            g.plugs.clear();
            g.forget_tracks();
            g.reserve(depths);
        }
        // In the order of zone numbers each zone is the next of its shard: rows ascend.
        for (z, info) in zones.iter().enumerate() {
            let (mut g, i) = self.shard(ZoneNo(z as u32));
            debug_assert_eq!(i, g.plugs.len());
            g.plugs.push(crate::plug::Plug::new(info));
            if per_zone && g.per_zone.len() <= i {
                g.per_zone.push(crate::plug::ZoneCounters::default());
            }
        }
    }
}

/// A disk. Clones are the same disk.
///
/// ```
/// use zoneplug_core::disk::{Disk, DiskConfig, QueueConfig};
/// use zoneplug_core::{Bio, Bios, Nanos, Op, Sector};
/// use zoneplug_devices::{emu::{EmuConfig, EmuDisk}, spec::Spec};
///
/// let config = EmuConfig::from_spec(&mut Spec::parse("null,zones=4,zone-size=1M").unwrap()).unwrap();
/// let device = EmuDisk::new(config).unwrap();
/// let disk = Disk::open(device, DiskConfig::default(), &mut |_| Nanos(0)).unwrap();
/// let mut queue = disk.open_queue(QueueConfig::default()).unwrap();
///
/// let mut list = Bios::from([Bio::new(Op::WriteZeroes, Sector(0), 8)]);
/// assert_eq!(queue.submit(Nanos(0), &mut list), 1);
/// let mut done = Bios::new();
/// queue.poll(Nanos(0), &mut done);
/// assert!(done[0].status.is_ok());
/// ```
#[derive(Debug, Clone)]
pub struct Disk {
    pub(crate) shared: Arc<Shared>,
}

impl Disk {
    /// Opens `device` as a disk: reads its zones and makes their plugs (V1-V4).
    ///
    /// `clock` is asked for the time while the first report is under way; its argument is the next moment at which
    /// something can happen, if that is known: virtual time returns it.
    pub fn open(
        device: Arc<dyn Device>,
        config: DiskConfig,
        clock: &mut dyn FnMut(Option<Nanos>) -> Nanos,
    ) -> Result<Disk, Error> {
        let geometry = *device.geometry();
        let limits = device.limits().clone();
        check_limits(&limits)?;
        config.check(&limits)?;
        let shard_bits = (MAX_SHARDS as u32)
            .min(geometry.nr_zones().next_power_of_two())
            .min(config.shards.max(1).next_power_of_two())
            .trailing_zeros();
        let spindles = device.spindles();
        let gates = dispatch::single_writer::gates(&geometry, &spindles);
        let layout = Layout::new(geometry, limits, config);
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
                late: Arc::default(),
                resets: guard::resets::Resets::default(),
                append_used: AtomicBool::new(false),
                gates,
                spindles,
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
        Ok(disk)
    }

    /// A new queue.
    pub fn open_queue(&self, config: QueueConfig) -> Result<DiskQueue, Error> {
        if config.depth == 0 || config.tags == 0 || config.tags > config::MAX_TAGS {
            return Err(Error::invalid(format!(
                "a queue of depth {} with {} tags",
                config.depth, config.tags
            ))
            .hint(format!("depth is at least 1, tags are 1 to {}", config::MAX_TAGS)));
        }
        // One more for the disk's own reports: nothing that a freeze waits for needs a tag (I9).
        let places = config.tags + 1;
        let bell = orphans::Bell::new(config.waker.clone(), self.shared.queues.clone());
        let waker = Waker::from(bell.clone());
        let settings = self.config();
        let (lower, watched) = if settings.timeout.is_some() || settings.survive_panics {
            // The notes are of commands as the disk sends them.
            let device = self.shared.device.open_queue(places, waker)?;
            let toll = Arc::new(guard::inflight::Toll::default());
            let (timeout, tickets) = (settings.timeout, self.shared.late.clone());
            let watch = guard::inflight::Watch::new(device, timeout, places, toll.clone(), tickets);
            (MappedQueue::from(Box::new(watch) as Box<dyn Queue>), Some(toll))
        } else {
            (self.shared.device.open_mapped_queue(places, waker)?, None)
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
        queue.lane.outlook = Outlook::new(watched, u32::from(places), self.shared.late.clone());
        queue.lane.bell = Some(bell);
        Ok(queue)
    }

    /// A queue whose waker does nothing: for owners that poll.
    pub fn open_polled_queue(&self, depth: u32, tags: u16) -> Result<DiskQueue, Error> {
        self.open_queue(QueueConfig { depth, tags, waker: Waker::noop().clone() })
    }

    /// The layout of zones.
    pub fn geometry(&self) -> Geometry {
        self.layout().geometry
    }

    /// The limits of the device below.
    pub fn limits(&self) -> Limits {
        self.layout().limits.clone()
    }

    /// How the disk was opened, with attributes as they are now.
    pub fn config(&self) -> DiskConfig {
        self.layout().config.clone()
    }

    /// Whether the device or the layer looks at the time that queues are given. A driver may pass an old time to a disk
    /// that does not. It changes with attributes.
    #[inline]
    pub fn is_timed(&self) -> bool {
        self.shared.timed.load(Ordering::Relaxed)
    }

    pub(crate) fn layout(&self) -> Arc<Layout> {
        lock(&self.shared.layout).clone()
    }

    /// What the layer knows of `zone` without asking the device (M10, M11): open and closed are both *active*.
    /// `Err` if the write pointer is unknown, or if native appends have made the cache unusable (A8).
    pub fn cached_zone(&self, zone: ZoneNo) -> Result<ZoneInfo, Error> {
        // Held: a revalidation that commits rebuilds the plugs.
        let layout = lock(&self.shared.layout);
        let g = &layout.geometry;
        if zone.0 >= g.nr_zones() {
            return Err(Error::invalid(format!("{zone} of a disk of {} zones", g.nr_zones())));
        }
        if !layout.plugs {
            return Err(Error::new(ErrorKind::NotSupported, "a disk without plugs caches nothing")
                .hint("send a report"));
        }
        if self.shared.append_used.load(Ordering::Relaxed) {
            return Err(Error::new(ErrorKind::NotSupported, "native appends were used")
                .hint("send a report, or reset all zones"));
        }
        let (shard, i) = self.shared.shard(zone);
        let plug = &shard.plugs[i];
        if plug.is_stale() {
            return Err(Error::new(ErrorKind::Busy, format!("{zone}: stale write pointer"))
                .hint("send a report of the zone"));
        }
        let start = g.zone_start(zone);
        let len = u64::from(g.zone_len_sectors(zone));
        use crate::zone::Condition as C;
        let cond = plug.condition();
        let wp = match cond {
            C::NotWp | C::ReadOnly | C::Offline => u64::MAX,
            C::Full => start.0 + len,
            _ => start.0 + u64::from(plug.write_pointer()),
        };
        Ok(ZoneInfo {
            start,
            len_sectors: len,
            capacity_sectors: u64::from(g.capacity_of(zone)),
            wp: crate::Sector(wp),
            zone_type: if cond == C::NotWp {
                ZoneType::Conventional
            } else {
                ZoneType::SeqWriteRequired
            },
            cond,
        })
    }
}

fn check_limits(l: &Limits) -> Result<(), Error> {
    let ok = l.logical_block_sectors.is_power_of_two()
        && l.write_granularity_sectors.is_power_of_two()
        && l.write_granularity_sectors >= l.logical_block_sectors;
    if !ok {
        return Err(Error::invalid(format!(
            "a device with blocks of {} sectors and a write granularity of {} sectors",
            l.logical_block_sectors, l.write_granularity_sectors
        ))
        .hint("both are powers of two, and the granularity is at least one block"));
    }
    if l.max_active_zones != 0 && l.max_open_zones > l.max_active_zones {
        return Err(Error::invalid(format!(
            "a device with {} open zones of {} active zones",
            l.max_open_zones, l.max_active_zones
        ))
        .hint("max_open_zones is at most max_active_zones"));
    }
    Ok(())
}
