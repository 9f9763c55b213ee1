//! A connection of a host for its whole life: its bytes, its role for the target, the host's authentication, and its
//! end. An association has no socket, thread or clock. A driver moves the bytes, and calls it in this order:
//!
//! | call | when |
//! | --- | --- |
//! | [`Association::new`] | the connection was accepted |
//! | [`Association::receive_with`] | bytes have arrived; not after [`Association::stop`] |
//! | [`Association::run`] | after each receipt, and when a disk may have finished something |
//! | [`Association::output`], then [`Association::sent`] | while [`Association::has_output`] |
//! | [`Association::all_sent`] | no output is left; true: shut down the sending direction |
//! | [`Association::has_left`] | after that; true: close |
//! | [`Association::expire`] | at [`Association::next_deadline`] or some time later; false: close |
//! | [`Association::complete`], [`Association::show`] | the target's events of these names |
//! | [`Association::ended_by_target`] | the target's events *close*; false: close |
//! | [`Association::asked`] | other queues have questions ([`Disks::ask`](crate::io_queue::Disks::ask)), after a receipt and a run |
//! | [`Association::computed`] | the value that [`Server::compute`] was asked for is there |
//! | [`Association::stop`] | the server ends |
//! | [`Association::end`] | last, whenever the driver closes the connection |
//!
//! After every call but [`Association::end`] there may be output. *Close* means that the driver calls
//! [`Association::end`] and drops both the association and the connection.
//!
//! | file | what it owns |
//! | --- | --- |
//! | `mod.rs` | [`Association`]: its roles, bytes, commands |
//! | `server.rs` | [`Server`]: the parts of a server that an association uses |
//! | `connect.rs` | the first command; commands of admin queues |
//! | `authentication.rs` | commands of authentication, and the admission of the host |
//! | `ending.rs` | the end: by the host, the target, the server, or a deadline |
//!
//! | role | commands | leaves it by |
//! | --- | --- | --- |
//! | new | Connect | the answer to Connect |
//! | admin queue | those of the target | the end |
//! | I/O queue | BIOs of the disks | the end |
//! | ended | none | - |
//!
//! While the host of a queue has yet to authenticate, the queue takes commands of authentication only. The target does
//! not know an I/O queue before its host is admitted for the first time. While a value is computed for an
//! authentication, further commands of it wait.

mod authentication;
mod connect;
mod ending;
mod server;

pub use ending::ServerEnd;
pub use server::Server;

