//! The callbacks.
//!
//! The order fio calls them in, per job (`td`):
//!
//! 1. in its main thread, for all jobs: `get_ioengine`; then `get_file_size`
//!    per file and, in zoned mode and once per device, `get_zoned_model`,
//!    `report_zones`, `get_max_active_zones`, `get_max_open_zones`;
//! 2. in the job's thread: `init`, `io_u_init` per unit of depth, `open_file`
//!    (followed by `reset_wp` of zones with data if the job verifies),
//!    `queue`/`getevents`/`event`, `close_file` and `open_file` again between
//!    writing and verifying, at last `cleanup`.
//!
//! With `create_serialize=0` the first group runs after `io_u_init`, in the
//! job's thread. `td` is used as a key and never looked into.

use core::ffi::{CStr, c_char, c_int, c_void};
use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::ffi::CString;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use super::abi::{self, Abi, File, IoU, ZbdZone};
use super::backend::{self, Backend, Completion, Errno, Geometry, Op, Queue, State, Submit, Zone};

/// fio's `log_err`, which takes a format like `printf`.
type LogErr = unsafe extern "C" fn(*const c_char, ...) -> isize;
/// fio's own handling of a zoned trim: resets the zone through `reset_wp`,
/// and its own write pointer with it.
type ZonedTrim = unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int;

struct Engine {
    abi: &'static Abi,
    zoned_trim: Option<ZonedTrim>,
    /// The process devices were opened in, or else the one fio loaded us in.
    pid: AtomicI32,
    devices: Mutex<BTreeMap<String, Arc<Device>>>,
    jobs: Mutex<HashMap<usize, JobPtr>>,
}

static ENGINE: OnceLock<Result<Engine, String>> = OnceLock::new();

struct Device {
    backend: Arc<dyn Backend>,
    geo: Geometry,
    /// Whether fio has asked for the zones, so runs in zoned mode.
    zoned: AtomicBool,
    told: AtomicBool,
}

impl Device {
    /// The size without a last zone shorter than the others, which fio's
    /// zoned mode cannot address.
    fn whole_zones(&self) -> u64 {
        match self.geo.zone {
            0 => self.geo.bytes,
            z => self.geo.bytes / z * z,
        }
    }
}

/// What belongs to one fio job. Used by the job's thread only.
struct Job {
    units: usize,
    files: Vec<(usize, usize)>,
    queues: Vec<(Arc<Device>, Box<dyn Queue>, usize)>,
    reaped: Vec<Completion>,
    events: Vec<usize>,
    /// Set when fio's memory did not look as expected: nothing is done then.
    broken: bool,
}

#[derive(Clone, Copy)]
struct JobPtr(*mut Job);
// SAFETY: the pointer is passed between threads, but used by one at a time.
unsafe impl Send for JobPtr {}

thread_local! {
    /// The job of this thread, to spare the look-up for every request.
    static CURRENT: Cell<(usize, *mut Job)> = const { Cell::new((0, core::ptr::null_mut())) };
}

fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Looks a symbol up in the program we were loaded into.
fn symbol(name: &CStr) -> *mut c_void {
    // SAFETY: a plain look-up.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }
}

/// Tells the user, through fio's log if it has one.
pub(super) fn say(text: &str) {
    static LOG: OnceLock<Option<LogErr>> = OnceLock::new();
    let log = *LOG.get_or_init(|| {
        let p = symbol(c"log_err");
        // Only within fio: elsewhere that name may be anything.
        let fio = !symbol(c"fio_version_string").is_null();
        // SAFETY: within fio, that symbol is this function.
        (fio && !p.is_null()).then(|| unsafe { core::mem::transmute::<*mut c_void, LogErr>(p) })
    });
    let line = CString::new(format!("zoneplug: {text}\n").replace('\0', "?")).unwrap_or_default();
    match log {
        // SAFETY: a format with one string, and that string.
        Some(f) => unsafe {
            f(c"%s".as_ptr(), line.as_ptr());
        },
        None => eprint!("{}", line.to_string_lossy()),
    }
}

