//! How queues put requests into a scheduler, and take them out again.
//!
//! A scheduler sorts across clients, so it is state of the disk under one lock. A queue with a free tag takes the
//! next request and sends it on its own queue of the device, whichever queue put the request in. Each BIO names its
//! owner and is delivered there.
//!
//! A queue takes requests only when it has put one in, or when one of its own commands has ended. So an idle queue
//! stays idle, which a freeze relies on. No request is forgotten: while one waits, either another is at the device,
//! or the queue that put it in had a tag to send it with.

use crate::bio::{Bio, Command, Flags, Op};
use crate::disk::config::Mode;
use crate::disk::queue_state::QueueState;
use crate::disk::queue_state::backlog::Work;
use crate::disk::shared::Shared;
use crate::disk::snapshot::Layout;
use crate::plug::Kind;
use crate::sched::elevator::NextRequest;
use crate::sched::table::{Dir, Request, RequestContent};
use crate::sync::{Ordering, lock};
use crate::unit::{Nanos, ZoneNo};
use std::ops::Range;

/// The priority class of a BIO: 0 is served first.
pub(crate) fn class_of(flags: Flags) -> u8 {
    if flags.contains(Flags::RT) {
        0
    } else if flags.contains(Flags::IDLE) {
        2
    } else {
        1
    }
}

impl QueueState {
    /// Tells the scheduler which commands have ended. Their tags, their places at the device and their zone locks are
    /// free again. Returns whether a request waits: a queue that puts one in later finds these places free.
    pub(crate) fn release_ended(&mut self, shared: &Shared, layout: &Layout) -> bool {
        let locking = layout.config.mode == Mode::Lock;
        let mut elevator = lock(&shared.elevator.0);
        for cmd in self.tags.ended() {
            let zone = ZoneNo(cmd.zone);
            let locked = if locking { Self::lock_of(layout, cmd.sent_op, zone) } else { None };
            elevator.ended(cmd.sent_op, locked);
        }
        let waits = elevator.waiting() != 0;
        drop(elevator);
        if locking {
            self.return_tags();
        }
        waits
    }

    /// In `lock` mode: gives the places in the scheduler that ended commands had back to their owners.
    fn return_tags(&mut self) {
        let mut own = 0;
        for cmd in self.tags.ended() {
            if cmd.owner == self.id {
                own += 1;
            } else if let Some(peer) = self.peers.get(cmd.owner as usize).and_then(Option::as_ref) {
                peer.returned_tags.fetch_add(1, Ordering::AcqRel);
                // The BIO has been delivered already. Its owner may have found no tag for the next one and gone to
                // sleep.
                peer.wake();
            }
        }
        self.tags.leave(own);
    }

    /// Puts the work in line into the scheduler. Returns whether there was any.
    pub(crate) fn enqueue(&mut self, shared: &Shared, layout: &Layout, now: Nanos) -> bool {
        let locking = layout.config.mode == Mode::Lock;
        if locking {
            self.tags.leave(self.mailbox.returned_tags.swap(0, Ordering::AcqRel));
        }
        let mut any = false;
        loop {
            if locking && !self.tags.may_enter() {
                // A request needs a tag to enter. Until a tag is free the request stays in line, and reads behind it
                // do too (C1).
                break;
            }
            let merged = match self.backlog.line.pop_front() {
                Some(Work::Bio(bio)) => self.enqueue_bio(shared, layout, bio, now),
                Some(Work::Zone(zone) | Work::Listed(zone, _)) => {
                    Self::enqueue_zone(shared, layout, zone, now);
                    false
                }
                None => break,
            };
            if locking && !merged {
                self.tags.enter();
            }
            any = true;
        }
        any
    }

    /// Returns the zone whose lock a command in `zone` needs in `lock` mode.
    fn lock_of(layout: &Layout, op: Op, zone: ZoneNo) -> Option<ZoneNo> {
        let locks = matches!(op, Op::Write | Op::WriteZeroes);
        (locks && !layout.geometry.is_conventional(zone)).then_some(zone)
    }

    /// Puts a BIO into the scheduler. Returns true if it became part of another request.
    fn enqueue_bio(&mut self, shared: &Shared, layout: &Layout, bio: Box<Bio>, now: Nanos) -> bool {
        let dir = Dir::of(bio.op);
        if dir == Dir::Other {
            lock(&shared.elevator.0).insert_first(bio);
            return false;
        }
        let mut request = Request {
            sector: bio.sector,
            len_sectors: bio.len_sectors,
            dir,
            class: class_of(bio.flags),
            since: now,
            lock: None,
            owner: self.id,
            op: bio.op,
            kind: Kind::of(&bio),
            content: RequestContent::Bios,
        };
        if layout.config.mode == Mode::Lock {
            let (zone, _) = layout.geometry.zone_of(bio.sector);
            request.lock = Self::lock_of(layout, bio.op, zone);
            // The order within a zone counts more than any priority (W19).
            request.class = if request.lock.is_some() { 1 } else { request.class };
        }
        lock(&shared.elevator.0).insert(request, Some(bio), layout.merge)
    }

    /// Puts the next write of a plugged zone into the scheduler as the zone's number. Its BIOs stay in the plug.
    fn enqueue_zone(shared: &Shared, layout: &Layout, zone: ZoneNo, now: Nanos) {
        let start = layout.geometry.zone_start(zone);
        let (shard, i) = shared.shard_of(zone);
        let Range { start: sector, end } = shard.extent(i, start).unwrap_or(start..start);
        let class = class_of(shard.next_flags(i));
        drop(shard);
        let len_sectors = (end.0 - sector.0) as u32;
        let request = Request::of_zone(zone, sector, len_sectors, class, now);
        lock(&shared.elevator.0).insert(request, None, layout.merge);
    }

    /// Sends the requests that the scheduler chooses, as long as there are tags.
    pub(crate) fn send_scheduled(&mut self, shared: &Shared, layout: &Layout, now: Nanos) {
        while let Some(mut cmd) = self.tags.take_held() {
            let taken = lock(&shared.elevator.0).next(now, &mut cmd.bios);
            match taken {
                None => return self.tags.put_held(cmd),
                Some(NextRequest::Bio(bio)) => self.launch_for(layout, bio, cmd),
                Some(NextRequest::Request(r)) => match r.content {
                    RequestContent::Zone(zone) => {
                        if !self.send_zone(shared, layout, zone, cmd) {
                            lock(&shared.elevator.0).not_sent();
                        }
                    }
                    RequestContent::Bios if r.lock.is_none() && cmd.bios.len() == 1 => {
                        if let Some(bio) = cmd.bios.pop() {
                            self.launch_for(layout, bio, cmd);
                        }
                    }
                    RequestContent::Bios => self.send_request(&r, cmd),
                },
            }
        }
    }

    /// Sends a BIO of any queue.
    #[cold]
    #[inline(never)]
    pub(crate) fn launch_for(&mut self, layout: &Layout, bio: Box<Bio>, cmd: Box<Command>) {
        let owner = bio.queue;
        self.launch(layout, bio, cmd);
        if let Some(cmd) = self.out.back_mut() {
            cmd.begin_owners(owner);
        }
    }

    /// Sends a write whose zone lock is held.
    fn send_request(&mut self, r: &Request, mut cmd: Box<Command>) {
        cmd.set(r.op, r.sector, r.len_sectors, r.kind.flags());
        cmd.begin_owners(r.owner);
        if let Some(zone) = r.lock {
            cmd.zone = zone.0;
        }
        self.send(cmd);
    }
}
