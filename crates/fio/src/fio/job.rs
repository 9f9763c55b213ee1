//! A job of fio: one thread that submits and reaps.
//!
//! `queue` collects BIOs and `commit` passes them to the layer, one batch per device. fio commits after
//! `iodepth_batch` requests, and before it waits.

use super::abi::{self, Abi, File, IoU, TABLE, unlikely};
use super::engine::{Engine, Named, engine};
use super::jobs::{Full, Jobs};
use super::lane::{Lane, note};
use super::program::{Errno, Program, guard, say};
use core::ffi::{c_int, c_void};
use core::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use zoneplug_core::{Bytes, Op, Status};

/// The state of one fio job. Only the job's thread uses it.
struct Job {
    abi: &'static Abi,
    fio: &'static Program,
    units: usize,
    /// fio's files, and the index of the lane of each.
    files: Vec<(*mut c_void, usize)>,
    /// The file that was used last.
    file: (*mut c_void, usize),
    lanes: Vec<Lane>,
    /// Whether a lane has requests that are not submitted.
    queued: bool,
    /// Finished units, in the order in which fio gets them.
    events: Vec<*mut c_void>,
    /// The units that the last call of `getevents` offered, as indices of `events`. fio takes them
    /// by `event`; it has taken those before.
    offered: Range<usize>,
    /// Set when fio's memory was not as expected. The job then has no files, so that it does nothing.
    broken: bool,
}

impl Drop for Job {
    /// After the end of a job, fio uses its memory for something else, so the job waits for its devices.
    fn drop(&mut self) {
        self.await_devices();
    }
}

/// The file of a job that has used none. No file has this address.
const NO_FILE: (*mut c_void, usize) = (core::ptr::dangling_mut(), 0);

/// The jobs of fio, by the address of its `thread_data`.
static JOBS: Jobs<Job> = Jobs::new();

/// The job `td`, if its entry is the first that the search visits. `None`: only [`job_of`] can tell whether there is
/// one.
///
/// # Safety
/// `td` is what fio passes to a callback, in the job's thread. The caller uses no other reference to the job.
#[inline(always)]
unsafe fn job_at_hand<'a>(td: *mut c_void) -> Option<&'a mut Job> {
    // SAFETY: `td` is not null, so neither is the job. A job is removed before it is freed, and its thread is the only
    // user. fio's functions that are called from here come back into `reset_wp` at most, which does not look at the job.
    JOBS.at_home(td as usize).map(|job| unsafe { &mut *job })
}

/// The job `td`.
///
/// # Safety
/// As for [`job_at_hand`].
#[inline(always)]
unsafe fn job_of<'a>(td: *mut c_void) -> Option<&'a mut Job> {
    // SAFETY: as there.
    unsafe { job_at_hand(td).or_else(|| JOBS.get(td as usize).as_mut()) }
}

/// Runs `body` for the job `td`, or answers `or`.
///
/// # Safety
/// As for [`job_at_hand`].
#[inline(always)]
unsafe fn with_job<T: Copy>(td: *mut c_void, or: T, body: impl FnOnce(&mut Job) -> T) -> T {
    // SAFETY: the caller's promise.
    match unsafe { job_of(td) } {
        Some(job) => guard(or, || body(job)),
        None => or,
    }
}

// ---- from start to end ---------------------------------------------------------

pub(super) unsafe extern "C" fn init(td: *mut c_void) -> c_int {
    guard(libc::EIO, || {
        let Some(e) = engine() else { return libc::EIO };
        if !e.is_home() {
            say("the disk lives in fio's main process, and this job has a process of its own\n\
                 add --thread, so that jobs are threads of the main process");
            return libc::EINVAL;
        }
        let new = Box::into_raw(Box::new(Job::new(e.abi, &e.fio)));
        let (unused, answer) = match JOBS.set(td as usize, new) {
            Ok(old) => (old, 0),
            Err(Full) => {
                say("fio has more jobs than this engine knows it to have");
                (new, libc::EAGAIN)
            }
        };
        if !unused.is_null() {
            // SAFETY: made by `init`, and not used any more.
            drop(unsafe { Box::from_raw(unused) });
        }
        answer
    })
}

