//! Text for stdout and stderr. A process that serves disks never waits for the reader of a pipe or a terminal, because
//! each of the two streams has a writing thread. [`finish`] waits at most a second for each. Other commands write at
//! once.

use crate::outbox::Outbox;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long [`finish`] waits for the reader of each stream.
pub const LAST_WORDS: Duration = Duration::from_secs(1);

/// The destination of text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum To {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// Text that waits to be written to stdout or stderr, and whether its writing thread exists.
struct Stream {
    text: Outbox<String>,
    has_writer: AtomicBool,
}

impl Stream {
    const fn new() -> Stream {
        Stream { text: Outbox::new(), has_writer: AtomicBool::new(false) }
    }
}

static STDOUT: Stream = Stream::new();
static STDERR: Stream = Stream::new();
static SERVES: AtomicBool = AtomicBool::new(false);

/// From this call on, the process waits for no reader of its output.
pub fn begin_to_serve() {
    SERVES.store(true, Ordering::Relaxed);
}

/// Writes text, or queues it for the writing thread. Ignores errors, which could not be reported elsewhere.
pub fn say(to: To, text: String) {
    if !SERVES.load(Ordering::Relaxed) {
        let _ = match to {
            To::Stdout => std::io::stdout().write_all(text.as_bytes()),
            To::Stderr => std::io::stderr().write_all(text.as_bytes()),
        };
        return;
    }
    let stream = match to {
        To::Stdout => &STDOUT,
        To::Stderr => &STDERR,
    };
    stream.text.put(text);
    if !stream.has_writer.swap(true, Ordering::Relaxed) {
        let body = move || {
            loop {
                if let Some(text) = stream.text.take(None) {
                    write(to, text.as_bytes());
                }
            }
        };
        let writer = std::thread::Builder::new().name("zoneplug-says".to_owned());
        if writer.spawn(body).is_err() {
            // The text waits in the queue; the next call tries to start the thread again.
            stream.has_writer.store(false, Ordering::Relaxed);
        }
    }
}

/// Waits until all text is written, for at most a second for each stream.
pub fn finish() {
    for stream in [&STDOUT, &STDERR] {
        stream.text.finish(LAST_WORDS);
    }
}

/// Writes everything, however long the reader takes. Bypasses the locks that `std` has for stdout and stderr, because a
/// thread that ends the process may need them meanwhile.
pub fn write(to: To, text: &[u8]) {
    match to {
        To::Stdout => write_to(std::io::stdout().as_fd(), text),
        To::Stderr => write_to(std::io::stderr().as_fd(), text),
    }
}

fn write_to(fd: BorrowedFd<'_>, mut text: &[u8]) {
    while !text.is_empty() {
        match rustix::io::write(fd, text) {
            Ok(n) => text = &text[n..],
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                let _ = poll(&mut [PollFd::new(&fd, PollFlags::OUT)], None);
            }
            // The reader has gone.
            Err(_) => return,
        }
    }
}
