//! Snapshots of disks that this process has open.

use crate::backend::file::{Made, Snapshot};
use crate::runtime::blocking::BlockingDisk;
use crate::runtime::hosted::HostedDisk;
use std::path::Path;
use zoneplug_core::{Error, ErrorKind};

impl HostedDisk {
    /// Makes a snapshot, in the new file `to`, of a disk that is in one file. The disk stays in use; its I/O waits while the last part is
    /// copied. Everything that was acknowledged before the call is in the snapshot. `new_uuid`: with a UUID of its own, so that
    /// it can be served beside the original.
    ///
    /// # Errors
    ///
    /// [`NotSupported`](zoneplug_core::ErrorKind::NotSupported) unless the disk is in one file,
    /// [`Busy`](zoneplug_core::ErrorKind::Busy) if `to` exists.
    ///
    /// ```
    /// use zoneplug_host::{HostedDisk, file};
    /// # let dir = std::env::temp_dir().join(format!("zoneplug-hosted-snapshot-{}", std::process::id()));
    /// # std::fs::create_dir_all(&dir).unwrap();
    /// let (path, copy) = (dir.join("disk.zbd"), dir.join("copy.zbd"));
    /// file::create(&path, &file::CreateOptions { size: Some(1 << 30), ..Default::default() }, false).unwrap();
    /// let disk = HostedDisk::open_spec(path.to_str().unwrap()).unwrap();
    /// disk.snapshot(&copy, true).unwrap();
    /// assert_eq!(file::check(&copy, false).unwrap().problems, 0);
    /// # std::fs::remove_dir_all(&dir).unwrap();
    /// ```
    pub fn snapshot(&self, to: &Path, new_uuid: bool) -> Result<Made, Error> {
        let [file] = &*self.files else {
            let (what, hint) = match self.files.len() {
                0 => ("this disk is in no file".to_owned(), "a disk in a file"),
                n => (format!("this disk is in {n} files"), "a snapshot of each file"),
            };
            let what = format!("{what}; a snapshot is of a disk in one file");
            return Err(Error::new(ErrorKind::NotSupported, what).hint(hint));
        };
        let mut snapshot = Snapshot::of_open(file, to)?;
        snapshot.catch_up()?;
        if !self.limits().read_only {
            // Flushed before the freeze, so that I/O waits for a short time only.
            BlockingDisk::new(self)?.flush()?;
        }
        let frozen = self.freeze()?;
        snapshot.copy_rest()?;
        drop(frozen);
        snapshot.finish(new_uuid)
    }
}
