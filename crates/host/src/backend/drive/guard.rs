//! How a device is in use: mounts, devices built on it, other programs. A drive is opened for writing only if it is not
//! in use; with `force`, also if it is mounted or holds data. Opening a drive for reading checks none of this.

use super::signature;
use super::sysfs::SysDisk;
use super::{DriveError, DriveOptions};
use crate::held::HeldDisk;
use crate::os_error::{Attempt, os_error};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use zoneplug_core::zone::Geometry;
use zoneplug_core::{Error, ErrorKind, Hint};

/// A device, found by its path.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub(crate) path: PathBuf,
    /// The disk in sysfs.
    pub(crate) disk: SysDisk,
    /// A path in sysfs that exists while the device does.
    alive: PathBuf,
}

impl Node {
    /// The device at `path`; `kind` is `block` or `char`.
    pub(crate) fn of(path: &Path, kind: &str) -> Result<Node, Error> {
        let failed = |e: io::Error| cannot_open(path, e);
        let dev = numbers(std::fs::metadata(path).map_err(failed)?.rdev());
        let disk = SysDisk::of(Path::new("/sys"), kind, dev).ok_or_else(|| {
            Error::new(ErrorKind::NotFound, format!("{} is not in sysfs", path.display()))
                .hint("the device has gone, or /sys is not mounted")
        })?;
        let alive = Path::new("/sys/dev").join(kind).join(format!("{}:{}", dev.0, dev.1));
        Ok(Node { path: path.to_owned(), disk, alive })
    }

    /// A node that exists while `alive` does.
    #[cfg(test)]
    pub(crate) fn of_test(alive: &Path) -> Node {
        let disk = SysDisk { dir: alive.to_owned(), name: "test".to_owned() };
        Node { path: alive.to_owned(), disk, alive: alive.to_owned() }
    }

    /// Whether the device has been removed.
    pub(crate) fn is_gone(&self) -> bool {
        !self.alive.exists()
    }

    /// The path, for messages.
    pub(crate) fn name(&self) -> String {
        self.path.display().to_string()
    }
}

/// A device number as major and minor.
fn numbers(dev: u64) -> (u32, u32) {
    (libc::major(dev), libc::minor(dev))
}

/// The error of a device that cannot be opened.
pub(crate) fn cannot_open(path: &Path, e: io::Error) -> Error {
    os_error(Attempt::Drive, format!("cannot open {}", path.display()), e)
}

/// How a device is used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Usage {
    Free,
    /// Mounted at this path.
    Mounted(String),
    /// Devices of these names are built on it.
    Held(Vec<String>),
}

/// The use of a disk according to `/proc/self/mountinfo` and sysfs. `dev_of` returns the device number of a path.
fn usage(mountinfo: &str, disk: &SysDisk, dev_of: &dyn Fn(&str) -> Option<(u32, u32)>) -> Usage {
    let held = disk.holders();
    if !held.is_empty() {
        return Usage::Held(held);
    }
    let mut devs: Vec<(u32, u32)> = disk.dev().into_iter().collect();
    for part in disk.partitions() {
        let part = SysDisk { dir: disk.dir.join(&part), name: part };
        let held = part.holders();
        if !held.is_empty() {
            return Usage::Held(held);
        }
        devs.extend(part.dev());
    }
    for line in mountinfo.lines() {
        let fields: Vec<&str> = line.split(' ').collect();
        let (Some(dev), Some(place)) = (fields.get(2), fields.get(4)) else { continue };
        let dev = dev.split_once(':').and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
        // btrfs shows a device number of its own here. The source, two fields after the dash, names the disk then.
        let source = fields
            .iter()
            .position(|f| *f == "-")
            .and_then(|i| fields.get(i + 2))
            .filter(|s| s.starts_with('/'))
            .and_then(|s| dev_of(&unescape(s)));
        if [dev, source].iter().flatten().any(|d| devs.contains(d)) {
            return Usage::Mounted(unescape(place));
        }
    }
    Usage::Free
}

/// Decodes the blanks of mountinfo, which are written as `\040`.
fn unescape(s: &str) -> String {
    ["\\040", "\\011", "\\012", "\\134"]
        .iter()
        .zip([" ", "\t", "\n", "\\"])
        .fold(s.to_owned(), |s, (code, c)| s.replace(code, c))
}

fn usage_now(disk: &SysDisk) -> Usage {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    usage(&mounts, disk, &|path| Some(numbers(std::fs::metadata(path).ok()?.rdev())))
}

/// The open block device of a drive.
#[derive(Debug)]
pub(crate) struct Claim(pub(crate) File);

