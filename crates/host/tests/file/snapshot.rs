//! Snapshots of a disk that is written meanwhile. A verifier keeps a record of what was acknowledged before a snapshot was
//! asked for, and of what was asked for when the disk was frozen. Each snapshot has all of the former, nothing that is not in
//! the latter, and is the disk at one moment.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use zoneplug_core::disk::DiskConfig;
use zoneplug_core::zone::Condition;
use zoneplug_core::{ErrorKind, ZoneNo};
use zoneplug_host::file::{
    Access, CreateOptions, FileDisk, Made, Snapshot, WritesPrevented, check, create,
};
use zoneplug_host::{BlockingDisk, HostedDisk};

const BLOCK: u64 = 4096;
/// Sectors of a block.
const SECTORS: u64 = 8;
/// Blocks of a zone.
const BLOCKS: u64 = 64;
/// The first zones are conventional.
const CONVENTIONAL: u32 = 2;
const ZONES: u32 = 10;

struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Dir {
        let dir = std::env::temp_dir().join(format!("zoneplug-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        Dir(dir)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn made(path: &Path, preallocate: bool) {
    let o = CreateOptions {
        zones: Some(u64::from(ZONES)),
        zone_size: Some(BLOCKS * BLOCK),
        conv: CONVENTIONAL,
        preallocate,
        ..CreateOptions::default()
    };
    create(path, &o, false).unwrap();
}

fn hosted(path: &Path) -> HostedDisk {
    HostedDisk::open(FileDisk::open(path, Access::ReadWrite).unwrap(), DiskConfig::default())
        .unwrap()
}

/// The block with this number.
fn block(n: u64) -> Vec<u8> {
    (0..BLOCK / 8).flat_map(|i| (n ^ i << 40).to_le_bytes()).collect()
}

/// The number of a block, which must be whole. 0: it was never written.
fn number(bytes: &[u8]) -> u64 {
    let n = u64::from_le_bytes(bytes[..8].try_into().unwrap());
    let is = if n == 0 { bytes.iter().all(|b| *b == 0) } else { bytes == block(n) };
    assert!(is, "a torn block that begins with the number {n}");
    n
}

/// The numbers of writes: each is one more than the last. A write begins when the last one was acknowledged, so a disk that has
/// one has all before it, as far as they were not overwritten or reset.
#[derive(Default)]
struct Record {
    begun: AtomicU64,
    acknowledged: AtomicU64,
}

/// Where write `n` goes: the blocks of the sequential zones in turn, and every third to a conventional zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct WritePlace {
    zone: u32,
    block: u64,
    /// How often the zone was filled before.
    round: u64,
}

fn place(n: u64) -> WritePlace {
    let sequential = u64::from(ZONES - CONVENTIONAL);
    if n.is_multiple_of(3) {
        let k = n / 3;
        let zone = (k % u64::from(CONVENTIONAL)) as u32;
        let at = k / u64::from(CONVENTIONAL);
        return WritePlace { zone, block: at * 7 % BLOCKS, round: at / BLOCKS };
    }
    let k = n / 3 * 2 + n % 3 - 1;
    let at = k / sequential;
    WritePlace {
        zone: CONVENTIONAL + (k % sequential) as u32,
        block: at % BLOCKS,
        round: at / BLOCKS,
    }
}

/// Stops the writer at the end of the test, also if that fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Writes until it is told to stop.
fn write(disk: &HostedDisk, record: &Record, stop: &AtomicBool) {
    let mut io = BlockingDisk::new(disk).unwrap();
    let mut n = record.acknowledged.load(Ordering::SeqCst);
    while !stop.load(Ordering::SeqCst) {
        n += 1;
        let WritePlace { zone, block: at, round } = place(n);
        let start = disk.disk().geometry().zone_start(ZoneNo(zone));
        record.begun.store(n, Ordering::SeqCst);
        if zone >= CONVENTIONAL && at == 0 && round > 0 {
            io.reset(start, BLOCKS * SECTORS).unwrap();
        }
        io.write_from(start.plus(at * SECTORS), &block(n)).unwrap();
        record.acknowledged.store(n, Ordering::SeqCst);
    }
}

/// Takes a snapshot as `zoneplug snapshot` does. Returns the numbers between which its last write is.
fn snapshot(from: &Path, to: &Path, disk: &HostedDisk, record: &Record) -> (Made, u64, u64) {
    let least = record.acknowledged.load(Ordering::SeqCst);
    let mut snapshot = Snapshot::begin(from, to, WritesPrevented::ByCaller).unwrap();
    for _ in 0..2 {
        snapshot.copy_ahead().unwrap();
    }
    BlockingDisk::new(disk).unwrap().flush().unwrap();
    let frozen = disk.freeze().unwrap();
    let most = record.begun.load(Ordering::SeqCst);
    snapshot.copy_rest().unwrap();
    drop(frozen);
    (snapshot.finish(true).unwrap(), least, most)
}

/// The last write of the disk in a file, which is the disk after that write and before the next one.
fn last_write(path: &Path, (least, most): (u64, u64)) -> u64 {
    let report = check(path, false).unwrap();
    assert_eq!(report.problems, 0, "{report}");
    assert!(report.lines.iter().any(|l| l == "it was closed"), "{report}");
    let disk = FileDisk::open(path, Access::ReadOnly).unwrap();
    let disk = HostedDisk::open(disk, DiskConfig::default()).unwrap();
    let mut io = BlockingDisk::new(&disk).unwrap();
    let mut found = vec![vec![0; BLOCKS as usize]; ZONES as usize];
    let mut wps = vec![BLOCKS; ZONES as usize];
    for (zone, blocks) in (0..).zip(&mut found) {
        let info = io.zone(ZoneNo(zone)).unwrap();
        if zone >= CONVENTIONAL {
            wps[zone as usize] = match info.cond {
                Condition::Full => BLOCKS,
                _ => (info.wp.0 - info.start.0) / SECTORS,
            };
        }
        let mut bytes = vec![0; (BLOCKS * BLOCK) as usize];
        io.read_into(info.start, &mut bytes).unwrap();
        for (n, bytes) in blocks.iter_mut().zip(bytes.chunks(BLOCK as usize)) {
            *n = number(bytes);
        }
    }
    let last = *found.iter().flatten().max().unwrap();
    assert!((least..=most).contains(&last), "the last write is {last}, not {least} to {most}");
    // What each block has after the write `last`.
    let mut expected = vec![vec![0; BLOCKS as usize]; ZONES as usize];
    for n in 1..=last {
        let p = place(n);
        let zone = &mut expected[p.zone as usize];
        if p.zone >= CONVENTIONAL && p.block == 0 {
            zone.fill(0);
        }
        zone[p.block as usize] = n;
    }
    // The zone of the next write may have been reset for it.
    let next = place(last + 1);
    if next.zone >= CONVENTIONAL && next.block == 0 && wps[next.zone as usize] == 0 {
        expected[next.zone as usize].fill(0);
    }
    for zone in 0..ZONES as usize {
        assert_eq!(found[zone], expected[zone], "zone {zone} after write {last}");
        if zone >= CONVENTIONAL as usize {
            let written = expected[zone].iter().filter(|n| **n > 0).count() as u64;
            assert_eq!(wps[zone], written, "the write pointer of zone {zone} after write {last}");
        }
    }
    last
}

/// Snapshots while a thread writes, resets and overwrites.
#[test]
fn a_snapshot_is_the_disk_at_one_moment() {
    for preallocate in [false, true] {
        let dir = Dir::new(&format!("snapshots-{preallocate}"));
        let path = dir.path("disk.zbd");
        made(&path, preallocate);
        let disk = hosted(&path);
        let (record, stop) = (Record::default(), AtomicBool::new(false));
        std::thread::scope(|threads| {
            threads.spawn(|| write(&disk, &record, &stop));
            let stops = Stop(&stop);
            let begun = Instant::now();
            let (mut taken, mut uuids) = (0, std::collections::BTreeSet::new());
            let rounds = BLOCKS * u64::from(ZONES);
            // On a busy machine it takes longer until zones were reset.
            let is_little = |taken| taken < 8 || record.begun.load(Ordering::SeqCst) <= 3 * rounds;
            while begun.elapsed().as_secs() < 6
                || is_little(taken) && begun.elapsed().as_secs() < 60
            {
                let to = dir.path(&format!("copy{taken}.zbd"));
                let (made, least, most) = snapshot(&path, &to, &disk, &record);
                last_write(&to, (least, most));
                assert!(uuids.insert(made.identity.uuid), "a UUID that another snapshot has");
                std::fs::remove_file(&to).unwrap();
                taken += 1;
            }
            drop(stops);
            let written = record.begun.load(Ordering::SeqCst);
            assert!(written > 3 * rounds, "only {written} writes: no zone was reset");
            println!("{taken} snapshots during {written} writes");
        });
        // And of the disk that is not open.
        drop(disk);
        let to = dir.path("last.zbd");
        let mut snapshot = Snapshot::begin(&path, &to, WritesPrevented::ByLock).unwrap();
        snapshot.copy_rest().unwrap();
        snapshot.finish(true).unwrap();
        let n = record.acknowledged.load(Ordering::SeqCst);
        assert_eq!(last_write(&to, (n, n)), n);
    }
}

/// Makes a disk at `path`, writes to it, and copies the file to `left` as a death leaves it: without a flush, and not closed. Returns
/// the disk, which is open, and the number of acknowledged writes.
fn left_by_a_death(path: &Path, left: &Path) -> (HostedDisk, u64) {
    made(path, false);
    let disk = hosted(path);
    let (record, stop) = (Record::default(), AtomicBool::new(false));
    std::thread::scope(|threads| {
        threads.spawn(|| write(&disk, &record, &stop));
        while record.acknowledged.load(Ordering::SeqCst) < 100 {
            std::thread::sleep(Duration::from_millis(1));
        }
        stop.store(true, Ordering::SeqCst);
    });
    std::fs::copy(path, left).unwrap();
    (disk, record.acknowledged.load(Ordering::SeqCst))
}

/// A process died while it had the disk open: its acknowledged writes are in the snapshot although no table has them.
#[test]
fn a_snapshot_after_a_death_has_what_was_acknowledged() {
    let dir = Dir::new("snapshot-death");
    let left = dir.path("left.zbd");
    let (_, n) = left_by_a_death(&dir.path("disk.zbd"), &left);
    let before = check(&left, false).unwrap();
    assert!(before.lines[1].contains("its last writer died"), "{before}");
    let to = dir.path("copy.zbd");
    let mut snapshot = Snapshot::begin(&left, &to, WritesPrevented::ByLock).unwrap();
    snapshot.copy_rest().unwrap();
    snapshot.finish(true).unwrap();
    assert_eq!(last_write(&to, (n, n)), n);
}

/// Makes `dir` read-only for this thread alone: other threads see it as it was. False: this process may not.
fn seen_read_only(dir: &Path) -> bool {
    let dir = std::ffi::CString::new(dir.as_os_str().as_encoded_bytes()).unwrap();
    let mount = |what: &std::ffi::CStr, flags| {
        let (at, none) = (what.as_ptr(), std::ptr::null());
        // SAFETY: both names end with a zero byte; the other pointers may be null.
        unsafe { libc::mount(at, at, none, flags, none.cast()) }
    };
    // SAFETY: the call takes a number and changes what this thread sees of file systems.
    if unsafe { libc::unshare(libc::CLONE_NEWNS) } != 0 {
        return false;
    }
    let private = mount(c"/", libc::MS_REC | libc::MS_PRIVATE);
    let bound = mount(&dir, libc::MS_BIND);
    let made = mount(&dir, libc::MS_REMOUNT | libc::MS_BIND | libc::MS_RDONLY);
    (private, bound, made) == (0, 0, 0)
}

/// A disk that cannot be opened for writing is copied as its last writer left it, unless a writer comes meanwhile.
#[test]
fn a_disk_on_a_read_only_file_system_is_copied() {
    let (dir, copies) = (Dir::new("snapshot-read-only"), Dir::new("snapshot-of-read-only"));
    let (path, left) = (dir.path("disk.zbd"), dir.path("left.zbd"));
    let (_disk, n) = left_by_a_death(&path, &left);
    let (ask, asked) = std::sync::mpsc::channel();
    let (answer, answered) = std::sync::mpsc::channel();
    std::thread::scope(|threads| {
        threads.spawn(|| {
            let (ask, answered) = (ask, answered);
            let to = |name| copies.path(name);
            if !seen_read_only(&dir.0) {
                println!("skipped: this process may not mount");
                return;
            }
            let busy = Snapshot::begin(&path, &to("of.zbd"), WritesPrevented::ByLock).unwrap_err();
            assert_eq!(busy.kind(), ErrorKind::Busy, "{busy}");
            let mut snapshot =
                Snapshot::begin(&left, &to("of.zbd"), WritesPrevented::ByLock).unwrap();
            snapshot.copy_rest().unwrap();
            snapshot.finish(true).unwrap();
            assert_eq!(last_write(&to("of.zbd"), (n, n)), n);
            // A writer that comes and goes while the copy is made.
            let mut snapshot =
                Snapshot::begin(&left, &to("of-old.zbd"), WritesPrevented::ByLock).unwrap();
            ask.send(()).unwrap();
            answered.recv().unwrap();
            let late = snapshot.copy_rest().unwrap_err();
            assert!(late.to_string().contains("was opened for writing"), "{late}");
            drop(snapshot);
            assert!(!to("of-old.zbd").exists());
        });
        if asked.recv().is_ok() {
            drop(FileDisk::open(&left, Access::ReadWrite).unwrap());
            answer.send(()).unwrap();
        }
    });
}

#[test]
fn what_a_snapshot_refuses_and_leaves() {
    let dir = Dir::new("snapshot-refused");
    let (path, to) = (dir.path("disk.zbd"), dir.path("copy.zbd"));
    made(&path, false);
    let names = || {
        let all = std::fs::read_dir(&dir.0).unwrap().map(|e| e.unwrap().file_name());
        let mut all: Vec<_> = all.map(|n| n.into_string().unwrap()).collect();
        all.sort();
        all
    };
    // One that is dropped leaves nothing, and has had no name.
    let mut snapshot = Snapshot::begin(&path, &to, WritesPrevented::ByLock).unwrap();
    // It has the lock of the disk.
    let open = FileDisk::open(&path, Access::ReadWrite).unwrap_err();
    assert_eq!(open.kind(), ErrorKind::Busy, "{open}");
    snapshot.copy_rest().unwrap();
    assert!(!to.exists());
    drop(snapshot);
    assert_eq!(names(), ["disk.zbd"]);
    // A file that came meanwhile is not replaced.
    let mut snapshot = Snapshot::begin(&path, &to, WritesPrevented::ByLock).unwrap();
    snapshot.copy_rest().unwrap();
    std::fs::write(&to, "mine").unwrap();
    assert_eq!(snapshot.finish(true).unwrap_err().kind(), ErrorKind::Busy);
    assert_eq!(std::fs::read(&to).unwrap(), b"mine");
    assert_eq!(names(), ["copy.zbd", "disk.zbd"]);
    assert_eq!(
        Snapshot::begin(&path, &to, WritesPrevented::ByLock).unwrap_err().kind(),
        ErrorKind::Busy
    );
    // A disk that is open for writing needs a caller that keeps it still.
    let disk = hosted(&path);
    let other = dir.path("other.zbd");
    let busy = Snapshot::begin(&path, &other, WritesPrevented::ByLock).unwrap_err();
    assert_eq!(busy.kind(), ErrorKind::Busy, "{busy}");
    drop(disk);
    // What is no disk.
    let not = Snapshot::begin(&to, &other, WritesPrevented::ByLock).unwrap_err();
    assert_eq!(not.kind(), ErrorKind::Invalid, "{not}");
    assert_eq!(names(), ["copy.zbd", "disk.zbd"]);
    // A UUID that is kept.
    let mut snapshot = Snapshot::begin(&path, &other, WritesPrevented::ByLock).unwrap();
    snapshot.copy_rest().unwrap();
    let copied = snapshot.finish(false).unwrap();
    let original = FileDisk::open(&path, Access::ReadOnly).unwrap().identity();
    assert_eq!(copied.identity.uuid, original.uuid);
    let report = check(&other, false).unwrap();
    assert_eq!(report.problems, 0, "{report}");
    // A disk in memory, and one in two files, which are copied one by one.
    let second = dir.path("second.zbd");
    made(&second, false);
    for (spec, why) in [
        ("mem,zones=4".to_owned(), "this disk is in no file"),
        (format!("linear@{}%{}", path.display(), second.display()), "this disk is in 2 files"),
    ] {
        let disk = HostedDisk::open_spec(&spec).unwrap();
        let e = disk.snapshot(&dir.path("another.zbd"), true).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::NotSupported);
        assert!(e.what().starts_with(why), "{e}");
    }
}

