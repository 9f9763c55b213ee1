//! Bytes that were read ahead: headers, and data that came with them.
//!
//! Writes of one length with data in their capsules arrive as header, data, header, data. A read that expects this
//! puts the headers here and each write's data into its own memory, where they stay. If other bytes arrive instead, all
//! are copied back into one piece.

use std::collections::VecDeque;
use std::io::IoSliceMut;
use zoneplug_buf::{AlignedBuf, Buffers};

/// Bytes that are read ahead before a connection is a queue. A header with its pad fits.
const STAGE_FIRST: usize = 2048;
/// Bytes that are read ahead on a queue.
const STAGE: usize = 16 << 10;
/// Bytes that are read ahead behind data that are too long for a capsule, and behind expected capsules: room for some
/// headers. Data that arrive together with these headers must be copied.
const STAGE_SHORT: usize = 1024;
/// Maximum number of capsules that a read expects.
pub(super) const MAX_EXPECTED: usize = 16;
/// After this many reads the number of expected capsules can shrink.
const WINDOW: u32 = 16;
/// Reads without an expectation after a wrong one.
const PAUSE: u32 = 32;

/// A capsule with data, as a read expects it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    /// Bytes before the data.
    pub(super) head: usize,
    /// Bytes of data.
    pub(super) len: u32,
    /// Bytes behind the data: their digest.
    pub(super) tail: usize,
}

/// Data that a read has put into their own memory. In the stream they come before the byte `at` of the stage.
#[derive(Debug)]
struct OwnData {
    at: usize,
    buf: AlignedBuf,
    /// Bytes that arrived.
    got: u32,
}

/// Bytes that were read ahead.
#[derive(Debug)]
pub(super) struct Stage {
    bytes: Vec<u8>,
    begin: usize,
    end: usize,
    /// Data in their own memory, apart from the stage, in the order of arrival. Only the last may be incomplete, and then no bytes follow
    /// it.
    apart: VecDeque<OwnData>,
    /// Bytes of data of each in `apart`.
    len: u32,
    /// The capsules that the next read expects: the shape of the last ones, and how many.
    shape: Option<Shape>,
    expected: usize,
    /// The number of capsules of `shape` in a row since the last read.
    capsules: usize,
    /// Whether the last read expected capsules and filled all its room.
    was_full: bool,
    /// Reads of the present window, and the maximum number of capsules of one of them.
    reads: u32,
    most: usize,
    pause: u32,
    /// Whether the last data were too long for a capsule.
    long: bool,
}

impl Stage {
    pub(super) fn new() -> Stage {
        Stage {
            bytes: vec![0; STAGE_FIRST],
            begin: 0,
            end: 0,
            apart: VecDeque::new(),
            len: 0,
            shape: None,
            expected: 0,
            capsules: 0,
            was_full: false,
            reads: 0,
            most: 0,
            pause: 0,
            long: false,
        }
    }

    /// Reads further ahead from now on.
    pub(super) fn grow(&mut self) {
        self.bytes.resize(STAGE.max(self.end), 0);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.begin == self.end && self.apart.is_empty()
    }

    pub(super) fn clear(&mut self) {
        (self.begin, self.end) = (0, 0);
        self.apart.clear();
    }

    /// Notes that a capsule with data of this shape has come.
    pub(super) fn note_capsule(&mut self, shape: Shape) {
        self.capsules = if self.shape == Some(shape) { self.capsules + 1 } else { 1 };
        self.shape = Some(shape);
        self.long = false;
    }

    /// Notes that something else has come: a capsule without data, or data in PDUs of their own. `long`: the data are too
    /// long for a capsule.
    pub(super) fn note_other(&mut self, long: bool) {
        self.shape = None;
        self.long |= long;
    }

    /// Decides how many capsules the next read expects. The number grows at once and shrinks to the maximum of
    /// several reads.
    fn update_expected(&mut self) {
        let came = std::mem::take(&mut self.capsules);
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

    /// Appends the memory for the next bytes to the first `filled` of `slices`. `before`: the number of bytes before the
    /// next header; `None`: unknown, so no capsule is expected. Returns how many slices are filled now, and how many bytes the new ones hold.
    #[inline(always)]
    pub(super) fn space<'a>(
        &'a mut self,
        before: Option<usize>,
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
            && let Some(first) = (before + shape.head).checked_sub(self.end)
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
        if (self.long || has_apart) && rest.len() > STAGE_SHORT {
            rest = &mut rest[..STAGE_SHORT];
        }
        room += rest.len();
        slices[filled] = IoSliceMut::new(rest);
        (filled + 1, room)
    }

    /// Notes that `n` bytes were put into [`Stage::space`]. `full`: they fill all of it.
    #[inline(always)]
    pub(super) fn received(&mut self, mut n: usize, full: bool, buffers: &mut Buffers) {
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
    pub(super) fn bytes(&self) -> &[u8] {
        let end = self.apart.front().map_or(self.end, |a| a.at);
        &self.bytes[self.begin..end]
    }

    pub(super) fn take(&mut self, n: usize) -> &[u8] {
        let n = n.min(self.bytes().len());
        self.begin += n;
        &self.bytes[self.begin - n..self.begin]
    }

    /// Takes the data behind the next `head` bytes, if a read has put them into their own memory, and how many
    /// arrived.
    pub(super) fn data_behind(&mut self, head: usize, len: u32) -> Option<(AlignedBuf, u32)> {
        let next = self.apart.front()?;
        if next.at != self.begin + head || self.len != len {
            return None;
        }
        self.apart.pop_front().map(|a| (a.buf, a.got))
    }

    /// Copies data in their own memory back into the stream, because the bytes are not the expected ones. Returns
    /// false if there were none.
    #[cold]
    pub(super) fn join(&mut self, buffers: &mut Buffers) -> bool {
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
