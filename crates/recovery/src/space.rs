//! Space of a zone that holds data and belongs to no client: appends whose clients were never told of them. Only the
//! edges of the space are known, so an append may be anywhere in it. The data are kept as one hash for each block.
//!
//! If the data of an append are there twice, it may get the wrong copy: a part of a longer append that repeats it.
//! That longer append is then not found. Data of one length, or without repetition, are safe.

use std::hash::{DefaultHasher, Hasher};
use zoneplug_buf::AlignedBuf;

#[derive(Debug)]
struct Piece {
    /// Offset in the zone, in sectors.
    at: u32,
    blocks: Vec<u64>,
}

/// The space of one zone.
#[derive(Debug)]
pub struct Space {
    block_sectors: u32,
    pieces: Vec<Piece>,
}

impl Space {
    /// Makes an empty space of a zone with blocks of this length.
    pub fn new(block_sectors: u32) -> Space {
        Space { block_sectors: block_sectors.max(1), pieces: Vec::new() }
    }

    /// Adds a piece that begins at this offset and whose blocks have these [hashes](block_hashes).
    pub fn add(&mut self, at: u32, blocks: Vec<u64>) {
        if !blocks.is_empty() {
            self.pieces.push(Piece { at, blocks });
        }
    }

    /// Returns whether no space is left.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Returns the offsets at which blocks with these hashes may lie. Offsets where they fill a piece come first,
    /// then those at an end of a piece, then those inside one.
    pub fn places(&self, wanted: &[u64]) -> Vec<u32> {
        if wanted.is_empty() {
            return Vec::new();
        }
        let mut all = Vec::new();
        for (i, piece) in self.pieces.iter().enumerate() {
            for (block, window) in piece.blocks.windows(wanted.len()).enumerate() {
                if window == wanted {
                    let first = block == 0;
                    let last = block + wanted.len() == piece.blocks.len();
                    let rank = match (first, last) {
                        (true, true) => 0,
                        (true, false) | (false, true) => 1,
                        (false, false) => 2,
                    };
                    all.push((rank, i, piece.at + block as u32 * self.block_sectors));
                }
            }
        }
        all.sort_unstable();
        all.into_iter().map(|(_, _, at)| at).collect()
    }

    /// Removes this many blocks from this offset on. Returns false and removes nothing if one is missing, or if they
    /// do not lie in one piece.
    pub fn cut(&mut self, at: u32, blocks: usize) -> bool {
        let end = |p: &Piece| p.at + p.blocks.len() as u32 * self.block_sectors;
        let behind = at + blocks as u32 * self.block_sectors;
        let holds = |p: &Piece| p.at <= at && behind <= end(p);
        let Some(i) = self.pieces.iter().position(holds) else { return false };
        let mut piece = self.pieces.remove(i);
        let first = ((at - piece.at) / self.block_sectors) as usize;
        let rest = piece.blocks.split_off(first + blocks);
        piece.blocks.truncate(first);
        let parts = [piece, Piece { at: behind, blocks: rest }];
        self.pieces.splice(i..i, parts.into_iter().filter(|p| !p.blocks.is_empty()));
        true
    }
}

/// Returns the hashes of the blocks in the first `len_sectors` of a buffer.
pub fn block_hashes(buf: &AlignedBuf, len_sectors: u32, block_sectors: u32) -> Vec<u64> {
    let mut block = vec![0; (block_sectors << 9) as usize];
    let mut one = |i: u32| {
        buf.read((i * block_sectors) << 9, &mut block);
        let mut hasher = DefaultHasher::new();
        hasher.write(&block);
        hasher.finish()
    };
    (0..len_sectors / block_sectors).map(&mut one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// L9. An append fills its piece most likely: places that do come first, then those at an edge, then those inside.
    #[test]
    fn l9_places_at_edges_come_before_those_inside() {
        let mut space = Space::new(8);
        for (at, blocks) in
            [(0, vec![9, 1, 9]), (64, vec![9, 1]), (128, vec![1, 9]), (192, vec![1])]
        {
            space.add(at, blocks);
        }
        assert_eq!(space.places(&[1]), [192, 72, 128, 8]);
        assert_eq!(space.places(&[9, 1]), [64, 0]);
    }

    /// L9. Each block has the hash of its own data, wherever it is in the buffer.
    #[test]
    fn l9_a_block_has_the_hash_of_its_data() {
        let block = |fill: u8| vec![fill; 4096];
        let hash = |fill| block_hashes(&AlignedBuf::from_slice(&block(fill)), 8, 8)[0];
        let buf = AlignedBuf::from_slice(&[block(1), block(2), block(1)].concat());
        assert_eq!(block_hashes(&buf, 24, 8), [hash(1), hash(2), hash(1)]);
        assert_ne!(hash(1), hash(2));
    }
}
