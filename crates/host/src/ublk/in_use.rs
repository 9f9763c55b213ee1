//! Finds users of a block device, and writes their data out before it is removed. Once the kernel begins to remove a
//! device that can be taken over, it fails all writes that file systems and the page cache still have.

use std::fmt;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// A user of a block device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InUse {
    /// File systems, mounted at these paths.
    Mounted(Vec<PathBuf>),
    /// An exclusive user: a file system in another mount namespace, the device mapper, or a program (`O_EXCL`).
    Claimed,
    /// A program has the device open.
    Open,
}

impl fmt::Display for InUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InUse::Mounted(at) => {
                let at: Vec<_> = at.iter().map(|p| p.to_string_lossy()).collect();
                write!(f, "mounted on {}", at.join(", "))
            }
            InUse::Claimed => f.write_str("in use by another device or a program"),
            InUse::Open => f.write_str("open in a program"),
        }
    }
}

/// The user of `device`. Does not notice a program that has opened it like an ordinary file.
///
/// ```
/// assert_eq!(zoneplug_host::ublk::in_use(std::path::Path::new("/dev/mapper/none")), None);
/// ```
pub fn in_use(device: &Path) -> Option<InUse> {
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mounts = mounts_of(&table, &device.to_string_lossy());
    if !mounts.is_empty() {
        return Some(InUse::Mounted(mounts));
    }
    let claim = File::options().read(true).custom_flags(libc::O_EXCL).open(device);
    claim.is_err_and(|e| e.kind() == std::io::ErrorKind::ResourceBusy).then_some(InUse::Claimed)
}

/// Makes Linux write out the file systems on `device` and its page cache. Returns the mount points.
///
/// ```
/// assert!(zoneplug_host::ublk::sync_before_stop(std::path::Path::new("/dev/mapper/none")).is_empty());
/// ```
pub fn sync_before_stop(device: &Path) -> Vec<PathBuf> {
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mounts = mounts_of(&table, &device.to_string_lossy());
    for mount in &mounts {
        if let Ok(dir) = File::open(mount) {
            // SAFETY: the call has no pointers. Its error has no other receiver, so it is ignored.
            unsafe { libc::syncfs(dir.as_raw_fd()) };
        }
    }
    if let Ok(file) = File::open(device) {
        let _ = file.sync_all();
    }
    mounts
}

/// The mount points of `source` in the text of mountinfo (proc(5)): `ID PARENT MAJ:MIN ROOT POINT OPTIONS
/// ... - TYPE SOURCE OPTIONS`.
fn mounts_of(table: &str, source: &str) -> Vec<PathBuf> {
    let of = |line: &str| {
        let (left, right) = line.split_once(" - ")?;
        (right.split(' ').nth(1)? == source).then(|| unescape(left.split(' ').nth(4)?))?
    };
    let mut found: Vec<PathBuf> = table.lines().filter_map(of).collect();
    found.dedup();
    found
}

/// Decodes the octal escapes of blanks and backslashes.
fn unescape(text: &str) -> Option<PathBuf> {
    let mut out = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&b, tail)) = rest.split_first() {
        rest = tail;
        if b != b'\\' {
            out.push(b);
            continue;
        }
        let (digits, tail) = rest.split_at_checked(3)?;
        out.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok()?);
        rest = tail;
    }
    Some(PathBuf::from(String::from_utf8(out).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_found_by_their_source() {
        let table = "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n\
                     40 22 0:35 / /mnt/a\\040b rw,relatime shared:9 - btrfs /dev/ublkb0 rw,space_cache=v2\n\
                     41 22 0:36 / /mnt/c rw - btrfs /dev/ublkb01 rw\n\
                     broken line\n";
        assert_eq!(mounts_of(table, "/dev/ublkb0"), [PathBuf::from("/mnt/a b")]);
        assert!(mounts_of(table, "/dev/ublkb1").is_empty());
    }
}
