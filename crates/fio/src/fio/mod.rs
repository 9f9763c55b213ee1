//! An external ioengine for stock fio, without fio's headers: see the crate's page for how to use it.
//!
//! * [`abi`] has the offsets of fio's fields in each release.
//! * [`ops`] builds the block of callbacks fio asks for by `get_ioengine`.
//! * `program` is fio itself: the functions of it that are called, and its log.
//! * `device` is a disk of the layer, shared by all jobs that name it.
//! * `engine` holds the devices and jobs, and the callbacks for files and zones.
//! * `job` holds the callbacks of a job: submission and completion. `jobs` finds the job of a call, and `lane` is one
//!   device as one job uses it.
//! * `places` remembers where appends landed, and `job::appends` holds the requests of jobs that append.

pub mod abi;
mod device;
mod engine;
mod job;
mod jobs;
mod lane;
pub mod ops;
mod places;
mod program;
