//! The keys and numbers by which [`zoneplug_recovery`] knows hosts and their queues.

use crate::target::{HostId, QueueId};
use zoneplug_core::{FNV_START, fnv1a};
use zoneplug_recovery::{ClientKey, ClientQueue};

impl HostId {
    /// Returns the key of the host: a hash of its NQN and identifier. Every version must compute the same key,
    /// because disks and journals keep it.
    pub fn key(&self) -> ClientKey {
        // No NQN has a zero byte.
        let bytes = self.nqn.as_str().bytes().chain([0]).chain(self.id);
        ClientKey::new(fnv1a(FNV_START, bytes))
    }
}

impl From<QueueId> for ClientQueue {
    fn from(queue: QueueId) -> ClientQueue {
        ClientQueue { path: queue.controller, number: queue.qid }
    }
}

/// Returns these queues as the target names them.
pub(crate) fn queue_ids(queues: &[ClientQueue]) -> Vec<QueueId> {
    queues.iter().map(|q| QueueId { controller: q.path, qid: q.number }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Nqn;

    /// L7. The value was computed by another program. A server of another version, which another compiler may have
    /// built, finds what this one has noted of a host.
    #[test]
    fn l7_the_key_of_a_host_is_the_same_in_each_version() {
        let nqn = Nqn::new("nqn.2014-08.org.example:host").unwrap();
        let host = HostId { nqn, id: [7; 16] };
        assert_eq!(host.key(), ClientKey::new(0x267b_1ef8_2177_45d6));
    }
}
