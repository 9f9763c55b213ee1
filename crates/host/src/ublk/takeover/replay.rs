//! Requests that the kernel sends again after a server has died: finds out what the dead server has done of each.
//!
//! The kernel sends every unanswered request again (`UBLK_F_USER_RECOVERY_REISSUE`); an I/O error for each would end
//! most file systems. But a write that reached the disk must not be written twice: it would fail at the write pointer
//! although its data is safe. So the server looks at the disk:
//!
//! * Linux has one write in flight in a zone, so the data between its start and the write pointer is of this write.
//!   It is read and compared; if it is equal, only the rest is written.
//! * If the data differs, the write is sent as it is, and the layer refuses it.
//! * Only the first write of each zone after the start can be such a write. Later ones are not compared.
//! * Reads, flushes, reports, resets, and writes to conventional zones can be repeated.
//! * An append that is on the disk, in space that no client was told of, is answered with its sector: `journal.rs`
//!   knows the space, `unacked.rs` compares. Otherwise it is appended again. The space of a first copy on the disk is
//!   lost until the zone is reset, and a zone without room refuses the second copy.
//! * A zone that got only appends has no such write, and a zone that got anything else has no such append. So no
//!   space is searched for both.
//! * Data that must be durable when it is answered (FUA) is flushed first.
//!
//! No request of the dead server is in flight here: its requests hold the device below, which this server can only
//! open exclusively (by a lock, or `O_EXCL`). A write that did land later would be above the write pointers that are
//! read here: it would not be found, and would be appended again.

use super::compare::{flushed, is_on};
use super::unacked::Unacked;
use crate::BlockingDisk;
use crate::recovery::journal::{FoundZone, Journal};
use crate::runtime::hosted::HostedDisk;
use crate::ublk::abi::DevInfo;
use crate::ublk::request::Request;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};
use zoneplug_buf::AlignedBuf;
use zoneplug_core::zone::{Condition, Geometry, ZoneInfo};
use zoneplug_core::{Error, ErrorKind, Flags, Op, Sector, ZoneNo};

/// The requests that the last server may have carried out.
#[derive(Debug)]
pub(in crate::ublk) struct Replay {
    geometry: Geometry,
    /// The zones that the device shows: a reset of all zones resets these.
    shown: Range<u32>,
    /// Sectors of each zone that were written when this server started; 0 after the zone's first write.
    written: Vec<AtomicU32>,
    unacked: Unacked,
}

/// The state of those zones of `disk` that the device shows.
pub(in crate::ublk) fn find(disk: &HostedDisk, shown: Range<u32>) -> Result<Vec<FoundZone>, Error> {
    let mut io = BlockingDisk::new(disk)?;
    let g = disk.disk().geometry();
    let start = g.zone_start(ZoneNo(shown.start));
    let zones = io.report(start, shown.end - shown.start).map_err(|e| {
        Error::new(ErrorKind::Io, format!("the zones cannot be read: {e}"))
            .hint("zoneplug report shows what the disk says")
    })?;
    let of = |z: &ZoneInfo| FoundZone { written: written(z), empty: z.cond == Condition::Empty };
    let mut found = vec![FoundZone { written: 0, empty: false }; g.nr_zones() as usize];
    found[shown.start as usize..].iter_mut().zip(&zones).for_each(|(f, z)| *f = of(z));
    Ok(found)
}

impl Replay {
    /// `found`: the zones of the disk. `journal`: the acknowledged appends of the last server, if they are known.
    /// `most`: the number of requests that it can have had in flight.
    pub(in crate::ublk) fn new(
        disk: &HostedDisk,
        shown: Range<u32>,
        found: &[FoundZone],
        journal: Option<&Journal>,
        most: u32,
    ) -> Replay {
        let of = |(zone, found): (u32, &FoundZone)| match journal {
            Some(journal) if journal.only_appends(ZoneNo(zone)) => 0,
            _ => found.written,
        };
        let written = (0..).zip(found).map(|z| AtomicU32::new(of(z))).collect();
        let unacked = journal.map_or_else(Vec::new, |t| t.unacked(found));
        let geometry = disk.disk().geometry();
        Replay { unacked: Unacked::new(disk, unacked, most), written, geometry, shown }
    }

