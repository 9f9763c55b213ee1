//! Searches for appends that are on the disk and that no client was told of. `replay.rs` creates the search from the
//! journal of a dead server, and queries it for each append, as long as resent appends may be left.
//!
//! A resent append cannot be distinguished from a new one, and need not be: space that belongs to no client and has
//! the data of an append can serve that append. An append gets such space once and completely, after its bytes were
//! read and compared, or not at all.
//!
//! Appends may begin anywhere in such space; only its edges are known ([`Space`]).
//!
//! A zone is read once, at its first append, and kept as a hash for each block. Later requests read only the space
//! that they are given. The hashes are dropped when the zone has had as many appends as the dead server can have had
//! in flight, when none of its space is left, and when any other request changes the zone. For all other zones the
//! search costs one load.

use super::compare::{flushed, is_on};
use crate::recovery::space::read_space;
use crate::runtime::hosted::HostedDisk;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use zoneplug_buf::AlignedBuf;
use zoneplug_core::poison::lock;
use zoneplug_core::zone::Geometry;
use zoneplug_core::{Sector, ZoneNo};
use zoneplug_recovery::{Space, block_hashes};

/// The remaining space of a zone.
#[derive(Debug)]
struct Zone {
    pieces: Vec<Range<u32>>,
    /// The pieces with a hash for each block, after the zone was read.
    space: Option<Space>,
}

/// The search for all zones of a device.
#[derive(Debug)]
pub(in crate::ublk) struct Unacked {
    geometry: Geometry,
    block_sectors: u32,
    /// For each zone: the number of appends for which it is still searched; 0: it is not.
    left: Vec<AtomicU32>,
    /// Each zone has a lock, which is held while the zone is read. `None`: the zone was forgotten.
    zones: Mutex<BTreeMap<u32, Arc<Mutex<Option<Zone>>>>>,
}

impl Unacked {
    /// `pieces`: the space that no client was told of, as offsets in zones. `most`: the number of requests that the
    /// dead server can have had in flight.
    pub(in crate::ublk) fn new(
        disk: &HostedDisk,
        pieces: Vec<(ZoneNo, Vec<Range<u32>>)>,
        most: u32,
    ) -> Unacked {
        let (geometry, limits) = (disk.disk().geometry(), disk.disk().limits());
        let left = if pieces.is_empty() { 0 } else { geometry.nr_zones() };
        let left: Vec<AtomicU32> = (0..left).map(|_| AtomicU32::new(0)).collect();
        // No more than `bound` can have been in flight; space below that is older.
        let longest = limits.visible_append_sectors(geometry.zone_sectors());
        let bound = u64::from(most) * u64::from(longest);
        let mut zones = BTreeMap::new();
        for (zone, mut pieces) in pieces {
            let mut room = bound;
            for piece in pieces.iter_mut().rev() {
                let len = u64::from(piece.end - piece.start).min(room);
                piece.start = piece.end - len as u32;
                room -= len;
            }
            left[zone.0 as usize].store(most, Ordering::Relaxed);
            zones.insert(zone.0, Arc::new(Mutex::new(Some(Zone { pieces, space: None }))));
        }
        let block_sectors = limits.write_granularity_sectors.max(limits.logical_block_sectors);
        Unacked { geometry, block_sectors: block_sectors.max(1), left, zones: Mutex::new(zones) }
    }

