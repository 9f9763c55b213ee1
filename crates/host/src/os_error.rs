//! Errors of the system that reach a user: one table, from the attempt and the error number to the cause and a way
//! out.
//!
//! The caller names the attempt and the object that failed. The error has the kernel's text; the table adds the cause
//! if that text does not name it.

use std::io;
use std::path::Path;
use zoneplug_core::{Error, ErrorKind};

/// A step that the system may refuse.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attempt {
    /// Makes a ring (io_uring) for a file. Threads can do the same work.
    FileRing,
    /// Makes a ring for a drive.
    DriveRing,
    /// Makes a ring for block devices that are served.
    UblkRing,
    /// Opens, reads or writes the file of a disk.
    DiskFile,
    /// Makes a file.
    NewFile,
    /// Reads a file of settings, a key or a profile.
    ReadFile,
    /// Opens a drive.
    Drive,
    /// Sends a command to the driver of ublk.
    UblkCommand,
    /// Starts a thread.
    Thread,
    /// Listens at an address of TCP.
    Address,
    /// Opens a further descriptor of something that is open.
    Descriptor,
}

use Attempt::*;

/// A condition of a row, besides its numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum When {
    Always,
    /// `kernel.io_uring_disabled` has this value.
    RingIs(u8),
}

/// A row of the table. The first row that fits applies.
struct Row {
    /// The attempts that the row is for. Empty: all.
    at: &'static [Attempt],
    /// The error numbers that the row is for. Empty: all.
    errno: &'static [i32],
    when: When,
    kind: ErrorKind,
    /// Empty if the kernel's text names the cause.
    cause: &'static str,
    way: &'static str,
}

const fn row(
    at: &'static [Attempt],
    errno: &'static [i32],
    kind: ErrorKind,
    cause: &'static str,
    way: &'static str,
) -> Row {
    Row { at, errno, when: When::Always, kind, cause, way }
}

const RINGS: &[Attempt] = &[FileRing, DriveRing, UblkRing];
const DENIED: &[i32] = &[libc::EPERM, libc::EACCES];
const GONE: &[i32] = &[libc::ENOENT, libc::ENXIO, libc::ENODEV];
/// Steps that name a file.
const PATHS: &[Attempt] = &[DiskFile, NewFile, ReadFile, Drive];

const fn if_ring_is(value: u8, row: Row) -> Row {
    Row { when: When::RingIs(value), ..row }
}

