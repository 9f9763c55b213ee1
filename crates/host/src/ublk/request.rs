//! Translates a request of the kernel into a BIO, and the result of the BIO into the answer (U4, U6). Works on plain
//! values and makes no call.

use super::abi::{self, IoDesc, Params};
use crate::recovery::journal::Change;
use zoneplug_buf::AlignedBuf;
use zoneplug_core::zone::{ZONE_RECORD_LEN, ZoneInfo};
use zoneplug_core::{Flags, IoRequest, Op, Sector, Status};

/// A request, in units of the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) op: Op,
    pub(super) sector: Sector,
    pub(super) len_sectors: u32,
    pub(super) flags: Flags,
    /// Bytes of data.
    pub(super) bytes: u32,
}

impl Request {
    /// The request of the disk.
    pub(super) fn of_disk(&self) -> IoRequest {
        let Request { op, sector, len_sectors, flags, bytes } = *self;
        IoRequest { disk: 0, op, sector, len_sectors, flags, memory: (0, bytes) }
    }

    /// The part of the request that the journal needs.
    pub(super) fn change(&self) -> Change {
        Change { op: self.op, sector: self.sector, len_sectors: self.len_sectors }
    }
}

/// Clears the part of a buffer of `bytes` after the records of a report, which may have the data of another request.
/// Linux reads records up to one of zeroes.
pub(super) fn end_report(buf: &mut AlignedBuf, zones: u32, bytes: u32) {
    let end = zones.saturating_mul(ZONE_RECORD_LEN as u32);
    for at in (end..bytes).step_by(ZONE_RECORD_LEN) {
        buf.write(at, &[0; ZONE_RECORD_LEN]);
    }
}

/// The zones of a disk that a device shows, as sectors.
#[derive(Debug, Default)]
pub(super) struct Slice {
    /// The first sector.
    pub(super) start: u64,
    /// The ranges to reset for a reset of all zones. `None` if the device shows the whole disk.
    pub(super) resets: Option<Vec<(Sector, u32)>>,
}

impl Slice {
    /// Translates a request of the device to one of the disk.
    pub(super) fn down(&self, r: Request) -> Request {
        match r.op {
            Op::Flush | Op::ZoneResetAll => r,
            _ => Request { sector: r.sector.plus(self.start), ..r },
        }
    }

    /// Translates a sector of the disk to one of the device.
    pub(super) fn up(&self, sector: Sector) -> Sector {
        Sector(sector.0.saturating_sub(self.start))
    }

    /// Translates the zones of a report.
    pub(super) fn up_zones(&self, buf: &mut AlignedBuf, bytes: u32) {
        if self.start == 0 {
            return;
        }
        for at in (0..bytes).step_by(ZONE_RECORD_LEN) {
            // A record of length 0 ends the report.
            let Some(mut zone) = ZoneInfo::decode_at(buf, at).filter(|z| z.len_sectors > 0) else {
                return;
            };
            zone.start = self.up(zone.start);
            // A zone without a write pointer has no sector there.
            if zone.wp.0 != u64::MAX {
                zone.wp = self.up(zone.wp);
            }
            buf.write(at, &zone.encode());
        }
    }

    /// The command number `nth` of a request that takes several commands.
    pub(super) fn part(&self, r: &Request, nth: usize) -> Option<Request> {
        match &self.resets {
            Some(resets) if r.op == Op::ZoneResetAll => {
                let reset = |&(sector, len_sectors): &(Sector, u32)| Request {
                    op: Op::ZoneReset,
                    sector,
                    len_sectors,
                    ..*r
                };
                resets.get(nth).map(reset)
            }
            _ => (nth == 0).then_some(*r),
        }
    }
}

impl Request {
    /// A value for a tag without a request.
    pub(super) const NONE: Request =
        Request { op: Op::Flush, sector: Sector(0), len_sectors: 0, flags: Flags::NONE, bytes: 0 };

    /// Reads a descriptor. The error is the error number to answer.
    pub(super) fn of(d: IoDesc, params: &Params) -> Result<Request, i32> {
        let op = match d.op {
            abi::OP_READ => Op::Read,
            abi::OP_WRITE => Op::Write,
            abi::OP_FLUSH => Op::Flush,
            abi::OP_DISCARD => Op::Discard,
            abi::OP_WRITE_ZEROES => Op::WriteZeroes,
            abi::OP_ZONE_OPEN => Op::ZoneOpen,
            abi::OP_ZONE_CLOSE => Op::ZoneClose,
            abi::OP_ZONE_FINISH => Op::ZoneFinish,
            abi::OP_ZONE_APPEND => Op::ZoneAppend,
            abi::OP_ZONE_RESET_ALL => Op::ZoneResetAll,
            abi::OP_ZONE_RESET => Op::ZoneReset,
            abi::OP_REPORT_ZONES => Op::ReportZones,
            _ => return Err(libc::EOPNOTSUPP),
        };
        let bytes = match op {
            Op::Read | Op::Write | Op::ZoneAppend => u64::from(d.len) << 9,
            Op::ReportZones => u64::from(d.len) * ZONE_RECORD_LEN as u64,
            _ => 0,
        };
        let bytes = u32::try_from(bytes).ok().filter(|n| *n <= abi::MAX_IO_BYTES);
        let bytes = bytes.ok_or(libc::EINVAL)?;
        let (sector, len_sectors) = match op {
            Op::Flush | Op::ZoneResetAll => (0, 0),
            Op::ReportZones => (d.sector, 0),
            // Linux names a zone by its start.
            Op::ZoneOpen | Op::ZoneClose | Op::ZoneFinish | Op::ZoneReset => {
                (d.sector, params.zone_sectors)
            }
            _ => (d.sector, d.len),
        };
        let fua = d.fua && matches!(op, Op::Write | Op::ZoneAppend | Op::WriteZeroes);
        let flags = if fua { Flags::FUA } else { Flags::NONE };
        Ok(Request { op, sector: Sector(sector), len_sectors, flags, bytes })
    }

