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

pub mod calibrate;
mod expression;
pub mod measure;
mod own_policy;
mod policy_expression;
pub mod replay;
pub mod reproduce;
mod status_key;
pub mod time;
mod virtual_disk;
mod watch;
pub mod work;
mod workers;

pub use own_policy::{Choose, Own};
pub use status_key::by_status;
pub use virtual_disk::{VirtualDisk, Way, Writer, layer_name, scheduler, ways};
pub use workers::Workers;