/// Runs the body of a callback; a panic ends as `or` instead of in fio.
fn guard<T>(or: T, body: impl FnOnce() -> T) -> T {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(v) => v,
        Err(_) => {
            // The panic hook has told where; saying more must not panic.
            let _ = catch_unwind(|| say("internal error, see the message above"));
            or
        }
    }
}

fn set_errno(e: Errno) {
    // SAFETY: this thread's own variable.
    unsafe { *libc::__errno_location() = e };
}

/// The form fio's zone callbacks answer in: 0 or negative, with `errno` set.
fn zone_result(r: Result<c_int, Errno>) -> c_int {
    match r {
        Ok(v) => v,
        Err(e) => {
            set_errno(e);
            -e
        }
    }
}

fn engine() -> Option<&'static Engine> {
    ENGINE.get()?.as_ref().ok()
}

/// Finds out which fio this is. Called for every job, works once.
pub(super) fn start() -> Result<&'static Abi, String> {
    let e = ENGINE.get_or_init(|| {
        let version = symbol(c"fio_version_string").cast::<c_char>();
        if version.is_null() {
            return Err("this is not fio, or one that does not tell its version".into());
        }
        // SAFETY: fio's symbol of that name is a string.
        let version = unsafe { CStr::from_ptr(version) }.to_string_lossy();
        let abi = abi::lookup(&version)?;
        pin();
        let trim = symbol(c"zbd_do_io_u_trim");
        // SAFETY: within a known fio, that symbol is this function.
        let zoned_trim = (!trim.is_null())
            .then(|| unsafe { core::mem::transmute::<*mut c_void, ZonedTrim>(trim) });
        // SAFETY: a plain registration; the library stays loaded.
        unsafe { libc::atexit(at_exit) };
        Ok(Engine {
            abi,
            zoned_trim,
            pid: AtomicI32::new(std::process::id() as i32),
            devices: Mutex::default(),
            jobs: Mutex::default(),
        })
    });
    e.as_ref().map(|e| e.abi).map_err(Clone::clone)
}

/// Keeps this library loaded: fio closes it with its last job, while threads
/// of the block layer may still run in it.
fn pin() {
    // SAFETY: plain look-ups about our own address.
    unsafe {
        let mut info: libc::Dl_info = core::mem::zeroed();
        let own = pin as fn() as *const c_void;
        if libc::dladdr(own, &mut info) != 0 && !info.dli_fname.is_null() {
            libc::dlopen(info.dli_fname, libc::RTLD_NOW | libc::RTLD_NOLOAD | libc::RTLD_NODELETE);
        }
    }
}

/// Closes the devices, after fio's last job. They are kept until then because
/// a later job may name them again.
extern "C" fn at_exit() {
    guard((), || {
        if let Some(e) = engine()
            && e.pid.load(Ordering::Relaxed) == std::process::id() as i32
        {
            drop(std::mem::take(&mut *lock(&e.devices)));
        }
    });
}

impl Engine {
    fn device(&self, spec: &str) -> Result<Arc<Device>, String> {
        let mut all = lock(&self.devices);
        if let Some(d) = all.get(spec) {
            return Ok(d.clone());
        }
        let backend = backend::open(spec)?;
        let geo = backend.geometry();
        let d = Arc::new(Device {
            backend,
            geo,
            zoned: AtomicBool::new(false),
            told: AtomicBool::new(false),
        });
        self.pid.store(std::process::id() as i32, Ordering::Relaxed);
        all.insert(spec.to_owned(), d.clone());
        Ok(d)
    }

    /// The device behind a `fio_file`.
    ///
    /// # Safety
    /// `f` must come from fio, in a callback of the current thread.
    unsafe fn device_of(&self, f: *mut c_void) -> Result<(File<'_>, Arc<Device>), String> {
        // SAFETY: the caller's promise.
        let file = unsafe { File::new(self.abi, f) };
        let d = self.device(&file.name()?)?;
        Ok((file, d))
    }

