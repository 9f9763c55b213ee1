//! Reads the space of a zone that no client was told of.

use crate::BlockingDisk;
use crate::runtime::hosted::HostedDisk;
use std::ops::Range;
use zoneplug_core::Sector;
use zoneplug_recovery::{Space, block_hashes};

/// Most sectors that are read at a time.
const PIECE: u32 = 2048;

/// Reads these pieces of the zone that begins at `start`. `None`: a read has failed. Waits for the disk.
pub(crate) fn read_space(
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
