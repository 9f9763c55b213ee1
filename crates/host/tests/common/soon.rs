//! Waits for what another thread brings about.

use std::time::{Duration, Instant};

/// Waits until `f` returns true. Fails with `what` after ten seconds.
pub(crate) fn soon(what: &str, mut f: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !f() {
        assert!(begun.elapsed() < Duration::from_secs(10), "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
