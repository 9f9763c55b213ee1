//! Times the operations that a thread sends to the disk that it serves.
//!
//! Reading the clock takes more instructions than timing may cost, so a busy queue times one operation in many. The
//! log counts a timed operation for itself and for all operations of its kind since the last timed one, so its counts
//! add up to all operations. A queue times about one operation of each kind in each [`INTERVAL`], or about one in
//! [`MAX_APART`], whichever is more. A queue that begins fewer than two hundred operations of a kind in a second times
//! them all.
//!
//! The start time of a timed operation is kept in the token of its BIO. So an operation that is not timed costs a
//! decrement and two branches. A server without timing uses the type [`Untimed`], which costs nothing.

use super::latency::LatencyLog;
use std::sync::Arc;
use zoneplug_core::{Nanos, Op, Sector};

/// A queue times about one operation of each kind in this interval: 4 ms. A disk with a head needs longer than that
/// for a random operation, so all of these are timed.
pub(crate) const INTERVAL: Nanos = Nanos(1 << 22);
/// An interval so long that few operations are timed, however many there are. For tests that count instructions.
#[cfg(feature = "nvme-tcp")]
pub(crate) const SELDOM: Nanos = Nanos(1 << 42);
/// The largest average distance between timed operations.
const MAX_APART: u64 = 160;
/// The tag of the request is in these low bits of a BIO's token. The bits above are the mark of a timed operation, or
/// 0.
const TAG_BITS: u32 = 16;
/// A mark has the start time in units of 32 ns, and keeps 40 bits of that: 9 hours.
const UNIT_SHIFT: u32 = 5;
const TIME_MASK: u64 = (1 << 40) - 1;
/// Below the time, a mark has the number of operations that the timed one stands for.
const STANDS_FOR_BITS: u32 = 8;

/// Times the operations of a queue, or does nothing.
pub(crate) trait Timing: Sized + Send + 'static {
    /// Makes a timer that records in `log`. Returns `None` if the timer needs a log and gets none.
    fn of(log: Option<&Arc<LatencyLog>>) -> Option<Self>;

    /// Returns the token for a BIO that is about to be sent to the disk. The low 16 bits are `tag`.
    fn token(&mut self, tag: u16, op: Op) -> u64;

    /// Called when the BIO with this token is back from the disk. `sector`: where the BIO began, or where an append has
    /// landed.
    fn ended(&mut self, token: u64, op: Op, sector: Sector);
}

/// Times nothing.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Untimed;

impl Timing for Untimed {
    fn of(_: Option<&Arc<LatencyLog>>) -> Option<Untimed> {
        Some(Untimed)
    }

    #[inline(always)]
    fn token(&mut self, tag: u16, _: Op) -> u64 {
        u64::from(tag)
    }

    #[inline(always)]
    fn ended(&mut self, _: u64, _: Op, _: Sector) {}
}

/// Chooses the operations of one kind that are timed.
#[derive(Debug, Clone, Copy)]
struct Sampling {
    /// The number of operations that the next timed one stands for, itself included.
    stands_for: u32,
    /// The average distance between timed operations.
    apart: u64,
    /// The time of the last timed operation.
    last: Nanos,
}

/// Times operations for the log of a disk.
#[derive(Debug)]
pub(crate) struct Timed {
    /// For each kind: the number of operations up to the next timed one.
    left: [u32; Op::ALL.len()],
    kinds: [Sampling; Op::ALL.len()],
    log: Arc<LatencyLog>,
    random: u64,
}

impl Timed {
    /// Returns the token of a timed operation, and chooses the next one to time.
    #[cold]
    #[inline(never)]
    fn mark(&mut self, tag: u16, op: Op) -> u64 {
        let now = self.log.now();
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let kind = &mut self.kinds[op as usize];
        let stands_for = kind.stands_for;
        self.left[op as usize] = kind.next(now, self.log.interval(), self.random);
        mark(now, stands_for) << TAG_BITS | u64::from(tag)
    }

    #[cold]
    #[inline(never)]
    fn record(&self, mark: u64, op: Op, sector: Sector) {
        let now = self.log.now();
        let (took, stands_for) = unmark(mark, now);
        self.log.record(op, sector, took, u64::from(stands_for), now);
    }
}

