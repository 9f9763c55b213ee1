//! Changes of a plug for which early writes of its zone wait.
//!
//! Early writes (`window.rs`) wait until the write pointer moves, a new generation begins, or the zone takes no writes
//! any more. The functions that do any of this are those of [`PlugChange`]. Only [`Shard::change`] hands out a
//! `PlugChange`, and it settles the early writes of the zone before it returns. So a change that leaves them as they
//! were does not compile.
//!
//! To park or send a write is no such change. [`Plug::admit`](super::Plug::admit) moves the write pointer too, but
//! refuses every write of a zone that has early ones. So the usual path of a BIO does not come here.

use super::window::{OrderWindow, Settled};
use super::{Admit, Shard};
use crate::bio::Bio;
use crate::unit::ZoneNo;
use std::ops::{Deref, DerefMut};

/// A plug that is being changed, and its shard.
pub(crate) struct PlugChange<'a> {
    pub(super) shard: &'a mut Shard,
    pub(super) i: usize,
}

impl Deref for PlugChange<'_> {
    type Target = Shard;

    #[inline]
    fn deref(&self) -> &Shard {
        self.shard
    }
}

impl DerefMut for PlugChange<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Shard {
        self.shard
    }
}

impl Shard {
    /// Changes plug `i`, that of `zone`, by `change`. If the zone has early writes, locks the window, and settles them
    /// ([`OrderWindow::settle`]).
    #[inline]
    pub(crate) fn change<R, W: DerefMut<Target = OrderWindow>>(
        &mut self,
        (i, zone): (usize, ZoneNo),
        change: impl FnOnce(&mut PlugChange<'_>) -> R,
        window: impl FnOnce() -> W,
        ended: &mut Vec<Box<Bio>>,
    ) -> (R, Settled) {
        let result = change(&mut self.unsettled(i));
        let settled = match self.plugs[i].has_early() {
            true => window().settle(zone, self, i, ended),
            false => Settled::default(),
        };
        (result, settled)
    }

    /// Begins a change of plug `i` without its end, for [`Shard::change`] and for tests of one plug.
    #[inline]
    pub(super) fn unsettled(&mut self, i: usize) -> PlugChange<'_> {
        PlugChange { shard: self, i }
    }
}

impl PlugChange<'_> {
    /// Returns the index of the plug in its shard.
    #[inline]
    pub(crate) fn index(&self) -> usize {
        self.i
    }

    /// Like [`Plug::admit`](super::Plug::admit), also for a zone that has early writes. The caller parks an admitted
    /// write within the same change.
    pub(crate) fn admit(&mut self, offset: u32, len: u32) -> Admit {
        let i = self.i;
        self.plugs[i].admit_beside_early(offset, len)
    }
}
