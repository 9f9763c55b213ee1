//! The start and the end of every call: contains panics, refuses a child of a fork, and turns an error into a negative
//! errno with a text.

use libc::{c_char, c_int, c_void};
use std::cell::{Cell, RefCell};
use std::ffi::{CStr, CString, OsStr};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use zoneplug::zone_log::LogError;
use zoneplug_core::{Error, Spelling};
use zoneplug_host::IoError;

/// How hints name options: as the fields and flags of the structures in C. An option that C does not have keeps its name.
struct CSpelling;

/// The options that have another name in C, or another value.
const OPTIONS: [(&str, &str); 10] = [
    ("allow-any-host", "ZP_SERVE_ANY_HOST"),
    ("allow-any-initiator", "ZP_SERVE_ANY_INITIATOR"),
    ("allow-host", "hosts"),
    ("allow-initiator", "initiators"),
    ("chap-secret", "initiator_secrets"),
    ("dhchap-key", "host_keys"),
    ("iqn", "iqn"),
    ("nqn", "nqn"),
    ("preallocate", "ZP_CREATE_PREALLOCATE"),
    ("socket", "socket"),
];

impl Spelling for CSpelling {
    fn option(&self, name: &str, value: Option<&str>) -> String {
        let in_c = OPTIONS.iter().find(|(option, _)| *option == name);
        let name = in_c.map_or_else(|| format!("'{name}'"), |(_, in_c)| (*in_c).to_owned());
        let value = match value {
            None => return name,
            Some(value @ ("NQN" | "IQN")) => format!("{{{value}}}"),
            Some(value) => match value.split_once('=') {
                Some((client, file)) => format!("{{{{{client}, {file}}}}}"),
                None => value.to_owned(),
            },
        };
        format!("{name} = {value}")
    }
}

/// Why a call fails.
#[derive(Debug)]
pub(crate) struct Failure {
    /// Positive.
    errno: c_int,
    what: String,
    hint: Option<String>,
    /// The name of the reason, for programs.
    reason: Option<String>,
}

/// The texts of a thread's last failed call.
#[derive(Debug, Default)]
struct LastTexts {
    what: CString,
    hint: Option<CString>,
    reason: Option<CString>,
}

/// The result of a call: a number that is not negative, or the failure.
pub(crate) type Outcome<T> = Result<T, Failure>;

impl Failure {
    #[cold]
    pub(crate) fn new(errno: c_int, what: &str, hint: &str) -> Failure {
        Failure { errno, what: what.to_owned(), hint: Some(hint.to_owned()), reason: None }
    }

    /// The failure of a call with a wrong argument.
    #[cold]
    pub(crate) fn invalid(what: &str, hint: &str) -> Failure {
        Self::new(libc::EINVAL, what, hint)
    }

    /// The failure to get memory for the data of a call, or for a buffer.
    #[cold]
    pub(crate) fn no_memory() -> Failure {
        Self::new(libc::ENOMEM, "there is not enough memory", "less at a time")
    }

    /// The failure to get a descriptor from the system.
    #[cold]
    pub(crate) fn no_descriptor(e: &std::io::Error) -> Failure {
        let errno = e.raw_os_error().unwrap_or(libc::EMFILE);
        Self::new(errno, &format!("no descriptor: {e}"), "a higher limit of open files")
    }

    /// The number for the caller, without the text.
    pub(crate) fn number(&self) -> c_int {
        -self.errno
    }

    /// Keeps the text for this thread, and returns the number for the caller.
    #[cold]
    fn report(self) -> c_int {
        let errno = self.errno;
        let last = LastTexts {
            what: c_text(self.what),
            hint: self.hint.map(c_text),
            reason: self.reason.map(c_text),
        };
        // A thread that is ending can no longer keep a text.
        let _ = LAST.try_with(|l| *l.borrow_mut() = last);
        FAILED.set(FAILED.get().wrapping_add(1));
        -errno
    }
}

