//! A queue whose connection has ended. The disks carry out the commands that they have; the queue notes those that
//! the host may send again. New connections of the host wait until the last command has ended.

use super::{DiskClient, Disks, IoContext, IoQueue, Running, Used, slot_of};
use crate::target::QueueId;
use zoneplug_core::{Bios, Op};
use zoneplug_recovery::{ClientKey, Landed, data_hash};

/// A queue without a connection.
#[derive(Debug)]
pub struct ClosingQueue<C> {
    queue: QueueId,
    host: ClientKey,
    /// The disks that hold commands of the queue.
    used: Vec<Used<C>>,
    running: Vec<Option<Running>>,
    done: Bios,
}

impl<C: DiskClient> IoQueue<C> {
    /// Prepares the end of the queue while its connection is still open. The host's TCP has acknowledged
    /// `acknowledged` bytes. Returns true if the answer to an append is not acknowledged yet: then new connections of
    /// the host wait until [`IoQueue::end`], which the owner calls when [`IoQueue::waits_for_acknowledgement`] no
    /// longer holds, or after a time limit.
    pub fn leave<D: Disks<Client = C>>(
        &mut self,
        acknowledged: u64,
        ctx: &IoContext<'_, D>,
    ) -> bool {
        debug_assert!(!self.leaves, "the target ends a queue once");
        self.leaves = self.waits_for_acknowledgement(acknowledged);
        if self.leaves {
            self.stop();
            for u in &self.used {
                ctx.disks.recovery(u.disk).with(|ledger| ledger.begin_drain(self.host));
            }
            // The target has forgotten the queue and tells it of no queries, so it leaves the disks that it does not use.
            let used: Vec<u32> = self.used.iter().map(|u| u.disk).collect();
            for disk in self.shown.extract_if(.., |disk| !used.contains(disk)) {
                ctx.disks.recovery(disk).with(|ledger| ledger.leave(self.host, self.queue.into()));
            }
            ctx.disks.queries_answered();
        }
        self.leaves
    }

    /// Returns whether the host's TCP, which has acknowledged `acknowledged` bytes, has yet to acknowledge the answer
    /// of an append.
    pub fn waits_for_acknowledgement(&self, acknowledged: u64) -> bool {
        self.answered.any_append_is_open(acknowledged)
    }

    /// Returns whether one of the last answers is to an append. A host that has not read the answer sends the append
    /// again.
    pub fn has_answered_append(&self) -> bool {
        self.answered.has_append()
    }

    /// Ends the queue. The host's TCP has acknowledged `acknowledged` bytes. Returns `None` if no disk holds a
    /// command. `idle` receives the clients that are no longer used.
    ///
    /// Once no disk holds a command, the caller calls [`Target::drained`](crate::target::Target::drained).
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
            // The disk never took these BIOs, so they are not in flight.
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
            // A waiting request is with no disk. If it waits for other queues, a disk has refused it. If it waits for
            // late commands, it was sent again, and its host may send it once more.
            match entry.take_if(|r| !r.sent) {
                Some(mut running) => {
                    if running.resending.is_some() {
                        running.lose(self.host, ctx);
                    }
                    running.free(ctx);
                }
                None => entry.iter_mut().for_each(|r| r.lose(self.host, ctx)),
            }
        }
        let disks: Vec<u32> = self.used.iter().map(|u| u.disk).collect();
        let unused = self.shown.into_iter().filter(|disk| !disks.contains(disk));
        unused.for_each(|disk| {
            ctx.disks.recovery(disk).with(|l| l.leave(self.host, self.queue.into()));
        });
        let (used, unused): (Vec<_>, Vec<_>) =
            self.used.into_iter().partition(|u| u.client.outstanding() > 0);
        unused.into_iter().map(|u| u.client).for_each(idle);
        for u in &used {
            ctx.disks.recovery(u.disk).with(|ledger| ledger.begin_drain(self.host));
        }
        // Leaves the ledger last: by now lost answers are noted and commands in flight count as draining.
        for disk in disks {
            ctx.disks.recovery(disk).with(|ledger| {
                ledger.leave(self.host, self.queue.into());
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
    /// Notes a request that the host may send again: the connection has ended while a disk has the BIO. An append is
    /// noted when it has landed.
    fn lose<D: Disks>(&mut self, host: ClientKey, ctx: &IoContext<'_, D>) {
        let r = self.request;
        if let Some(resending) = &mut self.resending {
            resending.lose(host, &r, self.resets, ctx.disks.recovery(r.disk));
        } else if matches!(r.op, Op::Write | Op::WriteZeroes) {
            ctx.disks
                .recovery(r.disk)
                .with(|ledger| ledger.lose_write(host, r.sector, r.len_sectors));
        }
    }

    /// Frees the command's memory. No disk may hold any of it.
    pub(super) fn free<D>(self, ctx: &mut IoContext<'_, D>) {
        ctx.put(self.buf);
        ctx.put(self.resending.and_then(|r| r.into_data()));
    }
}

impl<C: DiskClient> ClosingQueue<C> {
    /// Returns the queue's identity at the target.
    pub fn queue(&self) -> QueueId {
        self.queue
    }

    /// Returns whether no disk holds a command any more.
    pub fn is_empty(&self) -> bool {
        self.used.is_empty()
    }

    /// Returns the queue's clients.
    pub fn clients(&mut self) -> impl Iterator<Item = &mut C> {
        self.used.iter_mut().map(|u| &mut u.client)
    }

    /// Takes completions from the disks. Returns false if there were none. `idle` receives the clients that are no
    /// longer used.
    pub fn run<D: Disks<Client = C>>(
        &mut self,
        mut idle: impl FnMut(C),
        ctx: &mut IoContext<'_, D>,
    ) -> bool {
        let mut progress = false;
        for u in &mut self.used {
            // No write can arrive any more to fill the gaps. Repeated each time, because a write that waited for a
            // tag may have entered the order window since the last call.
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
                // Other queues may wait for this disk only.
                ctx.disks.queries_answered();
            }
        }
        let ended = self.used.extract_if(.., |u| u.client.outstanding() == 0);
        ended.map(|u| u.client).for_each(&mut idle);
        progress
    }

    /// Ends the queue together with the server. Commands in flight go on; their memory is kept until they have ended.
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
