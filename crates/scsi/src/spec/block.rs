//! Capacities, and the ranges of UNMAP (SBC-4).

use super::bytes::{be16, be32, be64, put};

/// The capacity of a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capacity {
    /// Blocks of the unit, at least 1.
    pub blocks: u64,
    /// Bytes of a block.
    pub block_len: u32,
    /// log2 of the logical blocks of a physical block.
    pub physical_exponent: u8,
    /// Whether the unit is host-managed. The last block is then that of the unit, not that of its first conventional
    /// zones (RC BASIS).
    pub zoned: bool,
    /// Whether the unit has UNMAP (LBPME).
    pub unmap: bool,
}

impl Capacity {
    /// Encodes the data of READ CAPACITY(10). A larger last block is shown as the largest number.
    pub fn encode10(&self) -> [u8; 8] {
        let mut b = [0; 8];
        put(&mut b, 0, &u32::try_from(self.blocks - 1).unwrap_or(u32::MAX).to_be_bytes());
        put(&mut b, 4, &self.block_len.to_be_bytes());
        b
    }

    /// Encodes the data of READ CAPACITY(16).
    pub fn encode16(&self) -> [u8; 32] {
        let mut b = [0; 32];
        put(&mut b, 0, &(self.blocks - 1).to_be_bytes());
        put(&mut b, 8, &self.block_len.to_be_bytes());
        b[12] = if self.zoned { 0x10 } else { 0 };
        b[13] = self.physical_exponent & 0x0f;
        b[14] = if self.unmap { 0x80 } else { 0 };
        b
    }
}

/// The length of the header of UNMAP's parameter list.
pub const UNMAP_HEADER_LEN: usize = 8;
/// The length of a range in that list.
pub const UNMAP_RANGE_LEN: usize = 16;

/// Returns the number of whole ranges in the parameter list of UNMAP. `None`: the list is shorter than it says, or its
/// lengths contradict each other.
pub fn unmap_ranges(list: &[u8]) -> Option<usize> {
    if list.len() < UNMAP_HEADER_LEN {
        return None;
    }
    let (data, ranges) = (usize::from(be16(list, 0)), usize::from(be16(list, 2)));
    let within = data + 2 <= list.len() && ranges + UNMAP_HEADER_LEN <= data + 2;
    within.then_some(ranges / UNMAP_RANGE_LEN)
}

/// Returns range `i` of the list: its first block and its length.
pub fn unmap_range(list: &[u8], i: usize) -> (u64, u32) {
    let at = UNMAP_HEADER_LEN + i * UNMAP_RANGE_LEN;
    (be64(list, at), be32(list, at + 8))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capacities_have_their_fields_where_the_tables_have_them() {
        let c = Capacity {
            blocks: 1 << 33,
            block_len: 512,
            physical_exponent: 3,
            zoned: true,
            unmap: true,
        };
        assert_eq!(c.encode10(), [0xff, 0xff, 0xff, 0xff, 0, 0, 2, 0]);
        let want = [0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff, 0, 0, 2, 0, 0x10, 3, 0x80, 0];
        assert_eq!(c.encode16()[..16], want);
        assert_eq!(Capacity { blocks: 8, ..c }.encode10()[..4], [0, 0, 0, 7]);
    }

    #[test]
    fn the_ranges_of_unmap_are_within_their_list() {
        let mut list = vec![0; 8 + 32];
        put(&mut list, 0, &38u16.to_be_bytes());
        put(&mut list, 2, &32u16.to_be_bytes());
        put(&mut list, 24, &7u64.to_be_bytes());
        put(&mut list, 32, &9u32.to_be_bytes());
        assert_eq!((unmap_ranges(&list), unmap_range(&list, 1)), (Some(2), (7, 9)));
        assert_eq!(unmap_ranges(&list[..39]), None, "shorter than it says");
        assert_eq!(unmap_ranges(&list[..7]), None);
        put(&mut list, 2, &33u16.to_be_bytes());
        assert_eq!(unmap_ranges(&list), None, "more ranges than data");
    }
}
