//! The tags of one queue: the commands that it sends, and which of them are free.
//!
//! An ordinary queue keeps its free tags in `free`, where all code finds them. On a disk with a single writer, a
//! scheduler or several writes of a zone in flight, `dispatch` moves them to `held`. The ordinary code then finds no
//! tag and puts its work into the backlog. So an ordinary queue pays nothing for the other kinds.

use crate::bio::Command;

/// The tags of one queue.
#[derive(Debug)]
pub(crate) struct Tags {
    nr: u16,
    /// Free tags that any code may take.
    free: Vec<Box<Command>>,
    /// Free tags that only `dispatch` hands out.
    held: Vec<Box<Command>>,
    /// In `lock` mode: requests of this queue in the scheduler or at the device, at most as many as it has tags.
    entered: u32,
}

impl Tags {
    /// Makes `nr` free tags, each with room for `bios` BIOs.
    pub(crate) fn new(nr: u16, bios: usize) -> Tags {
        Tags {
            nr,
            free: (0..nr).map(|_| Command::new(bios)).collect(),
            held: Vec::with_capacity(usize::from(nr)),
            entered: 0,
        }
    }

    /// Frees the memory of all tags but one. No tag may be in use. Where the layout has `dispatch` hold the tags,
    /// those of commands that have just ended stay.
    pub(crate) fn shrink(&mut self, arbitrated: bool) {
        debug_assert!(!self.any_out(), "a tag in use comes back");
        let list = if arbitrated { &mut self.held } else { &mut self.free };
        let before = list.len();
        list.truncate(1);
        list.shrink_to_fit();
        self.nr -= (before - list.len()) as u16;
    }

    /// Returns how many are free.
    #[inline]
    pub(crate) fn nr_free(&self) -> usize {
        self.free.len() + self.held.len()
    }

    /// Returns whether a command of this queue is at the device or on its way there.
    #[inline]
    pub(crate) fn any_out(&self) -> bool {
        self.nr_free() < usize::from(self.nr)
    }

    /// Returns how many commands of this queue are at the device. With zone locks a queue may also hold tags of
    /// another one.
    pub(crate) fn nr_out(&self) -> usize {
        usize::from(self.nr).saturating_sub(self.nr_free())
    }

    /// Returns how many BIOs can be sent now, besides the `waiting` ones that came before.
    #[inline]
    pub(crate) fn idle(&self, waiting: usize) -> usize {
        self.nr_free()
            .min(usize::from(self.nr).saturating_sub(self.entered as usize))
            .saturating_sub(waiting)
    }

    /// Returns whether [`Tags::take`] would find a tag.
    #[inline]
    pub(crate) fn any_free(&self) -> bool {
        !self.free.is_empty()
    }

    /// Takes a free tag. There is none while `dispatch` holds them.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<Box<Command>> {
        self.free.pop()
    }

    /// Frees the tag of a command that has ended.
    #[inline]
    pub(crate) fn put(&mut self, cmd: Box<Command>) {
        self.free.push(cmd);
    }

    /// Takes a tag that `dispatch` holds.
    #[inline]
    pub(crate) fn take_held(&mut self) -> Option<Box<Command>> {
        self.held.pop()
    }

    /// Puts back a tag that `dispatch` had no use for.
    #[inline]
    pub(crate) fn put_held(&mut self, cmd: Box<Command>) {
        self.held.push(cmd);
    }

    /// Puts the free tags where the layout wants them. The queue may have commands in flight.
    #[inline]
    pub(crate) fn place(&mut self, arbitrated: bool) {
        if arbitrated {
            self.hold();
        } else {
            self.free.append(&mut self.held);
        }
    }

    /// Returns whether a command has ended since the last [`Tags::hold`].
    #[inline]
    pub(crate) fn any_ended(&self) -> bool {
        !self.free.is_empty()
    }

    /// Moves the tags of commands that have ended to those that `dispatch` hands out.
    #[inline]
    pub(crate) fn hold(&mut self) {
        if !self.free.is_empty() {
            self.held.append(&mut self.free);
        }
    }

    /// The commands that have ended since the last [`Tags::hold`].
    #[inline]
    pub(crate) fn ended(&self) -> &[Box<Command>] {
        &self.free
    }

    /// In `lock` mode: whether one more request may enter the scheduler.
    #[inline]
    pub(crate) fn may_enter(&self) -> bool {
        self.entered < u32::from(self.nr)
    }

    /// In `lock` mode: counts a request of this queue that enters the scheduler.
    #[inline]
    pub(crate) fn enter(&mut self) {
        self.entered += 1;
    }

    /// In `lock` mode: counts `nr` requests of this queue as ended, on this queue or on others.
    #[inline]
    pub(crate) fn leave(&mut self, nr: u32) {
        debug_assert!(self.entered >= nr, "what comes back has entered");
        self.entered = self.entered.saturating_sub(nr);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A request that has entered the scheduler takes a tag's place, whether or not it has a command (C1).
    #[test]
    fn idle_tags_are_neither_taken_nor_entered_nor_waited_for() {
        let mut tags = Tags::new(4, 1);
        assert_eq!((tags.idle(0), tags.idle(3), tags.idle(9)), (4, 1, 0));
        let cmd = tags.take().expect("four are free");
        assert!(tags.any_out() && tags.idle(0) == 3);
        for _ in 0..3 {
            assert!(tags.may_enter());
            tags.enter();
        }
        assert_eq!(tags.idle(0), 1, "the fewer of free tags and places");
        tags.enter();
        assert!(!tags.may_enter() && tags.idle(0) == 0);
        tags.leave(4);
        tags.put(cmd);
        assert!(!tags.any_out() && tags.idle(0) == 4);
    }

    /// A queue that has shrunk can still carry out work that others leave to it.
    #[test]
    fn one_tag_is_left_wherever_the_free_ones_are() {
        for arbitrated in [false, true] {
            let mut tags = Tags::new(4, 1);
            tags.place(arbitrated);
            tags.shrink(arbitrated);
            assert_eq!((tags.nr_free(), tags.idle(0), tags.any_out()), (1, 1, false));
            assert_eq!(tags.any_ended(), !arbitrated, "nothing ends twice");
            assert!(tags.take().or_else(|| tags.take_held()).is_some());
            assert!(tags.any_out() && tags.nr_free() == 0);
        }
    }

    /// Free tags move when the layout changes. A tag in flight comes back to `free`, and counts as ended there.
    #[test]
    fn a_special_layout_holds_every_free_tag() {
        let mut tags = Tags::new(2, 1);
        let cmd = tags.take().expect("two are free");
        tags.place(true);
        assert!(tags.take().is_none() && !tags.any_ended() && tags.nr_free() == 1);
        tags.put(cmd);
        assert_eq!(tags.ended().len(), 1);
        tags.hold();
        assert!(!tags.any_ended() && tags.take_held().is_some());
        tags.place(false);
        assert!(tags.take().is_some() && tags.take_held().is_none());
    }
}
