//! The split BIOs of one queue: each waits here until all of its parts are back.
//!
//! A part is a BIO of its own that names its parent. The table knows neither zones nor devices: `split.rs` cuts the range
//! and sends the parts.

use crate::bio::{Bio, BioPool, NO_PARENT, Status};
use crate::planted::{Bug, planted};
use crate::unit::Sector;
use zoneplug_buf::IoBuf;

/// A BIO whose parts are on their way.
#[derive(Debug)]
struct Parent {
    bio: Option<Box<Bio>>,
    /// Parts that are not back, and one more until all parts have been made.
    parts: u32,
    status: Status,
    /// The ticket of parts that are late.
    late: u32,
}

/// The split BIOs of one queue.
#[derive(Debug, Default)]
pub(crate) struct SplitTable {
    parents: Vec<Parent>,
    free: Vec<u32>,
    /// BIOs for parts.
    spare: BioPool,
}

impl SplitTable {
    /// Takes a BIO that is to be split, and returns the number by which its parts name it.
    pub(crate) fn begin(&mut self, bio: Box<Bio>) -> u32 {
        let parent = Parent { bio: Some(bio), parts: 1, status: Status::Ok, late: 0 };
        match self.free.pop() {
            Some(id) => {
                self.parents[id as usize] = parent;
                id
            }
            None => {
                self.parents.push(parent);
                self.parents.len() as u32 - 1
            }
        }
    }

    /// The BIO that is being split.
    pub(crate) fn whole(&self, id: u32) -> &Bio {
        self.parents[id as usize].bio.as_ref().expect("the parent is being split")
    }

    /// Makes the part of `len` sectors at `sector`.
    pub(crate) fn part(&mut self, id: u32, sector: Sector, len: u32) -> Box<Bio> {
        let mut part = self.spare.get();
        let whole = self.whole(id);
        let buf = if whole.op.has_data() {
            let skip = if planted(Bug::PartsShareBuffer) { 0 } else { sector.0 - whole.sector.0 };
            whole.data().slice((skip << 9) as u32, len << 9)
        } else {
            IoBuf::empty()
        };
        part.set(whole.op, sector, len, buf);
        part.flags = whole.flags;
        part.queue = whole.queue;
        (part.parent, part.late) = (id, 0);
        part.in_flight = true;
        self.parents[id as usize].parts += 1;
        part
    }

    /// All parts have been made.
    pub(crate) fn end(&mut self, id: u32) {
        let p = &mut self.parents[id as usize];
        p.parts -= 1;
        debug_assert!(p.parts > 0, "a part that is on its way has not been polled for");
    }

    /// A part has come back. Returns the parent if it was the last one: the parent fails if a part failed. `join` returns the
    /// ticket that is open while one of two tickets is.
    #[cold]
    pub(crate) fn part_done(
        &mut self,
        mut part: Box<Bio>,
        join: impl FnOnce(u32, u32) -> u32,
    ) -> Option<Box<Bio>> {
        let id = part.parent;
        let p = &mut self.parents[id as usize];
        // The cause rather than a consequence: parts behind a failed part say *aborted behind*.
        if !part.status.is_ok() && (p.status.is_ok() || p.status == Status::AbortedBehind) {
            p.status = part.status;
        }
        if part.late != 0 {
            // Whatever the status, the memory of that part is in use.
            p.late = join(p.late, part.late);
        }
        p.parts -= 1;
        let mut whole = None;
        if p.parts == 0 || planted(Bug::ParentCompletesEarly) && p.bio.is_some() {
            let mut bio = p.bio.take().expect("a parent completes once");
            (bio.status, bio.late) = (p.status, p.late);
            bio.in_flight = false;
            self.free.push(id);
            whole = Some(bio);
        }
        part.parent = NO_PARENT;
        self.spare.put(part);
        whole
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bio::Op;

    /// Splits a BIO at sector 8 into one part for each status, and takes them back in that order.
    fn split(table: &mut SplitTable, ends: &[(Status, u32)]) -> (Status, u32) {
        let id = table.begin(Bio::new(Op::WriteZeroes, Sector(8), 4 * ends.len() as u32));
        let parts: Vec<_> =
            (0..ends.len() as u64).map(|n| table.part(id, Sector(8 + 4 * n), 4)).collect();
        table.end(id);
        let mut whole = None;
        for (mut part, &(status, late)) in parts.into_iter().zip(ends) {
            assert!(whole.is_none(), "the parent waits for all parts");
            (part.status, part.late, part.in_flight) = (status, late, false);
            whole = table.part_done(part, |whole, part| whole | part);
        }
        let whole = whole.expect("all parts are back");
        assert_eq!((whole.sector, whole.len_sectors), (Sector(8), 4 * ends.len() as u32));
        (whole.status, whole.late)
    }

    /// W4. The status of the parent is the cause, whichever part comes back first.
    #[test]
    fn a_parent_fails_with_the_cause_and_not_with_a_consequence() {
        let (ok, io, behind) = (Status::Ok, Status::Io, Status::AbortedBehind);
        let mut table = SplitTable::default();
        for (ends, want) in [
            (vec![ok, ok], ok),
            (vec![ok, io, behind], io),
            (vec![behind, io, ok], io),
            (vec![io, Status::Medium], io),
            (vec![behind, ok], behind),
        ] {
            let ends: Vec<_> = ends.into_iter().map(|status| (status, 0)).collect();
            assert_eq!(split(&mut table, &ends).0, want);
        }
        assert_eq!((table.parents.len(), table.free.len()), (1, 1), "its place is used again");
    }

    /// A parent is late while one of its parts is, also if that part succeeded.
    #[test]
    fn a_parent_carries_the_tickets_of_all_its_parts() {
        let mut table = SplitTable::default();
        let ends = [(Status::Timeout, 1), (Status::Ok, 0), (Status::Ok, 4)];
        assert_eq!(split(&mut table, &ends), (Status::Timeout, 5));
        assert_eq!(split(&mut table, &[(Status::Ok, 0)]), (Status::Ok, 0), "the next one is not");
    }
}
