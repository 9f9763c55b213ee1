//! A log in the zones of a disk: records that are appended, read by their address, and given up zone by zone.

use crate::boundary::{
    Failure, Options, Outcome, Process, Uncancelled, call, close, known, options, store, wide_call,
};
use crate::disk::{disk, zp_disk};
use crate::memory::{bytes, pieces};
use libc::{c_int, c_void, iovec};
use zoneplug::zone_log::{LogAddress, LogIter, LogOptions, Record, ZoneLog};

/// A flag of `zp_log_open`: begins a log, whatever its zones hold. They are reset.
pub const ZP_LOG_CREATE: u32 = 1;
/// A flag of an append to a log: the records, and all before them, are durable when the call returns.
pub const ZP_LOG_SYNC: u32 = 1;
/// The number of a record that does not exist.
pub const ZP_NO_RECORD: u64 = u64::MAX;

/// Options of a log. Set all bytes to zero, then `struct_size`; 0 is the default of each field.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct zp_log_options {
    /// `sizeof(struct zp_log_options)`.
    pub struct_size: usize,
    /// The id of the log. Each log of a disk has its own. The logs of a set have this id and those that follow.
    pub id: u64,
    /// The number of the first zone.
    pub first_zone: u32,
    /// How many zones. Conventional zones among them are skipped. Default: all up to the end of the disk.
    pub nr_zones: u32,
    /// 0 or `ZP_LOG_CREATE`.
    pub flags: u32,
    /// Zero.
    pub reserved: u32,
}

// SAFETY: numbers, for which zero is a value.
unsafe impl Options for zp_log_options {
    const NAME: &'static str = "zp_log_options";
}

/// The address of a record: valid until the zone of the record is reset. It names the record, not only the place, and may be
/// stored as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct zp_log_address {
    /// The number of the record: one more than that of the record before it.
    pub sequence: u64,
    /// The first byte of the record, counted from the start of the disk.
    pub position: u64,
    /// The opening of the log that has written it.
    pub session: u32,
    /// Zero.
    pub reserved: u32,
}

impl From<LogAddress> for zp_log_address {
    fn from(at: LogAddress) -> zp_log_address {
        let b = at.to_bytes();
        let number = |from: usize, to: usize| {
            b[from..to].iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
        };
        zp_log_address {
            sequence: number(0, 8),
            position: number(8, 16),
            session: number(16, 20) as u32,
            reserved: 0,
        }
    }
}

impl From<zp_log_address> for LogAddress {
    fn from(at: zp_log_address) -> LogAddress {
        let mut b = [0; LogAddress::LEN];
        b[..8].copy_from_slice(&at.sequence.to_le_bytes());
        b[8..16].copy_from_slice(&at.position.to_le_bytes());
        b[16..].copy_from_slice(&at.session.to_le_bytes());
        LogAddress::from_bytes(b)
    }
}

/// The findings of opening a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct zp_log_recovery {
    /// The number of the oldest record, or `ZP_NO_RECORD`.
    pub first: u64,
    /// The number of the newest record, or `ZP_NO_RECORD`.
    pub last: u64,
    /// Bytes behind the newest record that a crash has torn. They were never durable.
    pub torn_bytes: u64,
    /// Zones that hold records.
    pub zones_in_use: u32,
    /// Places in the newest zone where records are missing or damaged. `zp_log_next` finds them.
    pub holes: u32,
    /// Zones that the log cannot write: read-only or offline.
    pub lost: u32,
    /// Zones that hold other data. The log does not touch them.
    pub foreign: u32,
}

/// A record that `zp_log_next` has found.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct zp_log_record {
    /// The address of the record.
    pub address: zp_log_address,
    /// The data of the record. The cursor owns them until its next call.
    pub data: *const c_void,
    /// Bytes of the data.
    pub len: usize,
}

/// A log. Any number of threads may use it at a time. It keeps the disk open, also after `zp_close`.
pub struct zp_log {
    log: ZoneLog,
    process: Process,
}

