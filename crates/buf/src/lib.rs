//! Memory for I/O.
//!
//! An [`IoBuf`] names memory that a client lends to a device until the BIO that carries it completes: one
//! range, or a list of [`Segment`]s (scatter-gather). The address is a raw pointer and data moves through
//! raw pointers only, because the client may still look at memory that it lent: a `&mut [u8]` would promise
//! the compiler otherwise. Creating one is `unsafe` and states that promise; using one is safe, and every
//! access is checked against its length.
//!
//! This crate is the only `unsafe` below `zoneplug-host`.

mod slice;

use std::ptr;

/// One piece of a scatter-gather list: an address and a length in bytes.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Segment {
    /// First byte.
    pub ptr: *mut u8,
    /// Length in bytes.
    pub len: usize,
}

/// `skip` of a buffer that is one range.
const DIRECT: u32 = u32::MAX;

/// Memory lent for one I/O: 16 bytes, copied freely, without a lifetime.
///
/// ```
/// use zoneplug_buf::IoBuf;
/// let mut mem = vec![0u8; 4096];
/// // SAFETY: `mem` outlives every use of `buf` in this example.
/// let buf = unsafe { IoBuf::new(mem.as_mut_ptr(), mem.len() as u32) };
/// buf.copy_from(0, b"zoned");
/// let mut back = [0u8; 5];
/// buf.copy_to(0, &mut back);
/// assert_eq!(&back, b"zoned");
/// ```
#[derive(Debug, Clone, Copy)]
pub struct IoBuf {
    /// The range, or the first `Segment` of a list.
    ptr: *mut u8,
    /// Bytes that this buffer covers.
    len: u32,
    /// `DIRECT`, or how many bytes of the list come before this buffer.
    skip: u32,
}

// SAFETY: an IoBuf is an address. Whoever creates one promises (see `new` and `from_segments`) that the memory
// may be read and written by whichever thread serves the I/O until the BIO completes.
unsafe impl Send for IoBuf {}
// SAFETY: as above; the methods that take `&self` only copy bytes through raw pointers.
unsafe impl Sync for IoBuf {}

impl Default for IoBuf {
    fn default() -> Self {
        Self::empty()
    }
}

impl IoBuf {
    /// No memory: for operations that move no data.
    pub const fn empty() -> Self {
        IoBuf { ptr: ptr::null_mut(), len: 0, skip: DIRECT }
    }

    /// The range of `len` bytes at `ptr`.
    ///
    /// # Safety
    ///
    /// From now until the BIO that carries this buffer (or any copy or slice of it) has completed, the range
    /// must stay allocated, no `&mut` to it may be used, and for a read nobody else may access it. If the
    /// queue that carried the BIO goes away first, the range must live until the disk has drained. A BIO that was given
    /// up (command deadlines, a device that panics) has not completed in this sense while `Disk::is_late` is true of its
    /// `Bio::late`.
    pub const unsafe fn new(ptr: *mut u8, len: u32) -> Self {
        IoBuf { ptr, len, skip: DIRECT }
    }

    /// `len` zero bytes, aligned to 4096, that are never freed: for tests and load generators. The memory lives for ever,
    /// which leaves one promise to the caller: two threads do not use it at a time and look at what comes of it.
    #[doc(hidden)]
    pub fn leaked(len: u32) -> Self {
        let buf = std::mem::ManuallyDrop::new(AlignedBuf::zeroed(len));
        // SAFETY: the memory is never freed, and nothing else has its address.
        unsafe { IoBuf::new(buf.ptr.as_ptr(), len) }
    }

    /// The concatenation of `nr` segments at `segments`.
    ///
    /// # Safety
    ///
    /// As [`IoBuf::new`], for each segment; and the list itself stays allocated and unchanged as long.
    /// The sum of the lengths must be `len`, and `len` below 2^32 - 1.
    pub const unsafe fn from_segments(segments: *const Segment, len: u32) -> Self {
        IoBuf { ptr: segments.cast_mut().cast(), len, skip: 0 }
    }

    /// Bytes covered.
    pub const fn len(&self) -> u32 {
        self.len
    }

