//! Zones: their types and conditions, the layout of a disk, its limits, and the condition machine of ZBC and ZNS.
//! This module knows nothing of BIOs in flight; `plug/` keeps track of those.

mod condition;
mod geometry;
mod info;
mod limits;
pub mod machine;
mod memory;
mod spindles;

pub use condition::{Condition, ZoneType};
pub use geometry::{Geometry, GeometryError, MAX_ZONES};
pub use info::{ZONE_RECORD_LEN, ZoneInfo};
pub use limits::Limits;
pub use memory::{ZONE_BYTES, ZoneMemory};
pub use spindles::Spindles;
