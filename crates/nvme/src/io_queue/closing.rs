//! A queue whose connection has ended. Its commands that are with the disks are carried out; what of them the host may send
//! again is noted. New connections of the host wait until that is done.

use super::{DiskClient, Disks, IoContext, IoQueue, Running, Used, slot_of};
use crate::recovery::{HostKey, Landed, data_hash};
use crate::target::QueueId;
use zoneplug_core::{Bios, Nanos, Op};

/// The longest time that a server takes to end: a disk or a host may not answer.
pub const END_LIMIT: Nanos = Nanos(1_000_000_000);
/// How long a host may take to look at the answer to an append after its TCP has acknowledged it, when the server ends.
pub const END_LOOK: Nanos = Nanos(100_000_000);

/// A queue without a connection.
#[derive(Debug)]
pub struct ClosingQueue<C> {
    queue: QueueId,
    host: HostKey,
    /// The disks that have commands of it.
    used: Vec<Used<C>>,
    running: Vec<Option<Running>>,
    done: Bios,
}

impl<C: DiskClient> IoQueue<C> {
    /// The target has ended the queue, and its connection is open. The host's TCP has acknowledged so many bytes.
    /// True: it has yet to acknowledge the answer of an append, and new connections of the host wait until [`IoQueue::end`].
    /// The owner ends the queue when [`IoQueue::waits_for_acknowledgement`] no longer holds, or some time later.
    pub fn leave<D: Disks<Client = C>>(
        &mut self,
        acknowledged: u64,
        ctx: &IoContext<'_, D>,
    ) -> bool {
        self.leaves = self.waits_for_acknowledgement(acknowledged);
        if self.leaves {
            self.stop();
            for u in &self.used {
                ctx.disks.recovery(u.disk).with(|ledger| ledger.begin_drain(self.host));
            }
            // The target does not know the queue any more, so it is not told of queries.
            let used: Vec<u32> = self.used.iter().map(|u| u.disk).collect();
            for disk in self.shown.extract_if(.., |disk| !used.contains(disk)) {
                ctx.disks.recovery(disk).with(|ledger| ledger.leave(self.host, self.queue));
            }
            ctx.disks.queries_answered();
        }
        self.leaves
    }

    /// Whether the host's TCP has yet to acknowledge the answer of an append. It has acknowledged so many bytes.
    pub fn waits_for_acknowledgement(&self, acknowledged: u64) -> bool {
        self.answered.any_append_is_open(acknowledged)
    }

    /// Whether one of the last answers is to an append. A host that has not looked at it sends the append again.
    pub fn has_answered_append(&self) -> bool {
        self.answered.has_append()
    }

    /// Ends the queue. The host's TCP has acknowledged so many bytes of what was sent to it.
    /// `None`: no command is with a disk. `idle` gets the clients that are not used any more.
    ///
    /// [`Target::drained`](crate::target::Target::drained) is to be called once no command is with a disk.
    pub fn end<D: Disks<Client = C>>(
        mut self,
        acknowledged: u64,
        idle: impl FnMut(C),
        ctx: &mut IoContext<'_, D>,
    ) -> Option<ClosingQueue<C>> {
        for answer in self.answered.perhaps_lost(acknowledged) {
            let recovery = ctx.disks.recovery(answer.disk);
            let (at, len_sectors) = (answer.sector, answer.len_sectors);
            match answer.is_append {
                true => {
                    let landed = Landed { at, len_sectors, hash: None };
                    recovery.lose_append(self.host, landed, answer.resets);
                }
                false => recovery.with(|ledger| ledger.lose_write(self.host, at, len_sectors)),
            }
        }
        for u in &mut self.used {
            // What the disk has not taken is not in flight.
            while let Some(mut bio) = u.list.pop_front() {
                let slot = usize::from(slot_of(&bio));
                let entry = self.running.get_mut(slot).and_then(Option::take);
                let Some(mut running) = entry else { continue };
                ctx.disks.ended(&running.request, false);
                if running.resending.is_some() {
                    running.lose(self.host, ctx);
                }
                if let Some(lent) = running.lent.take() {
                    running.buf = u.client.reclaim(&mut bio, lent);
                }
                running.free(ctx);
            }
        }
        for entry in &mut self.running {
            // What waits is with no disk. A write that asks was refused by it.
            match entry.take_if(|r| !r.sent) {
                Some(running) => running.free(ctx),
                None => entry.iter_mut().for_each(|r| r.lose(self.host, ctx)),
            }
        }
        let disks: Vec<u32> = self.used.iter().map(|u| u.disk).collect();
        let unused = self.shown.into_iter().filter(|disk| !disks.contains(disk));
        unused.for_each(|disk| ctx.disks.recovery(disk).with(|l| l.leave(self.host, self.queue)));
        let (used, unused): (Vec<_>, Vec<_>) =
            self.used.into_iter().partition(|u| u.client.outstanding() > 0);
        unused.into_iter().map(|u| u.client).for_each(idle);
        for u in &used {
            ctx.disks.recovery(u.disk).with(|ledger| ledger.begin_drain(self.host));
        }
        // Last: what it had is noted, and what is in flight drains.
        for disk in disks {
            ctx.disks.recovery(disk).with(|ledger| {
                ledger.leave(self.host, self.queue);
                if self.leaves {
                    ledger.end_drain(self.host);
                }
            });
        }
        ctx.disks.queries_answered();
        (!used.is_empty()).then_some(ClosingQueue {
            queue: self.queue,
            host: self.host,
            used,
            running: self.running,
            done: self.done,
        })
    }
}

