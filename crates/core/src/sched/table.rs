//! The requests that wait in a scheduler. They are in one table, so that schedulers work with numbers. Nothing is
//! allocated once the table has grown to its final size.

use crate::bio::{Bio, MIXED, Op};
use crate::plug::Kind;
use crate::unit::{Nanos, Sector, ZoneNo};

/// No request.
pub(crate) const NONE: u32 = u32::MAX;
/// The number of priority classes.
pub(crate) const CLASSES: usize = 3;

/// The direction of a request's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dir {
    Read = 0,
    Write = 1,
    /// Flushes, management and reports, which go ahead of all others.
    Other = 2,
}

impl Dir {
    pub(crate) fn of(op: Op) -> Dir {
        match op {
            Op::Read => Dir::Read,
            Op::Write | Op::WriteZeroes | Op::ZoneAppend | Op::Discard => Dir::Write,
            _ => Dir::Other,
        }
    }
}

/// The content of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestContent {
    /// BIOs, which are in the request's slot.
    Bios,
    /// The next write of a plugged zone. Its BIOs stay in the plug and go on merging until it is sent.
    Zone(ZoneNo),
}

/// A request that waits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request {
    pub(crate) sector: Sector,
    pub(crate) len_sectors: u32,
    pub(crate) dir: Dir,
    /// The priority class: 0 is served before 1, and 1 before 2.
    pub(crate) class: u8,
    pub(crate) since: Nanos,
    /// In `lock` mode: the zone that must be locked before the request is sent.
    pub(crate) lock: Option<ZoneNo>,
    /// The queue of its BIOs.
    pub(crate) owner: u32,
    pub(crate) op: Op,
    pub(crate) kind: Kind,
    pub(crate) content: RequestContent,
}

impl Request {
    /// The next write of a plugged zone.
    pub(crate) fn of_zone(
        zone: ZoneNo,
        sector: Sector,
        len_sectors: u32,
        class: u8,
        since: Nanos,
    ) -> Request {
        Request {
            sector,
            len_sectors,
            dir: Dir::Write,
            class,
            since,
            lock: None,
            owner: MIXED,
            op: Op::Write,
            kind: Kind::PLAIN,
            content: RequestContent::Zone(zone),
        }
    }

    pub(crate) fn end(&self) -> Sector {
        self.sector.plus(u64::from(self.len_sectors))
    }
}

#[derive(Debug)]
struct Slot {
    request: Option<Request>,
    bios: Vec<Box<Bio>>,
    /// The neighbours in the order of arrival, among requests of the same class and direction.
    prev: u32,
    next: u32,
}

/// The requests, by number.
#[derive(Debug, Default)]
pub(crate) struct Table {
    slots: Vec<Slot>,
    free: Vec<u32>,
    len: u32,
}

/// A list in the order of arrival.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fifo {
    head: u32,
    tail: u32,
    pub(crate) len: u32,
}

impl Default for Fifo {
    fn default() -> Self {
        Fifo { head: NONE, tail: NONE, len: 0 }
    }
}

impl Table {
    /// Returns how many requests wait.
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    /// Makes room for `n` requests.
    pub(crate) fn reserve(&mut self, n: usize) {
        while self.slots.len() < n {
            let i = self.grow();
            self.free.push(i);
        }
    }

    #[cold]
    fn grow(&mut self) -> u32 {
        let none = Slot { request: None, bios: Vec::with_capacity(4), prev: NONE, next: NONE };
        self.slots.push(none);
        // Makes room for all slots to be free.
        self.free.reserve(self.slots.len() - self.free.len());
        self.slots.len() as u32 - 1
    }

    /// Takes a request and, if it has one, its BIO.
    pub(crate) fn put(&mut self, request: Request, bio: Option<Box<Bio>>) -> u32 {
        let i = match self.free.pop() {
            Some(i) => i,
            None => self.grow(),
        };
        let slot = &mut self.slots[i as usize];
        slot.request = Some(request);
        slot.bios.extend(bio);
        self.len += 1;
        i
    }

    /// Removes a request and returns it. Its BIOs go to the end of `bios`.
    pub(crate) fn take(&mut self, i: u32, bios: &mut Vec<Box<Bio>>) -> Request {
        let slot = &mut self.slots[i as usize];
        bios.append(&mut slot.bios);
        self.free.push(i);
        self.len -= 1;
        slot.request.take().expect("a request that waits")
    }

    pub(crate) fn get(&self, i: u32) -> &Request {
        self.slots[i as usize].request.as_ref().expect("a request that waits")
    }

    /// Returns how many BIOs a request has.
    pub(crate) fn nr_bios(&self, i: u32) -> u32 {
        self.slots[i as usize].bios.len() as u32
    }

    /// Merges a write into request `i`, which it continues.
    pub(crate) fn merge(&mut self, i: u32, bio: Box<Bio>) {
        let slot = &mut self.slots[i as usize];
        let request = slot.request.as_mut().expect("a request that waits");
        request.len_sectors += bio.len_sectors;
        slot.bios.push(bio);
    }

    /// Adds `i` to the end of `list`.
    pub(crate) fn append(&mut self, list: &mut Fifo, i: u32) {
        let slot = &mut self.slots[i as usize];
        (slot.prev, slot.next) = (list.tail, NONE);
        match list.tail {
            NONE => list.head = i,
            tail => self.slots[tail as usize].next = i,
        }
        list.tail = i;
        list.len += 1;
    }

    /// Takes `i` out of `list`.
    pub(crate) fn remove(&mut self, list: &mut Fifo, i: u32) {
        let (prev, next) = (self.slots[i as usize].prev, self.slots[i as usize].next);
        match prev {
            NONE => list.head = next,
            p => self.slots[p as usize].next = next,
        }
        match next {
            NONE => list.tail = prev,
            n => self.slots[n as usize].prev = prev,
        }
        list.len -= 1;
    }

    /// Returns the requests of `list`, in the order of arrival.
    pub(crate) fn iter(&self, list: &Fifo) -> impl Iterator<Item = u32> {
        let mut at = list.head;
        std::iter::from_fn(move || {
            let i = at;
            (i != NONE).then(|| {
                at = self.slots[i as usize].next;
                i
            })
        })
    }
}