    /// Whether the data must be durable before the answer.
    pub(super) fn wants_durability(&self) -> bool {
        self.op == Op::Flush || self.flags.contains(Flags::FUA)
    }

    /// Whether data goes from the kernel to the disk.
    pub(super) fn brings_data(&self) -> bool {
        matches!(self.op, Op::Write | Op::ZoneAppend)
    }

    /// Whether data goes from the disk to the kernel.
    pub(super) fn wants_data(&self) -> bool {
        matches!(self.op, Op::Read | Op::ReportZones)
    }

    /// The answer to the kernel: bytes moved, 0, or a negative error number.
    pub(super) fn result(&self, status: Status) -> i32 {
        if !status.is_ok() {
            return -errno(status);
        }
        match self.op {
            Op::Read | Op::Write => self.bytes as i32,
            // The buffer of a report may be longer than the zones that were asked for, and only the driver knows its
            // length. The driver limits the answer to that length; after a smaller answer it would ask for the rest
            // of the buffer.
            Op::ReportZones => abi::MAX_IO_BYTES as i32,
            _ => 0,
        }
    }
}

/// The error number of a status. Linux treats most numbers as a plain I/O error, and a few in a special way. A status
/// whose number would be misunderstood, such as *try again* where nothing tries again, becomes a plain I/O error.
fn errno(status: Status) -> i32 {
    match status.errno() {
        libc::EAGAIN | libc::EBUSY | libc::ECANCELED => libc::EIO,
        n => n,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARAMS: Params = Params {
        attrs: 0,
        block_shift: 12,
        max_sectors: 2048,
        zone_sectors: 0x8000,
        dev_sectors: 0x8000 * 8,
        max_discard_sectors: 0,
        max_write_zeroes_sectors: 0,
        max_open_zones: 0,
        max_active_zones: 0,
        max_append_sectors: 256,
    };

    fn of(op: u8, sector: u64, len: u32, fua: bool) -> Result<Request, i32> {
        Request::of(IoDesc { op, fua, len, sector }, &PARAMS)
    }

    #[test]
    fn u4_every_operation_has_its_bio() {
        let r = of(abi::OP_WRITE, 8, 16, true).unwrap();
        assert_eq!((r.op, r.sector, r.len_sectors, r.bytes), (Op::Write, Sector(8), 16, 8192));
        assert_eq!(r.flags, Flags::FUA);
        assert!(r.brings_data() && !r.wants_data());
        let r = of(abi::OP_READ, 8, 16, true).unwrap();
        assert!(r.wants_data() && r.flags == Flags::NONE);
        let r = of(abi::OP_ZONE_RESET, 0x8000, 0, false).unwrap();
        assert_eq!((r.op, r.len_sectors, r.bytes), (Op::ZoneReset, 0x8000, 0));
        let r = of(abi::OP_ZONE_RESET_ALL, 0, 0, false).unwrap();
        assert_eq!((r.op, r.len_sectors), (Op::ZoneResetAll, 0));
        let r = of(abi::OP_REPORT_ZONES, 0x8000, 7, false).unwrap();
        assert_eq!((r.len_sectors, r.bytes), (0, 7 * 64));
        let all = [
            (abi::OP_FLUSH, Op::Flush),
            (abi::OP_DISCARD, Op::Discard),
            (abi::OP_WRITE_ZEROES, Op::WriteZeroes),
            (abi::OP_ZONE_OPEN, Op::ZoneOpen),
            (abi::OP_ZONE_CLOSE, Op::ZoneClose),
            (abi::OP_ZONE_FINISH, Op::ZoneFinish),
            (abi::OP_ZONE_APPEND, Op::ZoneAppend),
        ];
        for (number, op) in all {
            assert_eq!(of(number, 0x8000, 8, false).unwrap().op, op);
        }
        assert_eq!(of(4, 0, 8, false), Err(libc::EOPNOTSUPP), "write same");
        assert_eq!(of(abi::OP_READ, 0, u32::MAX, false), Err(libc::EINVAL));
    }

    /// U4. What a file system wants durable before the answer is written with FUA, by whichever operation.
    #[test]
    fn u4_what_is_to_be_durable_is_written_with_fua() {
        let writes = [abi::OP_WRITE, abi::OP_ZONE_APPEND, abi::OP_WRITE_ZEROES];
        let others = [abi::OP_READ, abi::OP_DISCARD, abi::OP_ZONE_FINISH, abi::OP_ZONE_RESET];
        for (number, fua) in writes.iter().chain(&others).flat_map(|n| [(*n, false), (*n, true)]) {
            let r = of(number, 0x8000, 8, fua).unwrap();
            let durable = fua && writes.contains(&number);
            assert_eq!(r.flags, if durable { Flags::FUA } else { Flags::NONE }, "{:?}", r.op);
            assert_eq!(r.wants_durability(), durable, "{:?}", r.op);
        }
    }

    /// U4: data operations are answered with bytes, others with 0; failures with error numbers.
    #[test]
    fn results_are_bytes_for_data_and_error_numbers_else() {
        let write = of(abi::OP_WRITE, 0, 8, false).unwrap();
        assert_eq!(write.result(Status::Ok), 4096);
        assert_eq!(write.result(Status::Io), -libc::EIO);
        assert_eq!(write.result(Status::AbortedBehind), -libc::EIO);
        // Statuses for which Linux has a number pass through unchanged (O3).
        assert_eq!(write.result(Status::OpenLimit), -libc::ETOOMANYREFS);
        assert_eq!(write.result(Status::ActiveLimit), -libc::EOVERFLOW);
        let reset = of(abi::OP_ZONE_RESET, 0, 0, false).unwrap();
        assert_eq!(reset.result(Status::Ok), 0);
        assert_eq!(reset.result(Status::ZoneBusy), -libc::EIO);
        let report = of(abi::OP_REPORT_ZONES, 0, 3, false).unwrap();
        assert_eq!(report.result(Status::Ok), 1 << 25);
    }

    /// A device that shows some zones of a disk starts at sector 0.
    #[test]
    fn a_part_of_a_disk_begins_at_0() {
        let resets = vec![(Sector(0x10000), 0x8000), (Sector(0x20000), 0x8000)];
        let slice = Slice { start: 0x10000, resets: Some(resets) };
        let part = |slice: &Slice, r: &Request, nth| {
            slice.part(r, nth).map(|part| (part.op, part.sector, part.len_sectors))
        };
        let write = of(abi::OP_WRITE, 8, 16, false).unwrap();
        assert_eq!(slice.down(write).sector, Sector(0x10008));
        assert_eq!(part(&slice, &slice.down(write), 0), Some((Op::Write, Sector(0x10008), 16)));
        assert_eq!(part(&slice, &slice.down(write), 1), None);
        assert_eq!(slice.up(Sector(0x10018)), Sector(0x18));
        let flush = of(abi::OP_FLUSH, 0, 0, false).unwrap();
        assert_eq!(slice.down(flush), flush);
        let all = slice.down(of(abi::OP_ZONE_RESET_ALL, 0, 0, false).unwrap());
        assert_eq!(part(&slice, &all, 0), Some((Op::ZoneReset, Sector(0x10000), 0x8000)));
        assert_eq!(part(&slice, &all, 1), Some((Op::ZoneReset, Sector(0x20000), 0x8000)));
        assert_eq!(part(&slice, &all, 2), None);
        let whole = Slice::default();
        assert_eq!(part(&whole, &all, 0), Some((Op::ZoneResetAll, Sector(0), 0)));
        assert_eq!(part(&whole, &all, 1), None);
    }

    #[test]
    fn zones_of_a_part_are_reported_from_0() {
        use zoneplug_core::zone::{Condition, ZoneType};
        let zone = |start, wp, zone_type, cond| ZoneInfo {
            start: Sector(start),
            len_sectors: 0x8000,
            capacity_sectors: 0x6000,
            wp: Sector(wp),
            zone_type,
            cond,
        };
        let open = |start, wp| zone(start, wp, ZoneType::SeqWriteRequired, Condition::ImpOpen);
        let full = |start| zone(start, u64::MAX, ZoneType::SeqWriteRequired, Condition::Full);
        let mut buf = AlignedBuf::zeroed(4096);
        for (i, z) in [open(0x10000, 0x10100), full(0x18000)].iter().enumerate() {
            buf.write(i as u32 * 64, &z.encode());
        }
        Slice { start: 0x10000, resets: None }.up_zones(&mut buf, 4096);
        let read = |i: u32| {
            let mut record = [0; 64];
            buf.read(i * 64, &mut record);
            record
        };
        assert_eq!(read(0), open(0, 0x100).encode());
        assert_eq!(read(1), full(0x8000).encode());
        assert_eq!(read(2), [0; 64]);
    }
}
