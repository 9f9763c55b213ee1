//! Layers: devices that stand on other devices. A layer takes commands at the seam and sends them to the device below
//! it. Each layer passes the conformance suite, alone and on top of itself.
//!
//! | file | layer |
//! | --- | --- |
//! | `fault/` | [`FaultDisk`]: errors, torn writes, delays, lost completions, dead zones, a device that vanishes, power cuts |
//! | `join/` | [`JoinDisk`]: several devices as one, end to end or in stripes; a range of zones of one device |
//! | `po2/` | [`Po2Disk`]: zones whose size is a power of two, over zones of any size |
//! | `tap.rs` | [`TapDisk`]: a listener is called for every command |

mod fault;
mod join;
mod part;
mod po2;
mod tap;

pub use fault::{FaultAction, FaultCounts, FaultDisk, FaultPlan, FaultRule, FaultSectors, OpSet};
pub use join::JoinDisk;
pub use po2::Po2Disk;
pub use tap::{Listener, TapDisk, TapEvent};
