//! Queues: many operations at a time, from one thread, without waiting and without copying.

use crate::blocking::pieces;
use crate::boundary::{Failure, Outcome, Process, call};
use crate::disk::{MAX_DEPTH, disk, zp_disk};
use crate::types::{
    ALL_FLAGS, ZP_COMPLETION_MEMORY_BACK, ZP_COMPLETION_MEMORY_LENT, ZP_OP_READ, ZP_OP_WRITE,
    ZP_OP_ZONE_APPEND, ZP_STATUS_IO, zp_completion, zp_op,
};
use libc::{c_int, c_void, iovec};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;
use zoneplug_core::zone::ZONE_RECORD_LEN;
use zoneplug_core::{Bio, BioPool, Bios, Flags, IoBuf, IoRange, Op, Sector};
use zoneplug_host::{Client, WakeFd};

/// Every operation, by its number.
const OPS: [Op; 12] = Op::ALL;

/// Whether the flags are some that exist, and the reserved field is 0.
#[inline]
fn known(op: &zp_op) -> bool {
    op.flags & !ALL_FLAGS == 0 && op.reserved == 0
}

/// Whether the operation, if it moves data, has nothing that [`QueueState::unusual`] must look at.
#[inline]
fn is_simple(op: &zp_op) -> bool {
    let odd = u32::from(op.flags & !ALL_FLAGS) | u32::from(op.reserved) | op.iovcnt | op.len & 511;
    odd == 0 && op.len != 0 && !op.buf.is_null()
}

/// One operation that a queue has room for. Its BIO has the slot's number as its token.
struct Slot {
    user_data: u64,
    /// The memory that the BIO took with it. `None`: the slot is free.
    lent: Option<IoRange>,
}

/// A queue of operations. It belongs to the thread that opened it.
pub struct zp_queue {
    // What any thread may read, because it never changes.
    process: Process,
    owner: ThreadMark,
    state: QueueState,
}

/// What only the owner uses.
struct QueueState {
    client: Client,
    slots: Vec<Slot>,
    /// The BIOs of the slots that are not in use.
    free: BioPool,
    /// Accepted, and not yet taken by the disk, which is frozen.
    list: Bios,
    /// Finished, and not yet returned.
    done: Bios,
    /// Slots whose operation has ended, while the device still has their memory.
    late: Vec<u32>,
    /// With a descriptor: what makes it readable.
    bell: Option<(Arc<WakeFd>, Waker)>,
}

/// Which thread: the address of its control block, which no two threads have at a time.
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
        let tags = disk.tags.unwrap_or(depth as u16);
        let client = disk.hosted()?.open_client(depth, tags)?;
        let slot = |_| Slot { user_data: 0, lent: None };
        let mut state = QueueState {
            client,
            slots: (0..depth).map(slot).collect(),
            free: BioPool::default(),
            list: Bios::with_capacity(depth as usize),
            done: Bios::with_capacity(depth as usize),
            late: Vec::new(),
            bell: None,
        };
        (0..depth).rev().for_each(|n| state.free.put(new_bio(n)));
        let new = zp_queue { process: Process::this(), owner: ThreadMark::this(), state };
        // SAFETY: not null, and the place of a pointer, says the header.
        unsafe { queue.write(Box::into_raw(Box::new(new))) };
        Ok(0)
    })
}

/// Waits until nothing of the queue is in flight, at most `timeout_ms` (-1: without end), and closes it. Completions that
/// were not fetched are lost; the memory of all operations is the caller's again. -EBUSY if something is still in
/// flight: then the queue stays open. NULL is allowed. In a child of a fork this does nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zp_queue_close(queue: *mut zp_queue, timeout_ms: c_int) -> c_int {
    call(|| {
        // SAFETY: null or open, says the header.
        if queue.is_null() || unsafe { (*queue).process }.is_other() {
            return Ok(0);
        }
        // SAFETY: an open queue, says the header.
        let this = unsafe { self::queue(queue)? };
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
        let mut taken = 0;
        while taken < nr {
            // SAFETY: the array has `nr` elements, and each one's memory is there until it completes, says the header.
            let op = unsafe { &*ops.add(taken as usize) };
            // SAFETY: the same.
            if !unsafe { this.accept(op) } {
                if taken == 0 {
                    // SAFETY: the same.
                    return Err(unsafe { this.refusal(op) });
                }
                break;
            }
            taken += 1;
        }
        this.client.submit(&mut this.list);
        if this.bell.is_some() {
            this.watch();
        }
        Ok(taken as c_int)
    })
}

#[cold]
fn full() -> Failure {
    Failure::new(libc::EAGAIN, "the queue is full", "poll it, or open a deeper one")
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
        this.wait(min as usize, wait_limit(timeout_ms));
        // SAFETY: the array has `max` elements, says the header.
        Ok(unsafe { this.poll(completions, max) } as c_int)
    })
}

