//! The operations of a queue: turns an operation from C into a BIO, and the BIO into a completion.

use crate::boundary::{Failure, Outcome, Uncancelled};
use crate::memory::pieces;
use crate::types::{
    ALL_FLAGS, ZP_COMPLETION_MEMORY_BACK, ZP_COMPLETION_MEMORY_LENT, ZP_OP_READ,
    ZP_OP_REPORT_ZONES, ZP_OP_WRITE, ZP_OP_ZONE_APPEND, ZP_STATUS_IO, zp_completion, zp_op,
};
use libc::{c_int, c_void, iovec};
use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};
use zoneplug_core::zone::ZONE_RECORD_LEN;
use zoneplug_core::{Bio, BioPool, Bios, Flags, IoBuf, IoRange, Op, Sector};
use zoneplug_host::{Client, WakeFd};

/// Every operation, by its number.
const OPS: [Op; 12] = Op::ALL;

/// Whether all flags exist, and the reserved field is 0.
#[inline]
fn known(op: &zp_op) -> bool {
    op.flags & !ALL_FLAGS == 0 && op.reserved == 0
}

/// Whether the operation, if it moves data, needs none of the checks of [`QueueState::unusual`].
#[inline]
fn is_simple(op: &zp_op) -> bool {
    let odd = u32::from(op.flags & !ALL_FLAGS) | u32::from(op.reserved) | op.iovcnt | op.len & 511;
    odd == 0 && op.len != 0 && !op.buf.is_null()
}

/// The state of one operation of a queue. Its BIO has the slot's number as its token.
struct Slot {
    user_data: u64,
    /// The memory that the BIO has. `None`: the slot is free, or it is in the list of late ones and its memory is
    /// back.
    lent: Option<IoRange>,
}

/// The part of a queue that only its owner uses.
pub(crate) struct QueueState {
    client: Client,
    slots: Vec<Slot>,
    /// The BIOs of free slots.
    free: BioPool,
    /// Operations that were accepted, and that the disk has not taken yet because it is frozen.
    list: Bios,
    /// BIOs that have finished, and were not returned yet.
    done: Bios,
    /// Slots whose operation has ended, while the device still has their memory.
    late: Vec<u32>,
    /// Completions that a failed close has fetched; the queue stays open.
    kept: VecDeque<zp_completion>,
    /// Makes the descriptor readable, if there is one.
    bell: Option<(Arc<WakeFd>, Waker)>,
}

/// The BIO of a slot.
fn new_bio(slot: u32) -> Box<Bio> {
    let mut bio = Bio::new(Op::Flush, Sector(0), 0);
    bio.set_token(u64::from(slot));
    bio
}

impl QueueState {
    /// A queue of `depth` operations.
    pub(crate) fn new(client: Client, depth: u32) -> QueueState {
        let mut free = BioPool::default();
        (0..depth).rev().for_each(|n| free.put(new_bio(n)));
        QueueState {
            client,
            slots: (0..depth).map(|_| Slot { user_data: 0, lent: None }).collect(),
            free,
            list: Bios::with_capacity(depth as usize),
            done: Bios::with_capacity(depth as usize),
            late: Vec::new(),
            kept: VecDeque::new(),
            bell: None,
        }
    }

    /// The number of operations whose completions have not been fetched.
    pub(crate) fn in_flight(&self) -> usize {
        // An operation whose memory is late still has a slot in use.
        let ended = self.kept.iter().filter(|c| c.flags != ZP_COMPLETION_MEMORY_LENT);
        self.slots.len() - self.free.len() + ended.count()
    }

    /// Takes operations from the front of an array, and returns how many.
    ///
    /// # Safety
    ///
    /// The array has `nr` elements. Until the library gives the memory of an operation back, the pointers of the
    /// operation are valid as zoneplug.h says. The completion gives the memory back, unless it has
    /// [`ZP_COMPLETION_MEMORY_LENT`]; then only the one with `ZP_COMPLETION_MEMORY_BACK` does.
    #[inline(always)]
    pub(crate) unsafe fn submit(&mut self, ops: *const zp_op, nr: u32) -> Outcome<c_int> {
        let mut taken = 0;
        while taken < nr {
            // SAFETY: below `nr`.
            let op = unsafe { &*ops.add(taken as usize) };
            // SAFETY: the caller's promise.
            if !unsafe { self.accept(op) } {
                if taken == 0 {
                    // SAFETY: the same.
                    return Err(unsafe { self.refusal(op) });
                }
                break;
            }
            taken += 1;
        }
        self.client.submit(&mut self.list);
        if self.bell.is_some() {
            let _whole = Uncancelled::begin();
            self.watch();
        }
        Ok(taken as c_int)
    }

