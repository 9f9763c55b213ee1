//! The deterministic simulation of zoneplug: the very code that drives a disk, in virtual time.
//!
//! A *world* is a disk of random shape with faults below it, a few queues above it, and clients that do everything they
//! may and some things they may not. There is no thread and no clock, and everything follows from one number: a world
//! that fails is run again by its seed, and shrunk to the fewest steps that still fail.
//!
//! The oracles are outside the code under test: the strict emulated disk, a spy at the seam (one write in flight for each
//! zone, in order, within limits), stamps on the medium, a shadow of what was acknowledged, exactly one completion
//! for each BIO, no hang, and after a power cut the rules of durability.
//!
//! | file | what |
//! | --- | --- |
//! | `world/` | one world |
//! | `seam_oracle.rs` | the oracle at the seam |
//! | `zone_history.rs` | what it has seen of each zone |
//! | `queueing.rs` | the oracle for who goes first |
//! | `device_pending.rs` | what the device below all faults has not carried out yet |
//! | `class.rs` | regression classes and how often each was exercised |
//! | `run.rs` | worlds by seed, what they did, how they failed |
//! | `shrink.rs` | the fewest steps that still fail |
//! | `far.rs` | worlds of zones of nearly 2^32 sectors |
//! | `time/` | workloads on models of real drives, in virtual time |

#![forbid(unsafe_code)]
#![allow(clippy::vec_box)] // a BIO moves by its box

mod class;
mod device_pending;
mod far;
mod memory;
mod plant;
mod queueing;
mod run;
mod seam_oracle;
mod shrink;
pub mod time;
mod world;
mod zone_history;

pub use class::{Class, Coverage};
pub use far::{Far, far};
pub use plant::{Caught, bugs, hunt};
pub use run::{Failure, Outcome, Steps, Tally, run};
pub use shrink::{Shrunk, shrink};