    /// Finds `len` sectors of `buf` in `zone` and takes the space. If `durable`, makes it durable first.
    pub(in crate::ublk) fn take(
        &self,
        zone: ZoneNo,
        buf: &AlignedBuf,
        len: u32,
        durable: bool,
        disk: &HostedDisk,
    ) -> Option<Sector> {
        let left = self.left.get(zone.0 as usize)?;
        if left.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let place = lock(&self.zones).get(&zone.0)?.clone();
        let mut place = lock(&place);
        let z = place.as_mut()?;
        let start = self.geometry.zone_start(zone);
        let found = self.look(start, z, buf, len, durable, disk);
        let used_up = z.space.as_ref().is_none_or(Space::is_empty);
        // 0 if a concurrent `forget` has cleared it.
        let count = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1));
        if used_up || !matches!(count, Ok(2..)) {
            *place = None;
            self.remove(zone);
        }
        found
    }

    /// Ends the search of `zone`, because another request changes it. After this returns, none of its space is taken.
    pub(in crate::ublk) fn forget(&self, zone: ZoneNo) {
        if self.left.get(zone.0 as usize).is_some_and(|n| n.load(Ordering::Relaxed) > 0)
            && let Some(place) = self.remove(zone)
        {
            *lock(&place) = None;
        }
    }

    fn remove(&self, zone: ZoneNo) -> Option<Arc<Mutex<Option<Zone>>>> {
        self.left[zone.0 as usize].store(0, Ordering::Relaxed);
        lock(&self.zones).remove(&zone.0)
    }

    fn look(
        &self,
        start: Sector,
        z: &mut Zone,
        buf: &AlignedBuf,
        len: u32,
        durable: bool,
        disk: &HostedDisk,
    ) -> Option<Sector> {
        if len == 0 || !len.is_multiple_of(self.block_sectors) || len << 9 > buf.len() {
            return None;
        }
        let space = z.space.get_or_insert_with(|| {
            // A zone that cannot be read has nothing to compare.
            let pieces = std::mem::take(&mut z.pieces);
            self.read(start, &pieces, disk).unwrap_or(Space::new(self.block_sectors))
        });
        let wanted = block_hashes(buf, len, self.block_sectors);
        for offset in space.places(&wanted) {
            let at = start.plus(u64::from(offset));
            if is_on(disk, at, len, Some(buf)) {
                if durable && !flushed(disk) {
                    return None;
                }
                space.cut(offset, wanted.len());
                return Some(at);
            }
        }
        None
    }

    fn read(&self, start: Sector, pieces: &[Range<u32>], disk: &HostedDisk) -> Option<Space> {
        read_space(start, pieces, self.block_sectors, disk)
    }
}

#[cfg(test)]
// clippy takes a list of one range for a mistake, but these lists may have more.
#[allow(clippy::single_range_in_vec_init)]
mod tests {
    use super::*;
    use crate::BlockingDisk;

    const ZONE: ZoneNo = ZoneNo(1);
    const START: u64 = 0x800;

    /// A disk with zones of 1M. The second zone has 4K blocks of these bytes.
    fn disk(spec: &str, blocks: &[u8]) -> HostedDisk {
        let disk = HostedDisk::open_spec(&format!("mem,zones=4,zone-size=1M{spec}")).unwrap();
        let mut io = BlockingDisk::new(&disk).unwrap();
        io.append(Sector(START), data(blocks)).unwrap();
        disk
    }

    fn data(blocks: &[u8]) -> AlignedBuf {
        let mut buf = AlignedBuf::zeroed(blocks.len() as u32 * 4096);
        for (i, byte) in (0..).zip(blocks) {
            buf.write(i * 4096, &[*byte; 4096]);
        }
        buf
    }

    /// A search in which these blocks belong to no client.
    fn unacked(disk: &HostedDisk, blocks: &[Range<u32>]) -> Unacked {
        let pieces = blocks.iter().map(|b| b.start * 8..b.end * 8).collect();
        Unacked::new(disk, vec![(ZONE, pieces)], 100)
    }

    /// The block at which an append of this content is found.
    fn take(unacked: &Unacked, disk: &HostedDisk, blocks: &[u8]) -> Option<u64> {
        let (buf, len) = (data(blocks), blocks.len() as u32 * 8);
        unacked.take(ZONE, &buf, len, false, disk).map(|s| (s.0 - START) / 8)
    }

    #[test]
    fn of_the_same_data_twice_the_copy_is_given_that_nobody_was_told_of() {
        for spec in ["", ",append=emulated", ",append=native"] {
            let disk = disk(spec, &[1, 1, 2]);
            let unacked = unacked(&disk, &[1..2]);
            assert_eq!(take(&unacked, &disk, &[2]), None, "somebody was told of it");
            assert_eq!(take(&unacked, &disk, &[1]), Some(1));
            assert_eq!(take(&unacked, &disk, &[1]), None, "none is left");
            assert!(lock(&unacked.zones).is_empty());
        }
    }

    #[test]
    fn an_append_is_given_all_of_its_sectors_or_none() {
        let disk = disk("", &[1, 2, 3, 4, 5, 6]);
        let unacked = unacked(&disk, &[0..2, 3..6]);
        assert_eq!(take(&unacked, &disk, &[1, 2, 3]), None, "a part is another's");
        assert_eq!(take(&unacked, &disk, &[2, 3]), None);
        assert_eq!(take(&unacked, &disk, &[6, 7]), None, "past what is written");
        assert_eq!(take(&unacked, &disk, &[4, 6]), None, "other data");
        assert_eq!(take(&unacked, &disk, &[5]), Some(4), "also out of the middle");
        assert_eq!(take(&unacked, &disk, &[4, 5, 6]), None);
        assert_eq!(take(&unacked, &disk, &[6]), Some(5));
        assert_eq!(take(&unacked, &disk, &[4]), Some(3));
        assert_eq!(take(&unacked, &disk, &[1, 2]), Some(0));
    }

