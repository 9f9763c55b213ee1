//! Devices on devices. Each takes commands at the seam and sends them to the device below it; each passes the
//! conformance suite, alone and on itself.
//!
//! | file | layer |
//! | --- | --- |
//! | `fault/` | [`FaultDisk`]: errors, torn writes, delays, lost completions, zones that die, a device that goes, power cuts |
//! | `po2/` | [`Po2Disk`]: zones of a power of two over zones of any size |

mod fault;
mod part;
mod po2;

pub use fault::{FaultAction, FaultCounts, FaultDisk, FaultPlan, FaultRule, Kinds};
pub use po2::Po2Disk;
