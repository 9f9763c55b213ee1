//! The order window: writes that come before their place are held until the gap before them fills (H1-H12).
#![allow(clippy::unwrap_used, clippy::vec_box)]

mod bounds;
#[path = "../common/mod.rs"]
mod common;
mod errors;
mod limits;
mod model;
mod random;
mod rules;
