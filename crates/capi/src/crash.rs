//! Power cuts of code in C: a search for the cut that breaks a promise, and single cuts of a disk in memory.

use crate::boundary::{
    Failure, Options, Uncancelled, c_text, call, failures, known, options, store, text,
};
use crate::disk::{disk, zp_close, zp_disk};
use crate::memory::bytes;
use libc::{c_char, c_int, c_void};
use std::ffi::CString;
use std::sync::Arc;
use zoneplug::crash::{Crash, CrashFailure, CrashReport, Power, Work};
use zoneplug_host::HostedDisk;

/// A flag of `zp_crash_test`: cuts at every moment of every run, each in four ways, instead of `cuts` times.
pub const ZP_CRASH_EVERY: u32 = 1;
/// A flag of `zp_crash_test`: cuts the power once more while the check works. For checks that remove nothing that was promised.
pub const ZP_CRASH_CUT_CHECK: u32 = 2;

/// Options of a test of power cuts. Set all bytes to zero, then `struct_size`; 0 is the default of each field.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct zp_crash_options {
    /// `sizeof(struct zp_crash_options)`.
    pub struct_size: usize,
    /// The seed of the first run. Default: 1.
    pub first_seed: u64,
    /// Runs of the work, each with the next seed. Default: 10.
    pub nr_seeds: u64,
    /// Power cuts in total. Default: 1000.
    pub cuts: u64,
    /// `ZP_CRASH_*`.
    pub flags: u32,
    /// Zero.
    pub reserved: u32,
}

// SAFETY: numbers, for which zero is a value.
unsafe impl Options for zp_crash_options {
    const NAME: &'static str = "zp_crash_options";
}

/// Counts of a test that passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct zp_crash_report {
    /// Runs of the work.
    pub runs: u64,
    /// Commands of all runs that changed the disk.
    pub commands: u64,
    /// Moments at which the power could be cut.
    pub points: u64,
    /// Power cuts that were checked.
    pub cuts: u64,
}

impl From<CrashReport> for zp_crash_report {
    fn from(r: CrashReport) -> zp_crash_report {
        zp_crash_report { runs: r.runs, commands: r.commands, points: r.points, cuts: r.cuts }
    }
}

/// A power cut that breaks a promise: the smallest that was found.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct zp_crash_failure {
    /// All of it, in several lines, for people.
    pub text: *const c_char,
    /// The message of the check.
    pub message: *const c_char,
    /// The value of the environment variable `ZONEPLUG_CRASH` with which `zp_crash_test` makes only this cut.
    pub repeat: *const c_char,
    /// The seed of the run.
    pub seed: u64,
    /// Events (commands sent, commands completed) of the run before the cut.
    pub point: u64,
    /// The number of the first cut that failed, from 1 on, before the search for a smaller one.
    pub nr: u64,
}

/// A failure and its texts. The first field is what the program has.
#[repr(C)]
struct KeptFailure {
    public: zp_crash_failure,
    texts: [CString; 3],
}

/// A fact that no power cut may undo.
type Promise = Arc<[u8]>;

/// A run of the work of `zp_crash_test`.
pub struct zp_work {
    work: Work<Promise>,
    disk: *mut zp_disk,
}

/// A power cut of `zp_crash_test`: what it has left, and what was promised before.
pub struct zp_cut {
    disk: *mut zp_disk,
    promised: Vec<Promise>,
    broken: Option<String>,
}

/// The work of `zp_crash_test`: returns 0, or another number if it fails. It calls neither `longjmp` nor `pthread_exit`, and
/// throws nothing.
pub type zp_work_fn = Option<unsafe extern "C" fn(work: *mut zp_work, arg: *mut c_void) -> c_int>;

/// The check of `zp_crash_test`: returns 0 if all promises are kept, or another number, as that of `zp_cut_broken`. It calls neither
/// `longjmp` nor `pthread_exit`, and throws nothing.
pub type zp_cut_fn = Option<unsafe extern "C" fn(cut: *mut zp_cut, arg: *mut c_void) -> c_int>;

/// Lends a disk to code in C, and says why that code fails.
fn lend(
    disk: &HostedDisk,
    who: &str,
    code: impl FnOnce(*mut zp_disk) -> (c_int, Option<String>),
) -> Result<(), String> {
    let handle = Box::into_raw(Box::new(zp_disk::new(disk.clone(), None)));
    let (before, _) = failures();
    let (number, said) = code(handle);
    let (after, last) = failures();
    // SAFETY: made above; the code in C does not close it, says the header.
    unsafe { zp_close(handle) };
    match (number, said) {
        (0, _) => Ok(()),
        (_, Some(said)) => Err(said),
        _ if after != before => Err(format!("the {who} returned {number}: {last}")),
        _ => Err(format!("the {who} returned {number}")),
    }
}

