//! Which process may open a durable disk, and which file it is: the lock, the mode, paths that change while a disk is
//! opened.

use crate::one_command::run;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use zoneplug_core::{Bio, Command, ErrorKind, IoBuf, Op, Sector, Status};
use zoneplug_host::file::{Access, Claim, CreateOptions, FileDisk, Io, create};

/// A directory that goes away.
struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Dir {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("zoneplug-access-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        Dir(dir)
    }

    fn disk(&self, name: &str) -> PathBuf {
        let path = self.0.join(name);
        create(&path, &options(), false).unwrap();
        path
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn options() -> CreateOptions {
    CreateOptions { zones: Some(4), zone_size: Some(1 << 20), ..CreateOptions::default() }
}

/// Takes a lock of an open file description on all of a file.
fn lock_all(file: &File, kind: i32) -> io::Result<()> {
    // SAFETY: all zeroes is a valid value of this struct, and the call gets a pointer to it.
    let r = unsafe {
        let mut l: libc::flock = std::mem::zeroed();
        l.l_type = kind as i16;
        libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &l)
    };
    if r == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Makes the session what a program that knows only flock(2) left: open or closed, and with no count.
fn as_of_an_older_program(path: &Path, closed: bool) {
    let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut b = [0; 512];
    file.read_exact_at(&mut b, 4096).unwrap();
    b[16] = u8::from(closed);
    b[40..48].fill(0);
    let crc = crc32c::crc32c(&b[8..]);
    b[4..8].copy_from_slice(&crc.to_le_bytes());
    file.write_all_at(&b, 4096).unwrap();
}

#[test]
fn a_disk_is_its_owners_alone() {
    let dir = Dir::new("mode");
    let path = dir.disk("a.zbd");
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    // The mode of a file that was there is its owner's choice.
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).unwrap();
    create(&path, &options(), true).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
}

#[test]
fn who_may_only_read_cannot_take_the_lock() {
    let dir = Dir::new("reader");
    let path = dir.disk("a.zbd");
    let reader = File::open(&path).unwrap();
    // What such a process can have: an flock, exclusive too, and no lock for writing.
    reader.try_lock().unwrap();
    assert_eq!(lock_all(&reader, libc::F_WRLCK).unwrap_err().raw_os_error(), Some(libc::EBADF));
    for turn in 0..2 {
        let disk = FileDisk::open(&path, Access::ReadWrite).unwrap();
        let e = FileDisk::open(&path, Access::ReadWrite).unwrap_err();
        assert!(e.to_string().contains("is open for writing in another process"), "{turn}: {e}");
        drop(disk);
    }
    create(&path, &options(), true).unwrap();
    // A read lock keeps writers out; the error says that.
    let reader = File::open(&path).unwrap();
    lock_all(&reader, libc::F_RDLCK).unwrap();
    let e = FileDisk::open(&path, Access::ReadWrite).unwrap_err();
    assert!(e.to_string().contains("has a read lock"), "{e}");
    assert_eq!(e.kind(), ErrorKind::Busy);
    drop(reader);
    FileDisk::open(&path, Access::ReadWrite).unwrap();
}

#[test]
fn a_disk_that_is_open_is_not_replaced() {
    let dir = Dir::new("replaced");
    let path = dir.disk("a.zbd");
    let inode = std::fs::metadata(&path).unwrap().ino();
    for (access, what) in [
        (Access::ReadOnly, "is open for reading in another process"),
        (Access::ReadWrite, "is open for writing in another process"),
    ] {
        let disk = FileDisk::open(&path, access).unwrap();
        let e = create(&path, &options(), true).unwrap_err();
        assert!(e.to_string().contains(what) && e.kind() == ErrorKind::Busy, "{e}");
        // Readers keep neither each other nor a writer out.
        drop(FileDisk::open(&path, Access::ReadOnly).unwrap());
        if access == Access::ReadOnly {
            drop(FileDisk::open(&path, Access::ReadWrite).unwrap());
        }
        drop(disk);
    }
    assert_eq!(std::fs::metadata(&path).unwrap().ino(), inode);
    create(&path, &options(), true).unwrap();
    assert_ne!(std::fs::metadata(&path).unwrap().ino(), inode, "another file has the name");
}

/// A disk that another process writes can be read; what would replace it needs another name.
#[test]
fn a_disk_that_is_written_has_a_hint_for_each_purpose() {
    let dir = Dir::new("hints");
    let path = dir.disk("a.zbd");
    let _writer = FileDisk::open(&path, Access::ReadWrite).unwrap();
    let opened = FileDisk::open(&path, Access::ReadWrite).unwrap_err();
    let created = create(&path, &options(), true).unwrap_err();
    let (opened, created) = (opened.what_to_try().unwrap(), created.what_to_try().unwrap());
    assert!(opened.contains("read-only=1"), "{opened}");
    assert!(created.contains("another name") && !created.contains("read-only"), "{created}");
}

/// A disk that says that its data go past the page cache has a description of its file that does so.
#[test]
fn data_go_past_the_page_cache_if_the_disk_says_so() {
    let dir = Dir::new("direct");
    let path = dir.0.canonicalize().unwrap().join("a.zbd");
    let o = CreateOptions { zones: Some(4), zone_size: Some(1 << 20), ..CreateOptions::default() };
    create(&path, &o, false).unwrap();
    let is_direct = |fd: io::Result<std::fs::DirEntry>| {
        let fd = fd.unwrap();
        let Ok(about) =
            std::fs::read_to_string(Path::new("/proc/self/fdinfo").join(fd.file_name()))
        else {
            return false;
        };
        let flags = about.lines().find_map(|line| line.strip_prefix("flags:")).unwrap().trim();
        let flags = libc::c_int::from_str_radix(flags, 8).unwrap();
        std::fs::read_link(fd.path()).is_ok_and(|at| at == path) && flags & libc::O_DIRECT != 0
    };
    for direct in [true, false] {
        let Ok(disk) = FileDisk::open_with(&path, Access::ReadWrite, Io::Ring, direct) else {
            return println!("skipped: no io_uring here");
        };
        let found = std::fs::read_dir("/proc/self/fd").unwrap().any(is_direct);
        assert_eq!(found, disk.io().direct);
        assert!(direct || !found);
    }
}

/// An opening that waits for a file while another one takes its place opens that one.
#[test]
fn a_file_that_is_replaced_meanwhile_is_not_opened() {
    let dir = Dir::new("meanwhile");
    let path = dir.disk("a.zbd");
    for access in [Access::ReadOnly, Access::ReadWrite] {
        let claim = Claim::of(&path).unwrap();
        let opener = std::thread::spawn({
            let path = path.clone();
            move || FileDisk::open(&path, access).unwrap().place()
        });
        // By then it has the old file open, and waits for the lock, unless the machine is slow.
        std::thread::sleep(std::time::Duration::from_millis(300));
        let new = dir.disk("new.zbd");
        std::fs::rename(&new, &path).unwrap();
        drop(claim);
        let inode = std::fs::metadata(&path).unwrap().ino();
        assert_eq!(opener.join().unwrap().inode, inode, "{access:?}");
    }
}

#[test]
fn a_writer_of_an_older_version_is_seen() {
    let dir = Dir::new("older");
    let path = dir.disk("a.zbd");
    drop(FileDisk::open(&path, Access::ReadWrite).unwrap());
    // It has its flock and an open session.
    as_of_an_older_program(&path, false);
    let older = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    older.try_lock().unwrap();
    let e = FileDisk::open(&path, Access::ReadWrite).unwrap_err();
    assert!(e.to_string().contains("is open for writing in another process"), "{e}");
    drop(older);
    // And it sees ours.
    let disk = FileDisk::open(&path, Access::ReadWrite).unwrap();
    assert!(File::open(&path).unwrap().try_lock().is_err());
    drop(disk);
    // An flock beside a session that an older version has closed belongs to another process.
    as_of_an_older_program(&path, true);
    let reader = File::open(&path).unwrap();
    reader.try_lock().unwrap();
    FileDisk::open(&path, Access::ReadWrite).unwrap();
}

#[test]
fn what_is_no_regular_file_is_refused_at_once() {
    let dir = Dir::new("kinds");
    let fifo = dir.0.join("fifo");
    let name = std::ffi::CString::new(fifo.to_str().unwrap()).unwrap();
    // SAFETY: `name` is a C string.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    for path in [&fifo, &dir.0, &PathBuf::from("/dev/zero")] {
        for access in [Access::ReadOnly, Access::ReadWrite] {
            let e = FileDisk::open(path, access).unwrap_err();
            assert!(e.what_to_try().is_some(), "{e}");
        }
        let e = create(path, &options(), true).unwrap_err();
        assert!(e.what_to_try().is_some(), "{e}");
    }
}

