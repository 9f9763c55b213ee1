//! Dataset Management with the attribute *deallocate* (NVM Command Set Specification, *Dataset Management command*).
//!
//! A conventional namespace discards the ranges. In a zoned one the command succeeds and has no effect: deallocation
//! is a hint, and only a reset frees the blocks of a sequential zone.

use super::Namespace;
use crate::spec::{Command, status};
use zoneplug_buf::AlignedBuf;
use zoneplug_core::Sector;

/// Bytes of a range: attributes, length in blocks, first block.
const RANGE_BYTES: u32 = 16;
/// Attribute *deallocate*: command dword 11.
const DEALLOCATE: u32 = 1 << 2;

/// Ranges to discard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Deallocation {
    ranges: u32,
    next: u32,
    /// Sectors of the range `next` that are done.
    done: u64,
    start: Sector,
    shift: u32,
}

impl Deallocation {
    /// Checks the command. Also returns the length of the list in bytes.
    pub(super) fn new(
        c: &Command,
        n: &Namespace,
        data: Option<&AlignedBuf>,
    ) -> Result<(Deallocation, u32), u16> {
        // NR, less one. More data may follow the list.
        let ranges = (c.cdw(10) & 0xff) + 1;
        let data = data.filter(|d| {
            let bytes = ranges * RANGE_BYTES;
            c.sgl().length >= bytes && d.len() >= bytes
        });
        let data = data.ok_or(status::SGL_LENGTH)?;
        for i in 0..ranges {
            let (lba, blocks) = range(data, i);
            if lba > n.blocks() || u64::from(blocks) > n.blocks() - lba {
                return Err(status::LBA_RANGE);
            }
        }
        let works = c.cdw(11) & DEALLOCATE != 0 && n.can_discard();
        let ranges = if works { ranges } else { 0 };
        let (start, shift) = (n.start(), n.shift());
        Ok((Deallocation { ranges, next: 0, done: 0, start, shift }, c.sgl().length))
    }

    /// Returns the next sectors to discard.
    pub(super) fn next(&mut self, data: &AlignedBuf) -> Option<(Sector, u32)> {
        while self.next < self.ranges {
            let (lba, blocks) = range(data, self.next);
            let left = (u64::from(blocks) << self.shift) - self.done;
            if left == 0 {
                (self.next, self.done) = (self.next + 1, 0);
                continue;
            }
            let len = left.min(u64::from(u32::MAX >> self.shift << self.shift));
            let sector = self.start.plus((lba << self.shift) + self.done);
            self.done += len;
            return Some((sector, len as u32));
        }
        None
    }
}

/// Returns the first block and the number of blocks of a range.
fn range(data: &AlignedBuf, i: u32) -> (u64, u32) {
    let (mut len, mut lba) = ([0; 4], [0; 8]);
    data.read(i * RANGE_BYTES + 4, &mut len);
    data.read(i * RANGE_BYTES + 8, &mut lba);
    (u64::from_le_bytes(lba), u32::from_le_bytes(len))
}