/// Runs `work` on an empty disk in memory once for each seed, cuts the power at many moments, and has `check` look at what each cut
/// has left. `disk` is a specification of the kind `mem`, such as `"mem,zones=8,zone-size=256K"`; small disks are quick, and their
/// zones become full. `options` may be NULL. Both functions get `arg`.
///
/// Returns 0 if all promises were kept, and stores counts in `*report`. Returns 1 at the first promise that a cut breaks, and stores
/// the smallest such cut in `*failure`, for `zp_crash_failure_free`. Both may be NULL. -EINVAL: the specification is wrong, or the
/// work fails without a power cut. If the environment variable `ZONEPLUG_CRASH` names a cut, makes only that one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zp_crash_test(
    disk: *const c_char,
    options: *const zp_crash_options,
    work: zp_work_fn,
    check: zp_cut_fn,
    arg: *mut c_void,
    report: *mut zp_crash_report,
    failure: *mut *mut zp_crash_failure,
) -> c_int {
    call(|| {
        // SAFETY: a string and options, says the header.
        let (spec, given) = unsafe { (text(disk, "the specification")?, self::options(options)?) };
        known(given.flags, ZP_CRASH_EVERY | ZP_CRASH_CUT_CHECK, "ZP_CRASH_*")?;
        let (Some(work), Some(check)) = (work, check) else {
            return Err(Failure::invalid("the work or the check is NULL", "two functions"));
        };
        let or = |number: u64, default: u64| if number == 0 { default } else { number };
        let first = or(given.first_seed, 1);
        let seeds = first..first.saturating_add(or(given.nr_seeds, 10));
        let mut crash = Crash::new(spec).seeds(seeds).cuts(or(given.cuts, 1000));
        if given.flags & ZP_CRASH_EVERY != 0 {
            crash = crash.every();
        }
        if given.flags & ZP_CRASH_CUT_CHECK != 0 {
            crash = crash.cut_check();
        }
        let _whole = Uncancelled::begin();
        let result = crash.run(
            |w: &Work<Promise>| {
                lend(w.disk(), "work", |disk| {
                    let mut run = zp_work { work: w.clone(), disk };
                    // SAFETY: a function that takes these, says the header.
                    (unsafe { work(&raw mut run, arg) }, None)
                })
            },
            |disk, promised: &[Promise]| {
                lend(disk, "check", |disk| {
                    let mut cut = zp_cut { disk, promised: promised.to_vec(), broken: None };
                    // SAFETY: the same.
                    let number = unsafe { check(&raw mut cut, arg) };
                    (number, cut.broken)
                })
            },
        );
        match result {
            Ok(counts) => {
                // SAFETY: NULL or a place, says the header.
                unsafe { store(report, counts.into()) };
                Ok(0)
            }
            Err(found) => match found.point {
                Some(point) => {
                    if !failure.is_null() {
                        let kept = Box::new(keep(&found, point));
                        // SAFETY: not null, and the place of a pointer, says the header.
                        unsafe { failure.write(Box::into_raw(kept).cast()) };
                    }
                    Ok(1)
                }
                None => {
                    let hint = "mem,zones=8,zone-size=256K, and work that succeeds on it";
                    Err(Failure::invalid(&found.message, hint))
                }
            },
        }
    })
}

fn keep(found: &CrashFailure, point: usize) -> KeptFailure {
    let texts = [found.to_string(), found.message.clone(), found.repeat.clone()].map(c_text);
    // The strings stay where they are when the texts move.
    let [text, message, repeat] = [0, 1, 2].map(|n: usize| texts[n].as_ptr());
    let (seed, point, nr) = (found.seed, point as u64, found.nr);
    KeptFailure { public: zp_crash_failure { text, message, repeat, seed, point, nr }, texts }
}

/// Frees a failure. NULL is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zp_crash_failure_free(failure: *mut zp_crash_failure) {
    call(|| {
        if !failure.is_null() {
            // SAFETY: the first field of a box of `zp_crash_test`, says the header.
            drop(unsafe { Box::from_raw(failure.cast::<KeptFailure>()) }.texts);
        }
        Ok(0)
    });
}

