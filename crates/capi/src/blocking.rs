//! Calls that wait. They copy between the caller's memory and the library's own, so the caller may use any memory,
//! and the library does not use it after a call returns, also if the call fails.

use crate::boundary::{Failure, Outcome, call, known, wide_call};
use crate::disk::{disk, zp_disk};
use crate::memory::{bytes, pieces};
use crate::types::{ZP_FUA, ZP_RESYNC, zp_zone};
use libc::{c_int, c_void, iovec};
use std::collections::HashMap;
use std::io::IoSliceMut;
use zoneplug_buf::AlignedBuf;
use zoneplug_core::{Op, Sector, Status};
use zoneplug_host::{Batch, IoError};

/// Copies the memory of an operation, if the disk can take an operation of this length.
///
/// # Safety
///
/// The contract of [`pieces`]; each piece is memory that nothing writes meanwhile.
unsafe fn gathered(
    disk: &zp_disk,
    op: Op,
    sector: u64,
    iov: *const iovec,
    iovcnt: c_int,
) -> Outcome<AlignedBuf> {
    // SAFETY: the caller's promise.
    let (list, sum) = unsafe { pieces(iov, iovcnt) }?;
    disk.hosted()?.check_length(op, Sector(sector), sum.into())?;
    let mut buf = AlignedBuf::try_zeroed(sum).ok_or_else(Failure::no_memory)?;
    let mut at = 0;
    for piece in list {
        // SAFETY: the same.
        let piece = unsafe { bytes(piece.iov_base, piece.iov_len) }?;
        buf.write(at, piece);
        at += piece.len() as u32;
    }
    Ok(buf)
}

fn write(disk: &zp_disk, sector: u64, buf: AlignedBuf, flags: u32) -> Outcome<c_int> {
    known(flags, ZP_FUA.into(), "0 or ZP_FUA")?;
    disk.with_client(|io| {
        let fua = flags != 0;
        let sector = Sector(sector);
        if fua { io.write_fua(sector, buf) } else { io.write(sector, buf) }?;
        Ok(0)
    })
}

fn append(disk: &zp_disk, zone: u64, buf: AlignedBuf, flags: u32) -> Outcome<i64> {
    known(flags, ZP_FUA.into(), "0 or ZP_FUA")?;
    disk.with_client(|io| {
        let fua = flags != 0;
        let zone = Sector(zone);
        let (at, _) = if fua { io.append_fua(zone, buf) } else { io.append(zone, buf) }?;
        // No disk has 2^63 sectors: a byte number would exceed 64 bits.
        i64::try_from(at.0)
            .map_err(|_| Failure::new(libc::EOVERFLOW, "a sector above 2^63", "zp_queue"))
    })
}

/// Reads `len` bytes at `sector` into `buf`. Both are whole logical blocks. If it fails, `buf` is unchanged.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zp_read(
    disk: *mut zp_disk,
    sector: u64,
    buf: *mut c_void,
    len: usize,
) -> c_int {
    let iov = iovec { iov_base: buf, iov_len: len };
    // SAFETY: the caller's memory is one piece.
    unsafe { zp_readv(disk, sector, &raw const iov, 1) }
}

/// Reads into several pieces of memory, one after the other. A piece may have any length; together they are whole logical
/// blocks. If it fails, they are unchanged.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zp_readv(
    disk: *mut zp_disk,
    sector: u64,
    iov: *const iovec,
    iovcnt: c_int,
) -> c_int {
    call(|| {
        // SAFETY: an open disk and a list, says the header.
        let (disk, (list, len)) = unsafe { (self::disk(disk)?, pieces(iov, iovcnt)?) };
        if !len.is_multiple_of(512) {
            return Err(Failure::invalid(
                &format!("a read of {len} bytes"),
                "whole logical blocks",
            ));
        }
        disk.hosted()?.check_length(Op::Read, Sector(sector), len.into())?;
        let buf = AlignedBuf::try_zeroed(len).ok_or_else(Failure::no_memory)?;
        let data = disk.with_client(|io| Ok(io.read_buf(Sector(sector), buf)?))?;
        let mut at = 0;
        for piece in list {
            if piece.iov_len > 0 {
                // SAFETY: memory that the caller may write, says the header, and nothing else uses meanwhile.
                let mut piece = IoSliceMut::new(unsafe {
                    std::slice::from_raw_parts_mut(piece.iov_base.cast(), piece.iov_len)
                });
                data.read(at, &mut piece);
                at += piece.len() as u32;
            }
        }
        Ok(0)
    })
}

/// Writes `len` bytes of `buf` at `sector`, which is the write pointer of a sequential zone. Both are whole logical
/// blocks. `flags` is 0 or `ZP_FUA`. -EIO if the sector is not the write pointer; `zp_error_message` says so.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zp_write(
    disk: *mut zp_disk,
    sector: u64,
    buf: *const c_void,
    len: usize,
    flags: u32,
) -> c_int {
    let iov = iovec { iov_base: buf.cast_mut(), iov_len: len };
    // SAFETY: the caller's memory is one piece, which is only read.
    unsafe { zp_writev(disk, sector, &raw const iov, 1, flags) }
}

