//! Workloads in virtual time: client models above a disk with the times of a drive.
//!
//! A [`Run`] opens the engine on a timed device, lets clients work for a given virtual time, and
//! reports the results. A run reads no clock and starts no thread. It follows from its profile, its
//! configuration, its clients and their seeds, and gives the same figures on every machine.
//!
//! ```
//! use zoneplug_core::Nanos;
//! use zoneplug_devices::emu::timing::Profile;
//! use zoneplug_models::time::{Run, SeqWriter};
//! let mut run = Run::new(Profile::builtin("smr30").unwrap());
//! run.length = Nanos(1_000_000_000);
//! let report = run.go(vec![Box::new(SeqWriter::new(8, 1 << 20))]).unwrap();
//! assert!((230.0..260.0).contains(&report.mb_per_s()));
//! ```
//!
//! | file | what it owns |
//! | --- | --- |
//! | `run.rs` | the loop: time, polls, timers |
//! | `real.rs`, `own_memory.rs` | the same clients on a real disk, by the caller's clock; memory for its data |
//! | `io.rs` | what a client can do |
//! | `report.rs` | the results |
//! | `adapter.rs` | what the drives of a shelf share |
//! | `client/` | fio's zoned mode, sequential writers, readers, traces |
//! | `trace/` | block traces |
//! | `host_times.rs` | the times of the host |
//! | `workload.rs` | workloads of writes; the rates and seeds over which a figure is repeated |

mod adapter;
mod client;
mod host_times;
mod io;
mod own_memory;
mod real;
mod report;
mod run;
pub mod trace;
mod workload;

pub use adapter::Adapter;
pub(crate) use client::PLACE_BYTES;
pub use client::{
    Adapted, Pace, Placement, RandomReader, Replayed, SeqWriter, TraceClient, ZoneWriter,
};
pub use host_times::HostTimes;
pub use io::{Client, Finished, Io, MAX_BYTES};
pub use own_memory::OwnMemory;
pub use real::{Clock, RealRun};
pub use report::{ClientReport, Report};
pub use run::{Layers, Run};
pub use workload::{GEOMETRIES, SEEDS, Workload};
