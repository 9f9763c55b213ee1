//! A volume mounted in this kernel: what system calls return. Skipped, with the reason, where this user cannot mount;
//! `scripts/mount` fails there, and has fio, cp, tar and kills.
#![allow(clippy::unwrap_used)]

use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use zoneplug_buf::AlignedBuf;
use zoneplug_host::HostedDisk;
use zoneplug_zonefs::{Group, Mount, MountError, SuperBlock, Volume};

/// A mount in a directory of its own, which is unmounted at the end.
struct Mounted {
    dir: PathBuf,
    mount: Option<Mount>,
}

impl Mounted {
    /// `None` where this user cannot mount.
    fn of(name: &str, spec: &str, format: &str, options: &str) -> Option<Mounted> {
        let dir = std::env::temp_dir().join(format!("zoneplug-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        if let Err(e) = Mount::check(&dir) {
            eprintln!("skipped: {e}");
            return None;
        }
        let disk = HostedDisk::open_spec(spec).unwrap();
        Volume::format(&disk, &SuperBlock::of_options(format, 0, 0).unwrap()).unwrap();
        let warn = |text: &str| eprintln!("{text}");
        let mount =
            Mount::start(&disk, "test", &dir, options.parse().unwrap(), warn, || {}).unwrap();
        Some(Mounted { dir, mount: Some(mount) })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    fn direct(&self, name: &str) -> File {
        direct(&self.path(name)).unwrap()
    }

    fn end(mut self) -> Result<(), MountError> {
        let mount = self.mount.take().unwrap();
        mount.unmount().unwrap();
        mount.wait()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Some(mount) = self.mount.take() {
            let _ = mount.unmount();
            let _ = mount.wait();
        }
        let _ = std::fs::remove_dir(&self.dir);
    }
}

fn direct(path: &Path) -> io::Result<File> {
    let direct = rustix::fs::OFlags::DIRECT.bits() as i32;
    OpenOptions::new().read(true).write(true).custom_flags(direct).open(path)
}

/// Memory that direct writes take.
fn block(fill: u8, len: usize) -> Vec<u8> {
    vec![fill; len]
}

fn errno<T>(result: io::Result<T>) -> Option<Errno> {
    result.err().as_ref().and_then(Errno::from_io_error)
}

/// The options by which mount(8) shows a directory.
fn shown(dir: &Path) -> String {
    let mounts = std::fs::read_to_string("/proc/mounts").unwrap();
    let line = mounts.lines().find(|l| l.contains(dir.to_str().unwrap()));
    line.unwrap_or_default().to_owned()
}

#[test]
fn f1_and_f2_the_tree_is_that_of_zonefs() {
    let spec = "mem,zones=8,zone-size=64K,zone-capacity=48K,conv=3";
    let Some(m) = Mounted::of("tree", spec, "perm=644,uid=5,gid=6", "") else { return };
    let names = |dir: &str| {
        let mut names: Vec<_> = std::fs::read_dir(m.path(dir))
            .unwrap()
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names.join(" ")
    };
    assert_eq!(
        (names("."), names("cnv"), names("seq")),
        ("cnv seq".into(), "0 1".into(), "0 1 2 3 4".into())
    );
    // The kinds that a directory lists, which find(1) and others believe.
    let kinds = |name: &str| {
        let mut all = std::fs::read_dir(m.path(name)).unwrap().map(|e| e.unwrap().file_type());
        all.all(|kind| kind.unwrap().is_file() == (name != "."))
    };
    assert!(kinds(".") && kinds("cnv") && kinds("seq"));
    let stat = |name: &str| {
        let is = std::fs::metadata(m.path(name)).unwrap();
        (is.ino(), is.size(), is.blocks() * 512, is.permissions().mode() & 0o777)
    };
    assert_eq!((stat(".").0, stat("cnv").0, stat("seq").0), (8, 9, 10));
    let links = |name: &str| std::fs::metadata(m.path(name)).unwrap().nlink();
    assert_eq!((links("."), links("cnv"), links("seq")), (4, 2, 2));
    assert_eq!((stat(".").1, stat("cnv").1), (4, 2));
    assert_eq!(stat("cnv/1"), (2, 65536, 65536, 0o644));
    assert_eq!(stat("seq/4"), (7, 0, 49152, 0o644));
    assert_eq!(stat("seq").1, 5);
    let is = std::fs::metadata(m.path("seq/0")).unwrap();
    assert_eq!((is.uid(), is.gid(), is.blksize()), (5, 6, 4096));
    let f = rustix::fs::statvfs(&m.dir).unwrap();
    assert_eq!((f.f_bsize, f.f_blocks, f.f_bfree, f.f_files, f.f_ffree), (4096, 92, 60, 9, 0));
    assert_eq!(errno(File::create(m.path("seq/5"))), Some(Errno::ACCESS));
    assert_eq!(errno(std::fs::remove_file(m.path("seq/0"))), Some(Errno::PERM));
    assert_eq!(errno(std::fs::create_dir(m.path("seq/x"))), Some(Errno::PERM));
    assert_eq!(errno(std::fs::rename(m.path("seq/0"), m.path("seq/9"))), Some(Errno::PERM));
    std::fs::set_permissions(m.path("seq/0"), PermissionsExt::from_mode(0o600)).unwrap();
    assert_eq!(stat("seq/0").3, 0o600);
    assert!(shown(&m.dir).contains("fuse.zoneplug rw,"), "{}", shown(&m.dir));
    let dir = m.dir.clone();
    m.end().unwrap();
    assert_eq!(shown(&dir), "");
}

/// A directory without files does not exist, and does not count.
#[test]
fn f1_a_volume_without_conventional_files_has_one_directory() {
    let Some(m) = Mounted::of("one", "mem,zones=8,zone-size=64K", "", "") else { return };
    let names = std::fs::read_dir(&m.dir).unwrap().map(|e| e.unwrap().file_name());
    assert_eq!(names.collect::<Vec<_>>(), ["seq"]);
    let root = std::fs::metadata(&m.dir).unwrap();
    assert_eq!((root.nlink(), root.size()), (3, 3));
    m.end().unwrap();
}

#[test]
fn f4_f5_and_f7_system_calls_on_sequential_files() {
    let spec = "mem,zones=4,zone-size=4M,zone-capacity=3M,reorder=5";
    let Some(m) = Mounted::of("seq", spec, "", "") else { return };
    let file = m.direct("seq/0");
    // More than the kernel sends in one request.
    let data: Vec<u8> = (0..5 << 19u32).map(|n| (n >> 9) as u8).collect();
    file.write_all_at(AlignedBuf::from_slice(&data).as_slice(), 0).unwrap();
    assert_eq!(std::fs::read(m.path("seq/0")).unwrap(), data);
    assert_eq!(errno(file.write_at(&block(1, 4096), 0)), Some(Errno::INVAL));
    assert_eq!(errno(file.write_at(&block(1, 512), data.len() as u64)), Some(Errno::INVAL));
    // A short write at the end, and none behind it.
    let long = AlignedBuf::zeroed(1 << 20);
    assert_eq!(file.write_at(long.as_slice(), data.len() as u64).unwrap(), 1 << 19);
    assert_eq!(errno(file.write_at(&block(1, 4096), 3 << 20)), Some(Errno::FBIG));
    assert_eq!(errno(std::fs::write(m.path("seq/1"), "x")), Some(Errno::IO));
    file.sync_all().unwrap();
    assert_eq!(errno(file.set_len(4096)), Some(Errno::PERM));
    file.set_len(0).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 0);
    file.write_all_at(&block(7, 8192), 0).unwrap();
    assert_eq!(std::fs::read(m.path("seq/0")).unwrap(), block(7, 8192));
    // By a descriptor that was open before, past what its page cache has.
    let reader = File::open(m.path("seq/0")).unwrap();
    let mut read = [0; 4096];
    assert_eq!(reader.read_at(&mut read, 8192).unwrap(), 0);
    file.write_all_at(&block(8, 4096), 8192).unwrap();
    assert_eq!((reader.read_at(&mut read, 8192).unwrap(), read[0]), (4096, 8));
    file.set_len(3 << 20).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 3 << 20);
    assert_eq!(
        errno(
            rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, 4096)
                .map_err(Into::into)
        ),
        Some(Errno::OPNOTSUPP)
    );
    drop((file, reader));
    m.end().unwrap();
}

