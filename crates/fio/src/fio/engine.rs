//! Devices and jobs, and the callbacks for files and zones.
//!
//! fio calls everything in this order, for each job (`td`):
//!
//! 1. in its main thread, for all jobs: `get_ioengine`; then `get_file_size` per file and, in zoned mode and once per
//!    device, `get_zoned_model`, `report_zones`, `get_max_active_zones`, `get_max_open_zones`;
//! 2. in the job's thread: `init`, `io_u_init` per unit of depth, `open_file` (followed by `reset_wp` of zones with
//!    data if the job verifies), `queue`/`commit`/`getevents`/`event`, `close_file` and `open_file` again between
//!    writing and verifying, at last `io_u_free` per unit and `cleanup`.
//!
//! With `create_serialize=0` (not in zoned mode) the first group runs after `io_u_init`, in the job's thread. `td` is
//! used as a key and never looked into.

use super::abi::{self, Abi, File, ZbdZone};
use super::device::{Device, FileName, lock};
use super::program::{Errno, Program, guard, pin, say, version, zone_result};
use core::ffi::{c_char, c_int, c_void};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use zoneplug_core::Op;

pub(super) struct Engine {
    pub(super) abi: &'static Abi,
    pub(super) fio: Program,
    /// The process that has opened devices; before that, the process in which fio loaded this library.
    pid: AtomicI32,
    /// Kept until fio ends, because a later job may name a device again.
    devices: Mutex<Devices>,
}

#[derive(Default)]
struct Devices {
    /// By canonical specification, so that jobs whose specifications mean the same share one.
    open: BTreeMap<String, Arc<Device>>,
    /// By file name, which is parsed once: fio names a file with each operation on its zones.
    named: BTreeMap<String, Named>,
}

/// The device that a file name leads to, and how a job uses it.
#[derive(Clone)]
pub(super) struct Named {
    pub(super) device: Arc<Device>,
    /// Whether the job's writes are zone appends.
    pub(super) appends: bool,
}

static ENGINE: OnceLock<Result<Engine, String>> = OnceLock::new();

pub(super) fn engine() -> Option<&'static Engine> {
    ENGINE.get()?.as_ref().ok()
}

/// Finds out the release of this fio. Called for every job; does its work once.
pub(super) fn start() -> Result<&'static Abi, String> {
    let e = ENGINE.get_or_init(|| {
        let version = version().ok_or("this is not fio, or one that does not tell its version")?;
        let abi = abi::lookup(&version)?;
        let fio = Program::find()?;
        pin();
        // SAFETY: a plain registration; the library stays loaded.
        unsafe { libc::atexit(at_exit) };
        Ok(Engine {
            abi,
            fio,
            pid: AtomicI32::new(std::process::id() as i32),
            devices: Mutex::default(),
        })
    });
    e.as_ref().map(|e| e.abi).map_err(Clone::clone)
}

/// Closes the devices, after fio's last job.
extern "C" fn at_exit() {
    guard((), || {
        if let Some(e) = engine()
            && e.is_home()
        {
            drop(std::mem::take(&mut *lock(&e.devices)));
        }
    });
}

impl Engine {
    /// Whether this is the process that has opened the devices.
    pub(super) fn is_home(&self) -> bool {
        self.pid.load(Ordering::Relaxed) == std::process::id() as i32
    }

    fn named(&self, name: &str) -> Result<Named, String> {
        let mut all = lock(&self.devices);
        if let Some(named) = all.named.get(name) {
            return Ok(named.clone());
        }
        let FileName { disk, appends } = FileName::parse(name)?;
        let key = disk.canonical().to_string();
        let device = match all.open.get(&key) {
            Some(device) => device.clone(),
            None => {
                let device = Arc::new(Device::open(&disk)?);
                self.pid.store(std::process::id() as i32, Ordering::Relaxed);
                all.open.insert(key, device.clone());
                device
            }
        };
        let named = Named { device, appends };
        all.named.insert(name.to_owned(), named.clone());
        Ok(named)
    }

    fn device(&self, name: &str) -> Result<Arc<Device>, String> {
        self.named(name).map(|named| named.device)
    }

    /// The device behind a `fio_file`.
    ///
    /// # Safety
    /// `f` must come from fio, in a callback of the current thread.
    pub(super) unsafe fn device_of(&self, f: *mut c_void) -> Result<(File<'_>, Named), String> {
        // SAFETY: the caller's promise.
        let file = unsafe { File::new(self.abi, f) };
        let named = self.named(&file.name()?)?;
        Ok((file, named))
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
                // fio asks again, as after a failed first call: the size is then ours.
                let d = e.device(&file.name()?)?;
                abi::check_new_file(e.abi, f, Some(d.bytes()))
                    .or_else(|_| abi::check_new_file(e.abi, f, Some(d.whole_bytes())))
                    .map_err(|_| why)
            })
            .and_then(|()| file.name())
            .and_then(|name| e.device(&name).map_err(|why| format!("{name}: {why}")));
        match opened {
            Ok(d) => {
                file.set_filetype(abi::FIO_TYPE_BLOCK);
                file.set_real_file_size(d.bytes());
                0
            }
            Err(why) => {
                say(&why);
                1
            }
        }
    })
}

