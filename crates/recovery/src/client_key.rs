//! The names by which the recovery knows clients and their queues.

/// The key of a client. The door that serves the client makes its key, so that the client has the same key after a new connection and at
/// the next server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClientKey(pub(crate) u64);

impl ClientKey {
    /// Makes the key with this number. Journals use 0 for no client, so the keys 0 and 1 are the same.
    pub const fn new(number: u64) -> ClientKey {
        ClientKey(if number == 0 { 1 } else { number })
    }

    /// Returns the key as a number, never 0.
    pub fn number(self) -> u64 {
        self.0
    }
}

/// A queue of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ClientQueue {
    /// The path of the queue. A client that loses one of its paths sends its commands again over another.
    pub path: u16,
    /// The queue among those of its path.
    pub number: u16,
}
