//! The names by which [`zoneplug_recovery`] knows hosts and their queues.

use crate::target::{HostId, QueueId};
use std::hash::{DefaultHasher, Hash, Hasher};
use zoneplug_recovery::{ClientKey, ClientQueue};

impl HostId {
    /// Returns the key of the host: a hash of its NQN and identifier. Other processes of this build compute the same key.
    pub fn key(&self) -> ClientKey {
        let mut hasher = DefaultHasher::new();
        (self.nqn.as_str(), self.id).hash(&mut hasher);
        ClientKey::new(hasher.finish())
    }
}

impl From<QueueId> for ClientQueue {
    fn from(queue: QueueId) -> ClientQueue {
        ClientQueue { path: queue.controller, number: queue.qid }
    }
}

/// Returns the identities at the target of queues that recovery names.
pub(crate) fn queue_ids(queues: &[ClientQueue]) -> Vec<QueueId> {
    queues.iter().map(|q| QueueId { controller: q.path, qid: q.number }).collect()
}
