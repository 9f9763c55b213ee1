//! The order in which requests are sent: the single writer of SMR disks with its policies, and the I/O schedulers.
//!
//! Everything here but `writer_cell.rs` is a plain `&mut` state machine: it is given the time and returns the next request
//! or zone. `disk` takes the locks around these machines, and calls them (`disk/dispatch/single_writer.rs`,
//! `disk/dispatch/scheduler.rs`). Nothing here calls a device, reads a clock, or knows queues and tags. The plugs
//! guarantee that every order is safe, because a scheduler sees at most one write of each sequential zone. A
//! scheduler decides only when it is sent.
//!
//! | file | state |
//! | --- | --- |
//! | `writer.rs` | the single writer: which zones wait, which zone has the turn |
//! | `writer_cell.rs` | its lock, and the word of turns that need no lock |
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
pub(crate) mod writer_cell;

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
    /// No scheduler: requests get the tags of their queue in the order of arrival.
    #[default]
    None,
    /// `mq-deadline`: in the order of sectors, in batches, with deadlines and priorities.
    MqDeadline,
    /// Any order, from a seed, for tests.
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

    /// Returns whether the scheduler sends the writes of a zone in the order in which they came, and each on the
    /// queue that it came from. A disk with several writes of a zone in flight needs this. The other schedulers hand
    /// a request to the queue that asks first.
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
