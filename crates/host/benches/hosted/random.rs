//! Numbers that look random.

/// Numbers that look random.
pub(crate) struct Random(u64);

impl Random {
    /// Each `number` gives other ones.
    pub(crate) fn new(number: u64) -> Random {
        Random((number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    #[inline]
    pub(crate) fn draw(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}
