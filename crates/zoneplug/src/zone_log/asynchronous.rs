//! The zone log with futures.

use super::cursor::Cursor;
use super::shared::Ask;
use super::turn::{Handle, Waiting};
use super::{LogAddress, LogError, LogOptions, Record, Recovery};
use super::{addresses, asked, cursor, lock, one, single, start, zones};
use std::ops::Range;
use std::sync::Arc;
use zoneplug_core::ZoneNo;
use zoneplug_host::{AsyncDisk, HostedDisk};

/// Operations at the device at a time.
const DEPTH: u16 = 32;

/// A log for tasks, on any executor. Clones are the same log.
///
/// An operation is queued when its method is called, so appends keep the order of the calls. If its
/// future is dropped, the operation may be carried out or not. It may still be at the disk when the
/// last handle of the log has been dropped, so await all operations before opening the log, or a
/// set with it, again.
///
/// ```
/// use zoneplug::HostedDisk;
/// use zoneplug::zone_log::{AsyncZoneLog, LogOptions};
///
/// async fn hello(disk: &HostedDisk) -> Result<Vec<u8>, Box<dyn std::error::Error>> {
///     let log = AsyncZoneLog::open(disk, LogOptions::new()).await?;
///     let at = log.append(b"hello").await?;
///     log.sync().await?;
///     Ok(log.read(at).await?)
/// }
/// # use std::{future::Future, pin::pin, task::{Context, Poll, Waker}};
/// # let disk = HostedDisk::open_spec("mem,zones=4,zone-size=1M")?;
/// # let mut f = pin!(hello(&disk));
/// # let data = loop {
/// #     if let Poll::Ready(d) = f.as_mut().poll(&mut Context::from_waker(Waker::noop())) { break d? }
/// # };
/// # assert_eq!(data, b"hello");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct AsyncZoneLog {
    handle: Arc<Handle<AsyncDisk>>,
    recovery: Arc<Recovery>,
}

impl std::fmt::Debug for AsyncZoneLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AsyncZoneLog").field("recovery", &self.recovery).finish_non_exhaustive()
    }
}

impl AsyncZoneLog {
    /// Opens a log as [`ZoneLog::open`](super::ZoneLog::open) does.
    pub async fn open(disk: &HostedDisk, options: LogOptions) -> Result<AsyncZoneLog, LogError> {
        single(Self::start(disk, options, 1, false).await?)
    }

    /// Begins a log as [`ZoneLog::create`](super::ZoneLog::create) does.
    pub async fn create(disk: &HostedDisk, options: LogOptions) -> Result<AsyncZoneLog, LogError> {
        single(Self::start(disk, options, 1, true).await?)
    }

    /// Opens a set as [`ZoneLog::open_set`](super::ZoneLog::open_set) does.
    pub async fn open_set(
        disk: &HostedDisk,
        options: LogOptions,
        logs: u32,
    ) -> Result<Vec<AsyncZoneLog>, LogError> {
        Self::start(disk, options, logs, false).await
    }

    /// Begins a set as [`ZoneLog::create_set`](super::ZoneLog::create_set) does.
    pub async fn create_set(
        disk: &HostedDisk,
        options: LogOptions,
        logs: u32,
    ) -> Result<Vec<AsyncZoneLog>, LogError> {
        Self::start(disk, options, logs, true).await
    }

    async fn start(
        disk: &HostedDisk,
        options: LogOptions,
        logs: u32,
        erase: bool,
    ) -> Result<Vec<AsyncZoneLog>, LogError> {
        let io = || AsyncDisk::new(disk, DEPTH).map_err(|e| LogError::Setup(e.to_string()));
        let started = start(io, disk, &options, logs, erase).await?;
        Ok(started
            .into_iter()
            .map(|(handle, recovery)| AsyncZoneLog { handle, recovery })
            .collect())
    }

    /// The findings of opening the log.
    pub fn recovery(&self) -> &Recovery {
        &self.recovery
    }

    fn put(
        &self,
        records: Vec<Vec<u8>>,
        sync: bool,
    ) -> impl Future<Output = Result<Vec<LogAddress>, LogError>> + Send + use<> {
        let waiting = asked(&self.handle, records, sync);
        async move { addresses(waiting?.await?) }
    }