    /// Whether no byte is covered.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The part of `len` bytes that starts `offset` bytes into this buffer.
    ///
    /// # Panics
    ///
    /// If the part is not inside the buffer.
    pub fn slice(&self, offset: u32, len: u32) -> IoBuf {
        assert!(
            offset.checked_add(len).is_some_and(|end| end <= self.len),
            "slice {offset}+{len} of an I/O buffer of {} bytes",
            self.len
        );
        if self.skip == DIRECT {
            IoBuf { ptr: self.ptr.wrapping_add(offset as usize), len, skip: DIRECT }
        } else {
            IoBuf { ptr: self.ptr, len, skip: self.skip + offset }
        }
    }

    /// The contiguous pieces, in order: what an `iovec` list is built from.
    pub fn segments(&self) -> Segments {
        Segments { buf: *self, list: self.ptr.cast::<Segment>().cast_const() }
    }

    /// Copies `src` into the buffer at `offset`: the device's side of a read.
    ///
    /// # Panics
    ///
    /// If it does not fit.
    pub fn copy_from(&self, offset: u32, src: &[u8]) {
        let part = self.part(offset, src.len());
        let mut at = 0;
        part.each(|p, n| {
            // SAFETY: `p` covers `n` bytes lent to us (contract of `new`), `part` checked the length, and
            // `src` cannot overlap memory that nobody else may access.
            unsafe { ptr::copy(src.as_ptr().add(at), p, n) };
            at += n;
        });
    }

    /// Copies the bytes at `offset` into `dst`: the device's side of a write.
    ///
    /// # Panics
    ///
    /// If the buffer is shorter.
    pub fn copy_to(&self, offset: u32, dst: &mut [u8]) {
        let part = self.part(offset, dst.len());
        let mut at = 0;
        part.each(|p, n| {
            // SAFETY: as in `copy_from`, with source and destination exchanged.
            unsafe { ptr::copy(p.cast_const(), dst.as_mut_ptr().add(at), n) };
            at += n;
        });
    }

    /// Writes `len` zero bytes at `offset`.
    ///
    /// # Panics
    ///
    /// If the range is not inside the buffer.
    pub fn fill_zero(&self, offset: u32, len: u32) {
        self.slice(offset, len).each(|p, n| {
            // SAFETY: `p` covers `n` bytes lent to us (contract of `new`).
            unsafe { ptr::write_bytes(p, 0, n) };
        });
    }

    fn part(&self, offset: u32, len: usize) -> IoBuf {
        let len = u32::try_from(len).expect("an I/O is shorter than 4 GiB");
        self.slice(offset, len)
    }

    #[inline]
    fn each(&self, mut f: impl FnMut(*mut u8, usize)) {
        if self.skip == DIRECT {
            if self.len > 0 {
                f(self.ptr, self.len as usize);
            }
        } else {
            for s in self.segments() {
                f(s.ptr, s.len);
            }
        }
    }
}

/// Iterator over the contiguous pieces of an [`IoBuf`].
#[derive(Debug)]
pub struct Segments {
    buf: IoBuf,
    list: *const Segment,
}

impl Iterator for Segments {
    type Item = Segment;

    fn next(&mut self) -> Option<Segment> {
        if self.buf.len == 0 {
            return None;
        }
        if self.buf.skip == DIRECT {
            let s = Segment { ptr: self.buf.ptr, len: self.buf.len as usize };
            self.buf.len = 0;
            return Some(s);
        }
        loop {
            // SAFETY: bytes are left, so the list has a further segment (contract of `from_segments`).
            let s = unsafe { *self.list };
            // SAFETY: one past an element of the list is in bounds or one past its end.
            self.list = unsafe { self.list.add(1) };
            let skip = self.buf.skip as usize;
            if s.len <= skip {
                self.buf.skip -= s.len as u32;
                continue;
            }
            let len = (s.len - skip).min(self.buf.len as usize);
            self.buf.skip = 0;
            self.buf.len -= len as u32;
            return Some(Segment { ptr: s.ptr.wrapping_add(skip), len });
        }
    }
}

