//! The place of a socket in the file system. A socket is made in a directory that no other user may enter, so that it
//! is reachable only with its final mode, and is then moved to its place. Only a socket without a listening server is
//! replaced there.

use crate::access::Access;
use crate::client::DIRECTORY;
use rustix::fs::{
    Access as Rights, AtFlags, CWD, FlockOperation, Mode, OFlags, RenameFlags, accessat, flock,
    open, renameat_with,
};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use rustix::process::{Pid, getpid, test_kill_process};
use std::fs::{DirBuilder, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// Number of attempts for a place that changes meanwhile.
const TRIES: u32 = 8;

/// Identifies a socket in the file system by device and inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Id {
    device: u64,
    inode: u64,
}

impl Id {
    /// The socket at `path`. `None`: there is no file, or it is no socket. Links are not followed.
    pub fn of(path: &Path) -> Option<Id> {
        let m = std::fs::symlink_metadata(path).ok().filter(|m| m.file_type().is_socket())?;
        Some(Id { device: m.dev(), inode: m.ino() })
    }

    /// Removes the file at `path` if it is this socket.
    pub fn remove(self, path: &Path) {
        if Id::of(path) == Some(self) {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// The socket at `path` if its server has gone. Does not wait for a slow server.
pub fn left_behind(path: &Path) -> Option<Id> {
    let id = Id::of(path)?;
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).ok()?;
    let gone = connect(&socket, &SocketAddrUnix::new(path).ok()?) == Err(Errno::CONNREFUSED);
    gone.then_some(id)
}

/// The beginning of the name of a private directory, before the number of its process.
const PRIVATE: &str = ".zoneplug-";

/// The directory of a path.
pub fn directory(path: &Path) -> &Path {
    path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Removes private directories that processes killed in [`listen`] have left in `dir`. A process in [`listen`] keeps
/// its directory locked, whatever its namespace.
pub fn sweep_private(dir: &Path) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let pid =
            name.to_str().and_then(|n| n.strip_prefix(PRIVATE)?.split_once('-')?.0.parse().ok());
        // Earlier versions take no lock. If the process belongs to another user, it exists although it may not be
        // signalled.
        let may_be_at_it = |pid: Pid| pid != getpid() && test_kill_process(pid) != Err(Errno::SRCH);
        if pid.and_then(Pid::from_raw).is_some_and(|pid| !may_be_at_it(pid)) {
            drop(Private::of(entry.path()));
        }
    }
}

/// A locked directory that only this user may enter, removed when this is dropped.
struct Private {
    path: PathBuf,
    dir: File,
}

impl Private {
    /// Locks a directory. `None`: another process has locked or removed it.
    fn of(path: PathBuf) -> io::Result<Option<Private>> {
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let dir = File::from(open(&path, flags, Mode::empty())?);
        match flock(&dir, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => return Ok(None),
            locked => locked?,
        }
        let (here, locked) = (std::fs::symlink_metadata(&path)?, dir.metadata()?);
        let is_here = (here.dev(), here.ino()) == (locked.dev(), locked.ino());
        Ok(is_here.then_some(Private { path, dir }))
    }

    fn beside(path: &Path) -> io::Result<Private> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        loop {
            let n = NEXT.fetch_add(1, Ordering::Relaxed);
            let dir = path.with_file_name(format!("{PRIVATE}{}-{n}", std::process::id()));
            match DirBuilder::new().mode(0o700).create(&dir) {
                // A process with the same number has left the directory, or makes its own socket there.
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => continue,
                made => made?,
            }
            match Private::of(dir.clone()) {
                Ok(Some(private)) => return Ok(private),
                // Another process has removed the directory before it was locked.
                Ok(None) => {}
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => {
                    let _ = std::fs::remove_dir(&dir);
                    return Err(e);
                }
            }
        }
    }

    fn socket(&self) -> PathBuf {
        self.path.join("s")
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        // The socket did not get its place, or was replaced there.
        if let Some(id) = Id::of(&self.socket()) {
            id.remove(&self.socket());
        }
        let _ = std::fs::remove_dir(&self.path);
    }
}

/// Whether `path` exists and is no socket; such a file is never replaced.
fn is_other(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|m| !m.file_type().is_socket())
}

fn no_socket_there() -> io::Error {
    io::Error::new(io::ErrorKind::AlreadyExists, "something is there that is no socket")
}

