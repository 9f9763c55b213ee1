//! [`IoBuf`]: the right to use memory that its owner has lent. This file defines ranges, lists and parts of either.

use std::fmt;
use std::marker::PhantomData;
use std::ptr;

/// One piece of a scatter-gather list: an address and a length in bytes. Laid out as `struct iovec` is.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Segment {
    /// First byte.
    pub ptr: *mut u8,
    /// Length in bytes.
    pub len: usize,
}

/// `skip` of a range that may be written.
const DIRECT: u32 = u32::MAX;
/// `skip` of a range that may only be read. All smaller values are of lists.
const DIRECT_SHARED: u32 = u32::MAX - 1;
/// A bit in the address of a list: its memory may only be read. A `Segment` is aligned, so the bit is free.
const SHARED_LIST: usize = 1;

/// The place of memory, without the right to use it.
#[derive(Clone, Copy)]
struct Raw {
    /// The start of a range. For a list: the address of its first `Segment`, perhaps with the bit `SHARED_LIST`.
    ptr: *mut u8,
    /// Length in bytes.
    len: u32,
    /// `DIRECT`, `DIRECT_SHARED`, or how many bytes of the list come before the first one covered.
    skip: u32,
}

impl Raw {
    const EMPTY: Raw = Raw { ptr: ptr::null_mut(), len: 0, skip: DIRECT };

    #[inline]
    const fn is_range(&self) -> bool {
        self.skip >= DIRECT_SHARED
    }

    fn is_shared(&self) -> bool {
        self.skip == DIRECT_SHARED || (!self.is_range() && self.ptr.addr() & SHARED_LIST != 0)
    }

    #[inline]
    fn slice(&self, offset: u32, len: u32) -> Raw {
        assert!(
            offset.checked_add(len).is_some_and(|end| end <= self.len),
            "{offset}+{len} of an I/O buffer of {} bytes",
            self.len
        );
        if self.is_range() {
            Raw { ptr: self.ptr.wrapping_add(offset as usize), len, skip: self.skip }
        } else {
            Raw { ptr: self.ptr, len, skip: self.skip + offset }
        }
    }

    fn pieces(self) -> Pieces {
        let list = self.ptr.map_addr(|a| a & !SHARED_LIST).cast::<Segment>().cast_const();
        Pieces { raw: self, list }
    }

    #[inline]
    fn each(self, mut f: impl FnMut(*mut u8, usize)) {
        if self.is_range() {
            if self.len > 0 {
                f(self.ptr, self.len as usize);
            }
        } else {
            self.pieces().for_each(|s| f(s.ptr, s.len));
        }
    }
}

/// The contiguous pieces of memory whose list is allocated.
#[derive(Clone)]
struct Pieces {
    raw: Raw,
    list: *const Segment,
}

impl Iterator for Pieces {
    type Item = Segment;

    fn next(&mut self) -> Option<Segment> {
        if self.raw.len == 0 {
            return None;
        }
        if self.raw.is_range() {
            let s = Segment { ptr: self.raw.ptr, len: self.raw.len as usize };
            self.raw.len = 0;
            return Some(s);
        }
        loop {
            // SAFETY: bytes are left, so the list has a further segment (contract of `from_segments`).
            let s = unsafe { *self.list };
            // SAFETY: one past an element of the list is in bounds or one past its end.
            self.list = unsafe { self.list.add(1) };
            let skip = self.raw.skip as usize;
            if s.len <= skip {
                self.raw.skip -= s.len as u32;
                continue;
            }
            let len = (s.len - skip).min(self.raw.len as usize);
            self.raw.skip = 0;
            self.raw.len -= len as u32;
            return Some(Segment { ptr: s.ptr.wrapping_add(skip), len });
        }
    }
}