impl From<Error> for Failure {
    #[cold]
    fn from(e: Error) -> Failure {
        Failure {
            errno: e.errno(),
            what: e.what().to_owned(),
            hint: e.what_to_try_in(&CSpelling),
            reason: e.reason().map(str::to_owned),
        }
    }
}

impl From<IoError> for Failure {
    #[cold]
    fn from(e: IoError) -> Failure {
        Failure {
            errno: e.status.errno(),
            what: e.to_string(),
            hint: e.what_to_try().map(str::to_owned),
            reason: Some(format!("{:?}", e.status)),
        }
    }
}

impl From<LogError> for Failure {
    #[cold]
    fn from(e: LogError) -> Failure {
        Failure { errno: e.errno(), ..Error::from(e).into() }
    }
}

thread_local! {
    static LAST: RefCell<LastTexts> = RefCell::default();
    /// Calls of this thread that have failed.
    static FAILED: Cell<u64> = const { Cell::new(0) };
}

/// How many calls of this thread have failed, and why the last one did.
pub(crate) fn failures() -> (u64, String) {
    let text = LAST.try_with(|l| l.borrow().what.to_string_lossy().into_owned());
    (FAILED.get(), text.unwrap_or_default())
}

/// Runs the body of a call.
#[inline]
pub(crate) fn call(body: impl FnOnce() -> Outcome<c_int>) -> c_int {
    wide_call(|| body().map(i64::from)) as c_int
}

/// Runs the body of a call that returns a sector.
#[inline]
pub(crate) fn wide_call(body: impl FnOnce() -> Outcome<i64>) -> i64 {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(n)) => n,
        Ok(Err(e)) => i64::from(e.report()),
        Err(panic) => i64::from(panicked(panic).report()),
    }
}

#[cold]
fn panicked(panic: Box<dyn std::any::Any + Send>) -> Failure {
    let why = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
    let why = why.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
    // Dropping the payload may panic again.
    std::mem::forget(panic);
    Failure::new(
        libc::EIO,
        &format!("a bug in zoneplug: {why}"),
        "close what was opened, and report the text that went to standard error",
    )
}

unsafe extern "C" {
    // glibc and musl have this function, with these numbers; the crate libc does not.
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
}

/// `PTHREAD_CANCEL_DISABLE`.
const CANCEL_DISABLE: c_int = 1;

/// Keeps the calling thread from being cancelled (pthread_cancel(3)) while it waits in the library: a cancellation
/// unwinds the stack, which Rust code cannot survive. A cancellation that comes meanwhile takes effect after the call.
#[derive(Debug)]
pub(crate) struct Uncancelled(c_int);

impl Uncancelled {
    /// Blocks cancellation until the result is dropped.
    pub(crate) fn begin() -> Uncancelled {
        let mut old = 0;
        // SAFETY: `old` is valid for a write.
        unsafe { pthread_setcancelstate(CANCEL_DISABLE, &raw mut old) };
        Uncancelled(old)
    }
}

impl Drop for Uncancelled {
    fn drop(&mut self) {
        // SAFETY: the first argument is the thread's previous state, and the second is valid for a write.
        unsafe { pthread_setcancelstate(self.0, &raw mut self.0) };
    }
}

/// The number of forks between the first process and this one.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// The process that opened a handle. Its threads do not exist in a child of a fork, so a child's use of the handle would
/// wait for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Process(u32);

impl Process {
    /// This process.
    pub(crate) fn this() -> Process {
        /// Whether `in_child` is registered. No lock guards the registration, because a child of a fork would wait for a
        /// holder that exists in its parent only. If two threads register, a fork is counted twice, which does no harm.
        static REGISTERED: AtomicBool = AtomicBool::new(false);
        extern "C" fn in_child() {
            GENERATION.fetch_add(1, Ordering::Relaxed);
        }
        if !REGISTERED.load(Ordering::Acquire) {
            // SAFETY: `in_child` is never unloaded (`-z nodelete`), and only adds to an atomic, which a child of a fork may
            // do.
            unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
            REGISTERED.store(true, Ordering::Release);
        }
        Process(GENERATION.load(Ordering::Relaxed))
    }

