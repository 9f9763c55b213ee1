//! Files that get their name when they are complete. Such a file is made beside its place and gets the name at the
//! end; an older file of that name stays until then. This module knows no format of a file.

use std::ffi::OsString;
use std::fs::{File, Metadata, OpenOptions, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;
use zoneplug_core::poison;

/// The longest name on most file systems, in bytes.
const LONGEST: usize = 255;
/// Stands before the process in the temporary name of a file, so that no file of another program has such a name.
const MARK: &str = "zoneplug-";
/// The number of temporary names to try. A killed process leaves its file, and a later one may have the same id.
const NAMES: u32 = 100;
/// The age at which a file of a process that is gone may be removed.
const LEFT_FOR: Duration = Duration::from_secs(60);

/// The parts of this process. A child of a fork may find the mutex held by a thread that it does not have; its parts are
/// then missing here.
static PARTS: Mutex<Parts> = Mutex::new(Parts { paths: Vec::new(), are_removed: false });

struct Parts {
    paths: Vec<PathBuf>,
    /// Whether [`remove_parts`] was called.
    are_removed: bool,
}

/// Removes all parts of this process. A program calls this when a signal ends it; from then on it can make none.
pub fn remove_parts() {
    let mut parts = poison::lock(&PARTS);
    parts.are_removed = true;
    for path in parts.paths.drain(..) {
        let _ = std::fs::remove_file(path);
    }
}

/// A file beside its place, with a temporary name. If it is dropped before it gets its name, the file is removed.
///
/// ```
/// use std::io::Write;
/// use zoneplug_host::Part;
/// # let place = std::env::temp_dir().join(format!("zoneplug-part-{}", std::process::id()));
/// std::fs::write(&place, "old").unwrap();
/// let (part, mut file) = Part::beside(&place, 0o600).unwrap();
/// file.write_all(b"new").unwrap();
/// assert_eq!(std::fs::read(&place).unwrap(), b"old");
/// part.replace(&place).unwrap();
/// assert_eq!(std::fs::read(&place).unwrap(), b"new");
/// # std::fs::remove_file(&place).unwrap();
/// ```
#[derive(Debug)]
pub struct Part(PathBuf);

impl Part {
    /// Makes an empty file beside `place`, with the permissions `mode` as far as the umask allows them. Removes files that
    /// killed processes have left for the same place.
    ///
    /// # Errors
    ///
    /// If `place` names no file, such as `..` and `a/`, or if no file can be made there.
    pub fn beside(place: &Path, mode: u32) -> io::Result<(Part, File)> {
        let name = place.file_name().filter(|_| !place.as_os_str().as_bytes().ends_with(b"/"));
        let name = name.ok_or_else(|| io::Error::from_raw_os_error(libc::EISDIR))?;
        if name.len() > LONGEST {
            return Err(io::Error::from_raw_os_error(libc::ENAMETOOLONG));
        }
        sweep_left(place, |left| {
            let (of, process) = left.strip_suffix(".part")?.rsplit_once(MARK)?;
            let is_of_place = of.is_empty() || of.strip_suffix('.').is_some_and(|of| of == name);
            process.split('-').next().filter(|_| is_of_place)?.parse().ok()
        });
        let id = std::process::id();
        let mut new = OpenOptions::new();
        new.read(true).write(true).create_new(true).mode(mode);
        let mut again = 0;
        loop {
            let end = match again {
                0 => format!("{MARK}{id}.part"),
                n => format!("{MARK}{id}-{n}.part"),
            };
            let mut beside = OsString::new();
            if name.len() + 1 + end.len() <= LONGEST {
                beside.push(name);
                beside.push(".");
            }
            beside.push(end);
            let path = place.with_file_name(beside);
            // Held while the file is made: `remove_parts` misses no file.
            let mut parts = poison::lock_soon(&PARTS);
            if parts.as_ref().is_some_and(|parts| parts.are_removed) {
                return Err(io::ErrorKind::Interrupted.into());
            }
            match new.open(&path) {
                Ok(file) => {
                    parts.iter_mut().for_each(|parts| parts.paths.push(path.clone()));
                    return Ok((Part(path), file));
                }
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists && again < NAMES => again += 1,
                Err(e) => return Err(e),
            }
        }
    }

    /// The temporary path of the file.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Gives the file the name `place`. Fails with [`AlreadyExists`](io::ErrorKind::AlreadyExists) if that name is
    /// taken.
    pub fn name(self, place: &Path) -> io::Result<()> {
        // A link, unlike a rename, replaces nothing.
        match std::fs::hard_link(&self.0, place) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Err(e),
            // The file system has no links.
            Err(_) if std::fs::symlink_metadata(place).is_err() => std::fs::rename(&self.0, place),
            linked => linked,
        }
    }

    /// Replaces the file `place` by this one, in one step.
    pub fn replace(self, place: &Path) -> io::Result<()> {
        std::fs::rename(&self.0, place)
    }
}

impl Drop for Part {
    /// Removes the temporary name.
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
        if let Some(mut parts) = poison::lock_soon(&PARTS) {
            parts.paths.retain(|path| *path != self.0);
        }
    }
}