/// A place between two records of a log. One thread at a time may use it.
pub struct zp_log_cursor {
    records: LogIter,
    /// The record whose data the program has.
    current: Option<Record>,
    process: Process,
}

/// The log that an argument names.
///
/// # Safety
///
/// `log` is null or was opened and not closed, and no other thread closes it meanwhile.
unsafe fn log<'a>(log: *const zp_log) -> Outcome<&'a ZoneLog> {
    // SAFETY: the caller's promise.
    let log = unsafe { log.as_ref() }
        .ok_or_else(|| Failure::invalid("the log is NULL", "what zp_log_open gave"))?;
    log.process.check()?;
    Ok(&log.log)
}

/// The address that an argument points to.
///
/// # Safety
///
/// `at` is null or points to an address.
unsafe fn address(at: *const zp_log_address) -> Outcome<LogAddress> {
    // SAFETY: the caller's promise.
    let at = unsafe { at.as_ref() };
    at.map(|at| (*at).into())
        .ok_or_else(|| Failure::invalid("the address is NULL", "what zp_log_append stored"))
}

/// Opens a log in the sequential zones of `disk`, or begins one if its zones are empty, and stores it in `*log`. `options` may be
/// NULL. All records that it finds are durable. Do not open a log a second time while it is open. -EEXIST: the zones hold other
/// data. -EINVAL: there are fewer than two zones.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zp_log_open(
    disk: *mut zp_disk,
    options: *const zp_log_options,
    log: *mut *mut zp_log,
) -> c_int {
    // SAFETY: an open disk, options and the place of one log, says the header.
    unsafe { zp_log_open_set(disk, options, 1, log) }
}

/// Opens a set of `nr_logs` logs that share their zones and write side by side, and stores them in the array `logs`. The same
/// zones must be opened with the same id and number of logs. Each is closed by itself.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zp_log_open_set(
    disk: *mut zp_disk,
    options: *const zp_log_options,
    nr_logs: u32,
    logs: *mut *mut zp_log,
) -> c_int {
    call(|| {
        // SAFETY: an open disk and options, says the header.
        let (disk, given) = unsafe { (self::disk(disk)?.hosted()?, self::options(options)?) };
        known(given.flags, ZP_LOG_CREATE, "0 or ZP_LOG_CREATE")?;
        if logs.is_null() {
            return Err(Failure::invalid("the place for the log is NULL", "a pointer's address"));
        }
        let all = disk.geometry().nr_zones();
        let end = match given.nr_zones {
            0 => all,
            nr => given.first_zone.saturating_add(nr),
        };
        let options = LogOptions::new().id(given.id).zones(given.first_zone..end);
        let _whole = Uncancelled::begin();
        let opened = match given.flags & ZP_LOG_CREATE {
            0 => ZoneLog::open_set(disk, options, nr_logs)?,
            _ => ZoneLog::create_set(disk, options, nr_logs)?,
        };
        for (n, log) in opened.into_iter().enumerate() {
            let new = Box::new(zp_log { log, process: Process::this() });
            // SAFETY: the array has `nr_logs` elements, says the header, and no more were opened.
            unsafe { logs.add(n).write(Box::into_raw(new)) };
        }
        Ok(0)
    })
}

/// Closes a log. NULL is allowed. No thread may be in a call with it. Cursors stay usable. Does not sync.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zp_log_close(log: *mut zp_log) {
    // SAFETY: NULL, or opened and not closed, says the header.
    unsafe { close(log, |log| log.process) };
}

/// Appends a record of `len` bytes, and stores its address in `*at`, unless that is NULL. It is acknowledged when this returns, and
/// durable after the next `zp_log_sync`; with `ZP_LOG_SYNC` in `flags` it is durable at once. -ENOSPC: the log is full, and
/// nothing was written; `zp_log_trim` makes room. -EMSGSIZE: no zone can hold the record.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zp_log_append(
    log: *mut zp_log,
    data: *const c_void,
    len: usize,
    flags: u32,
    at: *mut zp_log_address,
) -> c_int {
    let one = iovec { iov_base: data.cast_mut(), iov_len: len };
    // SAFETY: the caller's memory is one record, which is only read.
    unsafe { zp_log_append_batch(log, &raw const one, 1, flags, at) }
}

