//! The sockets at which a server listens. The first worker has them.

use super::{NvmeTcpOptions, sys};
use crate::os_error::{Attempt, os_error};
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use zoneplug_core::Error;

/// The listening sockets of a server. A server that takes over gets those of the last one, so that no host is refused
/// in between.
#[derive(Debug, Clone)]
pub struct NvmeTcpListeners {
    all: Vec<Arc<TcpListener>>,
    addresses: Vec<SocketAddr>,
}

impl NvmeTcpListeners {
    /// Listens at all addresses of `options`, or fails. Takes sockets of `given` that are at one of these addresses;
    /// for port 0, any at the same IP address.
    ///
    /// # Errors
    ///
    /// [`NvmeTcpOptions::check`] refuses the options, or an address is not available.
    pub fn bind(
        options: &NvmeTcpOptions,
        given: &mut Vec<TcpListener>,
    ) -> Result<NvmeTcpListeners, Error> {
        // Without a decision about who may connect, no socket listens where other machines reach it.
        options.check()?;
        let (mut all, mut addresses) = (Vec::new(), Vec::new());
        for address in options.addresses() {
            let failed =
                |e: io::Error| os_error(Attempt::Address, format!("{address}: cannot listen"), e);
            let is_there = |l: &TcpListener| {
                let port = |at: SocketAddr| address.port() == 0 || at.port() == address.port();
                l.local_addr().is_ok_and(|at| at.ip() == address.ip() && port(at))
            };
            let listener = match given.iter().position(is_there) {
                Some(n) => given.remove(n),
                None => TcpListener::bind(address).map_err(failed)?,
            };
            listener.set_nonblocking(true).map_err(failed)?;
            addresses.push(listener.local_addr().map_err(failed)?);
            all.push(Arc::new(listener));
        }
        Ok(NvmeTcpListeners { all, addresses })
    }

    /// The addresses of the sockets, in the order of the options.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// The sockets.
    pub fn sockets(&self) -> impl Iterator<Item = &TcpListener> {
        self.all.iter().map(|l| &**l)
    }
}

/// The listening sockets of a worker.
#[derive(Debug, Default)]
pub(super) struct Listeners {
    all: Vec<Arc<TcpListener>>,
    /// Whether epoll watches them. Not while too many files are open.
    watched: bool,
}

impl Listeners {
    pub(super) fn new(listeners: NvmeTcpListeners) -> Listeners {
        Listeners { all: listeners.all, watched: false }
    }

    /// Whether there are sockets that epoll does not watch.
    pub(super) fn are_unwatched(&self) -> bool {
        !self.watched && !self.all.is_empty()
    }

    /// Makes epoll watch the sockets under this key.
    pub(super) fn watch(&mut self, epoll: &sys::Epoll, key: u64) -> io::Result<()> {
        self.all.iter().try_for_each(|l| epoll.add(l.as_raw_fd(), sys::READ, key))?;
        self.watched = true;
        Ok(())
    }

    pub(super) fn unwatch(&mut self, epoll: &sys::Epoll) {
        self.all.iter().for_each(|l| epoll.remove(l.as_raw_fd()));
        self.watched = false;
    }

    /// Stops listening.
    pub(super) fn close(&mut self) {
        *self = Listeners::default();
    }

    /// The next connection at any of the sockets. `None`: there is no more.
    pub(super) fn accept(&self) -> io::Result<Option<TcpStream>> {
        for listener in &self.all {
            loop {
                match listener.accept() {
                    Ok((stream, _)) => return Ok(Some(stream)),
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                    // The peer has closed the connection before it was accepted.
                    Err(e) if e.kind() == io::ErrorKind::ConnectionAborted => {}
                    Err(e) => return Err(e),
                }
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sockets that were not watched for a while, because too many files were open, are watched again.
    #[test]
    fn sockets_are_watched_again() {
        let mut listeners = Listeners::new(NvmeTcpListeners {
            all: vec![Arc::new(TcpListener::bind("127.0.0.1:0").unwrap())],
            addresses: Vec::new(),
        });
        let (epoll, mut ready) = (sys::Epoll::new().unwrap(), sys::Ready::new(4));
        let _connection = TcpStream::connect(listeners.all[0].local_addr().unwrap()).unwrap();
        let mut is_ready = |millis| {
            epoll.wait(&mut ready, millis).unwrap();
            ready.keys().collect::<Vec<_>>() == [7]
        };
        assert!(listeners.are_unwatched() && !is_ready(0));
        for _ in 0..2 {
            listeners.watch(&epoll, 7).unwrap();
            assert!(!listeners.are_unwatched() && is_ready(10_000));
            listeners.unwatch(&epoll);
            assert!(listeners.are_unwatched() && !is_ready(0));
        }
    }
}
