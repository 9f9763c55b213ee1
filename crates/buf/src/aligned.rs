//! [`AlignedBuf`]: memory that owns itself. [`Lent`]: the lender's share while the memory is lent.

use crate::{IoBuf, IoRange};
use std::mem::ManuallyDrop;
use std::ptr;

/// Memory for I/O that owns itself: zeroed at first, and aligned to 4096 bytes as `O_DIRECT` needs it.
///
/// Lending it to a BIO takes it away from its owner: [`AlignedBuf::lend`] turns it into an [`IoBuf`] for the device
/// and a [`Lent`] for the lender. The two together turn into an `AlignedBuf` again.
///
/// ```
/// let mut b = zoneplug_buf::AlignedBuf::zeroed(8192);
/// b.write(0, b"hello");
/// assert_eq!(&b.to_vec()[..5], b"hello");
/// ```
#[derive(Debug)]
pub struct AlignedBuf {
    ptr: ptr::NonNull<u8>,
    len: u32,
}

// SAFETY: the buffer owns its memory.
unsafe impl Send for AlignedBuf {}
// SAFETY: shared access only copies bytes out.
unsafe impl Sync for AlignedBuf {}

impl AlignedBuf {
    const ALIGN: usize = 4096;

    fn layout(len: u32) -> std::alloc::Layout {
        std::alloc::Layout::from_size_align((len as usize).max(1), Self::ALIGN)
            .expect("a length below 4 GiB and an alignment of 4096 make a layout")
    }

    /// Makes a buffer of `len` zero bytes. Ends the process if there is not enough memory; [`AlignedBuf::try_zeroed`]
    /// does not.
    pub fn zeroed(len: u32) -> Self {
        Self::try_zeroed(len).unwrap_or_else(|| std::alloc::handle_alloc_error(Self::layout(len)))
    }

    /// Like [`AlignedBuf::zeroed`]. `None`: there is not enough memory.
    ///
    /// ```
    /// let buf = zoneplug_buf::AlignedBuf::try_zeroed(4096).expect("there is memory");
    /// assert_eq!(buf.len(), 4096);
    /// ```
    pub fn try_zeroed(len: u32) -> Option<Self> {
        // SAFETY: the layout is never of size 0.
        let ptr = unsafe { std::alloc::alloc_zeroed(Self::layout(len)) };
        ptr::NonNull::new(ptr).map(|ptr| AlignedBuf { ptr, len })
    }

    /// Copies pieces that have `len` bytes together. The memory is not filled with zeroes first.
    pub(crate) fn of_pieces<'a>(len: u32, pieces: impl Iterator<Item = &'a [u8]>) -> Self {
        let layout = Self::layout(len);
        // SAFETY: the layout is never of size 0. Nothing but `write` below, which only copies into the memory, is
        // called before every byte of it is written.
        let ptr = unsafe { std::alloc::alloc(layout) };
        let Some(ptr) = ptr::NonNull::new(ptr) else { std::alloc::handle_alloc_error(layout) };
        let (mut buf, mut at) = (AlignedBuf { ptr, len }, 0);
        for piece in pieces {
            buf.write(at, piece);
            at += piece.len() as u32;
        }
        assert_eq!(at, len, "the pieces of a buffer");
        buf
    }

    /// Returns the length in bytes.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Returns whether the length is 0.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Copies `src` to `offset`.
    ///
    /// # Panics
    ///
    /// If it does not fit.
    pub fn write(&mut self, offset: u32, src: &[u8]) {
        self.within().copy_from(offset, src);
    }

    /// Copies the bytes at `offset` to `dst`.
    ///
    /// # Panics
    ///
    /// If the buffer is shorter.
    pub fn read(&self, offset: u32, dst: &mut [u8]) {
        self.within().copy_to(offset, dst);
    }

    /// Returns a copy of all bytes.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut v = vec![0; self.len as usize];
        self.read(0, &mut v);
        v
    }

    fn within(&self) -> IoBuf {
        // SAFETY: used by the callers above within the borrow of `self`, exclusive where they write.
        unsafe { IoBuf::new(self.ptr.as_ptr(), self.len) }
    }

    pub(crate) fn as_ptr(&self) -> *const u8 {
        self.ptr.as_ptr()
    }

    /// Returns the address of the first byte, for a system call that the caller makes while it has the buffer.
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.ptr.as_ptr()
    }

    /// Lends the whole buffer.
    pub fn lend(self) -> (Lent, IoBuf) {
        let len = self.len;
        self.lend_part(0, len)
    }

    /// Lends the `len` bytes from `offset` on. The other bytes cannot be used until these are back.
    ///
    /// # Panics
    ///
    /// If the part is not inside the buffer.
    pub fn lend_part(self, offset: u32, len: u32) -> (Lent, IoBuf) {
        let memory = ManuallyDrop::new(self);
        // SAFETY: `Lent` frees the memory, or gives it back, only for an `IoBuf` of the whole range that it has lent.
        // Only one such `IoBuf` exists: this one, or the one put together from all of its parts. A `Lent` that is
        // dropped frees nothing.
        let mut io = unsafe { IoBuf::new(memory.ptr.as_ptr(), memory.len) };
        let _before = io.split_to(offset);
        let _after = io.split_off(len);
        (Lent { range: io.range(), memory }, io)
    }

    /// Turns the buffer into memory that is never freed.
    ///
    /// ```
    /// use zoneplug_buf::{AlignedBuf, IoBuf};
    /// let memory: &'static [u8] = AlignedBuf::zeroed(4096).leak();
    /// assert_eq!(IoBuf::from_static(memory).len(), 4096);
    /// ```
    pub fn leak(self) -> &'static mut [u8] {
        let memory = ManuallyDrop::new(self);
        // SAFETY: the memory is zeroed or was written, it is never freed, and nothing else has its address.
        unsafe { std::slice::from_raw_parts_mut(memory.ptr.as_ptr(), memory.len as usize) }
    }
}

