//! Client models: who writes, how, and what it waits for. A table that was measured through fio's zoned mode is not one of
//! a full queue: fio holds a lock on each zone, and that lock, not the disk, decides how much waits in the plugs.

mod place;
mod read;
mod seq;
mod trace;
mod zones;

pub use place::Place;
pub use read::RandomReader;
pub use seq::SeqWriter;
pub use trace::{Adapted, Pace, Replayed, TraceClient};
pub use zones::ZoneWriter;
