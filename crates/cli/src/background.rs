//! `--background`: a command that serves until a signal comes, in a process of its own.
//!
//! That process is started by a second one that ends at once, so it is a child of the first process of the system from its start.
//! systemd supervises no other: it would kill a server that a reload has started without waiting for its end.

use crate::failure::Failure;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

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
    let mut line = String::new();
    if let Some(stdout) = stdout.filter(|_| status.success()) {
        BufReader::new(stdout).read_line(&mut line)?;
    }
    // It has said why on stderr.
    match line.strip_prefix(FAILED) {
        Some(code) => std::process::exit(code.trim().parse().unwrap_or(1)),
        None if line.is_empty() => {
            std::process::exit(status.code().filter(|c| *c > 0).unwrap_or(1))
        }
        None => Ok(out.write_all(line.as_bytes())?),
    }
}

/// Tells the process that waits, if there is one, that this one has failed.
pub(crate) fn failed(code: u8) {
    if is_part(1) {
        // If it has served, no process waits any more.
        let _ = writeln!(std::io::stdout(), "{FAILED}{code}");
    }
}