impl IoBuf {
    /// Makes an `IoBuf` of `len` zero bytes, aligned to 4096, that are never freed. No other `IoBuf` covers these
    /// bytes. For tests.
    pub fn leaked(len: u32) -> Self {
        Self::of_leaked(AlignedBuf::zeroed(len))
    }

    /// Like [`IoBuf::leaked`]. `None`: there is not enough memory.
    ///
    /// ```
    /// assert_eq!(zoneplug_buf::IoBuf::try_leaked(4096).expect("there is memory").len(), 4096);
    /// ```
    pub fn try_leaked(len: u32) -> Option<Self> {
        AlignedBuf::try_zeroed(len).map(Self::of_leaked)
    }

    fn of_leaked(memory: AlignedBuf) -> Self {
        // The loan is dropped, so the memory is never freed.
        memory.lend().1
    }
}

/// The lender's share of memory that is lent. The memory is given back, or freed, only when its [`IoBuf`] is back.
/// Dropping a `Lent` leaks the memory, because a device may still use it.
///
/// ```compile_fail,E0599
/// // It cannot be looked at while it is lent.
/// let (lent, io) = zoneplug_buf::AlignedBuf::zeroed(4096).lend();
/// let bytes = lent.to_vec();
/// ```
#[derive(Debug)]
#[must_use = "a loan that is dropped leaks its memory"]
pub struct Lent {
    memory: ManuallyDrop<AlignedBuf>,
    range: IoRange,
}

impl Lent {
    /// Returns the memory if `buf` is exactly what was lent. Otherwise returns both arguments.
    pub fn take_back(self, buf: IoBuf) -> Result<AlignedBuf, (Lent, IoBuf)> {
        if buf.range() == self.range {
            Ok(ManuallyDrop::into_inner(self.memory))
        } else {
            Err((self, buf))
        }
    }

    /// Returns the range that was lent.
    pub fn range(&self) -> IoRange {
        self.range
    }

    /// Returns how many bytes cannot be used meanwhile: the whole buffer, even if only a part is lent.
    #[allow(clippy::len_without_is_empty, reason = "an amount, not a container")]
    pub fn len(&self) -> u32 {
        self.memory.len
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        // SAFETY: allocated in `zeroed` with the same layout.
        unsafe { std::alloc::dealloc(self.ptr.as_ptr(), Self::layout(self.len)) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_aligned_buffer_is_zeroed_and_aligned() {
        let b = AlignedBuf::zeroed(5000);
        assert_eq!(b.ptr.as_ptr() as usize % 4096, 0);
        assert!(b.to_vec().iter().all(|&x| x == 0));
        assert_eq!(AlignedBuf::zeroed(0).len(), 0);
    }

    #[test]
    fn only_what_was_lent_ends_a_loan() {
        let (a, mut io) = AlignedBuf::zeroed(64).lend_part(16, 32);
        let (b, other) = AlignedBuf::zeroed(64).lend_part(16, 32);
        let (a, other) = a.take_back(other).unwrap_err();
        io.copy_from(0, &[9; 32]);
        let half = io.split_off(16);
        let (a, io) = a.take_back(io).unwrap_err();
        let (a, half) = a.take_back(half).unwrap_err();
        let mut parts = crate::Parts::new({
            let (_lost, io) = AlignedBuf::zeroed(64).lend();
            io
        });
        assert!(parts.put_back(half).is_err());
        assert_eq!((a.len(), a.range().len(), io.len()), (64, 32, 16));
        assert!(b.take_back(other).is_ok());
    }

    #[test]
    fn a_loan_that_ends_gives_all_of_the_buffer_back() {
        let (lent, mut io) = AlignedBuf::zeroed(8).lend_part(2, 3);
        io.copy_from(0, &[1; 3]);
        assert_eq!(lent.take_back(io).unwrap().to_vec(), [0, 0, 1, 1, 1, 0, 0, 0]);
    }
}
