//! Bytes of a connection that were read ahead: headers, and data that came with them.
//!
//! Writes of one length with their data arrive as header, data, header, data. A read that expects this puts the headers
//! here and each write's data into its own memory, where they stay. If other bytes arrive instead, all are copied back
//! into one piece.

use crate::{AlignedBuf, Buffers};
use std::collections::VecDeque;
use std::io::IoSliceMut;

/// Bytes that are read ahead before a connection has commands. A header with its pad fits.
const STAGE_FIRST: usize = 2048;
/// Bytes that are read ahead once it has.
const STAGE: usize = 16 << 10;
/// Bytes that are read ahead behind data that are long, and behind expected writes: room for some headers. Data that
/// arrive together with these headers must be copied.
const STAGE_SHORT: usize = 1024;
/// The most writes that a read expects.
const MAX_EXPECTED: usize = 16;
/// After this many reads the number of expected writes can shrink.
const WINDOW: u32 = 16;
/// Reads without an expectation after a wrong one.
const PAUSE: u32 = 32;

/// A write with its data, as a read expects it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Bytes before the data: the header.
    pub head: usize,
    /// Bytes of data.
    pub len: u32,
    /// Bytes behind the data: their pad and digest.
    pub tail: usize,
}

/// Data that a read has put into their own memory. In the stream they come before the byte `at` of the stage.
#[derive(Debug)]
struct OwnData {
    at: usize,
    buf: AlignedBuf,
    /// Bytes that arrived.
    got: u32,
}

/// The bytes that [`ReadAhead::receive`] has received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received {
    /// The number of all bytes.
    pub bytes: usize,
    /// The number of bytes that went past the read-ahead, into the memory of the data that come next.
    pub direct: usize,
    /// Whether they fill all memory that there was.
    pub full: bool,
}

/// Bytes that were read ahead.
///
/// ```
/// use zoneplug_buf::{Buffers, ReadAhead, Shape};
/// let (mut ahead, mut buffers) = (ReadAhead::new(), Buffers::new(1 << 20));
/// ahead.grow();
/// // A write came: 8 bytes of header, 4096 of data. Another is expected: its data land in memory of their own.
/// ahead.note_write(Shape { head: 8, len: 4096, tail: 0 });
/// let read = |slices: &mut [std::io::IoSliceMut<'_>]| {
///     slices.iter_mut().flat_map(|s| s.iter_mut()).take(4104).for_each(|b| *b = 7);
///     Ok::<_, ()>(4104)
/// };
/// let received = ahead.receive(&mut [], Some(0), &mut buffers, read)?;
/// assert_eq!((received.bytes, received.direct, received.full), (4104, 0, false));
/// assert_eq!(ahead.take(8), [7; 8]);
/// let (data, got) = ahead.data_behind(0, 4096).unwrap();
/// assert_eq!((data.as_slice(), got), (&[7; 4096][..], 4096));
/// # Ok::<(), ()>(())
/// ```
#[derive(Debug, Default)]
pub struct ReadAhead {
    bytes: Vec<u8>,
    begin: usize,
    end: usize,
    /// Data in their own memory, apart from the stage, in the order of arrival. Only the last may be incomplete, and then no bytes follow
    /// it.
    apart: VecDeque<OwnData>,
    /// Bytes of data of each in `apart`.
    len: u32,
    /// The writes that the next read expects: the shape of the last ones, and how many.
    shape: Option<Shape>,
    expected: usize,
    /// The number of writes of `shape` in a row since the last read.
    writes: usize,
    /// Whether the last read expected writes and filled all its room.
    was_full: bool,
    /// Reads of the present window, and the most writes of one of them.
    reads: u32,
    most: usize,
    pause: u32,
    /// Whether the last data were too long to be expected.
    long: bool,
}

/// Pieces of memory that a read fills: the data that come next, headers and data in turn, and the bytes behind them.
const SLICES: usize = 2 + 2 * MAX_EXPECTED;

impl ReadAhead {
    /// Makes room for the bytes of a new connection.
    pub fn new() -> ReadAhead {
        ReadAhead { bytes: vec![0; STAGE_FIRST], ..ReadAhead::default() }
    }

