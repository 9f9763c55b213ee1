//! The directory of the journals: it is in memory. Also the id of the boot, for which they hold.

use super::shared_words;
use std::fs::File;
use std::io;
use std::path::Path;

/// Checks that journals may be in `directory`, and makes it if it does not exist.
pub(crate) fn place(directory: &Path) -> Result<(), String> {
    let failed = |e: io::Error| format!("{}: {e}", directory.display());
    std::fs::create_dir_all(directory).map_err(failed)?;
    let dir = File::open(directory).map_err(failed)?;
    // Access to a page of another file system may wait for a disk, even for the one that is served here.
    match shared_words::is_in_memory(&dir).map_err(failed)? {
        true => Ok(()),
        false => Err(format!("{} is not in memory (tmpfs)", directory.display())),
    }
}

/// The boot id of this system.
pub(crate) fn boot() -> io::Result<u128> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    u128::from_str_radix(&text.trim().replace('-', ""), 16)
        .map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_boot_has_a_number() {
        assert_eq!(boot().unwrap(), boot().unwrap());
        assert_ne!(boot().unwrap(), 0);
    }

    #[test]
    fn a_record_is_not_kept_on_a_disk() {
        assert_eq!(place(Path::new("/proc")).unwrap_err(), "/proc is not in memory (tmpfs)");
        assert!(place(Path::new("/proc/none")).unwrap_err().starts_with("/proc/none: "));
    }
}