use crate::io_queue::{DiskClient, IoQueue};
use crate::spec::Completion;
use crate::target::{Namespaces, QueueId};
use crate::tcp::{Config, Connection, ConnectionEvent, Received};
use authentication::QueueAuthentication;
use std::io::{IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::sync::Arc;
use zoneplug_buf::Buffers;
use zoneplug_core::Nanos;

/// The role of an association for the target.
#[derive(Debug)]
enum Role<C> {
    /// Unknown: the first command is Connect.
    New,
    Admin {
        queue: QueueId,
        /// Identifiers and slots of commands that are answered later.
        later: Vec<(u16, u16)>,
    },
    Io {
        queue: QueueId,
        io: Box<IoQueue<C>>,
    },
    /// The association takes no more commands.
    Ended,
}

/// A connection, and what it is for the target. `C` is a client of a disk.
#[derive(Debug)]
pub struct Association<C> {
    tcp: Connection,
    config: Config,
    /// The address at which the connection came in.
    local: SocketAddr,
    role: Role<C>,
    /// Takes the commands of authentication, and all commands until the host is admitted. `None`: the host need not
    /// authenticate.
    authentication: Option<Box<QueueAuthentication>>,
    /// Whether this is an I/O queue whose host has yet to authenticate for the first time. The target does not know
    /// it yet.
    pending: bool,
    /// Whether it accepts nothing more, because the server ends.
    stops: bool,
    /// Until when it waits for acknowledgements, if the target has ended the queue: see
    /// [`Association::ended_by_target`].
    leaves: Option<Nanos>,
    /// Whether it ends once everything is sent.
    ends: bool,
    /// When the driver closes the connection, if it has ended.
    closes: Option<Nanos>,
}

impl<C: DiskClient> Association<C> {
    /// Makes the association of a connection that was just accepted at the address `local`.
    pub fn new(config: Config, local: SocketAddr, now: Nanos) -> Association<C> {
        Association {
            tcp: Connection::new(config, now),
            config,
            local,
            role: Role::New,
            authentication: None,
            pending: false,
            stops: false,
            leaves: None,
            ends: false,
            closes: None,
        }
    }

    /// Receives bytes: see [`Connection::receive_with`].
    ///
    /// # Errors
    ///
    /// Those of `read`.
    #[inline(always)]
    pub fn receive_with<E>(
        &mut self,
        buffers: &mut Buffers,
        now: Nanos,
        read: impl FnOnce(&mut [IoSliceMut<'_>]) -> Result<usize, E>,
    ) -> Result<(usize, bool), E> {
        debug_assert!(!self.stops, "a server that ends takes no more bytes");
        self.tcp.receive_with(buffers, now, read)
    }

    /// Takes commands from the received bytes, and results from the disks. Returns false if there were none.
    pub fn run<S: Server<C>>(&mut self, server: &mut S) -> bool {
        let mut progress = false;
        loop {
            let mut again = false;
            while let Some(event) = self.tcp.next_event(server.io().buffers) {
                again = true;
                match event {
                    ConnectionEvent::Command(command) if self.takes_commands() => {
                        server.received(&command);
                        self.command(command, server);
                    }
                    ConnectionEvent::Command(command) => drop_data(command, server),
                    ConnectionEvent::Ended(why) => self.connection_ended(why, server),
                }
            }
            if let Role::Io { io, .. } = &mut self.role {
                again |= io.run(&mut self.tcp, &mut server.io());
            }
            progress |= again;
            if !again {
                return progress;
            }
        }
    }

    /// Returns false if the target has ended the queue, or the server ends.
    fn takes_commands(&self) -> bool {
        self.leaves.is_none() && !self.stops
    }

    /// Begins a command.
    fn command<S: Server<C>>(&mut self, c: Received, server: &mut S) {
        if self.authentication.as_ref().is_some_and(|a| a.concerns(&c.command)) {
            return self.authenticate(c, server);
        }
        match &mut self.role {
            Role::Io { io, .. } => io.begin(c, &mut self.tcp, &mut server.io()),
            Role::Admin { .. } => self.admin(c, server),
            Role::New => self.connect(c, server),
            Role::Ended => drop_data(c, server),
        }
    }

    /// Returns whether there is output.
    #[inline(always)]
    pub fn has_output(&self) -> bool {
        self.tcp.has_output()
    }

    /// Returns the output in `slices`, in order, and how many of them it has filled.
    #[inline(always)]
    pub fn output<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        self.tcp.output(slices)
    }

    /// Notes that the first `n` bytes of the output were sent. Then begins commands that have waited for memory.
    #[inline(always)]
    pub fn sent<S: Server<C>>(&mut self, n: usize, server: &mut S) {
        let io = server.io();
        self.tcp.sent(n, io.buffers, io.now);
        if !self.tcp.has_output() && self.tcp.can_admit() {
            self.run(server);
        }
    }

    /// Sends the answer to a command that the target answers later.
    pub fn complete<S: Server<C>>(&mut self, completion: Completion, server: &mut S) {
        let Role::Admin { later, .. } = &mut self.role else { return };
        let Some(n) = later.iter().position(|(cid, _)| *cid == completion.cid) else { return };
        let (_, slot) = later.remove(n);
        self.answer(slot, completion, &[], server);
    }

    /// Sets the namespaces that an I/O queue shows from now on.
    pub fn show<S: Server<C>>(&mut self, namespaces: Arc<Namespaces>, server: &mut S) {
        if let Role::Io { io, .. } = &mut self.role {
            io.show(namespaces, &server.io().disks);
        }
    }

    /// Answers the questions of other queues: see [`IoQueue::asked`]. Returns false if nothing happened.
    pub fn asked<S: Server<C>>(&mut self, server: &mut S) -> bool {
        if let Role::Io { io, .. } = &mut self.role {
            io.asked(&self.tcp, &server.io());
        }
        self.run(server)
    }

    /// Answers a command that went to no disk.
    fn answer<S: Server<C>>(
        &mut self,
        slot: u16,
        completion: Completion,
        bytes: &[u8],
        server: &mut S,
    ) {
        let io = server.io();
        let mut data = None;
        if !bytes.is_empty() {
            let mut buf = io.buffers.take(bytes.len() as u32);
            buf.write(0, bytes);
            data = Some((buf, bytes.len() as u32));
        }
        self.tcp.answer(slot, completion, data, io.buffers, io.now);
    }

    /// Returns the queue that the association carries, from Connect to its end.
    pub fn queue(&self) -> Option<QueueId> {
        match &self.role {
            Role::Admin { queue, .. } | Role::Io { queue, .. } => Some(*queue),
            Role::New | Role::Ended => None,
        }
    }

    /// Returns whether the host has not connected yet, or has yet to prove that it knows its key.
    pub fn is_stranger(&self) -> bool {
        let is_admitted = self.authentication.as_ref().is_none_or(|a| a.is_admitted());
        matches!(self.role, Role::New | Role::Ended) || !is_admitted
    }

    /// Returns whether a disk has work of the association, or has yet to take it.
    pub fn is_busy(&self) -> bool {
        matches!(&self.role, Role::Io { io, .. } if io.is_busy())
    }

    /// Returns whether commands wait for other queues: see [`IoQueue::waits`].
    pub fn waits(&self) -> bool {
        matches!(&self.role, Role::Io { io, .. } if io.waits())
    }

    /// Returns whether commands wait for commands that a disk has given up: see [`IoQueue::waits_for_late`].
    pub fn waits_for_late(&self) -> bool {
        matches!(&self.role, Role::Io { io, .. } if io.waits_for_late())
    }

    /// Returns the clients of disks, if a disk has work of the association.
    pub fn clients(&self) -> Option<impl Iterator<Item = &C>> {
        match &self.role {
            Role::Io { io, .. } if io.is_busy() => Some(io.clients()),
            _ => None,
        }
    }

    /// Returns the clients that have work in flight, or work that they have not taken, if there are any.
    pub fn busy_clients(&mut self) -> Option<impl Iterator<Item = &mut C>> {
        match &mut self.role {
            Role::Io { io, .. } if io.is_busy() => Some(io.busy_clients()),
            _ => None,
        }
    }
}

/// Drops a command. Its data are memory for the next commands.
fn drop_data<C: DiskClient, S: Server<C>>(c: Received, server: &mut S) {
    c.data.into_iter().for_each(|buf| server.io().buffers.put(buf));
}
