//! The blocking adapter: one operation at a time, buffers by value.

use crate::client::Client;
use crate::hosted::HostedDisk;
use std::fmt;
use std::time::Duration;
use zoneplug_buf::{AlignedBuf, IoBuf};
use zoneplug_core::zone::{ZONE_RECORD_LEN, ZoneInfo};
use zoneplug_core::{Bio, BioPool, Bios, Error, Flags, Op, Sector, Status, ZoneNo};

/// Zones asked for in one report.
const ZONES_PER_REPORT: u32 = 1024;

/// Why an operation failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IoError {
    /// What was asked for.
    pub op: Op,
    /// Where.
    pub sector: Sector,
    /// How it ended. [`Status::Timeout`] if it has not ended within the adapter's timeout.
    pub status: Status,
}

impl fmt::Display for IoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}: ", self.op.name(), self.sector)?;
        // The range of a management command may begin with a zone and not end with one.
        match self.status {
            Status::NotZoneStart if self.op.is_zone_management() => f.write_str("not whole zones"),
            status => status.fmt(f),
        }
    }
}

impl std::error::Error for IoError {}

/// The sectors of a buffer. A part of one can be neither read nor written.
pub(crate) fn whole_sectors(buf: &AlignedBuf) -> Result<u32, Status> {
    if buf.len().is_multiple_of(512) { Ok(buf.len() >> 9) } else { Err(Status::Unaligned) }
}

/// A client that waits for each operation. Buffers go in by value and come back. The one of an operation that fails is
/// freed; but as long as a device may still use it (a timeout of either kind, a panic, a drop in mid-flight) the disk keeps
/// it: see [`HostedDisk::withheld`].
///
/// ```
/// use zoneplug_host::{BlockingDisk, HostedDisk};
/// use zoneplug_buf::AlignedBuf;
/// use zoneplug_core::Sector;
///
/// let disk = HostedDisk::open_spec("mem,zones=4,zone-size=1M").unwrap();
/// let mut io = BlockingDisk::new(&disk).unwrap();
/// let mut buf = AlignedBuf::zeroed(4096);
/// buf.write(0, b"hello");
/// let (at, _buf) = io.append(Sector(0), buf).unwrap();
/// assert_eq!(&io.read(at, 8).unwrap().to_vec()[..5], b"hello");
/// ```
#[derive(Debug)]
pub struct BlockingDisk {
    client: Client,
    pool: BioPool,
    list: Bios,
    done: Bios,
    timeout: Option<Duration>,
    next_token: u64,
    /// Buffers that a device may still use, with the tokens of their BIOs.
    lent: Vec<(u64, AlignedBuf)>,
}

impl BlockingDisk {
    /// BIOs that may be in flight when operations time out.
    const DEPTH: u32 = 16;

    /// A new client of `disk`.
    pub fn new(disk: &HostedDisk) -> Result<BlockingDisk, Error> {
        Ok(BlockingDisk {
            client: disk.open_client(Self::DEPTH, Self::DEPTH as u16)?,
            pool: BioPool::new(1),
            list: Bios::new(),
            done: Bios::new(),
            timeout: None,
            next_token: 0,
            lent: Vec::new(),
        })
    }

    /// How long an operation may take before this adapter waits no longer, with [`Status::Timeout`]; its outcome is unknown
    /// then, and it goes on. A disk's own deadline (`timeout=` in a specification) is that of a command: what it ends, the
    /// layer has settled, so that the zone can be reported and written again.
    pub fn set_timeout(&mut self, timeout: Option<Duration>) {
        self.timeout = timeout;
    }

    /// Reads `len_sectors` at `sector`.
    pub fn read(&mut self, sector: Sector, len_sectors: u32) -> Result<AlignedBuf, IoError> {
        let Some(len) = len_sectors.checked_mul(512) else {
            return Err(IoError { op: Op::Read, sector, status: Status::OutOfRange });
        };
        let buf = AlignedBuf::zeroed(len);
        self.with_buf(Op::Read, sector, Flags::NONE, buf).map(|(_, buf)| buf)
    }