/// As `zp_write`, from several pieces of memory, one after the other. A piece may have any length.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zp_writev(
    disk: *mut zp_disk,
    sector: u64,
    iov: *const iovec,
    iovcnt: c_int,
    flags: u32,
) -> c_int {
    // SAFETY: an open disk and a list, says the header.
    call(|| unsafe {
        let disk = self::disk(disk)?;
        write(disk, sector, gathered(disk, Op::Write, sector, iov, iovcnt)?, flags)
    })
}

/// Writes `len` bytes of `buf` wherever the write pointer of the zone that starts at `zone_start` is. Returns the sector
/// at which they landed, or a negative errno. `flags` is 0 or `ZP_FUA`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zp_append(
    disk: *mut zp_disk,
    zone_start: u64,
    buf: *const c_void,
    len: usize,
    flags: u32,
) -> i64 {
    let iov = iovec { iov_base: buf.cast_mut(), iov_len: len };
    // SAFETY: the caller's memory is one piece, which is only read.
    unsafe { zp_appendv(disk, zone_start, &raw const iov, 1, flags) }
}

/// As `zp_append`, from several pieces of memory, one after the other. A piece may have any length.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zp_appendv(
    disk: *mut zp_disk,
    zone_start: u64,
    iov: *const iovec,
    iovcnt: c_int,
    flags: u32,
) -> i64 {
    // SAFETY: an open disk and a list, says the header.
    wide_call(|| unsafe {
        let disk = self::disk(disk)?;
        append(disk, zone_start, gathered(disk, Op::ZoneAppend, zone_start, iov, iovcnt)?, flags)
    })
}

/// Copies the memory of each append, if the disk can take an append of its length.
///
/// # Safety
///
/// Each piece is memory that nothing writes meanwhile.
unsafe fn each(disk: &zp_disk, zone: Sector, list: &[iovec]) -> Outcome<Vec<AlignedBuf>> {
    let disk = disk.hosted()?;
    let unit = disk.limits().write_granularity_sectors << 9;
    let copy = |piece: &iovec| {
        // SAFETY: the caller's promise.
        let piece = unsafe { bytes(piece.iov_base, piece.iov_len) }?;
        let len = disk.check_length(Op::ZoneAppend, zone, piece.len() as u64)?;
        if !len.is_multiple_of(unit) {
            return Err(IoError::new(Op::ZoneAppend, zone, Status::Unaligned).into());
        }
        let mut buf = AlignedBuf::try_zeroed(len).ok_or_else(Failure::no_memory)?;
        buf.write(0, piece);
        Ok(buf)
    };
    list.iter().map(copy).collect()
}

/// Sends all appends, and returns where each landed, or a negative errno; and the first failure.
fn append_all(
    batch: &mut Batch,
    zone: Sector,
    bufs: Vec<AlignedBuf>,
    fua: bool,
) -> (Vec<i64>, Option<Failure>) {
    let mut places = HashMap::new();
    let mut sectors = vec![i64::from(-libc::EIO); bufs.len()];
    for (n, buf) in bufs.into_iter().enumerate() {
        let id = if fua { batch.append_fua(zone, buf) } else { batch.append(zone, buf) };
        places.insert(id, n);
    }
    let mut first: Option<(usize, Failure)> = None;
    while let Some(one) = batch.wait_any(None) {
        let Some(n) = places.remove(&one.id) else { continue };
        // No disk has 2^63 sectors: a byte number would exceed 64 bits.
        sectors[n] = match one.result {
            Ok(done) => done.sector.0 as i64,
            Err(e) => {
                let failure = Failure::from(e);
                let number = failure.number().into();
                if first.as_ref().is_none_or(|(before, _)| *before > n) {
                    first = Some((n, failure));
                }
                number
            }
        };
    }
    (sectors, first.map(|(_, failure)| failure))
}

/// Appends each piece of memory by itself to the zone that starts at `zone_start`, with several at the device at a time, and
/// stores in `sectors[i]` where piece i landed, or a negative errno. Pieces of equal length land in the order of the list. Each
/// piece is whole logical blocks. `flags` is 0 or `ZP_FUA`. Returns 0 if all have landed, else the errno of the first piece
/// that has not. If a piece has a length that no append of the disk can have, none is sent.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zp_append_each(
    disk: *mut zp_disk,
    zone_start: u64,
    iov: *const iovec,
    iovcnt: c_int,
    flags: u32,
    sectors: *mut i64,
) -> c_int {
    call(|| {
        known(flags, ZP_FUA.into(), "0 or ZP_FUA")?;
        // SAFETY: an open disk and a list, says the header.
        let (disk, (list, _)) = unsafe { (self::disk(disk)?, pieces(iov, iovcnt)?) };
        if sectors.is_null() && !list.is_empty() {
            return Err(Failure::invalid("the array of sectors is NULL", "an array of int64_t"));
        }
        let zone = Sector(zone_start);
        // SAFETY: the memory of the list, says the header.
        let (found, failure) = match unsafe { each(disk, zone, list) } {
            Ok(bufs) => disk.with_batch(|batch| Ok(append_all(batch, zone, bufs, flags != 0)))?,
            Err(e) => (vec![e.number().into(); list.len()], Some(e)),
        };
        for (n, sector) in found.into_iter().enumerate() {
            // SAFETY: the array has an element for each piece, says the header.
            unsafe { sectors.add(n).write(sector) };
        }
        failure.map_or(Ok(0), Err)
    })
}

