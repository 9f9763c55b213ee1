//! Parts of servers of the network that do not depend on the protocol.
//!
//! | file | what it owns |
//! | --- | --- |
//! | `listeners.rs` | the sockets at which a server listens |
//! | `mailbox.rs` | what threads tell each other |
//! | `connection_table.rs` | the connections of a worker, and their keys |
//! | `queue_client.rs` | a client of a disk for the commands of a connection |
//! | `known.rs` | clients for which a server reserves places |
//! | `open_files.rs` | how many connections the limit of open files allows |
//! | `secret_file.rs` | the text of a file that holds a secret |
//! | `calls.rs` | counters of system calls |
//! | `sys.rs` | epoll, sending |
//! | `workers.rs` | the threads of a server; a server without threads, for tests and counting |

#[cfg(feature = "nvme-tcp")]
pub(crate) mod calls;
pub(crate) mod connection_table;
pub(crate) mod known;
pub(crate) mod listeners;
pub(crate) mod mailbox;
pub(crate) mod open_files;
pub(crate) mod queue_client;
pub(crate) mod secret_file;
pub(crate) mod sys;
pub(crate) mod workers;
