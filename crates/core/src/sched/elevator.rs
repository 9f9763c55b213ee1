//! The state of a disk with a scheduler: the requests that wait, and how many are at the device. It chooses the next
//! request.
//!
//! There is one for the whole disk, because a scheduler sorts across clients. A request that waits here holds no tag
//! of the device. A queue that has a free tag asks for the next request and sends it, whichever queue put it in.
//!
//! Plugs are above the scheduler. At most one write of a sequential zone is here (C2), as the number of its zone; its
//! BIOs go on merging in the plug. In `lock` mode there are no plugs: the writes themselves wait here until their
//! zone is not locked, and a queue may have as many here as it has tags (C1).
//!
//! `disk/dispatch/scheduler.rs` calls this with the elevator locked.

use super::deadline::Deadline;
use super::shuffle::Shuffle;
use super::table::{Dir, Request, Table};
use super::{DeadlineConfig, Scheduler};
use crate::bio::{Bio, Bios, Op};
use crate::plug::Merge;
use crate::unit::{Nanos, ZoneNo};

/// Attributes of the disk that configure the scheduler.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Setup {
    pub(crate) scheduler: Scheduler,
    pub(crate) deadline: DeadlineConfig,
    pub(crate) balance: Option<Balance>,
    /// Most requests at the device. 0: as many as there are tags.
    pub(crate) depth: u32,
    /// The number of zones, if zones are locked; else 0.
    pub(crate) locks: u32,
}

/// The times of writes and reads while both wait: `write` for writes, then `read` for reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Balance {
    /// The time for which writes are sent while reads wait.
    pub write: Nanos,
    /// The time for which reads are sent while writes wait.
    pub read: Nanos,
}

#[derive(Debug, Default)]
enum Order {
    #[default]
    None,
    Deadline(Box<Deadline>),
    Shuffle(Shuffle),
}

/// The scheduler of a disk, with its requests.
#[derive(Debug, Default)]
pub(crate) struct Elevator {
    setup: Setup,
    order: Order,
    table: Table,
    /// Number of waiting requests, by direction.
    queued: [u32; 2],
    /// Flushes, management and reports: ahead of all others.
    first: Bios,
    /// Number of requests at the device, by direction.
    flying: [u32; 3],
    /// A bit for each zone, set while the zone is locked.
    locked: Vec<u64>,
    /// The direction whose time it is, and when that began.
    phase: (usize, Nanos),
}

/// The scheduler's choice of the next request to send.
#[derive(Debug)]
pub(crate) enum NextRequest {
    /// A flush, management or report.
    Bio(Box<Bio>),
    /// A request. Its BIOs have been appended to the caller's list.
    Request(Request),
}

const READ: usize = Dir::Read as usize;
const WRITE: usize = Dir::Write as usize;

impl Elevator {
    /// Configures the scheduler. Another scheduler may be set only while no request waits.
    pub(crate) fn configure(&mut self, setup: Setup) {
        let empty = self.table.len() == 0 && self.first.is_empty();
        if setup.scheduler != self.setup.scheduler && empty {
            self.order = match setup.scheduler {
                Scheduler::None => Order::None,
                Scheduler::MqDeadline => Order::Deadline(Box::default()),
                Scheduler::Shuffle(seed) => Order::Shuffle(Shuffle::new(seed)),
            };
            self.flying = [0; 3];
        }
        if let Order::Deadline(d) = &mut self.order {
            d.config = setup.deadline;
        }
        self.locked.resize(setup.locks.div_ceil(64) as usize, 0);
        self.setup = setup;
    }

    /// Makes room for `n` waiting requests.
    pub(crate) fn reserve(&mut self, n: usize) {
        self.table.reserve(n);
        self.first.reserve(n);
        match &mut self.order {
            Order::Deadline(d) => d.reserve(n),
            Order::Shuffle(s) => s.reserve(n),
            Order::None => {}
        }
    }

    /// Takes a flush, management or report.
    pub(crate) fn insert_first(&mut self, bio: Box<Bio>) {
        self.first.push_back(bio);
    }

    /// Takes a request. Returns true if it was merged into another one (W15).
    pub(crate) fn insert(&mut self, request: Request, bio: Option<Box<Bio>>, merge: Merge) -> bool {
        let mut bio = bio;
        if request.lock.is_some()
            && let Order::Deadline(d) = &self.order
            && let Some(i) = d.ends_at(&self.table, request.class, request.sector)
            && self.merges(i, &request, merge)
            && let Some(bio) = bio.take()
        {
            self.table.merge(i, bio);
            return true;
        }
        self.queued[request.dir as usize] += 1;
        let i = self.table.put(request, bio);
        match &mut self.order {
            Order::Deadline(d) => d.insert(&mut self.table, i),
            Order::Shuffle(s) => s.insert(i),
            Order::None => debug_assert!(false, "a scheduler that is off has nothing to do"),
        }
        false
    }

