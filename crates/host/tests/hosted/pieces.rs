//! Commands whose memory is in more pieces than one call of the kernel takes: it moves a part, and the rest has to go
//! where it belongs, with io_uring, with threads and inline.

use std::path::{Path, PathBuf};
use zoneplug_buf::{AlignedBuf, IoBuf, Segment};
use zoneplug_core::{Bio, Bios, Op, Sector};
use zoneplug_host::file::{CreateOptions, create};
use zoneplug_host::{BlockingDisk, Client, HostedDisk};

/// Most pieces of one call (`UIO_MAXIOV`).
const MOST: usize = 1024;

/// Memory in pieces of a sector, each 1024 bytes after the one before, hence never neighbours. It is never freed.
struct Pieces {
    whole: IoBuf,
    list: &'static [Segment],
}

impl Pieces {
    fn new(nr: usize) -> Pieces {
        let whole = IoBuf::leaked(nr as u32 * 1024);
        // SAFETY: addresses for the list; see `buf`.
        let piece = |i| unsafe { whole.segments(i as u32 * 1024, 512) }.next().unwrap();
        let list = (0..nr).map(piece).collect::<Vec<_>>().leak();
        Pieces { whole, list }
    }

    fn buf(&self) -> IoBuf {
        // SAFETY: the list and the memory are never freed, and `run` has the BIO back before they are read.
        unsafe { IoBuf::from_segments(self.list.as_ptr(), self.list.len() as u32 * 512) }
    }

    fn fill(&mut self, of: impl Fn(usize) -> u8) {
        (0..self.list.len()).for_each(|i| self.whole.copy_from(i as u32 * 1024, &[of(i); 512]));
    }

    /// The byte that all of a piece consists of.
    fn piece(&self, i: usize) -> u8 {
        let mut v = [0; 512];
        self.whole.copy_to(i as u32 * 1024, &mut v);
        assert!(v.iter().all(|b| *b == v[0]), "piece {i} is of several");
        v[0]
    }
}

/// What piece `i` of a write holds. No two pieces that are 1024 apart hold the same.
fn mark(seed: usize, i: usize) -> u8 {
    ((i * 7 + i / 256 * 13 + seed) % 251 + 1) as u8
}

fn run(client: &mut Client, op: Op, sector: Sector, p: &Pieces) {
    let bio = Bio::with_buf(op, sector, p.list.len() as u32, p.buf());
    let (mut list, mut done) = (Bios::from([bio]), Bios::new());
    client.submit(&mut list);
    client.wait(&mut done, 1, None);
    assert!(list.is_empty() && done[0].status.is_ok(), "{op:?}: {:?}", done[0].status);
}

fn check(path: &Path, io: &str) {
    let _ = std::fs::remove_file(path);
    let o = CreateOptions {
        zones: Some(4),
        zone_size: Some(4 << 20),
        lba_size: Some(512),
        ..CreateOptions::default()
    };
    create(path, &o, false).unwrap();
    let disk = HostedDisk::open_spec(&format!("{}{io}", path.display())).unwrap();
    let mut client = disk.open_client(4, 4).unwrap();
    let mut at = Sector(0);
    for (seed, nr) in [MOST, MOST + 1, 3 * MOST - 1, 2 * MOST].into_iter().enumerate() {
        let mut p = Pieces::new(nr);
        p.fill(|i| mark(seed, i));
        run(&mut client, Op::Write, at, &p);
        // In one piece: what is on the disk.
        let read: AlignedBuf = BlockingDisk::new(&disk).unwrap().read(at, nr as u64).unwrap();
        for (i, sector) in read.to_vec().chunks(512).enumerate() {
            assert!(sector.iter().all(|b| *b == mark(seed, i)), "{io} {nr}: sector {i} written");
        }
        p.fill(|_| 0);
        run(&mut client, Op::Read, at, &p);
        for i in 0..nr {
            assert_eq!(p.piece(i), mark(seed, i), "{io} {nr}: sector {i} read");
        }
        at = at.plus(nr as u64);
    }
    drop((client, disk));
    std::fs::remove_file(path).unwrap();
}

fn path(dir: &Path) -> PathBuf {
    dir.join(format!("zoneplug-pieces-{}.zbd", std::process::id()))
}

#[test]
fn the_rest_of_a_short_transfer_goes_where_it_belongs() {
    let path = path(Path::new(env!("CARGO_TARGET_TMPDIR")));
    for io in [",io=ring", ",io=ring,direct=0", ",io=threads"] {
        check(&path, io);
    }
}

/// On tmpfs, where nothing waits.
#[test]
fn so_does_that_of_a_copy() {
    let shm = Path::new("/dev/shm");
    if shm.is_dir() {
        check(&path(shm), "");
    }
}
