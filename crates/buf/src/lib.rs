//! Memory for I/O.
//!
//! An [`IoBuf`] is the right to use memory that a client lends to a device: one range, or a list of
//! [`Segment`]s (scatter-gather). It moves with the BIO that carries it and cannot be copied. A lender frees
//! its memory only when the `IoBuf` is back, so a device written in safe Rust can leak memory and cannot
//! corrupt it. [`AlignedBuf`] lends itself without `unsafe`; lending other memory is `unsafe` and states the
//! promise. [`Parts`] hands a buffer out in parts, and [`Arena`] hands out buffers.
//!
//! This crate is the only `unsafe` below `zoneplug-host`.

mod aligned;
mod arena;
mod io;
mod parts;
mod slice;

pub use aligned::{AlignedBuf, Lent};
pub use arena::Arena;
pub use io::{IoBuf, IoRange, Segment, Segments};
pub use parts::Parts;
