//! Resent writes of a zone in which the disk has given up a command that the device may still carry out. The first
//! sending of the write may be that command. So the write waits until the device has answered, or for the limit of the
//! disk ([`Disks::late_limit`]): then it is refused.

use super::{DiskClient, Disks, IoContext, IoQueue, Running};
use crate::tcp::Connection;
use zoneplug_core::{Nanos, Status};
use zoneplug_recovery::{Outcome, Resend, Resending};

/// A resent write that waits.
#[derive(Debug)]
pub(super) struct LateWait {
    slot: u16,
    /// The index of its disk's client.
    n: usize,
    until: Nanos,
}

impl LateWait {
    /// Returns the slot of the write.
    pub(super) fn slot(&self) -> u16 {
        self.slot
    }
}

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
        mut resend: Resend,
        tcp: &mut Connection,
        ctx: &mut IoContext<'_, D>,
    ) {
        let r = running.request;
        let Some(limit) = ctx.disks.late_limit(r.disk, r.sector) else {
            let outcome = Outcome::Ended(Status::Ok);
            let step = ctx.disks.recovery(r.disk).next(&mut resend, outcome, ctx.now);
            return self.step(slot, running, n, (resend, step), tcp, ctx);
        };
        running.resending = Some(Box::new(Resending::waiting(resend)));
        self.keep(slot, running);
        // A queue that stops leaves the write unanswered: its host sends it to the next server.
        if !self.stops {
            let until = Nanos(ctx.now.0.saturating_add(limit.0));
            self.late.push(LateWait { slot, n, until });
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
            let outcome = match ctx.disks.late_limit(r.disk, r.sector) {
                None => Outcome::Ended(Status::Ok),
                Some(_) if ctx.now < wait.until => {
                    self.late.push(wait);
                    continue;
                }
                Some(_) => Outcome::Ended(Status::Timeout),
            };
            let Some(mut running) = entry.take() else { continue };
            let Some(resending) = running.resending.take() else { continue };
            let mut resend = resending.into_resend();
            let step = ctx.disks.recovery(r.disk).next(&mut resend, outcome, ctx.now);
            self.step(wait.slot, running, wait.n, (resend, step), tcp, ctx);
            progress = true;
        }
        progress
    }
}