/// Removes files beside `place` that processes left when they were killed. `pid` reads the number of the process from the
/// name of such a file. New files stay: a process of another namespace may have a number that no process has here. Links
/// stay.
pub(crate) fn sweep_left(place: &Path, pid: impl Fn(&str) -> Option<i32>) {
    let directory = place.parent().filter(|dir| !dir.as_os_str().is_empty());
    let all = std::fs::read_dir(directory.unwrap_or(Path::new(".")));
    for entry in all.into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(&pid) else { continue };
        let Some(meta) = entry.metadata().ok().filter(Metadata::is_file) else { continue };
        let age = meta.modified().ok().and_then(|at| at.elapsed().ok());
        if age.is_some_and(|age| age >= LEFT_FOR) && has_gone(pid) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

/// Whether no process has this number. A process that this user may not signal exists.
fn has_gone(pid: i32) -> bool {
    // SAFETY: a call without pointers. Signal 0 only checks whether the process exists.
    let is_found = pid <= 0 || unsafe { libc::kill(pid, 0) } == 0;
    !is_found && io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH)
}

/// Gives a file the owner and the permissions of the one that it is to replace, as far as this user may set them.
pub fn take_after(file: &File, old: &Metadata) -> io::Result<()> {
    let _ = std::os::unix::fs::fchown(file, Some(old.uid()), Some(old.gid()));
    file.set_permissions(Permissions::from_mode(old.mode() & 0o7777))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(dir: &Path) -> Vec<String> {
        let all = std::fs::read_dir(dir).unwrap();
        let mut all: Vec<_> =
            all.map(|e| e.unwrap().file_name().to_string_lossy().into_owned()).collect();
        all.sort();
        all
    }

    /// Files that a killed process has left, for this place and for another one.
    #[test]
    fn the_next_part_of_a_place_removes_what_a_killed_process_left() {
        let dir = std::env::temp_dir().join(format!("zoneplug-left-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let gone = child.id();
        child.wait().unwrap();
        let left = [
            format!("a.b.zoneplug-{gone}.part"),
            format!("a.b.zoneplug-{gone}-2.part"),
            format!("zoneplug-{gone}.part"),
        ];
        let kept = [
            format!("b.zoneplug-{gone}.part"),
            format!("a.b.zoneplug-{gone}"),
            "a.b.zoneplug-1.part".to_owned(),
            format!("a.b.zoneplug-{}.part", std::process::id()),
            // Files of people and of other programs.
            format!("a.b.{gone}.part"),
            format!("zoneplug.{gone}.part"),
            "a.b.20261126.part".to_owned(),
        ];
        let link = dir.join(format!("a.b.zoneplug-{gone}-3.part"));
        left.iter().chain(&kept).for_each(|name| std::fs::write(dir.join(name), "half").unwrap());
        let place = dir.join("a.b");
        drop(Part::beside(&place, 0o600).unwrap());
        assert_eq!(names(&dir).len(), 10, "a process of another namespace may be at them");
        let time = std::time::SystemTime::now() - LEFT_FOR;
        for name in left.iter().chain(&kept) {
            File::options().write(true).open(dir.join(name)).unwrap().set_modified(time).unwrap();
        }
        std::os::unix::fs::symlink(&kept[0], &link).unwrap();
        drop(Part::beside(&place, 0o600).unwrap());
        assert!(link.is_symlink());
        std::fs::remove_file(&link).unwrap();
        let mut kept = kept.to_vec();
        kept.sort();
        assert_eq!(names(&dir), kept);
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn a_part_replaces_only_what_it_is_told_to() {
        let dir = std::env::temp_dir().join(format!("zoneplug-parts-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let place = dir.join("place");
        // A file that a killed process with this id has left, and a part that is dropped.
        let left = dir.join(format!("place.zoneplug-{}.part", std::process::id()));
        std::fs::write(&left, "left").unwrap();
        drop(Part::beside(&place, 0o600).unwrap());
        assert_eq!(std::fs::read(&left).unwrap(), b"left");
        Part::beside(&place, 0o600).unwrap().0.name(&place).unwrap();
        let e = Part::beside(&place, 0o600).unwrap().0.name(&place).unwrap_err();
        assert_eq!(e.kind(), io::ErrorKind::AlreadyExists);
        std::fs::write(&place, "old").unwrap();
        Part::beside(&place, 0o600).unwrap().0.replace(&place).unwrap();
        assert_eq!(std::fs::read(&place).unwrap(), b"");
        std::fs::remove_file(&left).unwrap();
        assert_eq!(names(&dir), ["place"]);
        // These paths name no file.
        for (name, errno) in [
            ("..", libc::EISDIR),
            ("a/", libc::EISDIR),
            ("none/a", libc::ENOENT),
            (&*"x".repeat(256), libc::ENAMETOOLONG),
        ] {
            let e = Part::beside(&dir.join(name), 0o600).unwrap_err();
            assert_eq!(e.raw_os_error(), Some(errno), "{name}");
        }
        let longest = dir.join("x".repeat(255));
        Part::beside(&longest, 0o600).unwrap().0.name(&longest).unwrap();
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
