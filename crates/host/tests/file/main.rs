//! Disks in files: what is opened, committed, found after a loss, and shown to readers. Tests that end or starve their own process
//! are programs of their own: `file_kill`, `file_cuts`, `file_lost`, `file_ring`.
#![allow(clippy::unwrap_used)]

mod access;
mod changed;
mod commits;
mod conformance;
mod errors;
mod found;
#[path = "../common/one_command.rs"]
mod one_command;
mod open;
mod owed;
mod reader;
mod snapshot;
