//! The words of the plugs: write pointer, generation and state of a zone in 64 bits, so that the two steps of an
//! undisturbed write are one compare-and-exchange each. This file owns the words and their layout, and takes no
//! lock.
//!
//! A write that finds its zone idle and healthy is admitted by one exchange ([`Words::admit`]), and its completion,
//! while no other write has come, by another ([`Words::complete`]). Everything else happens under the lock of a shard:
//! parking, sending what is parked, errors, management, reports.
//!
//! The bit `LOCKED` keeps the two apart. Code under the lock sets it first ([`Words::lock`]). Both exchanges then fail,
//! and their callers take the lock. `plug_lock.rs` says when the bit is cleared.

use super::state::{CONVENTIONAL, EARLY, PLUGGED};
use crate::sync::{AtomicU64, Ordering};

/// How many bits of a generation there are.
const GENERATION_BITS: u32 = 24;
const STATE_SHIFT: u32 = 32 + GENERATION_BITS;
/// The bit that gives the plug to the lock of its shard.
const LOCKED: u64 = 1 << 63;
const IN_FLIGHT: u64 = (PLUGGED as u64) << STATE_SHIFT;
const _: () = assert!((EARLY as u64) << STATE_SHIFT == LOCKED, "early writes keep a plug locked");

/// The place of a plug in its disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PlugPlace {
    /// The number of its shard.
    pub(crate) shard: usize,
    /// Its index in that shard.
    pub(crate) index: usize,
}

/// The outcome of trying a write without the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LockFreeAdmission {
    /// The write is admitted at this offset, in this generation of the zone: the caller sends it.
    Admitted { offset: u32, generation: u32 },
    /// Nothing has changed, and the caller must take the lock.
    Locked,
    /// The zone is conventional, and no plug orders its writes.
    Conventional,
}

/// Words of a block. A block has its own cache lines; its words belong to zones of one shard.
const PER_BLOCK: usize = 16;

#[derive(Debug)]
#[repr(align(128))]
struct Block([AtomicU64; PER_BLOCK]);

/// The words of all plugs of a disk.
#[derive(Debug, Default)]
pub(crate) struct Words {
    blocks: Box<[Block]>,
    /// log2 of the number of words of a shard.
    bits: u32,
}

/// Reduces a number to the bits of a generation that a plug counts.
#[inline]
pub(super) fn generation(n: u32) -> u32 {
    n & ((1 << GENERATION_BITS) - 1)
}

/// Write pointer, generation and state of a zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Word {
    pub(super) wp: u32,
    pub(super) generation: u32,
    pub(super) state: u8,
}

impl Word {
    fn pack(self) -> u64 {
        let high = u64::from(self.generation) | u64::from(self.state) << GENERATION_BITS;
        u64::from(self.wp) | high << 32
    }

    fn unpack(word: u64) -> Word {
        Word {
            wp: word as u32,
            generation: generation((word >> 32) as u32),
            state: (word >> STATE_SHIFT) as u8,
        }
    }
}

impl Words {
    /// Makes words for `shards` shards of at most `plugs` plugs each. Every plug belongs to the lock of its shard.
    /// `None`: there is too little memory.
    pub(crate) fn new(shards: usize, plugs: usize) -> Option<Words> {
        let bits = plugs.max(PER_BLOCK).next_power_of_two().trailing_zeros();
        let count = (shards << bits) / PER_BLOCK;
        let mut blocks = Vec::new();
        blocks.try_reserve_exact(count).ok()?;
        let block = |_| Block(std::array::from_fn(|_| AtomicU64::new(LOCKED)));
        blocks.extend((0..count).map(block));
        Some(Words { blocks: blocks.into(), bits })
    }

    /// Returns the word of a plug.
    #[inline]
    fn at(&self, place: PlugPlace) -> Option<&AtomicU64> {
        let n = (place.shard << self.bits) + place.index;
        let block = self.blocks.get(n / PER_BLOCK)?;
        Some(&block.0[n % PER_BLOCK])
    }

    /// Returns whether the words exceed the caches next to a core.
    #[inline]
    pub(crate) fn are_many(&self) -> bool {
        self.blocks.len() > 4096 / PER_BLOCK
    }

    /// Makes the processor fetch a word.
    #[inline]
    pub(crate) fn warm(&self, place: PlugPlace) {
        if let Some(word) = self.at(place) {
            std::hint::black_box(word.load(Ordering::Relaxed));
        }
    }

    /// Returns whether [`Words::admit`] may succeed: the zone is idle and healthy, and no code under the lock has it.
    #[inline]
    pub(crate) fn is_idle(&self, place: PlugPlace) -> bool {
        self.at(place).is_some_and(|word| word.load(Ordering::Relaxed) >> STATE_SHIFT == 0)
    }

    /// Admits a write of `len` sectors to an idle, healthy zone that can be written up to `capacity`: at `offset`, or
    /// wherever the write pointer is.
    #[inline(always)]
    pub(crate) fn admit(
        &self,
        place: PlugPlace,
        offset: Option<u32>,
        len: u32,
        capacity: impl FnOnce() -> u32,
    ) -> LockFreeAdmission {
        let Some(word) = self.at(place) else { return LockFreeAdmission::Locked };
        let was = word.load(Ordering::Relaxed);
        let state = was >> STATE_SHIFT;
        if state != 0 {
            let conventional = state & u64::from(CONVENTIONAL) != 0;
            return if conventional {
                LockFreeAdmission::Conventional
            } else {
                LockFreeAdmission::Locked
            };
        }
        let wp = was as u32;
        let fits = u64::from(wp) + u64::from(len) <= u64::from(capacity());
        if !fits || offset.is_some_and(|offset| offset != wp) {
            return LockFreeAdmission::Locked;
        }
        let new = (was + u64::from(len)) | IN_FLIGHT;
        match word.compare_exchange(was, new, Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => LockFreeAdmission::Admitted {
                offset: wp,
                generation: generation((was >> 32) as u32),
            },
            Err(_) => LockFreeAdmission::Locked,
        }
    }

    /// Ends the only write of a zone, in which nothing else has happened since it was sent. Returns false if something
    /// has: nothing has changed, and the caller takes the lock.
    #[inline]
    pub(crate) fn complete(&self, place: PlugPlace) -> bool {
        let Some(word) = self.at(place) else { return false };
        let was = word.load(Ordering::Relaxed);
        was >> STATE_SHIFT == u64::from(PLUGGED)
            && word
                .compare_exchange(was, was & !IN_FLIGHT, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
    }

    /// Makes a plug belong to the lock of its shard, and returns its word from before. `None`: it has no word.
    pub(super) fn lock(&self, place: PlugPlace) -> Option<Word> {
        let was = self.at(place)?.fetch_or(LOCKED, Ordering::AcqRel);
        debug_assert!(
            was & LOCKED == 0,
            "only the holder of the shard's lock sets and clears the bit"
        );
        Some(Word::unpack(was))
    }

    /// Stores the state of a plug that belongs to the lock, for other readers.
    pub(super) fn show(&self, place: PlugPlace, word: Word) {
        if let Some(at) = self.at(place) {
            at.store(word.pack() | LOCKED, Ordering::Release);
        }
    }

    /// Ends the ownership that [`Words::lock`] began, and stores `word` as the plug's state. Returns false if the
    /// plug has no word.
    #[inline]
    pub(super) fn unlock(&self, place: PlugPlace, word: Word) -> bool {
        let Some(at) = self.at(place) else { return false };
        at.store(word.pack(), Ordering::Release);
        true
    }
}