    /// Whether the calling process is a child that has inherited the handle.
    #[inline]
    pub(crate) fn is_other(self) -> bool {
        GENERATION.load(Ordering::Relaxed) != self.0
    }

    /// Refuses a child that has inherited the handle.
    #[inline]
    pub(crate) fn check(self) -> Outcome<()> {
        if self.is_other() { Err(Self::refuse()) } else { Ok(()) }
    }

    #[cold]
    fn refuse() -> Failure {
        Failure::new(
            libc::EPERM,
            "the disk was opened before this process was forked",
            "open the disk in the child, and only there",
        )
    }
}

/// Stores a result, unless the program wants none.
///
/// # Safety
///
/// `place` is null or the place of a `T`.
pub(crate) unsafe fn store<T>(place: *mut T, value: T) {
    if !place.is_null() {
        // SAFETY: the caller's promise.
        unsafe { place.write(value) };
    }
}

/// Frees a handle. In a child of a fork this does nothing.
///
/// # Safety
///
/// `handle` is null, or a box that the caller gives up.
pub(crate) unsafe fn close<T>(handle: *mut T, process: fn(&T) -> Process) {
    call(|| {
        if !handle.is_null() {
            let _whole = Uncancelled::begin();
            // SAFETY: the caller's promise.
            let handle = unsafe { Box::from_raw(handle) };
            if process(&handle).is_other() {
                // The threads of the object do not exist in this process, and the parent owns its devices.
                std::mem::forget(handle);
            }
        }
        Ok(0)
    });
}

/// The text of an argument.
///
/// # Safety
///
/// `text` is null, or points to a string that ends with a zero byte.
pub(crate) unsafe fn text<'a>(text: *const c_char, what: &str) -> Outcome<&'a str> {
    if text.is_null() {
        return Err(Failure::invalid(&format!("{what} is NULL"), "a string"));
    }
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|_| Failure::invalid(&format!("{what} is not UTF-8"), "UTF-8"))
}

/// The path of an argument, whatever its bytes are.
///
/// # Safety
///
/// `path` is null, or points to a string that ends with a zero byte.
pub(crate) unsafe fn path<'a>(path: *const c_char) -> Outcome<&'a Path> {
    if path.is_null() {
        return Err(Failure::invalid("the path is NULL", "a string"));
    }
    // SAFETY: the caller's promise.
    let bytes = unsafe { CStr::from_ptr(path) }.to_bytes();
    Ok(Path::new(OsStr::from_bytes(bytes)))
}

/// A structure of options. Its first field is a `usize` named `struct_size`.
///
/// # Safety
///
/// The structure is `repr(C)`, has no padding that it reads, and zero bytes are a value of it: its defaults.
pub(crate) unsafe trait Options: Copy {
    /// The name in C.
    const NAME: &'static str;
}

/// The most bytes of options that a later version of the library can have.
const MOST_OPTIONS: usize = 4096;

/// The options that an argument points to. Fields that the caller's version of the structure lacks are zero. A field that this
/// version lacks must be zero.
///
/// # Safety
///
/// `given` is null, or points to as many bytes as its first field says.
pub(crate) unsafe fn options<T: Options>(given: *const T) -> Outcome<T> {
    let mut all = MaybeUninit::<T>::zeroed();
    if !given.is_null() {
        let given = given.cast::<u8>();
        // SAFETY: the first field, says the caller; it may be misaligned.
        let size = unsafe { given.cast::<usize>().read_unaligned() };
        if !(size_of::<usize>()..=MOST_OPTIONS).contains(&size) {
            let what = format!("struct_size is {size}");
            return Err(Failure::invalid(&what, &format!("sizeof(struct {})", T::NAME)));
        }
        let known = size.min(size_of::<T>());
        for n in known..size {
            // SAFETY: below the size that the caller has promised.
            if unsafe { given.add(n).read() } != 0 {
                let what = format!("struct {} has a field that this library lacks", T::NAME);
                return Err(Failure::new(libc::E2BIG, &what, "a newer libzoneplug"));
            }
        }
        // SAFETY: both have that many bytes.
        unsafe { std::ptr::copy_nonoverlapping(given, all.as_mut_ptr().cast(), known) };
    }
    // SAFETY: zero bytes are a value, and so are those that the caller has set in C.
    Ok(unsafe { all.assume_init() })
}

