//! A trace of the commands to a device, in the text format of `blkparse`: `D` when a command is sent, `C` when it is
//! completed, with an error number that is 0 for success. `zoneplug-lab replay` and other readers of that format can read
//! it.
//!
//! Owns the file, which the first command creates. Each line is written at once, so that the file is complete up to a
//! failure of the device or the process. Reports are left out, because blktrace has none. When a server hands its
//! disk over or takes it back, the next process appends to the file and continues its times and numbers.

use crate::cannot_make;
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use zoneplug_core::{Device, Error, ErrorKind, Flags, Nanos, Op};
use zoneplug_devices::stack::{TapDisk, TapEvent};

struct Trace {
    path: PathBuf,
    state: Mutex<TraceState>,
}

struct TraceState {
    file: Option<File>,
    /// Writing the file has failed, and the error was printed.
    over: bool,
    /// The number of lines so far.
    nr: u64,
    /// The time of the last line, if the trace continues one; otherwise 0.
    began: Nanos,
    line: String,
}

impl Trace {
    fn event(&self, e: &TapEvent) {
        let Some(rwbs) = rwbs(e) else { return };
        let mut guard = zoneplug_core::poison::lock(&self.state);
        let state = &mut *guard;
        if state.over {
            return;
        }
        state.nr += 1;
        state.line.clear();
        let at = state.began.0 + e.at.0;
        let (seconds, nanos) = (at / 1_000_000_000, at % 1_000_000_000);
        let action = if e.status.is_some() { 'C' } else { 'D' };
        let (sector, len) = match e.op {
            Op::Flush | Op::ZoneResetAll => (0, 0),
            _ => (e.sector.0, e.len_sectors),
        };
        // As in "259,0    1      217     0.000012345     0  D   W 2048 + 8 [zoneplug]". Writing to a String cannot
        // fail.
        let _ = write!(
            state.line,
            "259,0   {:>3} {:>8} {seconds:>5}.{nanos:09}     0 {action:>2} {rwbs:>3} {sector} + {len} ",
            e.queue, state.nr
        );
        let _ = match e.status {
            None => writeln!(state.line, "[zoneplug]"),
            Some(status) => writeln!(state.line, "[{}]", status.errno()),
        };
        if let Err(error) = state.put(&self.path) {
            state.over = true;
            self.complain(&error);
        }
    }

    /// Reports on standard error that the trace ends: the disk's clients get no result that could carry this error. Waits a
    /// second for a reader that stalls.
    fn complain(&self, error: &std::io::Error) {
        let text = format!("zoneplug: the trace {} ends here: {error}\n", self.path.display());
        let (written, wait) = std::sync::mpsc::channel();
        let writer = std::thread::Builder::new().spawn(move || {
            eprint!("{text}");
            let _ = written.send(());
        });
        if writer.is_ok() {
            let _ = wait.recv_timeout(std::time::Duration::from_secs(1));
        }
    }
}

impl TraceState {
    fn put(&mut self, path: &Path) -> std::io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(File::create_new(path)?),
        };
        file.write_all(self.line.as_bytes())
    }
}

/// The letters of blktrace for an operation and its flags.
fn rwbs(e: &TapEvent) -> Option<String> {
    let op = match e.op {
        Op::Read => "R",
        Op::Write => "W",
        Op::Flush => "F",
        Op::Discard => "D",
        Op::WriteZeroes => "WZ",
        Op::ZoneOpen => "ZO",
        Op::ZoneClose => "ZC",
        Op::ZoneFinish => "ZF",
        Op::ZoneAppend => "ZA",
        Op::ZoneReset => "ZR",
        Op::ZoneResetAll => "ZRA",
        Op::ReportZones => return None,
    };
    let letter = |flag, letter: &'static str| if e.flags.contains(flag) { letter } else { "" };
    Some(format!("{}{op}{}", letter(Flags::PREFLUSH, "F"), letter(Flags::FUA, "F")))
}

/// Returns `inner` with a trace of its commands in a new file. `goes_on`: another server had the disk open; if it has
/// left a trace, this one continues it.
pub(crate) fn trace(
    inner: Arc<dyn Device>,
    path: &Path,
    goes_on: bool,
) -> Result<Arc<dyn Device>, Error> {
    can_be_made(path, goes_on)?;
    let mut state =
        TraceState { file: None, over: false, nr: 0, began: Nanos(0), line: String::new() };
    if path.exists() {
        let opened = OpenOptions::new().read(true).append(true).open(path);
        let file = opened.map_err(|e| refused(path, e))?;
        (state.nr, state.began) = last_line(&file).unwrap_or_default();
        state.file = Some(file);
    }
    let trace = Trace { path: path.to_owned(), state: Mutex::new(state) };
    Ok(TapDisk::new(inner, Arc::new(move |e: &TapEvent| trace.event(e))))
}

/// Checks that a trace can be made in a file, or continued there. Creates nothing.
pub(crate) fn can_be_made(path: &Path, goes_on: bool) -> Result<(), Error> {
    let dir = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if path.exists() && goes_on {
        return OpenOptions::new().append(true).open(path).map(drop).map_err(|e| refused(path, e));
    }
    if path.exists() {
        let what = format!("the trace {} cannot be made: it is there already", path.display());
        return Err(Error::new(ErrorKind::Busy, what).hint(WAY));
    }
    match dir.is_dir() {
        true => Ok(()),
        false => Err(refused(path, io::Error::from_raw_os_error(libc::ENOENT))),
    }
}

/// The hint if a trace cannot be made.
const WAY: &str = "trace,file=PATH names a file that does not exist yet";

fn refused(path: &Path, e: io::Error) -> Error {
    cannot_make(path, e).and_try(WAY)
}

/// The number and the time of the last line of a trace.
fn last_line(mut file: &File) -> Option<(u64, Nanos)> {
    const LONGEST: u64 = 256;
    let len = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(len.saturating_sub(LONGEST))).ok()?;
    let mut text = String::new();
    file.take(LONGEST).read_to_string(&mut text).ok()?;
    let mut fields = text.lines().last()?.split_whitespace().skip(2);
    let nr = fields.next()?.parse().ok()?;
    let (seconds, nanos) = fields.next()?.split_once('.')?;
    let (seconds, nanos): (u64, u64) = (seconds.parse().ok()?, nanos.parse().ok()?);
    Some((nr, Nanos(seconds * 1_000_000_000 + nanos)))
}