/// The disk of a run, empty at its start. It belongs to the library, which closes it after the work: the work closes what it has opened on
/// it, and not the disk.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zp_work_disk(work: *mut zp_work) -> *mut zp_disk {
    // SAFETY: NULL or what the work was given, says the header.
    unsafe { work.as_ref() }.map_or(std::ptr::null_mut(), |work| work.disk)
}

/// The seed of a run, for random work.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zp_work_seed(work: *mut zp_work) -> u64 {
    // SAFETY: NULL or what the work was given, says the header.
    unsafe { work.as_ref() }.map_or(0, |work| work.work.seed())
}

/// Declares that from now on no power cut may undo a fact, of which the check gets these `len` bytes. To be called, from any thread,
/// when the code says that data are durable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zp_work_promise(
    work: *mut zp_work,
    data: *const c_void,
    len: usize,
) -> c_int {
    call(|| {
        // SAFETY: NULL or what the work was given, says the header.
        let work = unsafe { work.as_ref() }
            .ok_or_else(|| Failure::invalid("the work is NULL", "what the work was given"))?;
        // SAFETY: memory of that length, says the header.
        work.work.promise(Arc::from(unsafe { bytes(data, len) }?));
        Ok(0)
    })
}

/// The disk that a cut has left, as a program finds it after a crash. It belongs to the library, as that of the work does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zp_cut_disk(cut: *mut zp_cut) -> *mut zp_disk {
    // SAFETY: NULL or what the check was given, says the header.
    unsafe { cut.as_ref() }.map_or(std::ptr::null_mut(), |cut| cut.disk)
}

/// The nth promise that was made before the cut, from 0 on, and its length in `*len`. NULL: there are no more. The memory belongs to
/// the library, until the check returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zp_cut_promise(
    cut: *mut zp_cut,
    nth: usize,
    len: *mut usize,
) -> *const c_void {
    // SAFETY: NULL or what the check was given, says the header.
    let promise = unsafe { cut.as_ref() }.and_then(|cut| cut.promised.get(nth));
    let Some(promise) = promise else { return std::ptr::null() };
    // SAFETY: NULL or a place, says the header.
    unsafe { store(len, promise.len()) };
    promise.as_ptr().cast()
}

/// Says which promise is broken. Returns 1, for the check to return.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zp_cut_broken(cut: *mut zp_cut, why: *const c_char) -> c_int {
    call(|| {
        // SAFETY: NULL or what the check was given, says the header.
        let cut = unsafe { cut.as_mut() }
            .ok_or_else(|| Failure::invalid("the cut is NULL", "what the check was given"))?;
        // SAFETY: a string, says the header.
        cut.broken = Some(unsafe { text(why, "the reason") }?.to_owned());
        Ok(1)
    })
}

/// Opens an empty disk in memory with a volatile write cache, whose power `zp_crash_cut` cuts. `spec` is of the kind `mem`. `seed` chooses
/// what each cut takes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zp_crash_open(
    spec: *const c_char,
    seed: u64,
    disk: *mut *mut zp_disk,
) -> c_int {
    call(|| {
        if disk.is_null() {
            return Err(Failure::invalid("the place for the disk is NULL", "a pointer's address"));
        }
        let _whole = Uncancelled::begin();
        // SAFETY: a string, says the header.
        let power = Power::new(unsafe { text(spec, "the specification") }?, seed)?;
        let mut new = zp_disk::new(power.open()?, None);
        new.power = Some(power);
        // SAFETY: not null, and the place of a pointer, says the header.
        unsafe { disk.write(Box::into_raw(Box::new(new))) };
        Ok(0)
    })
}

/// Cuts the power of a disk of `zp_crash_open` and restores it; from then on the handle is of the disk that is left, as a program finds it
/// after a crash. Each sequential zone keeps a random prefix of what was written, at least what a flush or FUA covers. No other thread
/// may be in a call with the disk. Queues and logs of it have to be closed and opened again; events are numbered from 1 again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zp_crash_cut(disk: *mut zp_disk) -> c_int {
    call(|| {
        // SAFETY: NULL or an open disk, says the header.
        unsafe { self::disk(disk)?.hosted()? };
        // SAFETY: not null, and no other thread uses the disk, says the header.
        let disk = unsafe { &mut *disk };
        let Some(power) = &disk.power else {
            let what = "this disk has no power that a program can cut";
            return Err(Failure::invalid(what, "a disk of zp_crash_open"));
        };
        let _whole = Uncancelled::begin();
        power.cut()?;
        let left = power.open()?;
        disk.replace(left);
        Ok(0)
    })
}