/// Refuses flags that a call does not know.
pub(crate) fn known(flags: u32, known: u32, names: &str) -> Outcome<()> {
    match flags & !known {
        0 => Ok(()),
        more => {
            Err(Failure::invalid(&format!("this call does not know the flags {more:#x}"), names))
        }
    }
}

/// A program's function that takes each line of a text. NULL: the program wants none. The line is gone when the function returns. The
/// function calls neither `longjmp` nor `pthread_exit`, and throws nothing.
pub type zp_line = Option<unsafe extern "C" fn(line: *const c_char, arg: *mut c_void)>;

/// Gives each line to the program.
///
/// # Safety
///
/// `line` may be called with `arg`.
pub(crate) unsafe fn give_lines<'a>(
    lines: impl IntoIterator<Item = &'a String>,
    line: zp_line,
    arg: *mut c_void,
) {
    let Some(line) = line else { return };
    for text in lines {
        let text = c_text(text.clone());
        // SAFETY: the caller's promise.
        unsafe { line(text.as_ptr(), arg) };
    }
}

/// A text for C, which ends at its first zero byte. Texts quote specifications, and those from C have none.
pub(crate) fn c_text(mut text: String) -> CString {
    text.truncate(text.find('\0').unwrap_or(text.len()));
    CString::new(text).unwrap_or_default()
}

/// Copies `text` and a zero byte to `buf`, as much as fits, and returns the length of the whole text, as snprintf(3)
/// does.
///
/// # Safety
///
/// `buf` is null or has `size` bytes.
pub(crate) unsafe fn copy_text(text: &str, buf: *mut c_char, size: usize) -> Outcome<c_int> {
    let n = text.len().min(size.saturating_sub(1));
    if size > 0 && buf.is_null() {
        return Err(Failure::invalid("the buffer is NULL", "a buffer, or a size of 0"));
    }
    if size > 0 {
        // SAFETY: `n` and the zero byte fit into `size` bytes.
        unsafe {
            std::ptr::copy_nonoverlapping(text.as_ptr().cast(), buf, n);
            buf.add(n).write(0);
        }
    }
    c_int::try_from(text.len())
        .map_err(|_| Failure::new(libc::EOVERFLOW, "the text is too long", "report this"))
}

/// Returns why this thread's last failed call has failed, in one line: "" if none has failed. The text lives until this
/// thread's next call that fails.
#[unsafe(no_mangle)]
pub extern "C" fn zp_error_message() -> *const c_char {
    LAST.try_with(|l| l.borrow().what.as_ptr()).unwrap_or(c"".as_ptr())
}

/// Returns what to try after this thread's last failed call, in one line. NULL if nothing is known. The text lives until
/// this thread's next call that fails.
#[unsafe(no_mangle)]
pub extern "C" fn zp_error_hint() -> *const c_char {
    let hint = |l: &RefCell<LastTexts>| l.borrow().hint.as_ref().map(|h| h.as_ptr());
    LAST.try_with(hint).ok().flatten().unwrap_or(std::ptr::null())
}

/// Returns the name of what was wrong in this thread's last failed call, for a program to compare: "Exists" for a file that
/// is there, "UnknownKey" for a key of a specification, "ZoneFull" for an operation. NULL if it has no name. The names are
/// those of the enums of the Rust library. The text lives until this thread's next call that fails.
#[unsafe(no_mangle)]
pub extern "C" fn zp_error_reason() -> *const c_char {
    let reason = |l: &RefCell<LastTexts>| l.borrow().reason.as_ref().map(|r| r.as_ptr());
    LAST.try_with(reason).ok().flatten().unwrap_or(std::ptr::null())
}