/// The right to use memory that its owner has lent for an I/O. It takes 16 bytes, and covers a range or a
/// scatter-gather list.
///
/// There is one `IoBuf` for each byte that was lent. It moves with the [`Bio`] that carries it and cannot be copied.
/// The memory stays lent while it exists. The lender frees or uses the memory again only when it holds an `IoBuf` of
/// the same [range](IoBuf::range). So a device that keeps an `IoBuf`, loses it or gives it to another client makes
/// memory leak, and does nothing worse. An `IoBuf` that is dropped never comes back.
///
/// Reading needs `&IoBuf`, and writing needs `&mut IoBuf`. So two threads cannot race on it, and no access outlives
/// the moment at which the BIO is handed on. Memory that was lent *shared* can only be read, and any number of
/// `IoBuf`s may cover it. Data is copied through raw pointers, never through a `&mut [u8]`, because a lender may read
/// memory that it lent shared.
///
/// [`Bio`]: https://docs.rs/zoneplug-core
///
/// ```
/// use zoneplug_buf::{AlignedBuf, IoBuf};
/// let (lent, mut io) = AlignedBuf::zeroed(4096).lend();
/// io.copy_from(0, b"zoned");
/// let mut back = [0u8; 5];
/// io.copy_to(0, &mut back);
/// assert_eq!(&back, b"zoned");
/// // Another `IoBuf` does not end the loan.
/// let (lent, _other) = lent.take_back(IoBuf::empty()).unwrap_err();
/// let memory = lent.take_back(io).unwrap();
/// assert_eq!(&memory.to_vec()[..5], b"zoned");
/// ```
///
/// No copy survives the hand-back:
///
/// ```compile_fail,E0382
/// # let (lent, mut io) = zoneplug_buf::AlignedBuf::zeroed(4096).lend();
/// let kept = io;
/// let memory = lent.take_back(io);
/// ```
///
/// ```compile_fail,E0599
/// # let (lent, io) = zoneplug_buf::AlignedBuf::zeroed(4096).lend();
/// let kept = io.clone();
/// ```
///
/// Two threads cannot write, nor one write while another reads:
///
/// ```compile_fail,E0499
/// # let (lent, mut io) = zoneplug_buf::AlignedBuf::zeroed(4096).lend();
/// std::thread::scope(|s| {
///     s.spawn(|| io.copy_from(0, b"one"));
///     s.spawn(|| io.copy_from(0, b"two"));
/// });
/// ```
///
/// ```compile_fail,E0502
/// # let (lent, mut io) = zoneplug_buf::AlignedBuf::zeroed(4096).lend();
/// std::thread::scope(|s| {
///     s.spawn(|| io.copy_from(0, b"one"));
///     s.spawn(|| io.copy_to(0, &mut [0; 3]));
/// });
/// ```
#[must_use = "memory whose IoBuf is dropped is never freed"]
pub struct IoBuf(Raw);

// SAFETY: an IoBuf is an address and the right to use it. The code that creates one promises (see `new` and
// `from_segments`) that any thread may use the memory.
unsafe impl Send for IoBuf {}
// SAFETY: as above; the methods that take `&self` only read.
unsafe impl Sync for IoBuf {}

/// The identity of an [`IoBuf`]'s memory, for comparison. It gives no right to use the memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct IoRange {
    addr: usize,
    len: u32,
    skip: u32,
}

impl IoRange {
    /// Returns the length in bytes.
    #[allow(clippy::len_without_is_empty, reason = "a name of memory, not a container")]
    pub const fn len(&self) -> u32 {
        self.len
    }

    /// Returns how many bytes of this range come before `part`, if `part` lies in it. A part of another list, or of a
    /// range instead of a list, never does.
    pub(crate) fn offset_of(&self, part: IoRange) -> Option<u32> {
        let offset = if self.skip >= DIRECT_SHARED && part.skip == self.skip {
            u32::try_from(part.addr.checked_sub(self.addr)?).ok()?
        } else if part.addr == self.addr && part.skip < DIRECT_SHARED {
            part.skip.checked_sub(self.skip)?
        } else {
            return None;
        };
        (offset.checked_add(part.len)? <= self.len).then_some(offset)
    }
}

impl fmt::Debug for IoBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut s = f.debug_struct("IoBuf");
        s.field("ptr", &self.0.ptr).field("len", &self.0.len);
        if !self.0.is_range() {
            s.field("skip", &self.0.skip);
        }
        s.field("shared", &self.is_shared()).finish()
    }
}

