//! Which queue sends what. `direct.rs` is the ordinary layout: work is sent in the order in which it came. The rest is for
//! special layouts, with a single writer, a scheduler, or several writes of a zone in flight.
//!
//! A queue with a special layout holds its free tags where the ordinary paths find none (`lane/tags.rs`). They put their work
//! into the backlog, and this room sends it at the end of each submit and poll.

mod direct;
mod handoff;
mod pipelined;
mod scheduler;
pub(crate) mod single_writer;

use crate::bio::{Bios, Command, Status};
use crate::disk::lane::Lane;
use crate::disk::lane::backlog::{TurnEvent, Work};
use crate::disk::shared::Shared;
use crate::disk::snapshot::Layout;
#[cfg(feature = "trace")]
use crate::disk::trace;
use crate::plug::Next;
use crate::unit::{Nanos, ZoneNo};

impl Lane {
    /// Looks at what has come in and what has ended, and sends what may be sent.
    #[cold]
    pub(crate) fn line_up(&mut self, shared: &Shared, layout: &Layout, now: Nanos) {
        let ended = self.tags.any_ended();
        if layout.scheduled && ended {
            self.came_back(shared, layout);
        }
        self.tags.hold();
        let mut may_take = ended;
        // Only a queue whose device is watched can be down.
        let watched = self.outlook.is_watched();
        if watched {
            may_take |= self.run_errands();
        }
        if !self.waits.is_empty() {
            self.check_waits(shared, layout, now);
        }
        loop {
            while let Some(event) = self.backlog.next_event() {
                match event {
                    TurnEvent::More(zone, end) => self.go_on(shared, layout, zone, end, now),
                    TurnEvent::Done(zone, end) => {
                        self.turn_over(shared, layout, zone, Some(end), now);
                    }
                    TurnEvent::Broken(zone) => self.turn_over(shared, layout, zone, None, now),
                }
            }
            while let Some(work) = self.backlog.ready.pop_front() {
                match work {
                    Work::Zone(zone) if layout.gated => self.enlist(shared, layout, zone, now),
                    Work::Zone(zone) if layout.zone_depth > 1 => {
                        self.queue_up(shared, layout, zone);
                    }
                    work => self.backlog.line.push_back(work),
                }
            }
            self.backlog.line_up_turns();
            if layout.scheduled {
                may_take |= self.feed(shared, layout, now);
                if may_take && !(watched && self.leaves_to_another(shared, true)) {
                    self.take_turns(shared, layout, now);
                }
            } else {
                if watched {
                    self.leaves_to_another(shared, false);
                }
                self.send_line(shared, layout);
            }
            // A zone whose turn it was may have had nothing to write any more.
            if !self.backlog.has_news() {
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
                Some(Work::Zone(zone)) => {
                    let _ = self.send_zone(shared, layout, zone, cmd);
                }
                None => self.tags.put_held(cmd),
            }
        }
    }

    /// Sends the next write of a zone, as much of it as has come together meanwhile. False: there was none.
    pub(crate) fn send_zone(
        &mut self,
        shared: &Shared,
        layout: &Layout,
        zone: ZoneNo,
        mut cmd: Box<Command>,
    ) -> bool {
        let (mut shard, i) = shared.shard(zone);
        if shard.fill_from_line(i, layout.merge, &mut cmd) {
            drop(shard);
            cmd.zone = zone.0;
            #[cfg(feature = "trace")]
            trace::issued(&cmd);
            self.send_write(cmd);
            return true;
        }
        drop(shard);
        // A reset took them all.
        self.tags.put_held(cmd);
        if layout.gated {
            self.backlog.event(TurnEvent::Broken(zone));
        }
        false
    }

    /// A plugged write has ended, and its plug says what is next: that goes through `ready`.
    #[cold]
    pub(crate) fn finished_special(
        &mut self,
        shared: &Shared,
        layout: &Layout,
        next: Next,
        mut cmd: Box<Command>,
        done: &mut Bios,
    ) {
        let (zone, ok) = (ZoneNo(cmd.zone), cmd.status.is_ok());
        let end = cmd.sector.plus(u64::from(cmd.len_sectors));
        match next {
            Next::Issue if layout.gated => self.backlog.event(TurnEvent::More(zone, end)),
            Next::Issue => self.backlog.zone(zone),
            Next::Idle | Next::Aborted | Next::Lost if layout.gated => {
                let over = if ok { TurnEvent::Done(zone, end) } else { TurnEvent::Broken(zone) };
                self.backlog.event(over);
            }
            Next::Idle | Next::Aborted | Next::Lost => {}
        }
        if next == Next::Aborted {
            self.abort_waiting(shared, layout, Status::AbortedBehind, done);
        }
        self.deliver(shared, &mut cmd, done);
        self.tags.put(cmd);
    }
}
