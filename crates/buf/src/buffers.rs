//! Free memory for the data of commands, kept for later commands. A thread owns it and its connections share it.

use crate::AlignedBuf;

/// The shortest buffer, as a power of two. A shorter request gets this one.
const MIN_SHIFT: u32 = 12;
/// Classes of lengths, each a power of two: 4 KiB to 128 MiB.
const CLASSES: usize = 16;

/// Free buffers, by their length.
///
/// ```
/// use zoneplug_buf::Buffers;
/// let mut buffers = Buffers::new(1 << 20);
/// let b = buffers.take(5000);
/// assert_eq!(b.len(), 8192);
/// buffers.put(b);
/// assert_eq!(buffers.free_bytes(), 8192);
/// ```
#[derive(Debug)]
pub struct Buffers {
    free: [Vec<AlignedBuf>; CLASSES],
    /// The fewest free buffers since the last trim, by length.
    fewest: [usize; CLASSES],
    free_bytes: usize,
    max_free_bytes: usize,
}

impl Buffers {
    /// Makes a pool that keeps at most `max_free_bytes` bytes of free memory.
    pub fn new(max_free_bytes: usize) -> Buffers {
        Buffers { free: Default::default(), fewest: [0; CLASSES], free_bytes: 0, max_free_bytes }
    }

    /// Returns the bytes of free memory that the pool keeps.
    pub fn free_bytes(&self) -> usize {
        self.free_bytes
    }

    /// Returns the class of the shortest buffer with at least `len` bytes.
    fn class(len: u32) -> usize {
        (u32::BITS - len.saturating_sub(1).leading_zeros()).saturating_sub(MIN_SHIFT) as usize
    }

    /// Takes a buffer of at least `len` bytes. It contains data of an earlier command: a caller that sends it must
    /// write each byte first.
    #[inline(always)]
    pub fn take(&mut self, len: u32) -> AlignedBuf {
        let class = Self::class(len);
        match self.free.get_mut(class).and_then(Vec::pop) {
            Some(buf) => {
                self.free_bytes -= buf.len() as usize;
                self.fewest[class] = self.fewest[class].min(self.free[class].len());
                buf
            }
            None if class < CLASSES => AlignedBuf::zeroed(1 << (MIN_SHIFT + class as u32)),
            None => AlignedBuf::zeroed(len),
        }
    }

    /// Takes a buffer back. The pool frees it if its limit is reached.
    pub fn put(&mut self, buf: AlignedBuf) {
        let len = buf.len() as usize;
        let class = Self::class(buf.len());
        if buf.len().is_power_of_two()
            && buf.len() >= 1 << MIN_SHIFT
            && class < CLASSES
            && self.free_bytes + len <= self.max_free_bytes
        {
            self.free_bytes += len;
            self.free[class].push(buf);
        }
    }

    /// Frees the buffers that were not needed since the last call.
    pub fn trim(&mut self) {
        for (free, fewest) in self.free.iter_mut().zip(&mut self.fewest) {
            // `take` and `put` work at the end, so the first buffers are the unused ones.
            let unused = free.drain(..*fewest);
            self.free_bytes -= unused.map(|buf| buf.len() as usize).sum::<usize>();
            *fewest = free.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_as_long_as_asked_and_comes_back() {
        let mut b = Buffers::new(64 << 10);
        for (ask, len) in [(0, 4096), (1, 4096), (4096, 4096), (4097, 8192), (1 << 20, 1 << 20)] {
            let buf = b.take(ask);
            assert_eq!(buf.len(), len, "{ask}");
            b.put(buf);
        }
        assert_eq!(b.free_bytes(), 4096 + 8192, "the one of 1 MiB is more than is kept");
        // A buffer that the pool did not make.
        b.put(AlignedBuf::zeroed(5000));
        assert_eq!(b.free_bytes(), 4096 + 8192);
        let (one, two) = (b.take(4000), b.take(4000));
        assert_eq!((one.len(), two.len(), b.free_bytes()), (4096, 4096, 8192));
    }

    #[test]
    fn what_is_not_needed_for_a_while_is_freed() {
        let mut b = Buffers::new(1 << 20);
        let all = [4096, 4096, 4096, 4096, 8192].map(|len| b.take(len));
        all.into_iter().for_each(|buf| b.put(buf));
        b.trim();
        assert_eq!(b.free_bytes(), 4 * 4096 + 8192, "all were needed");
        let (one, two) = (b.take(1), b.take(1));
        b.put(one);
        b.put(two);
        b.trim();
        assert_eq!(b.free_bytes(), 2 * 4096, "two at a time were needed");
        b.trim();
        assert_eq!(b.free_bytes(), 0);
    }
}
