//! An append-only log over the sequential zones of a disk.
//!
//! A record is appended without choosing a place, gets a number and a [`LogAddress`], and can be
//! read by that address until its zone is reset. The log continues in the next zone by itself; it
//! finishes a zone before it writes the next, so it never has more than one zone open or active.
//! The caller decides which records are given up, and when: [`ZoneLog::trim`] and
//! [`ZoneLog::reset_oldest`].
//!
//! *Acknowledged* does not mean *durable*: [`ZoneLog::append`] returns when the disk has the
//! record, and a power cut may still take it, with everything behind it. [`ZoneLog::sync`] returns
//! when everything acknowledged before the call is durable. After a crash a log holds every durable
//! record, perhaps more, and always without a gap: a record is there only if all before it are.
//!
//! Appends of several threads or tasks share a write, and their syncs share a flush. For writes
//! that do not wait for each other there are *sets* of logs, which share their zones:
//! [`ZoneLog::open_set`].
//!
//! | file | what it owns |
//! | --- | --- |
//! | `format.rs` | the header of a record; docs/zone-log.md describes it |
//! | `table.rs` | the zones; decides, does no I/O |
//! | `pool.rs` | the zones that no log of a set has, and the flushes of the set |
//! | `walk.rs`, `cursor.rs` | reading from record to record |
//! | `recover.rs` | opening |
//! | `writer.rs` | appending, syncing, trimming |
//! | `shared.rs` | the requests of clients, and the answers |
//! | `turn.rs` | which client works on the requests of all |
//! | `sleepers.rs` | the wakers of waiting clients and logs |
//! | `io.rs` | the disk, blocking or with futures |

mod address;
mod asynchronous;
mod cursor;
mod error;
mod format;
mod io;
mod pool;
mod recover;
mod shared;
mod sleepers;
mod table;
mod turn;
mod walk;
mod writer;

pub use address::LogAddress;
pub use asynchronous::{AsyncLogCursor, AsyncZoneLog};
pub use error::LogError;
pub use recover::Recovery;
use zoneplug_core::poison::lock;

use cursor::Cursor;
use io::{Blocking, Io, block_on};
use shared::{Answer, Ask, Shared};
use std::ops::Range;
use std::sync::Arc;
use turn::{Handle, Waiting};
use zoneplug_core::ZoneNo;
use zoneplug_host::HostedDisk;

/// The id and the zones of a log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogOptions {
    pub(crate) id: u64,
    pub(crate) zones: Option<Range<u32>>,
}

impl LogOptions {
    /// Log 0, in all sequential zones of the disk.
    pub fn new() -> LogOptions {
        LogOptions::default()
    }

    /// Sets the id of the log. A log with another id is not opened. Give each log of a disk its
    /// own. The logs of a set have this id and the following ones.
    #[must_use]
    pub fn id(mut self, id: u64) -> LogOptions {
        self.id = id;
        self
    }

    /// Restricts the log to these zones, by number. Conventional zones among them are skipped.
    #[must_use]
    pub fn zones(mut self, zones: Range<u32>) -> LogOptions {
        self.zones = Some(zones);
        self
    }
}

/// A record and its address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Its address.
    pub address: LogAddress,
    /// The data appended.
    pub data: Vec<u8>,
}

/// A log for threads. Clones are the same log, and any number of threads may use them at a time. Do
/// not open a log a second time while it is open: the two instances would not know of each other's
/// records.
///
/// ```
/// use zoneplug::HostedDisk;
/// use zoneplug::zone_log::{LogOptions, ZoneLog};
///
/// let disk = HostedDisk::open_spec("mem,zones=4,zone-size=1M")?;
/// let log = ZoneLog::open(&disk, LogOptions::new())?;
/// let at = log.append(b"hello")?;
/// log.sync()?;
/// assert_eq!(log.read(at)?, b"hello");
/// # Ok::<(), zoneplug::Error>(())
/// ```
#[derive(Clone)]
pub struct ZoneLog {
    handle: Arc<Handle<Blocking>>,
    recovery: Arc<Recovery>,
}