/// Makes the directory of a socket, if that is the usual one: it is in memory, and gone after each start of the machine.
/// Any other directory must be there already. A path with a slip would otherwise leave directories that no one knows of.
pub fn make_directory(path: &Path) -> io::Result<()> {
    let dir = directory(path);
    if dir == Path::new(DIRECTORY) { std::fs::create_dir_all(dir) } else { Ok(()) }
}

/// Checks whether [`listen`] could make a socket at `path` after [`make_directory`], without making one. Ignores a server
/// that listens there, because it may have gone by then.
pub fn check(path: &Path) -> io::Result<()> {
    // A client must fit the path into the kernel's 108 bytes.
    SocketAddr::from_pathname(path)?;
    if is_other(path) {
        return Err(no_socket_there());
    }
    if directory(path) != Path::new(DIRECTORY) {
        std::fs::metadata(directory(path))?;
    }
    let there = directory(path).ancestors().find_map(|dir| {
        let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
        std::fs::metadata(dir).ok().map(|m| (dir, m.is_dir()))
    });
    let (dir, is_dir) = there.unwrap_or((Path::new("."), true));
    if !is_dir {
        return Err(io::ErrorKind::NotADirectory.into());
    }
    match accessat(CWD, dir, Rights::WRITE_OK | Rights::EXEC_OK, AtFlags::EACCESS) {
        // A filter of system calls denies the check.
        Err(Errno::PERM) => Ok(()),
        may => Ok(may?),
    }
}

