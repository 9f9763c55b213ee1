//! Words in a file in memory, which other processes can read after this one has died. The `unsafe` code is the
//! mapping.

use crate::backend::file::file_system;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::AtomicU64;

/// A file as words in shared memory. The stores survive the end of this process, also by a SIGKILL.
pub(crate) struct SharedWords {
    ptr: *mut libc::c_void,
    words: usize,
}

// SAFETY: the memory lives as long as this value, and is handed out as atomic words only.
unsafe impl Send for SharedWords {}
// SAFETY: as above.
unsafe impl Sync for SharedWords {}

impl SharedWords {
    /// Gives `file` a length and allocates its memory, so that no store fails for lack of memory.
    pub(crate) fn allocate(file: &File, words: usize) -> io::Result<()> {
        // SAFETY: a call without pointers.
        match unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, (words * 8) as libc::off_t) } {
            0 => Ok(()),
            e => Err(io::Error::from_raw_os_error(e)),
        }
    }

    /// Maps `file`, which must have that length.
    pub(crate) fn map(file: &File, words: usize) -> io::Result<SharedWords> {
        let len = words * 8;
        if words == 0 || file.metadata()?.len() != len as u64 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "another length"));
        }
        let (prot, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_POPULATE);
        // SAFETY: a new mapping at an address that the kernel chooses.
        let ptr =
            unsafe { libc::mmap(std::ptr::null_mut(), len, prot, flags, file.as_raw_fd(), 0) };
        if ptr == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // Keeps the pages from being swapped out. If the limit forbids that, they are usually in memory anyway.
        // SAFETY: the mapping above.
        unsafe { libc::mlock(ptr, len) };
        Ok(SharedWords { ptr, words })
    }

    pub(crate) fn words(&self) -> &[AtomicU64] {
        // SAFETY: a mapping of this length that begins at a page, borrowed while it exists. Other processes
        // that map it store whole words too.
        unsafe { std::slice::from_raw_parts(self.ptr.cast::<AtomicU64>(), self.words) }
    }
}

impl Drop for SharedWords {
    fn drop(&mut self) {
        // SAFETY: mapped above with this length.
        unsafe { libc::munmap(self.ptr, self.words * 8) };
    }
}

/// The user id that the file system checks.
pub(crate) fn user() -> u32 {
    // SAFETY: a call without pointers.
    unsafe { libc::geteuid() }
}

/// Whether a file is in memory (tmpfs, ramfs), so that its pages never wait for a disk.
pub(crate) fn is_in_memory(file: &File) -> io::Result<bool> {
    const RAMFS_MAGIC: u64 = 0x8584_58f6;
    let kind = file_system(file)?;
    Ok(kind == libc::TMPFS_MAGIC as u64 || kind == RAMFS_MAGIC)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::recovery::journal::tests::JournalDir;
    use std::path::Path;

    /// Whether this process has a file mapped.
    pub(crate) fn is_mapped(path: &Path) -> bool {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        maps.lines().any(|line| line.ends_with(path.to_str().unwrap()))
    }

    /// A server that has served many devices, one after the other, has the memory of none of them.
    #[test]
    fn nothing_stays_mapped() {
        let dir = JournalDir::new();
        let path = dir.0.join("words");
        let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        // Several pages.
        const WORDS: usize = 8192;
        SharedWords::allocate(&file, WORDS).unwrap();
        let words = SharedWords::map(&file, WORDS).unwrap();
        assert_eq!((words.words().len(), is_mapped(&path)), (WORDS, true));
        drop(words);
        assert!(!is_mapped(&path));
    }
}