    /// Returns whether a request that comes now would be sent at once: nothing waits, and the device takes one more.
    pub(crate) fn may_pass(&self) -> bool {
        let takes = self.setup.depth == 0 || self.flying.iter().sum::<u32>() < self.setup.depth;
        takes && self.waiting() == 0
    }

    /// Counts a request that is sent at once, without a balance and while [`Elevator::may_pass`]. What comes later is chosen as
    /// if this one had been inserted and chosen.
    pub(crate) fn sent_at_once(&mut self, request: &Request) {
        if let Order::Deadline(d) = &mut self.order {
            d.sent_at_once(request);
        }
        self.flying[request.dir as usize] += 1;
    }

    fn merges(&self, i: u32, new: &Request, merge: Merge) -> bool {
        let old = self.table.get(i);
        old.lock == new.lock
            && old.owner == new.owner
            && old.kind.merges(new.kind)
            && new.len_sectors <= merge.max_of(new.kind).saturating_sub(old.len_sectors)
            && self.table.nr_bios(i) < merge.max_bios
    }

    /// Returns the next request, if one may be sent now. It counts as being at the device from now on.
    pub(crate) fn next(&mut self, now: Nanos, bios: &mut Vec<Box<Bio>>) -> Option<NextRequest> {
        let flying: u32 = self.flying.iter().sum();
        if self.setup.depth != 0 && flying >= self.setup.depth {
            return None;
        }
        if let Some(bio) = self.first.pop_front() {
            self.flying[Dir::Other as usize] += 1;
            return Some(NextRequest::Bio(bio));
        }
        if self.table.len() == 0 {
            return None;
        }
        let allowed = self.allowed(now);
        let Elevator { table, order, locked, .. } = self;
        let may = |r: &Request| {
            let free = |z: ZoneNo| locked[(z.0 / 64) as usize] >> (z.0 % 64) & 1 == 0;
            allowed[r.dir as usize] && r.lock.is_none_or(free)
        };
        let mut i = match order {
            Order::Deadline(d) => d.next(table, now, &may)?,
            Order::Shuffle(s) => s.next(table, &may)?,
            Order::None => return None,
        };
        if table.get(i).lock.is_some() {
            i = Self::first_of_zone(table, order, i);
        }
        match order {
            Order::Deadline(d) => d.remove(table, i),
            Order::Shuffle(s) => s.remove(i),
            Order::None => {}
        }
        let request = table.take(i, bios);
        self.queued[request.dir as usize] -= 1;
        self.flying[request.dir as usize] += 1;
        if let Some(z) = request.lock {
            self.locked[(z.0 / 64) as usize] |= 1 << (z.0 % 64);
        }
        Some(NextRequest::Request(request))
    }

    /// Returns the first to arrive of the waiting writes of a locked zone. The order within a zone holds, whatever
    /// order the scheduler chooses.
    fn first_of_zone(table: &Table, order: &Order, i: u32) -> u32 {
        let zone = table.get(i).lock;
        match order {
            Order::Deadline(d) => d.first_of(table, |r| r.lock == zone).unwrap_or(i),
            Order::Shuffle(s) => s.first_of(table, |r| r.lock == zone).unwrap_or(i),
            Order::None => i,
        }
    }

    /// Returns the directions that may be sent now: both, or with a balance only the one whose time it is.
    fn allowed(&mut self, now: Nanos) -> [bool; 2] {
        let Some(balance) = self.setup.balance else { return [true; 2] };
        let (dir, since) = self.phase;
        let other = 1 - dir;
        let time = if dir == READ { balance.read } else { balance.write };
        // A direction keeps its time while it has something at the device, because the zone's next write may follow
        // it.
        let idle = self.queued[dir] == 0 && self.flying[dir] == 0;
        if self.queued[other] > 0 && (idle || now.0.saturating_sub(since.0) >= time.0) {
            self.phase = (other, now);
        } else if self.queued[other] == 0 && self.flying[other] == 0 {
            // The other direction has no request here or at the device, so the time of this direction starts again.
            self.phase = (dir, now);
        }
        [self.phase.0 == READ, self.phase.0 == WRITE]
    }

    /// Counts a command that has come back, or was not sent.
    pub(crate) fn ended(&mut self, op: Op, lock: Option<ZoneNo>) {
        let n = &mut self.flying[Dir::of(op) as usize];
        debug_assert!(*n > 0, "what ends has been sent");
        *n = n.saturating_sub(1);
        if let Some(z) = lock {
            self.locked[(z.0 / 64) as usize] &= !(1 << (z.0 % 64));
        }
    }

    /// Lets a command that has come back continue as another one, with the same place at the device.
    pub(crate) fn becomes(&mut self, from: Op, to: Op) {
        self.ended(from, None);
        self.flying[Dir::of(to) as usize] += 1;
    }

    /// Frees the place of a zone's write, because the zone had none left.
    pub(crate) fn not_sent(&mut self) {
        self.ended(Op::Write, None);
    }

    /// Returns how many requests wait.
    pub(crate) fn waiting(&self) -> u32 {
        self.table.len() + self.first.len() as u32
    }
}
