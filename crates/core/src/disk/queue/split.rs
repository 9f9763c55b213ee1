//! Splitting: a BIO that spans zones, or is longer than the device takes, becomes several parts.
//!
//! A plugged write is admitted as a whole or not at all. Its parts are BIOs of their own, each with its part of the
//! memory. The parts in one zone are parked one behind the other under the zone's lock, so that nothing comes between
//! them (W6). Parts in different zones finish in any order (W4). If a part fails, the BIO fails with that part's
//! status, and what the other parts wrote stays written.

use crate::bio::{Bio, Bios, Flags, Status};
use crate::disk::queue_state::QueueState;
use crate::disk::shared::{MAX_SHARDS, Shared};
use crate::disk::snapshot::Layout;
use crate::plug::{Admit, Kind, PlugChange, PlugPlace, Shard};
use crate::sync::{MutexGuard, lock};
use crate::unit::{Sector, ZoneNo};

/// Most parts of one BIO, not counting cuts at zone ends. A longer BIO is refused as *invalid field*.
const MAX_PARTS: u32 = 1 << 16;

/// The part of a BIO that is in one zone.
#[derive(Debug, Clone, Copy)]
struct Piece {
    zone: ZoneNo,
    sector: Sector,
    len_sectors: u32,
}

/// A piece of a write that its zone has refused.
#[derive(Debug, Clone, Copy)]
struct RefusedPiece {
    zone: ZoneNo,
    /// Where the piece begins in its zone.
    offset: u32,
    status: Status,
}

/// The parts of a range, one for each zone.
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

