//! A mount from start to end: what it needs, its threads, and how it ends.

use crate::fuse::Requests;
use crate::options::MountOptions;
use crate::volume::{Volume, VolumeEvent};
use fuser::{Config, MountOption, Session, SessionACL};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::thread::{CapabilitySet, capabilities, no_new_privs};
use std::ffi::CString;
use std::fs::OpenOptions;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;
use zoneplug_core::poison::lock;
use zoneplug_core::{Error, ErrorKind};
use zoneplug_host::{Attempt, HostedDisk, os_error};

/// The device on which the kernel sends its requests.
const DEVICE: &str = "/dev/fuse";
/// Programs that mount and unmount for users without the right to.
const HELPERS: [&str; 2] = ["fusermount3", "fusermount"];

/// Requests that may wait for the disk at a time; further ones wait for these.
const THREADS: usize = 32;

/// How often a remount as read-only is tried before waiting for the next close of a writer. A file
/// that was just closed counts as open for some microseconds more.
const TRIES: u32 = 40;
const BETWEEN_TRIES: Duration = Duration::from_millis(5);

/// The error with which a mount ended.
#[derive(Debug)]
#[non_exhaustive]
pub enum MountError {
    /// The connection to the kernel failed.
    Connection(io::Error),
    /// The last data written could not be made durable.
    Close(Errno),
}

impl std::fmt::Display for MountError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            MountError::Connection(e) => write!(f, "the connection to the kernel: {e}"),
            MountError::Close(e) => write!(f, "what was written last is not durable: {e}"),
        }
    }
}

impl std::error::Error for MountError {}

/// A mounted volume. The mount ends when it is unmounted, by whatever means; dropping this does not
/// unmount it.
///
/// ```no_run
/// use zoneplug_host::HostedDisk;
/// use zoneplug_zonefs::{Mount, MountOptions, SuperBlock, Volume};
///
/// let disk = HostedDisk::open_spec("mem,zones=8,zone-size=1M").unwrap();
/// Volume::format(&disk, &SuperBlock::default()).unwrap();
/// let mount = Mount::start(&disk, "mem", "/mnt".as_ref(), MountOptions::default(), |text| eprintln!("{text}"), || {}).unwrap();
/// std::fs::write("/mnt/seq/0", "without O_DIRECT").unwrap_err();
/// mount.unmount().unwrap();
/// mount.wait().unwrap();
/// ```
#[derive(Debug)]
pub struct Mount {
    place: Place,
    volume: Arc<Volume>,
    thread: JoinHandle<Result<(), MountError>>,
}

impl Mount {
    /// Mounts the volume on `disk` at the directory `dir`. mount(8) shows `source` as its source.
    /// `warn` receives messages about errors while the volume is mounted; `ended` is called after
    /// the mount has ended.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotSupported`] if this system or user cannot mount, with what is missing;
    /// [`ErrorKind::Invalid`] if the disk holds no volume, or `dir` is no directory.
    pub fn start(
        disk: &HostedDisk,
        source: &str,
        dir: &Path,
        options: MountOptions,
        warn: impl Fn(&str) + Send + Sync + 'static,
        ended: impl FnOnce() + Send + 'static,
    ) -> Result<Mount, Error> {
        let dir = Self::check(dir)?;
        let is_root = rustix::process::geteuid().is_root();
        let (sender, events) = channel();
        let read_only = Mutex::new(sender.clone());
        let observer = move |event| match event {
            VolumeEvent::Warning(text) => warn(&text),
            // The listening thread ends with the mount.
            VolumeEvent::ReadOnly => drop(lock(&read_only).send(RemountEvent::VolumeReadOnly)),
        };
        let volume = Arc::new(Volume::open(disk, options, Box::new(observer))?);
        let closed = Mutex::new(sender.clone());
        let requests = Requests::new(volume.clone(), move || {
            drop(lock(&closed).send(RemountEvent::WriterClosed));
        });
        let config = config(source, is_root, &volume);
        let session = match is_root {
            true => mounted_by_us(requests, source, &dir, config),
            false => Session::new(requests, &dir, &config),
        };
        let session = session.map_err(|e| not_mounted(&dir, &e))?;
        let place = Place::new(dir);
        let at = place.clone();
        let remounts = spawn("zonefs-remount", move || remount_when_read_only(&at, &events))?;
        let (of, at) = (volume.clone(), place.clone());
        let thread = spawn("zonefs", move || {
            let served = session.run();
            drop(sender.send(RemountEvent::MountEnded));
            let closed = of.close();
            drop(remounts.join());
            // An aborted connection leaves a dead mount behind.
            drop(at.unmount());
            ended();
            match served {
                // A connection that the kernel ends while a thread takes a request from it, such as the last close.
                Err(e) if e.kind() == io::ErrorKind::ConnectionAborted => {}
                served => served.map_err(MountError::Connection)?,
            }
            closed.map_err(MountError::Close)
        })?;
        Ok(Mount { place, volume, thread })
    }

