//! How a disk and its queues are opened.

use crate::sched::{Balance, DeadlineConfig, Policy, Scheduler};
use crate::unit::Nanos;
use std::fmt;
use std::task::Waker;

/// Most tags of one queue.
pub const MAX_TAGS: u16 = 4096;

/// Most writes of a zone in flight.
pub(super) const MAX_ZONE_WRITES: u16 = 1024;

/// How writes are ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum Mode {
    /// Zone write plugging: above the tags, merged, recovered.
    #[default]
    Plug,
    /// Not at all: what a program that sends writes as they come gets, and what a stacked device that
    /// needs no order uses.
    None,
    /// Zone write locking: a scheduler that takes a lock on the zone when it sends a write; requests wait in it with a
    /// tag. What Linux did before plugging, for comparison.
    Lock,
}

impl Mode {
    /// Every mode.
    pub const ALL: [Mode; 3] = [Mode::Plug, Mode::None, Mode::Lock];
    /// The name of each.
    pub const NAMES: [&'static str; 3] = [Mode::Plug.name(), Mode::None.name(), Mode::Lock.name()];

    /// The name that specifications and tables use.
    pub const fn name(self) -> &'static str {
        match self {
            Mode::Plug => "plug",
            Mode::None => "none",
            Mode::Lock => "lock",
        }
    }

    /// The mode of that name.
    pub fn from_name(name: &str) -> Option<Mode> {
        Mode::ALL.into_iter().find(|m| m.name() == name)
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What finds the write pointer of a zone again when a write has failed with an unknown outcome.
///
/// ```
/// use zoneplug_core::disk::ZoneRecovery;
/// assert_eq!(ZoneRecovery::from_name("auto"), Some(ZoneRecovery::Auto));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ZoneRecovery {
    /// The layer reports the zone by itself, and it goes on from there.
    Auto,
    /// The client does, with a report, a reset or a finish. Until then the zone is stale.
    Client,
}

impl ZoneRecovery {
    /// Both.
    pub const ALL: [ZoneRecovery; 2] = [ZoneRecovery::Auto, ZoneRecovery::Client];
    /// The name of each.
    pub const NAMES: [&'static str; 2] = [ZoneRecovery::Auto.name(), ZoneRecovery::Client.name()];

    /// The name that specifications and attributes use.
    pub const fn name(self) -> &'static str {
        match self {
            ZoneRecovery::Auto => "auto",
            ZoneRecovery::Client => "client",
        }
    }

    /// The one of that name.
    pub fn from_name(name: &str) -> Option<ZoneRecovery> {
        ZoneRecovery::ALL.into_iter().find(|r| r.name() == name)
    }
}

/// How a disk is opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskConfig {
    /// Ordering.
    pub mode: Mode,
    /// One BIO for each command.
    pub nomerges: bool,
    /// Emulate zone append even where the device has it.
    pub emulate_append: bool,
    /// Reset and finish fail with *zone busy* while writes of the zone are in flight, so that one client cannot
    /// abort another's.
    pub strict_management: bool,
    /// Count per zone too: [`Disk::zone_counters`](super::Disk::zone_counters).
    pub zone_counters: bool,
    /// One write to sequential zones at a time on the whole disk, zone after zone. `None`: on rotational devices.
    /// Only with plugs.
    pub zoned_qd1_writes: Option<bool>,
    /// Which zone the single writer goes to next.
    pub zoned_qd1_policy: Policy,
    /// How long the single writer waits for the next write of the zone it has just written, while others wait.
    pub anticipation: Nanos,
    /// How long a zone waits for the single writer before it is next, whatever the policy says, and before the zone that
    /// has its turn must give way, once what waited there when the turn began is written. 0: for ever.
    pub zone_deadline: Nanos,
    /// Most writes of a sequential zone at the device at a time, on one queue and in order. More than 1 only with plugs, on
    /// a device that declares [`Limits::keeps_write_order`](crate::zone::Limits), without a single writer, and with a
    /// scheduler that [`keeps_zone_order`](Scheduler::keeps_zone_order). Then a write that fails is tried again where that
    /// is safe: see `docs/scheduling.md`.
    pub zone_write_depth: u16,
    /// What finds a zone's write pointer again after a write has failed with an unknown outcome, where one write of a zone
    /// is in flight. `None`: the layer where it emulates appends, otherwise the client. Only with plugs.
    pub zone_recovery: Option<ZoneRecovery>,
    /// The scheduler that decides which request gets a tag first. In `lock` mode it is `mq-deadline` if none is named,
    /// since only a scheduler locks zones.
    pub scheduler: Scheduler,
    /// How `mq-deadline` behaves.
    pub deadline: DeadlineConfig,
    /// Where a scheduler is on: most commands at the device, whatever the queues' tags add up to. 0: no other limit.
    pub queue_depth: u32,
    /// Where a scheduler is on: how time is shared while both reads and writes wait. `None`: as the scheduler does it.
    pub read_write_balance: Option<Balance>,
    /// How long a command may take. One that is not back by then ends with [`Status::Timeout`](crate::Status::Timeout),
    /// its outcome unknown; see [`Bio::late`](crate::Bio::late) for what becomes of its memory. `None`: for ever.
    pub timeout: Option<Nanos>,
    /// If a queue of the device panics, the panic does not reach the thread that polls. All commands that the queue
    /// had, and all that are sent to it later, end with [`Status::NoDevice`](crate::Status::NoDevice). Memory of those
    /// that it had: as with a timeout, and never free again. Costs a note of each command.
    pub survive_panics: bool,
    /// Shards of plugs; rounded to a power of two, at most 64.
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
    /// Most commands that it has at the device. Parked BIOs hold none.
    pub tags: u16,
    /// Woken by the device after [`DiskQueue::arm`](super::DiskQueue::arm).
    pub waker: Waker,
}

impl Default for QueueConfig {
    fn default() -> Self {
        QueueConfig { depth: 128, tags: 32, waker: Waker::noop().clone() }
    }
}
