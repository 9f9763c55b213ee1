//! A text that a server leaves for the next one of the same boot. Such a file is not believed if another user could
//! have written it.

use super::directory::boot;
use super::shared_words::user;
use crate::part::sweep_left;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Longest text.
const MOST: u64 = 16 << 20;

/// A text for the next server. It is valid until the system is booted again.
///
/// ```
/// use zoneplug_host::BootNote;
/// let note = BootNote::at(&std::env::temp_dir(), &format!("zoneplug-doc-{}", std::process::id()));
/// assert_eq!(note.read()?, None);
/// note.write("served")?;
/// assert_eq!(note.read()?.as_deref(), Some("served"));
/// note.remove();
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct BootNote {
    path: PathBuf,
}

impl BootNote {
    /// The note `name` in a directory.
    pub fn at(directory: &Path, name: &str) -> BootNote {
        BootNote { path: directory.join(name) }
    }

    /// The path of the note.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The text. `None`: there is none, or it is from another boot.
    ///
    /// # Errors
    ///
    /// The file cannot be read, is too long, or another user can write it.
    pub fn read(&self) -> io::Result<Option<String>> {
        let mut options = OpenOptions::new();
        let file = options.read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
        let file = match file.open(&self.path) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(e),
        };
        let about = file.metadata()?;
        if !about.is_file() || about.uid() != user() || about.mode() & 0o022 != 0 {
            let what = "another user can write it";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
        }
        let mut text = String::new();
        if file.take(MOST).read_to_string(&mut text)? as u64 == MOST {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it is too long"));
        }
        let (first, rest) = text.split_once('\n').unwrap_or_default();
        Ok((first == format!("{:032x}", boot()?)).then(|| rest.to_owned()))
    }

    /// Replaces the text, and makes the directory if it does not exist. A reader finds the old text or the new one.
    ///
    /// # Errors
    ///
    /// The directory or the file cannot be made.
    pub fn write(&self, text: &str) -> io::Result<()> {
        self.path.parent().map_or(Ok(()), std::fs::create_dir_all)?;
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        let new = self.path.with_file_name(format!(".{name}-{}", std::process::id()));
        let made = self.make(&new, text).and_then(|()| std::fs::rename(&new, &self.path));
        if made.is_err() {
            let _ = std::fs::remove_file(&new);
        }
        let prefix = format!(".{name}-");
        sweep_left(&self.path, |left| left.strip_prefix(&prefix)?.parse().ok());
        made
    }

    fn make(&self, new: &Path, text: &str) -> io::Result<()> {
        // A killed process with this number may have left this file.
        let _ = std::fs::remove_file(new);
        let mut file: File =
            OpenOptions::new().write(true).create_new(true).mode(0o600).open(new)?;
        file.write_all(format!("{:032x}\n{text}", boot()?).as_bytes())
    }

    /// Removes the note, if there is one.
    pub fn remove(&self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::time::Duration;

    fn note(name: &str) -> BootNote {
        let name = format!("zoneplug-note-{name}-{}", std::process::id());
        BootNote::at(&std::env::temp_dir(), &name)
    }

    #[test]
    fn a_note_is_of_this_boot() {
        let note = note("boot");
        note.write("a\nb\n").unwrap();
        assert_eq!(note.read().unwrap().as_deref(), Some("a\nb\n"));
        let text = std::fs::read_to_string(note.path()).unwrap();
        let other = text.replacen(&text[..1], if text.starts_with('0') { "1" } else { "0" }, 1);
        std::fs::write(note.path(), other).unwrap();
        assert_eq!(note.read().unwrap(), None, "another boot's");
        std::fs::write(note.path(), "").unwrap();
        assert_eq!(note.read().unwrap(), None);
        note.remove();
        assert_eq!(note.read().unwrap(), None);
    }

    #[test]
    fn a_note_that_another_user_can_write_is_not_believed() {
        let note = note("mode");
        note.write("a").unwrap();
        std::fs::set_permissions(note.path(), PermissionsExt::from_mode(0o620)).unwrap();
        assert_eq!(note.read().unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        note.remove();
        note.write("a").unwrap();
        // Only root can give a file away.
        if std::os::unix::fs::chown(note.path(), Some(1), None).is_ok() && user() == 0 {
            assert_eq!(note.read().unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        }
        note.remove();
        // A link to a file that another user has written.
        std::os::unix::fs::symlink("/proc/self/status", note.path()).unwrap();
        assert!(note.read().is_err());
        note.remove();
        std::fs::create_dir(note.path()).unwrap();
        assert!(note.read().is_err() && note.write("a").is_err());
        std::fs::remove_dir(note.path()).unwrap();
    }

    /// A server was killed while it wrote its stamp.
    #[test]
    fn what_a_killed_process_left_is_removed_with_the_next_text() {
        let note = note("left");
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let gone = child.id();
        child.wait().unwrap();
        let name = note.path().file_name().unwrap().to_str().unwrap().to_owned();
        let left = |of: &str| note.path().with_file_name(format!(".{name}-{of}"));
        let (old, init, other) = (left(&gone.to_string()), left("1"), left("data"));
        for path in [&old, &init, &other] {
            std::fs::write(path, "half").unwrap();
        }
        note.write("a").unwrap();
        assert!(old.exists(), "a process of another namespace may be at it");
        let time = std::time::SystemTime::now() - Duration::from_secs(60);
        for path in [&old, &init, &other] {
            File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
        }
        note.write("b").unwrap();
        assert_eq!([&old, &init, &other].map(|p| p.exists()), [false, true, true]);
        for path in [&init, &other] {
            std::fs::remove_file(path).unwrap();
        }
        note.remove();
    }
}