impl Default for IoBuf {
    fn default() -> Self {
        Self::empty()
    }
}

impl IoBuf {
    /// Makes an `IoBuf` without memory, for operations that move no data.
    #[inline]
    pub const fn empty() -> Self {
        IoBuf(Raw::EMPTY)
    }

    /// Lends the range of `len` bytes at `ptr`, to be read and written.
    ///
    /// # Safety
    ///
    /// Until this `IoBuf`, or all parts that it was cut into, have come back, the range stays allocated, any thread
    /// may read and write it through them, and no other code accesses it: no second `IoBuf` covers any of it.
    ///
    /// An `IoBuf` has come back when the caller holds it and has found its [`IoBuf::range`] equal to that of the one
    /// that was lent. A completion is not enough, because a device may complete a BIO and keep its memory. An `IoBuf`
    /// that was dropped never comes back.
    #[inline]
    pub const unsafe fn new(ptr: *mut u8, len: u32) -> Self {
        IoBuf(Raw { ptr, len, skip: DIRECT })
    }

    /// Lends the range of `len` bytes at `ptr` for reading: the memory of a write. Writing to it panics, and a read
    /// that is submitted with it fails.
    ///
    /// # Safety
    ///
    /// The conditions of [`IoBuf::new`], except that any number of shared `IoBuf`s may cover the range, and that the
    /// caller may read it. No code writes it until all of them have come back.
    #[inline]
    pub const unsafe fn new_shared(ptr: *const u8, len: u32) -> Self {
        IoBuf(Raw { ptr: ptr.cast_mut(), len, skip: DIRECT_SHARED })
    }

    /// Lends memory that lives for ever for reading, for example to a load generator that writes it any number of
    /// times at once.
    ///
    /// ```
    /// static ZEROES: [u8; 4096] = [0; 4096];
    /// let (a, b) = (zoneplug_buf::IoBuf::from_static(&ZEROES), zoneplug_buf::IoBuf::from_static(&ZEROES));
    /// assert_eq!(a.range(), b.range());
    /// assert!(a.is_shared());
    /// ```
    ///
    /// # Panics
    ///
    /// If it has 4 GiB or more.
    #[inline]
    pub const fn from_static(memory: &'static [u8]) -> Self {
        assert!(memory.len() <= u32::MAX as usize, "an I/O is shorter than 4 GiB");
        // SAFETY: a shared reference for ever: the memory is neither freed nor written.
        unsafe { IoBuf::new_shared(memory.as_ptr(), memory.len() as u32) }
    }

    /// Lends the concatenation of the segments at `segments`.
    ///
    /// # Safety
    ///
    /// The conditions of [`IoBuf::new`], for each segment. The list itself also stays allocated and unchanged until
    /// then, and belongs to this `IoBuf` alone. The sum of the lengths is `len`, and `len` is below 2^32 - 2. No two
    /// segments overlap.
    pub const unsafe fn from_segments(segments: *const Segment, len: u32) -> Self {
        IoBuf(Raw { ptr: segments.cast_mut().cast(), len, skip: 0 })
    }

    /// Like [`IoBuf::from_segments`], for reading only: see [`IoBuf::new_shared`].
    ///
    /// # Safety
    ///
    /// The conditions of [`IoBuf::new_shared`], for each segment and for the list.
    pub unsafe fn from_shared_segments(segments: *const Segment, len: u32) -> Self {
        let ptr = segments.cast_mut().cast::<u8>().map_addr(|a| a | SHARED_LIST);
        IoBuf(Raw { ptr, len, skip: 0 })
    }

    /// A second `IoBuf` for the same memory. For queues that hand the memory of a command to the kernel or to threads
    /// of their own while they hold the command.
    ///
    /// # Safety
    ///
    /// The second one is gone before the first one moves out of the caller's hands. They are not used at the same
    /// time, except for reading.
    #[inline]
    pub const unsafe fn alias(&self) -> IoBuf {
        IoBuf(self.0)
    }

