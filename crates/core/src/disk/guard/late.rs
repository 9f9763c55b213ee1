//! The tickets of commands that were given up and may still be at a device. They tell clients when the memory of
//! their BIOs is free again.
//!
//! A BIO that comes back before the device is done with it carries a ticket ([`Bio::late`](crate::Bio::late)).
//! Tickets belong to the disk, not to a queue: the queue that completes a write sends the next parked one, so a BIO
//! may be late on a queue that its owner has never used. `inflight.rs` opens and closes tickets, and clients ask
//! whether they are open. None of this is on the usual path of a BIO.

use crate::bio::Late;
use crate::disk::events::EventLog;
use crate::sync::{AtomicU64, Mutex, Ordering, lock};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use zoneplug_buf::{IoBuf, IoRange, Parts};

/// The ticket of commands that never come back, because the device's queue that had them has panicked.
pub(crate) const FOREVER: u32 = u32::MAX;

#[derive(Debug, Default)]
struct Inner {
    last: u32,
    /// Tickets of commands that are late.
    open: BTreeSet<u32>,
    /// Tickets of split BIOs with several late parts, and the tickets of these parts.
    joined: BTreeMap<u32, Vec<u32>>,
    /// Memory that devices have given back late, for its lenders.
    back: Vec<IoBuf>,
    /// Memory of split BIOs that have completed while parts of them are late.
    split: Vec<Parts>,
}

impl Inner {
    fn is_open(&self, ticket: u32) -> bool {
        ticket == FOREVER || self.open.contains(&ticket) || self.joined.contains_key(&ticket)
    }

    /// Takes back memory: a part of a split BIO's memory, or a lender's whole range.
    fn take_back(&mut self, mut buf: IoBuf) {
        for i in 0..self.split.len() {
            match self.split[i].put_back(buf) {
                Err(other) => buf = other,
                Ok(()) => {
                    match self.split.swap_remove(i).join() {
                        Ok(whole) => self.back.push(whole),
                        Err(parts) => self.split.push(parts),
                    }
                    return;
                }
            }
        }
        self.back.push(buf);
    }

    /// Returns the number of a ticket that is not open.
    fn unused_ticket(&mut self) -> u32 {
        loop {
            self.last = self.last.wrapping_add(1);
            if self.last != 0 && !self.is_open(self.last) {
                return self.last;
            }
        }
    }
}

/// The tickets of a disk, and how many commands and queues it has given up so far.
#[derive(Debug, Default)]
pub(crate) struct LateTable {
    inner: Mutex<Inner>,
    /// How many commands were given up.
    pub(crate) timeouts: AtomicU64,
    /// How many queues of the device have panicked.
    pub(crate) dead_queues: AtomicU64,
    /// The log that records late commands and dead queues.
    pub(crate) events: Arc<EventLog>,
}

impl LateTable {
    pub(crate) fn new(events: Arc<EventLog>) -> LateTable {
        LateTable { events, ..LateTable::default() }
    }

    /// Opens a ticket for a command that is given up.
    pub(crate) fn open(&self) -> u32 {
        self.timeouts.fetch_add(1, Ordering::Relaxed);
        let mut inner = lock(&self.inner);
        let ticket = inner.unused_ticket();
        inner.open.insert(ticket);
        ticket
    }

    /// Takes memory of a command that has come back after it was given up.
    pub(crate) fn give_back(&self, buf: IoBuf) {
        if !buf.is_empty() {
            lock(&self.inner).take_back(buf);
        }
    }

    /// Takes the memory of a split BIO that completes while parts of it are late. Returns the whole memory if these
    /// parts have come back by now.
    pub(crate) fn expect(&self, mut parts: Parts) -> Option<IoBuf> {
        let mut inner = lock(&self.inner);
        let mut others = Vec::new();
        for buf in inner.back.drain(..) {
            others.extend(parts.put_back(buf).err());
        }
        inner.back = others;
        match parts.join() {
            Ok(whole) => Some(whole),
            Err(parts) => {
                inner.split.push(parts);
                None
            }
        }
    }

    /// Returns the memory of exactly this range if it has come back. Returns it once.
    pub(crate) fn reclaim(&self, lent: IoRange) -> Option<IoBuf> {
        let back = &mut lock(&self.inner).back;
        let i = back.iter().position(|b| b.range() == lent)?;
        Some(back.swap_remove(i))
    }

    /// Closes the ticket of a command that has come back with all of its memory.
    pub(crate) fn close(&self, ticket: u32) {
        let mut inner = lock(&self.inner);
        inner.open.remove(&ticket);
        inner.joined.retain(|_, parts| {
            parts.retain(|t| *t != ticket);
            !parts.is_empty()
        });
    }

    /// Returns a ticket that is open while one of the two is; 0 is none. Afterwards `whole` is not valid any more.
    pub(crate) fn join(&self, whole: u32, part: u32) -> u32 {
        let mut guard = lock(&self.inner);
        let inner = &mut *guard;
        let open = |t: u32| if t != 0 && inner.is_open(t) { t } else { 0 };
        match (open(whole), open(part)) {
            (0, t) | (t, 0) => t,
            (a, b) if a == FOREVER || b == FOREVER => FOREVER,
            (a, b) if a == b => a,
            (a, b) => {
                if let Some(parts) = inner.joined.get_mut(&a) {
                    parts.push(b);
                    return a;
                }
                let ticket = inner.unused_ticket();
                inner.joined.insert(ticket, vec![a, b]);
                ticket
            }
        }
    }

    pub(crate) fn is_open(&self, ticket: Late) -> bool {
        lock(&self.inner).is_open(ticket.number())
    }

    /// Returns how many commands are late now.
    pub(crate) fn len(&self) -> u64 {
        lock(&self.inner).open.len() as u64
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    fn is_open(t: &LateTable, ticket: u32) -> bool {
        Late::of(ticket).is_some_and(|l| t.is_open(l))
    }

    #[test]
    fn a_joined_ticket_waits_for_all_its_parts() {
        let t = LateTable::default();
        let (a, b, c) = (t.open(), t.open(), t.open());
        let ab = t.join(t.join(0, a), b);
        let abc = t.join(ab, c);
        assert!(is_open(&t, abc) && abc != a && abc != b);
        t.close(b);
        t.close(a);
        assert!(is_open(&t, abc) && is_open(&t, c) && !is_open(&t, a));
        t.close(c);
        assert!(!is_open(&t, abc));
        assert_eq!((t.len(), t.join(abc, a)), (0, 0), "nothing is late any more");
    }

    #[test]
    fn what_never_comes_back_is_late_for_ever() {
        let t = LateTable::default();
        let a = t.open();
        let both = t.join(a, FOREVER);
        t.close(a);
        assert!(is_open(&t, both));
        assert_eq!(t.join(FOREVER, 0), FOREVER);
    }

    #[test]
    fn numbers_are_used_again_but_not_those_in_use() {
        let t = LateTable::default();
        let a = t.open();
        lock(&t.inner).last = u32::MAX - 2;
        let (b, c) = (t.open(), t.open());
        assert_eq!(
            (a, b, c),
            (1, u32::MAX - 1, 2),
            "neither 0, nor the one for ever, nor one in use"
        );
    }
}
