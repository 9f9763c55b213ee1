//! `--background`: runs a command that serves in a process of its own, until a signal comes.
//!
//! A second process starts the serving process and ends at once, so that the serving process is a child of process 1.
//! systemd supervises only its own children: it would kill any other server that a reload has started, without
//! waiting for its end.

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

/// The environment variable that tells a process its part.
const PART: &str = "ZONEPLUG_BACKGROUND";
/// The values of `PART`: in the process that starts the server, and in the server.
const PARTS: [&str; 2] = ["starts", "serves"];
/// The word before the exit code that the serving process writes to stdout, in place of its disks, if it fails.
const FAILED: &str = "failed ";

fn is_part(n: usize) -> bool {
    std::env::var_os(PART).is_some_and(|part| part == PARTS[n])
}

/// Starts this command again without `--background`, and waits until the new process serves or has failed.
pub(crate) fn start(out: &mut dyn Write) -> Result<(), Failure> {
    let no =
        |e: std::io::Error| Failure::io(format!("no server: {e}")).hint("without --background");
    let program = std::env::current_exe().map_err(no)?;
    let arguments = std::env::args_os().skip(1);
    if is_part(0) {
        // Bundled short options are not taken apart, so users must give -b by itself.
        let arguments = arguments.filter(|a| a != "--background" && a != "-b");
        // The server leaves the process group, so that Ctrl-C in the terminal does not reach it.
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
        // The pipe ends when the server closes it, because it serves or has ended.
        stdout.read_to_string(&mut said)?;
    }
    // The server has reported its error on stderr.
    match said.strip_prefix(FAILED) {
        Some(code) => std::process::exit(code.trim().parse().unwrap_or(1)),
        None if said.is_empty() => {
            std::process::exit(status.code().filter(|c| *c > 0).unwrap_or(1))
        }
        None => Ok(out.write_all(said.as_bytes())?),
    }
}

/// The socket at which systemd's journal takes the standard error of programs.
const JOURNAL: &str = "/run/systemd/journal/stdout";
/// The header of a connection to it: a name, no unit, the level of its lines (info), and no further copies.
const JOURNAL_HEADER: &[u8] = b"zoneplug\n\n6\n0\n0\n0\n0\n";

/// Closes standard input, output and error, because the caller may wait for their ends. Does so only in a server that
/// was started in the background. Later messages go to systemd's journal; without a journal they are dropped, unless
/// standard error is a file.
pub(crate) fn let_go() {
    if !is_part(1) {
        return;
    }
    said::finish();
    // Without /dev/null the caller waits on; the server serves regardless.
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

/// Reports this process's failure to the process that waits for it, if there is one.
pub(crate) fn failed(code: u8) {
    if is_part(1) {
        // Once the server has served, no process waits for this line.
        let _ = writeln!(std::io::stdout(), "{FAILED}{code}");
    }
}
