//! The use of one device by one job: the path of a request there and back.

use super::abi::{Abi, IoU, unlikely};
use super::device::Device;
use super::places::Piece;
use super::program::{Errno, Program, say};
use core::ffi::c_void;
use core::mem::MaybeUninit;
use std::sync::Arc;
use std::time::{Duration, Instant};
use zoneplug_core::{Bio, Bios, IoBuf, IoRange, Op, Sector, Status};
use zoneplug_host::Client;

/// The limit of time for a job to get its units back when it ends.
const DRAIN: Duration = Duration::from_secs(30);

/// A bit above the number of the unit in the token of an append: [`take_back`] finds no unit of that number, and leaves the BIO to
/// [`take_append`]. So the completion of other requests has no check for appends.
const APPEND: u64 = 1 << 32;

/// One of fio's units on one device. Its BIO has the unit's number as its token.
struct Unit {
    /// `None`: the BIO is in flight.
    bio: Option<Box<Bio>>,
    /// fio's own structure.
    io_u: *mut c_void,
    /// The memory that the BIO has.
    lent: IoRange,
}

impl Unit {
    fn new(nth: usize) -> Unit {
        let mut bio = Bio::new(Op::Flush, Sector(0), 0);
        bio.set_token(nth as u64);
        Unit { bio: Some(bio), io_u: core::ptr::null_mut(), lent: IoBuf::empty().range() }
    }

    /// Reports a failure to the user and to fio.
    #[cold]
    #[inline(never)]
    fn fail(&self, device: &Device, abi: &Abi, status: Status) {
        if let Some(bio) = &self.bio {
            device.print_failure(bio.op, bio.sector, status);
        }
        // SAFETY: a unit whose memory is back, and which fio keeps until it is reported.
        note(unsafe { IoU::new(abi, self.io_u) }, status.errno());
    }
}

/// Gives a BIO that has come back with its memory to its unit. The error is an append, a BIO that the device has made
/// up, or one whose memory the device has kept; the BIO still has the memory with which it came.
#[inline(always)]
fn take_back(units: &mut [Unit], mut bio: Box<Bio>) -> Result<&mut Unit, Box<Bio>> {
    let buf = bio.take_buf();
    match units.get_mut(bio.token() as usize) {
        Some(unit) if unit.bio.is_none() && unit.lent == buf.range() => {
            unit.bio = Some(bio);
            Ok(unit)
        }
        _ => Err(with_memory(bio, buf)),
    }
}

/// The BIO with its memory again. One pointer is an error that costs the completion of other requests nothing.
#[cold]
#[inline(never)]
fn with_memory(mut bio: Box<Bio>, buf: IoBuf) -> Box<Bio> {
    bio.set_buf(buf);
    bio
}

/// Gives the BIO of an append to its unit, and notes where the data landed. The error is as for [`take_back`].
#[cold]
#[inline(never)]
fn take_append<'a>(
    units: &'a mut [Unit],
    named: Option<&Vec<u64>>,
    device: &Device,
    mut bio: Box<Bio>,
) -> Result<&'a mut Unit, Box<Bio>> {
    let lent = bio.take_buf().range();
    let nth = bio.token() ^ APPEND;
    match (units.get_mut(nth as usize), named) {
        (Some(unit), Some(named)) if unit.bio.is_none() && unit.lent == lent => {
            if bio.status.is_ok() {
                let start = named[nth as usize];
                let end = start + (u64::from(bio.len_sectors) << 9);
                device.landed(Piece { start, end, landed: bio.sector.to_bytes().0 });
            }
            bio.set_token(nth);
            unit.bio = Some(bio);
            Ok(unit)
        }
        _ => Err(bio),
    }
}

/// The time by fio's clock.
#[inline(always)]
fn now(fio: &Program) -> libc::timespec {
    let mut now = MaybeUninit::uninit();
    // SAFETY: fio's own function, which sets the time.
    unsafe {
        (fio.gettime)(now.as_mut_ptr(), core::ptr::null_mut());
        now.assume_init()
    }
}

/// Announces to fio that a unit is submitted now.
///
/// # Safety
/// The unit is one that fio has queued, and that it does not use until it is reported.
#[inline(always)]
unsafe fn announce(
    abi: &Abi,
    fio: &Program,
    td: *mut c_void,
    io_u: *mut c_void,
    now: libc::timespec,
) {
    // SAFETY: the caller's promise. fio's own function is called as its engines do.
    unsafe {
        IoU::new(abi, io_u).issue_time().write_unaligned(now);
        (fio.io_u_queued)(td, io_u);
    }
}