    /// Checks whether this process can mount at `dir`. Returns the directory without symbolic
    /// links.
    ///
    /// # Errors
    ///
    /// Fails as [`Mount::start`] does.
    pub fn check(dir: &Path) -> Result<PathBuf, Error> {
        let dir = directory(dir)?;
        can_mount(rustix::process::geteuid().is_root())?;
        Ok(dir)
    }

    /// The mounted volume.
    pub fn volume(&self) -> &Volume {
        &self.volume
    }

    /// The mounted volume, for a thread that outlives the mount.
    pub fn shared_volume(&self) -> Arc<Volume> {
        self.volume.clone()
    }

    /// Detaches the mount from its directory. The mount ends when the last file open on it is
    /// closed.
    ///
    /// # Errors
    ///
    /// Fails if something else is mounted over it, or with the error of the system.
    pub fn unmount(&self) -> io::Result<()> {
        self.place.unmount()
    }

    /// Waits until the mount has ended and all data are durable.
    ///
    /// # Errors
    ///
    /// See [`MountError`].
    pub fn wait(self) -> Result<(), MountError> {
        match self.thread.join() {
            Ok(result) => result,
            Err(_) => {
                Err(MountError::Connection(io::Error::other("a thread of the mount panicked")))
            }
        }
    }
}

/// A directory, and our mount on it.
#[derive(Debug, Clone)]
struct Place {
    dir: PathBuf,
    /// The numbers of our mount and its device, as in `/proc/self/mountinfo`; other mounts have
    /// other numbers.
    id: Option<String>,
}

impl Place {
    fn new(dir: PathBuf) -> Place {
        let id = mounts_at(&dir).pop();
        Place { dir, id }
    }

    /// Whether the directory shows our mount now.
    fn is_ours(&self) -> bool {
        self.id.is_some() && mounts_at(&self.dir).last() == self.id.as_ref()
    }

    fn unmount(&self) -> io::Result<()> {
        let there = mounts_at(&self.dir);
        if !there.iter().any(|id| Some(id) == self.id.as_ref()) {
            return Ok(());
        }
        if !self.is_ours() {
            return Err(io::Error::other("something else is mounted over it"));
        }
        match rustix::mount::unmount(&self.dir, UnmountFlags::DETACH) {
            Err(Errno::PERM) => by_helper(&self.dir),
            other => Ok(other?),
        }
    }
}

/// The numbers of the mounts at a directory, the visible one last. Avoids a request on the
/// directory itself, which this process might have to answer.
fn mounts_at(dir: &Path) -> Vec<String> {
    let table = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
    let lines = table.split(|b| *b == b'\n').filter_map(|line| {
        let words: Vec<_> = line.split(|b| *b == b' ').take(5).collect();
        let [mount, _, device, _, point] = words[..] else { return None };
        let there = unescaped(point) == dir.as_os_str().as_bytes();
        there.then(|| String::from_utf8_lossy(&[mount, b" ", device].concat()).into_owned())
    });
    lines.collect()
}

/// Decodes a path of `/proc`, in which blanks and backslashes are octal numbers.
fn unescaped(path: &[u8]) -> Vec<u8> {
    let (mut out, mut rest) = (Vec::new(), path);
    while let [first, more @ ..] = rest {
        let number = more.get(..3).filter(|_| *first == b'\\');
        let number = number.and_then(|n| std::str::from_utf8(n).ok());
        match number.and_then(|n| u8::from_str_radix(n, 8).ok()) {
            Some(byte) => (out.push(byte), rest = &more[3..]).1,
            None => (out.push(*first), rest = more).1,
        }
    }
    out
}

