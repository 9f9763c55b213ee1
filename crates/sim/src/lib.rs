//! The deterministic simulation of zoneplug: the code that drives a real disk, in virtual time.
//!
//! A *world* is a disk of random shape with faults below it, a few queues above it, and clients that use every
//! operation and also make mistakes. There is no thread and no clock, and everything follows from the seed. A world
//! that fails is run again by its seed, and shrunk to the fewest steps that still fail.
//!
//! The oracles are outside of the code under test: the strict emulated disk; an oracle at the seam (one
//! write in flight for each zone, in order, within limits); stamps on the medium; a shadow of what was
//! acknowledged; one completion for each BIO; no hang; and the rules of durability after a power cut.
//! `docs/simulation.md` lists what they check.
//!
//! | file | what it owns |
//! | --- | --- |
//! | `world/` | one world |
//! | `network/` | one world whose clients reach the disk over NVMe/TCP |
//! | `client_zone.rs` | a zone as the clients of either may know it, and the stamps that they wrote |
//! | `seam_oracle.rs` | the oracle at the seam |
//! | `zone_history.rs` | what that oracle has seen of each zone |
//! | `queueing.rs` | the oracle for the order of schedulers |
//! | `device_pending.rs` | what the device has not carried out yet |
//! | `class.rs` | regression classes, and how often each was exercised |
//! | `run.rs` | a world by its seed, and the sum of the results of several |
//! | `worlds.rs` | a run of many worlds, and its figures as data |
//! | `shrink.rs` | the fewest steps that still fail |
//! | `far.rs` | worlds with zones of nearly 2^32 sectors |

#![deny(unsafe_code)] // but for the end of a world: see `memory.rs`
#![allow(clippy::vec_box)] // a BIO moves by its box

mod class;
mod client_zone;
mod device_pending;
mod far;
mod memory;
mod network;
mod queueing;
mod run;
mod seam_oracle;
mod shrink;
mod world;
mod worlds;
mod zone_history;

pub use class::{Class, Coverage};
pub use far::{Far, far};
pub use run::{Failure, Outcome, Steps, Tally, run};
pub use shrink::{Shrunk, shrink};
pub use worlds::{Summary, Worlds};
