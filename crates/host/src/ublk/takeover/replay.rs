//! Requests that the kernel sends again after a server has died: what the dead server can have carried out of them.
//!
//! The kernel sends every unanswered request again (`UBLK_F_USER_RECOVERY_REISSUE`); an I/O error for each would end
//! most file systems. But a write that reached the disk must not be written twice: it would fail at the write pointer
//! although its data is safe. So [`zoneplug_recovery`] compares it with the disk:
//!
//! * Linux has one write in flight in a zone, so the data between its start and the write pointer is of this write.
//!   It is read and compared; if it is equal, only the rest is written.
//! * If the data differs, the write is sent as it is, and the layer refuses it.
//! * Only the first write of each zone after the start can be such a write. Later ones are not compared.
//! * Reads, flushes, reports, resets, and writes to conventional zones can be repeated.
//! * An append that is on the disk, in space that no client was told of, is answered with its sector: `journal.rs`
//!   knows the space, `unacked.rs` reads it. Otherwise it is appended again. The space of a first copy on the disk is
//!   lost until the zone is reset, and a zone without room refuses the second copy.
//! * A zone that got only appends has no such write, and a zone that got anything else has no such append. So no
//!   space is searched for both.
//! * Data that must be durable when it is answered (FUA) is flushed first.
//!
//! No request of the dead server is in flight here: its requests hold the device below, which this server can only
//! open exclusively (by a lock, or `O_EXCL`). A write that did land later would be above the write pointers that are
//! read here: it would not be found, and would be appended again.

use super::unacked::spaces;
use crate::BlockingDisk;
use crate::recovery::journal::{FoundZone, Journal};
use crate::recovery::space::block_sectors;
use crate::runtime::hosted::HostedDisk;
use crate::ublk::abi::DevInfo;
use crate::ublk::request::Request;
use std::ops::Range;
use zoneplug_buf::AlignedBuf;
use zoneplug_core::{Error, ErrorKind, Nanos, ZoneNo};
use zoneplug_recovery::{ClientKey, DiskRecovery, FirstCommands, Search, SentCommand};

/// The only client of a device.
const LINUX: ClientKey = ClientKey::new(0);
/// The order of the requests of a device decides which of them are new, and no time does.
pub(in crate::ublk) const NO_TIME: Nanos = Nanos(0);

/// The state of those zones of `disk` that the device shows. Waits for the disk.
pub(in crate::ublk) fn find(disk: &HostedDisk, shown: Range<u32>) -> Result<Vec<FoundZone>, Error> {
    let mut io = BlockingDisk::new(disk)?;
    let g = disk.disk().geometry();
    let start = g.zone_start(ZoneNo(shown.start));
    let zones = io.report(start, shown.end - shown.start).map_err(|e| {
        Error::new(ErrorKind::Io, format!("the zones cannot be read: {e}"))
            .hint("zoneplug report shows what the disk says")
    })?;
    let mut found = vec![FoundZone { written: 0, empty: false }; g.nr_zones() as usize];
    found[shown.start as usize..].iter_mut().zip(&zones).for_each(|(f, z)| *f = FoundZone::of(z));
    Ok(found)
}

/// The requests that the last server may have carried out. `found`: the zones of the disk that the device shows.
/// `journal`: the acknowledged appends of the last server, if they are known. `most`: the number of requests that it can have
/// had in flight. Reads the space that no client was told of, and waits for the disk: call it before the queues begin.
pub(in crate::ublk) fn recovery(
    disk: &HostedDisk,
    found: &[FoundZone],
    journal: Option<&Journal>,
    most: u32,
) -> DiskRecovery {
    let of = |(zone, found): (u32, &FoundZone)| match journal {
        Some(journal) if journal.only_appends(ZoneNo(zone)) => 0,
        _ => found.written,
    };
    let written = (0..).zip(found).map(of).collect();
    let unacked = journal.map_or_else(Vec::new, |journal| journal.unacked(found));
    let (spaces, block_sectors) = (spaces(disk, unacked, most), block_sectors(disk));
    let first = FirstCommands { written, spaces, block_sectors, appends: most };
    DiskRecovery::of_first_commands(disk.disk().geometry(), first)
}

/// Begins the search for a request with the data `buf`. `None`: the request is a new one.
#[cold]
pub(in crate::ublk) fn begin(
    recovery: &DiskRecovery,
    r: &Request,
    buf: Option<&AlignedBuf>,
) -> Option<Search> {
    recovery.begin(r.op, SentCommand::of(LINUX, &r.of_disk()), buf, NO_TIME)
}