/// A descriptor that becomes readable when `zp_queue_poll` should be called, for poll(2), epoll(7) and event loops. The
/// library reads it; the program only waits for it, and does not close it: it lives as long as the queue. Call
/// `zp_queue_poll` until it returns 0 before each sleep. The first call makes the descriptor. -EMFILE: too many files.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zp_queue_fd(queue: *mut zp_queue) -> c_int {
    call(|| {
        // SAFETY: an open queue, says the header.
        let this = unsafe { self::queue(queue)? };
        if this.bell.is_none() {
            let bell = WakeFd::new().map_err(|e| {
                let errno = e.raw_os_error().unwrap_or(libc::EMFILE);
                Failure::new(errno, &format!("no descriptor: {e}"), "a higher limit of open files")
            })?;
            let waker = Waker::from(bell.clone());
            this.bell = Some((bell, waker));
            this.watch();
        }
        let fd = this.bell.as_ref().map(|(bell, _)| bell.as_fd().as_raw_fd());
        Ok(fd.unwrap_or(-libc::EMFILE))
    })
}

/// How many operations were submitted whose completions have not been fetched.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zp_queue_in_flight(queue: *mut zp_queue) -> c_int {
    call(|| {
        // SAFETY: an open queue, says the header.
        let this = unsafe { self::queue(queue)? };
        Ok((this.slots.len() - this.free.len()) as c_int)
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

/// The BIO of a slot.
fn new_bio(slot: u32) -> Box<Bio> {
    let mut bio = Bio::new(Op::Flush, Sector(0), 0);
    bio.set_token(u64::from(slot));
    bio
}

impl QueueState {
    /// Puts an operation into a slot and at the end of the list. False: it is wrong, or no slot is free.
    ///
    /// # Safety
    ///
    /// What `op` points to is as the header says, until the operation completes.
    #[inline(always)]
    unsafe fn accept(&mut self, op: &zp_op) -> bool {
        // SAFETY: the caller's promise: memory that nothing writes.
        let shared = || unsafe { IoBuf::new_shared(op.buf.cast(), op.len) };
        let (kind, buf) = match op.op {
            _ if !is_simple(op) => (Op::Flush, IoBuf::empty()),
            ZP_OP_WRITE => (Op::Write, shared()),
            ZP_OP_ZONE_APPEND => (Op::ZoneAppend, shared()),
            // SAFETY: the caller's promise: memory that is the library's alone.
            ZP_OP_READ => (Op::Read, unsafe { IoBuf::new(op.buf.cast(), op.len) }),
            _ => (Op::Flush, IoBuf::empty()),
        };
        let (kind, len_sectors, buf) = if kind != Op::Flush {
            (kind, op.len >> 9, buf)
        } else {
            // SAFETY: the caller's promise.
            match unsafe { Self::unusual(op) } {
                Ok(unusual) => unusual,
                Err(_) => return false,
            }
        };
        if self.free.is_empty() {
            return false;
        }
        let mut bio = self.free.get();
        // SAFETY: only BIOs whose slot was found are put among the free ones.
        let slot = unsafe { self.slots.get_unchecked_mut(bio.token() as usize) };
        *slot = Slot { user_data: op.user_data, lent: Some(buf.range()) };
        bio.set(kind, Sector(op.sector), len_sectors, buf);
        bio.flags = Flags(op.flags as u8);
        self.list.push_back(bio);
        true
    }

    /// Why [`QueueState::accept`] refuses.
    ///
    /// # Safety
    ///
    /// As [`QueueState::accept`].
    #[cold]
    unsafe fn refusal(&self, op: &zp_op) -> Failure {
        // SAFETY: the caller's promise.
        match unsafe { Self::unusual(op) } {
            Err(e) => e,
            Ok(_) => full(),
        }
    }

    /// What to do, the length and the memory of any operation.
    ///
    /// # Safety
    ///
    /// As [`QueueState::accept`].
    #[cold]
    unsafe fn unusual(op: &zp_op) -> Outcome<(Op, u32, IoBuf)> {
        let kind = OPS.get(usize::from(op.op)).filter(|_| known(op));
        let Some(&kind) = kind else { return Err(unknown(op)) };
        let is_report = kind == Op::ReportZones;
        if !kind.has_data() && !is_report {
            let ranged = !matches!(kind, Op::Flush | Op::ZoneResetAll);
            return Ok((kind, if ranged { op.nr_sectors } else { 0 }, IoBuf::empty()));
        }
        let unit = if is_report { ZONE_RECORD_LEN as u32 } else { 512 };
        if op.buf.is_null() || op.len == 0 || !op.len.is_multiple_of(unit) {
            return Err(bad_memory(op));
        }
        if is_report {
            // SAFETY: the caller's promise: an array that is the library's alone.
            return Ok((kind, 0, unsafe { IoBuf::new(op.buf.cast(), op.len) }));
        }
        if op.iovcnt == 0 {
            // SAFETY: the caller's promise: memory that is the library's alone, or that nothing writes.
            let buf = unsafe {
                match kind {
                    Op::Read => IoBuf::new(op.buf.cast(), op.len),
                    _ => IoBuf::new_shared(op.buf.cast(), op.len),
                }
            };
            return Ok((kind, op.len >> 9, buf));
        }
        let iov: *const iovec = op.buf.cast::<iovec>().cast_const();
        let iovcnt = c_int::try_from(op.iovcnt).unwrap_or(c_int::MAX);
        // SAFETY: the caller's promise: a list of that length.
        let (_, sum) = unsafe { pieces(iov, iovcnt) }?;
        if sum != op.len || sum >= u32::MAX - 1 {
            return Err(bad_memory(op));
        }
        // SAFETY: a `Segment` is laid out as a `struct iovec`; the list and what it names are as the header says.
        let buf = unsafe {
            match kind {
                Op::Read => IoBuf::from_segments(iov.cast(), sum),
                _ => IoBuf::from_shared_segments(iov.cast(), sum),
            }
        };
        Ok((kind, sum >> 9, buf))
    }

    /// Takes what has finished.
    ///
    /// # Safety
    ///
    /// The array has `max` elements.
    #[inline(always)]
    unsafe fn poll(&mut self, completions: *mut zp_completion, max: u32) -> u32 {
        if self.bell.is_some() || !self.list.is_empty() || !self.late.is_empty() {
            // SAFETY: the caller's promise.
            return unsafe { self.poll_unusual(completions, max) };
        }
        if self.done.is_empty() {
            self.client.poll(&mut self.done);
        }
        // SAFETY: the caller's promise.
        unsafe { self.fetch(completions, max) }
    }

    /// [`QueueState::poll`] with a descriptor, after a freeze, or where memory comes late.
    ///
    /// # Safety
    ///
    /// The array has `max` elements.
    #[cold]
    unsafe fn poll_unusual(&mut self, completions: *mut zp_completion, max: u32) -> u32 {
        if let Some((bell, _)) = &self.bell {
            bell.clear();
        }
        if self.done.is_empty() {
            // A disk that was frozen may take more now.
            self.client.submit(&mut self.list);
            self.client.poll(&mut self.done);
        }
        // SAFETY: the caller's promise.
        let mut n = unsafe { self.fetch(completions, max) };
        self.watch();
        if n == 0 {
            // SAFETY: the caller's promise.
            n = unsafe { self.fetch(completions, max) };
        }
        // SAFETY: the caller's promise, for the rest of the array.
        n + unsafe { self.fetch_late(completions.add(n as usize), max - n) }
    }

    /// Moves what has finished to the array.
    ///
    /// # Safety
    ///
    /// The array has `max` elements.
    #[inline(always)]
    unsafe fn fetch(&mut self, completions: *mut zp_completion, max: u32) -> u32 {
        let mut at = completions;
        // SAFETY: the array's end.
        let end_of_array = unsafe { completions.add(max as usize) };
        // One by one: a drain costs more where one operation has finished, and hardly less where many have.
        while at != end_of_array
            && let Some(bio) = self.done.pop_front()
        {
            // SAFETY: there is room before the end of the array.
            unsafe {
                if end(&mut self.slots, &mut self.free, &mut self.late, bio, at) {
                    at = at.add(1);
                }
            }
        }
        // SAFETY: both are in the array.
        unsafe { at.offset_from_unsigned(completions) as u32 }
    }

    /// Completions for memory that has come back after its operation.
    ///
    /// # Safety
    ///
    /// The array has `max` elements.
    #[cold]
    unsafe fn fetch_late(&mut self, completions: *mut zp_completion, max: u32) -> u32 {
        let mut n = 0;
        let mut at = 0;
        while n < max && at < self.late.len() {
            let number = self.late[at];
            let slot = &mut self.slots[number as usize];
            if slot.lent.is_some_and(|lent| self.client.reclaim_late(lent).is_none()) {
                at += 1;
                continue;
            }
            self.late.swap_remove(at);
            slot.lent = None;
            self.free.put(new_bio(number));
            let one = zp_completion {
                user_data: slot.user_data,
                sector: 0,
                result: 0,
                nr_zones: 0,
                status: 0,
                flags: ZP_COMPLETION_MEMORY_BACK,
                reserved: [0; 6],
            };
            // SAFETY: `n` is below `max`.
            unsafe { completions.add(n as usize).write(one) };
            n += 1;
        }
        n
    }

    /// Waits until `min` BIOs have finished, at most `limit`.
    fn wait(&mut self, min: usize, limit: Option<Duration>) {
        let end = limit.and_then(|l| std::time::Instant::now().checked_add(l));
        while self.done.len() < min {
            let left = end.map(|e| e.saturating_duration_since(std::time::Instant::now()));
            self.client.submit(&mut self.list);
            if self.client.outstanding() > 0 {
                self.client.wait(&mut self.done, 1, left);
            } else if !self.list.is_empty() {
                // Frozen.
                self.client.wait_thaw(left);
            } else {
                break;
            }
            if left == Some(Duration::ZERO) {
                break;
            }
        }
    }

    /// Makes sure that the descriptor becomes readable when something finishes.
    fn watch(&mut self) {
        let Some((bell, waker)) = &self.bell else { return };
        if self.client.outstanding() == 0 && self.list.is_empty() {
            self.client.disarm();
        } else if self.client.arm(waker) {
            // What finished before is seen here; what finishes later rings.
            self.client.poll(&mut self.done);
        } else {
            std::task::Wake::wake_by_ref(bell);
        }
        if !self.done.is_empty() {
            std::task::Wake::wake_by_ref(bell);
        }
    }

    /// Ends all operations, and drops their completions.
    fn drain(&mut self, limit: Option<Duration>) -> Outcome<()> {
        let end = limit.and_then(|l| std::time::Instant::now().checked_add(l));
        loop {
            let mut dropped = zp_completion::default();
            // SAFETY: an array of one.
            while unsafe { self.fetch(&raw mut dropped, 1) } > 0 {}
            let QueueState { late, slots, client, .. } = self;
            late.retain(|n| {
                let lent = slots[*n as usize].lent;
                lent.is_some_and(|lent| client.reclaim_late(lent).is_none())
            });
            let left = end.map(|e| e.saturating_duration_since(std::time::Instant::now()));
            let in_flight = self.list.len() + self.client.outstanding() as usize;
            if in_flight == 0 && self.late.is_empty() {
                return Ok(());
            }
            if left == Some(Duration::ZERO) {
                let n = in_flight + self.late.len();
                return Err(Failure::new(
                    libc::EBUSY,
                    &format!("{n} operations or their memory are still with the device"),
                    "wait longer: zp_queue_close again",
                ));
            }
            if in_flight > 0 {
                self.wait(1, left);
            } else {
                // The reactor looks for late memory every 50 ms.
                std::thread::sleep(left.map_or(LATE_LOOK, |l| l.min(LATE_LOOK)));
            }
        }
    }
}

/// Gives a BIO that has finished back to its slot, and writes its completion. False: a faulty device has made it up.
///
/// # Safety
///
/// `completion` is the place of one.
#[inline(always)]
unsafe fn end(
    slots: &mut [Slot],
    free: &mut BioPool,
    late: &mut Vec<u32>,
    bio: Box<Bio>,
    completion: *mut zp_completion,
) -> bool {
    let n = bio.token() as usize;
    let Some(slot) = slots.get_mut(n) else { return false };
    let Some(lent) = slot.lent else { return false };
    let status = bio.status;
    // SAFETY: the caller's promise.
    let one = unsafe {
        completion.write(zp_completion {
            user_data: slot.user_data,
            sector: bio.sector.0,
            result: if status.is_ok() { 0 } else { -status.errno() },
            nr_zones: bio.result,
            status: status as u8,
            flags: 0,
            reserved: [0; 6],
        });
        &mut *completion
    };
    if bio.data().range() == lent {
        slot.lent = None;
        free.put(bio);
    } else {
        late.push(n as u32);
        end_late(one);
    }
    true
}

/// An operation has ended without its memory.
#[cold]
fn end_late(one: &mut zp_completion) {
    one.flags = ZP_COMPLETION_MEMORY_LENT;
    if one.result == 0 {
        // No success: a faulty device kept the memory.
        one.result = -libc::EIO;
        one.status = ZP_STATUS_IO;
    }
}

/// How often closing looks for memory that comes late.
const LATE_LOOK: Duration = Duration::from_millis(10);

#[cold]
fn unknown(op: &zp_op) -> Failure {
    let what = format!("operation {} with the flags {:#x}", op.op, op.flags);
    Failure::invalid(&what, "ZP_OP_* and the flags of zoneplug.h, with `reserved` 0")
}

#[cold]
fn bad_memory(op: &zp_op) -> Failure {
    let what = format!("{} bytes at {:?} in {} pieces", op.len, op.buf.cast::<c_void>(), op.iovcnt);
    Failure::invalid(&what, "memory of whole sectors of 512 bytes; `len` is the sum of the pieces")
}
