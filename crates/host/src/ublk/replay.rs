//! Requests that the kernel sends again after its server has died, and what the last server had done of them.
//!
//! The kernel sends again whatever was not answered (`UBLK_F_USER_RECOVERY_REISSUE`); the alternative, an I/O error for each,
//! would end most file systems for a server that was only started again. But a write that reached the disk before its server died
//! must not be written twice: it would fail at the write pointer, though its data are safe. Who decides is the disk:
//!
//! * Linux has one write in flight in a zone, so what lies between its start and the write pointer that the new server finds is
//!   of this very write. It is read back and compared: what is there is not written again, the rest is.
//! * If it is not the same the write goes down as it is, and the layer refuses it.
//! * Only the first write of each zone after a start can be one of these; from then on nothing is compared.
//! * Reads, flushes, reports and resets may be done twice; so may writes to conventional zones.
//! * An append that was not answered is appended again: nobody has been told of the first copy, which stays in the zone as
//!   space that is lost until the zone is reset. (A drive whose answer was lost does the same.) A zone that has no room for
//!   the second copy refuses it, and who sent it is told of an I/O error.

use super::request::Request;
use crate::blocking::BlockingDisk;
use crate::hosted::HostedDisk;
use std::sync::atomic::{AtomicU32, Ordering};
use zoneplug_buf::AlignedBuf;
use zoneplug_core::zone::{Condition, Geometry, ZoneInfo};
use zoneplug_core::{Error, ErrorKind, Op, Sector};

/// Zones whose first write after a start may have been done by the last server.
#[derive(Debug)]
pub(super) struct Replay {
    geometry: Geometry,
    /// Sectors of each zone that were written when this server started; 0 once its first write has come.
    written: Vec<AtomicU32>,
}

impl Replay {
    /// Reads where the zones of `disk` are written up to.
    pub(super) fn new(disk: &HostedDisk) -> Result<Replay, Error> {
        let geometry = disk.disk().geometry();
        let mut io = BlockingDisk::new(disk)?;
        let zones = io.report(Sector(0), geometry.nr_zones()).map_err(|e| {
            Error::new(ErrorKind::Io, format!("the zones cannot be read: {e}"))
                .hint("zoneplug report shows what the disk says")
        })?;
        let written = zones.iter().map(|z| AtomicU32::new(written(z))).collect();
        Ok(Replay { geometry, written })
    }

    /// How many sectors of a request with the data `buf` were on the disk when this server started. Waits for the disk, for
    /// the first write of a zone.
    pub(super) fn done_before(
        &self,
        r: &Request,
        buf: Option<&AlignedBuf>,
        disk: &HostedDisk,
    ) -> u32 {
        if r.op == Op::ZoneResetAll {
            self.written.iter().for_each(|w| w.store(0, Ordering::Relaxed));
            return 0;
        }
        if !r.op.is_write() || r.sector >= self.geometry.capacity() {
            return 0;
        }
        let (zone, offset) = self.geometry.zone_of(r.sector);
        let Some(written) = self.written.get(zone.0 as usize) else { return 0 };
        if written.load(Ordering::Relaxed) == 0 {
            return 0;
        }
        let written = written.swap(0, Ordering::Relaxed);
        if !matches!(r.op, Op::Write | Op::WriteZeroes) || offset >= written {
            return 0;
        }
        let there = r.len_sectors.min(written - offset);
        if is_on(disk, r.sector, there, buf) { there } else { 0 }
    }
}

/// Sectors of a zone that hold data and must not be written again.
fn written(z: &ZoneInfo) -> u32 {
    let n = match z.cond {
        Condition::Full => z.capacity_sectors,
        Condition::NotWp | Condition::Empty | Condition::ReadOnly | Condition::Offline => 0,
        _ => z.wp.0.saturating_sub(z.start.0).min(z.capacity_sectors),
    };
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// Whether `len` sectors at `sector` are what `buf` begins with, or zeroes without one.
fn is_on(disk: &HostedDisk, sector: Sector, len: u32, buf: Option<&AlignedBuf>) -> bool {
    const PIECE: u32 = 2048;
    let Ok(mut io) = BlockingDisk::new(disk) else { return false };
    let mut at = 0;
    while at < len {
        let n = PIECE.min(len - at);
        let Ok(found) = io.read(sector.plus(u64::from(at)), n) else { return false };
        let found = found.to_vec();
        let mut wanted = vec![0; found.len()];
        if let Some(buf) = buf {
            buf.read(at << 9, &mut wanted);
        }
        if found != wanted {
            return false;
        }
        at += n;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::super::abi::{self, IoDesc, Params};
    use super::*;

    /// Four zones of 1M of which the first holds 8K of ones and the second is full of them.
    fn disk() -> HostedDisk {
        let disk = HostedDisk::open_spec("mem,zones=4,zone-size=1M").unwrap();
        let mut io = BlockingDisk::new(&disk).unwrap();
        io.write(Sector(0), ones(8 << 10)).unwrap();
        io.write(Sector(0x800), ones(1 << 20)).unwrap();
        disk
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
        let replay = Replay::new(&disk).unwrap();
        assert_eq!(write(&replay, &disk, 8, &ones(4096)), 8);
        assert_eq!(write(&replay, &disk, 8, &ones(4096)), 0, "only the first of a zone");
        let replay = Replay::new(&disk).unwrap();
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
        let replay = Replay::new(&disk).unwrap();
        assert_eq!(write(&replay, &disk, 16, &ones(4096)), 0, "at the write pointer");
        let replay = Replay::new(&disk).unwrap();
        assert_eq!(write(&replay, &disk, 0x1000, &ones(4096)), 0, "an empty zone");
    }

    #[test]
    fn other_data_are_no_proof() {
        let disk = disk();
        let replay = Replay::new(&disk).unwrap();
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
        let replay = Replay::new(&disk).unwrap();
        let zeroes = request(abi::OP_WRITE_ZEROES, 0, 64);
        assert_eq!(replay.done_before(&zeroes, None, &disk), 16);
    }

    #[test]
    fn after_anything_else_that_changes_a_zone_nothing_is_compared() {
        for op in
            [abi::OP_ZONE_RESET, abi::OP_ZONE_RESET_ALL, abi::OP_ZONE_APPEND, abi::OP_ZONE_FINISH]
        {
            let disk = disk();
            let replay = Replay::new(&disk).unwrap();
            let len = if op == abi::OP_ZONE_APPEND { 8 } else { 0 };
            assert_eq!(replay.done_before(&request(op, 0, len), None, &disk), 0);
            assert_eq!(write(&replay, &disk, 8, &ones(4096)), 0, "operation {op}");
        }
        let disk = disk();
        let replay = Replay::new(&disk).unwrap();
        for op in [abi::OP_READ, abi::OP_FLUSH, abi::OP_REPORT_ZONES] {
            replay.done_before(&request(op, 0, 8), None, &disk);
        }
        assert_eq!(write(&replay, &disk, 8, &ones(4096)), 8);
    }
}
