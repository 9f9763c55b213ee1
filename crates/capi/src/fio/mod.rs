//! An external ioengine for stock fio, without fio's headers.
//!
//! `fio --ioengine=external:/path/to/lib.so --thread --filename=SPEC ...`
//!
//! * [`abi`] knows where each fio release keeps its fields.
//! * [`ops`] builds the block of callbacks fio asks for by `get_ioengine`.
//! * [`engine`] holds the callbacks.
//! * [`backend`] is what they need from the block layer.

pub mod abi;
pub(crate) mod backend;
pub(crate) mod engine;
mod mem;
pub mod ops;
