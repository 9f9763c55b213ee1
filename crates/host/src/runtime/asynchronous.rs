//! The async adapter: any number of operations at a time as futures, buffers by value. Runs in any executor.

use crate::runtime::batch::whole_sectors;
use crate::runtime::blocking::{ZONES_PER_REPORT, decode_zones, room_for_report};
use crate::runtime::futures::AsyncShared;
use crate::runtime::hosted::HostedDisk;
use crate::runtime::io_error::IoError;
use std::future::Future;
use std::io::IoSlice;
use std::sync::Arc;
use zoneplug_buf::AlignedBuf;
use zoneplug_core::zone::{Geometry, ZONE_RECORD_LEN, ZoneInfo};
use zoneplug_core::{Error, Flags, Op, Sector, Status, ZoneNo};

/// A client whose operations are futures. Clones share it. Addresses and lengths are in sectors of 512 bytes; those
/// of data are multiples of the disk's block. An operation returns its buffer, also if it fails:
/// [`IoError::into_buf`].
///
/// The call accepts an operation, not the first poll, so operations are in the order of the calls, as writes to one
/// zone need. A future that was polled must be polled again when it is woken, or be dropped. Dropping a future gives
/// up its operation; its result is discarded. The disk keeps the buffer until the device is done with it, also after
/// the adapter is dropped, and also if the operation ends before the device is done (a command's deadline, a device
/// that panics): see [`HostedDisk::withheld`].
///
/// ```
/// use zoneplug_host::{AsyncDisk, HostedDisk};
/// use zoneplug_buf::AlignedBuf;
/// use zoneplug_core::Sector;
///
/// async fn hello(disk: &HostedDisk) -> Vec<u8> {
///     let io = AsyncDisk::new(disk, 16).unwrap();
///     let mut buf = AlignedBuf::zeroed(4096);
///     buf.write(0, b"hello");
///     let (first, second) = (io.append(Sector(0), buf), io.append(Sector(0), AlignedBuf::zeroed(4096)));
///     let (at, _buf) = first.await.unwrap();
///     assert_eq!(second.await.unwrap().0, at.plus(8));
///     io.read(at, 8).await.unwrap().to_vec()
/// }
/// let disk = HostedDisk::open_spec("mem,zones=4,zone-size=1M").unwrap();
/// # use std::{future::Future, pin::pin, task::{Context, Waker}};
/// # let mut future = pin!(hello(&disk));
/// # let data = loop {
/// #     if let std::task::Poll::Ready(d) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) { break d }
/// # };
/// assert_eq!(&data[..5], b"hello");
/// ```
#[derive(Debug, Clone)]
pub struct AsyncDisk {
    shared: Arc<AsyncShared>,
}

impl AsyncDisk {
    /// A new client of `disk` with up to `depth` operations at the device; more wait in order.
    pub fn new(disk: &HostedDisk, depth: u16) -> Result<AsyncDisk, Error> {
        let client = disk.open_client(u32::from(depth), depth)?;
        Ok(AsyncDisk { shared: AsyncShared::new(client, depth) })
    }

    /// Starts or stops recording how long operations take. An operation is recorded if this was on when it was
    /// submitted.
    #[cfg(feature = "latency")]
    pub fn record_latency(&self, on: bool) {
        self.shared.state().recorder.switch(on);
    }

    /// How long operations took while [`record_latency`](AsyncDisk::record_latency) was on.
    #[cfg(feature = "latency")]
    pub fn latencies(&self) -> crate::Latencies {
        self.shared.state().recorder.latencies.clone()
    }

    /// The layout of zones, as it is now.
    pub fn geometry(&self) -> Geometry {
        self.shared.state().client.geometry()
    }

    /// Reads `len_sectors` at `sector` into a new buffer.
    pub fn read(
        &self,
        sector: Sector,
        len_sectors: u64,
    ) -> impl Future<Output = Result<AlignedBuf, IoError>> + Send + use<> {
        let len = self.shared.state().client.check_read(sector, len_sectors);
        let begun =
            len.map(|len| self.with_buf(Op::Read, sector, Flags::NONE, AlignedBuf::zeroed(len)));
        async move { begun?.await.map(|(_, buf)| buf) }
    }