    fn job(&self, td: *mut c_void) -> Option<*mut Job> {
        let key = td as usize;
        let (k, p) = CURRENT.get();
        if k == key && !p.is_null() {
            return Some(p);
        }
        let p = lock(&self.jobs).get(&key)?.0;
        CURRENT.set((key, p));
        Some(p)
    }
}

// ---- setup, in fio's main thread -------------------------------------------

/// Tells fio the type and size of a file, and opens the device for that.
pub(super) unsafe extern "C" fn get_file_size(_td: *mut c_void, f: *mut c_void) -> c_int {
    guard(1, || {
        let Some(e) = engine() else { return 1 };
        // SAFETY: fio passes a file of this job; `check_new_file` and `name`
        // read through the kernel before anything is trusted.
        let file = unsafe { File::new(e.abi, f) };
        let opened = abi::check_new_file(e.abi, f, None)
            .or_else(|why| {
                // Asked again, as after a failed first time: our own size.
                let d = e.device(&file.name()?)?;
                abi::check_new_file(e.abi, f, Some(d.geo.bytes))
                    .or_else(|_| abi::check_new_file(e.abi, f, Some(d.whole_zones())))
                    .map_err(|_| why)
            })
            .and_then(|()| file.name())
            .and_then(|name| e.device(&name).map_err(|why| format!("{name}: {why}")));
        match opened {
            Ok(d) => {
                file.set_filetype(abi::FIO_TYPE_BLOCK);
                file.set_real_file_size(d.geo.bytes);
                0
            }
            Err(why) => {
                say(&why);
                1
            }
        }
    })
}

/// In zoned mode only, before fio counts the zones.
pub(super) unsafe extern "C" fn get_zoned_model(
    _td: *mut c_void,
    f: *mut c_void,
    model: *mut c_int,
) -> c_int {
    guard(-libc::EIO, || {
        let Some(e) = engine() else { return zone_result(Err(libc::EIO)) };
        // SAFETY: fio passes a file, shown to `get_file_size` before.
        match unsafe { e.device_of(f) } {
            Ok((file, d)) => {
                if d.geo.zone == 0 {
                    say("the device has no zones");
                    return zone_result(Err(libc::ENOTSUP));
                }
                d.zoned.store(true, Ordering::Relaxed);
                let whole = d.whole_zones();
                if whole != d.geo.bytes {
                    if !d.told.swap(true, Ordering::Relaxed) {
                        say(&format!(
                            "the last zone is shorter than the others; fio cannot use it in zoned mode and is told of {} zones only",
                            whole / d.geo.zone
                        ));
                    }
                    file.set_real_file_size(whole);
                }
                // SAFETY: fio passes the address of an enum.
                unsafe { model.write(abi::ZBD_HOST_MANAGED) };
                0
            }
            Err(why) => {
                say(&why);
                zone_result(Err(libc::EIO))
            }
        }
    })
}

fn to_fio(z: &Zone) -> ZbdZone {
    let (zone_type, cond, wp) = match z.state {
        State::Conventional => (abi::ZBD_ZONE_TYPE_CNV, abi::ZBD_ZONE_COND_NOT_WP, z.start + z.len),
        s => {
            let cond = match s {
                State::Conventional => unreachable!("handled above"),
                State::Empty => abi::ZBD_ZONE_COND_EMPTY,
                State::ImplicitOpen => abi::ZBD_ZONE_COND_IMP_OPEN,
                State::ExplicitOpen => abi::ZBD_ZONE_COND_EXP_OPEN,
                State::Closed => abi::ZBD_ZONE_COND_CLOSED,
                State::Full => abi::ZBD_ZONE_COND_FULL,
                State::ReadOnly => abi::ZBD_ZONE_COND_READONLY,
                State::Offline => abi::ZBD_ZONE_COND_OFFLINE,
            };
            // fio stops with an assertion if it finds the pointer outside.
            (abi::ZBD_ZONE_TYPE_SWR, cond, z.wp.clamp(z.start, z.start + z.len))
        }
    };
    ZbdZone { start: z.start, wp, len: z.len, capacity: z.capacity, zone_type, cond }
}

