//! Open disks that one process passes on to another. A passed descriptor refers to the same open file: its locks, its
//! exclusive claim, and errors of write-back that no sync has returned yet stay with it.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Identifies a file or a device node, whatever its path is by now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HeldPlace {
    /// The file system (`st_dev`); 0 for a device node.
    pub device: u64,
    /// The file in it (`st_ino`), or the number of the device (`st_rdev`).
    pub number: u64,
}

impl HeldPlace {
    fn of(m: &std::fs::Metadata) -> HeldPlace {
        let kind = m.file_type();
        match kind.is_block_device() || kind.is_char_device() {
            true => HeldPlace { device: 0, number: m.rdev() },
            false => HeldPlace { device: m.dev(), number: m.ino() },
        }
    }

    /// The file that is at `path` now.
    pub fn at(path: &Path) -> io::Result<HeldPlace> {
        Ok(HeldPlace::of(&std::fs::metadata(path)?))
    }
}

/// An open disk at the bottom of a specification: the descriptors of its backend, in the backend's order.
#[derive(Debug, Clone)]
pub struct HeldDisk {
    files: Vec<Arc<File>>,
    place: HeldPlace,
    /// The paths by which this process has opened the disk; other files may be there by now.
    paths: Vec<PathBuf>,
}

impl HeldDisk {
    /// The disk of these descriptors. The first one identifies it.
    ///
    /// # Errors
    ///
    /// There is no descriptor, or the first cannot be examined.
    pub fn new(files: Vec<File>) -> io::Result<HeldDisk> {
        let first = files.first().ok_or(io::ErrorKind::InvalidInput)?;
        let place = HeldPlace::of(&first.metadata()?);
        Ok(HeldDisk { files: files.into_iter().map(Arc::new).collect(), place, paths: Vec::new() })
    }

    /// A disk of duplicates of open descriptors.
    #[cfg(any(feature = "file", feature = "drives"))]
    pub(crate) fn of<'a>(files: impl IntoIterator<Item = &'a File>) -> io::Result<HeldDisk> {
        HeldDisk::new(files.into_iter().map(File::try_clone).collect::<io::Result<_>>()?)
    }

    /// Notes that this process has opened the disk by this path.
    #[cfg(any(feature = "file", feature = "drives"))]
    pub(crate) fn named(self, path: &Path) -> HeldDisk {
        HeldDisk { paths: vec![path.to_owned()], ..self }
    }

    /// The descriptors.
    pub fn files(&self) -> impl ExactSizeIterator<Item = &File> {
        self.files.iter().map(|f| &**f)
    }

    /// The identity of the disk.
    pub fn place(&self) -> HeldPlace {
        self.place
    }

    /// Duplicates of the descriptors, for a backend to own.
    #[cfg(any(feature = "file", feature = "drives"))]
    pub(crate) fn duplicate(&self) -> io::Result<Vec<File>> {
        self.files().map(File::try_clone).collect()
    }
}

/// A key as a layer has read it from a file.
pub(crate) type HeldKey = Arc<dyn std::any::Any + Send + Sync>;

/// The open disks of a specification, or of a whole server, and the keys that this process has read for them.
#[derive(Clone, Default)]
pub struct HeldDisks {
    disks: Vec<HeldDisk>,
    /// Keys by the path of their file. A key is not passed to another process.
    keys: Vec<(PathBuf, HeldKey)>,
}

impl std::fmt::Debug for HeldDisks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HeldDisks").field("disks", &self.disks).finish_non_exhaustive()
    }
}

impl HeldDisks {
    /// Adds a disk, unless it is there already.
    pub fn add(&mut self, disk: HeldDisk) {
        match self.disks.iter_mut().find(|d| d.place == disk.place) {
            Some(d) => d.paths.extend(disk.paths),
            None => self.disks.push(disk),
        }
    }

    /// Adds the disks and keys of `others`.
    pub fn add_all(&mut self, others: &HeldDisks) {
        self.extend(others.disks.iter().cloned());
        self.keys.extend(others.keys.iter().cloned());
    }

    /// The disk that this process has opened by `path`, otherwise the disk whose file is at `path` now.
    pub fn at(&self, path: &Path) -> Option<&HeldDisk> {
        let known = self.disks.iter().find(|d| d.paths.iter().any(|p| p == path));
        known.or_else(|| {
            let place = HeldPlace::at(path).ok()?;
            self.disks.iter().find(|d| d.paths.is_empty() && d.place == place)
        })
    }

    /// Makes `path` a name of the disk whose file is there now.
    pub fn know(&mut self, path: &Path) {
        let Ok(place) = HeldPlace::at(path) else { return };
        if let Some(d) = self.disks.iter_mut().find(|d| d.place == place) {
            d.paths.push(path.to_owned());
        }
    }

    /// The key that was read from a file.
    #[cfg_attr(not(feature = "crypt"), allow(dead_code))]
    pub(crate) fn key(&self, path: &Path) -> Option<HeldKey> {
        self.keys.iter().find(|(p, _)| p == path).map(|(_, key)| key.clone())
    }

    /// Keeps the key that was read from a file.
    #[cfg_attr(not(feature = "crypt"), allow(dead_code))]
    pub(crate) fn add_key(&mut self, path: &Path, key: HeldKey) {
        self.keys.push((path.to_owned(), key));
    }

    /// All disks, in the order in which they were added.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &HeldDisk> {
        self.disks.iter()
    }
}

impl Extend<HeldDisk> for HeldDisks {
    fn extend<T: IntoIterator<Item = HeldDisk>>(&mut self, disks: T) {
        disks.into_iter().for_each(|d| self.add(d));
    }
}

#[cfg(all(test, any(feature = "file", feature = "drives")))]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_found_by_its_file_and_not_by_its_name() {
        let dir = std::env::temp_dir().join(format!("zoneplug-held-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let (a, b) = (dir.join("a"), dir.join("b"));
        std::fs::write(&a, "a").unwrap();
        std::fs::write(&b, "b").unwrap();
        let mut all = HeldDisks::default();
        all.add(HeldDisk::of([&File::open(&a).unwrap()]).unwrap());
        all.add(HeldDisk::of([&File::open(&a).unwrap()]).unwrap());
        assert_eq!(all.iter().len(), 1, "one disk");
        assert!(all.at(&a).is_some() && all.at(&b).is_none());
        std::fs::rename(&a, dir.join("c")).unwrap();
        std::fs::rename(&b, &a).unwrap();
        assert!(all.at(&a).is_none(), "another file has its name");
        assert!(all.at(&dir.join("c")).is_some());
        // A name that was known stays.
        all.know(&dir.join("c"));
        std::fs::rename(&a, dir.join("c")).unwrap();
        assert!(all.at(&dir.join("c")).is_some_and(|d| d.files().len() == 1));
        all.know(&dir.join("none"));
        assert!(all.at(&dir.join("none")).is_none());
        std::fs::remove_dir_all(&dir).unwrap();
    }

    /// A device may have several nodes, as in a container; its number identifies it.
    #[test]
    fn a_device_is_known_by_its_number_and_not_by_its_node() {
        let dir = std::env::temp_dir().join(format!("zoneplug-node-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let node = dir.join("null");
        let made = std::process::Command::new("mknod").arg(&node).args(["c", "1", "3"]).status();
        if made.is_ok_and(|made| made.success()) {
            let of = |path: &Path| HeldPlace::at(path).unwrap();
            assert_eq!(of(&node), of(Path::new("/dev/null")));
            assert_ne!(of(&node), of(Path::new("/dev/zero")));
        }
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
