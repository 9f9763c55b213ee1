//! The doors. Only these files know a protocol.

pub mod nvme_tcp;
pub mod ublk;

use crate::once::{self, FileOrder};
use nvme_tcp::Plan;
use ublk::{BlockDisk, Numbers, Planned};
use zoneplug_control::Failure;

/// Plans the block devices and the namespaces, without opening a disk for writing. Refuses disks that exclude each other, and
/// disks that their door cannot show.
pub fn planned(
    blocks: &[BlockDisk],
    numbers: Numbers,
    network: Option<&Plan>,
    order: &FileOrder<'_>,
) -> Result<Vec<Planned>, Failure> {
    let specs = [
        blocks.iter().map(|disk| &disk.spec).collect(),
        network.iter().flat_map(|plan| plan.specs()).collect(),
    ];
    once::disks(&specs, order).map_err(|(spec, f)| f.of_disk(spec))?;
    let planned = ublk::planned(blocks, numbers, order)?;
    network.map_or(Ok(()), Plan::check_disks)?;
    Ok(planned)
}