    #[test]
    fn what_fits_best_comes_first() {
        let disk = disk("", &[1, 1, 1, 9, 1, 1, 9, 1]);
        let unacked = unacked(&disk, &[0..3, 4..6, 7..8]);
        assert_eq!(take(&unacked, &disk, &[1]), Some(7));
        assert_eq!(take(&unacked, &disk, &[1, 1]), Some(4));
        assert_eq!(take(&unacked, &disk, &[1]), Some(0));
        assert_eq!(take(&unacked, &disk, &[1, 1]), Some(1));
    }

    #[test]
    fn a_full_zone_is_no_other() {
        let disk = HostedDisk::open_spec("mem,zones=4,zone-size=1M").unwrap();
        let mut io = BlockingDisk::new(&disk).unwrap();
        let blocks: Vec<u8> = (0..=255).collect();
        io.append(Sector(START), data(&blocks)).unwrap();
        let unacked = unacked(&disk, &[200..256]);
        assert_eq!(take(&unacked, &disk, &[254, 255]), Some(254));
        assert_eq!(take(&unacked, &disk, &[0]), None);
    }

    #[test]
    fn after_as_many_appends_as_can_have_been_in_flight_nothing_is_looked_for() {
        let disk = disk("", &[1, 2, 3]);
        let unacked = Unacked::new(&disk, vec![(ZONE, vec![0..24])], 3);
        assert_eq!(take(&unacked, &disk, &[3]), Some(2));
        assert_eq!(take(&unacked, &disk, &[7]), None);
        assert_eq!(take(&unacked, &disk, &[2]), Some(1), "the last");
        assert_eq!(take(&unacked, &disk, &[1]), None);
        assert!(lock(&unacked.zones).is_empty());
    }

    #[test]
    fn what_was_left_over_before_is_not_looked_at() {
        let disk = disk(",append-max=4K", &[1]);
        for block in [2, 3] {
            BlockingDisk::new(&disk).unwrap().append(Sector(START), data(&[block])).unwrap();
        }
        let unacked = Unacked::new(&disk, vec![(ZONE, vec![0..8, 16..24])], 2);
        assert_eq!(take(&unacked, &disk, &[1]), Some(0));
        let unacked = Unacked::new(&disk, vec![(ZONE, vec![0..8, 16..24])], 1);
        assert_eq!(take(&unacked, &disk, &[1]), None);
        assert_eq!(take(&unacked, &disk, &[3]), None, "one append it was");
    }

    #[test]
    fn after_anything_else_nothing_is_looked_for() {
        let disk = disk("", &[1, 2]);
        let unacked = unacked(&disk, &[0..2]);
        unacked.forget(ZoneNo(0));
        assert_eq!(take(&unacked, &disk, &[1]), Some(0));
        unacked.forget(ZONE);
        assert_eq!(take(&unacked, &disk, &[2]), None);
    }

    #[test]
    fn other_zones_have_none() {
        let disk = disk("", &[1]);
        for unacked in [unacked(&disk, &[0..1]), Unacked::new(&disk, Vec::new(), 9)] {
            for zone in [0, 2, 4, u32::MAX] {
                assert_eq!(unacked.take(ZoneNo(zone), &data(&[1]), 8, false, &disk), None);
                unacked.forget(ZoneNo(zone));
            }
        }
    }

    #[test]
    fn what_is_to_be_durable_is_flushed_or_not_given() {
        let disk = disk(",write-cache=1,fault=flush/io", &[1, 2]);
        let unacked = unacked(&disk, &[0..2]);
        assert_eq!(unacked.take(ZONE, &data(&[1]), 8, true, &disk), None, "the flush fails");
        assert_eq!(take(&unacked, &disk, &[1]), Some(0));
    }

    #[test]
    fn a_zone_that_cannot_be_read_has_nothing() {
        let disk = disk(",fault=read/io", &[1, 2]);
        let unacked = unacked(&disk, &[0..2]);
        assert_eq!(take(&unacked, &disk, &[1]), None);
        assert!(lock(&unacked.zones).is_empty());
    }
}
