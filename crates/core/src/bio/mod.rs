//! BIOs, commands and their pools. The engine moves both by handle.
//!
//! A client fills a [`Bio`]. The engine puts one or more of them into a [`Command`], the unit that a device handles.
//! Neither is ever copied: a `Box` of it moves from list to list.

mod client;
mod command;
mod late;
mod op;
mod request;

pub use crate::status::{Sense, Status, WritePointer};
pub use client::DiskClient;
pub use command::{Command, Commands};
pub(crate) use command::{FuaStep, MIXED, NO_SLOT, UNSENT, Waiter};
pub use late::Late;
pub use op::{Flags, Op};
pub use request::{IoRequest, IoResult};

use crate::unit::Sector;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use zoneplug_buf::{IoBuf, IoRange};

/// `parent` of a BIO that is not a part of another.
pub(crate) const NO_PARENT: u32 = u32::MAX;

/// One I/O of a client: 64 bytes, one cache line.
///
/// ```
/// use zoneplug_core::{Bio, Op, Sector};
/// let mut bio = Bio::new(Op::ZoneReset, Sector(0x8000), 0x8000);
/// bio.set_token(7); // whatever the client wants back
/// assert_eq!(size_of_val(&*bio), 64);
/// ```
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Bio {
    /// First sector. After an append: the sector where the data landed.
    pub sector: Sector,
    /// The memory, exactly `len_sectors` long where the operation has data.
    buf: IoBuf,
    /// A number of the client, which the engine does not look at.
    token: u64,
    /// Length of the range in sectors.
    pub len_sectors: u32,
    /// The operation. The engine never changes it: an emulated append stays an append.
    pub op: Op,
    /// Flags: FUA, preflush, priorities and others.
    pub flags: Flags,
    /// The result of the BIO. Set before the BIO comes back.
    pub status: Status,
    /// Whether the engine or a device has the BIO. A BIO that is dropped there is lost, which is a bug (see
    /// [`lost_bios`]).
    pub(crate) in_flight: bool,
    /// The number of zones that a report described. 0 after an error, except *zone busy* of a resync.
    pub result: u32,
    /// The queue that the BIO was submitted to.
    pub(crate) queue: u32,
    /// The split BIO of that queue of which this BIO is a part, or [`NO_PARENT`].
    pub(crate) parent: u32,
    /// A ticket (see `disk/guard/late.rs`) if the BIO came back before the device was done with it; else 0.
    pub(crate) late: u32,
    /// For a report: the disk's error epoch when it was submitted.
    pub(crate) epoch: u32,
    /// The claim of a reset or finish on its zones.
    pub(crate) claim: ZoneClaim,
}

/// The claim of a reset or finish on its zones until it has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ZoneClaim {
    /// No claim: the BIO is not in flight, or the disk has no plugs.
    None,
    /// The zones are listed, so that none of them recovers by itself meanwhile (`disk/guard/resets.rs`).
    Listed,
    /// The zones are listed, and take no writes (strict management).
    Exclusive,
}

const _: () = assert!(size_of::<Bio>() == 64);

static LOST: AtomicU64 = AtomicU64::new(0);

/// Returns how many BIOs were dropped while the engine held them, since the process started. A number above 0 means a
/// bug, or that a program has dropped the last handle of a disk with BIOs in flight.
pub fn lost_bios() -> u64 {
    LOST.load(Ordering::Relaxed)
}

impl Drop for Bio {
    fn drop(&mut self) {
        if self.in_flight {
            LOST.fetch_add(1, Ordering::Relaxed);
            #[cfg(test)]
            if !std::thread::panicking() {
                panic!("a BIO was dropped in flight: {self:?}");
            }
        }
    }
}

impl Bio {
    /// A BIO without memory.
    pub fn new(op: Op, sector: Sector, len_sectors: u32) -> Box<Bio> {
        Self::with_buf(op, sector, len_sectors, IoBuf::empty())
    }

    /// A BIO that moves `buf`.
    pub fn with_buf(op: Op, sector: Sector, len_sectors: u32, buf: IoBuf) -> Box<Bio> {
        Box::new(Bio {
            sector,
            buf,
            token: 0,
            len_sectors,
            op,
            flags: Flags::NONE,
            status: Status::Ok,
            in_flight: false,
            result: 0,
            queue: 0,
            parent: NO_PARENT,
            late: 0,
            epoch: 0,
            claim: ZoneClaim::None,
        })
    }

    /// Makes this a new BIO that moves `buf`.
    #[inline]
    pub fn set(&mut self, op: Op, sector: Sector, len_sectors: u32, buf: IoBuf) {
        self.sector = sector;
        self.buf = buf;
        self.len_sectors = len_sectors;
        self.op = op;
        self.flags = Flags::NONE;
        self.status = Status::Ok;
    }

    /// Makes this a new BIO that keeps its memory.
    #[inline]
    pub fn renew(&mut self, op: Op, sector: Sector, len_sectors: u32) {
        self.sector = sector;
        self.len_sectors = len_sectors;
        self.op = op;
        self.flags = Flags::NONE;
        self.status = Status::Ok;
    }

