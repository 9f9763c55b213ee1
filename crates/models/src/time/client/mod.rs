//! Client models: how writes are issued, and what delays them. fio's zoned mode is no full queue:
//! fio holds a lock on each zone, and that lock, not the disk, decides how many writes wait in the
//! plugs.

mod place;
mod read;
mod seq;
mod trace;
mod zones;

pub(crate) use place::PLACE_BYTES;
pub use place::{Adapted, Placement};
pub use read::RandomReader;
pub use seq::SeqWriter;
pub use trace::{Pace, Replayed, TraceClient};
pub use zones::ZoneWriter;
