//! Detects that another program has overwritten or truncated the file of a disk that this process has open. zoneplug's
//! locks do not prevent that (`cp backup.zbd disk.zbd`). Every commit checks the superblock and the session before it
//! writes, and a server checks them from time to time. Once the file is no longer this disk's, nothing is read from
//! it or written to it.

use super::FileDisk;
use super::format::{SECTOR, SESSION_AT, Session};
use super::state::Core;
use super::{FileChange, FileError};
use std::sync::TryLockError;
use zoneplug_core::{Error, Status};

/// Bytes from the start of the file to the end of the session.
const HEAD: usize = SESSION_AT as usize + SECTOR;

impl Core {
    /// Checks that the file is still this disk's. A file that cannot be read counts as unchanged. The caller holds the
    /// lock of the table, under which commits write the session; without it the session may be half written.
    pub(super) fn check_unchanged(&self) -> Result<(), Status> {
        if self.limits.read_only {
            // A reader checks nothing: the process that writes this disk changes the session.
            return Ok(());
        }
        if let Some(change) = self.change_of_file() {
            let _ = self.change.set(change);
            self.state().failed = Some(Status::Io);
        }
        self.change.get().map_or(Ok(()), |_| Err(Status::Io))
    }

    fn change_of_file(&self) -> Option<FileChange> {
        let len = self.storage.len().ok()?;
        if len < self.layout.len {
            return Some(FileChange::Truncated(len));
        }
        let mut head = [0; HEAD];
        self.storage.read_at(0, &mut head).ok()?;
        let (sup, session) = (head.first_chunk::<SECTOR>()?, head.last_chunk::<SECTOR>()?);
        let is_own = *sup == *self.first
            && Session::decode(session).is_some_and(|s| s.id == self.session.id);
        (!is_own).then_some(FileChange::Overwritten)
    }
}

impl FileDisk {
    /// Checks that the file is still this disk's: a program that ignores zoneplug's locks may have overwritten or
    /// truncated it. If the file is another one, the disk fails all I/O from then on and writes nothing. Every commit
    /// makes this check as well. A disk that is open read-only is not checked.
    ///
    /// # Errors
    ///
    /// [`Io`](zoneplug_core::ErrorKind::Io), which says how the file was changed.
    ///
    /// ```
    /// use zoneplug_host::file::{create, Access, CreateOptions, FileDisk};
    /// # let dir = std::env::temp_dir().join(format!("zoneplug-changed-{}", std::process::id()));
    /// # std::fs::create_dir_all(&dir).unwrap();
    /// let (path, backup) = (dir.join("disk.zbd"), dir.join("backup.zbd"));
    /// create(&path, &CreateOptions { size: Some(1 << 30), ..Default::default() }, false).unwrap();
    /// std::fs::copy(&path, &backup).unwrap();
    /// let disk = FileDisk::open(&path, Access::ReadWrite).unwrap();
    /// disk.check_file().unwrap();
    /// std::fs::copy(&backup, &path).unwrap();
    /// assert!(disk.check_file().unwrap_err().to_string().contains("this file was overwritten"));
    /// assert!(disk.changed().is_some());
    /// # std::fs::remove_dir_all(&dir).unwrap();
    /// ```
    pub fn check_file(&self) -> Result<(), Error> {
        let core = &self.shared.core;
        let table = match core.table.try_lock() {
            Ok(table) => Some(table),
            Err(TryLockError::Poisoned(table)) => Some(table.into_inner()),
            // A commit holds the lock, and makes the same check.
            Err(TryLockError::WouldBlock) => None,
        };
        if table.is_some() {
            // `change` keeps the result.
            let _ = core.check_unchanged();
        }
        self.changed().map_or(Ok(()), Err)
    }

    /// Returns the error for a change of the file that a check or a commit has found. Does not read the file.
    pub fn changed(&self) -> Option<Error> {
        let change = *self.shared.core.change.get()?;
        Some(FileError::Changed { path: self.path.clone(), change }.into())
    }
}
