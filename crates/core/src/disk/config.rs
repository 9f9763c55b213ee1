//! How a disk and its queues are opened.

use crate::sched::{Balance, DeadlineConfig, Policy, Scheduler};
use crate::unit::Nanos;
use std::fmt;
use std::task::Waker;

/// Most tags of one queue.
pub const MAX_TAGS: u16 = 4096;

/// Most writes of a zone in flight at a time.
pub(super) const MAX_ZONE_WRITES: u16 = 1024;

/// How writes are ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum Mode {
    /// Zone write plugging: above the tags, merged, recovered.
    #[default]
    Plug,
    /// No ordering: the device gets writes as they come. For comparison, and for stacked devices that need no order.
    None,
    /// Zone write locking, which Linux had before plugging, for comparison. A scheduler locks a zone when it sends a
    /// write to it, and requests that wait for the lock hold a tag.
    Lock,
}

impl Mode {
    /// All modes.
    pub const ALL: [Mode; 3] = [Mode::Plug, Mode::None, Mode::Lock];
    /// The names of all modes.
    pub const NAMES: [&'static str; 3] = [Mode::Plug.name(), Mode::None.name(), Mode::Lock.name()];

    /// The name that specifications and tables use.
    pub const fn name(self) -> &'static str {
        match self {
            Mode::Plug => "plug",
            Mode::None => "none",
            Mode::Lock => "lock",
        }
    }

    /// The mode with this name.
    pub fn from_name(name: &str) -> Option<Mode> {
        Mode::ALL.into_iter().find(|m| m.name() == name)
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Which side finds the write pointer of a zone after a write has failed with an unknown outcome.
///
/// ```
/// use zoneplug_core::disk::ZoneRecovery;
/// assert_eq!(ZoneRecovery::from_name("auto"), Some(ZoneRecovery::Auto));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ZoneRecovery {
    /// The layer: it reports the zone by itself, and the zone goes on from there.
    Auto,
    /// The client: the zone is stale until the client sends a report, a reset or a finish.
    Client,
}

impl ZoneRecovery {
    /// Both values.
    pub const ALL: [ZoneRecovery; 2] = [ZoneRecovery::Auto, ZoneRecovery::Client];
    /// The names of both values.
    pub const NAMES: [&'static str; 2] = [ZoneRecovery::Auto.name(), ZoneRecovery::Client.name()];

    /// The name that specifications and attributes use.
    pub const fn name(self) -> &'static str {
        match self {
            ZoneRecovery::Auto => "auto",
            ZoneRecovery::Client => "client",
        }
    }

    /// The value with this name.
    pub fn from_name(name: &str) -> Option<ZoneRecovery> {
        ZoneRecovery::ALL.into_iter().find(|r| r.name() == name)
    }
}

/// How a disk is opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskConfig {
    /// How writes are ordered.
    pub mode: Mode,
    /// Send one BIO in each command.
    pub nomerges: bool,
    /// Emulate zone append even where the device has it.
    pub emulate_append: bool,
    /// Let a reset and a finish fail with *zone busy* while writes of the zone are in flight, so that one client
    /// cannot abort the writes of another.
    pub strict_management: bool,
    /// Also keep counters for each zone: [`Disk::zone_counters`](super::Disk::zone_counters). Every write then takes
    /// a lock.
    pub zone_counters: bool,
    /// The single writer: one write to sequential zones at a time for each spindle, zone after zone. `None`: on
    /// rotational devices only. Only with plugs.
    pub zoned_qd1_writes: Option<bool>,
    /// Which zone the single writer writes next.
    pub zoned_qd1_policy: Policy,
    /// How long the single writer waits for the next write of the zone that it has just written, while other zones
    /// wait.
    pub anticipation: Nanos,
    /// The time after which a waiting zone is next for the single writer, whatever the policy says. The zone that has
    /// its turn then gives way as soon as it has written the data that waited there when its turn began. 0: never.
    pub zone_deadline: Nanos,
    /// How many writes of a sequential zone may be at the device at a time, on one queue and in order. More than 1
    /// needs plugs, a device that declares [`Limits::keeps_write_order`](crate::zone::Limits), no single writer, and
    /// a scheduler that [`keeps_zone_order`](Scheduler::keeps_zone_order). A write that fails is then tried again
    /// where that is safe: see `docs/scheduling.md`.
    pub zone_write_depth: u16,
    /// Which side finds a zone's write pointer after a write has failed with an unknown outcome, on disks with one
    /// write of a zone in flight. `None`: the layer if it emulates appends, otherwise the client. Only with plugs.
    pub zone_recovery: Option<ZoneRecovery>,
    /// How long a write to a sequential zone that starts past the write pointer is held, until the gap before it fills.
    /// Then it is refused. 0: it is refused at once. Only with plugs: see `docs/scheduling.md`.
    pub order_window: Nanos,
    /// The scheduler that decides which request gets a tag first. In `lock` mode `none` becomes `mq-deadline`,
    /// because only a scheduler locks zones.
    pub scheduler: Scheduler,
    /// The attributes of `mq-deadline`.
    pub deadline: DeadlineConfig,
    /// The most commands at the device with a scheduler, whatever the queues' tags add up to. 0: no limit besides the
    /// tags.
    pub queue_depth: u32,
    /// The shares of time with a scheduler while both reads and writes wait. `None`: as the scheduler decides.
    pub read_write_balance: Option<Balance>,
    /// The time limit of a command. A command that is not back by then ends with
    /// [`Status::Timeout`](crate::Status::Timeout), and its outcome is unknown; [`Bio::late`](crate::Bio::late)
    /// describes the fate of its memory. `None`: no limit.
    pub timeout: Option<Nanos>,
    /// Survive a panic in a queue of the device: the panic does not reach the thread that polls. All commands that
    /// the queue had, and all that are sent to it later, end with [`Status::NoDevice`](crate::Status::NoDevice). The
    /// memory of those that it had is late for ever. The disk keeps a note of each command for this.
    pub survive_panics: bool,
    /// Number of shards that the plugs are divided into, rounded up to a power of two; at most 64.
    pub shards: u32,
}

impl Default for DiskConfig {
    fn default() -> Self {
        DiskConfig {
            mode: Mode::Plug,
            nomerges: false,
            emulate_append: false,
            strict_management: false,
            zone_counters: false,
            scheduler: Scheduler::None,
            deadline: DeadlineConfig::default(),
            queue_depth: 0,
            read_write_balance: None,
            zoned_qd1_writes: None,
            zoned_qd1_policy: Policy::Fifo,
            anticipation: Nanos(0),
            zone_deadline: Nanos(0),
            zone_write_depth: 1,
            zone_recovery: None,
            order_window: Nanos(0),
            timeout: None,
            survive_panics: false,
            shards: 64,
        }
    }
}

/// How a queue is opened.
#[derive(Debug, Clone)]
pub struct QueueConfig {
    /// Most BIOs that the queue holds, parked ones included.
    pub depth: u32,
    /// Most commands that the queue has at the device. Parked BIOs need none.
    pub tags: u16,
    /// Woken by the device after [`DiskQueue::arm`](super::DiskQueue::arm).
    pub waker: Waker,
}

impl Default for QueueConfig {
    fn default() -> Self {
        QueueConfig { depth: 128, tags: 32, waker: Waker::noop().clone() }
    }
}
