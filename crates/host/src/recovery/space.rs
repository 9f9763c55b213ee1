//! Reads the space of zones that no client was told of.

use crate::BlockingDisk;
use crate::runtime::hosted::HostedDisk;
use std::collections::BTreeMap;
use std::ops::Range;
use zoneplug_core::{Sector, ZoneNo};
use zoneplug_recovery::{Space, block_hashes};

/// Most sectors that are read at a time.
const PIECE: u32 = 2048;

/// Reads these pieces of zones, as offsets. A zone that cannot be read has nothing to compare. Waits for the disk.
pub(crate) fn read_spaces(
    pieces: Vec<(ZoneNo, Vec<Range<u32>>)>,
    disk: &HostedDisk,
) -> BTreeMap<u32, Space> {
    let (g, block) = (disk.disk().geometry(), block_sectors(disk));
    let read = |(zone, pieces): (ZoneNo, Vec<Range<u32>>)| {
        let space = read_space(g.zone_start(zone), &pieces, block, disk)?;
        (!space.is_empty()).then_some((zone.0, space))
    };
    pieces.into_iter().filter_map(read).collect()
}

/// The length in sectors of the blocks that are compared.
pub(crate) fn block_sectors(disk: &HostedDisk) -> u32 {
    let limits = disk.disk().limits();
    limits.write_granularity_sectors.max(limits.logical_block_sectors).max(1)
}

/// `None`: a read has failed.
fn read_space(
    start: Sector,
    pieces: &[Range<u32>],
    block_sectors: u32,
    disk: &HostedDisk,
) -> Option<Space> {
    let mut io = BlockingDisk::new(disk).ok()?;
    let step = PIECE.next_multiple_of(block_sectors);
    let mut space = Space::new(block_sectors);
    for piece in pieces {
        let mut blocks = Vec::new();
        let mut at = piece.start;
        while piece.end - at >= block_sectors {
            let n = (piece.end - at).min(step) / block_sectors * block_sectors;
            let buf = io.read(start.plus(u64::from(at)), u64::from(n)).ok()?;
            blocks.extend(block_hashes(&buf, n, block_sectors));
            at += n;
        }
        space.add(piece.start, blocks);
    }
    Some(space)
}
