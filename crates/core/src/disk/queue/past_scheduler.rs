//! Writes that find nothing waiting in the scheduler and their zone idle. The scheduler could only choose them, so they are sent
//! at once: its lock is taken once instead of twice, and that of the plug not at all. `dispatch/scheduler.rs` handles all others.
//! Such a write is the only command of its queue, so its end has a way of its own too.

use super::write::Run;
use crate::bio::{Bios, Command};
use crate::disk::dispatch::scheduler::class_of;
use crate::disk::queue_state::QueueState;
use crate::disk::shared::Shared;
use crate::disk::snapshot::Layout;
use crate::plug::{AfterWrite, LockFreeAdmission};
use crate::sched::table::Request;
use crate::sync::lock;
use crate::unit::{Nanos, Sector, ZoneNo};

impl QueueState {
    /// Sends `self.run`, which [may go at once](QueueState::may_go_at_once), if its zone is idle and nothing waits in the
    /// scheduler. Returns false if not: nothing has changed.
    #[cold]
    #[inline(never)]
    pub(super) fn send_past_scheduler(
        &mut self,
        shared: &Shared,
        layout: &Layout,
        run: Run,
    ) -> bool {
        let place = shared.place(run.zone);
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
        let request = Request::of_zone(run.zone, sector, run.len_sectors, class, Nanos(0));
        elevator.sent_at_once(&request);
        drop(elevator);
        self.send_admitted(layout, run, cmd, offset, generation);
        true
    }

    /// Handles the success of a plugged write that was the only command of its queue, on a disk whose writes may
    /// [pass the scheduler](QueueState::send_past_scheduler). Unlocks its plug if nothing waits there: only such a queue has
    /// writes that may pass.
    #[cold]
    #[inline(never)]
    pub(super) fn finished_alone(
        &mut self,
        shared: &Shared,
        layout: &Layout,
        mut cmd: Box<Command>,
        done: &mut Bios,
    ) {
        let zone = ZoneNo(cmd.zone);
        if layout.words.complete(shared.place(zone)) {
            self.deliver(shared, &mut cmd, done);
            return self.tags.put(cmd);
        }
        let (mut guard, ended) = self.next_of(shared, zone);
        if ended.next != AfterWrite::Issue {
            guard.unlock_plug(ended.plug);
        }
        self.follow_up::<true>(shared, layout, guard, ended, cmd, done);
    }
}