    /// Fills `bytes` with the data at `sector`. If it fails, or the future is dropped, `bytes` are unchanged.
    pub fn read_into<'a>(
        &self,
        sector: Sector,
        bytes: &'a mut [u8],
    ) -> impl Future<Output = Result<(), IoError>> + Send + use<'a> {
        let length = bytes.len() as u64;
        let len = self.shared.state().client.check_length(Op::Read, sector, length);
        let begun =
            len.map(|len| self.with_buf(Op::Read, sector, Flags::NONE, AlignedBuf::zeroed(len)));
        async move {
            let (_, buf) = begun?.await?;
            bytes.copy_from_slice(buf.as_slice());
            Ok(())
        }
    }

    /// Writes `buf` at `sector`, which must be the write pointer of a sequential zone once the writes accepted before
    /// are done. Returns the buffer.
    pub fn write(
        &self,
        sector: Sector,
        buf: AlignedBuf,
    ) -> impl Future<Output = Result<AlignedBuf, IoError>> + Send + use<> {
        let op = self.with_buf(Op::Write, sector, Flags::NONE, buf);
        async { op.await.map(|(_, buf)| buf) }
    }

    /// Like [`AsyncDisk::write`], with a copy of `bytes` that is made now.
    pub fn write_from(
        &self,
        sector: Sector,
        bytes: &[u8],
    ) -> impl Future<Output = Result<(), IoError>> + Send + use<> {
        self.write_vectored(sector, &[IoSlice::new(bytes)])
    }

    /// Like [`AsyncDisk::write`], with a copy of several pieces, one after the other, that is made now. A piece may
    /// have any length; together they are whole blocks.
    pub fn write_vectored(
        &self,
        sector: Sector,
        pieces: &[IoSlice<'_>],
    ) -> impl Future<Output = Result<(), IoError>> + Send + use<> {
        let checked = self.shared.state().client.check_pieces(Op::Write, sector, pieces);
        let begun = checked.map(|()| self.write(sector, AlignedBuf::from_slices(pieces)));
        async move { begun?.await.map(drop) }
    }

    /// Like [`AsyncDisk::write`]. The data is durable when the future is ready.
    pub fn write_fua(
        &self,
        sector: Sector,
        buf: AlignedBuf,
    ) -> impl Future<Output = Result<AlignedBuf, IoError>> + Send + use<> {
        let op = self.with_buf(Op::Write, sector, Flags::FUA, buf);
        async { op.await.map(|(_, buf)| buf) }
    }

    /// Writes `buf` at the write pointer of the zone that starts at `zone_start`, and returns where that was.
    pub fn append(
        &self,
        zone_start: Sector,
        buf: AlignedBuf,
    ) -> impl Future<Output = Result<(Sector, AlignedBuf), IoError>> + Send + use<> {
        self.with_buf(Op::ZoneAppend, zone_start, Flags::NONE, buf)
    }

    /// Like [`AsyncDisk::append`]. The data is durable when the future is ready.
    pub fn append_fua(
        &self,
        zone_start: Sector,
        buf: AlignedBuf,
    ) -> impl Future<Output = Result<(Sector, AlignedBuf), IoError>> + Send + use<> {
        self.with_buf(Op::ZoneAppend, zone_start, Flags::FUA, buf)
    }

    /// Like [`AsyncDisk::append`], with a copy of `bytes` that is made now.
    pub fn append_from(
        &self,
        zone_start: Sector,
        bytes: &[u8],
    ) -> impl Future<Output = Result<Sector, IoError>> + Send + use<> {
        self.append_vectored(zone_start, &[IoSlice::new(bytes)])
    }

    /// Like [`AsyncDisk::append`], with a copy of several pieces, one after the other, that is made now.
    pub fn append_vectored(
        &self,
        zone_start: Sector,
        pieces: &[IoSlice<'_>],
    ) -> impl Future<Output = Result<Sector, IoError>> + Send + use<> {
        let checked = self.shared.state().client.check_pieces(Op::ZoneAppend, zone_start, pieces);
        let begun = checked.map(|()| self.append(zone_start, AlignedBuf::from_slices(pieces)));
        async move { begun?.await.map(|(at, _)| at) }
    }

    /// Makes acknowledged writes durable.
    pub fn flush(&self) -> impl Future<Output = Result<(), IoError>> + Send + use<> {
        self.plain(Op::Flush, Sector(0), 0)
    }

    /// Forgets the data of a range of conventional zones.
    pub fn discard(
        &self,
        sector: Sector,
        len_sectors: u64,
    ) -> impl Future<Output = Result<(), IoError>> + Send + use<> {
        self.plain(Op::Discard, sector, len_sectors)
    }

    /// Writes zeroes in order, as [`AsyncDisk::write`] does, without a buffer.
    pub fn write_zeroes(
        &self,
        sector: Sector,
        len_sectors: u64,
    ) -> impl Future<Output = Result<(), IoError>> + Send + use<> {
        self.plain(Op::WriteZeroes, sector, len_sectors)
    }

    /// Management of the zones of a range: `op` is reset, reset of all zones, finish, open or close.
    pub fn manage(
        &self,
        op: Op,
        sector: Sector,
        len_sectors: u64,
    ) -> impl Future<Output = Result<(), IoError>> + Send + use<> {
        let begun = match op.is_zone_management() {
            true => Ok(self.plain(op, sector, len_sectors)),
            false => Err(IoError::new(op, sector, Status::NotSupported)),
        };
        async move { begun?.await }
    }

    /// Empties the zones of a range.
    pub fn reset(
        &self,
        sector: Sector,
        len_sectors: u64,
    ) -> impl Future<Output = Result<(), IoError>> + Send + use<> {
        self.plain(Op::ZoneReset, sector, len_sectors)
    }

    /// Makes the zones of a range full.
    pub fn finish(
        &self,
        sector: Sector,
        len_sectors: u64,
    ) -> impl Future<Output = Result<(), IoError>> + Send + use<> {
        self.plain(Op::ZoneFinish, sector, len_sectors)
    }

    /// Opens the zones of a range, which count against the limit of open zones until they are closed or full.
    pub fn open_zones(
        &self,
        sector: Sector,
        len_sectors: u64,
    ) -> impl Future<Output = Result<(), IoError>> + Send + use<> {
        self.plain(Op::ZoneOpen, sector, len_sectors)
    }

    /// Closes the open zones of a range.
    pub fn close_zones(
        &self,
        sector: Sector,
        len_sectors: u64,
    ) -> impl Future<Output = Result<(), IoError>> + Send + use<> {
        self.plain(Op::ZoneClose, sector, len_sectors)
    }

    /// Up to `nr` zones from the one that holds `sector`, as the device reports them.
    pub fn report(
        &self,
        sector: Sector,
        nr: u32,
    ) -> impl Future<Output = Result<Vec<ZoneInfo>, IoError>> + Send + use<> {
        report(self.clone(), sector, nr, Flags::NONE)
    }

    /// Reports zones, and corrects the layer's state of idle zones, after something else has changed them.
    pub fn resync(
        &self,
        sector: Sector,
        nr: u32,
    ) -> impl Future<Output = Result<Vec<ZoneInfo>, IoError>> + Send + use<> {
        report(self.clone(), sector, nr, Flags::RESYNC)
    }

    /// Reports one zone. Fails if the device reports none.
    pub fn zone(
        &self,
        zone: ZoneNo,
    ) -> impl Future<Output = Result<ZoneInfo, IoError>> + Send + use<> {
        let sector = self.geometry().zone_start(zone);
        let zones = self.report(sector, 1);
        let none = IoError::new(Op::ReportZones, sector, Status::Io);
        async move { zones.await?.first().copied().ok_or(none) }
    }

    /// The number of operations that were accepted and have not ended, including those that were given up.
    pub fn outstanding(&self) -> usize {
        self.shared.state().pending
    }

    fn with_buf(
        &self,
        op: Op,
        sector: Sector,
        flags: Flags,
        buf: AlignedBuf,
    ) -> impl Future<Output = Result<(Sector, AlignedBuf), IoError>> + Send + use<> {
        let begun = match whole_sectors(&buf) {
            Ok(len) => Ok(self.shared.begin(op, sector, len, flags, Some(buf))),
            Err(status) => Err(IoError::new(op, sector, status).with_buf(Some(buf))),
        };
        async move {
            let end = begun?.await;
            match end.buf {
                Some(buf) if end.status.is_ok() => Ok((end.sector, buf)),
                // The operation succeeded, but its buffer did not come back.
                None if end.status.is_ok() => Err(IoError::new(op, sector, Status::Io)),
                buf => Err(IoError::new(op, sector, end.status).with_buf(buf)),
            }
        }
    }

    fn plain(
        &self,
        op: Op,
        sector: Sector,
        len_sectors: u64,
    ) -> impl Future<Output = Result<(), IoError>> + Send + use<> {
        let begun = u32::try_from(len_sectors)
            .map_err(|_| IoError::new(op, sector, Status::OutOfRange))
            .map(|len| self.shared.begin(op, sector, len, Flags::NONE, None));
        async move {
            match begun?.await.status {
                Status::Ok => Ok(()),
                status => Err(IoError::new(op, sector, status)),
            }
        }
    }
}

async fn report(
    disk: AsyncDisk,
    mut sector: Sector,
    nr: u32,
    flags: Flags,
) -> Result<Vec<ZoneInfo>, IoError> {
    let op = Op::ReportZones;
    let mut zones = room_for_report(disk.geometry(), sector, nr);
    while (zones.len() as u32) < nr {
        let ask = (nr - zones.len() as u32).min(ZONES_PER_REPORT);
        let buf = AlignedBuf::zeroed(ask * ZONE_RECORD_LEN as u32);
        let end = disk.shared.begin(op, sector, 0, flags, Some(buf)).await;
        let next = match end.status {
            Status::Ok => decode_zones(end.buf, end.result, ask, &mut zones),
            // The disk ends here.
            Status::OutOfRange if !zones.is_empty() => break,
            status => Err(status),
        };
        match next.map_err(|status| IoError::new(op, sector, status))? {
            Some(next) => sector = next,
            None => break,
        }
    }
    Ok(zones)
}
