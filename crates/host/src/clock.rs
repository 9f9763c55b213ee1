//! The real clock.

use std::time::Instant;
use zoneplug_core::Nanos;

/// A clock that counts nanoseconds since it was made. Reading it takes tens of nanoseconds, so callers read it once
/// for a batch, and only if they use the time.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    start: Instant,
    timed: bool,
}

impl Clock {
    /// A clock that starts now. If `timed` is false, it always shows 0.
    pub fn new(timed: bool) -> Clock {
        Clock { start: Instant::now(), timed }
    }

    /// The time for a device.
    #[inline]
    pub fn now(&self) -> Nanos {
        if self.timed { self.elapsed() } else { Nanos(0) }
    }

    fn elapsed(&self) -> Nanos {
        Nanos(self.start.elapsed().as_nanos() as u64)
    }
}
