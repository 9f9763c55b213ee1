//! Pseudorandom numbers of the benchmarks.

/// A pseudorandom generator (xorshift64).
pub(crate) struct Random(u64);

impl Random {
    /// Starts the sequence of this seed.
    pub(crate) fn new(seed: u64) -> Random {
        Random((seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    #[inline]
    pub(crate) fn draw(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}