impl Sampling {
    const FIRST: Sampling = Sampling { stands_for: 1, apart: 1, last: Nanos(0) };

    /// Called for a timed operation. Returns the distance to the next one. The distance is random, so that a periodic
    /// load does not always have the same operations of its period timed.
    fn next(&mut self, now: Nanos, interval: Nanos, random: u64) -> u32 {
        let passed = now.0.saturating_sub(self.last.0).max(1);
        let wanted = (u64::from(self.stands_for) * interval.0 / passed).min(2 * self.apart);
        self.apart = wanted.clamp(1, MAX_APART);
        let spread = if self.apart < 4 { 1 } else { self.apart };
        self.stands_for = (self.apart - spread / 2 + random % spread) as u32;
        self.last = now;
        self.stands_for
    }
}

fn mark(now: Nanos, stands_for: u32) -> u64 {
    ((now.0 >> UNIT_SHIFT) & TIME_MASK) << STANDS_FOR_BITS | u64::from(stands_for)
}

/// The time since a mark was made, and the number of operations it stands for.
fn unmark(mark: u64, now: Nanos) -> (Nanos, u32) {
    let began = mark >> STANDS_FOR_BITS;
    let passed = (now.0 >> UNIT_SHIFT).wrapping_sub(began) & TIME_MASK;
    (Nanos(passed << UNIT_SHIFT), mark as u32 & ((1 << STANDS_FOR_BITS) - 1))
}

impl Timing for Timed {
    /// No other thread may write to `log`.
    fn of(log: Option<&Arc<LatencyLog>>) -> Option<Timed> {
        let (left, kinds) = ([1; Op::ALL.len()], [Sampling::FIRST; Op::ALL.len()]);
        Some(Timed { left, kinds, log: log?.clone(), random: 0x9e37_79b9_7f4a_7c15 })
    }

    #[inline(always)]
    fn token(&mut self, tag: u16, op: Op) -> u64 {
        let left = &mut self.left[op as usize];
        *left -= 1;
        if *left == 0 { self.mark(tag, op) } else { u64::from(tag) }
    }

    #[inline(always)]
    fn ended(&mut self, token: u64, op: Op, sector: Sector) {
        let mark = token >> TAG_BITS;
        if mark != 0 {
            self.record(mark, op, sector);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Begins `n` operations, one every `apart` nanoseconds. Returns for each timed one how many it stands for.
    fn begin(n: u32, apart: u64) -> Vec<u32> {
        let (mut kind, mut left) = (Sampling::FIRST, 1);
        let (mut all, mut random) = (Vec::new(), 1u64);
        for i in 1..=u64::from(n) {
            left -= 1;
            if left == 0 {
                all.push(kind.stands_for);
                random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                left = kind.next(Nanos(i * apart), INTERVAL, random >> 33);
            }
        }
        all
    }

    #[test]
    fn slow_queues_time_every_operation() {
        assert_eq!(begin(1000, INTERVAL.0), [1; 1000]);
        // The first operation is far from the start of the clock.
        assert_eq!(begin(1000, 10 * INTERVAL.0), [1; 1000]);
    }

    #[test]
    fn busy_queues_time_one_in_many_which_stand_for_all() {
        let all = begin(1_000_000, 1_000);
        let sum: u32 = all.iter().sum();
        let (fewest, most) = (all[20..].iter().min().unwrap(), all.iter().max().unwrap());
        assert!(1_000_000 - sum < 256, "{sum}");
        assert!((5800..6800).contains(&all.len()), "{}", all.len());
        assert!(*fewest >= 80 && *most < 240 && most - fewest > 140, "{fewest} to {most}");
    }

    /// A mark fits into a token beside a tag, also after the clock has run for days.
    #[test]
    fn a_mark_has_the_time_and_the_number() {
        for start in [0, 5, (1 << 45) - 64, (1 << 45) - 1, 123_456_789_012_345_678] {
            for took in [0, 1, 31, 32, 1_000, 1_000_000_000, 30_000_000_000_000] {
                let mark = mark(Nanos(start), 192);
                assert!(mark > 0 && mark < 1 << 48);
                let (passed, stands_for) = unmark(mark, Nanos(start + took));
                assert!(passed.0.abs_diff(took) < 32, "{took} from {start}: {passed:?}");
                assert_eq!(stands_for, 192);
            }
        }
    }
}
