//! Three cases that show the benefits of plugging.

pub(crate) mod append;
pub(crate) mod order;
pub(crate) mod tags;