/// What was copied first is not taken for what is there in the end: zones that were reset and written again as far or further,
/// shorter, or not; blocks of conventional zones that were discarded, alone or beside a write.
#[test]
fn a_zone_that_changes_after_it_was_copied_is_copied_again() {
    changes_after_it_was_copied("snapshot-again", false, || ());
}

/// On a disk that keeps its space a discard writes zeroes, and makes no hole.
#[test]
fn what_was_discarded_on_a_disk_that_keeps_its_space_is_copied_again() {
    changes_after_it_was_copied("snapshot-kept-space", true, || ());
}

/// Where the copy is on a file system without holes, zeroes are written into it.
#[test]
fn a_copy_without_holes_is_copied_again() {
    changes_after_it_was_copied("snapshot-no-holes", false, refuse_holes);
}

/// From now on fallocate(2) and the sharing of blocks (FICLONE) fail in this thread, as on a file system that has neither.
fn refuse_holes() {
    let op = |code: u32, k: u32, jt, jf| libc::sock_filter { code: code as u16, jt, jf, k };
    let load = |at| op(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, at, 0, 0);
    let is = |k, jt, jf| op(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, k, jt, jf);
    let end = |how| op(libc::BPF_RET | libc::BPF_K, how, 0, 0);
    // The offsets of the number of the call and of its second argument.
    let (call, second) = (0, 24);
    let mut filter = [
        load(call),
        is(libc::SYS_fallocate as u32, 3, 0),
        is(libc::SYS_ioctl as u32, 0, 3),
        load(second),
        is(libc::FICLONE as u32, 0, 1),
        end(libc::SECCOMP_RET_ERRNO | libc::EOPNOTSUPP as u32),
        end(libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the program lives across the call, which copies it.
    let done = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) == 0
    };
    assert!(done, "{}", std::io::Error::last_os_error());
}