    /// The memory that the BIO moves, for reading: a device's side of a write. It is empty for operations without
    /// data, and in a BIO that was given up (see [`Bio::late`]).
    ///
    /// Nothing that was borrowed from the BIO outlives the moment at which the BIO is handed on:
    ///
    /// ```compile_fail,E0505
    /// # use zoneplug_core::{Bio, Commands};
    /// fn poll(bio: Box<Bio>, done: &mut Vec<Box<Bio>>) {
    ///     let data = bio.data();
    ///     done.push(bio);
    ///     data.copy_to(0, &mut [0; 512]);
    /// }
    /// ```
    ///
    /// ```compile_fail,E0507
    /// # use zoneplug_core::{Bio, IoBuf};
    /// fn keep(bio: &Bio) -> IoBuf {
    ///     *bio.data()
    /// }
    /// ```
    #[inline]
    pub fn data(&self) -> &IoBuf {
        &self.buf
    }

    /// The memory that the BIO moves, for writing: a device's side of a read. Memory that was lent for a write may be
    /// *shared*, and writing to that panics.
    ///
    /// Code that has only `&Bio` cannot write, so two threads cannot race:
    ///
    /// ```compile_fail,E0596
    /// # use zoneplug_core::Bio;
    /// fn both(bio: &Bio) {
    ///     std::thread::scope(|s| {
    ///         s.spawn(|| bio.data_mut().copy_from(0, b"one"));
    ///         s.spawn(|| bio.data().copy_to(0, &mut [0; 3]));
    ///     });
    /// }
    /// ```
    #[inline]
    pub fn data_mut(&mut self) -> &mut IoBuf {
        &mut self.buf
    }

    /// Takes the memory out. A client does so when the BIO is back, and compares the memory with what it lent. A
    /// layer may do so to cut the memory, and must put it together again before it hands the BIO back. A client must
    /// not free memory that did not come back.
    #[inline]
    pub fn take_buf(&mut self) -> IoBuf {
        std::mem::take(&mut self.buf)
    }

    /// Puts this memory into the BIO. Memory that the BIO had before never comes back to its lender.
    #[inline]
    pub fn set_buf(&mut self, buf: IoBuf) {
        self.buf = buf;
    }

    /// The number that the client has set, to recognise the BIO when it is back. A faulty device may give back
    /// another BIO with this token. So a client frees memory by what [`Bio::take_buf`] returns, not by the token.
    ///
    /// ```compile_fail,E0616
    /// # use zoneplug_core::Bio;
    /// fn mix_up(a: &mut Bio, b: &mut Bio) {
    ///     std::mem::swap(&mut a.token, &mut b.token);
    /// }
    /// ```
    #[inline]
    pub fn token(&self) -> u64 {
        self.token
    }

    /// Sets the number that [`Bio::token`] returns. The engine and devices never look at it.
    #[inline]
    pub fn set_token(&mut self, token: u64) {
        self.token = token;
    }

    /// The ticket of a BIO that came back before the device was done with it. Such a BIO has no memory;
    /// [`Disk::reclaim`](crate::disk::Disk::reclaim) returns it once the device has given it back. Only on disks with
    /// command deadlines, and where a device has panicked.
    pub fn late(&self) -> Option<Late> {
        Late::of(self.late)
    }

    /// A copy of the contents without the memory.
    #[inline]
    pub(crate) fn note(&self) -> BioNote {
        BioNote {
            sector: self.sector,
            memory: self.buf.range(),
            token: self.token,
            len_sectors: self.len_sectors,
            op: self.op,
            flags: self.flags,
            queue: self.queue,
            parent: self.parent,
        }
    }

    /// Returns the sector behind the last one, or `None` if that exceeds the largest address.
    pub fn end(&self) -> Option<Sector> {
        self.sector.0.checked_add(u64::from(self.len_sectors)).map(Sector)
    }
}

/// The contents of a BIO without its memory. It can stand for a BIO that a device keeps.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BioNote {
    sector: Sector,
    memory: IoRange,
    token: u64,
    len_sectors: u32,
    op: Op,
    flags: Flags,
    queue: u32,
    parent: u32,
}

impl BioNote {
    /// A BIO with these contents, without memory.
    pub(crate) fn bio(&self) -> Box<Bio> {
        let mut bio = Bio::new(self.op, self.sector, self.len_sectors);
        (bio.token, bio.flags) = (self.token, self.flags);
        (bio.queue, bio.parent) = (self.queue, self.parent);
        bio
    }

    /// Returns whether `bio` has the memory that the noted BIO had.
    pub(crate) fn has_memory_of(&self, bio: &Bio) -> bool {
        bio.buf.range() == self.memory
    }
}

/// A list of BIOs, first in, first out.
pub type Bios = VecDeque<Box<Bio>>;

/// BIOs to use again. Nothing is allocated once the pool has as many as are ever in flight at a time.
///
/// ```
/// use zoneplug_core::{BioPool, Op, Sector};
/// let mut pool = BioPool::new(16);
/// let bio = pool.get();
/// pool.put(bio);
/// assert_eq!(pool.len(), 16);
/// ```
#[derive(Debug, Default)]
pub struct BioPool(Vec<Box<Bio>>);

impl BioPool {
    /// A pool of `n` BIOs.
    pub fn new(n: usize) -> Self {
        BioPool((0..n).map(|_| Bio::new(Op::Flush, Sector(0), 0)).collect())
    }

    /// Takes a BIO from the pool, or makes one if the pool is empty.
    #[inline]
    pub fn get(&mut self) -> Box<Bio> {
        match self.0.pop() {
            Some(bio) => bio,
            None => Bio::new(Op::Flush, Sector(0), 0),
        }
    }

    /// Puts a BIO back into the pool.
    #[inline]
    pub fn put(&mut self, bio: Box<Bio>) {
        self.0.push(bio);
    }

    /// Returns the number of BIOs in the pool.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether the pool is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