    /// Writes `buf` at `sector`, which must be the write pointer of a sequential zone. The buffer comes back.
    pub fn write(&mut self, sector: Sector, buf: AlignedBuf) -> Result<AlignedBuf, IoError> {
        self.with_buf(Op::Write, sector, Flags::NONE, buf).map(|(_, buf)| buf)
    }

    /// As [`BlockingDisk::write`], and durable when it returns.
    pub fn write_fua(&mut self, sector: Sector, buf: AlignedBuf) -> Result<AlignedBuf, IoError> {
        self.with_buf(Op::Write, sector, Flags::FUA, buf).map(|(_, buf)| buf)
    }

    /// Writes `buf` wherever the write pointer of the zone that starts at `zone_start` is, and says where that was.
    pub fn append(
        &mut self,
        zone_start: Sector,
        buf: AlignedBuf,
    ) -> Result<(Sector, AlignedBuf), IoError> {
        self.with_buf(Op::ZoneAppend, zone_start, Flags::NONE, buf)
    }

    /// Makes durable what was acknowledged.
    pub fn flush(&mut self) -> Result<(), IoError> {
        self.plain(Op::Flush, Sector(0), 0)
    }

    /// Forgets the data of a range of conventional zones.
    pub fn discard(&mut self, sector: Sector, len_sectors: u32) -> Result<(), IoError> {
        self.plain(Op::Discard, sector, len_sectors)
    }

    /// Management of the zones of a range: reset, finish, open or close.
    pub fn manage(&mut self, op: Op, sector: Sector, len_sectors: u32) -> Result<(), IoError> {
        if !op.is_zone_management() {
            return Err(IoError { op, sector, status: Status::NotSupported });
        }
        self.plain(op, sector, len_sectors)
    }

    /// Empties the zones of a range.
    pub fn reset(&mut self, sector: Sector, len_sectors: u32) -> Result<(), IoError> {
        self.manage(Op::ZoneReset, sector, len_sectors)
    }

    /// Makes the zones of a range full.
    pub fn finish(&mut self, sector: Sector, len_sectors: u32) -> Result<(), IoError> {
        self.manage(Op::ZoneFinish, sector, len_sectors)
    }

    /// Up to `nr` zones from the one that holds `sector`, as the device reports them.
    pub fn report(&mut self, sector: Sector, nr: u32) -> Result<Vec<ZoneInfo>, IoError> {
        self.report_with(sector, nr, Flags::NONE)
    }

    /// A report that also corrects what the layer knows of idle zones, after something else has changed them (E10).
    pub fn resync(&mut self, sector: Sector, nr: u32) -> Result<Vec<ZoneInfo>, IoError> {
        self.report_with(sector, nr, Flags::RESYNC)
    }

    /// One zone. A device that reports none is an error.
    pub fn zone(&mut self, disk: &HostedDisk, zone: ZoneNo) -> Result<ZoneInfo, IoError> {
        let sector = disk.disk().geometry().zone_start(zone);
        let zones = self.report(sector, 1)?;
        let none = IoError { op: Op::ReportZones, sector, status: Status::Io };
        zones.first().copied().ok_or(none)
    }

    fn report_with(
        &mut self,
        mut sector: Sector,
        nr: u32,
        flags: Flags,
    ) -> Result<Vec<ZoneInfo>, IoError> {
        let mut zones: Vec<ZoneInfo> = Vec::new();
        while (zones.len() as u32) < nr {
            let ask = (nr - zones.len() as u32).min(ZONES_PER_REPORT);
            let buf = AlignedBuf::zeroed(ask * ZONE_RECORD_LEN as u32);
            let (got, buf) = match self.run(Op::ReportZones, sector, 0, flags, Some(buf)) {
                Ok((bio, buf)) => {
                    let got = bio.result;
                    self.pool.put(bio);
                    (got, buf)
                }
                // The end of the disk.
                Err(e) if e.status == Status::OutOfRange && !zones.is_empty() => break,
                Err(e) => return Err(e),
            };
            let Some(buf) = buf else { break };
            for i in 0..got {
                let mut record = [0; ZONE_RECORD_LEN];
                buf.read(i * ZONE_RECORD_LEN as u32, &mut record);
                let Some(zone) = ZoneInfo::decode(&record) else {
                    return Err(IoError { op: Op::ReportZones, sector, status: Status::Io });
                };
                zones.push(zone);
            }
            let Some(last) = zones.last() else { break };
            sector = last.start.plus(last.len_sectors);
            if got < ask {
                break;
            }
        }
        Ok(zones)
    }

