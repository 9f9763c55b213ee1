//! The sockets at which a server listens. The first worker has them.

use super::{NvmeTcpOptions, sys};
use crate::os_error::{Attempt, os_error};
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use zoneplug_core::Error;

/// The sockets at which a server listens. A server that takes over gets those of the last one, so that no host is refused
/// in between.
#[derive(Debug, Clone)]
pub struct NvmeTcpListeners {
    all: Vec<Arc<TcpListener>>,
    addresses: Vec<SocketAddr>,
}

impl NvmeTcpListeners {
    /// Listens at all addresses of `options`, or at none. Takes the sockets of `given` that are at one of these addresses; at
    /// port 0 any of the same IP address.
    ///
    /// # Errors
    ///
    /// Options that [`NvmeTcpOptions::check`] refuses, or an address that cannot be had.
    pub fn bind(
        options: &NvmeTcpOptions,
        given: &mut Vec<TcpListener>,
    ) -> Result<NvmeTcpListeners, Error> {
        // No socket that other machines reach listens without a word on who may connect.
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

    /// Where they listen, in the order of the options.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// The sockets.
    pub fn sockets(&self) -> impl Iterator<Item = &TcpListener> {
        self.all.iter().map(|l| &**l)
    }
}

/// Sockets that listen, of a worker.
#[derive(Debug, Default)]
pub(super) struct Listeners {
    all: Vec<Arc<TcpListener>>,
    /// Whether they are watched: not while there are too many open files.
    watched: bool,
}

impl Listeners {
    pub(super) fn new(listeners: NvmeTcpListeners) -> Listeners {
        Listeners { all: listeners.all, watched: false }
    }

    /// Whether there are some, and they are not watched.
    pub(super) fn are_unwatched(&self) -> bool {
        !self.watched && !self.all.is_empty()
    }

    /// Has epoll watch them under this key.
    pub(super) fn watch(&mut self, epoll: &sys::Epoll, key: u64) -> io::Result<()> {
        self.all.iter().try_for_each(|l| epoll.add(l.as_raw_fd(), sys::READ, key))?;
        self.watched = true;
        Ok(())
    }

    pub(super) fn unwatch(&mut self, epoll: &sys::Epoll) {
        self.all.iter().for_each(|l| epoll.remove(l.as_raw_fd()));
        self.watched = false;
    }

    /// Listens no more.
    pub(super) fn close(&mut self) {
        *self = Listeners::default();
    }

    /// The next connection at any of them. `None`: there is no more.
    pub(super) fn accept(&self) -> io::Result<Option<TcpStream>> {
        for listener in &self.all {
            loop {
                match listener.accept() {
                    Ok((stream, _)) => return Ok(Some(stream)),
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                    // The peer has gone before it was accepted.
                    Err(e) if e.kind() == io::ErrorKind::ConnectionAborted => {}
                    Err(e) => return Err(e),
                }
            }
        }
        Ok(None)
    }
}