impl QueueState {
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
            // With `NOWAIT`, either all of it can be sent now or it fails (W11).
            let parts: u32 = pieces(layout, &bio).map(|p| p.len_sectors.div_ceil(max)).sum();
            if parts as usize > self.idle_tags() {
                return self.reject(bio, Status::WouldBlock);
            }
        }
        let parent = self.splits.begin(bio);
        self.each_part(layout, parent, max, |state, part| {
            state.submit_unplugged(layout, part);
        });
        self.splits.end(parent);
    }

    /// Splits a write on a disk with plugs. Locks all zones that it touches together, so that it is admitted or
    /// refused as a whole.
    #[cold]
    pub(crate) fn split_write(&mut self, shared: &Shared, layout: &Layout, bio: Box<Bio>) {
        let max = layout.max_of(bio.op);
        if max == 0 {
            // Refused before the write pointer moves (W26).
            return self.reject(bio, Status::NotSupported);
        }
        if bio.len_sectors / max > MAX_PARTS {
            return self.reject(bio, Status::InvalidField);
        }
        let mut wanted = 0u64;
        for p in pieces(layout, &bio) {
            wanted |= 1 << shared.place(p.zone).shard;
        }
        // In ascending order, as all code that locks several shards does.
        let mut guards: [Option<_>; MAX_SHARDS] = [const { None }; MAX_SHARDS];
        for (s, shard) in shared.shards.iter().enumerate() {
            if wanted >> s & 1 != 0 {
                guards[s] = Some(lock(&shard.0));
            }
        }
        let mut refused = None;
        let (first, _) = layout.geometry.zone_of(bio.sector);
        let mut zones = first.0..first.0;
        for p in pieces(layout, &bio) {
            let PlugPlace { shard: s, index: i } = shared.place(p.zone);
            let shard = guards[s].as_mut().expect("the shards of all pieces are locked");
            shard.lock_plug(i);
            zones.end += 1;
            if layout.geometry.is_conventional(p.zone) {
                continue;
            }
            let (_, offset) = layout.geometry.zone_of(p.sector);
            if let Err(status) = shard.plugs[i].check(offset, p.len_sectors) {
                refused = Some(RefusedPiece { zone: p.zone, offset, status });
                break;
            }
        }
        let release = |mut guards: [Option<MutexGuard<'_, Shard>>; MAX_SHARDS]| {
            for zone in zones {
                let PlugPlace { shard: s, index: i } = shared.place(ZoneNo(zone));
                if let Some(shard) = &mut guards[s] {
                    shard.unlock_plug(i);
                }
            }
        };
        if let Some(piece) = refused {
            let RefusedPiece { zone, offset, status } = piece;
            let PlugPlace { shard: s, index: i } = shared.place(zone);
            let shard = guards[s].as_mut().expect("the shards of all pieces are locked");
            let len = bio.len_sectors;
            let back = self.hold_split(shared, layout, shard, i, piece, bio);
            if back.is_some() {
                shard.rejected(i, status);
            }
            release(guards);
            return match back {
                Some(bio) => self.reject(bio, status),
                None => Self::trace_held(layout, zone, offset, len),
            };
        }
        let parent = self.splits.begin(bio);
        let mut followed = Vec::new();
        for piece in pieces(layout, self.splits.whole(parent)).collect::<Vec<_>>() {
            if layout.geometry.is_conventional(piece.zone) {
                self.each_part_of(parent, piece, max, |state, part| state.backlog.push_bio(part));
                continue;
            }
            let PlugPlace { shard: s, index: i } = shared.place(piece.zone);
            let shard = guards[s].as_mut().expect("the shards of all pieces are locked");
            let ((), early) = self.change(shared, shard, i, |state, plug| {
                state.each_part_of(parent, piece, max, |state, part| {
                    state.park_part(layout, plug, piece.zone, part);
                });
            });
            followed.push((piece.zone, early));
        }
        release(guards);
        #[cfg(feature = "probes")]
        for p in pieces(layout, self.splits.whole(parent))
            .filter(|p| !layout.geometry.is_conventional(p.zone))
        {
            crate::disk::trace::add_to_plug(p.zone.0, p.sector.0, p.len_sectors, 1);
        }
        for (zone, early) in followed {
            Self::trace_admitted(layout, zone, early);
        }
        self.splits.end(parent);
        self.finish_early(shared, layout);
    }

    /// Admits and parks a part of a write whose zones are locked and take all of it.
    fn park_part(
        &mut self,
        layout: &Layout,
        plug: &mut PlugChange<'_>,
        zone: ZoneNo,
        part: Box<Bio>,
    ) {
        let (_, offset) = layout.geometry.zone_of(part.sector);
        let (kind, len) = (Kind::of(&part), part.len_sectors);
        let admit = plug.admit(offset, len);
        if let Admit::Reject(status) = admit {
            debug_assert!(false, "checked before, under the same locks");
            return self.reject(part, status);
        }
        self.run.push(part);
        self.mailbox.counts.0.parked(1);
        let i = plug.index();
        plug.park(i, &mut self.run, len, self.id, kind);
        if admit == Admit::Issue {
            plug.plugs[i].get_in_line();
            self.backlog.push_zone(zone);
        }
    }

    /// Holds a write that is longer than a command and whose `piece` was refused, if it comes early. Its parts are
    /// held together. A write that spans zones is not held: its other parts would have to wait, too. Returns a write
    /// that is not held.
    fn hold_split(
        &mut self,
        shared: &Shared,
        layout: &Layout,
        shard: &mut Shard,
        i: usize,
        piece: RefusedPiece,
        bio: Box<Bio>,
    ) -> Option<Box<Bio>> {
        let RefusedPiece { zone, offset, status } = piece;
        let len = u64::from(offset) + u64::from(bio.len_sectors);
        let one_zone = len <= u64::from(layout.geometry.zone_sectors())
            && layout.geometry.zone_of(bio.sector).0 == zone;
        if status != Status::NotAtWritePointer || !one_zone {
            return Some(bio);
        }
        let plug = &mut shard.plugs[i];
        let Some((mut window, write)) = self.may_hold(shared, layout, plug, &bio, zone, offset)
        else {
            return Some(bio);
        };
        let max = layout.max_of(bio.op);
        let parent = self.splits.begin(bio);
        let mut parts = Vec::new();
        self.each_part(layout, parent, max, |_, part| parts.push(part));
        self.splits.end(parent);
        self.hold(&mut window, plug, write, parts);
        None
    }

    /// Makes the parts of `parent` in order. None is longer than `max` sectors or crosses a zone end.
    fn each_part(
        &mut self,
        layout: &Layout,
        parent: u32,
        max: u32,
        mut send: impl FnMut(&mut QueueState, Box<Bio>),
    ) {
        let pieces: Vec<_> = pieces(layout, self.splits.whole(parent)).collect();
        for piece in pieces {
            self.each_part_of(parent, piece, max, &mut send);
        }
    }

    /// Makes the parts of `parent` that are in one piece, in order.
    fn each_part_of(
        &mut self,
        parent: u32,
        piece: Piece,
        max: u32,
        mut send: impl FnMut(&mut QueueState, Box<Bio>),
    ) {
        let mut done = 0;
        while done < piece.len_sectors {
            let len = max.min(piece.len_sectors - done);
            let part = self.splits.part(parent, piece.sector.plus(u64::from(done)), len);
            send(self, part);
            done += len;
        }
    }

    /// Handles a part that has come back. After the last part, the parent comes back too.
    #[cold]
    pub(crate) fn part_done(&mut self, part: Box<Bio>, done: &mut Bios) {
        let late_commands = &self.late_commands;
        let back = self.splits.part_done(part, |whole, part| late_commands.join(whole, part));
        let Some((mut whole, missing)) = back else { return };
        if let Some(buf) = missing.and_then(|parts| late_commands.expect(parts)) {
            whole.set_buf(buf);
        }
        done.push_back(whole);
    }
}