    /// The descriptor, which the first call makes.
    pub(crate) fn descriptor(&mut self) -> Outcome<c_int> {
        if let Some((bell, _)) = &self.bell {
            return Ok(bell.as_fd().as_raw_fd());
        }
        let bell = WakeFd::new().map_err(|e| Failure::no_descriptor(&e))?;
        let fd = bell.as_fd().as_raw_fd();
        self.bell = Some((bell.clone(), Waker::from(bell)));
        self.watch();
        Ok(fd)
    }

    /// Puts an operation into a slot and at the end of the list. False: the operation is wrong, or no slot is free.
    ///
    /// # Safety
    ///
    /// Until the library gives the memory back, the pointers of `op` are valid: see [`QueueState::submit`].
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

    /// Why [`QueueState::accept`] refuses an operation.
    ///
    /// # Safety
    ///
    /// The contract of [`QueueState::accept`].
    #[cold]
    unsafe fn refusal(&self, op: &zp_op) -> Failure {
        // SAFETY: the caller's promise.
        match unsafe { Self::unusual(op) } {
            Err(e) => e,
            Ok(_) => full(),
        }
    }

    /// The kind, the length and the memory of any operation.
    ///
    /// # Safety
    ///
    /// The contract of [`QueueState::accept`].
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
            if op.iovcnt != 0 {
                let what = format!("a report into {} pieces of memory", op.iovcnt);
                return Err(Failure::invalid(&what, "one array of struct zp_zone; `iovcnt` is 0"));
            }
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

    /// Stores completions of finished operations in the array. Returns their number.
    ///
    /// # Safety
    ///
    /// The array has `max` elements.
    #[inline(always)]
    pub(crate) unsafe fn poll(&mut self, completions: *mut zp_completion, max: u32) -> u32 {
        if self.bell.is_some()
            || !self.list.is_empty()
            || !self.late.is_empty()
            || !self.kept.is_empty()
        {
            // SAFETY: the caller's promise.
            return unsafe { self.poll_unusual(completions, max) };
        }
        if self.done.is_empty() {
            self.client.poll(&mut self.done);
        }
        // SAFETY: the caller's promise.
        unsafe { self.fetch(completions, max) }
    }

    /// [`QueueState::poll`] for a queue with a descriptor, after a freeze, or with late memory.
    ///
    /// # Safety
    ///
    /// The array has `max` elements.
    #[cold]
    unsafe fn poll_unusual(&mut self, completions: *mut zp_completion, max: u32) -> u32 {
        let _whole = Uncancelled::begin();
        if let Some((bell, _)) = &self.bell {
            bell.clear();
        }
        let mut kept = 0;
        while kept < max
            && let Some(one) = self.kept.pop_front()
        {
            // SAFETY: `kept` is below `max`.
            unsafe { completions.add(kept as usize).write(one) };
            kept += 1;
        }
        // SAFETY: the caller's promise.
        let (completions, max) = (unsafe { completions.add(kept as usize) }, max - kept);
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
        kept + n + unsafe { self.fetch_late(completions.add(n as usize), max - n) }
    }

