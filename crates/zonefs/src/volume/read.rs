//! Reads: whole blocks of the disk, and what waits for a whole block.

use super::state::{Access, State, ZoneFile};
use super::{FileNo, Volume, errno};
use rustix::io::Errno;
use zoneplug_buf::AlignedBuf;
use zoneplug_core::Sector;

/// Data that were read.
#[derive(Debug)]
pub struct Data {
    buf: Option<AlignedBuf>,
    /// Where they begin in the buffer, and how many they are.
    skip: usize,
    len: usize,
    /// What was not in the zone yet.
    tail: Vec<u8>,
}

impl Data {
    const NONE: Data = Data { buf: None, skip: 0, len: 0, tail: Vec::new() };

    /// The data.
    pub fn as_slice(&self) -> &[u8] {
        match &self.buf {
            Some(buf) => &buf.as_slice()[self.skip..][..self.len],
            None => &self.tail,
        }
    }
}

impl Volume {
    /// Up to `len` bytes of a file from `offset` on: fewer at its end.
    ///
    /// # Errors
    ///
    /// `EPERM` if the file is offline; otherwise what the disk says.
    pub fn read(&self, file: FileNo, offset: u64, len: u32) -> Result<Data, Errno> {
        let f = self.of(file);
        loop {
            let resets = f.resets();
            let data = self.read_once(f, offset, len);
            // Of a zone that was reset meanwhile the data may be of before and of after.
            if f.resets() == resets {
                return data;
            }
        }
    }

    fn read_once(&self, f: &ZoneFile, offset: u64, len: u32) -> Result<Data, Errno> {
        let s = f.shown();
        if s.access == Access::Offline {
            return Err(Errno::PERM);
        }
        let end = offset.saturating_add(u64::from(len));
        if offset >= end.min(s.size()) {
            return Ok(Data::NONE);
        }
        let (written, tail) = match end > s.written && s.tail > 0 {
            true => tail_of(&f.lock(), offset, end),
            false => (end.min(s.written), Vec::new()),
        };
        if written <= offset {
            return Ok(Data { tail, ..Data::NONE });
        }
        let block = u64::from(self.disk.limits().logical_block_sectors) << 9;
        let first = offset / block * block;
        let end = written.next_multiple_of(block);
        let sector = f.start.plus(first >> 9);
        let buf = self.io(|io| io.read(sector, (end - first) >> 9));
        let buf = buf.map_err(|e| self.after_error(f, &mut f.lock(), false, &e))?;
        let (skip, len) = ((offset - first) as usize, (written - offset) as usize);
        if tail.is_empty() {
            return Ok(Data { buf: Some(buf), skip, len, tail });
        }
        let mut all = buf.as_slice()[skip..][..len].to_vec();
        all.extend_from_slice(&tail);
        Ok(Data { tail: all, ..Data::NONE })
    }

    /// The blocks of a conventional file around a range, to change a part of them.
    pub(super) fn blocks_around(
        &self,
        start: Sector,
        first: u64,
        end: u64,
    ) -> Result<AlignedBuf, Errno> {
        let read = self.io(|io| io.read(start.plus(first >> 9), (end - first) >> 9));
        read.map_err(|e| errno(&e))
    }
}

/// Where the part of a range ends that is in the zone, and the part that waits for a whole block.
fn tail_of(s: &State, offset: u64, end: u64) -> (u64, Vec<u8>) {
    let end = end.min(s.size());
    let from = offset.max(s.written);
    let within = |at: u64| (at - s.written) as usize;
    let tail = if end > from { s.tail[within(from)..within(end)].to_vec() } else { Vec::new() };
    (end.min(s.written), tail)
}
