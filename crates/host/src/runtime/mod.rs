//! Disks with threads: hosted disks, their clients and reactor, and the adapters for programs.

pub(crate) mod asynchronous;
mod barrier;
pub(crate) mod batch;
pub(crate) mod blocking;
pub(crate) mod client;
pub(crate) mod deferred_wake;
mod futures;
pub mod hosted;
pub(crate) mod io_error;
pub(crate) mod latency;
mod owner_lock;
mod reactor;
mod reactor_signal;
mod shared;
pub(crate) mod shared_queue;
#[cfg(feature = "file")]
mod snapshot;
pub(crate) mod withheld;