    /// Reads further ahead from now on.
    pub fn grow(&mut self) {
        self.bytes.resize(STAGE.max(self.end), 0);
    }

    /// Returns whether all bytes were taken.
    pub fn is_empty(&self) -> bool {
        self.begin == self.end && self.apart.is_empty()
    }

    /// Drops all bytes.
    pub fn clear(&mut self) {
        (self.begin, self.end) = (0, 0);
        self.apart.clear();
    }

    /// Notes that a write with data of this shape has come.
    pub fn note_write(&mut self, shape: Shape) {
        self.writes = if self.shape == Some(shape) { self.writes + 1 } else { 1 };
        self.shape = Some(shape);
        self.long = false;
    }

    /// Notes that something else has come: a command without data, or data in PDUs of their own. `long` says of a write
    /// whether its data are too long to be expected; `None` leaves what is known of the last write.
    pub fn note_other(&mut self, long: Option<bool>) {
        self.shape = None;
        self.long = long.unwrap_or(self.long);
    }

    /// Decides how many writes the next read expects. The number grows at once and shrinks to the maximum of
    /// several reads.
    fn update_expected(&mut self) {
        let came = std::mem::take(&mut self.writes);
        self.most = self.most.max(came);
        self.reads += 1;
        let mut expected = self.expected.max(came);
        if self.was_full {
            expected = 2 * self.expected;
        } else if self.reads >= WINDOW {
            expected = self.most;
            (self.reads, self.most) = (0, 0);
        }
        self.expected = expected.clamp(1, MAX_EXPECTED);
    }

