//! Owned memory as slices of bytes.

use crate::AlignedBuf;
use std::io::IoSlice;

/// Access to the bytes as slices. A buffer that is lent is not an [`AlignedBuf`] meanwhile ([`AlignedBuf::lend`]), so
/// no slice exists of memory that a device may write. There is no `Deref`, because the length of a buffer is a `u32`,
/// as that of a BIO, and a method of that name would hide the slice's.
///
/// ```
/// use zoneplug_buf::AlignedBuf;
/// let mut buf = AlignedBuf::from_slice(b"zoned");
/// buf.as_mut_slice()[0] = b'Z';
/// assert_eq!(buf.as_slice(), b"Zoned");
/// ```
impl AlignedBuf {
    /// A copy of `bytes`. To be written to a disk, they must be whole blocks.
    ///
    /// # Panics
    ///
    /// If `bytes` is 4 GiB or longer.
    pub fn from_slice(bytes: &[u8]) -> AlignedBuf {
        AlignedBuf::of_pieces(length(bytes.len()), std::iter::once(bytes))
    }

    /// A copy of several pieces, one after the other.
    ///
    /// ```
    /// use std::io::IoSlice;
    /// let header = [1; 512];
    /// let record = [2; 3584];
    /// let buf = zoneplug_buf::AlignedBuf::from_slices(&[IoSlice::new(&header), IoSlice::new(&record)]);
    /// assert_eq!((buf.len(), buf.as_slice()[511], buf.as_slice()[512]), (4096, 1, 2));
    /// ```
    ///
    /// # Panics
    ///
    /// If they have 4 GiB or more together.
    pub fn from_slices(pieces: &[IoSlice<'_>]) -> AlignedBuf {
        let len = length(pieces.iter().map(|p| p.len()).sum());
        AlignedBuf::of_pieces(len, pieces.iter().map(|p| &p[..]))
    }

    /// A copy of `bytes`, followed by zeroes up to a whole number of blocks of `block` bytes.
    ///
    /// ```
    /// let buf = zoneplug_buf::AlignedBuf::padded(b"zoned", 4096);
    /// assert_eq!((buf.len(), &buf.as_slice()[..6]), (4096, &b"zoned\0"[..]));
    /// ```
    ///
    /// # Panics
    ///
    /// If `block` is 0, or the whole would be 4 GiB or longer.
    pub fn padded(bytes: &[u8], block: usize) -> AlignedBuf {
        let mut buf = AlignedBuf::zeroed(length(bytes.len().next_multiple_of(block)));
        buf.as_mut_slice()[..bytes.len()].copy_from_slice(bytes);
        buf
    }

    /// Returns the bytes.
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: the buffer owns this many initialised bytes, and no device has them: lending a buffer takes it
        // away.
        unsafe { std::slice::from_raw_parts(self.as_ptr(), self.len() as usize) }
    }

    /// Returns the bytes, for writing.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as in `as_slice`, and the borrow is the only one.
        unsafe { std::slice::from_raw_parts_mut(self.as_mut_ptr(), self.len() as usize) }
    }
}

/// Returns the length of a buffer, as a `u32`.
fn length(len: usize) -> u32 {
    u32::try_from(len).expect("a buffer is shorter than 4 GiB")
}

impl AsRef<[u8]> for AlignedBuf {
    fn as_ref(&self) -> &[u8] {
        self.as_slice()
    }
}

impl AsMut<[u8]> for AlignedBuf {
    fn as_mut(&mut self) -> &mut [u8] {
        self.as_mut_slice()
    }
}

/// A copy, because the memory of a `Vec` is not aligned.
impl From<Vec<u8>> for AlignedBuf {
    fn from(bytes: Vec<u8>) -> AlignedBuf {
        AlignedBuf::from_slice(&bytes)
    }
}

impl From<&[u8]> for AlignedBuf {
    fn from(bytes: &[u8]) -> AlignedBuf {
        AlignedBuf::from_slice(bytes)
    }
}

impl<const N: usize> From<&[u8; N]> for AlignedBuf {
    fn from(bytes: &[u8; N]) -> AlignedBuf {
        AlignedBuf::from_slice(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_and_copies_are_the_same_bytes() {
        let mut buf = AlignedBuf::from(vec![1, 2, 3, 4]);
        buf.write(1, &[9, 9]);
        assert_eq!(buf.as_slice(), [1, 9, 9, 4]);
        buf.as_mut_slice()[3] = 7;
        let mut back = [0; 2];
        buf.read(2, &mut back);
        assert_eq!(back, [9, 7]);
        assert_eq!(buf.as_ref().as_ptr() as usize % 4096, 0);
        buf.as_mut().fill(5);
        assert_eq!(buf.to_vec(), [5; 4]);
    }

    #[test]
    fn pieces_follow_each_other_and_may_be_empty() {
        let pieces =
            [IoSlice::new(b""), IoSlice::new(b"ab"), IoSlice::new(b""), IoSlice::new(b"c")];
        assert_eq!(AlignedBuf::from_slices(&pieces).as_slice(), b"abc");
        assert!(AlignedBuf::from_slices(&[]).is_empty());
        assert_eq!(AlignedBuf::padded(&[1; 512], 512).len(), 512);
        assert!(AlignedBuf::padded(b"", 512).is_empty());
        assert!(AlignedBuf::from(b"").as_slice().is_empty());
    }
}
