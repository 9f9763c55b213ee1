//! Client models: how writes are issued, and what they wait for. fio's zoned mode is not a full queue: fio
//! holds a lock on each zone, and that lock decides how much waits in the plugs, not the disk.

mod place;
mod read;
mod seq;
mod trace;
mod zones;

pub use place::{Adapted, Place};
pub use read::RandomReader;
pub use seq::SeqWriter;
pub use trace::{Pace, Replayed, TraceClient};
pub use zones::ZoneWriter;