/// Appends records in order, in as few writes as possible: each piece of memory is a record. Stores their addresses in the array
/// `at`, unless that is NULL. After an error the first of them may be in the log.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zp_log_append_batch(
    log: *mut zp_log,
    records: *const iovec,
    nr_records: c_int,
    flags: u32,
    at: *mut zp_log_address,
) -> c_int {
    call(|| {
        known(flags, ZP_LOG_SYNC, "0 or ZP_LOG_SYNC")?;
        // SAFETY: an open log and a list, says the header.
        let (log, (list, _)) = unsafe { (self::log(log)?, pieces(records, nr_records)?) };
        let record = |piece: &iovec| {
            // SAFETY: memory that nothing writes meanwhile, says the header.
            unsafe { bytes(piece.iov_base, piece.iov_len) }
        };
        let records = list.iter().map(record).collect::<Outcome<Vec<&[u8]>>>()?;
        let _whole = Uncancelled::begin();
        let landed = match flags & ZP_LOG_SYNC {
            0 => log.append_batch(records)?,
            _ => log.append_batch_sync(records)?,
        };
        if !at.is_null() {
            for (n, one) in landed.into_iter().enumerate() {
                // SAFETY: the array has an element for each record, says the header.
                unsafe { at.add(n).write(one.into()) };
            }
        }
        Ok(0)
    })
}

/// Makes all records durable that were acknowledged before the call. If it fails, the log takes no more records
/// (-ENOTRECOVERABLE) until it is opened again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zp_log_sync(log: *mut zp_log) -> c_int {
    call(|| {
        let _whole = Uncancelled::begin();
        // SAFETY: an open log, says the header.
        unsafe { self::log(log)? }.sync()?;
        Ok(0)
    })
}

/// Copies the record at `*at` to the `size` bytes at `buf`, as much as fits, and returns the length of the whole record. -ESTALE:
/// it is not in the log (any more). -EBADMSG: it is damaged.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zp_log_read(
    log: *mut zp_log,
    at: *const zp_log_address,
    buf: *mut c_void,
    size: usize,
) -> i64 {
    wide_call(|| {
        // SAFETY: an open log and an address, says the header.
        let (log, at) = unsafe { (self::log(log)?, address(at)?) };
        if buf.is_null() && size > 0 {
            return Err(Failure::invalid("the buffer is NULL", "a buffer, or a size of 0"));
        }
        let _whole = Uncancelled::begin();
        let data = log.read(at)?;
        let n = data.len().min(size);
        if n > 0 {
            // SAFETY: both have so many bytes, says the header of `buf`.
            unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), buf.cast(), n) };
        }
        // A record is shorter than a zone.
        Ok(data.len() as i64)
    })
}

/// Gives up the records before `*before`: resets each zone that holds only such records. Returns how many zones were reset.
/// The newest zone with records is never reset.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zp_log_trim(log: *mut zp_log, before: *const zp_log_address) -> c_int {
    call(|| {
        // SAFETY: an open log and an address, says the header.
        let (log, before) = unsafe { (self::log(log)?, address(before)?) };
        let _whole = Uncancelled::begin();
        Ok(log.trim(before)?.len() as c_int)
    })
}

/// Resets the zone with the oldest records. Returns 1, or 0 if only one zone holds records: the log keeps that zone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zp_log_reset_oldest(log: *mut zp_log) -> c_int {
    call(|| {
        let _whole = Uncancelled::begin();
        // SAFETY: an open log, says the header.
        Ok(unsafe { self::log(log)? }.reset_oldest()?.is_some().into())
    })
}

