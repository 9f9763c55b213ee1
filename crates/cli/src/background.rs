//! `--background`: a command that serves until a signal comes, in a process of its own.

use crate::failure::Failure;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// Starts this command again without `--background`, and waits until it has said that it serves, or has failed.
pub(crate) fn start(out: &mut dyn Write) -> Result<(), Failure> {
    let no =
        |e: std::io::Error| Failure::io(format!("no server: {e}")).hint("without --background");
    let arguments = std::env::args_os().skip(1);
    // Short options that stand together are not taken apart: -b is given by itself.
    let arguments = arguments.filter(|a| a != "--background" && a != "-b");
    let mut server = Command::new(std::env::current_exe().map_err(no)?)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        // Ctrl-C in the terminal is not for it.
        .process_group(0)
        .spawn()
        .map_err(no)?;
    let mut line = String::new();
    if let Some(stdout) = server.stdout.take() {
        BufReader::new(stdout).read_line(&mut line)?;
    }
    if line.is_empty() {
        // It has said why.
        let status = server.wait().map_err(no)?;
        std::process::exit(status.code().unwrap_or(1));
    }
    Ok(out.write_all(line.as_bytes())?)
}