/// Copies in a thread of its own, which does `begin` first.
fn apart<T: Send>(begin: fn(), copy: impl FnOnce() -> T + Send) -> T {
    let body = || {
        begin();
        copy()
    };
    std::thread::scope(|s| s.spawn(body).join().unwrap())
}

/// `begin`: what the threads do that copy.
fn changes_after_it_was_copied(name: &str, keeps_space: bool, begin: fn()) {
    let dir = Dir::new(name);
    let (path, to) = (dir.path("disk.zbd"), dir.path("copy.zbd"));
    made(&path, keeps_space);
    let disk = hosted(&path);
    let mut io = BlockingDisk::new(&disk).unwrap();
    let start = |zone: u32| disk.disk().geometry().zone_start(ZoneNo(zone));
    let fill = |io: &mut BlockingDisk, zone: u32, blocks: std::ops::Range<u64>, first: u64| {
        for n in blocks {
            io.write_from(start(zone).plus(n * SECTORS), &block(first + n)).unwrap();
        }
    };
    for zone in 0..6 {
        fill(&mut io, zone, 0..10, 100);
    }
    let mut snapshot = Snapshot::begin(&path, &to, WritesPrevented::ByCaller).unwrap();
    let copied = apart(begin, || snapshot.copy_ahead()).unwrap();
    // 0: the file system of the test lets them share blocks.
    assert!(copied == 0 || copied >= 60 * BLOCK, "{copied}");
    for zone in [2, 3, 4] {
        io.reset(start(zone), BLOCKS * SECTORS).unwrap();
    }
    fill(&mut io, 2, 0..20, 200);
    fill(&mut io, 3, 0..5, 200);
    fill(&mut io, 5, 10..20, 200);
    io.discard(start(0).plus(3 * SECTORS), SECTORS).unwrap();
    // And all of it once more, with another state in between.
    apart(begin, || snapshot.copy_ahead()).unwrap();
    io.reset(start(3), BLOCKS * SECTORS).unwrap();
    fill(&mut io, 3, 0..7, 300);
    io.discard(start(1).plus(3 * SECTORS), SECTORS).unwrap();
    fill(&mut io, 1, 5..6, 200);
    io.flush().unwrap();
    let frozen = disk.freeze().unwrap();
    apart(begin, || snapshot.copy_rest()).unwrap();
    drop(frozen);
    snapshot.finish(true).unwrap();
    assert_eq!(check(&to, false).unwrap().problems, 0);
    let copy =
        HostedDisk::open(FileDisk::open(&to, Access::ReadOnly).unwrap(), DiskConfig::default())
            .unwrap();
    let [mut of_disk, mut of_copy] = [&disk, &copy].map(|d| BlockingDisk::new(d).unwrap());
    for zone in 0..ZONES {
        let mut bytes = [vec![0; (BLOCKS * BLOCK) as usize], vec![0; (BLOCKS * BLOCK) as usize]];
        of_disk.read_into(start(zone), &mut bytes[0]).unwrap();
        of_copy.read_into(start(zone), &mut bytes[1]).unwrap();
        assert!(bytes[0] == bytes[1], "the data of zone {zone}");
        let [a, b] = [&mut of_disk, &mut of_copy].map(|io| io.zone(ZoneNo(zone)).unwrap());
        assert_eq!(a.wp, b.wp, "zone {zone}");
    }
    assert_eq!(
        number(&read(&mut of_copy, start(0).plus(3 * SECTORS))),
        0,
        "a block that was discarded"
    );
}