/// Mounts as root without fuser: fuser unmounts by path, whatever is mounted there by then.
fn mounted_by_us(
    requests: Requests,
    source: &str,
    dir: &Path,
    config: Config,
) -> io::Result<Session<Requests>> {
    let device = OpenOptions::new().read(true).write(true).open(DEVICE)?;
    let mut options = format!(
        "fd={},rootmode=40000,user_id=0,group_id=0,default_permissions,subtype=zoneplug",
        device.as_raw_fd()
    );
    if config.acl == SessionACL::All {
        options += ",allow_other";
    }
    let mut flags = MountFlags::NODEV | MountFlags::NOSUID;
    if config.mount_options.contains(&MountOption::RO) {
        flags |= MountFlags::RDONLY;
    }
    let options = CString::new(options)?;
    rustix::mount::mount(source, dir, "fuse", flags, options.as_c_str())?;
    Session::from_fd(requests, device.into(), config.acl, config).inspect_err(|_| {
        // The error of the session is the one to report.
        let _ = rustix::mount::unmount(dir, UnmountFlags::DETACH);
    })
}

fn spawn<R: Send + 'static>(
    name: &str,
    run: impl FnOnce() -> R + Send + 'static,
) -> Result<JoinHandle<R>, Error> {
    Builder::new()
        .name(name.to_owned())
        .spawn(run)
        .map_err(|e| os_error(Attempt::Thread, "no thread", e))
}

/// Returns the directory without symbolic links.
fn directory(dir: &Path) -> Result<PathBuf, Error> {
    let shown = dir.display();
    let found = std::fs::metadata(dir).and_then(|is| Ok((std::fs::canonicalize(dir)?, is)));
    match found {
        Ok((dir, is)) if is.is_dir() => Ok(dir),
        Ok(_) => Err(Error::invalid(format!("{shown} is no directory")).hint("an empty directory")),
        // The server of an earlier mount there has died.
        Err(e) if Errno::from_io_error(&e) == Some(Errno::NOTCONN) => {
            let what = format!("{shown} is a mount whose server has ended");
            Err(Error::new(ErrorKind::Busy, what).hint(format!("fusermount3 -u {shown}")))
        }
        Err(e) => {
            let what = format!("{shown}: {e}");
            Err(Error::new(ErrorKind::NotFound, what).hint(format!("mkdir {shown}")))
        }
    }
}

/// The error of a device of FUSE that cannot be opened.
fn no_device(e: &io::Error) -> Error {
    let (what, hint) = match e.kind() {
        io::ErrorKind::NotFound => (format!("there is no {DEVICE}"), "modprobe fuse, as root"),
        _ => (format!("{DEVICE}: {e}"), "as root, or chmod 666 /dev/fuse as root"),
    };
    Error::new(ErrorKind::NotSupported, what).hint(hint)
}

/// Checks whether this process can mount, before the disk is opened.
fn can_mount(is_root: bool) -> Result<(), Error> {
    let no = |what: String, hint: &str| Err(Error::new(ErrorKind::NotSupported, what).hint(hint));
    if let Err(e) = OpenOptions::new().read(true).write(true).open(DEVICE) {
        return Err(no_device(&e));
    }
    let works =
        |name: &&str| Command::new(name).arg("-V").output().is_ok_and(|out| out.status.success());
    if !is_root && !HELPERS.iter().any(works) {
        return no(
            "only root mounts without fusermount3".to_owned(),
            "apt-get install fuse3, or as root",
        );
    }
    // If the kernel does not tell, the mount itself says what is wrong.
    let all = CapabilitySet::all();
    let may_mount = capabilities(None).map_or(all, |sets| sets.effective);
    let may_mount = may_mount.contains(CapabilitySet::SYS_ADMIN);
    match refused_by(is_root, may_mount, no_new_privs().unwrap_or(false)) {
        Some((what, hint)) => no(what.to_owned(), hint),
        None => Ok(()),
    }
}

/// Returns why a process may not mount, and what to try. `has_sys_admin`: it has CAP_SYS_ADMIN.
fn refused_by(
    is_root: bool,
    has_sys_admin: bool,
    no_new_privs: bool,
) -> Option<(&'static str, &'static str)> {
    if is_root {
        return (!has_sys_admin).then_some((
            "this process may not mount: it has no CAP_SYS_ADMIN",
            "in a container: --cap-add SYS_ADMIN --device /dev/fuse",
        ));
    }
    no_new_privs.then_some((
        "this process may not mount: no_new_privs keeps fusermount3 from being root",
        "NoNewPrivileges=no in a unit; a container without no-new-privileges; or as root",
    ))
}