/// Several descriptors with `O_APPEND`: no write is lost.
#[test]
fn f5_appending_writers() {
    let Some(m) = Mounted::of("append", "mem,zones=3,zone-size=4M", "", "") else { return };
    let flags = rustix::fs::OFlags::DIRECT.bits() as i32;
    std::thread::scope(|scope| {
        for n in 1..=4u8 {
            let path = m.path("seq/0");
            scope.spawn(move || {
                let file = OpenOptions::new().append(true).custom_flags(flags).open(path).unwrap();
                for _ in 0..50 {
                    io::Write::write_all(&mut &file, &block(n, 4096)).unwrap();
                }
            });
        }
    });
    let all = std::fs::read(m.path("seq/0")).unwrap();
    let count = |n: u8| all.chunks(4096).filter(|b| b.iter().all(|x| *x == n)).count();
    assert_eq!((1..=4).map(count).collect::<Vec<_>>(), [50; 4]);
    m.end().unwrap();
}

#[test]
fn f4_buffered_lets_plain_programs_append() {
    let Some(m) = Mounted::of("plain", "mem,zones=3,zone-size=1M", "", "buffered") else { return };
    let data: Vec<u8> = (0..100_001u32).map(|n| n as u8).collect();
    std::fs::write(m.path("seq/0"), &data).unwrap();
    let end = Instant::now() + Duration::from_secs(10);
    // The last block is filled up when the kernel has told that the file was closed, which is soon after.
    while std::fs::metadata(m.path("seq/0")).unwrap().len() != 102_400 {
        assert!(Instant::now() < end, "the last block is not written");
    }
    let read = std::fs::read(m.path("seq/0")).unwrap();
    assert!(read[..data.len()] == data && read[data.len()..].iter().all(|b| *b == 0));
    let mut file = OpenOptions::new().append(true).open(m.path("seq/1")).unwrap();
    io::Write::write_all(&mut file, b"waits").unwrap();
    // The mount is taken away, and ends with the last file that is open on it.
    let Mounted { mount, .. } = &m;
    mount.as_ref().unwrap().unmount().unwrap();
    io::Write::write_all(&mut file, b" more").unwrap();
    file.sync_all().unwrap();
    drop(file);
    let mut m = m;
    m.mount.take().unwrap().wait().unwrap();
}