/// Two disks swap names all the time. Whichever was opened, its data is in the same file as its table.
#[test]
fn a_rename_while_a_disk_is_opened_joins_no_two_disks() {
    let dir = Dir::new("rename");
    let (a, b) = (dir.disk("a.zbd"), dir.disk("b.zbd"));
    let swap = |from: &Path, to: &Path| {
        let [from, to] = [from, to].map(|p| std::ffi::CString::new(p.to_str().unwrap()).unwrap());
        // SAFETY: both are C strings.
        let r = unsafe {
            libc::renameat2(
                libc::AT_FDCWD,
                from.as_ptr(),
                libc::AT_FDCWD,
                to.as_ptr(),
                libc::RENAME_EXCHANGE,
            )
        };
        r == 0
    };
    if !swap(&a, &b) {
        println!("skipped: the file system cannot exchange names");
        return;
    }
    let end = AtomicBool::new(false);
    std::thread::scope(|s| {
        s.spawn(|| {
            while !end.load(Ordering::Relaxed) {
                swap(&a, &b);
            }
        });
        for turn in 0..200u32 {
            let disk = FileDisk::open_with(&a, Access::ReadWrite, Io::Threads, false).unwrap();
            let mut buf = IoBuf::leaked(4096);
            buf.copy_from(0, &[turn as u8 | 1; 4096]);
            let reset = Command::without_data(Op::ZoneReset, Sector(0), 2048);
            assert_eq!(run(&disk, reset).status, Status::Ok);
            let write = Command::of(Bio::with_buf(Op::Write, Sector(0), 8, buf));
            assert_eq!(run(&disk, write).status, Status::Ok);
            let place = disk.place();
            drop(disk);
            // The file by its inode, whatever its name is now: the block is there.
            let files = [&a, &b].map(|p| File::open(p).unwrap());
            let file = files.iter().find(|f| f.metadata().unwrap().ino() == place.inode);
            let Some(file) = file else { continue };
            let mut block = [0; 4096];
            file.read_exact_at(&mut block, 1 << 20).unwrap();
            assert_eq!(block, [turn as u8 | 1; 4096], "turn {turn}: the data is in the other disk");
        }
        end.store(true, Ordering::Relaxed);
    });
}

#[test]
fn create_locks_the_file_that_it_formats() {
    let dir = Dir::new("create");
    let path = dir.disk("a.zbd");
    let disk = FileDisk::open(&path, Access::ReadWrite).unwrap();
    let e = create(&path, &options(), true).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Busy, "{e}");
    drop(disk);
    assert!(FileDisk::open(&path, Access::ReadOnly).unwrap().notices().is_empty());
}
