//! Calls code of a client, such as its waker. A panic of that code must end no thread of this crate.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs `f`. Returns `None` if it panics; no state of this crate depends on how far it got.
pub(crate) fn contain_panic<T>(f: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(f)).ok()
}
