//! Resent writes of a zone in which the disk has given up a command that the device may still carry out. The first
//! sending of the write may be that command. So the write waits until the device has answered, or for the limit of the
//! disk ([`Disks::late_limit`]): then it is refused.

use super::{DiskClient, Disks, IoContext, IoQueue, Running};
use crate::tcp::Connection;
use zoneplug_recovery::{LateWait, NOTHING_LATE, Resend, Resending};

impl<C: DiskClient> IoQueue<C> {
    /// Returns whether writes wait for commands that a disk has given up. No one signals that the device has answered
    /// these, so the owner calls [`IoQueue::run`] again after a short time.
    pub fn waits_for_late(&self) -> bool {
        !self.late.is_empty()
    }

    /// Lets a resent write wait, if the device may still carry out a command of its zone that was given up.
    #[cold]
    pub(super) fn await_late<D: Disks<Client = C>>(
        &mut self,
        slot: u16,
        mut running: Running,
        n: usize,
        resend: Resend,
        tcp: &mut Connection,
        ctx: &mut IoContext<'_, D>,
    ) {
        let r = running.request;
        let Some(limit) = ctx.disks.late_limit(r.disk, r.sector) else {
            let search = ctx.disks.recovery(r.disk).next(resend, NOTHING_LATE, ctx.now);
            return self.search(slot, running, n, search, tcp, ctx);
        };
        running.resending = Some(Box::new(Resending::waiting(resend)));
        self.keep(slot, running);
        // A queue that stops leaves the write unanswered: its host sends it to the next server.
        if !self.stops {
            self.late.push(LateWait::new(slot, n, limit, ctx.now));
        }
    }

    /// Continues the writes that need not wait any more. Returns false if there is none.
    #[cold]
    pub(super) fn start_late<D: Disks<Client = C>>(
        &mut self,
        tcp: &mut Connection,
        ctx: &mut IoContext<'_, D>,
    ) -> bool {
        let mut progress = false;
        for wait in std::mem::take(&mut self.late) {
            let entry = &mut self.running[usize::from(wait.slot)];
            let Some(r) = entry.as_ref().map(|running| running.request) else { continue };
            let limit = ctx.disks.late_limit(r.disk, r.sector);
            let Some(outcome) = wait.outcome(limit, ctx.now) else {
                self.late.push(wait);
                continue;
            };
            let Some(mut running) = entry.take() else { continue };
            let Some(resending) = running.resending.take() else { continue };
            let search = resending.waited(outcome, ctx.disks.recovery(r.disk), ctx.now);
            self.search(wait.slot, running, wait.client, search, tcp, ctx);
            progress = true;
        }
        progress
    }
}
