//! The blocking adapter: one operation at a time.

use crate::runtime::batch::{Batch, Done, OpId};
use crate::runtime::hosted::HostedDisk;
use crate::runtime::io_error::IoError;
use std::io::IoSlice;
use std::time::Duration;
use zoneplug_buf::AlignedBuf;
use zoneplug_core::zone::{Geometry, ZONE_RECORD_LEN, ZoneInfo};
use zoneplug_core::{Error, Flags, Op, Sector, Status, ZoneNo};

/// The zones that one report asks for.
pub(crate) const ZONES_PER_REPORT: u32 = 1024;

/// A client that waits for each operation. Addresses and lengths are in sectors of 512 bytes; those of data are
/// multiples of the disk's block.
///
/// Buffers go in by value and come back, also from an operation that fails ([`IoError::into_buf`]). The disk keeps a
/// buffer that the device may still use, as after a timeout or a panic of the device: see [`HostedDisk::withheld`].
/// [`append_from`](BlockingDisk::append_from), [`write_from`](BlockingDisk::write_from) and
/// [`read_into`](BlockingDisk::read_into) take slices instead, and copy.
///
/// ```
/// use zoneplug_host::{BlockingDisk, HostedDisk};
/// use zoneplug_core::ZoneNo;
///
/// let disk = HostedDisk::open_spec("mem,zones=4,zone-size=1M").unwrap();
/// let mut io = BlockingDisk::new(&disk).unwrap();
/// let zone = io.zone(ZoneNo(2)).unwrap();
/// let at = io.append_from(zone.start, &[7; 4096]).unwrap();
/// let mut back = [0; 4096];
/// io.read_into(at, &mut back).unwrap();
/// assert_eq!(back, [7; 4096]);
/// ```
#[derive(Debug)]
pub struct BlockingDisk {
    batch: Batch,
    timeout: Option<Duration>,
    give_up: Option<fn() -> bool>,
}

impl BlockingDisk {
    /// Most operations at the device at a time, including those that were given up.
    const DEPTH: u16 = 16;

    /// A new client of `disk`. Fails if the system refuses a thread.
    pub fn new(disk: &HostedDisk) -> Result<BlockingDisk, Error> {
        let batch = Batch::new(disk, Self::DEPTH)?;
        Ok(BlockingDisk { batch, timeout: None, give_up: None })
    }

    /// How long this adapter waits for an operation. After that the operation fails with [`Status::Timeout`]; it
    /// continues, and its outcome is unknown. A disk's own deadline (`timeout=` in a specification) limits a command:
    /// after it the layer gives up the command, and the zone can be reported and written again.
    pub fn set_timeout(&mut self, timeout: Option<Duration>) {
        self.timeout = timeout;
    }

    /// While an operation waits, calls `give_up` about every 50 ms in the waiting thread: for a program that learns
    /// by other means than a time that it should stop waiting. If it returns true, the operation ends as after
    /// [`set_timeout`](BlockingDisk::set_timeout). An operation that ends sooner does not call it.
    ///
    /// ```
    /// # use zoneplug_host::{BlockingDisk, HostedDisk};
    /// # use zoneplug_core::{Sector, Status};
    /// let disk = HostedDisk::open_spec("mem,zones=4,zone-size=1M,fault=write/delay=1h").unwrap();
    /// let mut io = BlockingDisk::new(&disk).unwrap();
    /// io.give_up_when(Some(|| true));
    /// assert_eq!(io.write_from(Sector(0), &[0; 4096]).unwrap_err().status, Status::Timeout);
    /// ```
    pub fn give_up_when(&mut self, give_up: Option<fn() -> bool>) {
        self.give_up = give_up;
    }

    /// Starts or stops recording how long operations take. An operation is recorded if this was on when it was
    /// submitted.
    #[cfg(feature = "latency")]
    pub fn record_latency(&mut self, on: bool) {
        self.batch.record_latency(on);
    }

