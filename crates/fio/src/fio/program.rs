//! fio itself: its functions that are called, and the report of errors and panics to it.

use core::any::Any;
use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ffi::CString;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

/// A positive error number.
pub(super) type Errno = i32;

/// fio's `log_err`, which takes a format like `printf`.
type LogErr = unsafe extern "C" fn(*const c_char, ...) -> isize;

/// Functions of fio. They are exported by every release of the table.
pub(super) struct Program {
    /// fio's own handling of a zoned trim: resets the zone through `reset_wp`, and its own write pointer with it.
    pub(super) zoned_trim: unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int,
    /// Reads the clock that fio measures with.
    pub(super) gettime: unsafe extern "C" fn(*mut libc::timespec, *mut c_void),
    /// Tells fio that a unit was submitted, after its time of submission was set.
    pub(super) io_u_queued: unsafe extern "C" fn(*mut c_void, *mut c_void),
    /// Tells fio how many units were submitted at a time.
    pub(super) mark_submit: unsafe extern "C" fn(*mut c_void, c_uint),
}

/// Looks a symbol up in the program that has loaded this library.
fn symbol(name: &CStr) -> *mut c_void {
    // SAFETY: a plain look-up.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }
}

/// fio's version, such as `fio-3.33`. `None`: this is not fio.
pub(super) fn version() -> Option<String> {
    let p = symbol(c"fio_version_string").cast::<c_char>();
    // SAFETY: fio's symbol of that name is a string.
    (!p.is_null()).then(|| unsafe { CStr::from_ptr(p) }.to_string_lossy().into_owned())
}

impl Program {
    /// Finds the functions. Call it once the version is known to be one of the table.
    pub(super) fn find() -> Result<Program, String> {
        let find = |name: &CStr| {
            let p = symbol(name);
            let name = name.to_string_lossy();
            if p.is_null() { Err(format!("this fio does not export {name}")) } else { Ok(p) }
        };
        // SAFETY: within a known fio these symbols are functions of these types.
        unsafe {
            use core::mem::transmute as to;
            Ok(Program {
                zoned_trim: to::<
                    *mut c_void,
                    unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int,
                >(find(c"zbd_do_io_u_trim")?),
                gettime: to::<*mut c_void, unsafe extern "C" fn(*mut libc::timespec, *mut c_void)>(
                    find(c"fio_gettime")?,
                ),
                io_u_queued: to::<*mut c_void, unsafe extern "C" fn(*mut c_void, *mut c_void)>(
                    find(c"io_u_queued")?,
                ),
                mark_submit: to::<*mut c_void, unsafe extern "C" fn(*mut c_void, c_uint)>(find(
                    c"io_u_mark_submit",
                )?),
            })
        }
    }
}

/// Prints a message for the user, through fio's log if it has one.
pub(super) fn say(text: &str) {
    static LOG: OnceLock<Option<LogErr>> = OnceLock::new();
    let log = *LOG.get_or_init(|| {
        let p = symbol(c"log_err");
        // Only if this is fio: in another program the symbol may be anything.
        (version().is_some() && !p.is_null())
            // SAFETY: within fio, that symbol is this function.
            .then(|| unsafe { core::mem::transmute::<*mut c_void, LogErr>(p) })
    });
    for line in text.lines() {
        let line = CString::new(format!("zoneplug: {line}\n").replace('\0', "?"));
        let line = line.unwrap_or_default();
        match log {
            // SAFETY: a format with one string, and that string.
            Some(f) => unsafe {
                f(c"%s".as_ptr(), line.as_ptr());
            },
            None => eprint!("{}", line.to_string_lossy()),
        }
    }
}

/// Runs the body of a callback. If it panics, returns `or`, so that fio does not unwind.
#[inline]
pub(super) fn guard<T>(or: T, body: impl FnOnce() -> T) -> T {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(v) => v,
        Err(payload) => {
            report_panic(payload);
            or
        }
    }
}

/// Never unwinds. So the compiler knows that callbacks do not, and they can end with a jump.
#[cold]
#[inline(never)]
fn report_panic(payload: Box<dyn Any + Send>) {
    // The drop of a payload may panic.
    std::mem::forget(payload);
    // The panic hook has printed the place. This message must not panic.
    if let Err(payload) = catch_unwind(|| say("internal error, see the message above")) {
        std::mem::forget(payload);
    }
}

/// The result of fio's zone callbacks: 0, or a negative number with `errno` set.
pub(super) fn zone_result(r: Result<c_int, Errno>) -> c_int {
    match r {
        Ok(v) => v,
        Err(e) => {
            // SAFETY: this thread's own variable.
            unsafe { *libc::__errno_location() = e };
            -e
        }
    }
}

/// Keeps this library loaded: fio closes it with its last job, when threads of the block layer may still run in it.
pub(super) fn pin() {
    // SAFETY: plain look-ups about our own address.
    unsafe {
        let mut info: libc::Dl_info = core::mem::zeroed();
        let own = pin as fn() as *const c_void;
        if libc::dladdr(own, &mut info) != 0 && !info.dli_fname.is_null() {
            libc::dlopen(info.dli_fname, libc::RTLD_NOW | libc::RTLD_NOLOAD | libc::RTLD_NODELETE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_ends_at_the_boundary() {
        assert_eq!(guard(-5, || panic!("on purpose, by a test")), -5);
        struct PanicsToo;
        impl Drop for PanicsToo {
            fn drop(&mut self) {
                panic!("on purpose, when its payload is dropped");
            }
        }
        assert_eq!(guard(-5, || std::panic::panic_any(PanicsToo)), -5);
        assert_eq!(guard(-5, || 3), 3);
    }

    #[test]
    fn zone_answers_are_negative_and_set_errno() {
        assert_eq!(zone_result(Ok(7)), 7);
        assert_eq!(zone_result(Err(libc::EINVAL)), -libc::EINVAL);
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EINVAL));
    }

    #[test]
    fn this_is_not_fio() {
        assert_eq!(version(), None);
        assert!(Program::find().is_err());
    }
}
