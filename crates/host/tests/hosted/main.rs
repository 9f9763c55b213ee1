//! Hosted disks: their clients and adapters, deadlines, layers and specifications.
#![allow(clippy::unwrap_used, clippy::vec_box)]

mod adapters;
mod asynchronous;
mod clients;
mod closing;
#[path = "../common/mod.rs"]
mod common;
mod deadlines;
mod layer_purposes;
mod layers;
#[path = "../common/nvme_host.rs"]
mod nvme_host;
mod panics;
mod pieces;
mod served_latency;
mod sleeping;
mod spec_keys;
mod stack;
mod timed;
mod wakers;
