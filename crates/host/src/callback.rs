//! Calls code of a client, such as its waker. A panic of that code must end no thread of this crate.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs `f`, on which nothing of this crate depends. Returns `None` if it panics.
pub(crate) fn contain_panic<T>(f: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(f)).ok()
}
