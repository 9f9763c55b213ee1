//! A job of fio: one thread that submits and reaps.
//!
//! `queue` collects BIOs and `commit` hands them to the layer, one batch per device: fio commits after as many as its
//! `iodepth_batch` says, and before it waits.

use super::abi::{self, File, IoU};
use super::device::{Device, lock};
use super::engine::{Engine, engine};
use super::program::{Errno, guard, say};
use core::ffi::{c_int, c_void};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use zoneplug_core::{Bio, BioPool, Bios, Bytes, IoBuf, IoRange, Op, Sector, Status};
use zoneplug_host::Client;

/// How long a job may take to get its units back when it ends.
const DRAIN: Duration = Duration::from_secs(30);

/// One device as one job uses it.
struct Lane {
    device: Arc<Device>,
    client: Client,
    pool: BioPool,
    /// Queued by fio, not yet submitted.
    batch: Bios,
    /// How many at the end of `batch` fio has not been told of as submitted.
    fresh: usize,
    /// Finished, not yet reported to fio.
    done: Bios,
    /// Queued and not yet reported: `batch`, what the client has, and `done`.
    in_flight: usize,
    /// fio's units by the token of their BIOs, and the memory that each has lent. `None`: the token is free.
    units: Vec<Option<(usize, IoRange)>>,
    free: Vec<u32>,
}

/// Why fio cannot go on: it is about to use memory that the device has.
fn end(op: Op, sector: Sector, why: &str) -> ! {
    say(&format!("{} at sector {}: {why}; ending fio", op.name(), sector.0));
    std::process::abort()
}

/// What belongs to one fio job. Used by the job's thread only.
#[derive(Default)]
struct Job {
    units: usize,
    /// fio's files, and the lane of each.
    files: Vec<(usize, usize)>,
    lanes: Vec<Lane>,
    /// Units that `event` is asked for.
    events: Vec<usize>,
    /// Set when fio's memory did not look as expected: nothing is done then.
    broken: bool,
}

impl Drop for Job {
    /// However a job ends, fio uses its memory for something else afterwards.
    fn drop(&mut self) {
        self.settle();
    }
}

#[derive(Clone, Copy)]
struct JobPtr(*mut Job);
// SAFETY: the pointer is passed between threads, but used by one at a time.
unsafe impl Send for JobPtr {}

thread_local! {
    /// The job of this thread, to spare the look-up for every request.
    static CURRENT: Cell<(usize, *mut Job)> = const { Cell::new((0, core::ptr::null_mut())) };
}

/// The jobs of fio, by the address of its `thread_data`.
static JOBS: Mutex<BTreeMap<usize, JobPtr>> = Mutex::new(BTreeMap::new());

fn job_of(td: *mut c_void) -> Option<*mut Job> {
    let key = td as usize;
    let (k, p) = CURRENT.get();
    if k == key && !p.is_null() {
        return Some(p);
    }
    let p = lock(&JOBS).get(&key)?.0;
    CURRENT.set((key, p));
    Some(p)
}

/// Runs `body` for the job `td`, or answers `or`.
///
/// # Safety
/// As fio passes it, in the job's thread.
unsafe fn with_job<T: Copy>(
    td: *mut c_void,
    or: T,
    body: impl FnOnce(&'static Engine, &mut Job) -> T,
) -> T {
    guard(or, || {
        let Some((e, job)) = engine().and_then(|e| Some((e, job_of(td)?))) else { return or };
        // SAFETY: this job's thread is the only user. fio's functions that are called from here come back into
        // `reset_wp` at most, which does not look at the job.
        body(e, unsafe { &mut *job })
    })
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
        let p = Box::into_raw(Box::new(Job::default()));
        let old = lock(&JOBS).insert(td as usize, JobPtr(p));
        CURRENT.set((td as usize, p));
        if let Some(old) = old {
            // SAFETY: made here, and not used any more.
            drop(unsafe { Box::from_raw(old.0) });
        }
        0
    })
}

pub(super) unsafe extern "C" fn io_u_init(td: *mut c_void, u: *mut c_void) -> c_int {
    let body = |e: &'static Engine, job: &mut Job| {
        // SAFETY: fio passes a unit it has just made.
        let unit = unsafe { IoU::new(e.abi, u) };
        if let Err(why) = abi::check_new_io_u(e.abi, unit, job.units as u32) {
            say(&why);
            return libc::EPROTO;
        }
        job.units += 1;
        0
    };
    // SAFETY: called by fio.
    unsafe { with_job(td, libc::EIO, body) }
}