    /// How long operations took while [`record_latency`](BlockingDisk::record_latency) was on.
    #[cfg(feature = "latency")]
    pub fn latencies(&self) -> &crate::Latencies {
        self.batch.latencies()
    }

    /// The layout of zones, as it is now.
    pub fn geometry(&self) -> Geometry {
        self.batch.client().geometry()
    }

    /// Reads `len_sectors` at `sector` into a new buffer.
    pub fn read(&mut self, sector: Sector, len_sectors: u64) -> Result<AlignedBuf, IoError> {
        let len = self.batch.client().check_read(sector, len_sectors)?;
        self.read_buf(sector, AlignedBuf::zeroed(len))
    }

    /// Fills `buf` with the data at `sector`, and returns it.
    ///
    /// ```
    /// # use zoneplug_host::{BlockingDisk, HostedDisk};
    /// # use zoneplug_buf::AlignedBuf;
    /// # use zoneplug_core::Sector;
    /// let disk = HostedDisk::open_spec("mem,zones=4,zone-size=1M").unwrap();
    /// let mut io = BlockingDisk::new(&disk).unwrap();
    /// io.write_from(Sector(0), &[7; 4096]).unwrap();
    /// let buf = io.read_buf(Sector(0), AlignedBuf::zeroed(4096)).unwrap();
    /// assert_eq!(buf.as_slice()[..], [7; 4096]);
    /// ```
    pub fn read_buf(&mut self, sector: Sector, buf: AlignedBuf) -> Result<AlignedBuf, IoError> {
        self.with_buf(Op::Read, sector, Flags::NONE, buf).map(|(_, buf)| buf)
    }

    /// Fills `bytes` with the data at `sector`. If it fails, `bytes` are unchanged.
    pub fn read_into(&mut self, sector: Sector, bytes: &mut [u8]) -> Result<(), IoError> {
        let len = self.batch.client().check_length(Op::Read, sector, bytes.len() as u64)?;
        let (_, buf) = self.with_buf(Op::Read, sector, Flags::NONE, AlignedBuf::zeroed(len))?;
        bytes.copy_from_slice(buf.as_slice());
        Ok(())
    }

    /// Writes `buf` at `sector`, which must be the write pointer of a sequential zone. Returns the buffer.
    pub fn write(&mut self, sector: Sector, buf: AlignedBuf) -> Result<AlignedBuf, IoError> {
        self.with_buf(Op::Write, sector, Flags::NONE, buf).map(|(_, buf)| buf)
    }

    /// Like [`BlockingDisk::write`], with a copy of `bytes`.
    pub fn write_from(&mut self, sector: Sector, bytes: &[u8]) -> Result<(), IoError> {
        self.write_vectored(sector, &[IoSlice::new(bytes)])
    }

