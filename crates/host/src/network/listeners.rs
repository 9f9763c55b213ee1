//! The sockets at which a server listens. The first worker has them.

use super::sys;
use crate::os_error::{Attempt, os_error};
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use zoneplug_core::Error;

/// The listening sockets of a server. A server that takes over gets those of the last one, so that no host is refused
/// in between.
#[derive(Debug, Clone)]
pub(crate) struct Sockets {
    all: Vec<Arc<TcpListener>>,
    addresses: Vec<SocketAddr>,
}

impl Sockets {
    /// Listens at all of these addresses, or fails. Takes sockets of `given` that are at one of them; for port 0, any
    /// at the same IP address.
    pub(crate) fn bind(
        wanted: impl Iterator<Item = SocketAddr>,
        given: &mut Vec<TcpListener>,
    ) -> Result<Sockets, Error> {
        let (mut all, mut addresses) = (Vec::new(), Vec::new());
        for address in wanted {
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
        Ok(Sockets { all, addresses })
    }

    /// The addresses of the sockets, in the order in which they were wanted.
    pub(crate) fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// The sockets.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &TcpListener> {
        self.all.iter().map(|l| &**l)
    }
}

/// The address among `all` that other machines reach, if there is one.
pub(crate) fn reachable(mut all: impl Iterator<Item = SocketAddr>) -> Option<SocketAddr> {
    // Linux delivers what is sent to an IPv4 address to the socket of that address in its IPv6 form (`::ffff:127.0.0.1`).
    all.find(|address| !address.ip().to_canonical().is_loopback())
}

/// The connections of a server, and their limit. Queues that go on without a connection count too.
#[derive(Debug)]
pub(crate) struct ConnectionCount {
    open: AtomicUsize,
    max: usize,
}

impl ConnectionCount {
    pub(crate) fn new(max: usize) -> ConnectionCount {
        ConnectionCount { open: AtomicUsize::new(0), max }
    }

    /// The limit.
    pub(crate) fn max(&self) -> usize {
        self.max
    }

    /// Counts a new connection. `None`: there are too many.
    pub(crate) fn enter(self: &Arc<Self>) -> Option<ConnectionSlot> {
        let is_admitted = self.open.fetch_add(1, Ordering::Relaxed) < self.max;
        // A slot that is not admitted is given back at once.
        let slot = ConnectionSlot(self.clone());
        is_admitted.then_some(slot)
    }

    /// Counts a queue that goes on without its connection, whatever the limit.
    #[cfg(feature = "nvme-tcp")]
    pub(crate) fn stay(self: &Arc<Self>) -> ConnectionSlot {
        self.open.fetch_add(1, Ordering::Relaxed);
        ConnectionSlot(self.clone())
    }

    /// Whether a worker with this many connections that are not admitted closes the oldest of them: while less than a
    /// quarter of the table is free, but it leaves an eighth of the table to such connections. So a peer that opens
    /// connections and does not log in keeps no client out: each of its new connections closes an old one.
    pub(crate) fn is_crowded_by(&self, strangers: usize, workers: usize) -> bool {
        let few = self.max / 8 / workers;
        self.open.load(Ordering::Relaxed) > self.max - self.max / 4 && strangers > few
    }
}

/// One connection in a [`ConnectionCount`]. The count goes down when this is dropped.
#[derive(Debug)]
pub(crate) struct ConnectionSlot(Arc<ConnectionCount>);

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The result of an attempt to accept a connection.
#[derive(Debug)]
pub(crate) enum Accepted {
    /// A connection, for the worker of this number.
    Connection(usize, TcpStream, ConnectionSlot),
    /// A connection above the limit was closed at once.
    Refused,
    /// No connection waits.
    None,
    /// Too many files are open. Epoll does not watch the sockets until [`Listeners::watch_again`].
    Later,
}

/// The listening sockets of a worker.
#[derive(Debug, Default)]
pub(crate) struct Listeners {
    all: Vec<Arc<TcpListener>>,
    /// Whether epoll watches them. Not while too many files are open.
    watched: bool,
    /// The worker of the next connection.
    next_worker: usize,
}

impl Listeners {
    pub(crate) fn new(listeners: Sockets) -> Listeners {
        Listeners { all: listeners.all, watched: false, next_worker: 0 }
    }

