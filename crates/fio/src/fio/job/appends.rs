//! Requests of a job whose writes are zone appends. They have no part in the path of other jobs: `queue_transfer` finds
//! such a file unusual, and `take_back` leaves the completion of an append to `take_append`.

use super::super::abi::{self, IoU};
use super::super::lane::{Lane, note};
use super::transfer::{check, transfer};
use super::{Job, Obstacle};
use core::ffi::{c_int, c_void};
use zoneplug_core::{Bytes, Op};

impl Job {
    /// Queues a read or a write, and returns fio's queue status. A read of what several appends wrote to places that are
    /// no neighbours is done at once.
    #[cold]
    pub(super) fn queue_append(
        &mut self,
        u: *mut c_void,
        unit: IoU<'_>,
        at: usize,
    ) -> Result<c_int, Obstacle> {
        let lane = &mut self.lanes[at];
        match unit.ddir() {
            abi::DDIR_WRITE => append(lane, u, unit)?,
            abi::DDIR_READ => {
                let pieces = lane.device.places_of(unit.offset(), unit.xfer_buflen());
                match pieces[..] {
                    [piece] => {
                        transfer(lane, u, unit, Op::Read, || Bytes(piece.landed).to_sectors())?;
                    }
                    _ => {
                        check(lane, unit)?;
                        let read = lane.device.read_pieces(&pieces, |distance, data| {
                            // SAFETY: `check` has found the transfer within fio's buffer, which is the engine's until
                            // fio has the unit's event; the pieces are as long as the transfer.
                            unsafe {
                                let to = unit.xfer_buf().add(distance as usize);
                                to.copy_from_nonoverlapping(
                                    data.as_slice().as_ptr(),
                                    data.len() as usize,
                                );
                            }
                        });
                        read.unwrap_or_else(|no| note(unit, no));
                        return Ok(abi::FIO_Q_COMPLETED);
                    }
                }
            }
            _ => return Err(Obstacle::Unusual),
        }
        self.queued = true;
        Ok(abi::FIO_Q_QUEUED)
    }
}

/// Queues a write as an append to its zone, or as a write if the zone is conventional.
fn append(lane: &mut Lane, u: *mut c_void, unit: IoU<'_>) -> Result<(), Obstacle> {
    let sector = Bytes(unit.offset()).to_sectors();
    match lane.device.append_sector(sector) {
        None => transfer(lane, u, unit, Op::Write, || sector),
        Some(zone) => {
            check(lane, unit)?;
            lane.will_append(unit.index() as usize, unit.offset());
            transfer(lane, u, unit, Op::ZoneAppend, || zone)
        }
    }
}
