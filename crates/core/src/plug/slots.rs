//! Where parked writes wait: linked lists in one table, so that a plug costs three words and parking needs no
//! allocation once the table has grown to its high-water mark.

use super::{Kind, NONE};
use crate::bio::Bio;

#[derive(Debug)]
pub(crate) struct Slot {
    bio: Option<Box<Bio>>,
    next: u32,
    pub(crate) len_sectors: u32,
    /// The queue of the BIO: read instead of the BIO itself, which is in another core's cache.
    pub(crate) queue: u32,
    pub(crate) kind: Kind,
}

const _: () = assert!(size_of::<Slot>() == 24);

#[derive(Debug)]
pub(crate) struct Slots {
    slots: Vec<Slot>,
    free: u32,
}

impl Default for Slots {
    fn default() -> Self {
        Slots { slots: Vec::new(), free: NONE }
    }
}

impl Slots {
    /// Makes room for `n` slots in all.
    pub(crate) fn reserve(&mut self, n: usize) {
        while self.slots.len() < n {
            self.grow();
        }
    }

    #[cold]
    fn grow(&mut self) {
        let i = self.slots.len() as u32;
        let none = Slot { bio: None, next: self.free, len_sectors: 0, queue: 0, kind: Kind(0) };
        self.slots.push(none);
        self.free = i;
    }

    /// Puts a BIO in a slot and returns its number.
    #[inline]
    pub(crate) fn put(&mut self, bio: Box<Bio>, kind: Kind) -> u32 {
        if self.free == NONE {
            self.grow();
        }
        let i = self.free;
        let s = &mut self.slots[i as usize];
        self.free = s.next;
        s.len_sectors = bio.len_sectors;
        s.queue = bio.queue;
        s.kind = kind;
        s.next = NONE;
        s.bio = Some(bio);
        i
    }

    /// Makes `next` follow `i`.
    #[inline]
    pub(crate) fn link(&mut self, i: u32, next: u32) {
        self.slots[i as usize].next = next;
    }

    #[inline]
    pub(crate) fn get(&self, i: u32) -> &Slot {
        &self.slots[i as usize]
    }

    /// Empties slot `i` and returns its BIO and the slot that followed it.
    #[inline]
    pub(crate) fn take(&mut self, i: u32) -> (Box<Bio>, u32) {
        let s = &mut self.slots[i as usize];
        let next = s.next;
        s.next = self.free;
        self.free = i;
        (s.bio.take().expect("a linked slot holds a BIO"), next)
    }
}