/// The most requests that the last server of a device can have had in flight: those of all its queues.
pub(in crate::ublk) fn most_in_flight(info: &DevInfo) -> u32 {
    u32::from(info.nr_hw_queues) * u32::from(info.queue_depth)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{append_before, decide, done_before, request};
    use super::*;
    use crate::ublk::abi;
    use zoneplug_core::{Flags, Sector, Status};
    use zoneplug_recovery::ResendStep;

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

    fn new(disk: &HostedDisk) -> DiskRecovery {
        recovery(disk, &find(disk, all(disk)).unwrap(), None, 256)
    }

    fn ones(len: u32) -> AlignedBuf {
        let mut buf = AlignedBuf::zeroed(len);
        buf.write(0, &vec![1; len as usize]);
        buf
    }

    fn write(replay: &DiskRecovery, disk: &HostedDisk, sector: u64, buf: &AlignedBuf) -> u32 {
        let r = request(abi::OP_WRITE, sector, buf.len() >> 9);
        done_before(replay, &r, Some(buf), disk)
    }

    /// A device that shows a part of a disk answers for the requests of this part only: the other zones hold nothing of its.
    #[test]
    fn zones_that_a_device_does_not_show_are_not_its_own() {
        let disk = HostedDisk::open_spec("mem,zones=8,zone-size=1M").unwrap();
        let mut io = BlockingDisk::new(&disk).unwrap();
        for zone in 0..8 {
            io.write(Sector(zone * 0x800), ones(4096)).unwrap();
        }
        for shown in [0..8, 0..2, 2..4, 5..8] {
            let found = find(&disk, shown.clone()).unwrap();
            let written: Vec<u32> = found.iter().map(|f| f.written).collect();
            let expected = (0..8).map(|zone| if shown.contains(&zone) { 8 } else { 0 });
            assert_eq!(written, expected.collect::<Vec<_>>(), "{shown:?}");
        }
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
        assert_eq!(done_before(&replay, &zeroes, None, &disk), 0);
    }

    #[test]
    fn zeroes_are_compared_with_zeroes() {
        let disk = HostedDisk::open_spec("mem,zones=4,zone-size=1M").unwrap();
        BlockingDisk::new(&disk).unwrap().write(Sector(0), AlignedBuf::zeroed(8192)).unwrap();
        let replay = new(&disk);
        let zeroes = request(abi::OP_WRITE_ZEROES, 0, 64);
        assert_eq!(done_before(&replay, &zeroes, None, &disk), 16);
    }

    /// A write with FUA that is on the disk is answered only after a flush.
    #[test]
    fn what_is_to_be_durable_is_flushed_before_it_counts_as_done() {
        let spec = |fault| format!("mem,zones=4,zone-size=1M,write-cache=1{fault}");
        for (fault, step) in
            [("", ResendStep::Done(Sector(0))), (",fault=flush/io", ResendStep::Failed(Status::Io))]
        {
            let disk = HostedDisk::open_spec(&spec(fault)).unwrap();
            BlockingDisk::new(&disk).unwrap().write(Sector(0), ones(4096)).unwrap();
            let mut r = request(abi::OP_WRITE, 0, 8);
            r.flags = Flags::FUA;
            assert_eq!(decide(&new(&disk), &r, Some(&ones(4096)), &disk), step, "{fault}");
            assert_eq!(write(&new(&disk), &disk, 0, &ones(4096)), 8);
        }
    }

    /// With a journal, no space is searched for both writes and appends.
    #[test]
    fn a_zone_has_writes_that_were_done_or_appends() {
        use crate::recovery::journal::tests::{JournalDir, about};
        let place = JournalDir::new();
        let disk = disk();
        let found = find(&disk, all(&disk)).unwrap();
        let journal = Journal::create(&place.record(), about(4, 1), 1, [0; 4].into_iter()).unwrap();
        journal.begin(&request(abi::OP_WRITE, 0x800, 8).change());
        let replay = recovery(&disk, &found, Some(&journal), 128);
        let append = |zone| request(abi::OP_ZONE_APPEND, zone, 8);
        let appended = |zone| append_before(&replay, &append(zone), &ones(4096), &disk);
        assert_eq!(write(&replay, &disk, 0x800, &ones(4096)), 8);
        assert_eq!(appended(0x800), None);
        assert_eq!(appended(0), Some(Sector(0)));
        let replay = recovery(&disk, &found, Some(&journal), 128);
        assert_eq!(write(&replay, &disk, 8, &ones(4096)), 0, "it got only appends");
        let appended = append_before(&replay, &append(0), &ones(4096), &disk);
        assert_eq!(appended, None, "and nothing is looked for after a write");
    }

    /// A device that shows some zones of a disk has no commands in the others.
    #[test]
    fn zones_that_are_not_shown_have_no_commands_of_the_device() {
        let disk = disk();
        for (shown, there) in [(0..1, 0), (1..4, 0x800)] {
            let replay = recovery(&disk, &find(&disk, shown).unwrap(), None, 128);
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
            let data = (len > 0).then(|| ones(len << 9));
            assert_eq!(done_before(&replay, &request(op, 0, len), data.as_ref(), &disk), 0);
            assert_eq!(write(&replay, &disk, 8, &ones(4096)), 0, "operation {op}");
        }
        let disk = disk();
        let replay = new(&disk);
        for op in [abi::OP_READ, abi::OP_FLUSH, abi::OP_REPORT_ZONES] {
            done_before(&replay, &request(op, 0, 8), None, &disk);
        }
        assert_eq!(write(&replay, &disk, 8, &ones(4096)), 8);
    }
}
