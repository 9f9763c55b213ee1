//! A trace of the commands to a device, in the text format of `blkparse`: `D` when a command is sent, `C` when it is
//! completed, with an error number that is 0 for success. `zoneplug replay` and other readers of that format can read
//! it.
//!
//! Owns the file, which the first command creates. Each line is written at once, so that the file is complete up to a
//! failure of the device or the process. Reports are left out, because blktrace has none.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use zoneplug_core::{Device, Error, ErrorKind, Flags, Op};
use zoneplug_devices::stack::{TapDisk, TapEvent};

struct Trace {
    path: PathBuf,
    state: Mutex<TraceState>,
}

struct TraceState {
    file: Option<File>,
    /// The file could not be written, and the error was printed.
    over: bool,
    /// The number of lines so far.
    nr: u64,
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
        let (seconds, nanos) = (e.at.0 / 1_000_000_000, e.at.0 % 1_000_000_000);
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

/// Returns `inner` with a trace of its commands in a new file.
pub(crate) fn trace(inner: Arc<dyn Device>, path: &Path) -> Result<Arc<dyn Device>, Error> {
    let wrong = if path.exists() {
        Some("it is there already")
    } else if !path.parent().is_none_or(|p| p.as_os_str().is_empty() || p.is_dir()) {
        Some("there is no such directory")
    } else {
        None
    };
    if let Some(why) = wrong {
        let what = format!("the trace {} cannot be made: {why}", path.display());
        return Err(Error::new(ErrorKind::Io, what)
            .hint("trace,file=PATH names a file that does not exist yet"));
    }
    let state = TraceState { file: None, over: false, nr: 0, line: String::new() };
    let trace = Trace { path: path.to_owned(), state: Mutex::new(state) };
    Ok(TapDisk::new(inner, Arc::new(move |e: &TapEvent| trace.event(e))))
}
