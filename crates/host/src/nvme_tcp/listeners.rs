//! The sockets at which a server listens. The first worker has them.

use super::sys;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use zoneplug_core::{Error, ErrorKind};

/// Sockets that listen.
#[derive(Debug, Default)]
pub(super) struct Listeners {
    all: Vec<TcpListener>,
    /// Whether they are watched: not while there are too many open files.
    watched: bool,
}

impl Listeners {
    /// Listens at all of these addresses, or at none.
    pub(super) fn bind(
        addresses: impl Iterator<Item = SocketAddr>,
    ) -> Result<(Listeners, Vec<SocketAddr>), Error> {
        let (mut all, mut bound) = (Vec::new(), Vec::new());
        for address in addresses {
            let failed = |e: io::Error| {
                Error::new(ErrorKind::Io, format!("{address}: cannot listen: {e}"))
                    .source(e)
                    .hint("another port, or an address of this machine")
            };
            let listener = TcpListener::bind(address).map_err(failed)?;
            listener.set_nonblocking(true).map_err(failed)?;
            bound.push(listener.local_addr().map_err(failed)?);
            all.push(listener);
        }
        Ok((Listeners { all, watched: false }, bound))
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
