//! A request of the kernel as a BIO, and the BIO's end as the answer (U4, U6). Plain values; no call is made here.

use super::abi::{self, IoDesc, Params};
use zoneplug_core::zone::ZONE_RECORD_LEN;
use zoneplug_core::{Flags, Op, Sector, Status};

/// What is to be done for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) op: Op,
    pub(super) sector: Sector,
    pub(super) len_sectors: u32,
    pub(super) flags: Flags,
    /// Bytes of its data.
    pub(super) bytes: u32,
}

impl Request {
    /// Reads a descriptor, or says with which error number to answer it.
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
            // Linux names one zone, by its start.
            Op::ZoneOpen | Op::ZoneClose | Op::ZoneFinish | Op::ZoneReset => {
                (d.sector, params.zone_sectors)
            }
            _ => (d.sector, d.len),
        };
        let fua = d.fua && matches!(op, Op::Write | Op::ZoneAppend | Op::WriteZeroes);
        let flags = if fua { Flags::FUA } else { Flags::NONE };
        Ok(Request { op, sector: Sector(sector), len_sectors, flags, bytes })
    }

    /// Whether its data go from the kernel to the disk.
    pub(super) fn brings_data(&self) -> bool {
        matches!(self.op, Op::Write | Op::ZoneAppend)
    }

    /// Whether its data go from the disk to the kernel.
    pub(super) fn wants_data(&self) -> bool {
        matches!(self.op, Op::Read | Op::ReportZones)
    }

    /// What the kernel is told: bytes moved, 0, or a negative error number.
    pub(super) fn result(&self, status: Status) -> i32 {
        if !status.is_ok() {
            return -errno(status);
        }
        match self.op {
            Op::Read | Op::Write => self.bytes as i32,
            // The buffer of a report may be longer than the zones that it asks for, and only the driver knows by how much; it
            // takes what it is told at most for all of it. Less would have it ask for the rest of the buffer.
            Op::ReportZones => abi::MAX_IO_BYTES as i32,
            _ => 0,
        }
    }
}

/// Linux knows only some error numbers as something else than an I/O error; of the layer's own those that mean
/// something else there, such as *try again* where nobody will, become plain I/O errors.
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

    #[test]
    fn results_are_bytes_for_data_and_error_numbers_else() {
        let write = of(abi::OP_WRITE, 0, 8, false).unwrap();
        assert_eq!(write.result(Status::Ok), 4096);
        assert_eq!(write.result(Status::Io), -libc::EIO);
        assert_eq!(write.result(Status::AbortedBehind), -libc::EIO);
        // O3: what Linux has names for goes through as it is.
        assert_eq!(write.result(Status::OpenLimit), -libc::ETOOMANYREFS);
        assert_eq!(write.result(Status::ActiveLimit), -libc::EOVERFLOW);
        let reset = of(abi::OP_ZONE_RESET, 0, 0, false).unwrap();
        assert_eq!(reset.result(Status::Ok), 0);
        assert_eq!(reset.result(Status::ZoneBusy), -libc::EIO);
        let report = of(abi::OP_REPORT_ZONES, 0, 3, false).unwrap();
        assert_eq!(report.result(Status::Ok), 1 << 25);
    }
}
