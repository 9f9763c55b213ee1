//! Times of threads: sleep until a device has something, processor time.

use nix::time::{ClockId, clock_gettime};
use std::time::Duration;
use zoneplug_core::Nanos;

/// Sleeps while the next event is far off, so that a polling thread does not use up its share of a busy machine.
/// Wakes early enough to poll in time, as a rule.
pub(crate) fn nap(now: Nanos, deadline: Option<Nanos>) {
    const EARLY: u64 = 150_000;
    if let Some(deadline) = deadline {
        let left = deadline.0.saturating_sub(now.0);
        if left > EARLY * 4 / 3 {
            std::thread::sleep(Duration::from_nanos(left - EARLY));
        }
    }
}

/// CPU time of this thread, in nanoseconds.
pub(crate) fn thread_cpu() -> u64 {
    cpu(ClockId::CLOCK_THREAD_CPUTIME_ID)
}

/// CPU time of this process, in nanoseconds.
#[cfg(feature = "models")]
pub(crate) fn process_cpu() -> u64 {
    cpu(ClockId::CLOCK_PROCESS_CPUTIME_ID)
}

fn cpu(clock: ClockId) -> u64 {
    // Every Linux kernel has both clocks.
    let time = clock_gettime(clock).unwrap_or_else(|e| unreachable!("{e}"));
    Duration::from(time).as_nanos() as u64
}
