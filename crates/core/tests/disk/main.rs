//! Rules of the engine, on disks in memory that behave, fail, misbehave or come back late. Each file is about one of them.
//! `bad_input`, `drain`, `last_handle`, `lost` and `misdeeds` lose BIOs, and a process counts these for all of its disks: each is a program of its own.
#![allow(clippy::unwrap_used, clippy::vec_box)]

mod append;
mod append_and_write;
mod attributes;
#[path = "../common/bomb.rs"]
mod bomb;
#[path = "../common/mod.rs"]
mod common;
mod deadlines;
mod errors;
mod events;
mod fua;
mod large_zones;
mod manage;
mod newcomers;
mod panics;
mod r_code;
mod revalidate;
mod schedulers;
mod sleepers;
mod without_lock;
mod write_path;
mod zone_write_depth;