/// Makes durable what was acknowledged.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zp_flush(disk: *mut zp_disk) -> c_int {
    // SAFETY: an open disk, says the header.
    call(|| unsafe { self::disk(disk)? }.with_client(|io| Ok(io.flush().map(|()| 0)?)))
}

/// An operation on a range.
///
/// # Safety
///
/// `disk` is null or open.
unsafe fn range(disk: *mut zp_disk, op: Op, sector: u64, nr_sectors: u64) -> c_int {
    call(|| {
        // SAFETY: the caller's promise.
        unsafe { self::disk(disk)? }.with_client(|io| {
            let sector = Sector(sector);
            let done: Result<(), IoError> = match op {
                Op::Discard => io.discard(sector, nr_sectors),
                Op::WriteZeroes => io.write_zeroes(sector, nr_sectors),
                _ => io.manage(op, sector, nr_sectors),
            };
            Ok(done.map(|()| 0)?)
        })
    })
}

/// Writes `nr_sectors` of zeroes at `sector`, in order like a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zp_write_zeroes(
    disk: *mut zp_disk,
    sector: u64,
    nr_sectors: u64,
) -> c_int {
    // SAFETY: an open disk, says the header.
    unsafe { range(disk, Op::WriteZeroes, sector, nr_sectors) }
}

/// Forgets the data of `nr_sectors` of conventional zones.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zp_discard(disk: *mut zp_disk, sector: u64, nr_sectors: u64) -> c_int {
    // SAFETY: an open disk, says the header.
    unsafe { range(disk, Op::Discard, sector, nr_sectors) }
}

/// Empties the zones of a range, which begins and ends with a zone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zp_reset(disk: *mut zp_disk, sector: u64, nr_sectors: u64) -> c_int {
    // SAFETY: an open disk, says the header.
    unsafe { range(disk, Op::ZoneReset, sector, nr_sectors) }
}

/// Empties every sequential zone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zp_reset_all(disk: *mut zp_disk) -> c_int {
    // SAFETY: an open disk, says the header.
    unsafe { range(disk, Op::ZoneResetAll, 0, 0) }
}

/// Makes the zones of a range full.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zp_finish(disk: *mut zp_disk, sector: u64, nr_sectors: u64) -> c_int {
    // SAFETY: an open disk, says the header.
    unsafe { range(disk, Op::ZoneFinish, sector, nr_sectors) }
}

/// Opens the zones of a range, which count against the limit of open zones until they are closed or full.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zp_open_zone(disk: *mut zp_disk, sector: u64, nr_sectors: u64) -> c_int {
    // SAFETY: an open disk, says the header.
    unsafe { range(disk, Op::ZoneOpen, sector, nr_sectors) }
}

/// Closes the open zones of a range.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zp_close_zone(disk: *mut zp_disk, sector: u64, nr_sectors: u64) -> c_int {
    // SAFETY: an open disk, says the header.
    unsafe { range(disk, Op::ZoneClose, sector, nr_sectors) }
}

/// Describes up to `nr_zones` zones from the one that holds `sector` on, as the device reports them. Returns how many.
/// `flags` is 0 or `ZP_RESYNC`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zp_report(
    disk: *mut zp_disk,
    sector: u64,
    zones: *mut zp_zone,
    nr_zones: u32,
    flags: u32,
) -> c_int {
    call(|| {
        known(flags, ZP_RESYNC.into(), "0 or ZP_RESYNC")?;
        if zones.is_null() && nr_zones > 0 {
            return Err(Failure::invalid(
                "the array of zones is NULL",
                "an array of struct zp_zone",
            ));
        }
        // SAFETY: an open disk, says the header.
        let found = unsafe { self::disk(disk)? }.with_client(|io| {
            let sector = Sector(sector);
            Ok(if flags == 0 { io.report(sector, nr_zones) } else { io.resync(sector, nr_zones) }?)
        })?;
        for (i, zone) in found.iter().enumerate() {
            // SAFETY: the array has `nr_zones` elements, says the header, and the report no more.
            unsafe { zones.add(i).write((*zone).into()) };
        }
        c_int::try_from(found.len())
            .map_err(|_| Failure::new(libc::EOVERFLOW, "more zones than an int counts", "fewer"))
    })
}