pub(super) unsafe extern "C" fn io_u_init(td: *mut c_void, u: *mut c_void) -> c_int {
    let body = |job: &mut Job| {
        // SAFETY: fio passes a unit it has just made.
        let unit = unsafe { IoU::new(job.abi, u) };
        if let Err(why) = abi::check_new_io_u(job.abi, unit, job.units as u32) {
            say(&why);
            return libc::EPROTO;
        }
        job.units += 1;
        job.lanes.iter_mut().for_each(|lane| lane.grow(job.units));
        0
    };
    // SAFETY: called by fio.
    unsafe { with_job(td, libc::EIO, body) }
}

pub(super) unsafe extern "C" fn open_file(td: *mut c_void, f: *mut c_void) -> c_int {
    let body = |job: &mut Job| {
        let Some(e) = engine() else { return 1 };
        // SAFETY: fio passes a file of this job.
        match unsafe { job.open(e, f) } {
            Ok(()) => 0,
            Err(why) => {
                say(&why);
                1
            }
        }
    };
    // SAFETY: called by fio.
    unsafe { with_job(td, 1, body) }
}

/// fio frees its buffers after its units, so this is the last moment to wait for requests in flight.
pub(super) unsafe extern "C" fn io_u_free(td: *mut c_void, _u: *mut c_void) {
    // SAFETY: called by fio.
    unsafe { with_job(td, (), Job::await_devices) }
}

pub(super) unsafe extern "C" fn cleanup(td: *mut c_void) {
    guard((), || {
        let job = JOBS.remove(td as usize);
        if !job.is_null() {
            // SAFETY: made in `init`; fio is done with the job.
            drop(unsafe { Box::from_raw(job) });
        }
    });
}

impl Job {
    fn new(abi: &'static Abi, fio: &'static Program) -> Job {
        Job {
            abi,
            fio,
            units: 0,
            files: Vec::new(),
            file: NO_FILE,
            lanes: Vec::new(),
            queued: false,
            events: Vec::new(),
            offered: 0..0,
            broken: false,
        }
    }

    /// # Safety
    /// `f` must be a file of this job.
    unsafe fn open(&mut self, e: &Engine, f: *mut c_void) -> Result<(), String> {
        if self.lane_of(f).is_some() {
            return Ok(());
        }
        if self.broken {
            return Err("this job has stopped".to_owned());
        }
        // SAFETY: the caller's promise.
        let (file, Named { device, appends }) = unsafe { e.device_of(f) }?;
        let zones = if device.zoned.load(Ordering::Relaxed) { device.whole_zones() } else { 0 };
        abi::check_opened_file(file, zones)?;
        let same = |l: &Lane| Arc::ptr_eq(&l.device, &device) && l.appends() == appends;
        let at = match self.lanes.iter().position(same) {
            Some(at) => at,
            None => {
                self.lanes.push(Lane::new(device, self.units.max(1), appends)?);
                self.lanes.len() - 1
            }
        };
        self.files.push((f, at));
        Ok(())
    }

    /// The lane of a file. A file that is appended to never becomes the file that was used last, so [`queue_transfer`]
    /// leaves its requests to [`Job::queue`].
    ///
    /// [`queue_transfer`]: Job::queue_transfer
    fn lane_of(&mut self, f: *mut c_void) -> Option<usize> {
        if self.file.0 == f {
            return Some(self.file.1);
        }
        let found = *self.files.iter().find(|(file, _)| *file == f)?;
        if !self.lanes[found.1].appends() {
            self.file = found;
        }
        Some(found.1)
    }

    /// Waits until no device uses memory of this job.
    fn await_devices(&mut self) {
        self.lanes.iter_mut().for_each(Lane::await_device);
        self.queued = false;
    }

    /// Passes queued requests to the layer. Those that a frozen disk does not take stay queued; `reap` calls this
    /// again.
    #[inline(always)]
    fn submit(&mut self, abi: &Abi, td: *mut c_void) {
        if let [lane] = &mut self.lanes[..] {
            self.queued = lane.submit(abi, self.fio, td);
        } else {
            self.submit_all(td);
        }
    }