    /// Like [`BlockingDisk::write`], with a copy of several pieces, one after the other. A piece may have any length;
    /// together they are whole blocks.
    pub fn write_vectored(
        &mut self,
        sector: Sector,
        pieces: &[IoSlice<'_>],
    ) -> Result<(), IoError> {
        self.batch.client().check_pieces(Op::Write, sector, pieces)?;
        self.write(sector, AlignedBuf::from_slices(pieces)).map(drop)
    }

    /// Like [`BlockingDisk::write`]. The data is durable when it returns.
    pub fn write_fua(&mut self, sector: Sector, buf: AlignedBuf) -> Result<AlignedBuf, IoError> {
        self.with_buf(Op::Write, sector, Flags::FUA, buf).map(|(_, buf)| buf)
    }

    /// Writes `buf` at the write pointer of the zone that starts at `zone_start`, and returns where that was.
    pub fn append(
        &mut self,
        zone_start: Sector,
        buf: AlignedBuf,
    ) -> Result<(Sector, AlignedBuf), IoError> {
        self.with_buf(Op::ZoneAppend, zone_start, Flags::NONE, buf)
    }

    /// Like [`BlockingDisk::append`]. The data is durable when it returns.
    pub fn append_fua(
        &mut self,
        zone_start: Sector,
        buf: AlignedBuf,
    ) -> Result<(Sector, AlignedBuf), IoError> {
        self.with_buf(Op::ZoneAppend, zone_start, Flags::FUA, buf)
    }

    /// Like [`BlockingDisk::append`], with a copy of `bytes`.
    pub fn append_from(&mut self, zone_start: Sector, bytes: &[u8]) -> Result<Sector, IoError> {
        self.append_vectored(zone_start, &[IoSlice::new(bytes)])
    }

    /// Like [`BlockingDisk::append`], with a copy of several pieces, one after the other.
    ///
    /// ```
    /// use std::io::IoSlice;
    /// # use zoneplug_host::{BlockingDisk, HostedDisk};
    /// # use zoneplug_core::Sector;
    /// let disk = HostedDisk::open_spec("mem,zones=4,zone-size=1M").unwrap();
    /// let mut io = BlockingDisk::new(&disk).unwrap();
    /// let (header, record) = ([1; 100], [2; 3996]);
    /// let at = io.append_vectored(Sector(0), &[IoSlice::new(&header), IoSlice::new(&record)]).unwrap();
    /// assert_eq!(io.read(at, 8).unwrap().as_slice()[99..101], [1, 2]);
    /// ```
    pub fn append_vectored(
        &mut self,
        zone_start: Sector,
        pieces: &[IoSlice<'_>],
    ) -> Result<Sector, IoError> {
        self.batch.client().check_pieces(Op::ZoneAppend, zone_start, pieces)?;
        self.append(zone_start, AlignedBuf::from_slices(pieces)).map(|(at, _)| at)
    }

    /// Makes acknowledged writes durable.
    pub fn flush(&mut self) -> Result<(), IoError> {
        let id = self.batch.flush();
        self.wait(id).map(drop)
    }

    /// Forgets the data of a range of conventional zones.
    pub fn discard(&mut self, sector: Sector, len_sectors: u64) -> Result<(), IoError> {
        let id = self.batch.discard(sector, len_sectors);
        self.wait(id).map(drop)
    }

    /// Writes zeroes at `sector`, which must be the write pointer of a sequential zone, without a buffer.
    ///
    /// ```
    /// # use zoneplug_host::{BlockingDisk, HostedDisk};
    /// # use zoneplug_core::{Sector, ZoneNo};
    /// let disk = HostedDisk::open_spec("mem,zones=4,zone-size=1M").unwrap();
    /// let mut io = BlockingDisk::new(&disk).unwrap();
    /// io.write_zeroes(Sector(0), 16).unwrap();
    /// assert_eq!(io.zone(ZoneNo(0)).unwrap().wp, Sector(16));
    /// ```
    pub fn write_zeroes(&mut self, sector: Sector, len_sectors: u64) -> Result<(), IoError> {
        let id = self.batch.write_zeroes(sector, len_sectors);
        self.wait(id).map(drop)
    }

    /// Management of the zones of a range: `op` is reset, reset of all zones, finish, open or close.
    pub fn manage(&mut self, op: Op, sector: Sector, len_sectors: u64) -> Result<(), IoError> {
        let id = self.batch.manage(op, sector, len_sectors);
        self.wait(id).map(drop)
    }

    /// Empties the zones of a range.
    pub fn reset(&mut self, sector: Sector, len_sectors: u64) -> Result<(), IoError> {
        self.manage(Op::ZoneReset, sector, len_sectors)
    }

    /// Makes the zones of a range full.
    pub fn finish(&mut self, sector: Sector, len_sectors: u64) -> Result<(), IoError> {
        self.manage(Op::ZoneFinish, sector, len_sectors)
    }

    /// Opens the zones of a range, which count against the limit of open zones until they are closed or full.
    pub fn open_zones(&mut self, sector: Sector, len_sectors: u64) -> Result<(), IoError> {
        self.manage(Op::ZoneOpen, sector, len_sectors)
    }

    /// Closes the open zones of a range.
    pub fn close_zones(&mut self, sector: Sector, len_sectors: u64) -> Result<(), IoError> {
        self.manage(Op::ZoneClose, sector, len_sectors)
    }

    /// Up to `nr` zones from the one that holds `sector`, as the device reports them.
    pub fn report(&mut self, sector: Sector, nr: u32) -> Result<Vec<ZoneInfo>, IoError> {
        self.report_with(sector, nr, Flags::NONE)
    }

    /// Reports zones, and corrects the layer's state of idle zones, after something else has changed them.
    pub fn resync(&mut self, sector: Sector, nr: u32) -> Result<Vec<ZoneInfo>, IoError> {
        self.report_with(sector, nr, Flags::RESYNC)
    }

    /// Reports one zone. Fails if the device reports none.
    pub fn zone(&mut self, zone: ZoneNo) -> Result<ZoneInfo, IoError> {
        let sector = self.geometry().zone_start(zone);
        let zones = self.report(sector, 1)?;
        let none = IoError::new(Op::ReportZones, sector, Status::Io);
        zones.first().copied().ok_or(none)
    }

    fn report_with(
        &mut self,
        mut sector: Sector,
        nr: u32,
        flags: Flags,
    ) -> Result<Vec<ZoneInfo>, IoError> {
        let mut zones = room_for_report(self.geometry(), sector, nr);
        while (zones.len() as u32) < nr {
            let ask = (nr - zones.len() as u32).min(ZONES_PER_REPORT);
            let buf = AlignedBuf::zeroed(ask * ZONE_RECORD_LEN as u32);
            let id = self.batch.begin(Op::ReportZones, sector, 0, flags, Some(buf));
            let Done { buf, count, .. } = match self.wait(id) {
                Ok(done) => done,
                // The disk ends here.
                Err(e) if e.status == Status::OutOfRange && !zones.is_empty() => break,
                Err(e) => return Err(e),
            };
            match decode_zones(buf, count, ask, &mut zones) {
                Ok(Some(next)) => sector = next,
                Ok(None) => break,
                Err(status) => return Err(IoError::new(Op::ReportZones, sector, status)),
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
        let id = self.batch.move_data(op, sector, flags, buf);
        let done = self.wait(id)?;
        let at = done.sector;
        done.buf.map(|buf| (at, buf)).ok_or(IoError::new(op, sector, Status::Io))
    }

    fn wait(&mut self, id: OpId) -> Result<Done, IoError> {
        self.batch.wait_for(id, self.timeout, self.give_up)
    }
}

/// A list for `nr` zones from `sector`, as far as the disk has them: a list that grows may take twice the memory.
pub(crate) fn room_for_report(g: Geometry, sector: Sector, nr: u32) -> Vec<ZoneInfo> {
    let left = g.nr_zones().saturating_sub(g.zone_of(sector).0.0);
    Vec::with_capacity(nr.min(left) as usize)
}

/// Appends the `count` zones of a report that asked for `ask`. Returns where the next report begins, if there is one.
pub(crate) fn decode_zones(
    buf: Option<AlignedBuf>,
    count: u32,
    ask: u32,
    zones: &mut Vec<ZoneInfo>,
) -> Result<Option<Sector>, Status> {
    let buf = buf.ok_or(Status::Io)?;
    for record in buf.as_slice().chunks_exact(ZONE_RECORD_LEN).take(count as usize) {
        let record = record.try_into().map_err(|_| Status::Io)?;
        zones.push(ZoneInfo::decode(record).ok_or(Status::Io)?);
    }
    // A device may report a zone that ends past the largest address. The next report then begins past the disk.
    let end = |z: &ZoneInfo| Sector(z.start.0.saturating_add(z.len_sectors));
    let next = zones.last().map(end);
    Ok(next.filter(|_| count >= ask))
}
