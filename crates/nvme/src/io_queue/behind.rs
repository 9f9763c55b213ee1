//! Writes that a disk refused because those before them had not come, while the server itself holds those back. The host did
//! nothing wrong, so it does not get the disk's refusal.

use super::{DiskClient, Disks, IoContext, IoQueue, Running};
use crate::spec::{Completion, status};
use crate::target::io::{IoRequest, IoResult, Step, Task};
use crate::tcp::Connection;
use zoneplug_core::Op;

impl<C: DiskClient> IoQueue<C> {
    /// The server or the controller ends, and takes no more data. What the disks carry out is still answered. A write that a
    /// disk refuses for its place from now on stays unanswered, because the write before it may not be taken any more: the
    /// host sends both again to what serves next.
    pub fn stop(&mut self) {
        self.stops = true;
        self.refuse_held();
    }

    /// Refuses the writes that order windows hold.
    pub(super) fn refuse_held(&mut self) {
        self.used.iter_mut().for_each(|u| u.client.refuse_held());
    }

    /// A disk has refused the request of a command for its place.
    #[cold]
    pub(super) fn refused<D: Disks<Client = C>>(
        &mut self,
        slot: u16,
        mut running: Running,
        result: IoResult,
        tcp: &mut Connection,
        ctx: &mut IoContext<'_, D>,
    ) {
        let r = running.request;
        let is_write = matches!(r.op, Op::Write | Op::WriteZeroes);
        if is_write && self.stops {
            return running.free(ctx);
        }
        if is_write && self.awaits_before(&r, tcp, ctx) {
            self.keep(slot, running);
            return self.behind.push(slot);
        }
        let step = if is_write && self.namespaces.are_inaccessible() {
            // As a command that comes now: its host sends it to another port.
            Step::Answer(Completion { status: status::INACCESSIBLE, ..Completion::default() }, 0)
        } else {
            running.task.next(result, running.buf.as_mut())
        };
        self.go_on(slot, running, step, tcp, ctx);
    }

    /// Whether the queue has a write before `r` in its zone of which some data are on the way, or which waits for other queues.
    fn awaits_before<D: Disks<Client = C>>(
        &self,
        r: &IoRequest,
        tcp: &Connection,
        ctx: &IoContext<'_, D>,
    ) -> bool {
        let g = ctx.disks.geometry(r.disk);
        let zone = g.zone_of(r.sector).0;
        let is_before = |other: &IoRequest| {
            let is_write = matches!(other.op, Op::Write | Op::WriteZeroes);
            is_write
                && other.disk == r.disk
                && other.sector < r.sector
                && g.zone_of(other.sector).0 == zone
        };
        let awaited = tcp.awaited().any(|c| match Task::begin(c, &self.namespaces, None).1 {
            Step::Submit(other) => is_before(&other),
            Step::Answer(..) => false,
        });
        let slots = self.waiting.iter().copied().chain(self.asking.iter().map(|a| a.slot()));
        let mut waiting = slots.filter_map(|n| self.running.get(usize::from(n))?.as_ref());
        awaited || waiting.any(|running| is_before(&running.request))
    }

    /// Submits the refused writes again before which no data are on the way any more, in the order of their places.
    /// False: there is none.
    #[cold]
    pub(super) fn start_behind<D: Disks<Client = C>>(
        &mut self,
        tcp: &mut Connection,
        ctx: &mut IoContext<'_, D>,
    ) -> bool {
        if self.stops {
            return false;
        }
        let mut all = std::mem::take(&mut self.behind);
        let request = |queue: &Self, slot: u16| {
            queue.running.get(usize::from(slot))?.as_ref().map(|running| running.request)
        };
        all.sort_by_key(|slot| request(self, *slot).map(|r| (r.disk, r.sector)));
        let before = all.len();
        for slot in all {
            let Some(r) = request(self, slot) else { continue };
            if self.awaits_before(&r, tcp, ctx) {
                self.behind.push(slot);
            } else if let Some(running) = self.running[usize::from(slot)].take() {
                self.start(slot, running, tcp, ctx);
            }
        }
        self.behind.len() < before
    }
}