/// Stores the number of the oldest record in `*first`, and that of the next record to be appended in `*next`: both are equal before
/// the first record. Either may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zp_log_numbers(
    log: *mut zp_log,
    first: *mut u64,
    next: *mut u64,
) -> c_int {
    call(|| {
        // SAFETY: an open log, says the header.
        let numbers = unsafe { self::log(log)? }.numbers();
        // SAFETY: NULL or places, says the header.
        unsafe {
            store(first, numbers.start);
            store(next, numbers.end);
        }
        Ok(0)
    })
}

/// Returns the length of the longest record that the log accepts, in bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zp_log_max_record(log: *mut zp_log) -> i64 {
    // SAFETY: an open log, says the header.
    wide_call(|| Ok(i64::try_from(unsafe { self::log(log)? }.max_record_len()).unwrap_or(i64::MAX)))
}

/// Stores in `*found` what opening the log has found.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zp_log_recovered(log: *mut zp_log, found: *mut zp_log_recovery) -> c_int {
    call(|| {
        // SAFETY: an open log, says the header.
        let r = unsafe { self::log(log)? }.recovery();
        let all = zp_log_recovery {
            first: r.first.unwrap_or(ZP_NO_RECORD),
            last: r.last.unwrap_or(ZP_NO_RECORD),
            torn_bytes: r.torn_bytes,
            zones_in_use: r.zones_in_use,
            holes: r.holes.len() as u32,
            lost: r.lost.len() as u32,
            foreign: r.foreign.len() as u32,
        };
        // SAFETY: NULL or a place, says the header.
        unsafe { store(found, all) };
        Ok(0)
    })
}

/// Stores in `*cursor` a cursor before the record at `*from`, or before the oldest one if `from` is NULL. -ESTALE: that record is
/// not in the log.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zp_log_cursor_open(
    log: *mut zp_log,
    from: *const zp_log_address,
    cursor: *mut *mut zp_log_cursor,
) -> c_int {
    call(|| {
        // SAFETY: an open log, says the header.
        let log = unsafe { self::log(log)? };
        if cursor.is_null() {
            return Err(Failure::invalid(
                "the place for the cursor is NULL",
                "a pointer's address",
            ));
        }
        let _whole = Uncancelled::begin();
        let records = match from.is_null() {
            true => log.iter(),
            // SAFETY: an address, says the header.
            false => log.iter_from(unsafe { address(from)? })?,
        };
        let new = zp_log_cursor { records, current: None, process: Process::this() };
        // SAFETY: not null, and the place of a pointer, says the header.
        unsafe { cursor.write(Box::into_raw(Box::new(new))) };
        Ok(0)
    })
}

/// Goes to the next record, and stores it in `*record`. Returns 1; 0 at the end, where a later call finds what was appended meanwhile.
/// -ENODATA: records are missing here. -EBADMSG: one is damaged. After either, the next call goes on behind them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zp_log_next(
    cursor: *mut zp_log_cursor,
    record: *mut zp_log_record,
) -> c_int {
    call(|| {
        // SAFETY: NULL or an open cursor that no other thread uses, says the header.
        let cursor = unsafe { cursor.as_mut() }.ok_or_else(|| {
            Failure::invalid("the cursor is NULL", "what zp_log_cursor_open gave")
        })?;
        cursor.process.check()?;
        if record.is_null() {
            return Err(Failure::invalid("the place for the record is NULL", "a zp_log_record"));
        }
        let _whole = Uncancelled::begin();
        cursor.current = cursor.records.next().transpose()?;
        let Some(Record { address, data }) = &cursor.current else { return Ok(0) };
        let (address, len) = ((*address).into(), data.len());
        let found = zp_log_record { address, data: data.as_ptr().cast(), len };
        // SAFETY: not null, and the place of a record, says the header.
        unsafe { record.write(found) };
        Ok(1)
    })
}

/// Closes a cursor. NULL is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zp_log_cursor_close(cursor: *mut zp_log_cursor) {
    // SAFETY: NULL, or opened and not closed, says the header.
    unsafe { close(cursor, |cursor| cursor.process) };
}