/// The last close ends a mount that was detached. Linux may end the connection while that close is on its way to a thread.
#[test]
fn f4_a_detached_mount_ends_without_an_error_and_has_what_was_written() {
    for round in 0..100 {
        let Some(mut m) = Mounted::of("detached", "mem,zones=2,zone-size=1M", "", "buffered")
        else {
            return;
        };
        let mut file = OpenOptions::new().append(true).open(m.path("seq/0")).unwrap();
        io::Write::write_all(&mut file, b"waits").unwrap();
        let mount = m.mount.take().unwrap();
        let volume = mount.shared_volume();
        mount.unmount().unwrap();
        drop(file);
        mount.wait().unwrap_or_else(|e| panic!("round {round}: {e}"));
        let file = volume.file(Group::Sequential, 0).unwrap();
        let block = volume.read(file, 0, 8192).unwrap();
        let block = block.as_slice();
        assert!(block.len() == 4096 && block.starts_with(b"waits\0"), "round {round}");
    }
}

/// After an error mount(8) shows that the volume is read-only, although a file was open for writing.
#[test]
fn f9_a_volume_that_became_read_only_shows_it() {
    let spec = "mem,zones=4,zone-size=1M,zone_recovery=client,fault=write/io/zone=2";
    let Some(m) = Mounted::of("ro", spec, "", "") else { return };
    let (first, second) = (m.direct("seq/0"), m.direct("seq/1"));
    assert_eq!(errno(second.write_at(&block(1, 4096), 0)), Some(Errno::IO));
    assert_eq!(errno(first.write_at(&block(1, 4096), 0)), Some(Errno::ROFS));
    assert_eq!(errno(first.set_len(0)), Some(Errno::ROFS));
    drop((first, second));
    if rustix::process::geteuid().is_root() {
        let end = Instant::now() + Duration::from_secs(10);
        while !shown(&m.dir).contains("fuse.zoneplug ro,") {
            assert!(Instant::now() < end, "{}", shown(&m.dir));
        }
    }
    assert_eq!(errno(direct(&m.path("seq/0"))), Some(Errno::ROFS));
    m.end().unwrap();
}

/// A write to a file with `O_DSYNC` or `O_SYNC` is durable when the call returns, or the call fails.
#[test]
fn f11_dsync_flushes() {
    for sync in [libc::O_DSYNC, libc::O_SYNC] {
        // The first flush is that of the format.
        let spec = "mem,zones=4,zone-size=1M,write-cache=1,fault=flush/io/skip=1";
        let Some(m) = Mounted::of("dsync", spec, "", "errors=repair") else { return };
        let mut options = OpenOptions::new();
        let options = options.write(true).custom_flags(libc::O_DIRECT | sync);
        let file = options.open(m.path("seq/0")).unwrap();
        assert_eq!(errno(file.write_at(&block(1, 4096), 0)), Some(Errno::IO), "{sync:o}");
        assert_eq!(file.write_at(&block(1, 4096), 4096).unwrap(), 4096);
        drop(file);
        m.end().unwrap();
    }
}

