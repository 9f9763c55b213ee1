//! Reads: whole blocks of the disk, and the tail of a file, which is not in the zone yet.

use super::state::{Access, State, ZoneFile};
use super::{FileNo, Volume, errno};
use rustix::io::Errno;
use zoneplug_buf::AlignedBuf;
use zoneplug_core::Sector;

/// Data of a read.
#[derive(Debug)]
pub struct Data {
    buf: Option<AlignedBuf>,
    /// The place of the data in the buffer: offset and length.
    skip: usize,
    len: usize,
    /// Data without a buffer: alone or with a part of the file's tail.
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
    /// Reads up to `len` bytes of a file from `offset`; fewer at its end.
    ///
    /// # Errors
    ///
    /// `EPERM` if the file is offline; otherwise the error of the disk.
    pub fn read(&self, file: FileNo, offset: u64, len: u32) -> Result<Data, Errno> {
        let f = self.of(file);
        loop {
            let resets = f.resets();
            let data = self.read_once(f, offset, len);
            // If the zone was reset meanwhile, the data may mix old and new content.
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

    /// Reads the blocks of a conventional file around a range, of which a part is to change.
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

/// Splits a range: the end of the part that is in the zone, and the bytes of the tail.
fn tail_of(s: &State, offset: u64, end: u64) -> (u64, Vec<u8>) {
    let end = end.min(s.size());
    let from = offset.max(s.written);
    let within = |at: u64| (at - s.written) as usize;
    let tail = if end > from { s.tail[within(from)..within(end)].to_vec() } else { Vec::new() };
    (end.min(s.written), tail)
}
