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
    /// Sends `self.run` to an idle zone, if it is all of its call and nothing waits in this queue or in the scheduler. Returns false if not: nothing has changed.
    #[cold]
    #[inline(never)]
    pub(super) fn send_past_scheduler(
        &mut self,
        shared: &Shared,
        layout: &Layout,
        run: Run,
    ) -> bool {
        let place = shared.place(run.zone);
        let may = self.run.len() == self.call_bios
            && self.backlog.is_empty()
            && self.is_one_command(layout, run)
            && !self.late_commands.is_down();
        if !may {
            return false;
        }
        let Some(mut cmd) = self.tags.take_held() else { return false };
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
        // What is sent when it comes has not waited, so the time does not count.
        let (sector, class) =
            (Sector(run.zone_start.0 + u64::from(offset)), class_of(self.run[0].flags));
        elevator.pass(&Request::of_zone(run.zone, sector, run.len_sectors, class, Nanos(0)));
        drop(elevator);
        if run.offset.is_none() {
            self.place_appends(layout, run.zone_start, offset);
        }
        self.begin_write(&mut cmd, run, generation);
        std::mem::swap(&mut cmd.bios, &mut self.run);
        self.send_write(cmd);
        true
    }
}