impl std::fmt::Debug for ZoneLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ZoneLog").field("recovery", &self.recovery).finish_non_exhaustive()
    }
}

/// An opened log.
type Started<I> = (Arc<Handle<I>>, Arc<Recovery>);

/// Opens or begins a set of logs. `io` creates the disk operations of each.
async fn start<I: Io>(
    io: impl Fn() -> Result<I, LogError>,
    disk: &HostedDisk,
    options: &LogOptions,
    logs: u32,
    erase: bool,
) -> Result<Vec<Started<I>>, LogError> {
    let (g, limits) = (disk.disk().geometry(), disk.disk().limits());
    let set = recover::Set::new(options, &g, &limits, logs)?;
    let first = io()?;
    if erase {
        recover::erase(&first, &g, &set).await?;
    }
    let opened = recover::open(&first, &g, &limits, &set).await?;
    let mut first = Some(first);
    let mut started = Vec::new();
    for (table, recovery) in opened {
        let io = first.take().map_or_else(&io, Ok)?;
        started.push((Arc::new(Handle(Arc::new(Shared::new(io, table)))), Arc::new(recovery)));
    }
    Ok(started)
}

/// The log of a set of one.
fn single<T>(logs: Vec<T>) -> Result<T, LogError> {
    logs.into_iter().next().ok_or(LogError::Aborted)
}

/// Queues an append, unless a record fits no zone: then refuses all before anything is written.
fn asked<I: Io>(
    handle: &Arc<Handle<I>>,
    records: Vec<Vec<u8>>,
    sync: bool,
) -> Result<Waiting<I>, LogError> {
    let max = lock(&handle.0.table).max_len();
    match records.iter().map(|r| r.len() as u64).find(|len| *len > max) {
        Some(len) => Err(LogError::TooLong { len, max }),
        None => Ok(Waiting::new(handle, Ask::Append { records, sync })),
    }
}

fn addresses(answer: Answer) -> Result<Vec<LogAddress>, LogError> {
    match answer {
        Answer::Addresses(list) => Ok(list),
        Answer::Zones(_) => Err(LogError::Aborted),
    }
}

fn zones(answer: Answer) -> Result<Vec<ZoneNo>, LogError> {
    match answer {
        Answer::Zones(list) => Ok(list),
        Answer::Addresses(_) => Err(LogError::Aborted),
    }
}

fn one(list: &[LogAddress]) -> Result<LogAddress, LogError> {
    list.first().copied().ok_or(LogError::Aborted)
}

impl ZoneLog {
    /// Opens the log in the zones of `options`, or begins one if all of them are empty.
    ///
    /// Reads the first block of each zone and all of the newest zone, and flushes: all records
    /// visible now are durable. Zones that are read-only or offline are not written, and
    /// [`ZoneLog::recovery`] names them.
    ///
    /// # Errors
    ///
    /// [`LogError::NotALog`] if the zones hold data, but no record of this log; [`LogError::Setup`]
    /// if there are fewer than two sequential zones; [`LogError::Io`] if the disk fails.
    pub fn open(disk: &HostedDisk, options: LogOptions) -> Result<ZoneLog, LogError> {
        single(Self::start(disk, &options, 1, false)?)
    }

    /// Begins a log: resets the zones of `options`, whatever they hold.
    ///
    /// # Errors
    ///
    /// Fails as [`ZoneLog::open`] does, but never with [`LogError::NotALog`].
    pub fn create(disk: &HostedDisk, options: LogOptions) -> Result<ZoneLog, LogError> {
        single(Self::start(disk, &options, 1, true)?)
    }

