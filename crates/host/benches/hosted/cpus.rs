//! Which processors the threads run on.

use std::mem::{size_of, zeroed};

/// The processors that this process may use.
pub(crate) fn allowed() -> Vec<usize> {
    // SAFETY: all zeros is an empty set.
    let mut set: libc::cpu_set_t = unsafe { zeroed() };
    // SAFETY: the kernel writes no more than the size given, into `set`.
    let got = unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set) };
    assert_eq!(got, 0, "{}", std::io::Error::last_os_error());
    // SAFETY: `cpu` is below the size of the set.
    (0..libc::CPU_SETSIZE as usize).filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &set) }).collect()
}

/// Keeps the calling thread on one processor.
pub(crate) fn pin(cpu: usize) {
    // SAFETY: all zeros is an empty set.
    let mut set: libc::cpu_set_t = unsafe { zeroed() };
    // SAFETY: `cpu` is one of `allowed`, below the size of the set.
    unsafe { libc::CPU_SET(cpu, &mut set) };
    // SAFETY: the kernel reads no more than the size given, from `set`.
    let got = unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set) };
    assert_eq!(got, 0, "{}", std::io::Error::last_os_error());
}
