//! Where the data of appends are. fio names an offset for each write; the disk decides where an append lands, and tells
//! it only afterwards. A later read of the offset that fio named is done at the place that the disk told.
//!
//! fio has no way to be told a place: it notes the offset of a write before it queues it, writes that offset into the
//! header of the block, and reads there when it verifies. So its check of the header finds a place that was told wrongly:
//! there is another block.

use std::collections::BTreeMap;
use std::ops::Range;

/// The bytes that one append wrote: `start..end` as fio names them, of which the first is at `landed` on the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) landed: u64,
}

impl Piece {
    /// The part of a piece from `start` to `end`, which are within it.
    fn part(self, start: u64, end: u64) -> Piece {
        Piece { start, end, landed: self.landed + (start - self.start) }
    }

    /// Whether `next` continues this piece both for fio and on the disk.
    fn continues_with(self, next: Piece) -> bool {
        self.end == next.start && self.landed + (self.end - self.start) == next.landed
    }
}

/// The places of all appends since the last reset of their zones. Bytes that no append wrote are where fio names them.
#[derive(Debug, Default)]
pub(super) struct Places {
    /// By start. They do not overlap.
    pieces: BTreeMap<u64, Piece>,
    /// How many appends there were.
    appends: u64,
    /// How many of them landed elsewhere than where fio named.
    elsewhere: u64,
}

impl Places {
    /// Notes that an append has landed.
    pub(super) fn note(&mut self, piece: Piece) {
        self.forget(piece.start..piece.end);
        self.pieces.insert(piece.start, piece);
        self.appends += 1;
        self.elsewhere += u64::from(piece.landed != piece.start);
    }

    /// Forgets what is known of a range of fio's bytes: its zones were reset.
    pub(super) fn forget(&mut self, range: Range<u64>) {
        for old in self.overlapping(&range) {
            self.pieces.remove(&old.start);
            for (start, end) in [(old.start, range.start), (range.end, old.end)] {
                if start < end {
                    self.pieces.insert(start, old.part(start, end));
                }
            }
        }
    }

    fn overlapping(&self, range: &Range<u64>) -> Vec<Piece> {
        let before = self.pieces.range(..range.start).next_back().map(|(_, piece)| *piece);
        let before = before.filter(|piece| piece.end > range.start);
        before.into_iter().chain(self.pieces.range(range.clone()).map(|(_, p)| *p)).collect()
    }

    /// Where a range of fio's bytes is on the disk: as few pieces as possible, in fio's order.
    pub(super) fn find(&self, range: Range<u64>) -> Vec<Piece> {
        let mut found: Vec<Piece> = Vec::new();
        let mut add = |next: Piece| match found.last_mut() {
            _ if next.start == next.end => {}
            Some(last) if last.continues_with(next) => last.end = next.end,
            _ => found.push(next),
        };
        let as_named = |start, end| Piece { start, end, landed: start };
        let mut at = range.start;
        for piece in self.overlapping(&range) {
            let (start, end) = (piece.start.max(range.start), piece.end.min(range.end));
            add(as_named(at, start));
            add(piece.part(start, end));
            at = end;
        }
        add(as_named(at, range.end));
        found
    }

    /// A line for the user about the appends. `None`: there were none.
    pub(super) fn summary(&self) -> Option<String> {
        let Places { appends, elsewhere, .. } = self;
        (*appends > 0)
            .then(|| format!("{appends} appends, {elsewhere} landed elsewhere than fio's offset"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(start: u64, end: u64, landed: u64) -> Piece {
        Piece { start, end, landed }
    }

    #[test]
    fn a_read_finds_what_appends_wrote_wherever_it_landed() {
        let mut places = Places::default();
        assert_eq!(places.find(10..20), [piece(10, 20, 10)], "nothing was appended");
        for (start, landed) in [(0, 4), (4, 8), (8, 0)] {
            places.note(piece(start, start + 4, landed));
        }
        assert_eq!(places.find(4..8), [piece(4, 8, 8)]);
        assert_eq!(places.find(5..7), [piece(5, 7, 9)]);
        assert_eq!(places.find(0..8), [piece(0, 8, 4)], "neighbours on the disk too");
        let all = [piece(2, 8, 6), piece(8, 12, 0), piece(12, 20, 12)];
        assert_eq!(places.find(2..20), all);
        assert_eq!(places.summary().unwrap(), "3 appends, 3 landed elsewhere than fio's offset");
        assert_eq!(Places::default().summary(), None);
    }

    #[test]
    fn a_reset_forgets_its_zone_and_nothing_else() {
        let mut places = Places::default();
        places.note(piece(0, 12, 100));
        places.forget(4..8);
        let left = [piece(0, 4, 100), piece(4, 8, 4), piece(8, 12, 108)];
        assert_eq!(places.find(0..12), left);
        places.forget(0..12);
        assert_eq!(places.find(0..12), [piece(0, 12, 0)]);
    }

    #[test]
    fn an_offset_that_is_appended_again_is_where_the_last_one_landed() {
        let mut places = Places::default();
        places.note(piece(0, 12, 100));
        places.note(piece(4, 8, 200));
        let found = [piece(0, 4, 100), piece(4, 8, 200), piece(8, 12, 108)];
        assert_eq!(places.find(0..12), found);
        places.note(piece(2, 10, 300));
        let found = [piece(0, 2, 100), piece(2, 10, 300), piece(10, 12, 110)];
        assert_eq!(places.find(0..12), found);
    }
}