    /// The sector of an append with the data `buf` that is on the disk already, in space that no client owns. The
    /// space belongs to this append from now on. If the zone has such space, waits for the disk.
    pub(in crate::ublk) fn append_before(
        &self,
        r: &Request,
        buf: Option<&AlignedBuf>,
        disk: &HostedDisk,
    ) -> Option<Sector> {
        let (zone, _) = self.geometry.zone_of(r.sector);
        // An append also counts as the first write of its zone.
        if let Some(written) = self.written.get(zone.0 as usize)
            && written.load(Ordering::Relaxed) > 0
        {
            written.store(0, Ordering::Relaxed);
        }
        self.unacked.take(zone, buf?, r.len_sectors, r.flags.contains(Flags::FUA), disk)
    }

    /// The number of sectors of a request with the data `buf` that were on the disk when this server started. At the
    /// first write of a zone, waits for the disk.
    pub(in crate::ublk) fn done_before(
        &self,
        r: &Request,
        buf: Option<&AlignedBuf>,
        disk: &HostedDisk,
    ) -> u32 {
        if r.op == Op::ZoneResetAll {
            let shown = self.shown.start as usize..self.shown.end as usize;
            self.written[shown].iter().for_each(|w| w.store(0, Ordering::Relaxed));
            self.shown.clone().for_each(|z| self.unacked.forget(ZoneNo(z)));
            return 0;
        }
        if !r.op.is_write() || r.sector >= self.geometry.capacity() {
            return 0;
        }
        let (zone, offset) = self.geometry.zone_of(r.sector);
        // These operations change no data, and can be sent before the zone's first write is answered.
        if matches!(r.op, Op::ZoneOpen | Op::ZoneClose) {
            return 0;
        }
        self.unacked.forget(zone);
        let Some(written) = self.written.get(zone.0 as usize) else { return 0 };
        if written.load(Ordering::Relaxed) == 0 {
            return 0;
        }
        let written = written.swap(0, Ordering::Relaxed);
        if !matches!(r.op, Op::Write | Op::WriteZeroes) || offset >= written {
            return 0;
        }
        let there = r.len_sectors.min(written - offset);
        if !is_on(disk, r.sector, there, buf) {
            return 0;
        }
        if r.flags.contains(Flags::FUA) && !flushed(disk) {
            return 0;
        }
        there
    }
}

/// The most requests that the last server of a device can have had in flight: those of all its queues.
pub(in crate::ublk) fn most_in_flight(info: &DevInfo) -> u32 {
    u32::from(info.nr_hw_queues) * u32::from(info.queue_depth)
}

