//! Three cases where the difference is plain.

pub(crate) mod append;
pub(crate) mod order;
pub(crate) mod tags;
