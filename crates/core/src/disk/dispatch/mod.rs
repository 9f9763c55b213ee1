//! Queues of a disk on which more than tags decides who goes first: a single writer, or a scheduler.
//!
//! Such a queue keeps its free tags in `held`, where the ordinary paths do not find them: to them it is a queue
//! without a free tag, so they put everything that is to be sent into `ready`, and no other disk pays for asking. From there
//! it is taken here, at the end of each submit and poll.

mod handoff;
mod pipelined;
mod scheduler;
pub(crate) mod single_writer;

use crate::bio::{Bios, Command, Status};
use crate::disk::Shared;
use crate::disk::queue::{Lane, Ready};
use crate::disk::snapshot::Layout;
#[cfg(feature = "trace")]
use crate::disk::trace;
use crate::planted::{Bug, planted};
use crate::plug::Next;
use crate::sync::lock;
use crate::unit::{Nanos, ZoneNo};

impl Lane {
    /// Puts the free tags where the layout wants them. The queue may have commands in flight.
    pub(crate) fn place_tags(&mut self, special: bool) {
        if special {
            self.held.append(&mut self.free);
        } else {
            self.free.append(&mut self.held);
        }
    }

    /// Looks at what has come in and what has ended, and sends what may be sent.
    #[cold]
    pub(crate) fn line_up(&mut self, shared: &Shared, layout: &Layout, now: Nanos) {
        let ended = !self.free.is_empty();
        let looked = planted(Bug::PlaceFreedLate) && lock(&shared.elevator.0).waiting() == 0;
        if layout.scheduled && ended {
            self.came_back(shared, layout);
        }
        self.held.append(&mut self.free);
        let mut may_take = ended && !looked && !planted(Bug::SchedulerAsleep);
        // Only a queue whose device is watched can be down.
        let watched = self.late.is_some();
        if watched {
            may_take |= self.run_errands();
        }
        if !self.waits.is_empty() {
            self.check_waits(shared, layout, now);
        }
        loop {
            while let Some(entry) = self.ready.pop_front() {
                match entry {
                    Ready::Zone(zone) if layout.gated => self.enlist(shared, layout, zone, now),
                    Ready::Zone(zone) if layout.zone_depth > 1 => {
                        self.queue_up(shared, layout, zone);
                    }
                    Ready::More(zone, end) => self.go_on(shared, layout, zone, end, now),
                    Ready::Done(zone, end) => {
                        self.turn_over(shared, layout, zone, Some(end), now);
                    }
                    Ready::Broken(zone) => self.turn_over(shared, layout, zone, None, now),
                    other => self.line.push_back(other),
                }
            }
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
            if self.ready.is_empty() {
                return;
            }
        }
    }

    /// Gives free tags to those who wait, in order.
    fn send_line(&mut self, shared: &Shared, layout: &Layout) {
        while !self.line.is_empty() {
            let Some(cmd) = self.held.pop() else { return };
            match self.line.pop_front() {
                Some(Ready::Bio(bio)) => self.launch_for(layout, bio, cmd),
                Some(Ready::Zone(zone)) if layout.zone_depth > 1 => {
                    self.send_in_order(shared, layout, zone, cmd);
                }
                Some(Ready::Zone(zone) | Ready::Turn(zone)) => {
                    let _ = self.send_zone(shared, layout, zone, cmd);
                }
                Some(Ready::More(..) | Ready::Done(..) | Ready::Broken(_)) | None => {
                    self.held.push(cmd);
                }
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
        self.held.push(cmd);
        if layout.gated {
            self.ready.push_back(Ready::Broken(zone));
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
            Next::Issue if layout.gated => self.ready.push_back(Ready::More(zone, end)),
            Next::Issue => self.ready.push_back(Ready::Zone(zone)),
            Next::Idle | Next::Aborted | Next::Lost if layout.gated => {
                if ok || !planted(Bug::GateLostWake) {
                    let over = if ok { Ready::Done(zone, end) } else { Ready::Broken(zone) };
                    self.ready.push_back(over);
                }
            }
            Next::Idle | Next::Aborted | Next::Lost => {}
        }
        if next == Next::Aborted {
            self.abort_waiting(shared, layout, Status::AbortedBehind, done);
        }
        self.deliver(shared, &mut cmd, done);
        self.free.push(cmd);
    }
}
