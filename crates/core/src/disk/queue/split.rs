//! Splitting: a BIO that spans zones, or is longer than the device takes.
//!
//! It is admitted whole or not at all. Its parts are BIOs of their own that share its buffer; in a zone they are
//! parked one behind the other under the zone's lock, so that nothing comes between them (W6). Parts in
//! different zones finish in any order (W4). If a part fails, the BIO fails with that part's status, and what the
//! other parts wrote stays written.

use crate::bio::{Bio, Bios, Flags, NO_PARENT, Status};
use crate::disk::queue::{Lane, Ready};
use crate::disk::snapshot::Layout;
use crate::disk::{MAX_SHARDS, Shared};
use crate::planted::{Bug, planted};
use crate::plug::{Admit, Kind};
use crate::sync::lock;
use crate::unit::{Sector, ZoneNo};
use zoneplug_buf::IoBuf;

/// Most parts of one BIO, but for those that zone ends make: a longer one is refused as an invalid field.
const MAX_PARTS: u32 = 1 << 16;

/// A BIO whose parts are on their way.
#[derive(Debug)]
pub(crate) struct Parent {
    bio: Option<Box<Bio>>,
    parts: u32,
    status: Status,
    /// The ticket of parts that are late.
    late: u32,
}

/// One zone's share of a BIO.
#[derive(Debug, Clone, Copy)]
struct Piece {
    zone: ZoneNo,
    sector: Sector,
    len_sectors: u32,
}

/// The shares of a range, zone by zone.
fn pieces(layout: &Layout, bio: &Bio) -> impl Iterator<Item = Piece> {
    let geometry = &layout.geometry;
    let zone_sectors = geometry.zone_sectors();
    let (mut sector, mut left) = (bio.sector, bio.len_sectors);
    std::iter::from_fn(move || {
        if left == 0 {
            return None;
        }
        let (zone, offset) = geometry.zone_of(sector);
        let piece = Piece { zone, sector, len_sectors: left.min(zone_sectors - offset) };
        sector = sector.plus(u64::from(piece.len_sectors));
        left -= piece.len_sectors;
        Some(piece)
    })
}

impl Lane {
    /// Splits a BIO that no plug orders: a read, or any write of a disk without plugs.
    #[cold]
    pub(crate) fn split_unordered(&mut self, layout: &Layout, bio: Box<Bio>) {
        let max = layout.max_of(bio.op);
        if max == 0 {
            return self.reject(bio, Status::NotSupported);
        }
        if bio.len_sectors / max > MAX_PARTS {
            return self.reject(bio, Status::InvalidField);
        }
        if bio.flags.contains(Flags::NOWAIT) {
            // W11: all of it goes now, or nothing.
            let parts: u32 = pieces(layout, &bio).map(|p| p.len_sectors.div_ceil(max)).sum();
            if parts as usize > self.idle_tags() {
                return self.reject(bio, Status::WouldBlock);
            }
        }
        let parent = self.begin_parent(bio);
        self.each_part(layout, parent, max, |lane, _, part| lane.pass(layout, part));
        self.end_parent(parent);
    }