pub(super) unsafe extern "C" fn open_file(td: *mut c_void, f: *mut c_void) -> c_int {
    let body = |e: &'static Engine, job: &mut Job| {
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

/// fio frees its buffers after its units, so this is the last moment to wait for what is in flight.
pub(super) unsafe extern "C" fn io_u_free(td: *mut c_void, _u: *mut c_void) {
    // SAFETY: called by fio.
    unsafe { with_job(td, (), |_, job| job.settle()) }
}

pub(super) unsafe extern "C" fn cleanup(td: *mut c_void) {
    guard((), || {
        CURRENT.set((0, core::ptr::null_mut()));
        let gone = lock(&JOBS).remove(&(td as usize));
        if let Some(p) = gone {
            // SAFETY: made in `init`; fio is done with the job.
            drop(unsafe { Box::from_raw(p.0) });
        }
    });
}

impl Job {
    /// # Safety
    /// `f` must be a file of this job.
    unsafe fn open(&mut self, e: &Engine, f: *mut c_void) -> Result<(), String> {
        if self.files.iter().any(|(file, _)| *file == f as usize) {
            return Ok(());
        }
        // SAFETY: the caller's promise.
        let (file, device) = unsafe { e.device_of(f) }?;
        let zones = if device.zoned.load(Ordering::Relaxed) { device.whole_zones() } else { 0 };
        abi::check_opened_file(file, zones)?;
        let at = match self.lanes.iter().position(|l| Arc::ptr_eq(&l.device, &device)) {
            Some(at) => at,
            None => {
                self.lanes.push(Lane::new(device, self.units.max(1))?);
                self.lanes.len() - 1
            }
        };
        self.files.push((f as usize, at));
        Ok(())
    }

    /// Waits until no device uses memory of this job.
    fn settle(&mut self) {
        for lane in &mut self.lanes {
            while let Some(bio) = lane.batch.pop_front() {
                lane.take_unit(bio);
            }
            if let Err(e) = lane.client.drain(&mut lane.done, DRAIN) {
                // fio is about to free memory that a device may write to, and there is no way to tell it not to.
                say(&format!("{e} {DRAIN:?} after their job has ended; ending fio"));
                std::process::abort();
            }
            while let Some(bio) = lane.done.pop_front() {
                lane.take_unit(bio);
            }
            if lane.units.iter().any(Option::is_some) {
                say("a device has kept memory of a job that has ended; ending fio");
                std::process::abort();
            }
            lane.in_flight = 0;
        }
    }

    /// Hands to the layer what was queued.
    fn commit(&mut self, e: &Engine, td: *mut c_void) {
        for lane in self.lanes.iter_mut().filter(|l| !l.batch.is_empty()) {
            if lane.fresh > 0 {
                lane.note_submission(e, td);
            }
            // All of it, unless the disk is frozen: then `reap` comes back here.
            lane.client.submit(&mut lane.batch);
        }
    }
}

impl Lane {
    fn new(device: Arc<Device>, depth: usize) -> Result<Lane, String> {
        Ok(Lane {
            client: device.client(depth)?,
            device,
            pool: BioPool::new(depth),
            batch: Bios::with_capacity(depth),
            fresh: 0,
            done: Bios::with_capacity(depth),
            in_flight: 0,
            units: Vec::new(),
            free: Vec::new(),
        })
    }

    /// Tells fio of the units that are about to be submitted.
    fn note_submission(&mut self, e: &Engine, td: *mut c_void) {
        let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let old = self.batch.len() - self.fresh;
        // SAFETY: fio's own functions, called as its engines do: a BIO that has not been submitted has the token of the
        // unit that it was made for, which is ours until it is reported.
        unsafe {
            (e.fio.gettime)(&mut now, core::ptr::null_mut());
            for bio in self.batch.iter().skip(old) {
                let Some(Some((u, _))) = self.units.get(bio.token() as usize) else { continue };
                let u = *u as *mut c_void;
                IoU::new(e.abi, u).issue_time().write_unaligned(now);
                (e.fio.io_u_queued)(td, u);
            }
            (e.fio.mark_submit)(td, self.fresh as u32);
        }
        self.fresh = 0;
    }

    /// The unit of a BIO that is back with its memory. `None`: a device has made up the BIO, or has kept its memory.
    fn take_unit(&mut self, mut bio: Box<Bio>) -> Option<usize> {
        let (token, buf) = (bio.token(), bio.take_buf());
        self.pool.put(bio);
        let unit = self.units.get_mut(token as usize)?;
        let (u, _) = unit.take_if(|(_, lent)| buf.range() == *lent)?;
        self.free.push(token as u32);
        Some(u)
    }

    /// Reports up to `room` finished units; waits for `need` of them, at most `wait`.
    fn reap(
        &mut self,
        e: &Engine,
        need: usize,
        room: usize,
        wait: Option<Duration>,
        events: &mut Vec<usize>,
    ) {
        let have = self.done.len();
        if have < need {
            self.client.wait(&mut self.done, need - have, wait);
        } else if have < room {
            self.client.poll(&mut self.done);
        }
        for _ in 0..room {
            let Some(bio) = self.done.pop_front() else { break };
            let (op, sector) = (bio.op, bio.sector);
            if self.client.is_late(&bio) {
                end(op, sector, "the device has panicked");
            }
            let status = bio.status;
            let Some(u) = self.take_unit(bio) else {
                end(op, sector, "the device gave back another request");
            };
            if !status.is_ok() {
                self.device.complain(op, sector, status);
                // SAFETY: a unit whose memory is back, and which fio keeps until it is reported.
                note(unsafe { IoU::new(e.abi, u as *mut c_void) }, status.errno());
            }
            events.push(u);
            self.in_flight -= 1;
        }
    }
}

// ---- requests -------------------------------------------------------------------

/// Notes that a request has failed as a whole.
#[cold]
fn note(u: IoU<'_>, errno: Errno) {
    u.set_error(errno);
    u.set_resid(u.xfer_buflen());
}

/// Why a request was not taken.
#[derive(Clone, Copy)]
enum Refused {
    /// It ends with this error number.
    Failed(Errno),
    /// fio's memory is not as expected, so nothing may be written to it.
    Broken,
}

pub(super) unsafe extern "C" fn queue(td: *mut c_void, u: *mut c_void) -> c_int {
    let body = |e: &'static Engine, job: &mut Job| {
        // SAFETY: fio passes a unit of this job, seen by `io_u_init`.
        let unit = unsafe { IoU::new(e.abi, u) };
        match enqueue(e, job, td, u, unit) {
            Err(Refused::Failed(no)) => {
                note(unit, no);
                Ok(abi::FIO_Q_COMPLETED)
            }
            other => other,
        }
    };
    // SAFETY: called by fio.
    let answer = unsafe { with_job(td, Err(Refused::Broken), body) };
    // fio takes a negative answer for an error number and ends the job.
    answer.unwrap_or(-libc::EPROTO)
}

