//! Ends a run early on request.

use crate::time::{Client, Finished, Io};
use crate::workers::Workers;
use zoneplug_core::zone::Geometry;
use zoneplug_core::{Nanos, ZoneNo};

/// A client that sends nothing, and ends its run when the workers are asked to end.
pub(crate) struct Watch<'a>(pub(crate) Workers<'a>);

impl Watch<'_> {
    /// Virtual time between two checks.
    const STEP: Nanos = Nanos(10_000_000);
}

impl Client for Watch<'_> {
    fn prepare(&mut self, _: &Geometry) -> Vec<(ZoneNo, u32)> {
        Vec::new()
    }

    fn start(&mut self, io: &mut Io) {
        io.after(Self::STEP, 0);
    }

    fn finished(&mut self, _: &mut Io, _: Finished) {}

    fn timer(&mut self, io: &mut Io, _: u32) {
        match self.0.is_asked() {
            true => io.end(Ok(())),
            false => io.after(Self::STEP, 0),
        }
    }
}
