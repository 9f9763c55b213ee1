//! Queues: many operations at a time, from one thread, without waiting and without copying.

use crate::boundary::{Failure, Outcome, Process, Uncancelled, call};
use crate::disk::{MAX_DEPTH, disk, zp_disk};
use crate::queue_state::QueueState;
use crate::types::{zp_completion, zp_op};
use libc::c_int;
use std::time::Duration;

/// A queue of operations. It belongs to the thread that opened it.
pub struct zp_queue {
    // The fields that any thread may read, because they never change.
    process: Process,
    owner: ThreadMark,
    state: QueueState,
}

/// Identifies a thread: the address of its control block, which no other thread has at the same time.
#[derive(PartialEq, Eq, Clone, Copy)]
struct ThreadMark(usize);

impl ThreadMark {
    #[inline]
    fn this() -> ThreadMark {
        #[cfg(target_arch = "x86_64")]
        {
            let mark: usize;
            // SAFETY: the ABI of x86-64 (thread-local storage) keeps the thread pointer at this place, for reading.
            unsafe {
                std::arch::asm!("mov {}, fs:0", out(reg) mark, options(nostack, preserves_flags, readonly, pure));
            }
            ThreadMark(mark)
        }
        #[cfg(not(target_arch = "x86_64"))]
        {
            thread_local!(static MARK: u8 = const { 0 });
            ThreadMark(MARK.with(|m| std::ptr::from_ref(m).addr()))
        }
    }
}

/// The queue that an argument names, for the thread that it belongs to.
///
/// # Safety
///
/// `queue` is null or open, and no other thread is in a call with it unless that call is refused here.
#[inline]
unsafe fn queue<'a>(queue: *mut zp_queue) -> Outcome<&'a mut QueueState> {
    if queue.is_null() {
        return Err(Failure::invalid("the queue is NULL", "what zp_queue_open gave"));
    }
    // SAFETY: the caller's promise: these two fields never change.
    let (process, owner) = unsafe { ((*queue).process, (*queue).owner) };
    process.check()?;
    if owner != ThreadMark::this() {
        return Err(other_thread());
    }
    // SAFETY: the caller's promise, and this is the one thread that may use it.
    Ok(unsafe { &mut (*queue).state })
}

#[cold]
fn other_thread() -> Failure {
    Failure::new(libc::EPERM, "the queue belongs to another thread", "a queue for each thread")
}

/// Opens a queue of `disk` for up to `depth` operations at a time, 1 to 4096, and stores it in `*queue`. It belongs to
/// the calling thread: calls by others are refused with -EPERM. It may outlive the disk's handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zp_queue_open(
    disk: *mut zp_disk,
    depth: u32,
    queue: *mut *mut zp_queue,
) -> c_int {
    call(|| {
        // SAFETY: an open disk, says the header.
        let disk = unsafe { self::disk(disk)? };
        if queue.is_null() {
            return Err(Failure::invalid("the place for the queue is NULL", "a pointer's address"));
        }
        if !(1..=MAX_DEPTH).contains(&depth) {
            return Err(Failure::invalid(&format!("a queue of {depth} operations"), "1 to 4096"));
        }
        let _whole = Uncancelled::begin();
        let tags = disk.tags.unwrap_or(depth as u16);
        let state = QueueState::new(disk.hosted()?.open_client(depth, tags)?, depth);
        let new = zp_queue { process: Process::this(), owner: ThreadMark::this(), state };
        // SAFETY: not null, and the place of a pointer, says the header.
        unsafe { queue.write(Box::into_raw(Box::new(new))) };
        Ok(0)
    })
}

