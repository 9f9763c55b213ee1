//! A disk: a device with plugs above it, and the queues through which clients use it.
//!
//! Most locks and atomics of core are here. A [`Disk`] is a handle that is cloned freely. A
//! [`DiskQueue`] is used by one owner at a time, and holds its own queue of the device. Polling it does the work: it
//! completes what the device has finished, sends the next parked writes at once, and delivers BIOs to their owners.
//!
//! A disk opened through this module is *driven*: the program polls every queue that has work. `zoneplug-host` adds
//! the threads that make a disk *hosted*.

mod attributes;
mod bell;
mod census;
mod changes;
mod config;
mod counters;
mod dispatch;
mod events;
mod freeze;
mod guard;
mod handle;
mod inspect;
mod mailbox;
mod manage;
mod open;
mod order_window;
mod queue;
mod queue_state;
mod recovery;
mod revalidate;
mod shared;
mod snapshot;
mod state;
mod trace;
mod zone_states;

pub use crate::bio::Late;
pub use crate::plug::{Counters, Rejections, WindowCounters, ZoneCounters};
pub use attributes::{
    ATTRIBUTES, Attribute, AttributeChange, AttributeError, AttributeInfo, Change, TAGS,
    find_attribute,
};
pub use census::{Census, ConditionCount, ZoneWaiting};
pub use config::{DiskConfig, MAX_TAGS, Mode, QueueConfig, ZoneRecovery};
pub use counters::DiskCounters;
pub use events::{EVENTS_KEPT, Event, EventKind};
pub use freeze::Freeze;
pub use handle::Disk;
pub use inspect::WriterState;
pub use queue::{Armed, DiskQueue};
pub use revalidate::Revalidation;
pub use zone_states::ZoneState;