    #[inline(never)]
    fn submit_all(&mut self, td: *mut c_void) {
        let mut left = false;
        for lane in self.lanes.iter_mut().filter(|lane| lane.has_queued()) {
            left |= lane.submit(self.abi, self.fio, td);
        }
        self.queued = left;
    }
}

// ---- requests -------------------------------------------------------------------

/// Why a request was not queued.
#[derive(Clone, Copy)]
enum Refused {
    /// The request ends with this error number.
    Failed(Errno),
    /// fio's memory is not as expected, so nothing may be written to it.
    Broken,
}

/// Why [`Job::queue_transfer`] has not queued a request.
enum Obstacle {
    /// The request is for another file than the last one, or is neither a read nor a write.
    Unusual,
    /// The request does not begin or does not end at a sector.
    Unaligned,
    /// fio's memory is not as expected, or the batch has no room.
    Unexpected(&'static str),
}

/// The callback for the release of row `ROW` of the table, so that the compiler knows the offsets.
///
/// For an ordinary request it makes no call, so it saves no registers.
pub(super) unsafe extern "C" fn queue<const ROW: usize>(td: *mut c_void, u: *mut c_void) -> c_int {
    #[cold]
    #[inline(never)]
    fn search<const ROW: usize>(td: *mut c_void, u: *mut c_void) -> c_int {
        // SAFETY: called by fio.
        unsafe { with_job(td, -libc::EPROTO, |job| job.queue_unit::<ROW>(td, u)) }
    }
    // SAFETY: fio passes a unit of this job, seen by `io_u_init`.
    let unit = unsafe { IoU::new(const { &TABLE[ROW].2 }, u) };
    // SAFETY: called by fio.
    let job = unsafe { job_at_hand(td) };
    match job.map(|job| job.queue_transfer(u, unit)) {
        Some(Ok(())) => abi::FIO_Q_QUEUED,
        _ => search::<ROW>(td, u),
    }
}

impl Job {
    /// Returns what fio expects: its queue status, or a negative error number, which ends the job.
    fn queue_unit<const ROW: usize>(&mut self, td: *mut c_void, u: *mut c_void) -> c_int {
        // SAFETY: fio passes a unit of this job, seen by `io_u_init`.
        let unit = unsafe { IoU::new(const { &TABLE[ROW].2 }, u) };
        match self.queue(td, u, unit) {
            Ok(answer) => answer,
            Err(Refused::Failed(no)) => {
                note(unit, no);
                abi::FIO_Q_COMPLETED
            }
            Err(Refused::Broken) => -libc::EPROTO,
        }
    }

    /// Queues a read or a write of the file that was used last. If it fails, it has changed nothing.
    #[inline(always)]
    fn queue_transfer(&mut self, u: *mut c_void, unit: IoU<'_>) -> Result<(), Obstacle> {
        let (file, at) = self.file;
        if file != unit.file() {
            return Err(unlikely(Obstacle::Unusual));
        }
        let direction = unit.ddir();
        if direction != abi::DDIR_READ && direction != abi::DDIR_WRITE {
            return Err(unlikely(Obstacle::Unusual));
        }
        let op = if direction == abi::DDIR_READ { Op::Read } else { Op::Write };
        let lane = match &mut self.lanes[..] {
            [lane] => lane,
            lanes => lanes.get_mut(at).ok_or_else(|| unlikely(Obstacle::Unusual))?,
        };
        transfer(lane, u, unit, op, || Bytes(unit.offset()).to_sectors())?;
        self.queued = true;
        Ok(())
    }

    /// Queues any request, and returns fio's queue status.
    fn queue(&mut self, td: *mut c_void, u: *mut c_void, unit: IoU<'_>) -> Result<c_int, Refused> {
        // A broken job has no files.
        let Some(at) = self.lane_of(unit.file()) else {
            return self.refuse("its file is not one of the job");
        };
        self.lanes[at].make_room();
        let queued = match self.lanes[at].appends() {
            true => self.queue_append(u, unit, at),
            false => self.queue_transfer(u, unit).map(|()| abi::FIO_Q_QUEUED),
        };
        match queued {
            Ok(status) => Ok(status),
            Err(Obstacle::Unusual) => self.queue_other(td, u, unit, at),
            Err(Obstacle::Unaligned) => {
                let op = if unit.ddir() == abi::DDIR_READ { Op::Read } else { Op::Write };
                let sector = Bytes(unit.offset()).to_sectors();
                self.lanes[at].device.print_failure(op, sector, Status::Unaligned);
                Err(Refused::Failed(Status::Unaligned.errno()))
            }
            Err(Obstacle::Unexpected(what)) => self.refuse(what),
        }
    }