pub(super) unsafe extern "C" fn report_zones(
    _td: *mut c_void,
    f: *mut c_void,
    offset: u64,
    zones: *mut ZbdZone,
    max: u32,
) -> c_int {
    guard(-libc::EIO, || {
        zone_result((|| {
            let e = engine().ok_or(libc::EIO)?;
            // SAFETY: fio passes a file.
            let (_, d) = unsafe { e.device_of(f) }.map_err(|_| libc::EIO)?;
            let whole = d.whole_zones();
            if offset >= whole {
                return Ok(0);
            }
            let room = max.min(i32::MAX as u32) as usize;
            let found = d.backend.report(offset, room)?;
            let mut n = 0;
            for z in found.iter().take(room).filter(|z| z.start + z.len <= whole) {
                // SAFETY: fio passes an array of `max` entries.
                unsafe { zones.add(n).write(to_fio(z)) };
                n += 1;
            }
            Ok(n as c_int)
        })())
    })
}

/// Common to the callbacks that answer with a limit.
///
/// # Safety
/// `f` and `out` as fio passes them.
unsafe fn limit(f: *mut c_void, out: *mut u32, pick: impl FnOnce(&Geometry) -> u32) -> c_int {
    guard(-libc::EIO, || {
        zone_result((|| {
            let e = engine().ok_or(libc::EIO)?;
            // SAFETY: the caller's promise.
            let (_, d) = unsafe { e.device_of(f) }.map_err(|_| libc::EIO)?;
            // SAFETY: the caller's promise.
            unsafe { out.write(pick(&d.geo)) };
            Ok(0)
        })())
    })
}

pub(super) unsafe extern "C" fn get_max_open_zones(
    _td: *mut c_void,
    f: *mut c_void,
    out: *mut u32,
) -> c_int {
    // SAFETY: passed on from fio.
    unsafe { limit(f, out, |g| g.max_open) }
}

pub(super) unsafe extern "C" fn get_max_active_zones(
    _td: *mut c_void,
    f: *mut c_void,
    out: *mut u32,
) -> c_int {
    // SAFETY: passed on from fio.
    unsafe { limit(f, out, |g| g.max_active) }
}

// ---- zone management, in main or job threads --------------------------------

/// # Safety
/// `f` as fio passes it.
unsafe fn on_zones(f: *mut c_void, run: impl FnOnce(&dyn Backend) -> Result<(), Errno>) -> c_int {
    guard(-libc::EIO, || {
        zone_result((|| {
            let e = engine().ok_or(libc::EIO)?;
            // SAFETY: the caller's promise.
            let (_, d) = unsafe { e.device_of(f) }.map_err(|_| libc::EIO)?;
            run(&*d.backend).map(|()| 0)
        })())
    })
}

pub(super) unsafe extern "C" fn reset_wp(
    _td: *mut c_void,
    f: *mut c_void,
    offset: u64,
    len: u64,
) -> c_int {
    // SAFETY: passed on from fio.
    unsafe { on_zones(f, |b| b.reset(offset, len)) }
}

pub(super) unsafe extern "C" fn finish_zone(
    _td: *mut c_void,
    f: *mut c_void,
    offset: u64,
    len: u64,
) -> c_int {
    // SAFETY: passed on from fio.
    unsafe { on_zones(f, |b| b.finish(offset, len)) }
}

/// After a failed write, on demand of the user: fills from the zone's write
/// pointer on, with the data given or with zeroes.
pub(super) unsafe extern "C" fn move_zone_wp(
    _td: *mut c_void,
    f: *mut c_void,
    z: *mut ZbdZone,
    len: u64,
    buf: *const c_char,
) -> c_int {
    if z.is_null() {
        return zone_result(Err(libc::EINVAL));
    }
    // SAFETY: fio passes a zone it got from `report_zones`, and `len` bytes
    // of data or none.
    unsafe {
        let at = (*z).wp;
        let data =
            (!buf.is_null()).then(|| core::slice::from_raw_parts(buf.cast::<u8>(), len as usize));
        on_zones(f, |b| if len == 0 { Ok(()) } else { b.write_sync(at, len, data) })
    }
}

