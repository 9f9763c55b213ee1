//! Commands that may come late: a queue's notes of its commands while the device has them, the tickets of commands
//! that were given up, and the zones that a reset or finish may still change.

pub(crate) mod inflight;
pub(crate) mod late;
pub(crate) mod late_commands;
pub(crate) mod resets;
