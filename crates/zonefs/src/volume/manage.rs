//! Operations on whole files: open, close, truncate, sync, and changes of owner and permissions.

use super::state::{Access, State, ZoneFile};
use super::{FileNo, Volume, errno};
use rustix::io::Errno;
use std::sync::atomic::Ordering;
use std::time::SystemTime;
use zoneplug_core::{Op, ZoneNo};

impl Volume {
    /// Opens a file. With `explicit-open` the first writer of a sequential file opens its zone.
    ///
    /// # Errors
    ///
    /// `EPERM` if the file is offline; with `explicit-open`, `EBUSY` if as many files are open for
    /// writing as the disk may have open zones; `EPERM` or `EROFS` if it is opened for writing and
    /// cannot be written.
    pub fn open_file(&self, file: FileNo, write: bool) -> Result<(), Errno> {
        let f = self.of(file);
        // Linux refuses the first read instead. FUSE sends no read for a file without bytes.
        if f.shown().access == Access::Offline {
            return Err(Errno::PERM);
        }
        if !write {
            return Ok(());
        }
        let mut s = f.lock();
        if s.access != Access::Full {
            return Err(Errno::PERM);
        }
        if self.is_read_only() {
            return Err(Errno::ROFS);
        }
        if f.is_sequential() && s.writers == 0 {
            let open = self.open_for_writing.fetch_add(1, Ordering::Relaxed) + 1;
            let opened = match self.options.explicit_open {
                true if self.max_open != 0 && open > self.max_open => Err(Errno::BUSY),
                true if s.written < f.capacity => self.open_zone(f, &mut s),
                _ => Ok(()),
            };
            if let Err(e) = opened {
                self.open_for_writing.fetch_sub(1, Ordering::Relaxed);
                return Err(e);
            }
        }
        s.writers += 1;
        Ok(())
    }

    fn open_zone(&self, f: &ZoneFile, s: &mut State) -> Result<(), Errno> {
        self.zone(f, Op::ZoneOpen)?;
        s.zone_open = true;
        Ok(())
    }

    /// Closes a file opened with the same `write`. The last writer of a sequential file writes the
    /// tail, padded to a whole block, and closes a zone that was opened explicitly.
    ///
    /// # Errors
    ///
    /// Returns the error of the disk. The file counts as closed nevertheless.
    pub fn close_file(&self, file: FileNo, write: bool) -> Result<(), Errno> {
        if !write {
            return Ok(());
        }
        let f = self.of(file);
        let mut s = f.lock();
        if s.writers == 0 {
            return Ok(());
        }
        s.writers -= 1;
        if s.writers > 0 || !f.is_sequential() {
            return Ok(());
        }
        self.open_for_writing.fetch_sub(1, Ordering::Relaxed);
        let written = self.write_tail(f, &mut s);
        if let Err(e) = written {
            let n = s.tail.len();
            self.warn(format!("zone {}: the last {n} bytes are not written yet: {e}", f.zone));
        }
        written.and(self.give_back_zone(f, &mut s))
    }

    /// Ends the explicit open of a file's zone, if it has one.
    fn give_back_zone(&self, f: &ZoneFile, s: &mut State) -> Result<(), Errno> {
        match std::mem::take(&mut s.zone_open) {
            // A closed zone without data would stay active, so it is reset instead.
            true if s.written == 0 => self.zone(f, Op::ZoneReset),
            true if s.written < f.capacity => self.zone(f, Op::ZoneClose),
            _ => Ok(()),
        }
    }

    /// Truncates a sequential file: to 0, which resets its zone, or to its capacity, which finishes
    /// it.
    ///
    /// # Errors
    ///
    /// `EPERM` for a conventional file, for another size, or if the file can no longer be written;
    /// `EROFS` if the volume is read-only; otherwise the error of the disk.
    pub fn truncate(&self, file: FileNo, size: u64) -> Result<(), Errno> {
        let f = self.of(file);
        let mut s = f.lock();
        if s.access != Access::Full || !f.is_sequential() {
            return Err(Errno::PERM);
        }
        if self.is_read_only() {
            return Err(Errno::ROFS);
        }
        let op = match size {
            0 => Op::ZoneReset,
            _ if size == f.capacity => Op::ZoneFinish,
            _ => return Err(Errno::PERM),
        };
        if size == s.size() && s.tail.is_empty() {
            return Ok(());
        }
        if op == Op::ZoneFinish {
            self.write_tail(f, &mut s)?;
        }
        f.note_reset();
        let done = self.zone(f, op);
        if done.is_ok() {
            s.tail.clear();
            s.written = size;
            s.touch();
        }
        drop(s);
        f.note_reset();
        done?;
        let mut s = f.lock();
        if std::mem::take(&mut s.zone_open) && size == 0 {
            self.open_zone(f, &mut s)?;
        }
        Ok(())
    }

    /// Makes the data written to a file durable.
    ///
    /// # Errors
    ///
    /// `EPERM` if the file is offline; otherwise the error of the disk.
    pub fn sync(&self, file: FileNo) -> Result<(), Errno> {
        let f = self.of(file);
        {
            let mut s = f.lock();
            if s.access == Access::Offline {
                return Err(Errno::PERM);
            }
            self.write_tail(f, &mut s)?;
        }
        let flushed = self.io(|io| io.flush());
        flushed.map_err(|e| self.after_error(f, &mut f.lock(), true, &e))
    }

    /// Writes the tails of all files, closes zones that were opened explicitly, and makes all data
    /// durable. The observer learns of each file whose last bytes are lost; the first failure is
    /// returned.
    pub fn close(&self) -> Result<(), Errno> {
        let mut result = Ok(());
        for f in &self.files {
            let shown = f.shown();
            if shown.tail == 0 && !shown.zone_open {
                continue;
            }
            let mut s = f.lock();
            let written = self.write_tail(f, &mut s);
            if let Err(e) = written {
                let n = s.tail.len();
                self.warn(format!("zone {}: the last {n} bytes are lost: {e}", f.zone));
            }
            // If this fails the zone stays open; the next mount closes it.
            let _ = self.give_back_zone(f, &mut s);
            result = result.and(written);
        }
        if self.disk.limits().read_only {
            return result;
        }
        result.and(self.io(|io| io.flush()).map_err(|e| errno(&e)))
    }

    /// Changes the owner, the group or the permissions of a file, until the volume is unmounted.
    ///
    /// # Errors
    ///
    /// `EPERM` if the file can no longer be written.
    pub fn set_owner(
        &self,
        file: FileNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
    ) -> Result<(), Errno> {
        let mut s = self.of(file).lock();
        if s.access != Access::Full {
            return Err(Errno::PERM);
        }
        s.mode = mode.map_or(s.mode, |m| m & 0o777);
        s.uid = uid.unwrap_or(s.uid);
        s.gid = gid.unwrap_or(s.gid);
        s.changed = SystemTime::now();
        Ok(())
    }

    /// Sets the modification time of a file's data.
    pub fn set_modified(&self, file: FileNo, modified: SystemTime) {
        let mut s = self.of(file).lock();
        s.modified = modified;
        s.changed = SystemTime::now();
    }

    /// Manages the zone of a sequential file.
    fn zone(&self, f: &ZoneFile, op: Op) -> Result<(), Errno> {
        let len = u64::from(self.disk.geometry().zone_len_sectors(ZoneNo(f.zone)));
        self.io(|io| io.manage(op, f.start, len)).map_err(|e| errno(&e))
    }
}
