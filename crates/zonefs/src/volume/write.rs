//! Writes: zone appends at the end of sequential files, and writes anywhere in conventional ones.

use super::state::{Access, State, ZoneFile};
use super::{FileNo, Volume};
use rustix::io::Errno;
use zoneplug_buf::AlignedBuf;

/// How a file is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteMode {
    /// Whether the file was opened with `O_DIRECT`.
    pub direct: bool,
    /// Whether the file was opened with `O_APPEND`: the data go to the end of the file, whatever
    /// offset the caller gives.
    pub append: bool,
}

impl WriteMode {
    /// With `O_DIRECT`, at an offset.
    pub const DIRECT: WriteMode = WriteMode { direct: true, append: false };
    /// Without `O_DIRECT`, at an offset.
    pub const BUFFERED: WriteMode = WriteMode { direct: false, append: false };
}

impl Volume {
    /// Writes `data` to a file and returns the number of bytes written: fewer at the end of the
    /// file's capacity, or if only a part of the data could be written.
    ///
    /// # Errors
    ///
    /// Fails as Linux's zonefs does: `EFBIG` beyond the capacity; `EINVAL` for an offset that is
    /// not the end of a sequential file, or for parts of a block; `EIO` for a sequential file
    /// without `O_DIRECT` (unless the volume is mounted with `buffered`); `EPERM` if the file can
    /// no longer be written, `EROFS` if the volume is read-only; otherwise with the error of the
    /// disk. After an error of the disk the option `errors=` decides what can still be done with
    /// the file.
    pub fn write(
        &self,
        file: FileNo,
        offset: u64,
        data: &[u8],
        how: WriteMode,
    ) -> Result<usize, Errno> {
        let f = self.of(file);
        let mut s = f.lock();
        if s.access != Access::Full {
            return Err(Errno::PERM);
        }
        if self.is_read_only() {
            return Err(Errno::ROFS);
        }
        if how.append && !f.is_sequential() {
            return Err(Errno::INVAL);
        }
        let offset = if how.append { s.size() } else { offset };
        if offset >= f.capacity {
            return Err(Errno::FBIG);
        }
        let room = usize::try_from(f.capacity - offset).unwrap_or(usize::MAX);
        let data = &data[..data.len().min(room)];
        if data.is_empty() {
            return Ok(0);
        }
        let aligned = (offset | data.len() as u64).is_multiple_of(self.block);
        if how.direct && !aligned {
            return Err(Errno::INVAL);
        }
        if !f.is_sequential() {
            return self.write_anywhere(f, &mut s, offset, data);
        }
        if !how.direct && !self.options.buffered {
            return Err(Errno::IO);
        }
        if offset != s.size() {
            return Err(Errno::INVAL);
        }
        if s.tail.is_empty() && aligned {
            return self.append(f, &mut s, data);
        }
        self.append_bytes(f, &mut s, data)
    }

    /// Appends whole blocks to the zone of a sequential file.
    fn append(&self, f: &ZoneFile, s: &mut State, data: &[u8]) -> Result<usize, Errno> {
        let mut done = 0;
        for part in data.chunks(self.append_max as usize) {
            let at = f.start.plus(s.written >> 9);
            match self.io(|io| io.append(f.start, AlignedBuf::from_slice(part))) {
                // The data landed at the end of the file.
                Ok((landed, _)) if landed == at => s.written += part.len() as u64,
                // Another program has written to the zone: the data are not at the end of the file.
                Ok((landed, _)) => {
                    self.warn(format!("zone {}: written from outside, up to {landed}", f.zone));
                    let error = self.after_misplaced_append(f, s);
                    return if done > 0 { Ok(done) } else { Err(error) };
                }
                Err(e) => {
                    let error = self.after_error(f, s, true, &e);
                    return if done > 0 { Ok(done) } else { Err(error) };
                }
            }
            done += part.len();
        }
        s.touch();
        Ok(done)
    }

    /// Appends bytes that need not be whole blocks. A rest that does not fill a block becomes the
    /// tail.
    fn append_bytes(&self, f: &ZoneFile, s: &mut State, data: &[u8]) -> Result<usize, Errno> {
        let waiting = s.tail.len();
        let mut all = std::mem::take(&mut s.tail);
        all.extend_from_slice(data);
        let blocks = all.len() - all.len() % self.block as usize;
        let begun = s.written;
        let appended = if blocks == 0 { Ok(0) } else { self.append(f, s, &all[..blocks]) };
        match appended {
            Ok(n) if n == blocks => {
                s.tail = all.split_off(blocks);
                s.touch();
                Ok(data.len())
            }
            // A part was written, at least one block: the whole old tail, and some of the new data.
            Ok(n) => Ok(n - waiting),
            Err(e) => {
                // The old tail is kept for another try if the zone is unchanged.
                if s.written == begun && s.access == Access::Full {
                    all.truncate(waiting);
                    s.tail = all;
                }
                Err(e)
            }
        }
    }

    /// Writes the tail, padded with zeroes to a whole block.
    pub(super) fn write_tail(&self, f: &ZoneFile, s: &mut State) -> Result<(), Errno> {
        if s.tail.is_empty() {
            return Ok(());
        }
        if self.is_read_only() {
            return Err(Errno::ROFS);
        }
        let mut block = std::mem::take(&mut s.tail);
        let len = block.len();
        block.resize(len.next_multiple_of(self.block as usize), 0);
        let begun = s.written;
        let result = self.append(f, s, &block);
        if result.is_err() && s.written == begun && s.access == Access::Full {
            block.truncate(len);
            s.tail = block;
        }
        result.map(drop)
    }

    /// Writes a range of a conventional file. Reads partial blocks first.
    fn write_anywhere(
        &self,
        f: &ZoneFile,
        s: &mut State,
        offset: u64,
        data: &[u8],
    ) -> Result<usize, Errno> {
        let end = offset + data.len() as u64;
        let (first, last) = (offset / self.block * self.block, end.next_multiple_of(self.block));
        let buf = if (first, last) == (offset, end) {
            AlignedBuf::from_slice(data)
        } else {
            let mut buf = self.blocks_around(f.start, first, last)?;
            buf.write((offset - first) as u32, data);
            buf
        };
        let written = self.io(|io| io.write(f.start.plus(first >> 9), buf));
        written.map_err(|e| self.after_error(f, s, true, &e))?;
        s.touch();
        Ok(data.len())
    }
}
