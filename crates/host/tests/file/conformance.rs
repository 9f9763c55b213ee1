//! Durable disks behind the device seam: the conformance suite, on several layouts, before and after a restart.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use zoneplug_core::{Device, Error};
use zoneplug_devices::conformance::{Target, run};
use zoneplug_host::file::testing::CutStorage;
use zoneplug_host::file::{Access, CreateOptions, FileDisk, Io, create};

/// A directory that goes away.
struct Dir(PathBuf);

impl Dir {
    fn new(base: &Path, name: &str) -> Dir {
        let dir = base.join(format!("zoneplug-conf-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        Dir(dir)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn layouts() -> Vec<CreateOptions> {
    let d = CreateOptions::default();
    let k = 1024;
    vec![
        CreateOptions { zones: Some(8), zone_size: Some(256 * k), ..d.clone() },
        // Not a power of two, capacity, short last zone, conventional zones, limits, native append.
        CreateOptions {
            size: Some(9 * 192 * k + 48 * k),
            zone_size: Some(192 * k),
            zone_capacity: Some(160 * k),
            conv: 2,
            max_open: 3,
            max_active: 5,
            zone_append_max: Some(32 * k),
            ..d.clone()
        },
        // Blocks of a sector in a zone of an odd number of sectors; limits that are equal.
        CreateOptions {
            zones: Some(9),
            zone_size: Some(101 * 512),
            zone_capacity: Some(99 * 512),
            last_zone_size: Some(77 * 512),
            last_zone_capacity: Some(70 * 512),
            lba_size: Some(512),
            max_open: 2,
            max_active: 2,
            conv: 1,
            ..d.clone()
        },
        CreateOptions {
            zones: Some(40),
            zone_size: Some(96 * k),
            lba_size: Some(512),
            granularity: Some(4 * k),
            max_open: 4,
            ..d
        },
    ]
}

fn conforms(dir: &Path, what: &str, open: &dyn Fn(&Path) -> Result<Arc<FileDisk>, Error>) {
    for (i, o) in layouts().iter().enumerate() {
        let path = dir.join(format!("{what}-{i}.zbd"));
        create(&path, o, false).unwrap();
        for turn in 0..2 {
            let disk = open(&path).unwrap();
            println!("{what}, layout {i}, turn {turn}: {}", disk.io());
            let disk: Arc<dyn Device> = disk;
            run(&mut Target::new(&mut || disk.clone(), true));
        }
    }
}

#[test]
fn with_io_uring() {
    let dir = Dir::new(Path::new(env!("CARGO_TARGET_TMPDIR")), "ring");
    conforms(&dir.0, "direct", &|p| FileDisk::open(p, Access::ReadWrite));
    if FileDisk::open_with(&dir.0.join("direct-0.zbd"), Access::ReadWrite, Io::Ring, false).is_ok()
    {
        conforms(&dir.0, "buffered", &|p| {
            FileDisk::open_with(p, Access::ReadWrite, Io::Ring, false)
        });
    }
}

#[test]
fn with_threads() {
    let dir = Dir::new(Path::new(env!("CARGO_TARGET_TMPDIR")), "threads");
    conforms(&dir.0, "threads", &|p| FileDisk::open_with(p, Access::ReadWrite, Io::Threads, true));
}

#[test]
fn on_tmpfs() {
    let shm = Path::new("/dev/shm");
    if !shm.is_dir() {
        return;
    }
    let dir = Dir::new(shm, "tmpfs");
    conforms(&dir.0, "tmpfs", &|p| FileDisk::open(p, Access::ReadWrite));
}

#[test]
fn in_memory_that_forgets() {
    for o in layouts() {
        let storage = CutStorage::create(&o).unwrap();
        for _ in 0..2 {
            let disk: Arc<dyn Device> = storage.open(Access::ReadWrite).unwrap();
            run(&mut Target::new(&mut || disk.clone(), true));
            storage.make_durable();
        }
    }
}
