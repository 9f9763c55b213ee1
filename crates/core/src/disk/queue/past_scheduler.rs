//! Writes that find nothing waiting in the scheduler and their zone idle. The scheduler could only choose them, so they are sent
//! at once: its lock is taken once instead of twice, and that of the plug not at all. `dispatch/scheduler.rs` handles all others.

use super::write::Run;
use crate::disk::dispatch::scheduler::class_of;
use crate::disk::queue_state::QueueState;
use crate::disk::shared::Shared;
use crate::disk::snapshot::Layout;
use crate::plug::LockFreeAdmission;
use crate::sched::table::Request;
use crate::sync::lock;
use crate::unit::{Nanos, Sector};

impl QueueState {
    /// Sends `self.run` to an idle zone, if it [may go at once](QueueState::may_go_at_once) and nothing waits in the scheduler.
    /// Returns false if not: nothing has changed.
    #[cold]
    #[inline(never)]
    pub(super) fn send_past_scheduler(
        &mut self,
        shared: &Shared,
        layout: &Layout,
        run: Run,
    ) -> bool {
        let place = shared.place(run.zone);
        if !self.may_go_at_once(layout, run) {
            return false;
        }
        let Some(cmd) = self.tags.take_held() else { return false };
        let mut elevator = lock(&shared.elevator.0);
        let end = || layout.geometry.sequential_capacity(run.zone);
        let admission = if elevator.may_pass() {
            layout.words.admit(place, run.offset, run.len_sectors, end)
        } else {
            LockFreeAdmission::Locked
        };
        let LockFreeAdmission::Admitted { offset, generation } = admission else {
            drop(elevator);
            self.tags.put_held(cmd);
            return false;
        };
        // A request that does not wait needs no time of arrival.
        let (sector, class) =
            (Sector(run.zone_start.0 + u64::from(offset)), class_of(self.run[0].flags));
        elevator.pass(&Request::of_zone(run.zone, sector, run.len_sectors, class, Nanos(0)));
        drop(elevator);
        self.send_admitted(layout, run, cmd, offset, generation);
        true
    }
}