    /// Opens `logs` logs that share the zones of `options`, or begins them if all zones are empty.
    /// Their ids are the id of `options` and the following ones.
    ///
    /// The logs write side by side: a log has one zone open at a time, so the set has at most
    /// `logs` zones open, and appends to different logs do not wait for each other. Each log takes
    /// its next zone from the empty ones, and a zone that one log resets may go to any of them.
    ///
    /// Each log has its own numbers, its own order and its own syncs. Records of two logs have no
    /// order: a crash may take a record of one and leave a later record of another. A record appended
    /// after the sync of another one survives only together with that one. Syncs of several logs
    /// share a flush, or wait for the flush in progress. If a flush fails, no log of the set takes
    /// more records until the set is opened again.
    ///
    /// The same zones must be opened with the same id and number of logs. With fewer, the zones of
    /// the others are [foreign](Recovery::foreign); with more, the additional logs begin. Do not
    /// open a log of the set a second time while the set is open.
    ///
    /// ```
    /// use zoneplug::HostedDisk;
    /// use zoneplug::zone_log::{LogOptions, ZoneLog};
    ///
    /// let disk = HostedDisk::open_spec("mem,zones=16,zone-size=1M,max-open=4")?;
    /// let logs = ZoneLog::open_set(&disk, LogOptions::new(), 4)?;
    /// std::thread::scope(|s| {
    ///     for log in &logs {
    ///         s.spawn(move || log.append_sync(b"hello"));
    ///     }
    /// });
    /// assert!(logs.iter().all(|log| log.iter().count() == 1));
    /// # Ok::<(), zoneplug::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Fails as [`ZoneLog::open`] does; also with [`LogError::Setup`] if `logs` is 0 or more than
    /// the open or active zones that the disk allows, or if there are no more sequential zones than
    /// logs.
    pub fn open_set(
        disk: &HostedDisk,
        options: LogOptions,
        logs: u32,
    ) -> Result<Vec<ZoneLog>, LogError> {
        Self::start(disk, &options, logs, false)
    }

    /// Begins a set of logs, as [`ZoneLog::open_set`] opens it: resets the zones of `options`,
    /// whatever they hold.
    ///
    /// # Errors
    ///
    /// Fails as [`ZoneLog::open_set`] does, but never with [`LogError::NotALog`].
    pub fn create_set(
        disk: &HostedDisk,
        options: LogOptions,
        logs: u32,
    ) -> Result<Vec<ZoneLog>, LogError> {
        Self::start(disk, &options, logs, true)
    }

    fn start(
        disk: &HostedDisk,
        options: &LogOptions,
        logs: u32,
        erase: bool,
    ) -> Result<Vec<ZoneLog>, LogError> {
        let io = || Ok(Blocking::new(disk));
        let started = block_on(start(io, disk, options, logs, erase))?;
        Ok(started.into_iter().map(|(handle, recovery)| ZoneLog { handle, recovery }).collect())
    }

    /// The findings of opening the log.
    pub fn recovery(&self) -> &Recovery {
        &self.recovery
    }

    fn ask(&self, ask: Ask) -> Result<Answer, LogError> {
        block_on(Waiting::new(&self.handle, ask))
    }

    fn put(&self, records: Vec<Vec<u8>>, sync: bool) -> Result<Vec<LogAddress>, LogError> {
        addresses(block_on(asked(&self.handle, records, sync)?)?)
    }

    /// Appends a record. The record is acknowledged when this returns, and durable after the next
    /// [`ZoneLog::sync`].
    ///
    /// # Errors
    ///
    /// [`LogError::TooLong`] and [`LogError::Full`] leave the log as it was. After [`LogError::Io`]
    /// and [`LogError::ZoneLost`] the record may be in the log or not; the log continues behind it.
    pub fn append(&self, record: &[u8]) -> Result<LogAddress, LogError> {
        one(&self.put(vec![record.to_vec()], false)?)
    }

    /// Appends a record, and returns when it and all earlier records are durable.
    ///
    /// # Errors
    ///
    /// Fails as [`ZoneLog::append`] and [`ZoneLog::sync`] do.
    pub fn append_sync(&self, record: &[u8]) -> Result<LogAddress, LogError> {
        one(&self.put(vec![record.to_vec()], true)?)
    }

    /// Appends records in sequence, in as few writes as possible. Returns their addresses.
    ///
    /// # Errors
    ///
    /// Fails as [`ZoneLog::append`] does. After an error the first records may be in the log.
    pub fn append_batch<R: AsRef<[u8]>>(
        &self,
        records: impl IntoIterator<Item = R>,
    ) -> Result<Vec<LogAddress>, LogError> {
        self.put(records.into_iter().map(|r| r.as_ref().to_vec()).collect(), false)
    }