/// Answers with fio's queue status.
fn enqueue(
    e: &Engine,
    job: &mut Job,
    td: *mut c_void,
    u: *mut c_void,
    unit: IoU<'_>,
) -> Result<c_int, Refused> {
    if job.broken {
        return Err(Refused::Broken);
    }
    let file = unit.file();
    let Some((_, at)) = job.files.iter().copied().find(|(f, _)| *f == file as usize) else {
        return job.refuse("its file is not one of the job");
    };
    let ddir = unit.ddir();
    let (op, offset, len) = match ddir {
        abi::DDIR_READ | abi::DDIR_WRITE => {
            if let Err(what) = abi::check_transfer(unit, job.lanes[at].device.bytes()) {
                return job.refuse(what);
            }
            let op = if ddir == abi::DDIR_READ { Op::Read } else { Op::Write };
            (op, unit.offset(), unit.xfer_buflen())
        }
        // Offset and length of these are not set.
        abi::DDIR_SYNC | abi::DDIR_DATASYNC | abi::DDIR_SYNC_FILE_RANGE => (Op::Flush, 0, 0),
        abi::DDIR_TRIM => return trim(e, job, td, u, unit, at),
        d if Some(d) == e.abi.ddir_syncfs => (Op::Flush, 0, 0),
        _ => return job.refuse("its direction is unknown"),
    };
    let lane = &mut job.lanes[at];
    // The layer counts in sectors. It would refuse a length that is no multiple of a sector, so this refuses it too.
    let sectors = u32::try_from(Bytes(len).to_sectors().0);
    let (true, Ok(len_sectors), Ok(len)) = ((offset | len) & 511 == 0, sectors, u32::try_from(len))
    else {
        lane.device.complain(op, Bytes(offset).to_sectors(), Status::Unaligned);
        return Err(Refused::Failed(Status::Unaligned.errno()));
    };
    let buf = if len == 0 {
        IoBuf::empty()
    } else {
        // SAFETY: fio keeps the buffer until it got the event, which it gets only for what came back with it; `settle`
        // waits for what fio did not ask for. It may look at what it writes, and does not look at what it reads.
        unsafe {
            match op {
                Op::Read => IoBuf::new(unit.xfer_buf(), len),
                _ => IoBuf::new_shared(unit.xfer_buf(), len),
            }
        }
    };
    let token = lane.free.pop().unwrap_or_else(|| {
        lane.units.push(None);
        lane.units.len() as u32 - 1
    });
    lane.units[token as usize] = Some((u as usize, buf.range()));
    let mut bio = lane.pool.get();
    bio.set(op, Bytes(offset).to_sectors(), len_sectors, buf);
    bio.set_token(u64::from(token));
    lane.batch.push_back(bio);
    lane.fresh += 1;
    lane.in_flight += 1;
    Ok(abi::FIO_Q_QUEUED)
}

