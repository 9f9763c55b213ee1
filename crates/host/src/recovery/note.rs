//! A text file that a server leaves for the next server of the same boot. The next server does not believe the file
//! if another user could have written it.

use super::directory::boot;
use super::shared_words::user;
use crate::part::sweep_left;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The most bytes of the file of a note: the line of the boot, and the text.
const MAX_FILE_LEN: u64 = 16 << 20;

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
    /// The file cannot be read, is too long, is no regular file, or another user can write it.
    pub fn read(&self) -> io::Result<Option<String>> {
        let mut options = OpenOptions::new();
        let file = options.read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
        let file = match file.open(&self.path) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(e),
        };
        let about = file.metadata()?;
        if !about.is_file() {
            let what = "the note is no regular file";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
        }
        if about.uid() != user() || about.mode() & 0o022 != 0 {
            let what = "another user can write the note";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
        }
        let mut text = String::new();
        if file.take(MAX_FILE_LEN + 1).read_to_string(&mut text)? as u64 > MAX_FILE_LEN {
            return Err(too_long());
        }
        let (first, rest) = text.split_once('\n').unwrap_or_default();
        Ok((first == format!("{:032x}", boot()?)).then(|| rest.to_owned()))
    }

    /// Replaces the text, and makes the directory if it does not exist. A reader finds the old text or the new one.
    ///
    /// # Errors
    ///
    /// The text is too long for [`BootNote::read`], or the directory or the file cannot be made. The old text stays.
    pub fn write(&self, text: &str) -> io::Result<()> {
        let text = format!("{:032x}\n{text}", boot()?);
        if text.len() as u64 > MAX_FILE_LEN {
            return Err(too_long());
        }
        self.path.parent().map_or(Ok(()), std::fs::create_dir_all)?;
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        let new = self.path.with_file_name(format!(".{name}-{}", std::process::id()));
        let made = make(&new, &text).and_then(|()| std::fs::rename(&new, &self.path));
        if made.is_err() {
            let _ = std::fs::remove_file(&new);
        }
        let prefix = format!(".{name}-");
        sweep_left(&self.path, |left| left.strip_prefix(&prefix)?.parse().ok());
        made
    }

    /// Removes the note, if there is one.
    pub fn remove(&self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

fn make(new: &Path, text: &str) -> io::Result<()> {
    // A killed process with the same id may have left this file.
    let _ = std::fs::remove_file(new);
    let mut file: File = OpenOptions::new().write(true).create_new(true).mode(0o600).open(new)?;
    file.write_all(text.as_bytes())
}

fn too_long() -> io::Error {
    io::Error::new(io::ErrorKind::FileTooLarge, "the note is too long")
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
    fn a_note_of_another_boot_is_not_read() {
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
    fn a_text_that_no_server_could_read_is_not_written() {
        let note = note("long");
        note.write("old").unwrap();
        let too_long = "x".repeat(MAX_FILE_LEN as usize - 32);
        assert_eq!(note.write(&too_long).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        assert_eq!(note.read().unwrap().as_deref(), Some("old"));
        let longest = &too_long[1..];
        note.write(longest).unwrap();
        assert!(note.read().unwrap().as_deref() == Some(longest));
        std::fs::write(note.path(), too_long + &"x".repeat(33)).unwrap();
        assert_eq!(note.read().unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        note.remove();
    }

    #[test]
    fn a_note_that_another_user_can_write_is_not_believed() {
        let note = note("mode");
        note.write("a").unwrap();
        std::fs::set_permissions(note.path(), PermissionsExt::from_mode(0o620)).unwrap();
        let e = note.read().unwrap_err();
        assert_eq!(e.kind(), io::ErrorKind::PermissionDenied);
        assert_eq!(e.to_string(), "another user can write the note");
        note.remove();
        note.write("a").unwrap();
        // Only root can give a file away.
        if std::os::unix::fs::chown(note.path(), Some(1), None).is_ok() && user() == 0 {
            assert_eq!(note.read().unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        }
        note.remove();
        // A symbolic link is not followed.
        std::os::unix::fs::symlink("/proc/self/status", note.path()).unwrap();
        assert!(note.read().is_err());
        note.remove();
        std::fs::create_dir(note.path()).unwrap();
        assert_eq!(note.read().unwrap_err().to_string(), "the note is no regular file");
        assert!(note.write("a").is_err());
        std::fs::remove_dir(note.path()).unwrap();
    }

    /// A server was killed while it wrote its note.
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
        assert!(old.exists(), "new: a process of another PID namespace may still write it");
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
