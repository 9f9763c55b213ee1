//! A terminal with a program on it.

#[path = "../common/pty.rs"]
mod terminal;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a test waits for what must come.
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct Screen {
    pub(crate) child: Child,
    pty: File,
    parser: Arc<Mutex<vt100::Parser>>,
    hung_up: Arc<AtomicBool>,
    reader: Option<JoinHandle<()>>,
}

impl Screen {
    /// Starts a command on a terminal.
    pub(crate) fn start(mut command: Command, rows: u16, columns: u16) -> Screen {
        let (pty, side) = terminal::open(rows, columns);
        let child = command.stdin(side()).stdout(side()).stderr(side()).spawn().unwrap();
        let parser = Arc::new(Mutex::new(vt100::Parser::new(rows, columns, 0)));
        let (mut from, to) = (pty.try_clone().unwrap(), parser.clone());
        let hung_up = Arc::new(AtomicBool::new(false));
        let is_over = hung_up.clone();
        let reader = std::thread::spawn(move || {
            let mut some = [0; 1 << 16];
            let most = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
            while !is_over.load(Ordering::Relaxed) {
                if poll(&mut [PollFd::new(&from, PollFlags::IN)], Some(&most)) == Ok(0) {
                    continue;
                }
                // An error once the child's side is closed.
                let Ok(n @ 1..) = from.read(&mut some) else { return };
                to.lock().unwrap().process(&some[..n]);
            }
        });
        Screen { child, pty, parser, hung_up, reader: Some(reader) }
    }

    /// Closes the terminal.
    pub(crate) fn hang_up(&mut self) {
        self.hung_up.store(true, Ordering::Relaxed);
        self.pty = File::open("/dev/null").unwrap();
    }

    pub(crate) fn resize(&self, rows: u16, columns: u16) {
        self.parser.lock().unwrap().screen_mut().set_size(rows, columns);
        terminal::set_size(&self.pty, rows, columns);
        self.signal(rustix::process::Signal::WINCH);
    }

    pub(crate) fn press(&mut self, keys: &str) {
        self.pty.write_all(keys.as_bytes()).unwrap();
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    pub(crate) fn text(&self) -> String {
        self.parser.lock().unwrap().screen().contents()
    }

    /// Whether the program has the terminal for itself.
    pub(crate) fn is_taken(&self) -> bool {
        self.parser.lock().unwrap().screen().alternate_screen()
    }

    /// Whether the terminal edits lines, as a shell finds it and wants it back.
    pub(crate) fn edits_lines(&self) -> bool {
        let modes = rustix::termios::tcgetattr(self.pty.as_fd()).unwrap().local_modes;
        modes.contains(rustix::termios::LocalModes::ICANON | rustix::termios::LocalModes::ECHO)
    }

    /// Whether any cell has a colour.
    pub(crate) fn has_colours(&self) -> bool {
        let parser = self.parser.lock().unwrap();
        let screen = parser.screen();
        let (rows, columns) = screen.size();
        let cell = |r, c| screen.cell(r, c).is_some_and(|c| c.fgcolor() != vt100::Color::Default);
        (0..rows).any(|r| (0..columns).any(|c| cell(r, c)))
    }

    pub(crate) fn until(&self, what: &str, mut f: impl FnMut(&str) -> bool) {
        let begun = Instant::now();
        while !f(&self.text()) {
            assert!(begun.elapsed() < PATIENCE, "{what}, in\n{}", self.text());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub(crate) fn shows(&self, what: &str) {
        self.until(what, |text| text.contains(what));
    }

    pub(crate) fn end(&mut self) -> ExitStatus {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                // What it wrote last may still be on its way to the screen.
                self.reader.take().into_iter().for_each(|reader| reader.join().unwrap());
                return status;
            }
            assert!(begun.elapsed() < PATIENCE, "it does not end:\n{}", self.text());
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