/// Memory for I/O that owns itself: zeroed, aligned to 4096 bytes as `O_DIRECT` wants it.
///
/// Reading and writing it is by copy, so that a device that still holds an [`IoBuf`] of it is never raced by
/// a Rust reference.
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

    /// `len` zero bytes.
    pub fn zeroed(len: u32) -> Self {
        let layout = Self::layout(len);
        // SAFETY: the layout is never of size 0.
        let ptr = unsafe { std::alloc::alloc_zeroed(layout) };
        let Some(ptr) = ptr::NonNull::new(ptr) else { std::alloc::handle_alloc_error(layout) };
        AlignedBuf { ptr, len }
    }

    /// Length in bytes.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Whether the length is 0.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Copies `src` to `offset`.
    ///
    /// # Panics
    ///
    /// If it does not fit.
    pub fn write(&mut self, offset: u32, src: &[u8]) {
        self.lend().copy_from(offset, src);
    }

    /// Copies the bytes at `offset` to `dst`.
    ///
    /// # Panics
    ///
    /// If the buffer is shorter.
    pub fn read(&self, offset: u32, dst: &mut [u8]) {
        self.lend().copy_to(offset, dst);
    }

    /// A copy of the whole.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut v = vec![0; self.len as usize];
        self.read(0, &mut v);
        v
    }

    fn lend(&self) -> IoBuf {
        // SAFETY: used by the callers above within the borrow of `self`.
        unsafe { self.io() }
    }

    /// The whole buffer, to lend to a BIO.
    ///
    /// # Safety
    ///
    /// As [`IoBuf::new`]: `self` must be kept until the BIO has completed.
    /// Meanwhile nobody takes a slice of it ([`AlignedBuf::as_slice`]).
    pub unsafe fn io(&self) -> IoBuf {
        // SAFETY: the caller keeps `self`, which owns the range.
        unsafe { IoBuf::new(self.ptr.as_ptr(), self.len) }
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
    fn an_iobuf_is_sixteen_bytes() {
        assert_eq!(size_of::<IoBuf>(), 16);
    }

    #[test]
    fn segments_are_walked_in_order_and_sliced_across_their_edges() {
        let mut a = [1u8; 3];
        let mut b = [2u8; 5];
        let mut c = [3u8; 4];
        let list = [
            Segment { ptr: a.as_mut_ptr(), len: 3 },
            Segment { ptr: b.as_mut_ptr(), len: 5 },
            Segment { ptr: c.as_mut_ptr(), len: 4 },
        ];
        // SAFETY: the arrays and the list outlive `buf`.
        let buf = unsafe { IoBuf::from_segments(list.as_ptr(), 12) };
        let mut out = [0u8; 6];
        buf.slice(2, 8).copy_to(1, &mut out);
        assert_eq!(out, [2, 2, 2, 2, 2, 3]);
        buf.slice(2, 8).slice(5, 2).copy_from(0, &[8, 9]);
        assert_eq!((b[4], c[0]), (8, 9));
        assert_eq!(buf.segments().map(|s| s.len).collect::<Vec<_>>(), [3, 5, 4]);
        assert_eq!(buf.slice(3, 5).segments().map(|s| s.len).collect::<Vec<_>>(), [5]);
        buf.fill_zero(1, 9);
        assert_eq!((a, b, c), ([1, 0, 0], [0; 5], [0, 0, 3, 3]));
        assert!(buf.slice(12, 0).segments().next().is_none());
    }

    #[test]
    #[should_panic(expected = "slice 4+9 of an I/O buffer of 12 bytes")]
    fn a_slice_past_the_end_panics() {
        let mut a = [1u8; 12];
        // SAFETY: `a` outlives `buf`.
        let buf = unsafe { IoBuf::new(a.as_mut_ptr(), 12) };
        let _ = buf.slice(4, 9);
    }

    #[test]
    fn an_aligned_buffer_is_zeroed_and_aligned() {
        let b = AlignedBuf::zeroed(5000);
        assert_eq!(b.ptr.as_ptr() as usize % 4096, 0);
        assert!(b.to_vec().iter().all(|&x| x == 0));
        assert_eq!(AlignedBuf::zeroed(0).len(), 0);
    }
}