/// The use of one device by one job.
pub(super) struct Lane {
    pub(super) device: Arc<Device>,
    /// The size of the device.
    pub(super) bytes: u64,
    client: Client,
    /// BIOs that fio has queued and that are not submitted yet.
    batch: Bios,
    /// The number of BIOs at the end of `batch` whose submission was not announced to fio yet.
    unannounced: usize,
    /// The unit of the last of these BIOs.
    last_unannounced: *mut c_void,
    /// The BIOs that `reap` gets from the client. Empty between calls, and kept for its capacity.
    done: Bios,
    /// The number of BIOs in `batch` or with the client.
    in_flight: usize,
    units: Vec<Unit>,
    /// For a job whose writes are appends: the offset that fio named for the append of each unit.
    named: Option<Vec<u64>>,
}

/// Ends fio, because it would use memory that the device still has.
#[cold]
fn end(bio: &Bio, why: &str) -> ! {
    say(&format!("{} at sector {}: {why}; ending fio", bio.op.name(), bio.sector.0));
    std::process::abort()
}

/// Sets the result of a request that has failed completely.
#[cold]
pub(super) fn note(u: IoU<'_>, errno: Errno) {
    u.set_error(errno);
    u.set_resid(u.xfer_buflen());
}

impl Lane {
    pub(super) fn new(device: Arc<Device>, depth: usize, appends: bool) -> Result<Lane, String> {
        Ok(Lane {
            client: device.client(depth)?,
            bytes: device.bytes(),
            device,
            batch: Bios::with_capacity(depth),
            unannounced: 0,
            last_unannounced: core::ptr::null_mut(),
            done: Bios::with_capacity(depth),
            in_flight: 0,
            units: (0..depth).map(Unit::new).collect(),
            named: appends.then(|| vec![0; depth]),
        })
    }

    /// Whether the writes of the job are appends.
    pub(super) fn appends(&self) -> bool {
        self.named.is_some()
    }

    /// Makes room for the units that fio numbers below `units`.
    pub(super) fn grow(&mut self, units: usize) {
        self.units.extend((self.units.len()..units).map(Unit::new));
        self.named.iter_mut().for_each(|named| named.resize(units.max(named.len()), 0));
    }

    /// The number of requests that are queued and not yet reaped.
    pub(super) fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Whether there is something to submit.
    pub(super) fn has_queued(&self) -> bool {
        !self.batch.is_empty()
    }

    #[cfg(test)]
    pub(super) fn room(&self) -> usize {
        self.batch.capacity()
    }

    /// Makes room for one request of [`Lane::queue`].
    pub(super) fn make_room(&mut self) {
        self.batch.reserve(1);
    }