    /// Receives bytes through `read`, which fills the slices in order and returns the number of bytes. They are `direct`, the
    /// memory of the data that come next, then expected data, and a buffer for the bytes behind them. `before`: the number of
    /// bytes between `direct` and the next header, less than 0 if the owner has taken some of that header already; `None`:
    /// unknown, so no write is expected.
    ///
    /// # Errors
    ///
    /// The errors of `read`.
    #[inline(always)]
    pub fn receive<E>(
        &mut self,
        direct: &mut [u8],
        before: Option<isize>,
        buffers: &mut Buffers,
        read: impl FnOnce(&mut [IoSliceMut<'_>]) -> Result<usize, E>,
    ) -> Result<Received, E> {
        let mut slices: [IoSliceMut<'_>; SLICES] =
            std::array::from_fn(|_| IoSliceMut::new(&mut []));
        let (len, mut filled) = (direct.len(), 0);
        if len > 0 {
            slices[0] = IoSliceMut::new(direct);
            filled = 1;
        }
        let (filled, room) = self.space(before, buffers, &mut slices, filled);
        let read = read(&mut slices[..filled]);
        let bytes = *read.as_ref().unwrap_or(&0);
        let (direct, full) = (bytes.min(len), bytes == len + room);
        self.received(bytes - direct, full, buffers);
        read.map(|bytes| Received { bytes, direct, full })
    }

    /// Appends the memory for the next bytes to the first `filled` of `slices`. Returns how many slices are filled now, and
    /// how many bytes the new ones hold.
    #[inline(always)]
    fn space<'a>(
        &'a mut self,
        before: Option<isize>,
        buffers: &mut Buffers,
        slices: &mut [IoSliceMut<'a>],
        mut filled: usize,
    ) -> (usize, usize) {
        if !self.apart.is_empty() {
            self.join(buffers);
        }
        // Moves the bytes that are already here to the front. They are fewer than a header, except after `join`.
        self.bytes.copy_within(self.begin..self.end, 0);
        (self.begin, self.end) = (0, self.end - self.begin);
        if self.end == 0 && self.bytes.len() > STAGE {
            self.bytes.truncate(STAGE);
            self.bytes.shrink_to_fit();
        }
        self.update_expected();
        let (mut room, mut has_apart) = (0, false);
        let mut rest = &mut self.bytes[self.end..];
        let mut at = self.end;
        let plan = before.zip(self.shape).filter(|_| self.pause == 0);
        self.pause = self.pause.saturating_sub(1);
        if let Some((before, shape)) = plan
            && let Ok(first) = usize::try_from(before + shape.head as isize - self.end as isize)
        {
            self.len = shape.len;
            for n in 0..self.expected.min((slices.len() - filled - 1) / 2) {
                let chunk = if n == 0 { first } else { shape.tail + shape.head };
                if chunk > rest.len() {
                    break;
                }
                at += chunk;
                self.apart.push_back(OwnData { at, buf: buffers.take(shape.len), got: 0 });
                let (head, behind) = rest.split_at_mut(chunk);
                rest = behind;
                slices[filled] = IoSliceMut::new(head);
                // The next slice is for the data. The loop below fills it in.
                filled += 2;
                room += chunk + shape.len as usize;
            }
            has_apart = !self.apart.is_empty();
            let firsts = filled - 2 * self.apart.len();
            for (n, apart) in self.apart.iter_mut().enumerate() {
                let data = &mut apart.buf.as_mut_slice()[..shape.len as usize];
                slices[firsts + 2 * n + 1] = IoSliceMut::new(data);
            }
        }
        // Long data in front of an unknown header have no place of their own, so that all of them come here.
        if (self.long && before.is_some() || has_apart) && rest.len() > STAGE_SHORT {
            rest = &mut rest[..STAGE_SHORT];
        }
        room += rest.len();
        slices[filled] = IoSliceMut::new(rest);
        (filled + 1, room)
    }

    /// Notes that `n` bytes were put into [`ReadAhead::space`]. `full`: they fill all of it.
    #[inline(always)]
    fn received(&mut self, mut n: usize, full: bool, buffers: &mut Buffers) {
        self.was_full = full && !self.apart.is_empty();
        let mut used = 0;
        for apart in &mut self.apart {
            let chunk = n.min(apart.at - self.end);
            self.end += chunk;
            apart.got = (n - chunk).min(self.len as usize) as u32;
            n -= chunk + apart.got as usize;
            if apart.got == 0 {
                break;
            }
            used += 1;
        }
        while self.apart.len() > used {
            self.apart.pop_back().into_iter().for_each(|a| buffers.put(a.buf));
        }
        self.end += n;
        assert!(self.end <= self.bytes.len(), "more was received than there was space for");
    }

    /// Returns the next bytes, as far as they lie in one piece.
    pub fn bytes(&self) -> &[u8] {
        let end = self.apart.front().map_or(self.end, |a| a.at);
        &self.bytes[self.begin..end]
    }

    /// Takes the next `n` bytes, as far as they lie in one piece.
    pub fn take(&mut self, n: usize) -> &[u8] {
        let n = n.min(self.bytes().len());
        self.begin += n;
        &self.bytes[self.begin - n..self.begin]
    }

    /// Takes the data behind the next `head` bytes, if a read has put them into their own memory, and how many
    /// arrived.
    pub fn data_behind(&mut self, head: usize, len: u32) -> Option<(AlignedBuf, u32)> {
        let next = self.apart.front()?;
        if next.at != self.begin + head || self.len != len {
            return None;
        }
        self.apart.pop_front().map(|a| (a.buf, a.got))
    }

    /// Copies data in their own memory back into the stream, because the bytes are not the expected ones. Returns
    /// false if there were none.
    #[cold]
    pub fn join(&mut self, buffers: &mut Buffers) -> bool {
        if self.apart.is_empty() {
            return false;
        }
        let mut all = Vec::with_capacity(self.bytes.len());
        for apart in self.apart.drain(..) {
            all.extend_from_slice(&self.bytes[self.begin..apart.at]);
            all.extend_from_slice(&apart.buf.as_slice()[..apart.got as usize]);
            self.begin = apart.at;
            buffers.put(apart.buf);
        }
        all.extend_from_slice(&self.bytes[self.begin..self.end]);
        (self.begin, self.end) = (0, all.len());
        all.resize(self.bytes.len().max(all.len()), 0);
        self.bytes = all;
        (self.shape, self.pause) = (None, PAUSE);
        true
    }
}