    /// Queues a request that moves no data.
    fn queue_other(
        &mut self,
        td: *mut c_void,
        u: *mut c_void,
        unit: IoU<'_>,
        at: usize,
    ) -> Result<c_int, Refused> {
        match unit.ddir() {
            abi::DDIR_SYNC | abi::DDIR_DATASYNC | abi::DDIR_SYNC_FILE_RANGE => {}
            d if Some(d) == self.abi.ddir_syncfs => {}
            abi::DDIR_TRIM => return self.trim(td, u, unit, at),
            _ => return self.refuse("its direction is unknown"),
        }
        // fio does not set offset and length of these requests.
        if let Err(what) = self.lanes[at].flush(unit.index() as usize, u) {
            return self.refuse(what);
        }
        self.queued = true;
        Ok(abi::FIO_Q_QUEUED)
    }

    /// Trims as fio does on a zoned block device: resets a sequential zone, discards a conventional one.
    fn trim(
        &mut self,
        td: *mut c_void,
        u: *mut c_void,
        unit: IoU<'_>,
        at: usize,
    ) -> Result<c_int, Refused> {
        // Requests that were queued before the trim are submitted first.
        if self.queued {
            self.submit(self.abi, td);
        }
        // SAFETY: the file is one of this job.
        let zoned = !unsafe { File::new(self.abi, unit.file()) }.zbd_info().is_null();
        // SAFETY: fio's own function, with what fio passed.
        let answer = if zoned { unsafe { (self.fio.zoned_trim)(td, u) } } else { 0 };
        match answer {
            abi::IO_U_COMPLETED => Ok(abi::FIO_Q_COMPLETED),
            // The zone is not sequential.
            0 => {
                let device = &self.lanes[at].device;
                let done = device.manage(Op::Discard, unit.offset(), unit.xfer_buflen());
                done.map(|()| abi::FIO_Q_COMPLETED).map_err(Refused::Failed)
            }
            no => Err(Refused::Failed(no.checked_neg().filter(|n| *n > 0).unwrap_or(libc::EIO))),
        }
    }

    #[cold]
    #[inline(never)]
    fn refuse(&mut self, what: &str) -> Result<c_int, Refused> {
        if !self.broken {
            say(&format!("fio's io unit is not laid out as expected: {what}; stopping"));
            self.broken = true;
            self.files.clear();
            self.file = NO_FILE;
        }
        Err(Refused::Broken)
    }
}

/// The callback for the release of row `ROW` of the table.
pub(super) unsafe extern "C" fn commit<const ROW: usize>(td: *mut c_void) -> c_int {
    #[inline(never)]
    fn submit<const ROW: usize>(td: *mut c_void, job: &mut Job) -> c_int {
        guard(-libc::EIO, || {
            job.submit(const { &TABLE[ROW].2 }, td);
            0
        })
    }
    #[cold]
    #[inline(never)]
    fn search<const ROW: usize>(td: *mut c_void) -> c_int {
        let body = |job: &mut Job| if job.queued { submit::<ROW>(td, job) } else { 0 };
        // SAFETY: called by fio.
        unsafe { with_job(td, -libc::EIO, body) }
    }
    // SAFETY: called by fio.
    match unsafe { job_at_hand(td) } {
        Some(job) if job.queued => submit::<ROW>(td, job),
        // Nothing is queued: fio commits before each wait.
        Some(_) => 0,
        None => search::<ROW>(td),
    }
}

pub(super) unsafe extern "C" fn getevents(
    td: *mut c_void,
    min: u32,
    max: u32,
    t: *const libc::timespec,
) -> c_int {
    /// `extern "C"`, like `search` of [`event`]: the compiler then knows that it does not unwind, so the caller ends
    /// with a jump.
    #[inline(never)]
    extern "C" fn reap(
        td: *mut c_void,
        min: u32,
        max: u32,
        t: *const libc::timespec,
        job: &mut Job,
    ) -> c_int {
        guard(-libc::EIO, || {
            // SAFETY: fio passes a time or null.
            let wait = unsafe { t.as_ref() }.map(|t| {
                Duration::new(t.tv_sec.max(0) as u64, t.tv_nsec.clamp(0, 999_999_999) as u32)
            });
            job.reap(td, min as usize, max as usize, wait) as c_int
        })
    }
    #[cold]
    #[inline(never)]
    fn search(td: *mut c_void, min: u32, max: u32, t: *const libc::timespec) -> c_int {
        // SAFETY: called by fio.
        unsafe { with_job(td, -libc::EIO, |job| reap(td, min, max, t, job)) }
    }
    // SAFETY: called by fio.
    match unsafe { job_at_hand(td) } {
        Some(job) => {
            if job.offer(max as usize) {
                return max as c_int;
            }
            reap(td, min, max, t, job)
        }
        None => search(td, min, max, t),
    }
}

impl Job {
    /// Offers fio `max` units that an earlier call has reaped. False: there are fewer, or requests must be
    /// submitted first.
    #[inline]
    fn offer(&mut self, max: usize) -> bool {
        let next = self.offered.end;
        if self.queued || self.events.len() - next < max {
            return false;
        }
        self.offered = next..next + max;
        true
    }

