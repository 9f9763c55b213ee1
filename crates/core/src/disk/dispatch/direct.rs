//! The ordinary case: work is sent in the order in which it came, as soon as a tag is free.

use crate::disk::queue_state::QueueState;
use crate::disk::queue_state::backlog::Work;
use crate::disk::shared::Shared;
use crate::disk::snapshot::Layout;
use crate::disk::trace;

impl QueueState {
    /// Gives tags that have become free to the work that waits, in order.
    pub(crate) fn send_ready(&mut self, shared: &Shared, layout: &Layout) {
        while let Some(mut cmd) = self.tags.take() {
            match self.backlog.ready.pop_front() {
                Some(Work::Bio(bio)) => self.launch(layout, bio, cmd),
                Some(Work::Zone(zone) | Work::Listed(zone, _)) => {
                    let (mut shard, i) = shared.shard_of(zone);
                    let filled = shard.fill_from_line(i, layout.merge, &mut cmd);
                    shard.unlock_plug(i);
                    if filled {
                        cmd.zone = zone.0;
                        drop(shard);
                        trace::issued(&cmd);
                        self.send_write(cmd);
                    } else {
                        // No write is left: a reset has aborted them.
                        self.tags.put(cmd);
                    }
                }
                None => {
                    self.tags.put(cmd);
                    break;
                }
            }
        }
    }
}
