//! The order in which queues send commands. `direct.rs` is the ordinary case: work is sent in the order of arrival.
//! The other files are for disks with a single writer, with a scheduler, or with several writes of a zone in flight.
//!
//! On such a disk a queue keeps its free tags where the ordinary code finds none (`queue_state/tags.rs`). The
//! ordinary code therefore puts its work into the backlog, and this room sends it at the end of each submit and poll.

mod direct;
mod handoff;
mod pipelined;
pub(crate) mod scheduler;
pub(crate) mod single_writer;

use crate::bio::{Bios, Command, Status};
use crate::disk::queue_state::QueueState;
use crate::disk::queue_state::backlog::{TurnEvent, Work};
use crate::disk::shared::Shared;
use crate::disk::snapshot::Layout;
use crate::disk::trace;
use crate::plug::AfterWrite;
use crate::unit::{Nanos, Sector, ZoneNo};

impl QueueState {
    /// Sorts new work, handles the commands that have ended, and sends the work that may be sent.
    #[cold]
    pub(crate) fn dispatch(&mut self, shared: &Shared, layout: &Layout, now: Nanos) {
        // Only a disk with a scheduler reads this.
        let mut may_take =
            layout.scheduled && self.tags.any_ended() && self.release_ended(shared, layout);
        self.tags.hold();
        // Only a queue whose device is watched for late commands can be down.
        let watched = self.late_commands.is_watched();
        if watched {
            may_take |= self.run_errands();
        }
        if !self.waits.is_empty() {
            self.check_waits(shared, layout, now);
        }
        loop {
            while let Some(event) = self.backlog.next_event() {
                match event {
                    TurnEvent::More(zone, end) => {
                        self.continue_turn(shared, layout, zone, end, now);
                    }
                    TurnEvent::Done(zone, end) => {
                        self.end_or_extend_turn(shared, layout, zone, Some(end), now);
                    }
                    TurnEvent::Broken(zone) => {
                        self.end_or_extend_turn(shared, layout, zone, None, now);
                    }
                }
            }
            while let Some(work) = self.backlog.ready.pop_front() {
                match work {
                    Work::Listed(zone, ticket) => {
                        self.enlist_with(shared, layout, zone, ticket, now);
                    }
                    Work::Zone(zone) if layout.single_writer => {
                        self.enlist(shared, layout, zone, now);
                    }
                    Work::Zone(zone) if layout.zone_depth > 1 => {
                        self.queue_up(shared, layout, zone);
                    }
                    work => self.backlog.line.push_back(work),
                }
            }
            self.backlog.line_up_turns();
            if layout.scheduled {
                may_take |= self.enqueue(shared, layout, now);
                if may_take && !(watched && self.leaves_to_another(shared, true)) {
                    self.send_scheduled(shared, layout, now);
                }
            } else {
                if watched {
                    self.leaves_to_another(shared, false);
                }
                self.send_line(shared, layout);
            }
            // A zone that got its turn may have had nothing left to write.
            if !self.backlog.has_unhandled() {
                return;
            }
        }
    }

    /// Gives free tags to the work in line, in order.
    fn send_line(&mut self, shared: &Shared, layout: &Layout) {
        while !self.backlog.line.is_empty() {
            let Some(cmd) = self.tags.take_held() else { return };
            match self.backlog.line.pop_front() {
                Some(Work::Bio(bio)) => self.launch_for(layout, bio, cmd),
                Some(Work::Zone(zone)) if layout.zone_depth > 1 => {
                    self.send_in_order(shared, layout, zone, cmd);
                }
                Some(Work::Zone(zone) | Work::Listed(zone, _)) => {
                    let _ = self.send_zone(shared, layout, zone, cmd);
                }
                None => self.tags.put_held(cmd),
            }
        }
    }

    /// Sends the next write of a zone, merged with writes that have come meanwhile. Returns false if no write waits.
    pub(crate) fn send_zone(
        &mut self,
        shared: &Shared,
        layout: &Layout,
        zone: ZoneNo,
        mut cmd: Box<Command>,
    ) -> bool {
        let (mut shard, i) = shared.shard_of(zone);
        if shard.fill_from_line(i, layout.merge, &mut cmd) {
            drop(shard);
            cmd.zone = zone.0;
            trace::issued(&cmd);
            self.send_write(cmd);
            return true;
        }
        drop(shard);
        // No write is left: a reset has aborted them.
        self.tags.put_held(cmd);
        if layout.single_writer {
            self.backlog.push_event(TurnEvent::Broken(zone));
        }
        false
    }

    /// Handles the end of a plugged write. The plug's next step goes through `ready`.
    #[inline(always)]
    pub(crate) fn finished_arbitrated(
        &mut self,
        shared: &Shared,
        layout: &Layout,
        next: AfterWrite,
        mut cmd: Box<Command>,
        done: &mut Bios,
    ) {
        let (zone, ok) = (ZoneNo(cmd.zone), cmd.status.is_ok());
        let end = Sector(cmd.sector.0.saturating_add(u64::from(cmd.len_sectors)));
        match next {
            AfterWrite::Issue if layout.single_writer => {
                self.backlog.push_event(TurnEvent::More(zone, end));
            }
            AfterWrite::Issue => self.backlog.push_zone(zone),
            AfterWrite::Idle | AfterWrite::Aborted | AfterWrite::Lost if layout.single_writer => {
                let over = if ok { TurnEvent::Done(zone, end) } else { TurnEvent::Broken(zone) };
                self.backlog.push_event(over);
            }
            AfterWrite::Idle | AfterWrite::Aborted | AfterWrite::Lost => {}
        }
        if next == AfterWrite::Aborted {
            self.abort_waiting(shared, layout, Status::AbortedBehind, done);
        }
        self.deliver(shared, &mut cmd, done);
        self.tags.put(cmd);
    }
}