/// Opens a block device past the page cache. For writing it is opened exclusively, unless it is mounted and `force` is
/// set.
pub(crate) fn claim(path: &Path, disk: &SysDisk, o: DriveOptions) -> Result<Claim, Error> {
    let open = |exclusive: bool| {
        let flags = libc::O_DIRECT | if exclusive { libc::O_EXCL } else { 0 };
        let mut how = OpenOptions::new();
        how.read(true).write(!o.read_only).custom_flags(flags).open(path)
    };
    if o.read_only {
        return Ok(Claim(open(false).map_err(|e| cannot_open(path, e))?));
    }
    let drive = path.display().to_string();
    let mut exclusive = true;
    match usage_now(disk) {
        Usage::Free => {}
        Usage::Held(holders) => return Err(DriveError::Holders { drive, holders }.into()),
        Usage::Mounted(at) if !o.force => return Err(DriveError::Mounted { drive, at }.into()),
        Usage::Mounted(_) => exclusive = false,
    }
    match open(exclusive) {
        Ok(file) => Ok(Claim(file)),
        Err(e) if e.raw_os_error() == Some(libc::EBUSY) => Err(DriveError::InUse { drive }.into()),
        Err(e) => Err(cannot_open(path, e)),
    }
}

/// Like [`claim`]; `given`: the device as it is open already, with its claim.
pub(crate) fn claim_or(
    given: Option<&HeldDisk>,
    path: &Path,
    disk: &SysDisk,
    o: DriveOptions,
) -> Result<Claim, Error> {
    match given.and_then(|given| given.files().next()) {
        Some(file) => Ok(Claim(file.try_clone().map_err(|e| cannot_open(path, e))?)),
        None => claim(path, disk, o),
    }
}

/// Refuses a drive that holds a file system or a partition table. `read` returns 4096 bytes at an offset.
pub(crate) fn refuse_data(
    name: &str,
    o: DriveOptions,
    g: &Geometry,
    read: &mut dyn FnMut(u64) -> io::Result<Vec<u8>>,
) -> Result<(), Error> {
    if o.read_only || o.force || o.serve {
        return Ok(());
    }
    let zone = u64::from(g.zone_sectors()) << 9;
    let found = signature::find(g.capacity_bytes().0, zone, read).map_err(|e| {
        Error::new(ErrorKind::Io, format!("cannot read what is on {name}: {e}"))
            .hint(Hint::from("").option("force").text(" (force=1) does not look"))
            .source(e)
    })?;
    let Some(found) = found else { return Ok(()) };
    Err(DriveError::HoldsData { drive: name.to_owned(), found: found.to_owned() }.into())
}

#[cfg(test)]
mod tests {
    use super::super::sysfs::tests::tree;
    use super::*;

    const MOUNTS: &str = "\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
40 22 0:41 / /mnt/zoned\\040disk rw - btrfs /dev/sdb rw,space_cache=v2
41 22 8:33 / /srv rw - xfs /dev/sdc1 rw
42 22 0:42 / /tmp rw - tmpfs tmpfs rw";

    fn disk(root: &Path, name: &str) -> SysDisk {
        SysDisk { dir: root.join(name), name: name.to_owned() }
    }

    #[test]
    fn mounts_are_found_by_number_by_source_and_by_partition() {
        let root = tree(
            "mounts",
            "vda/dev=254:0\nsdb/dev=8:16\nsdc/dev=8:32\nsdc/sdc1/partition=1\nsdc/sdc1/dev=8:33\n\
             sdd/dev=8:48\nsde/dev=8:64\nsde/holders/dm-0/dev=252:0\n\
             sdf/dev=8:80\nsdf/sdf1/partition=1\nsdf/sdf1/holders/dm-2/dev=252:2",
        );
        let dev_of = |p: &str| (p == "/dev/sdb").then_some((8, 16));
        let used = |name| usage(MOUNTS, &disk(&root, name), &dev_of);
        assert_eq!(used("vda"), Usage::Mounted("/".to_owned()));
        assert_eq!(used("sdb"), Usage::Mounted("/mnt/zoned disk".to_owned()));
        assert_eq!(used("sdc"), Usage::Mounted("/srv".to_owned()));
        assert_eq!(used("sdd"), Usage::Free);
        assert_eq!(used("sde"), Usage::Held(vec!["dm-0".to_owned()]));
        assert_eq!(used("sdf"), Usage::Held(vec!["dm-2".to_owned()]));
        std::fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn a_drive_with_data_is_refused_in_two_lines() {
        let g = Geometry::new(4, 2048, 2048).unwrap();
        let mut read = |at: u64| {
            let mut block = vec![0; 4096];
            if at == 0 {
                block[..4].copy_from_slice(b"XFSB");
            }
            Ok(block)
        };
        let e = refuse_data("/dev/sda", DriveOptions::default(), &g, &mut read).unwrap_err();
        assert_eq!((e.kind(), e.what()), (ErrorKind::Busy, "/dev/sda holds an XFS file system"));
        assert!(e.what_to_try().unwrap().contains("force=1"));
        for o in [
            DriveOptions { force: true, ..Default::default() },
            DriveOptions { read_only: true, ..Default::default() },
            DriveOptions { serve: true, ..Default::default() },
        ] {
            refuse_data("/dev/sda", o, &g, &mut read).unwrap();
        }
    }

    #[test]
    fn a_device_that_is_not_there_says_where_to_look() {
        let e = Node::of(Path::new("/dev/no-such-drive"), "block").unwrap_err();
        assert_eq!(e.kind(), ErrorKind::NotFound);
        assert!(e.what_to_try().unwrap().contains("lsblk"));
        let e = Node::of(Path::new("/dev/null"), "block").unwrap_err();
        assert!(e.to_string().contains("/dev/null"), "{e}");
    }
}