    /// Whether there are sockets that epoll does not watch.
    pub(crate) fn are_unwatched(&self) -> bool {
        !self.watched && !self.all.is_empty()
    }

    /// Makes epoll watch the sockets again if it does not. If that fails, the next call tries again.
    pub(crate) fn watch_again(&mut self, epoll: &sys::Epoll, key: u64) {
        if self.are_unwatched() && self.watch(epoll, key).is_err() {
            self.unwatch(epoll);
        }
    }

    /// Makes epoll watch the sockets under this key.
    pub(crate) fn watch(&mut self, epoll: &sys::Epoll, key: u64) -> io::Result<()> {
        self.all.iter().try_for_each(|l| epoll.add(l.as_raw_fd(), sys::READ, key))?;
        self.watched = true;
        Ok(())
    }

    fn unwatch(&mut self, epoll: &sys::Epoll) {
        self.all.iter().for_each(|l| epoll.remove(l.as_raw_fd()));
        self.watched = false;
    }

    /// Stops listening.
    pub(crate) fn close(&mut self) {
        *self = Listeners::default();
    }

    /// Accepts the next connection at any of the sockets, and counts it. The workers get connections in turn.
    pub(crate) fn accept(
        &mut self,
        epoll: &sys::Epoll,
        count: &Arc<ConnectionCount>,
        workers: usize,
    ) -> Accepted {
        match self.accept_any() {
            Ok(Some(stream)) => match count.enter() {
                Some(slot) => {
                    let worker = self.next_worker % workers;
                    self.next_worker = worker + 1;
                    Accepted::Connection(worker, stream, slot)
                }
                None => Accepted::Refused,
            },
            Ok(None) => Accepted::None,
            Err(_) => {
                self.unwatch(epoll);
                Accepted::Later
            }
        }
    }

    /// The next connection at any of the sockets. `None`: there is no more.
    fn accept_any(&self) -> io::Result<Option<TcpStream>> {
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

    /// A connection that is refused at the limit takes no place.
    #[test]
    fn connections_above_the_limit_are_not_counted() {
        let count = Arc::new(ConnectionCount::new(2));
        let (first, second) = (count.enter().unwrap(), count.enter().unwrap());
        assert!(count.enter().is_none() && count.enter().is_none());
        drop(first);
        let third = count.enter();
        assert!(third.is_some() && count.enter().is_none(), "one place was free");
        drop((second, third));
        let both = (count.enter(), count.enter());
        assert!(both.0.is_some() && both.1.is_some() && count.enter().is_none());
    }

    /// An address of IPv4 in its IPv6 form is reached from where the address itself is.
    #[test]
    fn only_loopback_addresses_are_out_of_reach() {
        let is_reachable = |at: &str| reachable([at.parse().unwrap()].into_iter()).is_some();
        for local in ["127.0.0.1:1", "127.1.2.3:1", "[::1]:1", "[::ffff:127.0.0.1]:1"] {
            assert!(!is_reachable(local), "{local}");
        }
        for open in
            ["0.0.0.0:1", "[::]:1", "192.0.2.1:1", "[::ffff:192.0.2.1]:1", "[::ffff:0.0.0.0]:1"]
        {
            assert!(is_reachable(open), "{open}");
        }
    }

    /// A socket of the last server is taken for its own address alone: a machine has several addresses, and one port at each.
    #[test]
    fn sockets_of_the_last_server_are_taken_at_their_own_address() {
        let last = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = last.local_addr().unwrap();
        let mut given = vec![last];
        let other = SocketAddr::new("127.0.0.2".parse().unwrap(), at.port());
        let sockets = Sockets::bind([other].into_iter(), &mut given).unwrap();
        assert_eq!((sockets.addresses(), given.len()), (&[other][..], 1));
        let sockets = Sockets::bind([at].into_iter(), &mut given).unwrap();
        assert_eq!((sockets.addresses(), given.len()), (&[at][..], 0));
    }

    /// Sockets that were not watched for a while, because too many files were open, are watched again.
    #[test]
    fn sockets_are_watched_again() {
        let mut listeners = Listeners::new(Sockets {
            all: vec![Arc::new(TcpListener::bind("127.0.0.1:0").unwrap())],
            addresses: Vec::new(),
        });
        let (epoll, mut ready) = (sys::Epoll::new().unwrap(), sys::Ready::default());
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