static TABLE: &[Row] = &[
    // Any step.
    row(
        &[],
        &[libc::EMFILE],
        ErrorKind::Busy,
        "this process has as many open files as it may have",
        "more open files (ulimit -n, LimitNOFILE= in a unit)",
    ),
    row(
        &[],
        &[libc::ENFILE],
        ErrorKind::Busy,
        "this machine has as many open files as it may have",
        "a higher sysctl fs.file-max",
    ),
    // Rings.
    if_ring_is(
        2,
        row(
            RINGS,
            DENIED,
            ErrorKind::NotSupported,
            "kernel.io_uring_disabled is 2, which denies io_uring to every process",
            "sysctl kernel.io_uring_disabled=0, as root",
        ),
    ),
    if_ring_is(
        1,
        row(
            RINGS,
            DENIED,
            ErrorKind::NotSupported,
            "kernel.io_uring_disabled is 1, and this process has neither CAP_SYS_ADMIN nor the group of kernel.io_uring_group",
            "as root; or sysctl kernel.io_uring_group=GID with a group of this user",
        ),
    ),
    row(
        RINGS,
        DENIED,
        ErrorKind::NotSupported,
        "a filter of system calls (seccomp) or a security module refuses it",
        "allow io_uring_setup, io_uring_enter and io_uring_register: SystemCallFilter=@aio in a unit, --security-opt seccomp=FILE \
         for a container",
    ),
    row(
        RINGS,
        &[libc::ENOSYS],
        ErrorKind::NotSupported,
        "this kernel has no io_uring, or a filter of system calls (seccomp) hides it",
        "Linux 6.1 or newer with CONFIG_IO_URING; in a container, a filter that allows io_uring_setup",
    ),
    row(
        RINGS,
        &[libc::ENOMEM],
        ErrorKind::Busy,
        "a ring takes locked memory, and memory of the container or service, and there is too little",
        "a higher limit (ulimit -l, in a unit LimitMEMLOCK= or MemoryMax=), fewer queues or a smaller depth",
    ),
    row(
        RINGS,
        &[libc::EINVAL],
        ErrorKind::NotSupported,
        "this kernel's io_uring lacks what is needed",
        "Linux 6.1 or newer",
    ),
    row(RINGS, &[], ErrorKind::NotSupported, "", "dmesg may say more"),
    // The file of a disk.
    row(
        &[DiskFile],
        &[libc::ENOENT],
        ErrorKind::NotFound,
        "",
        "check the path; zoneplug create makes a disk",
    ),
    row(
        &[DiskFile],
        &[libc::EROFS],
        ErrorKind::Busy,
        "",
        "mount -o remount,rw for that file system (dmesg says why it is read-only); or read-only=1, to read only; or zoneplug snapshot, to copy the disk elsewhere",
    ),
    row(
        &[DiskFile],
        DENIED,
        ErrorKind::NotSupported,
        "",
        "check the permissions of the file and its directories (ls -l, lsattr): as its owner, or as root",
    ),
    row(
        &[DiskFile],
        &[libc::EINVAL, libc::EISDIR],
        ErrorKind::Invalid,
        "",
        "a durable disk is a regular file; zoneplug create makes one",
    ),
    row(
        &[DiskFile],
        &[libc::ENOLCK],
        ErrorKind::Io,
        "the file system has no locks",
        "a local file system; or the lock service of the network's",
    ),
    row(&[DiskFile], &[libc::EBUSY], ErrorKind::Busy, "", "try again"),
    // A new file.
    row(
        &[NewFile],
        &[libc::EROFS],
        ErrorKind::Busy,
        "",
        "another directory; or mount -o remount,rw for that file system (dmesg says why it is read-only)",
    ),
    row(&[NewFile], &[libc::ENOENT], ErrorKind::NotFound, "", "a directory that exists"),
    row(
        &[NewFile],
        DENIED,
        ErrorKind::NotSupported,
        "",
        "a directory in which this user may make files (ls -ld); or as root",
    ),
    row(&[NewFile], &[libc::EISDIR], ErrorKind::Invalid, "", "the name of a file"),
    // The file of a disk, and a new file.
    row(
        &[DiskFile, NewFile],
        &[libc::ENOSPC],
        ErrorKind::Io,
        "",
        "make room in the file system (df -h, df -i)",
    ),
    row(
        &[DiskFile, NewFile],
        &[libc::EDQUOT],
        ErrorKind::Io,
        "",
        "a larger quota for the owner of the file; or make room",
    ),
    row(
        &[DiskFile, NewFile],
        &[libc::EFBIG],
        ErrorKind::Io,
        "",
        "a smaller disk, a file system with longer files, or a larger ulimit -f",
    ),
    row(
        &[DiskFile, NewFile],
        &[libc::ENOTSUP, libc::ENOSYS],
        ErrorKind::NotSupported,
        "",
        "another file system, such as ext4, XFS or btrfs",
    ),
    row(PATHS, &[libc::ENOTDIR], ErrorKind::Invalid, "", "check the path"),
    row(
        PATHS,
        &[libc::ELOOP],
        ErrorKind::Invalid,
        "",
        "the links of the path lead in a circle (namei -l PATH): another path, or rm one of them",
    ),
    row(
        PATHS,
        &[libc::ENAMETOOLONG],
        ErrorKind::Invalid,
        "",
        "a shorter name: most file systems have names of up to 255 bytes",
    ),
    row(
        &[DiskFile, NewFile],
        &[],
        ErrorKind::Io,
        "",
        "see the kernel's log for errors of the device below",
    ),
    // A file that is read.
    row(&[ReadFile], &[libc::ENOENT], ErrorKind::NotFound, "", "check the path"),
    row(
        &[ReadFile],
        DENIED,
        ErrorKind::NotSupported,
        "",
        "the path of a file that this user may read (ls -l)",
    ),
    row(&[ReadFile], &[], ErrorKind::NotFound, "", "a regular file"),
    // Drives.
    row(
        &[Drive],
        GONE,
        ErrorKind::NotFound,
        "",
        "lsblk -d -o NAME,SIZE,ZONED lists the drives; ls /dev/ng* the NVMe ones",
    ),
    row(
        &[Drive],
        DENIED,
        ErrorKind::NotSupported,
        "",
        "run as root, or be of the group that owns the device",
    ),
    row(
        &[Drive],
        &[libc::EBUSY],
        ErrorKind::Busy,
        "it is mounted, or another program has it",
        "another device; lsblk and fuser -v name what uses it",
    ),
    row(&[Drive], &[libc::EROFS], ErrorKind::Busy, "", "open it with read-only=1"),
    row(&[Drive], &[], ErrorKind::Io, "", "dmesg may say more"),
    // The driver of ublk.
    row(
        &[UblkCommand],
        DENIED,
        ErrorKind::NotSupported,
        "",
        "run it as root: zoned ublk disks need CAP_SYS_ADMIN",
    ),
    row(
        &[UblkCommand],
        &[libc::ENODEV],
        ErrorKind::NotFound,
        "",
        "ls /dev/ublkb*; zoneplug status",
    ),
    row(
        &[UblkCommand],
        &[libc::EBUSY, libc::EEXIST],
        ErrorKind::Busy,
        "",
        "another server has it, or has just gone: try again in a moment",
    ),
    row(
        &[UblkCommand],
        &[libc::EOPNOTSUPP],
        ErrorKind::NotSupported,
        "",
        "a kernel with CONFIG_BLK_DEV_ZONED, 6.6 or newer",
    ),
    row(
        &[UblkCommand],
        &[libc::ENOMEM],
        ErrorKind::Busy,
        "the kernel has no memory for its requests",
        "a smaller depth, or fewer queues",
    ),
    row(&[UblkCommand], &[], ErrorKind::Io, "", "dmesg has what the kernel says of it"),
    // The rest.
    row(
        &[Thread],
        &[],
        ErrorKind::Busy,
        "",
        "more processes for this user (ulimit -u) or address space (ulimit -v), or a higher pids limit of the container or service (TasksMax= in a unit)",
    ),
    row(
        &[Address],
        &[libc::EADDRINUSE],
        ErrorKind::Busy,
        "",
        "another port, or end what listens there (ss -ltnp names it)",
    ),
    row(
        &[Address],
        &[libc::EADDRNOTAVAIL],
        ErrorKind::NotFound,
        "no interface of this machine has it",
        "an address of this machine (ip address lists them)",
    ),
    row(
        &[Address],
        DENIED,
        ErrorKind::NotSupported,
        "ports below 1024 are for processes with CAP_NET_BIND_SERVICE",
        "a port from 1024 on, or as root",
    ),
    row(
        &[Address],
        &[libc::EAFNOSUPPORT],
        ErrorKind::NotSupported,
        "this machine or a filter allows no addresses of this kind",
        "an IPv4 address; RestrictAddressFamilies= in a unit",
    ),
    row(&[Address], &[], ErrorKind::Io, "", "another port, or an address of this machine"),
    row(&[Descriptor], &[], ErrorKind::Io, "", "dmesg may say more"),
];

