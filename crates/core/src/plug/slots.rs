//! The table of parked writes. Linked lists of runs share one table, so the list of a plug takes three words. Parking
//! allocates nothing once the table has grown to its final size.
//!
//! A run is the contiguous BIOs of one kind that one client submitted in one call, no longer than one command.
//! Sector, length and kind are copied into the slot, so that neither parking nor sending a run touches its BIOs,
//! which are in another core's cache. Each slot keeps the room of its list, so nothing is allocated after warm-up.

use super::{Kind, NONE};
use crate::bio::{Bio, Flags};
use crate::unit::Sector;

#[derive(Debug)]
pub(crate) struct Slot {
    bios: Vec<Box<Bio>>,
    next: u32,
    /// The start of the run. Copied, so that its first BIO need not be read.
    pub(crate) sector: Sector,
    /// Length of the whole run.
    pub(crate) len_sectors: u32,
    /// The queue of the BIOs.
    pub(crate) queue: u32,
    pub(crate) kind: Kind,
}

impl Slot {
    /// The flags of its first BIO.
    pub(crate) fn flags(&self) -> Flags {
        self.bios.first().map_or(Flags::NONE, |b| b.flags)
    }

    /// Returns the number of BIOs.
    pub(crate) fn nr(&self) -> u32 {
        self.bios.len() as u32
    }
}

#[derive(Debug)]
pub(crate) struct Slots {
    slots: Vec<Slot>,
    free: u32,
}

/// Moves handles from one list to the end of another. Most runs are one BIO long and need no call of `append`.
#[inline]
fn move_all(from: &mut Vec<Box<Bio>>, to: &mut Vec<Box<Bio>>) {
    if from.len() > 1 {
        to.append(from);
    } else if let Some(bio) = from.pop() {
        to.push(bio);
    }
}

impl Default for Slots {
    fn default() -> Self {
        Slots { slots: Vec::new(), free: NONE }
    }
}

impl Slots {
    /// Makes room for `n` slots in total.
    pub(crate) fn reserve(&mut self, n: usize) {
        while self.slots.len() < n {
            self.grow();
        }
    }

    #[cold]
    fn grow(&mut self) {
        let i = self.slots.len() as u32;
        let none = Slot {
            bios: Vec::with_capacity(4),
            next: self.free,
            sector: Sector(0),
            len_sectors: 0,
            queue: 0,
            kind: Kind(0),
        };
        self.slots.push(none);
        self.free = i;
    }

    /// Puts a run in a slot and returns the number of the slot. Leaves `run` empty.
    #[inline(always)]
    pub(crate) fn put(
        &mut self,
        run: &mut Vec<Box<Bio>>,
        len_sectors: u32,
        queue: u32,
        kind: Kind,
    ) -> u32 {
        if self.free == NONE {
            self.grow();
        }
        let i = self.free;
        let s = &mut self.slots[i as usize];
        self.free = s.next;
        s.sector = run[0].sector;
        s.len_sectors = len_sectors;
        s.queue = queue;
        s.kind = kind;
        s.next = NONE;
        move_all(run, &mut s.bios);
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

    /// The slot that follows `i`.
    #[cfg(test)]
    pub(crate) fn next(&self, i: u32) -> u32 {
        self.slots[i as usize].next
    }

    /// Empties slot `i`: its BIOs go to the end of `into`. Returns the slot that followed it.
    #[inline]
    pub(crate) fn take(&mut self, i: u32, into: &mut Vec<Box<Bio>>) -> u32 {
        let s = &mut self.slots[i as usize];
        let next = s.next;
        s.next = self.free;
        self.free = i;
        move_all(&mut s.bios, into);
        next
    }
}
