//! A connection with a time limit for all reads and writes.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// A connection whose reads and writes all end at a set time: single bytes do not prolong it.
pub struct Timed {
    stream: UnixStream,
    end: Instant,
}

impl Timed {
    pub fn new(stream: UnixStream, time: Duration) -> Timed {
        Timed { stream, end: Instant::now() + time }
    }

    pub fn stream(&self) -> &UnixStream {
        &self.stream
    }

    pub fn into_stream(self) -> UnixStream {
        self.stream
    }

    /// Sets the end to `time` from now.
    pub fn again(&mut self, time: Duration) {
        self.end = Instant::now() + time;
    }

    /// Limits the next read to the remaining time.
    pub fn limit_read(&self) -> io::Result<()> {
        self.stream.set_read_timeout(self.left()?)
    }

    fn left(&self) -> io::Result<Option<Duration>> {
        match self.end.saturating_duration_since(Instant::now()) {
            Duration::ZERO => Err(io::ErrorKind::TimedOut.into()),
            left => Ok(Some(left)),
        }
    }
}

impl Read for Timed {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.limit_read()?;
        self.stream.read(buf)
    }
}

impl Write for Timed {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.left()?)?;
        self.stream.write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
