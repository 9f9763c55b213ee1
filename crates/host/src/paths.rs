//! Paths that a command line or a specification names. They may lead to anything: pipes, devices, directories, files
//! without an end. This module finds out what is there before any call that could block. It knows no format of a file.

use std::ffi::CString;
use std::fs::{File, FileType, OpenOptions};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

/// The name, in messages, of something other than a regular file.
fn name_of(t: FileType) -> &'static str {
    if t.is_dir() {
        "a directory"
    } else if t.is_fifo() {
        "a pipe"
    } else if t.is_socket() {
        "a socket"
    } else {
        "a device"
    }
}

fn refused(t: FileType) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("it is {}, not a file", name_of(t)))
}

fn is_special(path: &Path) -> Option<io::Error> {
    std::fs::metadata(path).ok().filter(|m| !m.is_file()).map(|m| refused(m.file_type()))
}

/// Whether a path leads to a block or character device, which is opened as a drive.
pub(crate) fn is_drive(path: &str) -> bool {
    std::fs::metadata(path).is_ok_and(|m| {
        let t = m.file_type();
        t.is_block_device() || t.is_char_device()
    })
}

/// Refuses a path of a disk that leads to something other than a file.
#[cfg(feature = "file")]
pub(crate) fn refuse_special(path: &Path) -> Result<(), zoneplug_core::Error> {
    is_special(path).map_or(Ok(()), |e| {
        Err(zoneplug_core::Error::invalid(format!("{} is no disk: {e}", path.display()))
            .hint("a file that zoneplug create made, a drive, or a kind such as mem,zones=64")
            .source(e))
    })
}

/// Opens a regular file for reading. Anything else is refused at once; opening a pipe does not wait for its writer.
///
/// ```
/// let e = zoneplug_host::open_regular(std::path::Path::new("/dev/zero")).unwrap_err();
/// assert!(e.to_string().contains("a device"));
/// ```
pub fn open_regular(path: &Path) -> io::Result<File> {
    // O_NONBLOCK has no effect on reads of a regular file.
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(path)
        .map_err(|e| is_special(path).unwrap_or(e))?;
    let t = file.metadata()?.file_type();
    if t.is_file() { Ok(file) } else { Err(refused(t)) }
}

/// Reads a regular file of at most `most` bytes.
///
/// ```
/// let here = std::path::Path::new("Cargo.toml");
/// assert!(zoneplug_host::read_regular(here, 1 << 20).is_ok());
/// assert!(zoneplug_host::read_regular(here, 3).unwrap_err().to_string().contains("more than 3 bytes"));
/// ```
pub fn read_regular(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_regular(path)?.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("it has more than {most} bytes"),
        ));
    }
    Ok(bytes)
}

/// Reads a text from a regular file of at most `most` bytes. A byte order mark, which some editors write, is no part of it.
///
/// ```
/// let here = std::path::Path::new("Cargo.toml");
/// assert!(zoneplug_host::read_text(here, 1 << 20).unwrap().contains("[package]"));
/// ```
pub fn read_text(path: &Path, most: u64) -> io::Result<String> {
    let mut text = String::from_utf8(read_regular(path, most)?).map_err(|e| {
        let good = &e.as_bytes()[..e.utf8_error().valid_up_to()];
        let line = good.split(|byte| *byte == b'\n').count();
        io::Error::new(io::ErrorKind::InvalidData, format!("line {line} is no text in UTF-8"))
    })?;
    if text.starts_with('\u{feff}') {
        text.drain(..'\u{feff}'.len_utf8());
    }
    Ok(text)
}

/// Whether a file belongs to another user, or cannot be examined. Messages do not quote the contents of such a file:
/// the user of this process may have named a file that only the process has the right to read.
pub fn is_foreign(path: &Path) -> bool {
    // SAFETY: a call without pointers that does not fail.
    let me = unsafe { libc::geteuid() };
    std::fs::metadata(path).map_or(true, |m| m.uid() != me)
}

/// Checks that this process may open a file for reading and writing (faccessat(2)), and changes nothing.
pub(crate) fn may_write(path: &Path) -> io::Result<()> {
    let name = CString::new(path.as_os_str().as_bytes())?;
    let rights = libc::R_OK | libc::W_OK;
    // SAFETY: a string that ends with zero and lives across the call.
    match unsafe { libc::faccessat(libc::AT_FDCWD, name.as_ptr(), rights, libc::AT_EACCESS) } {
        0 => Ok(()),
        // A filter of system calls may deny this question but not the opening. An opening that fails changes nothing
        // either.
        _ => {
            let mut how = OpenOptions::new();
            how.read(true).write(true).custom_flags(libc::O_NONBLOCK).open(path).map(drop)
        }
    }
}

#[cfg(all(test, feature = "file"))]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_file_is_refused_at_once() {
        let dir = std::env::temp_dir().join(format!("zoneplug-outside-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let pipe = dir.join("pipe");
        let name = std::ffi::CString::new(pipe.to_str().unwrap()).unwrap();
        // SAFETY: a string that ends with zero and lives across the call.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        let socket = dir.join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        for (path, what) in [
            (&pipe, "a pipe"),
            (&dir, "a directory"),
            (&socket, "a socket"),
            (&Path::new("/dev/zero").to_owned(), "a device"),
        ] {
            let e = read_regular(path, 10).unwrap_err().to_string();
            assert_eq!(e, format!("it is {what}, not a file"));
            assert!(refuse_special(path).is_err());
        }
        let file = dir.join("file");
        std::fs::write(&file, "0123456789").unwrap();
        assert_eq!(read_regular(&file, 10).unwrap(), b"0123456789");
        assert!(read_regular(&file, 9).is_err());
        std::fs::write(&file, b"a\nb\nna\xefve\n").unwrap();
        let e = read_text(&file, 10).unwrap_err().to_string();
        assert_eq!(e, "line 3 is no text in UTF-8");
        std::fs::write(&file, "\u{feff}a\u{feff}").unwrap();
        assert_eq!(read_text(&file, 10).unwrap(), "a\u{feff}");
        assert!(!is_foreign(&file) && is_foreign(&dir.join("none")));
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