/// Between two copies of data another writer comes, which goes on from an older state of the disk: what the first one wrote
/// last is not in it. A zone that is as long again, or longer, is copied from its start, also where it has holes by then.
#[test]
fn what_was_copied_before_another_writer_came_is_copied_again() {
    let dir = Dir::new("snapshot-writer");
    let (path, to) = (dir.path("disk.zbd"), dir.path("copy.zbd"));
    made(&path, false);
    let write = |disk: &HostedDisk, zone: u32, blocks: std::ops::Range<u64>, first: u64| {
        let start = disk.disk().geometry().zone_start(ZoneNo(zone));
        let mut io = BlockingDisk::new(disk).unwrap();
        for n in blocks {
            io.write_from(start.plus(n * SECTORS), &block(first + n)).unwrap();
        }
        io.flush().unwrap();
    };
    let disk = hosted(&path);
    (0..4).for_each(|zone| write(&disk, zone, 0..5, 100));
    drop(disk);
    let older = std::fs::read(&path).unwrap();
    let disk = hosted(&path);
    (0..4).for_each(|zone| write(&disk, zone, 5..10, 200));
    let mut snapshot = Snapshot::begin(&path, &to, WritesPrevented::ByCaller).unwrap();
    snapshot.copy_ahead().unwrap();
    drop(disk);
    // A copy of the file with its holes, as a power cut or a backup may leave it.
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(0).unwrap();
    file.set_len(older.len() as u64).unwrap();
    for (n, bytes) in (0..).zip(older.chunks(BLOCK as usize)) {
        if bytes.iter().any(|b| *b != 0) {
            std::os::unix::fs::FileExt::write_all_at(&file, bytes, n * BLOCK).unwrap();
        }
    }
    let disk = hosted(&path);
    // A conventional zone has as many writes as before, one has fewer, and one sequential zone is as long.
    write(&disk, 0, 5..8, 300);
    (1..3).for_each(|zone| write(&disk, zone, 5..10, 300));
    write(&disk, 3, 5..20, 300);
    let frozen = disk.freeze().unwrap();
    snapshot.copy_rest().unwrap();
    drop(frozen);
    snapshot.finish(true).unwrap();
    assert_eq!(check(&to, false).unwrap().problems, 0);
    let copy = FileDisk::open(&to, Access::ReadOnly).unwrap();
    let copy = HostedDisk::open(copy, DiskConfig::default()).unwrap();
    let mut io = BlockingDisk::new(&copy).unwrap();
    for (zone, end) in [(0, 10), (1, 10), (2, 10), (3, 20)] {
        let start = disk.disk().geometry().zone_start(ZoneNo(zone));
        for n in 0..end {
            let want = match (zone, n) {
                (_, 0..5) => 100 + n,
                (0, 8..) => 0,
                _ => 300 + n,
            };
            let found = number(&read(&mut io, start.plus(n * SECTORS)));
            assert_eq!(found, want, "block {n} of zone {zone}");
        }
    }
}

