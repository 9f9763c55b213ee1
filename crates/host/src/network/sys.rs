//! epoll(7), and sending without a signal. The `unsafe` code is the calls.

use std::fs::File;
use std::io::{self, IoSlice};
use std::net::TcpStream;
use std::os::fd::{AsRawFd, FromRawFd, RawFd};

/// The events that a descriptor is watched for: bytes to read, and room to write.
pub(crate) const READ: u32 = libc::EPOLLIN as u32;
pub(crate) const WRITE: u32 = libc::EPOLLOUT as u32;
/// Report an event once when it occurs, instead of as long as it lasts.
pub(crate) const EDGE: u32 = libc::EPOLLET as u32;

/// Descriptors that a thread watches, each with a number.
#[derive(Debug)]
pub(crate) struct Epoll(File);

/// The descriptors that are ready. The numbers are those that the descriptors were added with.
#[derive(Debug)]
pub(crate) struct Ready {
    events: Vec<libc::epoll_event>,
    len: usize,
}

/// The most descriptors that a worker handles after one wait, and the most connections that it accepts.
pub(crate) const READY: usize = 64;

impl Default for Ready {
    fn default() -> Ready {
        Ready { events: vec![libc::epoll_event { events: 0, u64: 0 }; READY], len: 0 }
    }
}

impl Ready {
    pub(crate) fn keys(&self) -> impl Iterator<Item = u64> {
        self.events[..self.len].iter().map(|e| e.u64)
    }
}

impl Epoll {
    pub(crate) fn new() -> io::Result<Epoll> {
        // SAFETY: a call without pointers.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new, hence ours alone.
        Ok(Epoll(unsafe { File::from_raw_fd(fd) }))
    }

    fn control(&self, op: i32, fd: RawFd, events: u32, key: u64) -> io::Result<()> {
        let mut event = libc::epoll_event { events, u64: key };
        // SAFETY: `event` lives across the call.
        let done = unsafe { libc::epoll_ctl(self.0.as_raw_fd(), op, fd, &raw mut event) };
        if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    pub(crate) fn add(&self, fd: RawFd, events: u32, key: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd, events, key)
    }

    pub(crate) fn change(&self, fd: RawFd, events: u32, key: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, fd, events, key)
    }

    pub(crate) fn remove(&self, fd: RawFd) {
        // The call fails only if the descriptor is not watched.
        let _ = self.control(libc::EPOLL_CTL_DEL, fd, 0, 0);
    }

    /// Waits until a descriptor is ready, at most `millis`; -1: for ever.
    pub(crate) fn wait(&self, ready: &mut Ready, millis: i32) -> io::Result<()> {
        let (events, most) = (ready.events.as_mut_ptr(), ready.events.len() as i32);
        // SAFETY: `events` has room for `most` events and lives across the call.
        let n = unsafe { libc::epoll_wait(self.0.as_raw_fd(), events, most, millis) };
        ready.len = usize::try_from(n).unwrap_or(0);
        if n >= 0 {
            return Ok(());
        }
        match io::Error::last_os_error() {
            e if e.kind() == io::ErrorKind::Interrupted => Ok(()),
            e => Err(e),
        }
    }
}

/// Sends from several slices. If the peer has closed the connection, returns an error; there is no SIGPIPE.
pub(crate) fn send(stream: &TcpStream, slices: &[IoSlice<'_>]) -> io::Result<usize> {
    // SAFETY: all zeroes is a message without addresses and without data.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = slices.as_ptr().cast_mut().cast();
    message.msg_iovlen = slices.len() as _;
    // SAFETY: `IoSlice` has the layout of `iovec`; the slices and what they show live across the call, which only reads.
    let n = unsafe { libc::sendmsg(stream.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL) };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}

/// The number of bytes that were sent and that the peer's TCP has not acknowledged (`SIOCOUTQ`, tcp(7)).
#[cfg(feature = "nvme-tcp")]
pub(crate) fn not_acknowledged(stream: &TcpStream) -> io::Result<u64> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: `bytes` lives across the call, which fills it.
    let done = unsafe { libc::ioctl(stream.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(u64::try_from(bytes).unwrap_or(0)) }
}

/// Makes the close of the connection discard unsent bytes (`SO_LINGER`, socket(7)).
#[cfg(feature = "nvme-tcp")]
pub(crate) fn discard_at_end(stream: &TcpStream) {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    let len = std::mem::size_of_val(&linger) as libc::socklen_t;
    // SAFETY: `linger` has this length and lives across the call. It fails for no socket of TCP.
    unsafe {
        libc::setsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_LINGER,
            (&raw const linger).cast(),
            len,
        )
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpListener;

    #[cfg(feature = "nvme-tcp")]
    /// Known also after the peer has closed the connection with bytes on their way.
    #[test]
    fn what_the_peer_has_not_acknowledged_is_known() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let a = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (b, _) = listener.accept().unwrap();
        let soon = |n| {
            let begun = std::time::Instant::now();
            while not_acknowledged(&a).unwrap() != n {
                assert!(
                    begun.elapsed().as_secs() < 10,
                    "{} is not {n}",
                    not_acknowledged(&a).unwrap()
                );
            }
        };
        soon(0);
        send(&a, &[IoSlice::new(&[7; 1000])]).unwrap();
        soon(0);
        // The peer's buffer fills up. The peer's TCP has acknowledged the bytes in it.
        a.set_nonblocking(true).unwrap();
        let mut sent = 0;
        while let Ok(n) = send(&a, &[IoSlice::new(&[7; 65_536])]) {
            sent += n as u64;
        }
        std::thread::sleep(std::time::Duration::from_millis(300));
        let left = not_acknowledged(&a).unwrap();
        assert!(left > 0 && left < sent, "{left} of {sent}");
        // The peer closes the connection with unread bytes, which is a reset.
        drop(b);
        let begun = std::time::Instant::now();
        while send(&a, &[IoSlice::new(b"x")]).is_ok_and(|n| n > 0)
            || a.peek(&mut [0; 1]).is_err_and(|e| e.kind() == io::ErrorKind::WouldBlock)
        {
            assert!(begun.elapsed().as_secs() < 10);
        }
        assert!(not_acknowledged(&a).unwrap() >= left);
        discard_at_end(&a);
    }

    #[test]
    fn what_is_ready_has_its_key() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut a = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut b, _) = listener.accept().unwrap();
        let (epoll, mut ready) = (Epoll::new().unwrap(), Ready::default());
        epoll.add(b.as_raw_fd(), READ, 77).unwrap();
        epoll.wait(&mut ready, 0).unwrap();
        assert_eq!(ready.keys().count(), 0);
        a.write_all(b"x").unwrap();
        epoll.wait(&mut ready, -1).unwrap();
        assert_eq!(ready.keys().collect::<Vec<_>>(), [77]);
        epoll.change(b.as_raw_fd(), READ | WRITE, 78).unwrap();
        epoll.wait(&mut ready, -1).unwrap();
        assert_eq!(ready.keys().collect::<Vec<_>>(), [78]);
        epoll.remove(b.as_raw_fd());
        epoll.wait(&mut ready, 0).unwrap();
        assert_eq!(ready.keys().count(), 0);
        assert_eq!(send(&a, &[IoSlice::new(b"yz"), IoSlice::new(b"!")]).unwrap(), 3);
        let mut all = [0; 4];
        b.read_exact(&mut all).unwrap();
        assert_eq!(&all, b"xyz!");
        drop(b);
        while send(&a, &[IoSlice::new(b"gone")]).is_ok() {}
    }
}