/// Called in zoned mode only, before fio counts the zones.
pub(super) unsafe extern "C" fn get_zoned_model(
    _td: *mut c_void,
    f: *mut c_void,
    model: *mut c_int,
) -> c_int {
    guard(-libc::EIO, || {
        let Some(e) = engine() else { return zone_result(Err(libc::EIO)) };
        // SAFETY: fio passes a file, shown to `get_file_size` before.
        let (file, Named { device: d, .. }) = match unsafe { e.device_of(f) } {
            Ok(found) => found,
            Err(why) => {
                say(&why);
                return zone_result(Err(libc::EIO));
            }
        };
        if d.whole_zones() == 0 {
            say("the disk is smaller than one zone, which fio's zoned mode cannot use");
            return zone_result(Err(libc::ENOTSUP));
        }
        d.zoned.store(true, Ordering::Relaxed);
        if d.whole_bytes() != d.bytes() {
            if !d.warned_of_short_zone.swap(true, Ordering::Relaxed) {
                say(&format!(
                    "the last zone is shorter than the others, which fio's zoned mode cannot use: \
                     fio is told of {} zones",
                    d.whole_zones()
                ));
            }
            file.set_real_file_size(d.whole_bytes());
        }
        // SAFETY: fio passes the address of an enum.
        unsafe { model.write(abi::ZBD_HOST_MANAGED) };
        0
    })
}

// ---- zones, in main or job threads -------------------------------------------

/// # Safety
/// `f` as fio passes it.
unsafe fn on_device(f: *mut c_void, run: impl FnOnce(&Device) -> Result<c_int, Errno>) -> c_int {
    guard(-libc::EIO, || {
        zone_result((|| {
            let e = engine().ok_or(libc::EIO)?;
            // SAFETY: the caller's promise.
            let (_, named) = unsafe { e.device_of(f) }.map_err(|_| libc::EIO)?;
            run(&named.device)
        })())
    })
}

pub(super) unsafe extern "C" fn report_zones(
    _td: *mut c_void,
    f: *mut c_void,
    offset: u64,
    zones: *mut ZbdZone,
    max: u32,
) -> c_int {
    let max = max.min(i32::MAX as u32);
    let report = |d: &Device| {
        let found = d.report(offset, max)?;
        for (i, z) in found.iter().take(max as usize).enumerate() {
            // SAFETY: fio passes an array of `max` entries.
            unsafe { zones.add(i).write(*z) };
        }
        Ok(found.len() as c_int)
    };
    // SAFETY: passed on from fio.
    unsafe { on_device(f, report) }
}

/// Stores a limit of a device in `out`.
///
/// # Safety
/// `f` and `out` as fio passes them: `out` is valid for writing.
unsafe fn store_limit(f: *mut c_void, out: *mut u32, limit: fn(&Device) -> u32) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        on_device(f, |d| {
            out.write(limit(d));
            Ok(0)
        })
    }
}

pub(super) unsafe extern "C" fn get_max_open_zones(
    _td: *mut c_void,
    f: *mut c_void,
    out: *mut u32,
) -> c_int {
    // SAFETY: passed on from fio.
    unsafe { store_limit(f, out, |d| d.max_open) }
}

pub(super) unsafe extern "C" fn get_max_active_zones(
    _td: *mut c_void,
    f: *mut c_void,
    out: *mut u32,
) -> c_int {
    // SAFETY: passed on from fio.
    unsafe { store_limit(f, out, |d| d.max_active) }
}

pub(super) unsafe extern "C" fn reset_wp(
    _td: *mut c_void,
    f: *mut c_void,
    offset: u64,
    len: u64,
) -> c_int {
    // SAFETY: passed on from fio.
    unsafe { on_device(f, |d| d.manage(Op::ZoneReset, offset, len).map(|()| 0)) }
}

pub(super) unsafe extern "C" fn finish_zone(
    _td: *mut c_void,
    f: *mut c_void,
    offset: u64,
    len: u64,
) -> c_int {
    // SAFETY: passed on from fio.
    unsafe { on_device(f, |d| d.manage(Op::ZoneFinish, offset, len).map(|()| 0)) }
}

/// After a failed write, if the user wants it: writes from the zone's write pointer on, the given data or zeroes.
pub(super) unsafe extern "C" fn move_zone_wp(
    _td: *mut c_void,
    f: *mut c_void,
    z: *mut ZbdZone,
    len: u64,
    data: *const c_char,
) -> c_int {
    if z.is_null() {
        return zone_result(Err(libc::EINVAL));
    }
    // SAFETY: fio passes a zone it got from `report_zones`, and `len` bytes of data or none.
    unsafe {
        let wp = (*z).wp;
        on_device(f, |d| {
            let copy = |at: u64, buf: &mut zoneplug_buf::AlignedBuf| {
                if !data.is_null() {
                    let from = data.cast::<u8>().add(at as usize);
                    buf.write(0, core::slice::from_raw_parts(from, buf.len() as usize));
                }
            };
            d.fill(wp, len, copy).map(|()| 0)
        })
    }
}

// ---- files --------------------------------------------------------------------

/// Does nothing: fio closes and opens files between its phases, but clients stay until the end.
pub(super) unsafe extern "C" fn close_file(_td: *mut c_void, _f: *mut c_void) -> c_int {
    0
}

/// Does nothing: there is no cache to drop.
pub(super) unsafe extern "C" fn invalidate(_td: *mut c_void, _f: *mut c_void) -> c_int {
    0
}

/// Does nothing: a device must not be removed, whatever its specification names.
pub(super) unsafe extern "C" fn unlink_file(_td: *mut c_void, _f: *mut c_void) -> c_int {
    0
}