    /// Appends a record as [`ZoneLog::append`](super::ZoneLog::append) does.
    pub fn append(
        &self,
        record: &[u8],
    ) -> impl Future<Output = Result<LogAddress, LogError>> + Send + use<> {
        let list = self.put(vec![record.to_vec()], false);
        async move { one(&list.await?) }
    }

    /// Appends a record durably as [`ZoneLog::append_sync`](super::ZoneLog::append_sync) does.
    pub fn append_sync(
        &self,
        record: &[u8],
    ) -> impl Future<Output = Result<LogAddress, LogError>> + Send + use<> {
        let list = self.put(vec![record.to_vec()], true);
        async move { one(&list.await?) }
    }

    /// Appends records as [`ZoneLog::append_batch`](super::ZoneLog::append_batch) does.
    pub fn append_batch<R: AsRef<[u8]>>(
        &self,
        records: impl IntoIterator<Item = R>,
    ) -> impl Future<Output = Result<Vec<LogAddress>, LogError>> + Send {
        self.put(records.into_iter().map(|r| r.as_ref().to_vec()).collect(), false)
    }

    /// Makes records durable as [`ZoneLog::sync`](super::ZoneLog::sync) does.
    pub fn sync(&self) -> impl Future<Output = Result<(), LogError>> + Send + use<> {
        let waiting = Waiting::new(&self.handle, Ask::Sync);
        async move { waiting.await.map(drop) }
    }

    /// Reads a record as [`ZoneLog::read`](super::ZoneLog::read) does.
    pub async fn read(&self, at: LogAddress) -> Result<Vec<u8>, LogError> {
        cursor::read(&self.handle.0, at).await
    }

    /// Returns a cursor before the oldest record, like [`ZoneLog::iter`](super::ZoneLog::iter).
    pub fn cursor(&self) -> AsyncLogCursor {
        AsyncLogCursor { handle: self.handle.clone(), cursor: Cursor::default() }
    }

    /// Returns a cursor before the record at `at`, like
    /// [`ZoneLog::iter_from`](super::ZoneLog::iter_from).
    pub async fn cursor_from(&self, at: LogAddress) -> Result<AsyncLogCursor, LogError> {
        let cursor = Cursor::at(&self.handle.0, at).await?;
        Ok(AsyncLogCursor { handle: self.handle.clone(), cursor })
    }

    /// Resets old zones as [`ZoneLog::trim`](super::ZoneLog::trim) does.
    pub fn trim(
        &self,
        before: LogAddress,
    ) -> impl Future<Output = Result<Vec<ZoneNo>, LogError>> + Send + use<> {
        let waiting = Waiting::new(&self.handle, Ask::Trim(before));
        async move { zones(waiting.await?) }
    }

    /// Resets the oldest zone as [`ZoneLog::reset_oldest`](super::ZoneLog::reset_oldest) does.
    pub fn reset_oldest(
        &self,
    ) -> impl Future<Output = Result<Option<ZoneNo>, LogError>> + Send + use<> {
        let waiting = Waiting::new(&self.handle, Ask::ResetOldest);
        async move { Ok(zones(waiting.await?)?.first().copied()) }
    }

    /// The length of the longest record that the log accepts, in bytes.
    pub fn max_record_len(&self) -> u64 {
        lock(&self.handle.0.table).max_len()
    }

    /// The numbers of the records, as [`ZoneLog::numbers`](super::ZoneLog::numbers) returns them.
    pub fn numbers(&self) -> Range<u64> {
        lock(&self.handle.0.table).numbers()
    }
}

/// A place in an [`AsyncZoneLog`].
pub struct AsyncLogCursor {
    handle: Arc<Handle<AsyncDisk>>,
    cursor: Cursor,
}

impl std::fmt::Debug for AsyncLogCursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AsyncLogCursor").field("cursor", &self.cursor).finish_non_exhaustive()
    }
}

impl AsyncLogCursor {
    /// Returns the next record, or the error before it. `None` if there are no more records so far.
    pub async fn next(&mut self) -> Option<Result<Record, LogError>> {
        self.cursor.next(&self.handle.0).await
    }
}