/// The sectors of a zone that have data and must not be written again.
fn written(z: &ZoneInfo) -> u32 {
    let n = match z.cond {
        Condition::Full => z.capacity_sectors,
        Condition::NotWp | Condition::Empty | Condition::ReadOnly | Condition::Offline => 0,
        _ => z.wp.0.saturating_sub(z.start.0).min(z.capacity_sectors),
    };
    u32::try_from(n).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ublk::abi::{self, IoDesc, Params};

    /// Four zones of 1M. The first has 8K of ones, the second is full of ones.
    fn disk() -> HostedDisk {
        let disk = HostedDisk::open_spec("mem,zones=4,zone-size=1M").unwrap();
        let mut io = BlockingDisk::new(&disk).unwrap();
        io.write(Sector(0), ones(8 << 10)).unwrap();
        io.write(Sector(0x800), ones(1 << 20)).unwrap();
        disk
    }

    fn all(disk: &HostedDisk) -> Range<u32> {
        0..disk.disk().geometry().nr_zones()
    }

    fn new(disk: &HostedDisk) -> Replay {
        Replay::new(disk, all(disk), &find(disk, all(disk)).unwrap(), None, 256)
    }

    fn ones(len: u32) -> AlignedBuf {
        let mut buf = AlignedBuf::zeroed(len);
        buf.write(0, &vec![1; len as usize]);
        buf
    }

    fn request(op: u8, sector: u64, len: u32) -> Request {
        let params = Params { zone_sectors: 0x800, ..Params::default() };
        Request::of(IoDesc { op, fua: false, len, sector }, &params).unwrap()
    }

    fn write(replay: &Replay, disk: &HostedDisk, sector: u64, buf: &AlignedBuf) -> u32 {
        let r = request(abi::OP_WRITE, sector, buf.len() >> 9);
        replay.done_before(&r, Some(buf), disk)
    }

    #[test]
    fn a_write_that_reached_the_disk_is_not_written_again() {
        let disk = disk();
        let replay = new(&disk);
        assert_eq!(write(&replay, &disk, 8, &ones(4096)), 8);
        assert_eq!(write(&replay, &disk, 8, &ones(4096)), 0, "only the first of a zone");
        let replay = new(&disk);
        assert_eq!(
            write(&replay, &disk, 8, &ones(64 << 10)),
            8,
            "and of one that did in part, that part"
        );
        assert_eq!(
            write(&replay, &disk, 0x800 + 0x700, &ones(128 << 10)),
            0x100,
            "the end of a full zone"
        );
    }

    #[test]
    fn a_write_that_did_not_is_written() {
        let disk = disk();
        let replay = new(&disk);
        assert_eq!(write(&replay, &disk, 16, &ones(4096)), 0, "at the write pointer");
        let replay = new(&disk);
        assert_eq!(write(&replay, &disk, 0x1000, &ones(4096)), 0, "an empty zone");
    }

    #[test]
    fn other_data_are_no_proof() {
        let disk = disk();
        let replay = new(&disk);
        let mut buf = ones(8 << 10);
        buf.write(5000, &[2]);
        assert_eq!(write(&replay, &disk, 0, &buf), 0);
        let zeroes = request(abi::OP_WRITE_ZEROES, 0x800, 8);
        assert_eq!(replay.done_before(&zeroes, None, &disk), 0);
    }

    #[test]
    fn zeroes_are_compared_with_zeroes() {
        let disk = HostedDisk::open_spec("mem,zones=4,zone-size=1M").unwrap();
        BlockingDisk::new(&disk).unwrap().write(Sector(0), AlignedBuf::zeroed(8192)).unwrap();
        let replay = new(&disk);
        let zeroes = request(abi::OP_WRITE_ZEROES, 0, 64);
        assert_eq!(replay.done_before(&zeroes, None, &disk), 16);
    }

    /// A write with FUA that is on the disk is answered only after a flush.
    #[test]
    fn what_is_to_be_durable_is_flushed_before_it_counts_as_done() {
        let spec = |fault| format!("mem,zones=4,zone-size=1M,write-cache=1{fault}");
        for (fault, done) in [("", 8), (",fault=flush/io", 0)] {
            let disk = HostedDisk::open_spec(&spec(fault)).unwrap();
            BlockingDisk::new(&disk).unwrap().write(Sector(0), ones(4096)).unwrap();
            let mut r = request(abi::OP_WRITE, 0, 8);
            r.flags = Flags::FUA;
            assert_eq!(new(&disk).done_before(&r, Some(&ones(4096)), &disk), done, "{fault}");
            assert_eq!(write(&new(&disk), &disk, 0, &ones(4096)), 8);
        }
    }

    /// With a journal, no space is searched for both writes and appends.
    #[test]
    fn a_zone_has_writes_that_were_done_or_appends() {
        use crate::recovery::journal::tests::{Place, about};
        let place = Place::new();
        let disk = disk();
        let found = find(&disk, all(&disk)).unwrap();
        let journal = Journal::create(&place.record(), about(4, 1), 1, [0; 4].into_iter()).unwrap();
        journal.begin(&request(abi::OP_WRITE, 0x800, 8).change());
        let replay = Replay::new(&disk, all(&disk), &found, Some(&journal), 128);
        let append = |zone| request(abi::OP_ZONE_APPEND, zone, 8);
        let appended = |zone| replay.append_before(&append(zone), Some(&ones(4096)), &disk);
        assert_eq!(write(&replay, &disk, 0x800, &ones(4096)), 8);
        assert_eq!(appended(0x800), None);
        assert_eq!(appended(0), Some(Sector(0)));
        let replay = Replay::new(&disk, all(&disk), &found, Some(&journal), 128);
        assert_eq!(write(&replay, &disk, 8, &ones(4096)), 0, "it got only appends");
        let appended = replay.append_before(&append(0), Some(&ones(4096)), &disk);
        assert_eq!(appended, None, "and nothing is looked for after a write");
    }

    #[test]
    fn appends_are_looked_for_until_their_zone_is_changed() {
        use crate::recovery::journal::tests::{Place, about};
        for (op, still) in [
            (abi::OP_ZONE_RESET, false),
            (abi::OP_ZONE_RESET_ALL, false),
            (abi::OP_ZONE_FINISH, false),
            (abi::OP_ZONE_OPEN, true),
            (abi::OP_READ, true),
        ] {
            let place = Place::new();
            let disk = disk();
            let journal =
                Journal::create(&place.record(), about(4, 1), 1, [0; 4].into_iter()).unwrap();
            let replay = Replay::new(
                &disk,
                all(&disk),
                &find(&disk, all(&disk)).unwrap(),
                Some(&journal),
                128,
            );
            replay.done_before(&request(op, 0, 8), None, &disk);
            let append = request(abi::OP_ZONE_APPEND, 0, 8);
            let found = replay.append_before(&append, Some(&ones(4096)), &disk);
            assert_eq!(found.is_some(), still, "operation {op}");
        }
    }

    /// For each request: the zones whose search it ends, both for writes that were done and for appends that no
    /// client was told of. Each zone is tested on a server of its own. If a zone is forgotten too late, a new append
    /// is answered with old data; if it is forgotten without need, data is written twice.
    #[test]
    fn what_changes_zones_ends_the_comparison_of_these_and_of_no_other() {
        use crate::recovery::journal::tests::{Place, about};
        const ZONES: u64 = 5;
        let disk = HostedDisk::open_spec("mem,zones=5,zone-size=1M").unwrap();
        let mut io = BlockingDisk::new(&disk).unwrap();
        (0..ZONES).for_each(|z| {
            io.write(Sector(z * 0x800), ones(8 << 10)).unwrap();
        });
        let found = find(&disk, all(&disk)).unwrap();
        let (every, none) = (0..ZONES, 0..0);
        for (op, zone, len, changed) in [
            (abi::OP_ZONE_RESET_ALL, 0, 0, every),
            (abi::OP_ZONE_RESET, 0, 0, 0..1),
            (abi::OP_ZONE_RESET, 3, 0, 3..4),
            (abi::OP_ZONE_RESET, 4, 0, 4..5),
            (abi::OP_ZONE_FINISH, 2, 0, 2..3),
            (abi::OP_WRITE_ZEROES, 1, 8, 1..2),
            (abi::OP_DISCARD, 1, 8, 1..2),
            (abi::OP_ZONE_OPEN, 1, 0, none.clone()),
            (abi::OP_ZONE_CLOSE, 1, 0, none.clone()),
            (abi::OP_FLUSH, 0, 0, none.clone()),
            (abi::OP_READ, 0, 8, none.clone()),
            (abi::OP_REPORT_ZONES, 0, 5, none),
        ] {
            let change = |replay: &Replay| {
                // The write is after the written part, so it is no copy of earlier data.
                let at = zone * 0x800 + if len > 0 { 16 } else { 0 };
                replay.done_before(&request(op, at, len), None, &disk);
            };
            for z in 0..ZONES {
                let place = Place::new();
                let hidden = [0; ZONES as usize].into_iter();
                let journal =
                    Journal::create(&place.record(), about(ZONES as u32, 1), 1, hidden).unwrap();
                let replay = Replay::new(&disk, all(&disk), &found, Some(&journal), 128);
                change(&replay);
                let append = request(abi::OP_ZONE_APPEND, z * 0x800, 8);
                let is = replay.append_before(&append, Some(&ones(4096)), &disk).is_some();
                assert_eq!(is, !changed.contains(&z), "operation {op} on {zone}: appends of {z}");
                let replay = new(&disk);
                change(&replay);
                let is = write(&replay, &disk, z * 0x800 + 8, &ones(4096)) == 8;
                assert_eq!(is, !changed.contains(&z), "operation {op} on {zone}: writes of {z}");
            }
        }
    }

    /// A device that shows some zones of a disk.
    #[test]
    fn a_reset_of_all_zones_is_of_those_that_are_shown() {
        let disk = disk();
        for (shown, there) in [(0..1, 0x800), (1..4, 0)] {
            let replay = Replay::new(&disk, shown, &find(&disk, all(&disk)).unwrap(), None, 128);
            replay.done_before(&request(abi::OP_ZONE_RESET_ALL, 0, 0), None, &disk);
            assert_eq!(write(&replay, &disk, 0x800, &ones(1 << 20)), there);
        }
    }

    #[test]
    fn after_anything_else_that_changes_a_zone_nothing_is_compared() {
        for op in
            [abi::OP_ZONE_RESET, abi::OP_ZONE_RESET_ALL, abi::OP_ZONE_APPEND, abi::OP_ZONE_FINISH]
        {
            let disk = disk();
            let replay = new(&disk);
            let len = if op == abi::OP_ZONE_APPEND { 8 } else { 0 };
            assert_eq!(replay.done_before(&request(op, 0, len), None, &disk), 0);
            assert_eq!(write(&replay, &disk, 8, &ones(4096)), 0, "operation {op}");
        }
        let disk = disk();
        let replay = new(&disk);
        for op in [abi::OP_READ, abi::OP_FLUSH, abi::OP_REPORT_ZONES] {
            replay.done_before(&request(op, 0, 8), None, &disk);
        }
        assert_eq!(write(&replay, &disk, 8, &ones(4096)), 8);
    }
}
