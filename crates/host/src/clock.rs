//! The monotonic clock.

use std::time::Instant;
use zoneplug_core::Nanos;

/// A clock that counts nanoseconds since it was made. Reading it takes tens of nanoseconds, so callers read it once
/// for a batch, and only if they use the time.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    start: Instant,
}

impl Clock {
    /// A clock that starts now.
    pub fn start() -> Clock {
        Clock { start: Instant::now() }
    }

    /// The time since the clock was made.
    #[inline]
    pub fn now(&self) -> Nanos {
        Nanos(self.start.elapsed().as_nanos() as u64)
    }
}