fn config(source: &str, is_root: bool, volume: &Volume) -> Config {
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName(source.to_owned()),
        // Passed to the kernel, which then shows the type fuse.zoneplug.
        MountOption::CUSTOM("subtype=zoneplug".to_owned()),
        MountOption::DefaultPermissions,
        if volume.is_read_only() { MountOption::RO } else { MountOption::RW },
    ];
    let all = volume.options().allow_other.unwrap_or(is_root);
    config.acl = if all { SessionACL::All } else { SessionACL::Owner };
    // A thread waits for the disk while it serves a request; a thread that waits for requests takes
    // little memory.
    config.n_threads = Some(THREADS);
    config.clone_fd = true;
    config
}

fn not_mounted(dir: &Path, e: &io::Error) -> Error {
    let what = format!("{} is not mounted: {}", dir.display(), e.to_string().trim_end());
    let hint = match e.kind() {
        io::ErrorKind::PermissionDenied => {
            "-o no_allow_other, or user_allow_other in /etc/fuse.conf"
        }
        _ => "an empty directory of your own; dmesg has what the kernel says of it",
    };
    Error::new(ErrorKind::Io, what).hint(hint)
}

/// Unmounts as a user who is not root.
fn by_helper(dir: &Path) -> io::Result<()> {
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for helper in HELPERS {
        match Command::new(helper).args(["-u", "-z", "--"]).arg(dir).output() {
            Ok(output) if output.status.success() => return Ok(()),
            Ok(output) => {
                last = io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned());
            }
            Err(e) => last = e,
        }
    }
    Err(last)
}

/// Events for the thread that makes a mount read-only.
enum RemountEvent {
    VolumeReadOnly,
    WriterClosed,
    MountEnded,
}

/// Makes the mount read-only once the volume is, as Linux's zonefs does, so that mount(8) shows it.
/// The kernel refuses while a file is open for writing; the remount is then retried after each
/// close. Writes fail in any case. Only root may remount.
fn remount_when_read_only(place: &Place, events: &Receiver<RemountEvent>) {
    let mut is_wanted = false;
    while let Ok(event) = events.recv() {
        match event {
            RemountEvent::VolumeReadOnly => is_wanted = true,
            RemountEvent::WriterClosed => {}
            RemountEvent::MountEnded => return,
        }
        for _ in 0..TRIES {
            if !is_wanted || !place.is_ours() {
                break;
            }
            let flags = MountFlags::RDONLY | MountFlags::NODEV | MountFlags::NOSUID;
            match rustix::mount::mount_remount(&place.dir, flags, "") {
                Err(Errno::BUSY) => std::thread::sleep(BETWEEN_TRIES),
                _ => is_wanted = false,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_cannot_be_opened_has_a_hint_for_its_reason() {
        let of = |kind: io::ErrorKind| {
            let e = no_device(&kind.into());
            (e.what().to_owned(), e.what_to_try().unwrap().to_owned())
        };
        let (what, hint) = of(io::ErrorKind::NotFound);
        assert_eq!((&*what, &*hint), ("there is no /dev/fuse", "modprobe fuse, as root"));
        let (what, hint) = of(io::ErrorKind::PermissionDenied);
        assert!(what.starts_with("/dev/fuse: ") && hint.contains("chmod"), "{what} {hint}");
    }

    #[test]
    fn a_process_that_may_not_mount_knows_why() {
        assert_eq!(refused_by(true, true, true), None);
        assert!(refused_by(true, false, false).unwrap().0.contains("CAP_SYS_ADMIN"));
        assert_eq!(refused_by(false, false, false), None);
        let (what, hint) = refused_by(false, false, true).unwrap();
        assert!(what.contains("no_new_privs") && hint.contains("NoNewPrivileges=no"));
    }

    #[test]
    fn paths_of_proc_are_read() {
        assert_eq!(unescaped(br"/a\040b\134c\9"), br"/a b\c\9");
        assert_eq!(unescaped(br"/a\04"), br"/a\04");
        assert_eq!(mounts_at(Path::new("/proc")).len(), 1);
        assert!(mounts_at(Path::new("/proc/self")).is_empty());
    }
}