/// Trims as fio does on a zoned block device: a sequential zone is reset, conventional ones are discarded.
fn trim(
    e: &Engine,
    job: &mut Job,
    td: *mut c_void,
    u: *mut c_void,
    unit: IoU<'_>,
    at: usize,
) -> Result<c_int, Refused> {
    // Requests that were queued before the trim are submitted first.
    job.commit(e, td);
    // SAFETY: the file is one of this job.
    let zoned = !unsafe { File::new(e.abi, unit.file()) }.zbd_info().is_null();
    // SAFETY: fio's own function, with what fio passed.
    let answer = if zoned { unsafe { (e.fio.zoned_trim)(td, u) } } else { 0 };
    match answer {
        abi::IO_U_COMPLETED => Ok(abi::FIO_Q_COMPLETED),
        // Not a sequential zone.
        0 => {
            let done = job.lanes[at].device.manage(Op::Discard, unit.offset(), unit.xfer_buflen());
            done.map(|()| abi::FIO_Q_COMPLETED).map_err(Refused::Failed)
        }
        no => Err(Refused::Failed(no.checked_neg().filter(|n| *n > 0).unwrap_or(libc::EIO))),
    }
}

impl Job {
    #[cold]
    fn refuse(&mut self, what: &str) -> Result<c_int, Refused> {
        say(&format!("fio's io unit is not laid out as expected: {what}; stopping"));
        self.broken = true;
        Err(Refused::Broken)
    }
}

pub(super) unsafe extern "C" fn commit(td: *mut c_void) -> c_int {
    let body = |e: &'static Engine, job: &mut Job| {
        job.commit(e, td);
        0
    };
    // SAFETY: called by fio.
    unsafe { with_job(td, -libc::EIO, body) }
}

pub(super) unsafe extern "C" fn getevents(
    td: *mut c_void,
    min: u32,
    max: u32,
    t: *const libc::timespec,
) -> c_int {
    let body = |e: &'static Engine, job: &mut Job| {
        // SAFETY: fio passes a time or null.
        let wait = unsafe { t.as_ref() }
            .map(|t| Duration::new(t.tv_sec.max(0) as u64, t.tv_nsec.clamp(0, 999_999_999) as u32));
        job.reap(e, td, min as usize, max as usize, wait) as c_int
    };
    // SAFETY: called by fio.
    unsafe { with_job(td, -libc::EIO, body) }
}

impl Job {
    fn reap(
        &mut self,
        e: &Engine,
        td: *mut c_void,
        min: usize,
        max: usize,
        wait: Option<Duration>,
    ) -> usize {
        let end = wait.map(|w| Instant::now() + w);
        self.events.clear();
        loop {
            self.commit(e, td);
            let busy = self.lanes.iter().filter(|l| l.in_flight > 0).count();
            for lane in self.lanes.iter_mut().filter(|l| l.in_flight > 0) {
                let room = max - self.events.len();
                if room == 0 {
                    break;
                }
                // Only a single busy device may be slept for.
                let need = if busy == 1 { min.saturating_sub(self.events.len()) } else { 0 };
                let need = need.min(lane.in_flight - lane.batch.len());
                let left = end.map(|e| e.saturating_duration_since(Instant::now()));
                lane.reap(e, need, room, left, &mut self.events);
            }
            let n = self.events.len();
            if n >= min
                || n >= max
                || self.lanes.iter().all(|l| l.in_flight == 0)
                || end.is_some_and(|e| Instant::now() >= e)
            {
                return n;
            }
            std::thread::yield_now();
        }
    }
}

pub(super) unsafe extern "C" fn event(td: *mut c_void, nth: c_int) -> *mut c_void {
    // SAFETY: called by fio.
    let found = unsafe {
        with_job(td, None, |_, job| {
            usize::try_from(nth).ok().and_then(|n| job.events.get(n).copied())
        })
    };
    match found {
        Some(u) => u as *mut c_void,
        // fio follows the pointer without a look; there is no way to say no.
        None => std::process::abort(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zoneplug_buf::AlignedBuf;

    /// `init` drops the job that it finds in the place of the new one, and `cleanup` its own: either way the device is
    /// done with fio's memory afterwards.
    #[test]
    fn a_job_that_is_dropped_waits_for_what_is_in_flight() {
        let device = Arc::new(Device::open("mem,zones=4,zone-size=1M,latency=100ms").unwrap());
        let mut lane = Lane::new(device, 4).unwrap();
        let (_lent, buf) = AlignedBuf::zeroed(4096).lend();
        let bio = Bio::with_buf(Op::Read, Sector(0), 8, buf);
        lane.client.submit(&mut Bios::from([bio]));
        let mut job = Job::default();
        job.lanes.push(lane);
        let start = Instant::now();
        drop(job);
        assert!(start.elapsed() >= Duration::from_millis(90), "the read is still in flight");
    }
}
