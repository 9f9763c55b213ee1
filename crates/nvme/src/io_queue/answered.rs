//! The last answers of a queue, some of which the host may not have received.

use crate::target::io::IoRequest;
use std::collections::VecDeque;
use zoneplug_core::{Op, Sector};

/// An answer to a write, or to an append that succeeded.
#[derive(Debug, Clone, Copy)]
pub(super) struct Answer {
    pub(super) disk: u32,
    pub(super) is_append: bool,
    /// The first sector of the data.
    pub(super) sector: Sector,
    pub(super) len_sectors: u32,
    /// For an append: how often its zone had been reset when the append was sent. 0 for a write.
    pub(super) resets: u32,
    /// The end of the answer in the byte stream to the host.
    end: u64,
}

/// The last answers to writes, and to appends that succeeded, oldest first.
#[derive(Debug)]
pub(super) struct Answered {
    last: VecDeque<Answer>,
    /// The most answers kept.
    limit: usize,
}

impl Answered {
    /// Keeps at most `entries` answers. A host has at most `entries` commands in flight and takes answers in order,
    /// so it has taken all earlier ones.
    pub(super) fn new(entries: usize) -> Answered {
        Answered { last: VecDeque::new(), limit: entries }
    }

    /// Adds the answer to a request. `end` is where the answer ends in the byte stream.
    pub(super) fn push(&mut self, end: u64, r: &IoRequest, resets: u32) {
        if self.last.len() == self.limit {
            self.last.pop_front();
        } else if self.last.capacity() == 0 {
            self.last.reserve_exact(self.limit);
        }
        let is_append = r.op == Op::ZoneAppend;
        let (disk, sector, len_sectors) = (r.disk, r.sector, r.len_sectors);
        self.last.push_back(Answer { disk, is_append, sector, len_sectors, resets, end });
    }

    /// Returns whether one of the answers is to a write of this sector.
    pub(super) fn has_write(&self, disk: u32, at: Sector) -> bool {
        self.last.iter().any(|a| {
            let end = a.sector.plus(u64::from(a.len_sectors));
            !a.is_append && a.disk == disk && a.sector <= at && at < end
        })
    }

    /// Returns whether the answer to an append ends beyond the first `acknowledged` bytes of the stream, which the
    /// host's TCP has acknowledged.
    pub(super) fn any_append_is_open(&self, acknowledged: u64) -> bool {
        self.last.iter().any(|a| a.is_append && a.end > acknowledged)
    }

    /// Returns whether one of the answers is to an append.
    pub(super) fn has_append(&self) -> bool {
        self.last.iter().any(|a| a.is_append)
    }

    /// Returns the answers that the host may not have. Its TCP has acknowledged `acknowledged` bytes of the stream.
    ///
    /// A host may close a connection without reading bytes that its TCP has acknowledged. So each of the last answers
    /// to writes counts as possibly lost: a resent write is compared with the disk, which does not harm a new write.
    /// An append whose answer was acknowledged counts as received. If it counted as lost, a new append of the same
    /// data would be taken for a resend and answered with the old place.
    pub(super) fn perhaps_lost(&self, acknowledged: u64) -> impl Iterator<Item = &Answer> {
        self.last.iter().filter(move |a| !a.is_append || a.end > acknowledged)
    }
}

#[cfg(test)]
mod tests {
    use super::super::NO_REQUEST;
    use super::*;

    #[test]
    fn the_last_answers_are_kept_in_order() {
        let mut all = Answered::new(4);
        for i in 0..6 {
            let op = if i == 4 { Op::ZoneAppend } else { Op::Write };
            all.push(
                24 * (i + 1),
                &IoRequest { op, sector: Sector(i), len_sectors: 8, ..NO_REQUEST },
                0,
            );
        }
        let left = |acknowledged| {
            all.perhaps_lost(acknowledged).map(|a| (a.sector.0, a.is_append)).collect::<Vec<_>>()
        };
        assert_eq!(left(0), [(2, false), (3, false), (4, true), (5, false)]);
        let append_and_writes = [(2, false), (3, false), (4, true), (5, false)];
        assert_eq!(left(24 * 5 - 1), append_and_writes, "a byte of its answer is missing");
        assert!(all.any_append_is_open(24 * 5 - 1) && !all.any_append_is_open(24 * 5));
        for acknowledged in [5, 6] {
            assert_eq!(left(24 * acknowledged), [(2, false), (3, false), (5, false)]);
        }
    }
}