/// Waits until nothing of the queue is in flight, at most `timeout_ms` (-1: without end), and closes it. Completions that
/// were not fetched are lost; the memory of all operations is the caller's again. -EBUSY if something is still in
/// flight: then the queue stays open, and has all its completions. NULL is allowed. In a child of a fork this does nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zp_queue_close(queue: *mut zp_queue, timeout_ms: c_int) -> c_int {
    call(|| {
        // SAFETY: null or open, says the header.
        if queue.is_null() || unsafe { (*queue).process }.is_other() {
            return Ok(0);
        }
        // SAFETY: an open queue, says the header.
        let this = unsafe { self::queue(queue)? };
        let _whole = Uncancelled::begin();
        this.drain(wait_limit(timeout_ms))?;
        // SAFETY: `this` is not used any more, and the caller gives the queue up.
        drop(unsafe { Box::from_raw(queue) });
        Ok(0)
    })
}

/// Submits `nr` operations in the order of the array, as writes to one zone need. Returns how many the queue took: fewer
/// if it is full, or if the next one is wrong, as a later call that begins with it says. -EAGAIN: it is full. -EINVAL:
/// the first operation is wrong in a way that needs no disk to see it, such as an unknown `op`. What the disk refuses
/// comes back as a completion.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zp_queue_submit(
    queue: *mut zp_queue,
    ops: *const zp_op,
    nr: u32,
) -> c_int {
    call(|| {
        // SAFETY: an open queue, says the header.
        let this = unsafe { self::queue(queue)? };
        if ops.is_null() && nr > 0 {
            return Err(Failure::invalid("the array of operations is NULL", "an array of zp_op"));
        }
        // SAFETY: the array has `nr` elements, and each one's memory is there until it completes, says the header.
        unsafe { this.submit(ops, nr) }
    })
}

/// Stores up to `max` completions in the array, without waiting, and returns how many. A queue whose thread sleeps
/// elsewhere makes progress too, but completions come only from here.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zp_queue_poll(
    queue: *mut zp_queue,
    completions: *mut zp_completion,
    max: u32,
) -> c_int {
    call(|| {
        // SAFETY: an open queue, says the header.
        let this = unsafe { self::queue(queue)? };
        check_array(completions, max)?;
        // SAFETY: the array has `max` elements, says the header.
        Ok(unsafe { this.poll(completions, max) } as c_int)
    })
}

/// As `zp_queue_poll`, but waits until there are `min` completions, nothing is in flight, or `timeout_ms` have passed
/// (-1: without end).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zp_queue_wait(
    queue: *mut zp_queue,
    completions: *mut zp_completion,
    min: u32,
    max: u32,
    timeout_ms: c_int,
) -> c_int {
    call(|| {
        // SAFETY: an open queue, says the header.
        let this = unsafe { self::queue(queue)? };
        check_array(completions, max)?;
        if min > max {
            return Err(Failure::invalid("more completions than the array holds", "min up to max"));
        }
        let _whole = Uncancelled::begin();
        this.wait(min as usize, wait_limit(timeout_ms));
        // SAFETY: the array has `max` elements, says the header.
        Ok(unsafe { this.poll(completions, max) } as c_int)
    })
}

/// A descriptor that becomes readable when `zp_queue_poll` should be called, for poll(2), epoll(7) and event loops. The
/// library reads it; the program only waits for it, does not close it, and takes it out of its epoll set before it closes
/// the queue. Call `zp_queue_poll` until it returns 0 before each sleep. The first call makes the descriptor. -EMFILE: too many files.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zp_queue_fd(queue: *mut zp_queue) -> c_int {
    call(|| {
        // SAFETY: an open queue, says the header.
        let this = unsafe { self::queue(queue)? };
        this.descriptor()
    })
}

/// How many operations were submitted whose completions have not been fetched.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zp_queue_in_flight(queue: *mut zp_queue) -> c_int {
    call(|| {
        // SAFETY: an open queue, says the header.
        let this = unsafe { self::queue(queue)? };
        Ok(this.in_flight() as c_int)
    })
}

fn check_array(completions: *mut zp_completion, max: u32) -> Outcome<()> {
    if completions.is_null() && max > 0 {
        return Err(Failure::invalid("the array of completions is NULL", "an array"));
    }
    Ok(())
}

fn wait_limit(timeout_ms: c_int) -> Option<Duration> {
    u64::try_from(timeout_ms).ok().map(Duration::from_millis)
}
