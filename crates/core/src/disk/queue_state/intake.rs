//! The BIOs that one queue has taken from its client and not given back yet: how many there are, and those that ended
//! without the device.

use crate::bio::{Bio, Bios};

/// The BIOs that one queue has taken from its client.
#[derive(Debug)]
pub(crate) struct Intake {
    /// Most BIOs at a time.
    depth: u32,
    /// BIOs that were taken and are not back with the client.
    outstanding: u32,
    /// The disk was frozen when BIOs were last submitted, so the client waits for the end of the freeze.
    turned_away: bool,
    /// BIOs that have ended without the device. The next poll returns them.
    early: Vec<Box<Bio>>,
}

impl Intake {
    pub(crate) fn new(depth: u32, room: usize) -> Intake {
        Intake { depth, outstanding: 0, turned_away: false, early: Vec::with_capacity(room) }
    }

    /// Returns how many BIOs were taken and are not back with the client.
    #[inline]
    pub(crate) fn outstanding(&self) -> u32 {
        self.outstanding
    }

    /// Returns how many BIOs can be taken now.
    #[inline]
    pub(crate) fn room(&self) -> u32 {
        self.depth - self.outstanding
    }

    #[inline]
    pub(crate) fn has_room(&self) -> bool {
        self.outstanding < self.depth
    }

    /// Counts a BIO that was taken.
    #[inline]
    pub(crate) fn took_one(&mut self) {
        self.outstanding += 1;
    }

    /// Counts `nr` BIOs as back with the client. A faulty device may have made up some of them.
    #[inline]
    pub(crate) fn gave_back(&mut self, nr: u32) {
        self.outstanding = self.outstanding.saturating_sub(nr);
    }

    /// Takes nothing any more. Returns the depth that the queue had.
    #[inline]
    pub(crate) fn close(&mut self) -> u32 {
        std::mem::take(&mut self.depth)
    }

    /// Keeps a BIO that has ended without the device for the next poll.
    #[inline]
    pub(crate) fn ended(&mut self, bio: Box<Bio>) {
        self.early.push(bio);
    }

    /// Keeps BIOs that were returned while the client was not there. The next poll returns them again.
    pub(crate) fn keep(&mut self, done: &mut Bios) {
        self.outstanding += done.len() as u32;
        for mut bio in done.drain(..) {
            bio.in_flight = true;
            self.early.push(bio);
        }
    }

    /// Returns how many BIOs have ended without the device.
    #[inline]
    pub(crate) fn nr_ended(&self) -> usize {
        self.early.len()
    }

    /// Takes the list of BIOs that have ended without the device.
    #[inline]
    pub(crate) fn take_ended(&mut self) -> Vec<Box<Bio>> {
        std::mem::take(&mut self.early)
    }

    /// Puts that list back, emptied, so that nothing is allocated the next time.
    #[inline]
    pub(crate) fn put_list(&mut self, list: Vec<Box<Bio>>) {
        // A part is never refused, so no BIO has ended while the list was away.
        debug_assert!(self.early.is_empty() && list.is_empty());
        self.early = list;
    }

    /// Notes that the disk is frozen and takes nothing. `more`: whether the client had something to submit.
    #[inline]
    pub(crate) fn turn_away(&mut self, more: bool) {
        self.turned_away = more;
    }

    /// Returns whether a client that was turned away can submit again. True once for each end of a freeze.
    #[inline]
    pub(crate) fn is_thawed(&mut self, frozen: bool) -> bool {
        let thawed = self.turned_away && !frozen;
        self.turned_away &= frozen;
        thawed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bio::Op;
    use crate::unit::Sector;

    #[test]
    fn what_is_kept_is_outstanding_again() {
        let mut intake = Intake::new(2, 2);
        intake.took_one();
        intake.gave_back(1);
        let mut done = Bios::from([Bio::new(Op::Flush, Sector(0), 0)]);
        intake.keep(&mut done);
        assert_eq!((intake.outstanding(), intake.room(), intake.nr_ended()), (1, 1, 1));
        let mut list = intake.take_ended();
        assert!(list[0].in_flight, "it is the engine's until the client has it");
        list.drain(..).for_each(|mut bio| bio.in_flight = false);
        intake.put_list(list);
        assert_eq!(intake.nr_ended(), 0);
    }

    #[test]
    fn a_thaw_is_said_once_and_only_to_a_client_that_was_turned_away() {
        let mut intake = Intake::new(2, 2);
        assert!(!intake.is_thawed(false));
        intake.turn_away(true);
        assert!(!intake.is_thawed(true), "the disk is frozen");
        assert!(intake.is_thawed(false));
        assert!(!intake.is_thawed(false));
        intake.turn_away(false);
        assert!(!intake.is_thawed(false), "the client had nothing to submit");
    }
}
