//! The space in which appends may be that a dead server has not answered. It is read before the queues of the device begin, and
//! kept as a hash for each block. [`zoneplug_recovery`] searches it.

use crate::recovery::space::read_spaces;
use crate::runtime::hosted::HostedDisk;
use std::collections::BTreeMap;
use std::ops::Range;
use zoneplug_core::ZoneNo;
use zoneplug_recovery::Space;

/// Reads the newest part of these pieces of zones, as offsets: as much as `most` requests can have. That many the dead server
/// can have had in flight, and the space below is older. Waits for the disk.
pub(super) fn spaces(
    disk: &HostedDisk,
    mut pieces: Vec<(ZoneNo, Vec<Range<u32>>)>,
    most: u32,
) -> BTreeMap<u32, Space> {
    let longest =
        disk.disk().limits().visible_append_sectors(disk.disk().geometry().zone_sectors());
    for (_, pieces) in &mut pieces {
        let mut room = u64::from(most) * u64::from(longest);
        for piece in pieces.iter_mut().rev() {
            let len = u64::from(piece.end - piece.start).min(room);
            piece.start = piece.end - len as u32;
            room -= len;
        }
    }
    read_spaces(pieces, disk)
}

#[cfg(test)]
// clippy takes a list of one range for a mistake, but these lists may have more.
#[allow(clippy::single_range_in_vec_init)]
mod tests {
    use super::super::testing::{append_before, decide, request};
    use super::*;
    use crate::BlockingDisk;
    use crate::recovery::space::block_sectors;
    use crate::ublk::abi;
    use zoneplug_buf::AlignedBuf;
    use zoneplug_core::{Flags, Op, Sector, Status};
    use zoneplug_recovery::{DiskRecovery, FirstCommands, ResendStep};

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
    fn unacked(disk: &HostedDisk, blocks: &[Range<u32>]) -> DiskRecovery {
        let pieces = blocks.iter().map(|b| b.start * 8..b.end * 8).collect();
        recovery(disk, vec![(ZONE, pieces)], 100)
    }

    fn recovery(
        disk: &HostedDisk,
        pieces: Vec<(ZoneNo, Vec<Range<u32>>)>,
        appends: u32,
    ) -> DiskRecovery {
        let (spaces, block_sectors) = (spaces(disk, pieces, appends), block_sectors(disk));
        let first = FirstCommands { written: Vec::new(), spaces, block_sectors, appends };
        DiskRecovery::of_first_commands(disk.disk().geometry(), first)
    }

    /// Whether an append of the zone is looked for.
    fn is_looked_for(unacked: &DiskRecovery) -> bool {
        unacked.is_before_first(Op::ZoneAppend, Sector(START))
    }

    /// The block at which an append of this content is found.
    fn take(unacked: &DiskRecovery, disk: &HostedDisk, blocks: &[u8]) -> Option<u64> {
        let append = request(abi::OP_ZONE_APPEND, START, blocks.len() as u32 * 8);
        append_before(unacked, &append, &data(blocks), disk).map(|s| (s.0 - START) / 8)
    }

    #[test]
    fn of_the_same_data_twice_the_copy_is_given_that_nobody_was_told_of() {
        for spec in ["", ",append=emulated", ",append=native"] {
            let disk = disk(spec, &[1, 1, 2]);
            let unacked = unacked(&disk, &[1..2]);
            assert_eq!(take(&unacked, &disk, &[2]), None, "somebody was told of it");
            assert_eq!(take(&unacked, &disk, &[1]), Some(1));
            assert_eq!(take(&unacked, &disk, &[1]), None, "none is left");
            assert!(!is_looked_for(&unacked));
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
        let unacked = recovery(&disk, vec![(ZONE, vec![0..24])], 3);
        assert_eq!(take(&unacked, &disk, &[3]), Some(2));
        assert_eq!(take(&unacked, &disk, &[7]), None);
        assert_eq!(take(&unacked, &disk, &[2]), Some(1), "the last");
        assert_eq!(take(&unacked, &disk, &[1]), None);
        assert!(!is_looked_for(&unacked));
    }

    #[test]
    fn what_was_left_over_before_is_not_looked_at() {
        let disk = disk(",append-max=4K", &[1]);
        for block in [2, 3] {
            BlockingDisk::new(&disk).unwrap().append(Sector(START), data(&[block])).unwrap();
        }
        let unacked = recovery(&disk, vec![(ZONE, vec![0..8, 16..24])], 2);
        assert_eq!(take(&unacked, &disk, &[1]), Some(0));
        let unacked = recovery(&disk, vec![(ZONE, vec![0..8, 16..24])], 1);
        assert_eq!(take(&unacked, &disk, &[1]), None);
        assert_eq!(take(&unacked, &disk, &[3]), None, "one append it was");
    }

    #[test]
    fn after_anything_else_nothing_is_looked_for() {
        let disk = disk("", &[1, 2]);
        let unacked = unacked(&disk, &[0..2]);
        unacked.forget_zone(Sector(0));
        assert_eq!(take(&unacked, &disk, &[1]), Some(0));
        unacked.forget_zone(Sector(START));
        assert_eq!(take(&unacked, &disk, &[2]), None);
    }

    #[test]
    fn other_zones_have_none() {
        let disk = disk("", &[1]);
        for unacked in [unacked(&disk, &[0..1]), recovery(&disk, Vec::new(), 9)] {
            for zone in [0, 2, 4, u64::from(u32::MAX)] {
                let append = request(abi::OP_ZONE_APPEND, zone * START, 8);
                assert_eq!(append_before(&unacked, &append, &data(&[1]), &disk), None);
                unacked.forget_zone(Sector(zone * START));
            }
        }
    }

    /// The data is on the disk, so the append is not carried out again.
    #[test]
    fn what_is_to_be_durable_is_flushed_or_fails() {
        for (fault, step) in [
            ("", ResendStep::Done(Sector(START))),
            (",fault=flush/io", ResendStep::Failed(Status::Io)),
        ] {
            let disk = disk(&format!(",write-cache=1{fault}"), &[1, 2]);
            let unacked = unacked(&disk, &[0..2]);
            let mut append = request(abi::OP_ZONE_APPEND, START, 8);
            append.flags = Flags::FUA;
            assert_eq!(decide(&unacked, &append, Some(&data(&[1])), &disk), step, "{fault}");
        }
    }

    #[test]
    fn a_zone_that_cannot_be_read_has_nothing() {
        let disk = disk(",fault=read/io", &[1, 2]);
        let unacked = unacked(&disk, &[0..2]);
        assert_eq!(take(&unacked, &disk, &[1]), None);
        assert!(!is_looked_for(&unacked));
    }
}