    /// Splits a write of a disk with plugs. All zones that it touches are locked together, so that it is admitted
    /// whole or refused whole.
    #[cold]
    pub(crate) fn split_write(&mut self, shared: &Shared, layout: &Layout, bio: Box<Bio>) {
        let max = layout.max_of(bio.op);
        if max == 0 {
            // W26: said before the write pointer moves.
            return self.reject(bio, Status::NotSupported);
        }
        if bio.len_sectors / max > MAX_PARTS {
            return self.reject(bio, Status::InvalidField);
        }
        let mut wanted = 0u64;
        for p in pieces(layout, &bio) {
            wanted |= 1 << shared.place(p.zone).0;
        }
        // In ascending order, as everybody who takes two.
        let mut guards: [Option<_>; MAX_SHARDS] = [const { None }; MAX_SHARDS];
        let nr = shared.shards.len();
        for n in 0..nr {
            let down = planted(Bug::ShardsInAnyOrder) && self.id & 1 != 0;
            let s = if down { nr - 1 - n } else { n };
            if wanted >> s & 1 != 0 {
                guards[s] = Some(lock(&shared.shards[s].0));
            }
        }
        let mut refusal = None;
        for p in pieces(layout, &bio) {
            let (s, i) = shared.place(p.zone);
            let shard = guards[s].as_mut().expect("the shards of all pieces are locked");
            if layout.geometry.is_conventional(p.zone) {
                continue;
            }
            let (_, offset) = layout.geometry.zone_of(p.sector);
            let later = planted(Bug::SplitInHalves) && p.sector != bio.sector;
            if let Err(status) = shard.plugs[i].check(offset, p.len_sectors)
                && !later
            {
                refusal = Some(shard.rejected(i, status));
                break;
            }
        }
        if let Some(status) = refusal {
            drop(guards);
            return self.reject(bio, status);
        }
        let parent = self.begin_parent(bio);
        let max = if planted(Bug::PartsPastLimit) { u32::MAX } else { max };
        self.each_part(layout, parent, max, |lane, zone, part| {
            if layout.geometry.is_conventional(zone) || planted(Bug::PartsSeparated) {
                return lane.ready.push_back(Ready::Bio(part));
            }
            let (s, i) = shared.place(zone);
            let shard = guards[s].as_mut().expect("the shards of all pieces are locked");
            let (_, offset) = layout.geometry.zone_of(part.sector);
            let admit = shard.plugs[i].admit(offset, part.len_sectors);
            if let Admit::Reject(status) = admit {
                debug_assert!(planted(Bug::SplitInHalves), "checked above, under the same locks");
                return lane.reject(part, status);
            }
            let (kind, len) = (Kind::of(&part), part.len_sectors);
            lane.run.push(part);
            lane.mailbox.counts.0.parked(1);
            shard.park(i, &mut lane.run, len, lane.id, kind);
            if admit == Admit::Issue {
                shard.plugs[i].get_in_line();
                lane.ready.push_back(Ready::Zone(zone));
            }
        });
        drop(guards);
        #[cfg(feature = "trace")]
        if let Some(whole) = &self.parents[parent as usize].bio {
            for p in pieces(layout, whole).filter(|p| !layout.geometry.is_conventional(p.zone)) {
                let (zone, sector, count) = (p.zone.0, p.sector.0, p.len_sectors);
                crate::disk::trace::trace!(
                    "add-to-plug",
                    zone = zone,
                    sector = sector,
                    count = count,
                    bios = 1
                );
            }
        }
        self.end_parent(parent);
        if !layout.special {
            self.send_ready(shared, layout);
        }
    }

    fn begin_parent(&mut self, bio: Box<Bio>) -> u32 {
        // One more than there are parts, until all have been sent.
        let parent = Parent { bio: Some(bio), parts: 1, status: Status::Ok, late: 0 };
        match self.free_parents.pop() {
            Some(i) => {
                self.parents[i as usize] = parent;
                i
            }
            None => {
                self.parents.push(parent);
                self.parents.len() as u32 - 1
            }
        }
    }

    /// Makes the parts of `parent`, none longer than `max` sectors or crossing a zone, in order.
    fn each_part(
        &mut self,
        layout: &Layout,
        parent: u32,
        max: u32,
        mut send: impl FnMut(&mut Lane, ZoneNo, Box<Bio>),
    ) {
        let whole = self.parents[parent as usize].bio.as_ref().expect("the parent is being split");
        let (op, flags, queue, buf, start) =
            (whole.op, whole.flags, whole.queue, *whole.data(), whole.sector);
        for piece in pieces(layout, whole).collect::<Vec<_>>() {
            let mut done = 0;
            while done < piece.len_sectors {
                let len = max.min(piece.len_sectors - done);
                let sector = piece.sector.plus(u64::from(done));
                let part_buf = if op.has_data() {
                    let skip = if planted(Bug::PartsShareBuffer) { 0 } else { sector.0 - start.0 };
                    buf.slice((skip << 9) as u32, len << 9)
                } else {
                    IoBuf::empty()
                };
                let mut part = self.spare.get();
                part.set(op, sector, len, part_buf);
                part.flags = flags;
                part.queue = queue;
                (part.parent, part.late) = (parent, 0);
                part.in_flight = true;
                self.parents[parent as usize].parts += 1;
                send(self, piece.zone, part);
                done += len;
            }
        }
    }

    /// All parts are on their way.
    fn end_parent(&mut self, parent: u32) {
        let p = &mut self.parents[parent as usize];
        p.parts -= 1;
        debug_assert!(p.parts > 0, "a part that is on its way has not been polled for");
    }

    /// A part has come back.
    #[cold]
    pub(crate) fn part_done(&mut self, mut part: Box<Bio>, done: &mut Bios) {
        let i = part.parent;
        let p = &mut self.parents[i as usize];
        // The cause rather than a consequence: those behind a failed part say *aborted behind*.
        if !part.status.is_ok() && (p.status.is_ok() || p.status == Status::AbortedBehind) {
            p.status = part.status;
        }
        if part.late != 0 {
            // Whatever the status: the memory of that part is in use.
            p.late = self.tickets.join(p.late, part.late);
        }
        p.parts -= 1;
        if p.parts == 0 || planted(Bug::ParentCompletesEarly) && p.bio.is_some() {
            let mut bio = p.bio.take().expect("a parent completes once");
            (bio.status, bio.late) = (p.status, p.late);
            bio.in_flight = false;
            self.free_parents.push(i);
            done.push_back(bio);
        }
        part.parent = NO_PARENT;
        self.spare.put(part);
    }
}
