//! Zones: their types and conditions, the layout of a disk, its limits, and the state machine that ZBC and ZNS
//! give a zone. Knows nothing of BIOs in flight: that is the plug's.

mod geometry;
mod info;
mod limits;
pub mod machine;
mod spindles;

pub use geometry::{Geometry, GeometryError, MAX_ZONES};
pub use info::{Condition, ZONE_RECORD_LEN, ZoneInfo, ZoneType};
pub use limits::Limits;
pub use spindles::Spindles;
