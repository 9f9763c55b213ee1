//! Files without a name, for data that a process has no room for in memory. Such a file is gone with its last
//! descriptor, also if the process is killed.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

/// Makes an empty file without a name, for reading and writing, in the directory for temporary files (`TMPDIR` or
/// `/tmp`).
///
/// ```
/// use std::os::unix::fs::FileExt;
/// let file = zoneplug_host::scratch_file().unwrap();
/// file.write_all_at(b"zone", 0).unwrap();
/// let mut back = [0; 4];
/// file.read_exact_at(&mut back, 0).unwrap();
/// assert_eq!(&back, b"zone");
/// ```
pub fn scratch_file() -> io::Result<File> {
    let dir = std::env::temp_dir();
    match options().custom_flags(libc::O_TMPFILE | libc::O_EXCL).open(&dir) {
        // This file system has no files without names.
        Err(e) if matches!(e.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EISDIR)) => named(&dir),
        made => made,
    }
}

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    options
}

/// Makes a file with a name that no other file has, and removes the name.
fn named(dir: &Path) -> io::Result<File> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = dir.join(format!(".zoneplug-{}-{n}", std::process::id()));
        match options().create_new(true).open(&path) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(e),
            Ok(file) => return std::fs::remove_file(&path).map(|()| file),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{FileExt, MetadataExt};

    #[test]
    fn a_file_has_no_name_and_one_owner() {
        let dir = std::env::temp_dir();
        for file in [scratch_file().unwrap(), named(&dir).unwrap(), named(&dir).unwrap()] {
            file.write_all_at(b"x", 100).unwrap();
            let meta = file.metadata().unwrap();
            assert_eq!((meta.nlink(), meta.len(), meta.mode() & 0o777), (0, 101, 0o600));
        }
        assert_eq!(named(Path::new("/nowhere")).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