// ---- the job ----------------------------------------------------------------

pub(super) unsafe extern "C" fn init(td: *mut c_void) -> c_int {
    guard(libc::EIO, || {
        let Some(e) = engine() else { return libc::EIO };
        if e.pid.load(Ordering::Relaxed) != std::process::id() as i32 {
            say("the devices live in fio's main process; give --thread so that jobs run in it");
            return libc::EINVAL;
        }
        let job = Box::new(Job {
            units: 0,
            files: Vec::new(),
            queues: Vec::new(),
            reaped: Vec::new(),
            events: Vec::new(),
            broken: false,
        });
        let p = Box::into_raw(job);
        if let Some(old) = lock(&e.jobs).insert(td as usize, JobPtr(p)) {
            // SAFETY: made here, and not used any more.
            drop(unsafe { Box::from_raw(old.0) });
        }
        CURRENT.set((td as usize, p));
        0
    })
}

pub(super) unsafe extern "C" fn io_u_init(td: *mut c_void, u: *mut c_void) -> c_int {
    guard(libc::EIO, || {
        let Some((e, job)) = engine().and_then(|e| Some((e, e.job(td)?))) else { return libc::EIO };
        // SAFETY: this job's thread is the only user.
        let job = unsafe { &mut *job };
        // SAFETY: fio passes a unit it has just made.
        let unit = unsafe { IoU::new(e.abi, u) };
        if let Err(why) = abi::check_new_io_u(e.abi, unit, job.units as u32) {
            say(&why);
            return libc::EPROTO;
        }
        job.units += 1;
        0
    })
}

pub(super) unsafe extern "C" fn open_file(td: *mut c_void, f: *mut c_void) -> c_int {
    guard(1, || {
        let Some((e, job)) = engine().and_then(|e| Some((e, e.job(td)?))) else { return 1 };
        // SAFETY: this job's thread is the only user.
        let job = unsafe { &mut *job };
        if job.files.iter().any(|(file, _)| *file == f as usize) {
            return 0;
        }
        // SAFETY: fio passes a file of this job.
        let found = unsafe { e.device_of(f) }.and_then(|(file, d)| {
            let zoned = d.zoned.load(Ordering::Relaxed);
            let zones = if zoned { d.whole_zones() / d.geo.zone } else { 0 };
            abi::check_opened_file(file, zones)?;
            Ok(d)
        });
        let d = match found {
            Ok(d) => d,
            Err(why) => {
                say(&why);
                return 1;
            }
        };
        let at = match job.queues.iter().position(|(other, ..)| Arc::ptr_eq(other, &d)) {
            Some(at) => at,
            None => match d.backend.clone().queue(job.units.max(1)) {
                Ok(q) => {
                    job.queues.push((d, q, 0));
                    job.queues.len() - 1
                }
                Err(no) => {
                    say(&format!("no queue: {}", std::io::Error::from_raw_os_error(no)));
                    return 1;
                }
            },
        };
        job.files.push((f as usize, at));
        0
    })
}

/// fio closes and opens files between its phases; queues stay until the end.
pub(super) unsafe extern "C" fn close_file(_td: *mut c_void, _f: *mut c_void) -> c_int {
    0
}

/// There is no cache to drop.
pub(super) unsafe extern "C" fn invalidate(_td: *mut c_void, _f: *mut c_void) -> c_int {
    0
}

/// A device must not be removed, whatever its specification may name.
pub(super) unsafe extern "C" fn unlink_file(_td: *mut c_void, _f: *mut c_void) -> c_int {
    0
}

pub(super) unsafe extern "C" fn cleanup(td: *mut c_void) {
    guard((), || {
        let Some(e) = engine() else { return };
        CURRENT.set((0, core::ptr::null_mut()));
        let gone = lock(&e.jobs).remove(&(td as usize));
        if let Some(p) = gone {
            // SAFETY: made in `init`; fio is done with the job.
            drop(unsafe { Box::from_raw(p.0) });
        }
    });
}

// ---- requests ---------------------------------------------------------------