fn read(io: &mut BlockingDisk, at: zoneplug_core::Sector) -> Vec<u8> {
    let mut bytes = vec![0; BLOCK as usize];
    io.read_into(at, &mut bytes).unwrap();
    bytes
}

/// Copying ahead leaves less for the rest: a zone that grew is copied from where it ended, and one that did not change is not.
#[test]
fn what_was_copied_ahead_is_not_copied_again() {
    let dir = Dir::new("snapshot-ahead");
    let (path, to) = (dir.path("disk.zbd"), dir.path("copy.zbd"));
    made(&path, false);
    let disk = hosted(&path);
    let mut io = BlockingDisk::new(&disk).unwrap();
    let mut append = |zone: u32, blocks: u64| {
        let start = disk.disk().geometry().zone_start(ZoneNo(zone));
        (0..blocks).for_each(|n| _ = io.append_from(start, &block(n + 1)).unwrap());
        io.flush().unwrap();
    };
    append(CONVENTIONAL, 20);
    append(CONVENTIONAL + 1, 20);
    let mut snapshot = Snapshot::begin(&path, &to, WritesPrevented::ByCaller).unwrap();
    let first = snapshot.copy_ahead().unwrap();
    if first == 0 {
        return println!("skipped: the file system lets them share blocks");
    }
    append(CONVENTIONAL, 3);
    let more = snapshot.copy_ahead().unwrap();
    assert!(first >= 40 * BLOCK && (3 * BLOCK..20 * BLOCK).contains(&more), "{first} {more}");
    assert_eq!(snapshot.copy_ahead().unwrap(), 0);
}
