//! Memory for I/O.
//!
//! An [`IoBuf`] is the right to use memory that a client lends to a device: one range, or a list of [`Segment`]s
//! (scatter-gather). It moves with the BIO that carries it and cannot be copied. A lender frees its memory only when
//! the `IoBuf` is back. So a device written in safe Rust can leak memory but cannot corrupt it.
//!
//! [`AlignedBuf`] lends itself without `unsafe`. Lending other memory is `unsafe`, and the function states the
//! conditions. [`Parts`] hands out a buffer in parts, and [`Arena`] hands out buffers. [`Buffers`] keeps free memory for
//! the next commands. [`ReadAhead`] puts what a connection receives where it stays.
//!
//! This crate has the only `unsafe` code below `zoneplug-host`.

mod aligned;
mod arena;
mod buffers;
mod io;
mod parts;
mod read_ahead;
mod slice;

pub use aligned::{AlignedBuf, Lent};
pub use arena::Arena;
pub use buffers::Buffers;
pub use io::{IoBuf, IoRange, Segment, Segments};
pub use parts::Parts;
pub use read_ahead::{ReadAhead, Received, Shape};
