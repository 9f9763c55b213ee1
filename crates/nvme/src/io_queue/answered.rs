//! Which answers of a queue the host may not have.

use crate::target::io::IoRequest;
use std::collections::VecDeque;
use zoneplug_core::{Op, Sector};

/// A write that was answered, or an append that was with success.
#[derive(Debug, Clone, Copy)]
pub(super) struct Answer {
    pub(super) disk: u32,
    pub(super) is_append: bool,
    /// Where the data are.
    pub(super) sector: Sector,
    pub(super) len_sectors: u32,
    /// Resets of the zone when an append was sent.
    pub(super) resets: u32,
    /// Where the answer ends in the stream of bytes for the host.
    end: u64,
}

/// The last writes that were answered, and the last appends that were with success, the oldest first.
#[derive(Debug)]
pub(super) struct Answered {
    last: VecDeque<Answer>,
    most: usize,
}

impl Answered {
    /// A host has at most `entries` commands in flight, and takes answers in their order: it has taken all answers but the
    /// last `entries`.
    pub(super) fn new(entries: usize) -> Answered {
        Answered { last: VecDeque::new(), most: entries }
    }

    /// A request was answered, and that answer ends there in the stream.
    pub(super) fn push(&mut self, end: u64, r: &IoRequest, resets: u32) {
        if self.last.len() == self.most {
            self.last.pop_front();
        } else if self.last.capacity() == 0 {
            self.last.reserve_exact(self.most);
        }
        let is_append = r.op == Op::ZoneAppend;
        let (disk, sector, len_sectors) = (r.disk, r.sector, r.len_sectors);
        self.last.push_back(Answer { disk, is_append, sector, len_sectors, resets, end });
    }

    /// Whether one is to a write of this sector.
    pub(super) fn has_write(&self, disk: u32, at: Sector) -> bool {
        self.last.iter().any(|a| {
            let end = a.sector.plus(u64::from(a.len_sectors));
            !a.is_append && a.disk == disk && a.sector <= at && at < end
        })
    }

    /// Whether the host's TCP has yet to acknowledge the answer of an append. It has acknowledged so many bytes of the stream.
    pub(super) fn any_append_is_open(&self, acknowledged: u64) -> bool {
        self.last.iter().any(|a| a.is_append && a.end > acknowledged)
    }

    /// Whether one is to an append.
    pub(super) fn has_append(&self) -> bool {
        self.last.iter().any(|a| a.is_append)
    }

    /// The answers that the host may not have. Its TCP has acknowledged so many bytes of the stream.
    ///
    /// A host may end a connection with bytes that its TCP has acknowledged and that it has not looked at. So it may miss each
    /// of the last answers to writes: these are compared with the disk, which does no harm to a new write. An append that was
    /// acknowledged counts as received, because a new one with the same data would get its place.
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