/// Unmounting makes durable what was written, and says so if it cannot.
#[test]
fn f11_unmounting_flushes() {
    // The first flush is that of the format.
    let spec = "mem,zones=4,zone-size=1M,write-cache=1,fault=flush/io/skip=1";
    let Some(m) = Mounted::of("unmount", spec, "", "errors=repair") else { return };
    assert_eq!(m.direct("seq/0").write_at(&block(1, 4096), 0).unwrap(), 4096);
    let ended = m.end();
    assert!(matches!(ended, Err(MountError::Close(Errno::IO))), "{ended:?}");
}

/// Writes that the disk does not answer make no other request wait: of other files, or what stat shows.
#[test]
fn f5_a_stalled_write_stalls_no_other_file() {
    let spec = "mem,zones=24,zone-size=1M,timeout=4s,fault=write/lost/from=1M/count=8";
    let Some(m) = Mounted::of("stalled", spec, "", "errors=repair") else { return };
    let started = Instant::now();
    std::thread::scope(|scope| {
        for n in 0..8 {
            let file = m.direct(&format!("seq/{n}"));
            scope.spawn(move || assert!(file.write_at(&block(1, 4096), 0).is_err()));
        }
        std::thread::sleep(Duration::from_millis(500));
        for n in 0..16 {
            assert_eq!(std::fs::metadata(m.path(&format!("seq/{n}"))).unwrap().len(), 0);
        }
        rustix::fs::statvfs(&m.dir).unwrap();
        m.direct("seq/9").write_all_at(&block(1, 4096), 0).unwrap();
        assert!(started.elapsed() < Duration::from_secs(3), "{:?}", started.elapsed());
    });
    assert!(started.elapsed() > Duration::from_secs(3), "no write was stalled");
    m.end().unwrap();
}

/// A mount takes away only itself: not what is below, and not what was mounted over it.
#[test]
fn other_mounts_of_the_directory_stay() {
    use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
    if !rustix::process::geteuid().is_root() {
        return eprintln!("skipped: only root mounts a tmpfs");
    }
    let dir = std::env::temp_dir().join(format!("zoneplug-other-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let tmpfs = || mount("none", &dir, "tmpfs", MountFlags::empty(), None::<&std::ffi::CStr>);
    if let Err(e) = Mount::check(&dir) {
        return eprintln!("skipped: {e}");
    }
    tmpfs().unwrap();
    std::fs::write(dir.join("below"), "x").unwrap();
    let start = || {
        let disk = HostedDisk::open_spec("mem,zones=4,zone-size=1M").unwrap();
        Volume::format(&disk, &SuperBlock::default()).unwrap();
        Mount::start(&disk, "test", &dir, Default::default(), |_| {}, || {}).unwrap()
    };
    // Unmounted from outside, and by itself.
    let first = start();
    unmount(&dir, UnmountFlags::empty()).unwrap();
    first.wait().unwrap();
    assert!(dir.join("below").exists());
    let second = start();
    second.unmount().unwrap();
    second.unmount().unwrap();
    second.wait().unwrap();
    assert!(dir.join("below").exists());
    // Under another one.
    let third = start();
    tmpfs().unwrap();
    std::fs::write(dir.join("over"), "x").unwrap();
    assert!(third.unmount().is_err());
    assert!(dir.join("over").exists());
    unmount(&dir, UnmountFlags::empty()).unwrap();
    third.unmount().unwrap();
    third.wait().unwrap();
    assert!(dir.join("below").exists());
    unmount(&dir, UnmountFlags::empty()).unwrap();
    std::fs::remove_dir(&dir).unwrap();
}

/// A mount whose server has died is said to be one, with the command that removes it. As root: only root mounts by itself.
#[test]
fn a_mount_whose_server_has_died_is_named() {
    use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
    use std::os::fd::AsRawFd;
    let dir = std::env::temp_dir().join(format!("zoneplug-died-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let device = OpenOptions::new().read(true).write(true).open("/dev/fuse");
    if let (Ok(device), true) = (device, rustix::process::geteuid().is_root()) {
        let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", device.as_raw_fd());
        let options = std::ffi::CString::new(options).unwrap();
        if mount("died", &dir, "fuse", MountFlags::empty(), Some(options.as_c_str())).is_ok() {
            drop(device);
            let e = Mount::check(&dir).unwrap_err().to_string();
            unmount(&dir, UnmountFlags::DETACH).unwrap();
            assert!(e.contains("a mount whose server has ended"), "{e}");
        }
    }
    let e = Mount::check(&dir.join("none")).unwrap_err().to_string();
    assert!(e.contains("mkdir "), "{e}");
    std::fs::remove_dir(&dir).unwrap();
}