    /// Queues a request of the unit `io_u`, whose number is `nth`. Makes no room for it. The error says why it
    /// failed.
    #[inline(always)]
    pub(super) fn queue(
        &mut self,
        nth: usize,
        io_u: *mut c_void,
        request: impl FnOnce() -> (Op, Sector, u32, IoBuf),
    ) -> Result<(), &'static str> {
        let Some(unit) = self.units.get_mut(nth) else {
            return Err(unlikely("its number is not one of the job"));
        };
        let Some(mut bio) = unit.bio.take() else {
            return Err(unlikely("it is in flight already"));
        };
        let (op, sector, len_sectors, buf) = request();
        (unit.io_u, unit.lent) = (io_u, buf.range());
        bio.set(op, sector, len_sectors, buf);
        // `push_back` makes the same check, and the compiler then drops its call that grows the queue.
        if self.batch.len() == self.batch.capacity() {
            // An assignment would call the drop of the old value, which is `None`.
            core::mem::forget(unit.bio.replace(bio));
            return Err(unlikely("there is no room for it"));
        }
        self.batch.push_back(bio);
        self.unannounced += 1;
        self.last_unannounced = io_u;
        self.in_flight += 1;
        Ok(())
    }

    /// Prepares the unit of that number for an append, which [`Lane::queue`] queues next. fio names the offset `named`.
    pub(super) fn will_append(&mut self, nth: usize, named: u64) {
        let Some(Unit { bio: Some(bio), .. }) = self.units.get_mut(nth) else { return };
        let Some(all) = &mut self.named else { return };
        all[nth] = named;
        bio.set_token(nth as u64 | APPEND);
    }

    /// Gives a BIO of a job that has ended to its unit. A BIO that comes back with other memory is dropped, and its unit
    /// stays without a BIO.
    fn put_back(&mut self, bio: Box<Bio>) {
        if let Err(back) = take_back(&mut self.units, bio) {
            let _ = take_append(&mut self.units, self.named.as_ref(), &self.device, back);
        }
    }

    /// Queues a flush, like [`Lane::queue`].
    pub(super) fn flush(&mut self, nth: usize, io_u: *mut c_void) -> Result<(), &'static str> {
        self.queue(nth, io_u, || (Op::Flush, Sector(0), 0, IoBuf::empty()))
    }

    /// Passes queued requests to the layer. Returns whether some were not taken, because the disk is frozen.
    #[inline(always)]
    pub(super) fn submit(&mut self, abi: &Abi, fio: &Program, td: *mut c_void) -> bool {
        match self.unannounced {
            0 => {}
            1 => {
                let now = now(fio);
                // SAFETY: it is about to be submitted.
                unsafe { announce(abi, fio, td, self.last_unannounced, now) };
                self.announce_count(fio, td);
            }
            _ => self.announce_all(abi, fio, td),
        }
        self.client.submit(&mut self.batch);
        !self.batch.is_empty()
    }

    /// Announces each unit that is about to be submitted, with the time.
    #[inline(never)]
    fn announce_all(&mut self, abi: &Abi, fio: &Program, td: *mut c_void) {
        let now = now(fio);
        for bio in self.batch.iter().skip(self.batch.len() - self.unannounced) {
            // SAFETY: it is about to be submitted.
            unsafe { announce(abi, fio, td, self.units[bio.token() as u32 as usize].io_u, now) };
        }
        self.announce_count(fio, td);
    }

    /// Tells fio how many units are about to be submitted.
    #[inline(always)]
    fn announce_count(&mut self, fio: &Program, td: *mut c_void) {
        // SAFETY: fio's own function, called as its engines do.
        unsafe { (fio.mark_submit)(td, self.unannounced as u32) };
        self.unannounced = 0;
    }

    /// Appends finished units to `events`. Waits for `need` of them, until `end_of_wait` at most.
    #[inline(always)]
    pub(super) fn reap(
        &mut self,
        abi: &Abi,
        need: usize,
        end_of_wait: Option<Instant>,
        events: &mut Vec<*mut c_void>,
    ) {
        // A request that is not submitted cannot be waited for.
        let need = need.min(self.in_flight - self.batch.len());
        if need > 0 {
            let left = end_of_wait.map(|e| e.saturating_duration_since(Instant::now()));
            self.client.wait(&mut self.done, need, left);
        } else if self.in_flight > 0 {
            self.client.poll(&mut self.done);
        }
        self.in_flight -= self.done.len();
        while let Some(bio) = self.done.pop_front() {
            if bio.late().is_some() && self.client.is_late(&bio) {
                end(&bio, "the device has panicked");
            }
            let status = bio.status;
            let unit = match take_back(&mut self.units, bio) {
                Ok(unit) => unit,
                Err(back) => {
                    let named = self.named.as_ref();
                    take_append(&mut self.units, named, &self.device, back).unwrap_or_else(|bio| {
                        end(&bio, "the device gave back another request");
                    })
                }
            };
            if !status.is_ok() {
                unit.fail(&self.device, abi, status);
            }
            events.push(unit.io_u);
        }
    }

    /// Waits until the device uses no memory of the job.
    pub(super) fn await_device(&mut self) {
        self.unannounced = 0;
        while let Some(mut bio) = self.batch.pop_front() {
            // An append that was not submitted has not landed anywhere.
            bio.status = Status::Aborted;
            self.put_back(bio);
        }
        if let Err(e) = self.client.drain(&mut self.done, DRAIN) {
            // fio is about to free memory that a device may write to, and cannot be told not to.
            say(&format!("{e} {DRAIN:?} after their job has ended; ending fio"));
            std::process::abort();
        }
        while let Some(bio) = self.done.pop_front() {
            self.put_back(bio);
        }
        if self.units.iter().any(|unit| unit.bio.is_none()) {
            say("a device has kept memory of a job that has ended; ending fio");
            std::process::abort();
        }
        self.in_flight = 0;
    }
}