    /// Returns the length in bytes.
    #[inline]
    pub const fn len(&self) -> u32 {
        self.0.len
    }

    /// Returns whether the length is 0.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.0.len == 0
    }

    /// Returns whether the memory may only be read.
    #[inline]
    pub fn is_shared(&self) -> bool {
        self.0.is_shared()
    }

    /// Returns the identity of the memory, which a lender compares.
    #[inline]
    pub fn range(&self) -> IoRange {
        IoRange { addr: self.0.ptr.addr(), len: self.0.len, skip: self.0.skip }
    }

    /// Cuts the first `len` bytes off and returns them; this one keeps the rest. [`Parts`](crate::Parts) puts
    /// parts together again.
    ///
    /// # Panics
    ///
    /// If it is shorter.
    pub fn split_to(&mut self, len: u32) -> IoBuf {
        let (front, rest) = (self.0.slice(0, len), self.0.slice(len, self.0.len.wrapping_sub(len)));
        self.0 = rest;
        IoBuf(front)
    }

    /// Cuts all but the first `len` bytes off and returns them; this one keeps the front.
    ///
    /// # Panics
    ///
    /// If it is shorter.
    pub fn split_off(&mut self, len: u32) -> IoBuf {
        let front = self.split_to(len);
        std::mem::replace(self, front)
    }

    /// The contiguous pieces of the `len` bytes from `offset` on, in order, for an `iovec` list.
    ///
    /// # Safety
    ///
    /// The addresses are used only while the caller has this `IoBuf`, for writing only if it is not
    /// [shared](IoBuf::is_shared), and not while any other code accesses it.
    ///
    /// # Panics
    ///
    /// If the part is not inside the buffer.
    pub unsafe fn segments(&self, offset: u32, len: u32) -> Segments<'_> {
        Segments { pieces: self.0.slice(offset, len).pieces(), lent: PhantomData }
    }

    /// Copies `src` into the buffer at `offset`: the device's side of a read.
    ///
    /// # Panics
    ///
    /// If it does not fit, or the memory may only be read.
    #[inline]
    pub fn copy_from(&mut self, offset: u32, src: &[u8]) {
        let part = self.part_mut(offset, src.len());
        let mut at = 0;
        part.each(|p, n| {
            // SAFETY: `p` covers `n` bytes lent to us to write (contract of `new`), `part` checked the length, and
            // `src` cannot overlap memory that only this `IoBuf` may access.
            unsafe { ptr::copy(src.as_ptr().add(at), p, n) };
            at += n;
        });
    }

    /// Copies the bytes at `offset` into `dst`: the device's side of a write.
    ///
    /// # Panics
    ///
    /// If the buffer is shorter.
    #[inline]
    pub fn copy_to(&self, offset: u32, dst: &mut [u8]) {
        let len = u32::try_from(dst.len()).expect("an I/O is shorter than 4 GiB");
        let part = self.0.slice(offset, len);
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
    /// If the range is not inside the buffer, or the memory may only be read.
    #[inline]
    pub fn fill_zero(&mut self, offset: u32, len: u32) {
        self.part_mut(offset, len as usize).each(|p, n| {
            // SAFETY: `p` covers `n` bytes lent to us to write (contract of `new`).
            unsafe { ptr::write_bytes(p, 0, n) };
        });
    }

    #[inline]
    fn part_mut(&mut self, offset: u32, len: usize) -> Raw {
        let len = u32::try_from(len).expect("an I/O is shorter than 4 GiB");
        if self.0.skip != DIRECT {
            self.refuse_shared(len);
        }
        self.0.slice(offset, len)
    }

    #[cold]
    fn refuse_shared(&self, len: u32) {
        assert!(
            len == 0 || !self.is_shared(),
            "this memory was lent to be read, not to be written"
        );
    }
}

/// Iterator over the contiguous pieces of an [`IoBuf`].
#[derive(Clone)]
pub struct Segments<'a> {
    pieces: Pieces,
    lent: PhantomData<&'a IoBuf>,
}

