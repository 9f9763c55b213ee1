//! The messages of the workers.

use crate::network::listeners::ConnectionSlot;
use crate::network::mailbox;
use std::net::TcpStream;
use std::sync::Arc;
use zoneplug_nvme::spec::Completion;
use zoneplug_nvme::target::Namespaces;
use zoneplug_nvme::target::auth::Computed;

pub(super) type Mailbox = mailbox::Mailbox<Mail>;
pub(super) type ConnectionWaker = mailbox::ConnectionWaker<Mail>;

/// A message for a worker. Connections are named by their keys.
#[derive(Debug)]
pub(crate) enum Mail {
    /// A new connection.
    Connection(TcpStream, ConnectionSlot),
    /// A disk has done work of the connection.
    Ready(u64),
    /// Another queue queries that of the connection.
    Asked(u64),
    /// The answer to a command that the connection has kept waiting.
    Complete(u64, Completion),
    /// The Diffie-Hellman value that the connection waits for.
    Computed(u64, Box<Computed>),
    /// The namespaces that the I/O queue shows from now on.
    Namespaces(u64, Arc<Namespaces>),
    /// Close the connection. The target has ended its queue.
    Close(u64),
    /// A controller has a keep alive time: check it regularly.
    KeepAlive,
    /// Stop the worker.
    Stop,
}
