//! Locking a plug against code that does not take the lock of its shard, and unlocking it.
//!
//! While the word of a plug is locked, code under the lock of the [`Shard`] owns the plug as a whole, and reads and
//! changes it as plain data. At the end ([`Shard::unlock_plug`]) the word is written back and unlocked, but only if
//! write pointer, generation and `PLUGGED` describe the plug completely. Otherwise it stays locked, and the next
//! holder finds it so. A plug that is not unlocked costs only time: its next writes take the lock.

use super::state::PLUGGED;
use super::word::{PlugPlace, Word, Words};
use super::{LISTED, Plug, Recovery, Shard};
use std::sync::Arc;

impl Plug {
    /// Returns whether write pointer, generation and `PLUGGED` describe the plug completely. `in_flight` is 0 unless the disk
    /// lets several writes of a zone fly.
    fn is_plain(&self) -> bool {
        self.parked == 0
            && self.state & !PLUGGED == 0
            && self.ticket & LISTED == 0
            && !self.in_line
            && self.recovery == Recovery::None
            && self.in_flight == 0
    }

    #[inline]
    fn word(&self) -> Word {
        Word { wp: self.wp, generation: self.generation, state: self.state }
    }
}

impl Shard {
    /// Gives the shard the words of its disk, and the number under which it finds its own.
    pub(crate) fn take_words(&mut self, words: Arc<Words>, number: usize) {
        (self.words, self.number) = (words, number);
    }

    /// Puts a new plug at the end of the shard.
    pub(crate) fn push(&mut self, plug: Plug) {
        let i = self.plugs.len();
        self.words.show(self.place_of(i), plug.word());
        self.plugs.push(plug);
        self.unlock_plug(i);
    }

    /// Returns the place of plug `i` in the disk.
    #[inline]
    pub(crate) fn place_of(&self, i: usize) -> PlugPlace {
        PlugPlace { shard: self.number, index: i }
    }

    /// `on`: a plug stays locked from the next time that it is locked. Off: only while its word does not describe it.
    pub(crate) fn keep_locked(&mut self, on: bool) {
        self.keeps_locked = on;
    }

    /// Locks plug `i` against code that does not take the shard's lock. Until [`Shard::unlock_plug`] it is plain data.
    #[inline]
    pub(crate) fn lock_plug(&mut self, i: usize) {
        if !self.plugs[i].locked {
            self.lock_word(i);
        }
    }

    #[cold]
    #[inline(never)]
    fn lock_word(&mut self, i: usize) {
        let place = self.place_of(i);
        let plug = &mut self.plugs[i];
        plug.locked = true;
        if let Some(word) = self.words.lock(place) {
            debug_assert_eq!(word.generation, plug.generation, "only code under the lock resets");
            (plug.wp, plug.state) = (word.wp, word.state);
        }
    }

    /// Unlocks plug `i`, if its word describes it completely.
    #[inline(always)]
    pub(crate) fn unlock_plug(&mut self, i: usize) {
        let place = self.place_of(i);
        let Some(plug) = self.plugs.get_mut(i) else { return };
        if !plug.is_plain() || self.keeps_locked {
            return;
        }
        // Without a word, as in tests of a shard, the plug stays locked.
        plug.locked = !self.words.unlock(place, plug.word());
    }
}

#[cfg(all(test, loom))]
pub(super) mod loom_tests {
    use super::*;
    use crate::bio::{Bio, Command, Op};
    use crate::plug::{Admit, AfterWrite, Kind, LockFreeAdmission, Merge};
    use crate::sync::{Mutex, lock};
    use crate::unit::Sector;
    use crate::zone::{Condition, ZoneInfo, ZoneType};
    use loom::thread;

    const ZONE: PlugPlace = PlugPlace { shard: 0, index: 0 };
    pub(in crate::plug) const CAPACITY: u32 = 64;
    const LEN: u32 = 8;

    /// A shard with the plug of one empty zone, and its word.
    pub(in crate::plug) fn empty_zone() -> (Arc<Words>, Shard) {
        let words = Arc::new(Words::new(1, 1).unwrap());
        let mut shard = Shard::default();
        shard.take_words(words.clone(), 0);
        shard.push(Plug::new(&ZoneInfo {
            start: Sector(0),
            len_sectors: u64::from(CAPACITY),
            capacity_sectors: u64::from(CAPACITY),
            wp: Sector(0),
            zone_type: ZoneType::SeqWriteRequired,
            cond: Condition::Empty,
        }));
        (words, shard)
    }

