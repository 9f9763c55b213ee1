//! A client's queue: BIOs on their way down and back up.
//!
//! | file | what it does |
//! | --- | --- |
//! | `handle.rs` | opens, arms and closes a queue |
//! | `submit.rs` | checks BIOs and makes commands of them |
//! | `write.rs` | runs of plugged writes: admitted, sent or parked |
//! | `short_turn.rs` | writes that find the single writer idle: a turn without a lock |
//! | `past_scheduler.rs` | writes that find nothing waiting in the scheduler |
//! | `early.rs` | writes that come before their place, on disks with an order window |
//! | `split.rs` | BIOs that become several commands |
//! | `complete.rs` | commands that have come back, and what follows them |
//! | `deliver.rs` | BIOs on their way to their owners |
//! | `orphans.rs` | queues that were dropped with work in flight |

mod complete;
mod deliver;
mod early;
mod handle;
mod orphans;
mod past_scheduler;
mod short_turn;
mod split;
mod submit;
mod write;

pub use handle::{Armed, DiskQueue};
