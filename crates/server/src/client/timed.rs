//! A connection whose reading and writing end in time.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// A connection on which reading and writing end at a time: a byte now and then does not make it longer.
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

    /// So much time from now on.
    pub fn again(&mut self, time: Duration) {
        self.end = Instant::now() + time;
    }

    /// Has the next read end in time.
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
