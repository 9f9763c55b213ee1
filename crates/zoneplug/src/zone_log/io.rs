//! The disk operations that a log needs, blocking and as futures.
//!
//! The log itself is written once, as futures over [`Io`]. Blocking operations complete before they
//! return, so their futures never wait.

use super::LogError;
use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use zoneplug_buf::AlignedBuf;
use zoneplug_core::zone::ZoneInfo;
use zoneplug_core::{Op, Sector};
use zoneplug_host::IoError;
use zoneplug_host::{AsyncDisk, BlockingDisk, HostedDisk};

/// A flush in progress. The future does not borrow from the log that began it.
pub(super) type Flush = Pin<Box<dyn Future<Output = Result<(), LogError>> + Send>>;

/// Operations of a disk. Lengths in sectors.
pub(super) trait Io: Send + Sync + 'static {
    /// Reports one zone.
    fn zone(&self, start: Sector) -> impl Future<Output = Result<ZoneInfo, LogError>> + Send;
    /// Reports up to `nr` zones from the one that holds `start`.
    fn report(
        &self,
        start: Sector,
        nr: u32,
    ) -> impl Future<Output = Result<Vec<ZoneInfo>, LogError>> + Send;
    fn read(
        &self,
        sector: Sector,
        sectors: u32,
    ) -> impl Future<Output = Result<Vec<u8>, LogError>> + Send;
    fn write(
        &self,
        sector: Sector,
        buf: AlignedBuf,
    ) -> impl Future<Output = Result<(), LogError>> + Send;
    /// Begins a flush.
    fn flush(&self) -> Flush;
    fn manage(
        &self,
        op: Op,
        sector: Sector,
        sectors: u32,
    ) -> impl Future<Output = Result<(), LogError>> + Send;
}

#[allow(clippy::needless_pass_by_value)]
fn failed(e: IoError) -> LogError {
    LogError::Io { op: e.op, sector: e.sector, status: e.status }
}

fn first(zones: &[ZoneInfo], sector: Sector) -> Result<ZoneInfo, LogError> {
    let none = LogError::Io { op: Op::ReportZones, sector, status: zoneplug_core::Status::Io };
    zones.first().copied().ok_or(none)
}

/// Blocking operations, for any number of threads at a time.
#[derive(Debug)]
pub(super) struct Blocking {
    disk: HostedDisk,
    idle: Mutex<Vec<BlockingDisk>>,
}

impl Blocking {
    pub(super) fn new(disk: &HostedDisk) -> Blocking {
        Blocking { disk: disk.clone(), idle: Mutex::default() }
    }

    fn with<T>(
        &self,
        f: impl FnOnce(&mut BlockingDisk) -> Result<T, IoError>,
    ) -> Result<T, LogError> {
        let free = super::lock(&self.idle).pop();
        let mut client = match free {
            Some(client) => client,
            None => BlockingDisk::new(&self.disk).map_err(|e| LogError::Setup(e.to_string()))?,
        };
        let result = f(&mut client).map_err(failed);
        super::lock(&self.idle).push(client);
        result
    }
}

impl Io for Blocking {
    fn zone(&self, start: Sector) -> impl Future<Output = Result<ZoneInfo, LogError>> + Send {
        ready(self.with(|d| d.report(start, 1)).and_then(|z| first(&z, start)))
    }

    fn report(
        &self,
        start: Sector,
        nr: u32,
    ) -> impl Future<Output = Result<Vec<ZoneInfo>, LogError>> + Send {
        ready(self.with(|d| d.report(start, nr)))
    }

    fn read(
        &self,
        sector: Sector,
        sectors: u32,
    ) -> impl Future<Output = Result<Vec<u8>, LogError>> + Send {
        ready(self.with(|d| d.read(sector, sectors.into())).map(|b| b.to_vec()))
    }

    fn write(
        &self,
        sector: Sector,
        buf: AlignedBuf,
    ) -> impl Future<Output = Result<(), LogError>> + Send {
        ready(self.with(|d| d.write(sector, buf).map(drop)))
    }

    fn flush(&self) -> Flush {
        Box::pin(ready(self.with(BlockingDisk::flush)))
    }

    fn manage(
        &self,
        op: Op,
        sector: Sector,
        sectors: u32,
    ) -> impl Future<Output = Result<(), LogError>> + Send {
        ready(self.with(|d| d.manage(op, sector, sectors.into())))
    }
}

impl Io for AsyncDisk {
    async fn zone(&self, start: Sector) -> Result<ZoneInfo, LogError> {
        first(&AsyncDisk::report(self, start, 1).await.map_err(failed)?, start)
    }

    async fn report(&self, start: Sector, nr: u32) -> Result<Vec<ZoneInfo>, LogError> {
        AsyncDisk::report(self, start, nr).await.map_err(failed)
    }

    async fn read(&self, sector: Sector, sectors: u32) -> Result<Vec<u8>, LogError> {
        Ok(AsyncDisk::read(self, sector, sectors.into()).await.map_err(failed)?.to_vec())
    }

    async fn write(&self, sector: Sector, buf: AlignedBuf) -> Result<(), LogError> {
        AsyncDisk::write(self, sector, buf).await.map(drop).map_err(failed)
    }

    fn flush(&self) -> Flush {
        let begun = AsyncDisk::flush(self);
        Box::pin(async { begun.await.map_err(failed) })
    }

    async fn manage(&self, op: Op, sector: Sector, sectors: u32) -> Result<(), LogError> {
        AsyncDisk::manage(self, op, sector, sectors.into()).await.map_err(failed)
    }
}

struct Unpark(std::thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future to its end on this thread.
pub(super) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => return value,
            Poll::Pending => std::thread::park(),
        }
    }
}
