//! The split BIOs of one queue. Each waits here until all of its parts are back.
//!
//! A part is a BIO of its own that names its parent. The table knows neither zones nor devices: `queue/split.rs` cuts
//! the range and sends the parts.

use crate::bio::{Bio, BioPool, NO_PARENT, Status};
use crate::unit::Sector;
use zoneplug_buf::{IoBuf, Parts};

/// A BIO whose parts have not all come back.
#[derive(Debug)]
struct Parent {
    bio: Option<Box<Bio>>,
    /// Its memory, which is divided among the parts.
    memory: Option<Parts>,
    /// How many parts are not back, plus one until all parts have been made.
    parts: u32,
    status: Status,
    /// The ticket of the parts that are late.
    late: u32,
    /// Whether parts have come back without their memory, which comes later.
    was_late: bool,
}

/// The split BIOs of one queue.
#[derive(Debug, Default)]
pub(crate) struct SplitTable {
    parents: Vec<Parent>,
    free: Vec<u32>,
    /// BIOs to make parts of.
    spare: BioPool,
}

impl SplitTable {
    /// Takes a BIO that is to be split, and returns the number by which its parts name it.
    pub(crate) fn begin(&mut self, mut bio: Box<Bio>) -> u32 {
        let memory = bio.op.has_data().then(|| Parts::new(bio.take_buf()));
        let (bio, status) = (Some(bio), Status::Ok);
        let parent = Parent { bio, memory, parts: 1, status, late: 0, was_late: false };
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

    /// Returns the BIO that is being split.
    pub(crate) fn whole(&self, id: u32) -> &Bio {
        self.parents[id as usize].bio.as_ref().expect("the parent is being split")
    }

    /// Makes the part of `len` sectors at `sector`, where the last part ended.
    pub(crate) fn part(&mut self, id: u32, sector: Sector, len: u32) -> Box<Bio> {
        let mut part = self.spare.get();
        let buf = match &mut self.parents[id as usize].memory {
            Some(memory) => memory.take_front(len << 9),
            None => IoBuf::empty(),
        };
        let whole = self.whole(id);
        part.set(whole.op, sector, len, buf);
        part.flags = whole.flags;
        part.queue = whole.queue;
        (part.parent, part.late) = (id, 0);
        part.in_flight = true;
        self.parents[id as usize].parts += 1;
        part
    }

    /// Notes that all parts have been made.
    pub(crate) fn end(&mut self, id: u32) {
        let p = &mut self.parents[id as usize];
        p.parts -= 1;
        debug_assert!(p.parts > 0, "a part that is on its way has not been polled for");
    }

    /// Takes back a part. Returns the parent if that was the last part. The parent fails if a part has failed. `join`
    /// returns the ticket that is open while one of two tickets is.
    ///
    /// The parent comes with its memory. If parts of the memory are late, it comes with the pieces instead. If a
    /// device has kept a part, none of the memory comes back. If a faulty device has exchanged BIOs of two queues,
    /// the parent is not in this table, and the part is lost.
    #[cold]
    pub(crate) fn part_done(
        &mut self,
        mut part: Box<Bio>,
        join: impl FnOnce(u32, u32) -> u32,
    ) -> Option<(Box<Bio>, Option<Parts>)> {
        let id = part.parent;
        let known = |p: &&mut Parent| p.bio.as_ref().is_some_and(|whole| whole.queue == part.queue);
        let Some(p) = self.parents.get_mut(id as usize).filter(known) else {
            part.in_flight = true;
            return None;
        };
        // The parent gets the cause and not a consequence: parts behind a failed part say *aborted behind*.
        if !part.status.is_ok() && (p.status.is_ok() || p.status == Status::AbortedBehind) {
            p.status = part.status;
        }
        if part.late != 0 {
            // Whatever its status, a late part's memory is still in use.
            p.late = join(p.late, part.late);
            p.was_late = true;
        }
        if let Some(memory) = &mut p.memory {
            // Memory that is not the parent's is lost to its lender.
            let _ = memory.put_back(part.take_buf());
        }
        p.parts -= 1;
        let mut whole = None;
        if p.parts == 0 {
            let mut bio = p.bio.take().expect("a parent completes once");
            (bio.status, bio.late) = (p.status, p.late);
            bio.in_flight = false;
            let mut missing = None;
            match p.memory.take().map(Parts::join) {
                Some(Ok(buf)) => bio.set_buf(buf),
                Some(Err(parts)) => missing = Some(parts).filter(|_| p.was_late),
                None => {}
            }
            self.free.push(id);
            whole = Some((bio, missing));
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
        let (whole, _) = whole.expect("all parts are back");
        assert_eq!((whole.sector, whole.len_sectors), (Sector(8), 4 * ends.len() as u32));
        (whole.status, whole.late)
    }

    /// The status of the parent is the cause, whichever part comes back first (W4).
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

    /// The memory is back with the last part, and only if it came with the parts.
    #[test]
    fn a_parent_has_its_memory_again_when_all_parts_have_theirs() {
        // The first of two parts keeps its memory, loses it, or is late.
        for (kept, late) in [(true, 0), (false, 0), (false, 1)] {
            let mut table = SplitTable::default();
            let memory = IoBuf::leaked(8 << 9);
            let range = memory.range();
            let id = table.begin(Bio::with_buf(Op::Read, Sector(0), 8, memory));
            let (mut a, mut b) = (table.part(id, Sector(0), 3), table.part(id, Sector(3), 5));
            table.end(id);
            assert_eq!((a.data().len(), b.data().len()), (3 << 9, 5 << 9));
            let lost = if kept { IoBuf::empty() } else { a.take_buf() };
            a.late = late;
            (a.in_flight, b.in_flight) = (false, false);
            assert!(table.part_done(b, |_, _| 0).is_none());
            let (whole, missing) = table.part_done(a, |_, late| late).expect("both are back");
            assert_eq!(whole.data().range() == range, kept);
            assert_eq!(missing.is_some(), late != 0);
            if let Some(mut parts) = missing {
                parts.put_back(lost).unwrap();
                assert_eq!(parts.join().unwrap().range(), range);
            }
        }
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
