//! One device as one job uses it: the way of a request there and back.

use super::abi::{Abi, IoU};
use super::device::Device;
use super::program::{Errno, Program, say};
use core::ffi::c_void;
use core::mem::MaybeUninit;
use std::sync::Arc;
use std::time::Duration;
use zoneplug_core::{Bio, Bios, IoBuf, IoRange, Op, Sector};
use zoneplug_host::Client;

/// How long a job may take to get its units back when it ends.
const DRAIN: Duration = Duration::from_secs(30);

/// Keeps a text out of the way of requests that are well.
#[cold]
#[inline(never)]
fn refused(why: &'static str) -> &'static str {
    why
}

/// One of fio's units on one device. Its BIO has the unit's number as its token.
struct Unit {
    /// `None`: the BIO is on its way.
    bio: Option<Box<Bio>>,
    /// fio's own structure.
    io_u: *mut c_void,
    /// The memory that the BIO took with it.
    lent: IoRange,
}

impl Unit {
    fn new(nth: usize) -> Unit {
        let mut bio = Bio::new(Op::Flush, Sector(0), 0);
        bio.set_token(nth as u64);
        Unit { bio: Some(bio), io_u: core::ptr::null_mut(), lent: IoBuf::empty().range() }
    }
}

/// One device as one job uses it.
pub(super) struct Lane {
    pub(super) device: Arc<Device>,
    client: Client,
    /// Queued by fio, not yet submitted.
    batch: Bios,
    /// The units in `batch` that fio has not been told of as submitted.
    fresh: Vec<*mut c_void>,
    /// What `reap` gets from the client. Empty between calls, and kept for its room.
    done: Bios,
    /// `batch`, and what the client has.
    in_flight: usize,
    units: Vec<Unit>,
}

/// Why fio cannot go on: it is about to use memory that the device has.
#[cold]
fn end(bio: &Bio, why: &str) -> ! {
    say(&format!("{} at sector {}: {why}; ending fio", bio.op.name(), bio.sector.0));
    std::process::abort()
}

/// Notes that a request has failed as a whole.
#[cold]
pub(super) fn note(u: IoU<'_>, errno: Errno) {
    u.set_error(errno);
    u.set_resid(u.xfer_buflen());
}

impl Lane {
    pub(super) fn new(device: Arc<Device>, depth: usize) -> Result<Lane, String> {
        Ok(Lane {
            client: device.client(depth)?,
            device,
            batch: Bios::with_capacity(depth),
            fresh: Vec::with_capacity(depth),
            done: Bios::with_capacity(depth),
            in_flight: 0,
            units: (0..depth).map(Unit::new).collect(),
        })
    }

    /// Has room for the units that fio numbers below `units`.
    pub(super) fn grow(&mut self, units: usize) {
        self.units.extend((self.units.len()..units).map(Unit::new));
    }

    /// Queued, and not yet reaped.
    pub(super) fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// What can be waited for.
    pub(super) fn submitted(&self) -> usize {
        self.in_flight - self.batch.len()
    }

    /// Queues a request of the unit `io_u`, fio's number `nth`. It returns why it cannot.
    #[inline(always)]
    pub(super) fn queue(
        &mut self,
        nth: usize,
        io_u: *mut c_void,
        (op, sector, len_sectors): (Op, Sector, u32),
        buf: IoBuf,
    ) -> Result<(), &'static str> {
        let Some(unit) = self.units.get_mut(nth) else {
            return Err(refused("its number is not one of the job"));
        };
        let Some(mut bio) = unit.bio.take() else {
            return Err(refused("it is in flight already"));
        };
        (unit.io_u, unit.lent) = (io_u, buf.range());
        bio.set(op, sector, len_sectors, buf);
        self.batch.push_back(bio);
        self.fresh.push(io_u);
        self.in_flight += 1;
        Ok(())
    }

    /// Queues a flush, as [`Lane::queue`] does.
    #[inline(never)]
    pub(super) fn flush(&mut self, nth: usize, io_u: *mut c_void) -> Result<(), &'static str> {
        self.queue(nth, io_u, (Op::Flush, Sector(0), 0), IoBuf::empty())
    }

    /// Hands to the layer what was queued. Returns whether something was not taken, because the disk is frozen.
    #[inline(always)]
    pub(super) fn submit(&mut self, abi: &Abi, fio: &Program, td: *mut c_void) -> bool {
        if self.batch.is_empty() {
            return false;
        }
        if !self.fresh.is_empty() {
            self.note_submission(abi, fio, td);
        }
        self.client.submit(&mut self.batch);
        !self.batch.is_empty()
    }

    /// Tells fio of the units that are about to be submitted.
    #[inline]
    fn note_submission(&mut self, abi: &Abi, fio: &Program, td: *mut c_void) {
        let mut now = MaybeUninit::uninit();
        // SAFETY: fio's own functions, called as its engines do, for units that are ours until they are reported. The
        // first sets the time.
        unsafe {
            (fio.gettime)(now.as_mut_ptr(), core::ptr::null_mut());
            let now = now.assume_init();
            for u in &self.fresh {
                IoU::new(abi, *u).issue_time().write_unaligned(now);
                (fio.io_u_queued)(td, *u);
            }
            (fio.mark_submit)(td, self.fresh.len() as u32);
        }
        self.fresh.clear();
    }

    /// The unit of a BIO that is back with its memory. `None`: a device has made up the BIO, or has kept its memory.
    #[inline]
    fn take_unit(&mut self, mut bio: Box<Bio>) -> Result<*mut c_void, Box<Bio>> {
        let buf = bio.take_buf();
        match self.units.get_mut(bio.token() as usize) {
            Some(unit) if unit.bio.is_none() && unit.lent == buf.range() => {
                unit.bio = Some(bio);
                Ok(unit.io_u)
            }
            _ => Err(bio),
        }
    }

    /// Appends finished units to `events`. Waits for `need` of them, at most `wait`.
    pub(super) fn reap(
        &mut self,
        abi: &Abi,
        need: usize,
        wait: Option<Duration>,
        events: &mut Vec<*mut c_void>,
    ) {
        if need > 0 {
            self.client.wait(&mut self.done, need, wait);
        } else {
            self.client.poll(&mut self.done);
        }
        while let Some(bio) = self.done.pop_front() {
            if bio.late().is_some() && self.client.is_late(&bio) {
                end(&bio, "the device has panicked");
            }
            let (op, sector, status) = (bio.op, bio.sector, bio.status);
            let u = match self.take_unit(bio) {
                Ok(u) => u,
                Err(bio) => end(&bio, "the device gave back another request"),
            };
            if !status.is_ok() {
                self.device.complain(op, sector, status);
                // SAFETY: a unit whose memory is back, and which fio keeps until it is reported.
                note(unsafe { IoU::new(abi, u) }, status.errno());
            }
            events.push(u);
            self.in_flight -= 1;
        }
    }

    /// Waits until the device uses no memory of the job.
    pub(super) fn settle(&mut self) {
        self.fresh.clear();
        // What comes back with other memory is dropped, and its unit stays without a BIO.
        while let Some(bio) = self.batch.pop_front() {
            let _ = self.take_unit(bio);
        }
        if let Err(e) = self.client.drain(&mut self.done, DRAIN) {
            // fio is about to free memory that a device may write to, and there is no way to tell it not to.
            say(&format!("{e} {DRAIN:?} after their job has ended; ending fio"));
            std::process::abort();
        }
        while let Some(bio) = self.done.pop_front() {
            let _ = self.take_unit(bio);
        }
        if self.units.iter().any(|unit| unit.bio.is_none()) {
            say("a device has kept memory of a job that has ended; ending fio");
            std::process::abort();
        }
        self.in_flight = 0;
    }
}