    /// The fate of a write.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Write {
        Sent { offset: u32, generation: u32 },
        Parked,
    }

    /// The plug of one zone, used as a queue uses it.
    struct Zone {
        words: Arc<Words>,
        shard: Mutex<Shard>,
    }

    impl Zone {
        fn new() -> Arc<Zone> {
            let (words, shard) = empty_zone();
            Arc::new(Zone { words, shard: Mutex::new(shard) })
        }

        fn append(&self) -> Write {
            let admission = self.words.admit(ZONE, None, LEN, || CAPACITY);
            if let LockFreeAdmission::Admitted { offset, generation } = admission {
                return Write::Sent { offset, generation };
            }
            let mut shard = lock(&self.shard);
            shard.lock_plug(0);
            let plug = &mut shard.plugs[0];
            let (offset, generation) = (plug.write_pointer(), plug.generation());
            let sent = match plug.admit(offset, LEN) {
                Admit::Issue => Write::Sent { offset, generation },
                Admit::Park => {
                    let bio = Bio::new(Op::WriteZeroes, Sector(u64::from(offset)), LEN);
                    shard.park(0, &mut vec![bio], LEN, 0, Kind::PLAIN);
                    Write::Parked
                }
                Admit::Reject(status) => panic!("refused: {status}"),
            };
            shard.unlock_plug(0);
            sent
        }

        /// Ends the write in flight. Returns whether the parked one has been sent.
        fn complete(&self) -> bool {
            if self.words.complete(ZONE) {
                return false;
            }
            let mut shard = lock(&self.shard);
            shard.lock_plug(0);
            let next = shard.next(0);
            if next == AfterWrite::Issue {
                let merge = Merge { max_sectors: LEN, max_zeroes_sectors: LEN, max_bios: 1 };
                assert!(shard.fill(0, merge, &mut Command::new(1)), "a write waits");
            }
            shard.unlock_plug(0);
            next == AfterWrite::Issue
        }

        fn reset(&self) {
            let mut shard = lock(&self.shard);
            shard.lock_plug(0);
            shard.begin_change(0).reset(&mut Vec::new());
            shard.unlock_plug(0);
        }

        /// Returns the write pointer, whether a write is in flight, and how many wait.
        fn state(&self) -> (u32, bool, u32) {
            let mut shard = lock(&self.shard);
            shard.lock_plug(0);
            let plug = &shard.plugs[0];
            let state = (plug.write_pointer(), plug.is_plugged(), plug.parked());
            shard.unlock_plug(0);
            state
        }
    }

    /// Two concurrent writes: one is sent and the other parks, and none is lost.
    #[test]
    fn loom_admit_against_park() {
        loom::model(|| {
            let zone = Zone::new();
            let other = zone.clone();
            let other = thread::spawn(move || other.append());
            let both = [zone.append(), other.join().unwrap()];
            let sent = Write::Sent { offset: 0, generation: 0 };
            assert!(both.contains(&sent) && both.contains(&Write::Parked), "I1: {both:?}");
            assert_eq!(zone.state(), (2 * LEN, true, 1), "I3");
            assert!(zone.complete() && !zone.complete(), "I4: each of them is sent once");
            assert_eq!(zone.state(), (2 * LEN, false, 0));
        });
    }

    /// A write that comes while another ends is sent by one of the two.
    #[test]
    fn loom_complete_against_park() {
        loom::model(|| {
            let zone = Zone::new();
            zone.append();
            let other = zone.clone();
            let other = thread::spawn(move || other.complete());
            let sent = zone.append() != Write::Parked;
            let sent_behind = other.join().unwrap();
            assert!(sent != sent_behind, "I4: sent {sent}, sent by the other {sent_behind}");
            assert_eq!(zone.state(), (2 * LEN, true, 0));
            assert!(!zone.complete());
        });
    }

    /// An append counts as before a reset or after it, in the generation in which it was admitted (M4).
    #[test]
    fn loom_reset_against_admit() {
        loom::model(|| {
            let zone = Zone::new();
            zone.append();
            zone.complete();
            let other = zone.clone();
            let other = thread::spawn(move || other.reset());
            let write = zone.append();
            other.join().unwrap();
            let before = write == Write::Sent { offset: LEN, generation: 0 };
            let after = write == Write::Sent { offset: 0, generation: 1 };
            assert!(before || after, "I3: {write:?}");
            let wp = if before { 0 } else { LEN };
            assert_eq!(zone.state(), (wp, true, 0));
            assert!(!zone.complete());
        });
    }
}