impl fmt::Debug for Segments<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.pieces.clone()).finish()
    }
}

impl Iterator for Segments<'_> {
    type Item = Segment;

    #[inline]
    fn next(&mut self) -> Option<Segment> {
        self.pieces.next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_iobuf_is_sixteen_bytes() {
        assert_eq!(size_of::<IoBuf>(), 16);
    }

    fn list(parts: &mut [&mut [u8]]) -> Vec<Segment> {
        parts.iter_mut().map(|p| Segment { ptr: p.as_mut_ptr(), len: p.len() }).collect()
    }

    #[test]
    fn segments_are_walked_in_order_and_cut_across_their_edges() {
        let (mut a, mut b, mut c) = ([1u8; 3], [2u8; 5], [3u8; 4]);
        let list = list(&mut [&mut a, &mut b, &mut c]);
        // SAFETY: the arrays and the list outlive `buf`.
        let mut buf = unsafe { IoBuf::from_segments(list.as_ptr(), 12) };
        let lens = |b: &IoBuf, at, len| {
            // SAFETY: the addresses are not used.
            unsafe { b.segments(at, len) }.map(|s| s.len).collect::<Vec<_>>()
        };
        assert_eq!(lens(&buf, 0, 12), [3, 5, 4]);
        assert_eq!(lens(&buf, 3, 5), [5]);
        assert!(lens(&buf, 12, 0).is_empty());
        let mut out = [0u8; 6];
        buf.copy_to(3, &mut out);
        assert_eq!(out, [2, 2, 2, 2, 2, 3]);
        buf.fill_zero(1, 9);
        let mut rest = buf.split_off(7);
        rest.copy_from(0, &[8, 9]);
        let mut middle = rest.split_to(2);
        middle.copy_from(1, &[7]);
        assert_eq!((buf.len(), middle.len(), rest.len()), (7, 2, 3));
        assert_eq!((a, b, c), ([1, 0, 0], [0, 0, 0, 0, 8], [7, 0, 3, 3]));
    }

    #[test]
    fn shared_memory_is_read_and_never_written() {
        let mut a = [5u8; 8];
        let list = list(&mut [&mut a]);
        // SAFETY: the array and the list outlive them; nothing writes.
        let (range, listed) = unsafe {
            (IoBuf::new_shared(a.as_ptr(), 8), IoBuf::from_shared_segments(list.as_ptr(), 8))
        };
        for mut buf in [range, listed] {
            assert!(buf.is_shared());
            let mut out = [0; 2];
            buf.copy_to(6, &mut out);
            assert_eq!(out, [5, 5]);
            buf.fill_zero(3, 0);
            let mut part = buf.split_to(4);
            let writes = std::panic::AssertUnwindSafe(|| part.copy_from(0, &[1]));
            assert!(std::panic::catch_unwind(writes).is_err());
            let zeroes = std::panic::AssertUnwindSafe(|| buf.fill_zero(0, 1));
            assert!(std::panic::catch_unwind(zeroes).is_err());
        }
        assert_eq!(a, [5; 8]);
    }

    #[test]
    #[should_panic(expected = "4+9 of an I/O buffer of 12 bytes")]
    fn past_the_end_panics() {
        IoBuf::leaked(12).fill_zero(4, 9);
    }

    #[test]
    #[should_panic(expected = "0+13 of an I/O buffer of 12 bytes")]
    fn a_front_that_is_too_long_panics() {
        let _ = IoBuf::leaked(12).split_to(13);
    }

    #[test]
    fn a_range_says_which_memory() {
        let (a, b) = (IoBuf::leaked(8), IoBuf::leaked(8));
        assert_ne!(a.range(), b.range());
        let mut rest = a;
        let whole = rest.range();
        let front = rest.split_to(0);
        assert_eq!(rest.range(), whole);
        assert_ne!(front.range(), whole);
        let front = rest.split_to(3);
        assert_eq!(
            (whole.offset_of(front.range()), whole.offset_of(rest.range())),
            (Some(0), Some(3))
        );
        assert_eq!(whole.offset_of(b.range()), None);
    }
}
