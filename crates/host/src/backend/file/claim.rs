//! The right to replace the file of a disk.

use super::storage::FileStorage;
use super::{FileUse, load::io_error, take_lock};
use std::fs::{Metadata, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use zoneplug_core::Error;

/// The exclusive lock that a program takes before it replaces the file of a disk. While a claim exists, no process has
/// the file open as a disk, and none can open it.
///
/// ```
/// use zoneplug_host::file::{create, Access, Claim, CreateOptions, FileDisk};
/// # let path = std::env::temp_dir().join(format!("zoneplug-claim-{}.zbd", std::process::id()));
/// create(&path, &CreateOptions { size: Some(1 << 30), ..Default::default() }, false).unwrap();
/// let reader = FileDisk::open(&path, Access::ReadOnly).unwrap();
/// assert!(Claim::of(&path).unwrap_err().to_string().contains("is open for reading"));
/// drop(reader);
/// let claim = Claim::of(&path).unwrap();
/// assert!(FileDisk::open(&path, Access::ReadOnly).is_err());
/// # drop(claim);
/// # std::fs::remove_file(&path).unwrap();
/// ```
#[derive(Debug)]
pub struct Claim {
    /// Holds the locks.
    _storage: FileStorage,
    place: PathBuf,
    metadata: Metadata,
}

impl Claim {
    /// Claims the file that `path` leads to.
    ///
    /// # Errors
    ///
    /// [`Busy`](zoneplug_core::ErrorKind::Busy) if a process has the file open as a disk. Another kind if the file
    /// cannot be opened for writing.
    pub fn of(path: &Path) -> Result<Claim, Error> {
        let shown = path.display();
        let failed = |e| io_error(format!("cannot replace {shown}"), e);
        let place = std::fs::canonicalize(path).map_err(failed)?;
        let mut old = OpenOptions::new();
        // With O_NONBLOCK, opening a FIFO does not wait for a peer.
        let file = old.read(true).write(true).custom_flags(libc::O_NONBLOCK).open(&place);
        let file = file.map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        let storage = FileStorage::of(file, &place, true).map_err(failed)?;
        take_lock(&storage, path, FileUse::Replacing)?;
        storage.check_path(&place).map_err(failed)?;
        Ok(Claim { _storage: storage, place, metadata })
    }

    /// The path of the file, without links.
    pub fn place(&self) -> &Path {
        &self.place
    }

    /// The owner and the permissions of the file.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }
}