/// The error number; if no system call has failed, the number that the kind stands for.
fn number(e: &io::Error) -> i32 {
    e.raw_os_error().unwrap_or(match e.kind() {
        io::ErrorKind::NotFound => libc::ENOENT,
        io::ErrorKind::PermissionDenied => libc::EACCES,
        io::ErrorKind::InvalidInput => libc::EINVAL,
        io::ErrorKind::ResourceBusy => libc::EBUSY,
        io::ErrorKind::StorageFull => libc::ENOSPC,
        io::ErrorKind::Unsupported => libc::ENOTSUP,
        _ => 0,
    })
}

/// `kernel.io_uring_disabled`. 0 where the kernel has no such setting.
fn ring_disabled() -> u8 {
    let text = std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled").unwrap_or_default();
    text.trim().parse().unwrap_or(0)
}

/// The row of an error. `ring`: the value of `kernel.io_uring_disabled`.
fn find(at: Attempt, errno: i32, ring: impl Fn() -> u8) -> &'static Row {
    let fits = |row: &&Row| {
        (row.at.is_empty() || row.at.contains(&at))
            && (row.errno.is_empty() || row.errno.contains(&errno))
            && match row.when {
                When::Always => true,
                When::RingIs(value) => ring() == value,
            }
    };
    // Each attempt has a row for all numbers.
    TABLE.iter().find(fits).unwrap_or(&TABLE[0])
}

/// The error of an attempt that the system has refused. `what`: the step and its object, as in `cannot open
/// disk.zbd`.
///
/// ```
/// use zoneplug_host::{Attempt, os_error};
/// let e = os_error(Attempt::Address, "192.0.2.1:4420", std::io::Error::from_raw_os_error(99));
/// assert!(e.what_to_try().unwrap().contains("ip address"));
/// ```
pub fn os_error(at: Attempt, what: impl AsRef<str>, e: io::Error) -> Error {
    from_row(at, find(at, number(&e), ring_disabled), what.as_ref(), e)
}

fn from_row(at: Attempt, row: &Row, what: &str, e: io::Error) -> Error {
    let cause = if row.cause.is_empty() { String::new() } else { format!(": {}", row.cause) };
    let or = if at == FileRing { "; or io=threads" } else { "" };
    Error::new(row.kind, format!("{what}: {e}{cause}")).hint(format!("{}{or}", row.way)).source(e)
}

