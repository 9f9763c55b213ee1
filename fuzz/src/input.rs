//! An input as a list of numbers. What is behind its end is zero.

pub(crate) struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    pub(crate) fn new(data: &'a [u8]) -> Input<'a> {
        Input(data)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let mut out = [0; N];
        let n = N.min(self.0.len());
        let (now, rest) = self.0.split_at(n);
        out[..n].copy_from_slice(now);
        self.0 = rest;
        out
    }

    pub(crate) fn byte(&mut self) -> u8 {
        self.bytes::<1>()[0]
    }

    pub(crate) fn short(&mut self) -> u16 {
        u16::from_le_bytes(self.bytes())
    }

    /// Any number, of few bytes if it is small; those near powers of two are likely.
    pub(crate) fn number(&mut self) -> u64 {
        let kind = self.byte();
        match kind % 8 {
            0 => u64::from(kind >> 3),
            1 => u64::from(self.byte()),
            2 => u64::from(self.short()),
            3 => u64::from(u32::from_le_bytes(self.bytes())),
            4 => u64::from_le_bytes(self.bytes()),
            5 => (1u64 << (self.byte() & 63)).wrapping_sub(u64::from(kind >> 3)),
            6 => (1u64 << (self.byte() & 63)).wrapping_add(u64::from(kind >> 3)),
            _ => u64::MAX - u64::from(kind >> 3),
        }
    }
}
