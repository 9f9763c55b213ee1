//! Changes of a plug for which early writes of its zone wait.
//!
//! Early writes (`window.rs`) wait until the write pointer moves, a new generation begins, or the zone takes no writes
//! any more. The functions that do any of this are those of [`PlugChange`]. Only [`Shard::change`] hands out a
//! `PlugChange`, and it makes the early writes of the zone follow before it returns. So a change that leaves them as
//! they were does not compile.
//!
//! To park or send a write is no such change. [`Plug::admit`](super::Plug::admit) moves the write pointer too, but
//! refuses every write of a zone that has early ones. So the usual path of a BIO does not come here.

use super::Admit;
use super::shard::{PlugChange, Shard};
use super::window::{AdmittedEarly, OrderWindow};
use crate::bio::Bio;
use crate::unit::ZoneNo;
use std::ops::DerefMut;

impl Shard {
    /// Changes plug `i`, that of `zone`, by `change`. If the zone has early writes, locks the window, and makes them
    /// follow ([`OrderWindow::follow_plug`]).
    #[inline]
    pub(crate) fn change<R, W: DerefMut<Target = OrderWindow>>(
        &mut self,
        i: usize,
        zone: ZoneNo,
        change: impl FnOnce(&mut PlugChange<'_>) -> R,
        window: impl FnOnce() -> W,
        ended: &mut Vec<Box<Bio>>,
    ) -> (R, AdmittedEarly) {
        let result = change(&mut self.begin_change(i));
        let early = match self.plugs[i].has_early() {
            true => window().follow_plug(zone, self, i, ended),
            false => AdmittedEarly::default(),
        };
        (result, early)
    }
}

impl PlugChange<'_> {
    /// Like [`Plug::admit`](super::Plug::admit), also for a zone that has early writes. The caller parks an admitted
    /// write within the same change.
    pub(crate) fn admit(&mut self, offset: u32, len: u32) -> Admit {
        let i = self.i;
        self.plugs[i].admit_beside_early(offset, len)
    }
}