/// The error of a file that cannot be made at `path`. If a directory is missing, names it.
///
/// ```
/// let e = std::io::Error::from_raw_os_error(2);
/// let e = zoneplug_host::cannot_make(std::path::Path::new("/none/a/disk.zbd"), e);
/// assert!(e.to_string().contains("try: mkdir -p /none/a"), "{e}");
/// ```
pub fn cannot_make(path: &Path, e: io::Error) -> Error {
    let shown = path.display();
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
    if let (libc::ENOENT, Some(dir)) = (number(&e), dir)
        && !dir.exists()
    {
        let what = format!("cannot create {shown}: there is no directory {}", dir.display());
        return Error::new(ErrorKind::NotFound, what)
            .hint(format!("mkdir -p {}", dir.display()))
            .source(e);
    }
    if let (libc::ENOENT, Some(dir)) = (number(&e), dir) {
        let what =
            format!("cannot create {shown}: the file system of {} makes no files", dir.display());
        return Error::new(ErrorKind::NotFound, what).hint("another directory").source(e);
    }
    if number(&e) == libc::ENOTDIR
        && let Some(file) = path.ancestors().skip(1).find(|p| p.exists())
    {
        let what = format!("cannot create {shown}: {} is not a directory", file.display());
        return Error::new(ErrorKind::Invalid, what).hint("another directory").source(e);
    }
    os_error(NewFile, format!("cannot create {shown}"), e)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const ALL: [Attempt; 11] = [
        FileRing,
        DriveRing,
        UblkRing,
        DiskFile,
        NewFile,
        ReadFile,
        Drive,
        UblkCommand,
        Thread,
        Address,
        Descriptor,
    ];

    fn error(at: Attempt, errno: i32, ring: u8) -> (String, String) {
        let e = io::Error::from_raw_os_error(errno);
        let e = from_row(at, find(at, errno, || ring), "it fails", e);
        (e.what().to_owned(), e.what_to_try().unwrap_or_default().to_owned())
    }

    #[test]
    fn every_error_has_a_way_out_and_the_kernels_text() {
        for at in ALL {
            for errno in 0..134 {
                let (what, way) = error(at, errno, 0);
                assert!(what.contains(&format!("(os error {errno})")), "{at:?} {errno}: {what}");
                assert!(!way.is_empty(), "{at:?} {errno}");
            }
            assert!(TABLE.iter().any(|row| row.at.contains(&at) && row.errno.is_empty()), "{at:?}");
        }
    }

    /// A script that acts on the exit code need not know which step the system refused. EINVAL is left out: the kernel lacks a feature
    /// of rings, or a path is no file.
    #[test]
    fn one_number_has_one_kind() {
        let named: BTreeSet<i32> = TABLE.iter().flat_map(|row| row.errno).copied().collect();
        for errno in named.into_iter().filter(|n| *n != libc::EINVAL) {
            let is_named = |row: &Row| row.errno.contains(&errno);
            let kinds = ALL.map(|at| find(at, errno, || 0)).into_iter().filter(|row| is_named(row));
            let kinds: Vec<ErrorKind> = kinds.map(|row| row.kind).collect();
            assert!(kinds.windows(2).all(|pair| pair[0] == pair[1]), "{errno}: {kinds:?}");
        }
    }

    /// A row behind a more general one would never be found.
    #[test]
    fn no_row_hides_another() {
        for (n, row) in TABLE.iter().enumerate() {
            let steps = if row.at.is_empty() { &ALL[..] } else { row.at };
            let ring = if let When::RingIs(value) = row.when { value } else { 0 };
            let numbers = if row.errno.is_empty() { &[0][..] } else { row.errno };
            for (at, errno) in steps.iter().flat_map(|at| numbers.iter().map(move |n| (*at, *n))) {
                assert!(std::ptr::eq(find(at, errno, || ring), row), "row {n}: {at:?} {errno}");
            }
        }
    }

    #[test]
    fn a_ring_that_is_denied_names_what_denies_it() {
        for (ring, cause, way) in [
            (2, "io_uring_disabled is 2", "sysctl kernel.io_uring_disabled=0"),
            (1, "io_uring_disabled is 1", "kernel.io_uring_group="),
            (0, "seccomp", "SystemCallFilter=@aio"),
        ] {
            for at in RINGS {
                let (what, hint) = error(*at, libc::EPERM, ring);
                assert!(what.contains(cause) && hint.contains(way), "{what}; {hint}");
                assert_eq!(hint.contains("io=threads"), *at == FileRing, "{hint}");
            }
        }
    }
}