impl Running {
    /// Its connection has ended while a BIO of it is with a disk: notes what its host may send again. An append is noted
    /// when it has landed.
    fn lose<D: Disks>(&mut self, host: HostKey, ctx: &IoContext<'_, D>) {
        let r = self.request;
        if let Some(resending) = &mut self.resending {
            resending.lose(host, &r, self.resets, ctx.disks.recovery(r.disk));
        } else if matches!(r.op, Op::Write | Op::WriteZeroes) {
            ctx.disks
                .recovery(r.disk)
                .with(|ledger| ledger.lose_write(host, r.sector, r.len_sectors));
        }
    }

    /// Frees its memory, of which no disk has any.
    pub(super) fn free<D>(self, ctx: &mut IoContext<'_, D>) {
        ctx.put(self.buf);
        ctx.put(self.resending.and_then(|r| r.into_data()));
    }
}

impl<C: DiskClient> ClosingQueue<C> {
    /// What it was for the target.
    pub fn queue(&self) -> QueueId {
        self.queue
    }

    /// Whether no command is with a disk any more.
    pub fn is_empty(&self) -> bool {
        self.used.is_empty()
    }

    /// Its clients.
    pub fn clients(&mut self) -> impl Iterator<Item = &mut C> {
        self.used.iter_mut().map(|u| &mut u.client)
    }

    /// Takes what the disks have done. False: nothing. `idle` gets the clients that are not used any more.
    pub fn run<D: Disks<Client = C>>(
        &mut self,
        mut idle: impl FnMut(C),
        ctx: &mut IoContext<'_, D>,
    ) -> bool {
        let mut progress = false;
        for u in &mut self.used {
            // Nothing is left that could fill the gaps before them. A write that has waited for a tag may have come too early
            // since the last call.
            u.client.refuse_held();
            u.client.poll(&mut self.done);
            progress |= !self.done.is_empty();
            while let Some(mut bio) = self.done.pop_front() {
                let slot = usize::from(slot_of(&bio));
                let entry = self.running.get_mut(slot).and_then(Option::take);
                let Some(mut running) = entry else { continue };
                if let Some(lent) = running.lent.take() {
                    running.buf = u.client.reclaim(&mut bio, lent);
                }
                let r = running.request;
                ctx.disks.ended(&r, bio.status.is_ok());
                let recovery = ctx.disks.recovery(u.disk);
                match r.op {
                    Op::ZoneAppend if bio.status.is_ok() && running.resending.is_none() => {
                        let hash = running.buf.as_ref().map(|b| data_hash(b, r.memory.1));
                        let landed = Landed { at: bio.sector, len_sectors: r.len_sectors, hash };
                        recovery.lose_append(self.host, landed, running.resets);
                    }
                    Op::ZoneReset => recovery.forget_zone(r.sector),
                    Op::ZoneResetAll => recovery.forget_all(),
                    _ => {}
                }
                running.free(ctx);
            }
            if u.client.outstanding() == 0 {
                ctx.disks.recovery(u.disk).with(|ledger| ledger.end_drain(self.host));
                // Others have waited for this disk, though not for the rest of the queue.
                ctx.disks.queries_answered();
            }
        }
        let ended = self.used.extract_if(.., |u| u.client.outstanding() == 0);
        ended.map(|u| u.client).for_each(&mut idle);
        progress
    }

    /// As [`IoQueue::abandon`].
    pub fn abandon(mut self) {
        for u in &mut self.used {
            let lent = self
                .running
                .iter_mut()
                .filter_map(|r| r.take_if(|r| r.request.disk == u.disk).and_then(|r| r.lent));
            u.client.keep_lent(lent);
        }
    }
}
