//! BIOs, commands and their pools: what moves through the engine, always by handle.
//!
//! A client fills a [`Bio`]; the engine puts one or more of them into a [`Command`], which is what a device
//! sees. Neither is ever copied: a `Box` of it moves from list to list.

mod command;
mod late;
mod op;

pub use crate::status::{Sense, Status, WritePointer};
pub use command::{Command, Commands};
pub(crate) use command::{MIXED, NO_SLOT, UNSENT, Waits};
pub use late::Late;
pub use op::{Flags, Op};

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
    /// First sector. After an append: where the data landed.
    pub sector: Sector,
    /// The memory, exactly `len_sectors` long where the operation has data.
    buf: IoBuf,
    /// The client's; never looked at.
    token: u64,
    /// Length of the range in sectors.
    pub len_sectors: u32,
    /// What to do. Never changed by the engine: an emulated append stays an append.
    pub op: Op,
    /// How.
    pub flags: Flags,
    /// How it ended; set before the BIO comes back.
    pub status: Status,
    /// With the engine. One that is dropped there is a bug (see [`lost_bios`]).
    pub(crate) in_flight: bool,
    /// How many zones a report described. 0 after an error, except *zone busy* of a resync.
    pub result: u32,
    /// The queue that it was submitted to.
    pub(crate) queue: u32,
    /// The split BIO of that queue that it is a part of, or [`NO_PARENT`].
    pub(crate) parent: u32,
    /// Came back before the device was done with it: a ticket (see `disk/guard/late.rs`), or 0.
    pub(crate) late: u32,
    /// Of a report: the disk's error epoch when it was submitted.
    pub(crate) epoch: u32,
    /// Of a reset or finish.
    pub(crate) claim: ZoneClaim,
}

/// What a reset or finish has claimed of its zones until it is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ZoneClaim {
    /// Nothing: it is not on its way, or the disk has no plugs.
    None,
    /// Its zones are listed: no zone recovers by itself meanwhile (`disk/guard/resets.rs`).
    Listed,
    /// The same, and its zones take no writes: strict management.
    Exclusive,
}

const _: () = assert!(size_of::<Bio>() == 64);

static LOST: AtomicU64 = AtomicU64::new(0);

/// How many BIOs were dropped while the engine held them, since the process started: 0 unless there is a bug.
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
    /// A BIO without a buffer.
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

    /// Makes this a new BIO.
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

    /// The memory that it moves, to be read: a device's side of a write. Empty for operations without data, and
    /// in a BIO that was given up (see [`Bio::late`]).
    ///
    /// Nothing that was reached by it outlives the moment at which the BIO is handed on:
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

    /// The memory that it moves, to be written: a device's side of a read. Memory that was lent for a write may
    /// be *shared*, and writing to it panics.
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

    /// Takes the memory out: a client does so when the BIO is back, and compares it with what it lent. A layer
    /// may do so to cut it, and puts it together again before it hands the BIO back: a client never frees
    /// memory that did not come back.
    #[inline]
    pub fn take_buf(&mut self) -> IoBuf {
        std::mem::take(&mut self.buf)
    }

    /// Gives it this memory. What it had is lost to its lender.
    #[inline]
    pub fn set_buf(&mut self, buf: IoBuf) {
        self.buf = buf;
    }

    /// What its client has set, to know it by when it is back. A faulty device may give back another BIO with
    /// this token; so a client frees memory by what comes back in [`Bio::take_buf`], not by the token.
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

    /// Sets what [`Bio::token`] returns. The engine and devices never look at it.
    #[inline]
    pub fn set_token(&mut self, token: u64) {
        self.token = token;
    }

    /// Whether this BIO came back before the device was done with it: then it comes without its memory, which
    /// [`Disk::reclaim`](crate::disk::Disk::reclaim) gives back once the device has. Only on disks with command
    /// deadlines, and where a device has panicked.
    pub fn late(&self) -> Option<Late> {
        Late::of(self.late)
    }

    /// What it says, without being it: the right to use its memory stays with it.
    #[inline]
    pub(crate) fn note(&self) -> BioNote {
        BioNote {
            sector: self.sector,
            memory: self.buf.range(),
            token: self.token,
            len_sectors: self.len_sectors,
            op: self.op,
            flags: self.flags,
            claim: self.claim,
            queue: self.queue,
            parent: self.parent,
        }
    }

    /// One past the last sector, or `None` if that is past the largest address.
    pub fn end(&self) -> Option<Sector> {
        self.sector.0.checked_add(u64::from(self.len_sectors)).map(Sector)
    }
}

/// What a BIO says: copied where the BIO itself has to go.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BioNote {
    sector: Sector,
    memory: IoRange,
    token: u64,
    len_sectors: u32,
    op: Op,
    flags: Flags,
    claim: ZoneClaim,
    queue: u32,
    parent: u32,
}

impl BioNote {
    /// A BIO that says the same, without memory.
    pub(crate) fn bio(&self) -> Box<Bio> {
        let mut bio = Bio::new(self.op, self.sector, self.len_sectors);
        (bio.token, bio.flags, bio.claim) = (self.token, self.flags, self.claim);
        (bio.queue, bio.parent) = (self.queue, self.parent);
        bio
    }

    /// Whether `bio` has the memory of the one that this is of.
    pub(crate) fn has_memory_of(&self, bio: &Bio) -> bool {
        bio.buf.range() == self.memory
    }
}

/// A list of BIOs, first in first out.
pub type Bios = VecDeque<Box<Bio>>;

/// BIOs to use again: nothing is allocated once as many exist as are in flight at most.
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

    /// One BIO, from the pool if there is one.
    #[inline]
    pub fn get(&mut self) -> Box<Bio> {
        match self.0.pop() {
            Some(bio) => bio,
            None => Bio::new(Op::Flush, Sector(0), 0),
        }
    }

    /// Gives one back.
    #[inline]
    pub fn put(&mut self, bio: Box<Bio>) {
        self.0.push(bio);
    }

    /// How many are in the pool.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the pool is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