    /// Moves completions of finished BIOs to the array. Returns their number.
    ///
    /// # Safety
    ///
    /// The array has `max` elements.
    #[inline(always)]
    unsafe fn fetch(&mut self, completions: *mut zp_completion, max: u32) -> u32 {
        let mut at = completions;
        // SAFETY: the array's end.
        let end_of_array = unsafe { completions.add(max as usize) };
        // BIOs are taken one by one: a drain costs more if one has finished, and saves little if many have.
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

    /// Stores completions for memory that has come back after its operation.
    ///
    /// # Safety
    ///
    /// The array has `max` elements.
    #[cold]
    unsafe fn fetch_late(&mut self, completions: *mut zp_completion, max: u32) -> u32 {
        let back = self.look_for_late();
        let mut n = 0;
        let mut at = 0;
        while n < max.min(back) && at < self.late.len() {
            let number = self.late[at];
            let slot = &self.slots[number as usize];
            if slot.lent.is_some() {
                at += 1;
                continue;
            }
            let one = zp_completion {
                user_data: slot.user_data,
                flags: ZP_COMPLETION_MEMORY_BACK,
                ..zp_completion::default()
            };
            self.late.swap_remove(at);
            self.free.put(new_bio(number));
            // SAFETY: `n` is below `max`.
            unsafe { completions.add(n as usize).write(one) };
            n += 1;
        }
        n
    }

    /// Takes late memory back. Returns the number of operations whose memory is back and has not been announced.
    fn look_for_late(&mut self) -> u32 {
        let QueueState { late, slots, client, .. } = self;
        let mut back = 0;
        for n in late {
            let slot = &mut slots[*n as usize];
            slot.lent = slot.lent.filter(|lent| client.reclaim_late(*lent).is_none());
            back += u32::from(slot.lent.is_none());
        }
        back
    }

    /// Waits until there are `min` completions, at most `limit`.
    pub(crate) fn wait(&mut self, min: usize, limit: Option<Duration>) {
        let end = limit.and_then(|l| Instant::now().checked_add(l));
        loop {
            let there = self.done.len() + self.kept.len() + self.look_for_late() as usize;
            let left = end.map(|e| e.saturating_duration_since(Instant::now()));
            if there >= min || !self.wait_for_more(left) || left == Some(Duration::ZERO) {
                break;
            }
        }
    }

    /// Waits for a BIO to finish, a disk to thaw or late memory to come back, at most `left`. May return early.
    /// False: there is nothing to wait for.
    fn wait_for_more(&mut self, left: Option<Duration>) -> bool {
        self.client.submit(&mut self.list);
        let short = left.map_or(LATE_LOOK, |l| l.min(LATE_LOOK));
        let until = if self.late.is_empty() { left } else { Some(short) };
        if self.client.outstanding() > 0 {
            self.client.wait(&mut self.done, 1, until);
        } else if !self.list.is_empty() {
            // The disk is frozen.
            self.client.wait_thaw(until);
        } else if !self.late.is_empty() {
            std::thread::sleep(short);
        } else {
            return false;
        }
        true
    }

    /// Makes the descriptor readable when an operation finishes.
    fn watch(&mut self) {
        let Some((bell, waker)) = &self.bell else { return };
        if self.client.outstanding() == 0 && self.list.is_empty() {
            self.client.disarm();
        } else if self.client.arm(waker) {
            // This poll sees BIOs that finished before; later ones make the descriptor readable.
            self.client.poll(&mut self.done);
        } else {
            std::task::Wake::wake_by_ref(bell);
        }
        if !self.done.is_empty() {
            std::task::Wake::wake_by_ref(bell);
        }
    }

    /// Waits until the library uses no memory of operations. After an error the queue is as before: it has all
    /// completions.
    pub(crate) fn drain(&mut self, limit: Option<Duration>) -> Outcome<()> {
        let end = limit.and_then(|l| Instant::now().checked_add(l));
        loop {
            // Only the completion of a finished operation shows whether its memory is late.
            let mut one = zp_completion::default();
            // SAFETY: an array of one.
            while unsafe { self.fetch(&raw mut one, 1) } > 0 {
                self.kept.push_back(one);
            }
            let back = self.look_for_late() as usize;
            let in_flight = self.list.len() + self.client.outstanding() as usize;
            let n = in_flight + self.late.len() - back;
            if n == 0 {
                return Ok(());
            }
            let left = end.map(|e| e.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return Err(Failure::new(
                    libc::EBUSY,
                    &format!("still with the device: operations, or their memory: {n}"),
                    "wait longer: zp_queue_close again",
                ));
            }
            self.wait_for_more(left);
        }
    }
}

/// Returns a finished BIO to its slot, and writes its completion. False: a faulty device has made up the BIO.
///
/// # Safety
///
/// `completion` is the place of a completion.
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
            nr_zones: if bio.op == Op::ReportZones { bio.result } else { 0 },
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

/// Marks the completion of an operation that has ended without its memory.
#[cold]
fn end_late(one: &mut zp_completion) {
    one.flags = ZP_COMPLETION_MEMORY_LENT;
    if one.result == 0 {
        // The operation did not succeed: a faulty device kept the memory.
        one.result = -libc::EIO;
        one.status = ZP_STATUS_IO;
    }
}

/// The interval at which a wait checks for late memory.
const LATE_LOOK: Duration = Duration::from_millis(10);

#[cold]
fn unknown(op: &zp_op) -> Failure {
    let what = format!("operation {} with the flags {:#x}", op.op, op.flags);
    Failure::invalid(&what, "ZP_OP_* and the flags of zoneplug.h, with `reserved` 0")
}

#[cold]
fn bad_memory(op: &zp_op) -> Failure {
    let bytes = format!("{} bytes at {:?}", op.len, op.buf.cast::<c_void>());
    if op.op == ZP_OP_REPORT_ZONES {
        let hint = "an array of struct zp_zone; `len` is a multiple of its size";
        return Failure::invalid(&format!("{bytes} for a report"), hint);
    }
    if op.iovcnt == 0 {
        return Failure::invalid(&bytes, "memory of whole sectors of 512 bytes");
    }
    let what = format!("{bytes} in {} pieces", op.iovcnt);
    Failure::invalid(&what, "memory of whole sectors of 512 bytes; `len` is the sum of the pieces")
}

#[cold]
fn full() -> Failure {
    Failure::new(libc::EAGAIN, "the queue is full", "poll it, or open a deeper one")
}
