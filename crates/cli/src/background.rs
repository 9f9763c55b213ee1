//! `--background`: a command that serves until a signal comes, in a process of its own.
//!
//! That process is started by a second one that ends at once, so it is a child of the first process of the system from its start.
//! systemd supervises no other: it would kill a server that a reload has started without waiting for its end.

use crate::failure::Failure;
use crate::said;
use rustix::fs::{FileType, fstat};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use systemd_journal_logger::connected_to_journal;

/// Which process this is.
const PART: &str = "ZONEPLUG_BACKGROUND";
/// The value of `PART` in the process that starts the one that serves, and in that.
const PARTS: [&str; 2] = ["starts", "serves"];
/// What the process that serves says in place of a disk if it has failed, before its exit code.
const FAILED: &str = "failed ";

fn is_part(n: usize) -> bool {
    std::env::var_os(PART).is_some_and(|part| part == PARTS[n])
}

/// Starts this command again without `--background`, and waits until it has said that it serves, or has failed.
pub(crate) fn start(out: &mut dyn Write) -> Result<(), Failure> {
    let no =
        |e: std::io::Error| Failure::io(format!("no server: {e}")).hint("without --background");
    let program = std::env::current_exe().map_err(no)?;
    let arguments = std::env::args_os().skip(1);
    if is_part(0) {
        // Short options that stand together are not taken apart: -b is given by itself.
        let arguments = arguments.filter(|a| a != "--background" && a != "-b");
        // Ctrl-C in the terminal is not for it.
        let mut serves = Command::new(program);
        serves.args(arguments).env(PART, PARTS[1]).process_group(0);
        return serves.spawn().map(drop).map_err(no);
    }
    let mut starts = Command::new(program)
        .args(arguments)
        .env(PART, PARTS[0])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(no)?;
    let stdout = starts.stdout.take();
    let status = starts.wait().map_err(no)?;
    let mut said = String::new();
    if let Some(mut stdout) = stdout.filter(|_| status.success()) {
        // Its end comes when that process serves and lets go of the pipe, or has ended.
        stdout.read_to_string(&mut said)?;
    }
    // It has said why on stderr.
    match said.strip_prefix(FAILED) {
        Some(code) => std::process::exit(code.trim().parse().unwrap_or(1)),
        None if said.is_empty() => {
            std::process::exit(status.code().filter(|c| *c > 0).unwrap_or(1))
        }
        None => Ok(out.write_all(said.as_bytes())?),
    }
}

/// Where systemd takes what a program writes to its standard error.
const JOURNAL: &str = "/run/systemd/journal/stdout";
/// The header of such a connection: a name, no unit, the level of its lines (info), and no further copies.
const JOURNAL_HEADER: &[u8] = b"zoneplug\n\n6\n0\n0\n0\n0\n";

/// Lets go of the standard input, output and error of the caller, which may wait for their end. In a process that was
/// started in the background and serves now; elsewhere nothing happens. What the process says later goes to the journal of
/// systemd; without one, nowhere, unless standard error is a file.
pub(crate) fn let_go() {
    if !is_part(1) {
        return;
    }
    said::finish();
    // Without /dev/null the caller goes on waiting; the disks are served all the same.
    let Ok(null) = File::options().read(true).write(true).open("/dev/null") else { return };
    let _ = (dup2_stdin(&null), dup2_stdout(&null));
    let stderr = fstat(std::io::stderr()).map(|s| FileType::from_raw_mode(s.st_mode));
    if stderr == Ok(FileType::RegularFile) || connected_to_journal() {
        return;
    }
    let _ = match journal() {
        Ok(journal) => dup2_stderr(&journal),
        Err(_) => dup2_stderr(&null),
    };
}

fn journal() -> std::io::Result<UnixStream> {
    let mut journal = UnixStream::connect(JOURNAL)?;
    journal.write_all(JOURNAL_HEADER)?;
    Ok(journal)
}

/// Tells the process that waits, if there is one, that this one has failed.
pub(crate) fn failed(code: u8) {
    if is_part(1) {
        // If it has served, no process waits any more.
        let _ = writeln!(std::io::stdout(), "{FAILED}{code}");
    }
}
