//! Figures of the engine on models of drives, in virtual time, as plain data: workloads, block traces and the published
//! tables. The command `zoneplug-lab` prints them; Python returns them as dictionaries.
//!
//! Figures follow from the arguments alone: the machine, the number of threads and their order make no difference.
//!
//! | file | what it owns |
//! | --- | --- |
//! | `virtual_disk.rs` | which specifications name a disk in virtual time, and the ways to open it |
//! | `own_policy.rs` | policies of the single writer with a state |
//! | `policy_expression.rs`, `expression.rs` | policies given as expressions; expressions of numbers |
//! | `workers.rs`, `watch.rs` | work on all processors; stopping early on request |
//! | `time/` | virtual time: clients of all kinds on a model of a drive, block traces |
//! | `work.rs` | workloads: where the next BIO goes, also of benchmarks in real time |
//! | `measure/` | a workload on a disk |
//! | `calibrate/` | the profile of a drive from measurements of it |
//! | `replay/` | a block trace on disks |
//! | `reproduce/` | the published tables |
//! | `status_key.rs` | counts with statuses as keys |
//!
//! Without the feature `virtual-time` there are only workloads and keys, which benchmarks in real time need.

#[cfg(feature = "virtual-time")]
pub mod calibrate;
#[cfg(feature = "virtual-time")]
mod expression;
#[cfg(feature = "virtual-time")]
pub mod measure;
#[cfg(feature = "virtual-time")]
mod own_policy;
#[cfg(feature = "virtual-time")]
mod policy_expression;
#[cfg(feature = "virtual-time")]
pub mod replay;
#[cfg(feature = "virtual-time")]
pub mod reproduce;
mod status_key;
#[cfg(feature = "virtual-time")]
pub mod time;
#[cfg(feature = "virtual-time")]
mod virtual_disk;
#[cfg(feature = "virtual-time")]
mod watch;
pub mod work;
#[cfg(feature = "virtual-time")]
mod workers;

#[cfg(feature = "virtual-time")]
pub use own_policy::{Choose, Own};
pub use status_key::by_status;
#[cfg(feature = "virtual-time")]
pub use virtual_disk::{VirtualDisk, Way, Writer, layer_name, scheduler, ways};
#[cfg(feature = "virtual-time")]
pub use workers::Workers;