    /// Appends records as [`ZoneLog::append_batch`] does, and returns when they and all earlier records are durable.
    ///
    /// # Errors
    ///
    /// Fails as [`ZoneLog::append_batch`] and [`ZoneLog::sync`] do.
    pub fn append_batch_sync<R: AsRef<[u8]>>(
        &self,
        records: impl IntoIterator<Item = R>,
    ) -> Result<Vec<LogAddress>, LogError> {
        self.put(records.into_iter().map(|r| r.as_ref().to_vec()).collect(), true)
    }

    /// Makes everything acknowledged before the call durable.
    ///
    /// # Errors
    ///
    /// [`LogError::Io`] if the disk's flush fails. It is then unknown which records are durable,
    /// and the log takes no more records ([`LogError::Failed`]) until it is opened again.
    pub fn sync(&self) -> Result<(), LogError> {
        self.ask(Ask::Sync).map(drop)
    }

    /// Reads the record at `at`.
    ///
    /// # Errors
    ///
    /// [`LogError::Stale`] if its zone was reset or a crash took it; [`LogError::Corrupted`] if its
    /// checksum is wrong.
    pub fn read(&self, at: LogAddress) -> Result<Vec<u8>, LogError> {
        block_on(cursor::read(&self.handle.0, at))
    }

    /// Returns all records, oldest first, up to the end of the log when the iteration reaches it.
    ///
    /// Where records are missing, the iteration returns [`LogError::Hole`] or
    /// [`LogError::Corrupted`], and continues behind them.
    pub fn iter(&self) -> LogIter {
        LogIter { handle: self.handle.clone(), cursor: Cursor::default() }
    }

    /// Returns the records as [`ZoneLog::iter`] does, starting at `at`.
    ///
    /// # Errors
    ///
    /// Fails as [`ZoneLog::read`] does, if that record is not there.
    pub fn iter_from(&self, at: LogAddress) -> Result<LogIter, LogError> {
        let cursor = block_on(Cursor::at(&self.handle.0, at))?;
        Ok(LogIter { handle: self.handle.clone(), cursor })
    }

    /// Gives up records older than `before`: resets each zone that holds only such records. Records
    /// that share a zone with `before` or newer ones stay. Returns the zones that were reset. The
    /// newest zone with records is never reset.
    ///
    /// # Errors
    ///
    /// [`LogError::Io`] if a flush or reset fails; zones that were already reset stay so.
    pub fn trim(&self, before: LogAddress) -> Result<Vec<ZoneNo>, LogError> {
        zones(self.ask(Ask::Trim(before))?)
    }

    /// Resets the zone with the oldest records, and returns its number. `None` if only one zone
    /// holds records: the log keeps that zone.
    ///
    /// # Errors
    ///
    /// Fails as [`ZoneLog::trim`] does.
    pub fn reset_oldest(&self) -> Result<Option<ZoneNo>, LogError> {
        Ok(zones(self.ask(Ask::ResetOldest)?)?.first().copied())
    }

    /// The length of the longest record that the log accepts, in bytes.
    pub fn max_record_len(&self) -> u64 {
        lock(&self.handle.0.table).max_len()
    }

    /// The range of record numbers, from the oldest record to the next to be appended. Empty before
    /// the first record.
    pub fn numbers(&self) -> Range<u64> {
        lock(&self.handle.0.table).numbers()
    }
}

/// The records of a [`ZoneLog`], in order. After its end the iterator continues if more records
/// were appended.
pub struct LogIter {
    handle: Arc<Handle<Blocking>>,
    cursor: Cursor,
}

impl std::fmt::Debug for LogIter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LogIter").field("cursor", &self.cursor).finish_non_exhaustive()
    }
}

impl Iterator for LogIter {
    type Item = Result<Record, LogError>;

    fn next(&mut self) -> Option<Self::Item> {
        block_on(self.cursor.next(&self.handle.0))
    }
}
