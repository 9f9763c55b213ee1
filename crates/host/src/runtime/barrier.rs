//! A pair of memory barriers of which one is free: membarrier(2) makes every running thread of the process execute a
//! barrier, so the threads that pass often need none of their own.
//!
//! The pair orders stores before later loads. If two threads each store, pass their barrier, and load the word that
//! the other has stored, at least one sees the other's store.

use std::sync::atomic::{AtomicU8, Ordering, compiler_fence, fence};

/// Calls membarrier(2), and returns whether it succeeded.
fn membarrier(command: libc::c_int) -> bool {
    // SAFETY: no argument is an address, and the call changes no memory of the process.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

/// Whether the system has the call. If not, both barriers are ordinary ones.
pub(crate) fn has_membarrier() -> bool {
    const UNKNOWN: u8 = 2;
    /// There is no lock, because a child of a fork would wait for a thread that exists in its parent only. Threads
    /// that ask at the same time get the same answer.
    static HAS: AtomicU8 = AtomicU8::new(UNKNOWN);
    match HAS.load(Ordering::Relaxed) {
        UNKNOWN => {
            let has = membarrier(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED);
            HAS.store(u8::from(has), Ordering::Relaxed);
            has
        }
        known => known != 0,
    }
}

/// The barrier of the thread that passes often. `free`: the result of [`has_membarrier`].
#[inline(always)]
pub(crate) fn light(free: bool) {
    if free {
        compiler_fence(Ordering::SeqCst);
    } else {
        fence(Ordering::SeqCst);
    }
}

/// The barrier of the thread that passes rarely, with the same `free`. Returns false, and orders nothing, if the
/// system refuses the call, as a seccomp filter does that was installed later.
#[cold]
pub(crate) fn heavy(free: bool) -> bool {
    fence(Ordering::SeqCst);
    !free || membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel refuses the barrier to a process that has not registered for it.
    #[test]
    fn a_process_that_has_registered_gets_its_barrier() {
        assert!(heavy(has_membarrier()));
        assert!(heavy(false), "an ordinary barrier asks no system");
    }
}
