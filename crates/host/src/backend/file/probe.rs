//! Recognises the file of a disk. Reads the magic numbers and nothing else.

use super::format::{MAGIC, PAGE};
use crate::paths::open_regular;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Whether a file is a durable disk, judged by its first and its last page. True also for a disk that is damaged, or of
/// a version that this library does not know. False for anything but a regular file.
///
/// ```
/// assert!(!zoneplug_host::is_disk_file(std::path::Path::new("Cargo.toml")).unwrap());
/// ```
pub fn is_disk_file(path: &Path) -> io::Result<bool> {
    let file = match open_regular(path) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::InvalidInput => return Ok(false),
        Err(e) => return Err(e),
    };
    let mut head = [0; MAGIC.len()];
    let mut is_magic = |at: u64| file.read_exact_at(&mut head, at).is_ok() && head == MAGIC;
    let last = (file.metadata()?.len() / PAGE).saturating_sub(1) * PAGE;
    Ok(is_magic(0) || is_magic(last))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::OpenOptions;

    #[test]
    fn a_disk_is_known_by_either_of_its_superblocks() {
        let path = std::env::temp_dir().join(format!("zoneplug-known-{}.zbd", std::process::id()));
        let o = super::super::CreateOptions { zones: Some(2), ..Default::default() };
        super::super::create(&path, &o, true).unwrap();
        assert!(is_disk_file(&path).unwrap());
        OpenOptions::new().write(true).open(&path).unwrap().write_all_at(&[0; 512], 0).unwrap();
        assert!(is_disk_file(&path).unwrap());
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn what_is_no_disk_is_not_taken_for_one() {
        let path = std::env::temp_dir().join(format!("zoneplug-no-disk-{}", std::process::id()));
        std::fs::write(&path, "0123456789").unwrap();
        for other in [path.as_path(), Path::new("/dev/zero"), &std::env::temp_dir()] {
            assert!(!is_disk_file(other).unwrap(), "{}", other.display());
        }
        std::fs::remove_file(&path).unwrap();
    }
}
