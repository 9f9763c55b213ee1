//! Counters of system calls: each worker writes its own, others read their sum.

use std::sync::atomic::{AtomicU64, Ordering};

/// System calls of one worker. Only its thread writes them, so they need no locked operation. Aligned to two cache
/// lines, because processors fetch lines in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Calls {
    pub(crate) waits: Count,
    pub(crate) receives: Count,
    pub(crate) sends: Count,
}

/// System calls of a server. Accepting and closing connections is left out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NetworkCalls {
    /// Waits for descriptors: epoll_wait(2).
    pub waits: u64,
    /// Reads of sockets, also those that found nothing.
    pub receives: u64,
    /// Calls of sendmsg(2), also those that found no room.
    pub sends: u64,
}

impl NetworkCalls {
    /// The sum of all.
    pub fn all(&self) -> u64 {
        self.waits + self.receives + self.sends
    }
}

impl Calls {
    pub(crate) fn add_to(&self, sum: &mut NetworkCalls) {
        sum.waits += self.waits.get();
        sum.receives += self.receives.get();
        sum.sends += self.sends.get();
    }
}

/// A counter that one thread writes.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub(crate) fn count(&self) {
        self.0.store(self.get() + 1, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
