//! The order in which requests are sent: the single writer of SMR disks with its policies, and the I/O schedulers.
//!
//! Everything here is a plain `&mut` state machine that is given the time and returns what is next. `disk` owns the
//! locks around them and calls them (`disk/dispatch/single_writer.rs`, `disk/dispatch/scheduler.rs`); nothing here calls a device, reads a
//! clock or knows of queues and tags. That any answer is safe, and only its timing matters, is what the plugs above
//! guarantee: the scheduler sees at most one write of each sequential zone.
//!
//! | file | state |
//! | --- | --- |
//! | `writer.rs` | the single writer: which zones wait, which zone has the turn |
//! | `policy/` | which zone is next: plain functions over a view |
//! | `elevator.rs` | a scheduler's requests: which wait, how many are at the device, zone locks |
//! | `table.rs` | the requests, by number |
//! | `deadline.rs`, `shuffle.rs` | which of them is next |

mod deadline;
pub(crate) mod elevator;
pub mod policy;
mod shuffle;
pub(crate) mod table;
pub(crate) mod writer;

pub use deadline::DeadlineConfig;
pub use elevator::Balance;
pub use policy::Policy;
pub use writer::WriterCounters;

use std::fmt;

/// An I/O scheduler by name.
///
/// ```
/// use zoneplug_core::sched::Scheduler;
/// assert_eq!(Scheduler::from_name("mq-deadline"), Some(Scheduler::MqDeadline));
/// assert_eq!(Scheduler::default().to_string(), "none");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum Scheduler {
    /// What waits for a tag of its queue gets one in the order in which it came.
    #[default]
    None,
    /// In the order of sectors, in batches, with deadlines and priorities.
    MqDeadline,
    /// Any order, from a seed: for tests.
    Shuffle(u64),
}

impl Scheduler {
    /// The names.
    pub const NAMES: [&str; 3] = ["none", "mq-deadline", "shuffle"];

    /// The scheduler of that name.
    pub fn from_name(name: &str) -> Option<Scheduler> {
        match name {
            "none" => Some(Scheduler::None),
            "mq-deadline" => Some(Scheduler::MqDeadline),
            "shuffle" => Some(Scheduler::Shuffle(0)),
            _ => None,
        }
    }

    /// Whether it sends the writes of one zone in the order in which they came, each on the queue that it came from, however
    /// many it has: what a disk with several writes of a zone in flight needs. The others hand a request to whichever queue
    /// asks first.
    pub const fn keeps_zone_order(self) -> bool {
        matches!(self, Scheduler::None)
    }

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Scheduler::None => "none",
            Scheduler::MqDeadline => "mq-deadline",
            Scheduler::Shuffle(_) => "shuffle",
        }
    }
}

impl fmt::Display for Scheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests;
