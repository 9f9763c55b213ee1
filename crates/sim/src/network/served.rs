//! The target's side of a connection.

use super::disks::QueueClient;
use std::net::SocketAddr;
use zoneplug_core::Nanos;
use zoneplug_nvme::association;
use zoneplug_nvme::target::QueueId;
use zoneplug_nvme::target::auth::Job;
use zoneplug_nvme::tcp::{Config, Ended};

pub(super) type Association = association::Association<QueueClient>;

/// The target's side of a connection.
#[derive(Debug)]
pub(super) struct Served {
    pub(super) association: Association,
    pub(super) side: Side,
}

/// The world's record of an association.
#[derive(Debug)]
pub(super) struct Side {
    pub(super) tags: u16,
    /// The queue for which the association gets events of the target.
    pub(super) carries: Option<QueueId>,
    /// A value that the association waits for, and when it is there.
    pub(super) computing: Option<(Nanos, Job)>,
    /// Why the connection takes no more commands. `None`: the world knows it, or it takes commands.
    pub(super) ended: Option<Ended>,
    /// The number of held writes of the disk before the association gave up its queue.
    pub(super) held: u64,
}

impl Served {
    pub(super) fn new(config: Config, tags: u16, now: Nanos) -> Served {
        let local = SocketAddr::from(([127, 0, 0, 1], 4420));
        let association = Association::new(config, local, now);
        let side = Side { tags, carries: None, computing: None, ended: None, held: 0 };
        Served { association, side }
    }

    /// Returns the times at which it has something to do.
    pub(super) fn moments(&self) -> impl Iterator<Item = Nanos> {
        let computed = self.side.computing.as_ref().map(|(at, _)| *at);
        computed.into_iter().chain(self.association.next_deadline())
    }
}