/// Notes the outcome of a request.
fn note(u: IoU<'_>, result: Result<(), Errno>) {
    if let Err(e) = result {
        u.set_error(e);
        u.set_resid(u.xfer_buflen());
    }
}

/// Why a request was not taken.
enum Refused {
    /// It ends with this error number.
    Failed(Errno),
    /// fio's memory is not as expected, so nothing may be written to it.
    Broken,
}

pub(super) unsafe extern "C" fn queue(td: *mut c_void, u: *mut c_void) -> c_int {
    let answer = guard(Err(Refused::Broken), || {
        let Some((e, job)) = engine().and_then(|e| Some((e, e.job(td)?))) else {
            return Err(Refused::Broken);
        };
        // SAFETY: fio passes a unit of this job, seen by `io_u_init`.
        let unit = unsafe { IoU::new(e.abi, u) };
        match enqueue(e, job, td, u, unit) {
            Err(Refused::Failed(no)) => {
                note(unit, Err(no));
                Ok(abi::FIO_Q_COMPLETED)
            }
            other => other,
        }
    });
    // fio takes a negative answer for an error number and ends the job.
    answer.unwrap_or(-libc::EPROTO)
}

/// Answers with fio's queue status.
fn enqueue(
    e: &Engine,
    job: *mut Job,
    td: *mut c_void,
    u: *mut c_void,
    unit: IoU<'_>,
) -> Result<c_int, Refused> {
    // SAFETY: this job's thread is the only user. A trim comes back into
    // `reset_wp`, which does not look at the job.
    let job = unsafe { &mut *job };
    if job.broken {
        return Err(Refused::Broken);
    }
    let file = unit.file();
    let broken = &mut job.broken;
    let mut refuse = |what: &str| {
        say(&format!("fio's io unit is not laid out as expected: {what}; stopping"));
        *broken = true;
        Err(Refused::Broken)
    };
    let Some((_, at)) = job.files.iter().copied().find(|(f, _)| *f == file as usize) else {
        return refuse("its file is not one of the job");
    };
    let (device, queue, in_flight) = &mut job.queues[at];
    let ddir = unit.ddir();
    let op = match ddir {
        abi::DDIR_READ | abi::DDIR_WRITE => {
            if let Err(what) = abi::check_transfer(unit, device.geo.bytes) {
                return refuse(what);
            }
            let (offset, len, buf) = (unit.offset(), unit.xfer_buflen(), unit.xfer_buf());
            let block = u64::from(device.geo.block);
            if !offset.is_multiple_of(block) || !len.is_multiple_of(block) {
                return Err(Refused::Failed(libc::EINVAL));
            }
            if ddir == abi::DDIR_READ {
                Op::Read { offset, buf, len: len as usize }
            } else {
                Op::Write { offset, buf, len: len as usize }
            }
        }
        abi::DDIR_SYNC | abi::DDIR_DATASYNC | abi::DDIR_SYNC_FILE_RANGE => Op::Flush,
        abi::DDIR_TRIM => {
            // SAFETY: the file is one of this job.
            let zoned = !unsafe { File::new(e.abi, file) }.zbd_info().is_null();
            let Some(trim) = e.zoned_trim.filter(|_| zoned) else {
                return Err(Refused::Failed(libc::EOPNOTSUPP));
            };
            // SAFETY: fio's own function, with what fio passed.
            return match unsafe { trim(td, u) } {
                abi::IO_U_COMPLETED => Ok(abi::FIO_Q_COMPLETED),
                // A conventional zone, which has nothing to reset.
                0 => Err(Refused::Failed(libc::EOPNOTSUPP)),
                no => {
                    Err(Refused::Failed(no.checked_neg().filter(|n| *n > 0).unwrap_or(libc::EIO)))
                }
            };
        }
        d if Some(d) == e.abi.ddir_syncfs => Op::Flush,
        _ => return refuse("its direction is unknown"),
    };
    // SAFETY: fio keeps unit and buffer until it got the event.
    match unsafe { queue.submit(op, u as usize) } {
        Submit::Queued => {
            *in_flight += 1;
            Ok(abi::FIO_Q_QUEUED)
        }
        Submit::Busy => Ok(abi::FIO_Q_BUSY),
        Submit::Done(r) => r.map(|()| abi::FIO_Q_COMPLETED).map_err(Refused::Failed),
    }
}

