//! A terminal for a command that a test starts.

// Not every test changes the size.
#![allow(dead_code)]

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;

/// `O_NOCTTY`. Without it a test that leads a session gets this terminal as its own, and a SIGHUP with its end.
const NOCTTY: i32 = OpenptFlags::NOCTTY.bits() as i32;

/// The near side of a terminal, and what opens its far side.
pub(crate) fn open(rows: u16, columns: u16) -> (File, impl Fn() -> File) {
    let pty = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&pty).unwrap();
    unlockpt(&pty).unwrap();
    let name = ptsname(&pty, Vec::new()).unwrap().into_string().unwrap();
    set_size(&pty, rows, columns);
    let far =
        move || OpenOptions::new().read(true).write(true).custom_flags(NOCTTY).open(&name).unwrap();
    (File::from(pty), far)
}

/// Sets the size of a terminal.
pub(crate) fn set_size(pty: impl std::os::fd::AsFd, rows: u16, columns: u16) {
    let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(pty, size).unwrap();
}