    fn with_buf(
        &mut self,
        op: Op,
        sector: Sector,
        flags: Flags,
        buf: AlignedBuf,
    ) -> Result<(Sector, AlignedBuf), IoError> {
        let len_sectors = whole_sectors(&buf).map_err(|status| IoError { op, sector, status })?;
        let (bio, buf) = self.run(op, sector, len_sectors, flags, Some(buf))?;
        let at = bio.sector;
        self.pool.put(bio);
        buf.map(|buf| (at, buf)).ok_or(IoError { op, sector, status: Status::Aborted })
    }

    fn plain(&mut self, op: Op, sector: Sector, len_sectors: u32) -> Result<(), IoError> {
        let (bio, _) = self.run(op, sector, len_sectors, Flags::NONE, None)?;
        self.pool.put(bio);
        Ok(())
    }

    /// Sends one BIO and waits for it.
    fn run(
        &mut self,
        op: Op,
        sector: Sector,
        len_sectors: u32,
        flags: Flags,
        buf: Option<AlignedBuf>,
    ) -> Result<(Box<Bio>, Option<AlignedBuf>), IoError> {
        let fail = |status| IoError { op, sector, status };
        let token = self.next_token;
        self.next_token += 1;
        let mut bio = self.pool.get();
        let io = match buf {
            Some(buf) => {
                // SAFETY: the buffer goes into `lent`, and from there to the client only when its BIO has come back;
                // `drop` hands what is left to the lane, which outlives everything in flight. A forgotten adapter
                // leaks it.
                let io = unsafe { buf.io() };
                self.lent.push((token, buf));
                io
            }
            None => IoBuf::empty(),
        };
        bio.set(op, sector, len_sectors, io);
        bio.flags = flags;
        bio.set_token(token);
        self.list.push_back(bio);
        let start = std::time::Instant::now();
        loop {
            self.client.submit(&mut self.list);
            if self.list.is_empty() {
                self.client.wait(&mut self.done, 1, self.timeout);
            } else if self.client.outstanding() > 0 {
                // Full of operations that were given up.
                self.client.wait(
                    &mut self.done,
                    1,
                    self.timeout.or(Some(Duration::from_millis(100))),
                );
            } else {
                self.client.wait_thaw(self.timeout);
            }
            while let Some(bio) = self.done.pop_front() {
                let buf = self.take_lent(bio.token());
                let buf = self.client.reclaim(&bio, buf);
                if bio.token() != token {
                    // An operation that was given up has ended after all.
                    self.pool.put(bio);
                    continue;
                }
                if !bio.status.is_ok() {
                    let status = bio.status;
                    self.pool.put(bio);
                    return Err(fail(status));
                }
                return Ok((bio, buf));
            }
            if self.timeout.is_some_and(|t| start.elapsed() >= t) {
                // Not even taken: the disk is frozen, or full of operations that were given up.
                while let Some(bio) = self.list.pop_front() {
                    self.take_lent(bio.token());
                    self.pool.put(bio);
                }
                return Err(fail(Status::Timeout));
            }
        }
    }

    fn take_lent(&mut self, token: u64) -> Option<AlignedBuf> {
        let i = self.lent.iter().position(|(t, _)| *t == token)?;
        Some(self.lent.swap_remove(i).1)
    }
}

impl Drop for BlockingDisk {
    fn drop(&mut self) {
        while let Some(bio) = self.done.pop_front() {
            let buf = self.take_lent(bio.token());
            drop(self.client.reclaim(&bio, buf));
        }
        let lent = std::mem::take(&mut self.lent);
        self.client.keep_buffers(lent.into_iter().map(|(_, buf)| buf));
    }
}
