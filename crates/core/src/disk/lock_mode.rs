//! The `lock` mode: zone write locking, as a first-in first-out dispatcher.
//!
//! A request takes its tag when it comes and the zone's lock when it is sent; while the zone is locked it waits
//! here, tag in hand. That is the point of comparison for plugging (C1, C3), and nothing else uses it.

use super::Shared;
use super::queue::Lane;
use crate::unit::ZoneNo;

impl Lane {
    /// Sends every waiting write whose zone is free, first come first served within a zone.
    pub(crate) fn dispatch_locked(&mut self, shared: &Shared) {
        self.blocked.clear();
        for _ in 0..self.dispatch.len() {
            let Some(mut cmd) = self.dispatch.pop_front() else { break };
            // Another queue may unlock a zone in mid-round: a later write must not pass an earlier one then.
            let waits = self.blocked.contains(&cmd.zone) || {
                let (mut shard, i) = shared.shard(ZoneNo(cmd.zone));
                !shard.plugs[i].try_lock_zone()
            };
            if waits {
                self.blocked.push(cmd.zone);
                self.dispatch.push_back(cmd);
            } else {
                cmd.plugged = true;
                self.out.push_back(cmd);
            }
        }
    }
}