    /// Gives fio at least `min` and at most `max` units, and returns their number. Waits for `min` units, at most
    /// `wait`.
    #[inline(always)]
    fn reap(&mut self, td: *mut c_void, min: usize, max: usize, wait: Option<Duration>) -> usize {
        if self.offered.end == self.events.len() {
            self.events.clear();
        } else {
            self.events.drain(..self.offered.end);
        }
        self.offered = 0..0;
        let end = wait.map(|w| Instant::now() + w);
        loop {
            if self.queued {
                self.submit(self.abi, td);
            }
            let need = min.saturating_sub(self.events.len());
            let busy = match &mut self.lanes[..] {
                [lane] => {
                    if self.events.len() < max {
                        lane.reap(self.abi, need, end, &mut self.events);
                    }
                    lane.in_flight() > 0
                }
                _ => self.reap_all(need, max, end),
            };
            let n = self.events.len().min(max);
            if n >= min || n == max || !busy || end.is_some_and(|e| Instant::now() >= e) {
                self.offered = 0..n;
                return n;
            }
            std::thread::yield_now();
        }
    }

    /// Reaps all lanes. Returns whether requests are still in flight.
    #[inline(never)]
    fn reap_all(&mut self, need: usize, max: usize, end: Option<Instant>) -> bool {
        // The job may sleep only if a single device is busy.
        let busy = self.lanes.iter().filter(|l| l.in_flight() > 0).count();
        let need = if busy == 1 { need } else { 0 };
        for lane in &mut self.lanes {
            if self.events.len() < max {
                lane.reap(self.abi, need, end, &mut self.events);
            }
        }
        self.lanes.iter().any(|l| l.in_flight() > 0)
    }
}

pub(super) unsafe extern "C" fn event(td: *mut c_void, nth: c_int) -> *mut c_void {
    #[cold]
    #[inline(never)]
    extern "C" fn search(td: *mut c_void, nth: c_int) -> *mut c_void {
        // SAFETY: called by fio; the other reference to the job is not used any more.
        let find = || unsafe { job_of(td) }.and_then(|job| job.event(nth as u32 as usize));
        match guard(None, find) {
            Some(u) => u,
            // fio uses the pointer without a check, so there is no way to report an error.
            None => std::process::abort(),
        }
    }
    // SAFETY: called by fio.
    match unsafe { job_at_hand(td) }.and_then(|job| job.event(nth as u32 as usize)) {
        Some(u) => u,
        None => search(td, nth),
    }
}

impl Job {
    /// The `nth` of the units that fio was given last.
    #[inline]
    fn event(&self, nth: usize) -> Option<*mut c_void> {
        let at = self.offered.start + nth;
        if at < self.offered.end { self.events.get(at).copied() } else { None }
    }
}

mod appends;
#[cfg(test)]
mod tests;
mod transfer;

use transfer::transfer;
