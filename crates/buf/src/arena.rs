//! [`Arena`]: buffers for simulations and tests. One call makes their memory available again.

use crate::IoBuf;

/// Hands out buffers from large pieces of memory that are never freed.
///
/// ```
/// let mut arena = zoneplug_buf::Arena::new(1 << 20);
/// let (a, b) = (arena.take(4096), arena.take(4096));
/// assert_ne!(a.range(), b.range());
/// ```
#[derive(Debug)]
pub struct Arena {
    /// Length of a piece in bytes.
    piece: u32,
    /// The pieces. Nothing uses their memory through these entries: only the buffers that were taken do.
    pieces: Vec<IoBuf>,
    /// The rest of the current piece.
    rest: IoBuf,
    /// The number of pieces in use, the current one included.
    used: usize,
}

impl Arena {
    /// Makes an arena that grows by pieces of `piece` bytes.
    pub const fn new(piece: u32) -> Arena {
        Arena { piece, pieces: Vec::new(), rest: IoBuf::empty(), used: 0 }
    }

    /// Takes a buffer of `len` bytes with unspecified content. A buffer that is longer than a piece gets memory of its own,
    /// which no reset makes available again.
    pub fn take(&mut self, len: u32) -> IoBuf {
        if len > self.piece {
            return IoBuf::leaked(len);
        }
        if len > self.rest.len() {
            if self.used == self.pieces.len() {
                self.pieces.push(IoBuf::leaked(self.piece));
            }
            // SAFETY: nothing uses the memory through `pieces`. The caller of `reset` promises that no older buffer is in use.
            self.rest = unsafe { self.pieces[self.used].alias() };
            self.used += 1;
        }
        self.rest.split_to(len)
    }

    /// Makes the memory of the pieces available again, for the next calls of [`Arena::take`].
    ///
    /// # Safety
    ///
    /// Nothing uses a buffer that was taken before: a device, queue or BIO that has one is dropped, or was
    /// leaked and never runs again.
    pub unsafe fn reset(&mut self) {
        (self.rest, self.used) = (IoBuf::empty(), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn no_byte_is_handed_out_twice_before_a_reset() {
        let mut arena = Arena::new(64);
        let lens = [64, 1, 30, 33, 0, 65, 64];
        let mut take = || -> Vec<_> { lens.iter().map(|&n| arena.take(n).range()).collect() };
        let first = take();
        let second = take();
        assert_eq!(first.iter().chain(&second).collect::<HashSet<_>>().len(), 14);
        // SAFETY: all buffers were dropped.
        unsafe { arena.reset() };
        assert_eq!(arena.take(64).range(), first[0]);
    }
}
