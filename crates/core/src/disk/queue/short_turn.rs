//! Short turns: a write that finds the single writer and its own zone idle takes both without a lock, and gives both back
//! without one (`sched/writer_cell.rs`, `plug/word.rs`). Whatever does not fit goes the way of `dispatch/single_writer.rs`,
//! at either end.

use super::write::Run;
use crate::bio::Command;
use crate::disk::queue_state::QueueState;
use crate::disk::queue_state::backlog::TurnEvent;
use crate::disk::shared::Shared;
use crate::disk::snapshot::Layout;
use crate::plug::LockFreeAdmission;
use crate::unit::{Sector, ZoneNo};

impl QueueState {
    /// Sends `self.run` as a short turn (`sched/writer_cell.rs`), if nothing waits in this queue, no zone waits for a turn,
    /// and nothing of its own zone is in flight. Returns false if not: nothing has changed.
    #[cold]
    #[inline(never)]
    pub(super) fn send_in_short_turn(
        &mut self,
        shared: &Shared,
        layout: &Layout,
        run: Run,
    ) -> bool {
        let place = shared.place(run.zone);
        let (writer, _) = shared.single_writer(run.zone);
        if !self.may_go_at_once(layout, run) || !layout.words.is_idle(place) {
            return false;
        }
        let Some(cmd) = self.tags.take_held() else { return false };
        let Some(begun) = writer.begin_short_turn(run.zone) else {
            self.tags.put_held(cmd);
            return false;
        };
        let end = || layout.geometry.sequential_capacity(run.zone);
        let admission = layout.words.admit(place, run.offset, run.len_sectors, end);
        let LockFreeAdmission::Admitted { offset, generation } = admission else {
            self.tags.put_held(cmd);
            if !writer.take_back(run.zone, &begun) {
                self.backlog.push_event(TurnEvent::Broken(run.zone));
            }
            return false;
        };
        self.send_admitted(layout, run, cmd, offset, generation);
        true
    }

    /// Ends the short turn of a write that has succeeded. Returns false if its turn is an ordinary one by now, or if
    /// something has happened in its zone: nothing has changed.
    #[inline]
    pub(super) fn end_short_turn(
        &mut self,
        shared: &Shared,
        layout: &Layout,
        cmd: &Command,
    ) -> bool {
        let zone = ZoneNo(cmd.zone);
        let (writer, _) = shared.single_writer(zone);
        if !writer.is_short_turn(zone) || !layout.words.complete(shared.place(zone)) {
            return false;
        }
        let end = Sector(cmd.sector.0.saturating_add(u64::from(cmd.len_sectors)));
        if !writer.end_short_turn(zone, end) {
            // Another zone was listed meanwhile, and this queue has the token.
            self.backlog.push_event(TurnEvent::Done(zone, end));
        }
        true
    }
}
