//! Requests that move data: their checks, and their way to a device.

use super::super::abi::{self, IoU, unlikely};
use super::super::lane::Lane;
use super::Obstacle;
use core::ffi::c_void;
use zoneplug_core::{IoBuf, Op, Sector};

/// Checks a read or a write before the unit is used.
#[inline(always)]
pub(super) fn check(lane: &Lane, unit: IoU<'_>) -> Result<(), Obstacle> {
    abi::check_transfer(unit, lane.bytes).map_err(Obstacle::Unexpected)?;
    // The layer counts in sectors. It would refuse a length that is not a multiple of a sector, so this refuses it too.
    if (unit.offset() | unit.xfer_buflen()) & 511 != 0 || unit.xfer_buflen() >> 32 != 0 {
        return Err(unlikely(Obstacle::Unaligned));
    }
    Ok(())
}

/// Queues an operation that moves data, at the sector `at`. If it fails, it has changed nothing.
#[inline(always)]
pub(super) fn transfer(
    lane: &mut Lane,
    u: *mut c_void,
    unit: IoU<'_>,
    op: Op,
    at: impl FnOnce() -> Sector,
) -> Result<(), Obstacle> {
    check(lane, unit)?;
    let queued = lane.queue(unit.index() as usize, u, || {
        // These fields are read only now, so that the function has enough registers.
        let (sector, len) = (at(), unit.xfer_buflen() as u32);
        // SAFETY: fio keeps the buffer until it has the unit's event, which it gets only after the buffer is
        // back; `await_device` waits for units whose events fio did not ask for. Meanwhile fio may read the buffer of a
        // write, and does not touch that of a read.
        let buf = unsafe {
            match op {
                Op::Read => IoBuf::new(unit.xfer_buf(), len),
                _ => IoBuf::new_shared(unit.xfer_buf(), len),
            }
        };
        (op, sector, len >> 9, buf)
    });
    queued.map_err(Obstacle::Unexpected)
}