/// Listens at `path`, with the rights of `access`. Takes the place of a socket in `replaced`, whose server leaves.
pub fn listen(path: &Path, access: Access, replaced: &[Id]) -> io::Result<(UnixListener, Id)> {
    check(path)?;
    let private = Private::beside(path)?;
    let here = private.socket();
    // Binds through the descriptor of the directory, because its path may be too long.
    let listener = UnixListener::bind(format!("/proc/self/fd/{}/s", private.dir.as_raw_fd()))
        .or_else(|_| UnixListener::bind(&here))?;
    access.set(&here)?;
    let id = Id::of(&here).ok_or(io::ErrorKind::NotFound)?;
    for _ in 0..TRIES {
        match renameat_with(CWD, &here, CWD, path, RenameFlags::NOREPLACE) {
            Ok(()) => return Ok((listener, id)),
            Err(Errno::EXIST) => {}
            Err(e) => return Err(e.into()),
        }
        if is_other(path) {
            return Err(no_socket_there());
        }
        let leaves = Id::of(path).filter(|id| replaced.contains(id));
        let Some(old) = leaves.or_else(|| left_behind(path)) else {
            if Id::of(path).is_none() {
                continue;
            }
            return Err(io::ErrorKind::AddrInUse.into());
        };
        // Exchanges both files, so that exactly the examined one is removed.
        match renameat_with(CWD, &here, CWD, path, RenameFlags::EXCHANGE) {
            Ok(()) if Id::of(&here) == Some(old) => return Ok((listener, id)),
            Ok(()) => renameat_with(CWD, &here, CWD, path, RenameFlags::EXCHANGE)?,
            Err(Errno::NOENT) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Err(io::ErrorKind::AddrInUse.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::{UnixDatagram, UnixStream};

    fn directory(name: &str) -> PathBuf {
        let dir =
            std::env::temp_dir().join(format!("zoneplug-place-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        dir
    }

    /// A file at the socket's place, or a deleted one: connecting is refused like at a socket without a server.
    #[test]
    fn only_a_socket_without_a_server_is_replaced() {
        let dir = directory("replaced");
        let at = |name: &str| dir.join(name);
        std::fs::write(at("file"), "data").unwrap();
        std::fs::create_dir(at("directory")).unwrap();
        std::os::unix::fs::symlink("file", at("link")).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(at("pipe")).status().unwrap().success());
        let _datagrams = UnixDatagram::bind(at("datagrams")).unwrap();
        let living = UnixListener::bind(at("living")).unwrap();
        drop(UnixListener::bind(at("left")).unwrap());
        std::os::unix::fs::symlink("left", at("link to a socket")).unwrap();
        let names = || {
            let mut all: Vec<_> =
                std::fs::read_dir(&dir).unwrap().map(|e| e.unwrap().file_name()).collect();
            all.sort();
            all
        };
        let before = names();
        for name in ["file", "directory", "link", "pipe", "link to a socket"] {
            let e = listen(&at(name), Access::default(), &[]).unwrap_err();
            assert!(e.to_string().contains("no socket"), "{name}: {e}");
        }
        for name in ["living", "datagrams"] {
            assert_eq!(
                listen(&at(name), Access::default(), &[]).unwrap_err().kind(),
                io::ErrorKind::AddrInUse,
                "{name}"
            );
        }
        assert_eq!(std::fs::read(at("file")).unwrap(), b"data");
        let (_new, id) = listen(&at("left"), Access::default(), &[]).unwrap();
        assert_eq!(Id::of(&at("left")), Some(id));
        UnixStream::connect(at("left")).unwrap();
        assert_eq!(names(), before, "nothing was removed, and nothing is left");
        // If another file took its place meanwhile, that file stays.
        std::fs::remove_file(at("left")).unwrap();
        std::fs::write(at("left"), "data").unwrap();
        id.remove(&at("left"));
        assert_eq!(std::fs::read(at("left")).unwrap(), b"data");
        drop(living);
        std::fs::remove_dir_all(&dir).unwrap();
    }

    /// Only the usual directory of sockets is made. Any other one must be there.
    #[test]
    fn a_directory_that_is_missing_is_not_made() {
        let dir = directory("missing");
        let path = dir.join("not/there/s");
        make_directory(&path).unwrap();
        assert_eq!(check(&path).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(listen(&path, Access::default(), &[]).is_err() && !dir.join("not").exists());
        std::fs::remove_dir_all(&dir).unwrap();
    }

    /// A process killed in [`listen`] leaves its directory, with or without the socket.
    #[test]
    fn what_a_killed_process_has_left_is_removed() {
        let dir = directory("swept");
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let gone = child.id();
        child.wait().unwrap();
        let (own, init) = (std::process::id(), format!("{PRIVATE}1-0"));
        // In a container the next server often has the number of the last one.
        let left = [format!("{PRIVATE}{gone}-0"), format!("{PRIVATE}{own}-7")];
        let kept = [format!("{PRIVATE}{gone}-2"), init, format!("{PRIVATE}data")];
        for name in left.iter().chain(&kept) {
            std::fs::create_dir(dir.join(name)).unwrap();
        }
        drop(UnixListener::bind(dir.join(&left[0]).join("s")).unwrap());
        // A process of another namespace makes its socket; its number is unused in this namespace.
        let _makes = Private::of(dir.join(&kept[0])).unwrap().unwrap();
        sweep_private(&dir);
        assert_eq!(left.map(|n| dir.join(n).exists()), [false, false]);
        assert_eq!(kept.map(|n| dir.join(n).exists()), [true, true, true]);
        std::fs::remove_dir_all(&dir).unwrap();
    }

    /// The next process has the number of the killed one, as in a container.
    #[test]
    fn a_directory_that_was_left_is_in_nobodys_way() {
        let dir = directory("reused");
        for n in 0..50 {
            let _ = std::fs::create_dir(dir.join(format!("{PRIVATE}{}-{n}", std::process::id())));
        }
        let (_listener, id) = listen(&dir.join("s"), Access::default(), &[]).unwrap();
        assert_eq!(Id::of(&dir.join("s")), Some(id));
        std::fs::remove_dir_all(&dir).unwrap();
    }

    /// A server whose queue of connections is full counts as alive, and the check does not wait for it.
    #[test]
    fn a_server_that_is_slow_keeps_its_place() {
        let dir = directory("slow");
        let path = dir.join("s");
        let socket =
            socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::empty(), None);
        let socket = socket.unwrap();
        rustix::net::bind(&socket, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        rustix::net::listen(&socket, 0).unwrap();
        let _first = UnixStream::connect(&path).unwrap();
        assert_eq!(
            listen(&path, Access::default(), &[]).unwrap_err().kind(),
            io::ErrorKind::AddrInUse
        );
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn a_socket_is_its_users_whatever_the_umask() {
        let dir = directory("mode");
        let path = dir.join("s");
        let (_listener, _) = listen(&path, Access::default(), &[]).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
        // The longest possible name; the private name would be longer.
        let long = dir.join("x".repeat(107 - dir.as_os_str().len() - 1));
        listen(&long, Access::default(), &[]).unwrap();
        assert!(listen(&dir.join("x".repeat(108)), Access::default(), &[]).is_err());
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