pub(super) unsafe extern "C" fn getevents(
    td: *mut c_void,
    min: u32,
    max: u32,
    t: *const libc::timespec,
) -> c_int {
    guard(-libc::EIO, || {
        let Some((e, job)) = engine().and_then(|e| Some((e, e.job(td)?))) else {
            return -libc::EIO;
        };
        // SAFETY: this job's thread is the only user.
        let job = unsafe { &mut *job };
        // SAFETY: fio passes a time or null.
        let wait = unsafe { t.as_ref() }
            .map(|t| Duration::new(t.tv_sec.max(0) as u64, t.tv_nsec.clamp(0, 999_999_999) as u32));
        match reap(e, job, min as usize, max as usize, wait) {
            Ok(n) => n as c_int,
            Err(no) => -no,
        }
    })
}

fn reap(
    e: &Engine,
    job: &mut Job,
    min: usize,
    max: usize,
    wait: Option<Duration>,
) -> Result<usize, Errno> {
    let started = Instant::now();
    job.events.clear();
    loop {
        let busy = job.queues.iter().filter(|q| q.2 > 0).count();
        for (_, queue, in_flight) in job.queues.iter_mut().filter(|q| q.2 > 0) {
            let room = max - job.events.len();
            if room == 0 {
                break;
            }
            // Only with a single busy queue may it be waited for.
            let need =
                if busy == 1 { min.saturating_sub(job.events.len()).min(*in_flight) } else { 0 };
            let left = wait.map(|w| w.saturating_sub(started.elapsed()));
            job.reaped.clear();
            queue.reap(need, room, left, &mut job.reaped)?;
            for c in &job.reaped {
                // SAFETY: the tag is the unit given to `submit`, which fio
                // keeps until it is reported.
                let u = unsafe { IoU::new(e.abi, c.tag as *mut c_void) };
                note(u, c.result);
                *in_flight -= 1;
                job.events.push(c.tag);
            }
        }
        let n = job.events.len();
        let nothing_left = job.queues.iter().all(|q| q.2 == 0);
        if n >= min || n >= max || nothing_left || wait.is_some_and(|w| started.elapsed() >= w) {
            return Ok(n);
        }
        if busy > 1 {
            std::thread::yield_now();
        }
    }
}

pub(super) unsafe extern "C" fn event(td: *mut c_void, nth: c_int) -> *mut c_void {
    let job = engine().and_then(|e| e.job(td));
    // SAFETY: this job's thread is the only user.
    let found = job.and_then(|j| unsafe { &*j }.events.get(nth as usize).copied());
    match found {
        Some(u) => u as *mut c_void,
        // fio follows the pointer without a look; there is no way to say no.
        None => std::process::abort(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_ends_at_the_boundary() {
        assert_eq!(guard(-5, || panic!("on purpose, by a test")), -5);
        assert_eq!(guard(-5, || 3), 3);
    }

    #[test]
    fn zones_as_fio_wants_them() {
        let z = Zone { start: 4096, len: 4096, capacity: 2048, wp: 0, state: State::Empty };
        let f = to_fio(&z);
        assert_eq!((f.wp, f.zone_type, f.cond), (4096, abi::ZBD_ZONE_TYPE_SWR, 1));
        let f = to_fio(&Zone { wp: u64::MAX, state: State::Full, ..z });
        assert_eq!((f.wp, f.cond), (8192, abi::ZBD_ZONE_COND_FULL));
        let f = to_fio(&Zone { state: State::Conventional, ..z });
        assert_eq!((f.zone_type, f.cond), (abi::ZBD_ZONE_TYPE_CNV, 0));
    }

    #[test]
    fn zone_answers_are_negative_and_set_errno() {
        assert_eq!(zone_result(Ok(7)), 7);
        assert_eq!(zone_result(Err(libc::EINVAL)), -libc::EINVAL);
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EINVAL));
    }
}
