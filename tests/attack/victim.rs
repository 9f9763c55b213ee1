//! The program that `scripts/attack` kills: it works on a disk from several threads, and leaves a record of each
//! operation before it submits it and after it has come back. The verifier (`attack.py`) reads the record in another
//! process, and decides from it alone what has to be on the disk.
//!
//!     victim spec=SPEC record=FILE seed=N run=N threads=N batches=N round=N [forks=SPEC]
//!
//! `batches`: what each thread does before the program ends by itself (0: works until it is killed). `round`: after so
//! many batches of each thread it closes the disk and opens it again (0: never). `forks`: now and then a thread forks, and the
//! child opens this disk for reading and asks for its zones, whatever the other threads did at the fork. Everything else is drawn
//! from `seed`.
//!
//! A record is a file that is only appended to, in frames of 64 bytes, little endian:
//!
//! | offset | size | what |
//! | --- | --- | --- |
//! | 0 | 4 | `ZPAT` |
//! | 4 | 1 | `S` submitted, `A` acknowledged |
//! | 5 | 1 | operation, see `Kind` |
//! | 6 | 1 | flags: 1 FUA, 2 preflush |
//! | 7 | 1 | status, 0: OK |
//! | 8 | 8 | number of the operation, unique in the life of a disk |
//! | 16 | 4 | zone |
//! | 20 | 4 | length in sectors |
//! | 24 | 8 | sector that it names |
//! | 32 | 8 | sector that the answer names |
//! | 48 | 16 | the status in words |
//!
//! Each sector that is written holds 32 times: the number of the operation (8 bytes), the sector within the operation
//! (4 bytes) and the place within the sector (4 bytes).
#![allow(clippy::unwrap_used, dead_code)]

use std::fs::File;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, RwLock};
use std::time::{Duration, Instant};
use zoneplug_buf::{AlignedBuf, Lent};
use zoneplug_core::zone::ZoneInfo;
use zoneplug_core::{Bio, Bios, Flags, Op, Sector, Status, ZoneNo};
use zoneplug_host::{Client, HostedDisk};

/// What a frame is about.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Kind {
    Write = 1,
    Append,
    Zeroes,
    Discard,
    Flush,
    Reset,
    ResetAll,
    Finish,
    Open,
    Close,
    /// The disk is closed, which makes everything durable.
    CloseDisk,
    /// The disk is open.
    OpenDisk,
}

/// One frame of the record.
#[derive(Clone, Copy)]
struct Frame {
    kind: Kind,
    flags: Flags,
    id: u64,
    zone: u32,
    len: u32,
    sector: u64,
}

impl Frame {
    fn plain(kind: Kind, id: u64) -> Frame {
        Frame { kind, flags: Flags::NONE, id, zone: u32::MAX, len: 0, sector: 0 }
    }

    fn bytes(&self, what: u8, status: Status, result: u64) -> [u8; 64] {
        let mut b = [0; 64];
        b[..4].copy_from_slice(b"ZPAT");
        (b[4], b[5], b[6], b[7]) = (what, self.kind as u8, self.flags.0, status as u8);
        b[8..16].copy_from_slice(&self.id.to_le_bytes());
        b[16..20].copy_from_slice(&self.zone.to_le_bytes());
        b[20..24].copy_from_slice(&self.len.to_le_bytes());
        b[24..32].copy_from_slice(&self.sector.to_le_bytes());
        b[32..40].copy_from_slice(&result.to_le_bytes());
        let words = format!("{status:?}");
        let words = &words.as_bytes()[..words.len().min(16)];
        b[48..48 + words.len()].copy_from_slice(words);
        b
    }
}

/// What all threads share.
struct World {
    record: File,
    threads: u32,
    ids: AtomicU64,
    /// Held for reading by each batch; for writing by a reset of all zones that nothing may run beside.
    quiet: RwLock<()>,
    weights: [u32; 10],
    fua: u32,
    /// The disk that a child of a fork reads.
    forks: Option<String>,
    unit: u32,
    max_append: u32,
    conventional: u32,
    zones: Vec<ZoneInfo>,
    /// Nothing that fails stays unnoticed.
    failed: Mutex<Option<String>>,
}

impl World {
    fn id(&self) -> u64 {
        self.ids.fetch_add(1, Ordering::Relaxed)
    }

    /// A frame is one write, so that frames of several threads never mix.
    fn put(&self, bytes: &[u8; 64]) {
        (&self.record).write_all(bytes).unwrap();
    }

    fn submitted(&self, f: &Frame) {
        self.put(&f.bytes(b'S', Status::Ok, 0));
    }

    fn acknowledged(&self, f: &Frame, status: Status, result: u64) {
        self.put(&f.bytes(b'A', status, result));
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, n: u32) -> u32 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 33) % u64::from(n.max(1))) as u32
    }
}

fn stamped(id: u64, sectors: u32) -> AlignedBuf {
    let mut buf = AlignedBuf::zeroed(sectors << 9);
    let mut bytes = Vec::with_capacity((sectors as usize) << 9);
    for sector in 0..sectors {
        for part in 0..32u32 {
            bytes.extend(id.to_le_bytes());
            bytes.extend(sector.to_le_bytes());
            bytes.extend(part.to_le_bytes());
        }
    }
    buf.write(0, &bytes);
    buf
}

struct Thread<'a> {
    world: &'a World,
    number: u32,
    random: Random,
    client: Client,
    depth: u32,
    /// Where each zone goes on, for those that are this thread's; `None`: the disk is asked.
    next: Vec<Option<u32>>,
}

/// An operation that is about to be submitted.
type Planned = (Frame, Box<Bio>, Option<Lent>);

impl Thread<'_> {
    fn zone(&self, zone: u32) -> &ZoneInfo {
        &self.world.zones[zone as usize]
    }

    fn plan(&self, kind: Kind, op: Op, zone: u32, sector: u64, len: u32, flags: Flags) -> Planned {
        let id = self.world.id();
        let (lent, mut bio) = match op.has_data().then(|| stamped(id, len).lend()) {
            Some((lent, buf)) => (Some(lent), Bio::with_buf(op, Sector(sector), len, buf)),
            None => (None, Bio::new(op, Sector(sector), len)),
        };
        bio.flags = flags;
        (Frame { kind, flags, id, zone, len, sector }, bio, lent)
    }

    /// Submits all of it at once and waits for all of it. False: something failed.
    fn run(&mut self, planned: Vec<Planned>) -> bool {
        let mut list = Bios::new();
        let mut frames = Vec::new();
        let mut loans = Vec::new();
        for (i, (frame, mut bio, lent)) in planned.into_iter().enumerate() {
            bio.set_token(i as u64);
            self.world.submitted(&frame);
            list.push_back(bio);
            frames.push(frame);
            loans.push(lent);
        }
        let (mut done, mut left, mut good) = (Bios::new(), frames.len(), true);
        while left > 0 {
            self.client.submit(&mut list);
            self.client.wait(&mut done, 1, None);
            for mut bio in done.drain(..) {
                let frame = &frames[bio.token() as usize];
                if let Some(lent) = loans[bio.token() as usize].take() {
                    drop(lent.take_back(bio.take_buf()).expect("its own memory"));
                }
                self.world.acknowledged(frame, bio.status, bio.sector.0);
                good &= bio.status.is_ok();
                left -= 1;
            }
        }
        good
    }

    fn one(&mut self, kind: Kind, op: Op, zone: u32) -> bool {
        let (sector, len) = match op {
            Op::Flush | Op::ZoneResetAll => (0, 0),
            _ => (self.zone(zone).start.0, self.zone(zone).len_sectors as u32),
        };
        let planned = self.plan(kind, op, zone, sector, len, Flags::NONE);
        self.run(vec![planned])
    }

    /// Asks the disk where a zone goes on; it also learns then, should it not know.
    fn report(&mut self, zone: u32) -> u32 {
        let (lent, buf) = AlignedBuf::zeroed(64).lend();
        let start = self.zone(zone).start;
        let bio = Bio::with_buf(Op::ReportZones, start, 0, buf);
        let (mut list, mut done) = (Bios::from([bio]), Bios::new());
        while done.is_empty() {
            self.client.submit(&mut list);
            self.client.wait(&mut done, 1, None);
        }
        if !done[0].status.is_ok() {
            *self.world.failed.lock().unwrap() = Some(format!("{:?}", done[0]));
        }
        let mut record = [0; 64];
        done[0].data().copy_to(0, &mut record);
        drop(lent.take_back(done[0].take_buf()).expect("its own memory"));
        ZoneInfo::decode(&record).unwrap().wp.0.saturating_sub(start.0) as u32
    }

    fn flags(&mut self) -> Flags {
        match self.random.below(1000) {
            n if n < self.world.fua => Flags::FUA,
            n if n < self.world.fua + self.world.fua / 3 => Flags::PREFLUSH,
            _ => Flags::NONE,
        }
    }

    /// Sectors of one operation: mostly few.
    fn len(&mut self, max: u32) -> u32 {
        let unit = self.world.unit;
        let units = match self.random.below(12) {
            0 => 64 * 8 / unit,
            1 | 2 => 1 + self.random.below(64),
            _ => 1 + self.random.below(8),
        };
        (units * unit).min(max / unit * unit)
    }

    /// One of the sequential zones: of this thread alone, or (`shared`) of all.
    fn pick(&mut self, shared: bool) -> u32 {
        let all = self.world.zones.len() as u32;
        loop {
            let zone = self.world.conventional + self.random.below(all - self.world.conventional);
            let kind = zone % (self.world.threads + 1);
            if kind == if shared { self.world.threads } else { self.number } {
                return zone;
            }
        }
    }

    fn write(&mut self) {
        let zone = self.pick(false);
        let (start, capacity) = (self.zone(zone).start.0, self.zone(zone).capacity_sectors as u32);
        let mut at = match self.next[zone as usize] {
            Some(at) => at,
            None => self.report(zone),
        };
        if at >= capacity || self.random.below(30) == 0 {
            self.manage(zone);
            return;
        }
        let mut planned = Vec::new();
        for _ in 0..=self.random.below(self.depth) {
            let len = self.len(capacity - at);
            if len == 0 {
                break;
            }
            let (flags, sector) = (self.flags(), start + u64::from(at));
            planned.push(match self.random.below(40) {
                0 => self.plan(Kind::Zeroes, Op::WriteZeroes, zone, sector, len, flags),
                _ => self.plan(Kind::Write, Op::Write, zone, sector, len, flags),
            });
            at += len;
        }
        let good = self.run(planned);
        self.next[zone as usize] = good.then_some(at);
    }

    fn append(&mut self) {
        let shared = self.random.below(4) != 0;
        let zone = self.pick(shared);
        let sector = self.zone(zone).start.0;
        let mut planned = Vec::new();
        for _ in 0..=self.random.below(self.depth) {
            let len = self.len(self.world.max_append.min(128));
            let flags = self.flags();
            planned.push(self.plan(Kind::Append, Op::ZoneAppend, zone, sector, len, flags));
        }
        self.next[zone as usize] = None;
        if !self.run(planned) && self.report(zone) >= self.zone(zone).len_sectors as u32 {
            self.one(Kind::Reset, Op::ZoneReset, zone);
        }
    }

    fn manage(&mut self, zone: u32) {
        let (kind, op) = match self.random.below(9) {
            0 => (Kind::Finish, Op::ZoneFinish),
            1 => (Kind::Open, Op::ZoneOpen),
            2 => (Kind::Close, Op::ZoneClose),
            _ => (Kind::Reset, Op::ZoneReset),
        };
        self.next[zone as usize] = None;
        self.one(kind, op, zone);
    }

    fn conventional(&mut self) {
        if self.world.conventional == 0 {
            return self.write();
        }
        let zone = self.random.below(self.world.conventional);
        let (start, capacity) = (self.zone(zone).start.0, self.zone(zone).capacity_sectors as u32);
        let mut planned = Vec::new();
        for _ in 0..=self.random.below(4) {
            let at = self.random.below(capacity / self.world.unit) * self.world.unit;
            let len = self.len(capacity - at);
            let (flags, sector) = (self.flags(), start + u64::from(at));
            planned.push(match self.random.below(12) {
                0 => self.plan(Kind::Discard, Op::Discard, zone, sector, len, Flags::NONE),
                1 => self.plan(Kind::Zeroes, Op::WriteZeroes, zone, sector, len, flags),
                _ => self.plan(Kind::Write, Op::Write, zone, sector, len, flags),
            });
        }
        self.run(planned);
    }

    /// A batch of writes and appends of one zone, all in flight together.
    fn mixed(&mut self) {
        let zone = self.pick(false);
        let (start, capacity) = (self.zone(zone).start.0, self.zone(zone).capacity_sectors as u32);
        let mut at = match self.next[zone as usize] {
            Some(at) => at,
            None => self.report(zone),
        };
        let mut planned = Vec::new();
        for _ in 0..=self.random.below(self.depth) {
            let len = self.len((capacity - at.min(capacity)).min(self.world.max_append.min(128)));
            if len == 0 {
                break;
            }
            let flags = self.flags();
            planned.push(match self.random.below(2) {
                0 => self.plan(Kind::Append, Op::ZoneAppend, zone, start, len, flags),
                _ => self.plan(Kind::Write, Op::Write, zone, start + u64::from(at), len, flags),
            });
            at += len;
        }
        if planned.is_empty() {
            return self.manage(zone);
        }
        // Where a device places appends itself, a write behind one may come too early.
        self.next[zone as usize] = self.run(planned).then_some(at);
    }

    /// Forks, and waits for the child.
    fn fork(&self, spec: &str) {
        let begun = Instant::now();
        // SAFETY: no pointers. The child goes on with a copy of this thread alone, which the library is made for.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: no pointers. A child that hangs outlives a parent that is killed, for so long.
            unsafe { libc::alarm(20) };
            let opened = HostedDisk::open_spec(spec);
            let code = match opened.map(|disk| zones(&disk).len() == self.world.zones.len()) {
                Ok(true) => 0,
                Ok(false) => 5,
                Err(_) => 6,
            };
            // SAFETY: no pointers. Nothing of the parent is ended by the end of its child.
            unsafe { libc::_exit(code) };
        }
        let mut status = 0;
        // SAFETY: `status` outlives the call.
        while child > 0 && unsafe { libc::waitpid(child, &mut status, libc::WNOHANG) } == 0 {
            if begun.elapsed() > Duration::from_secs(10) {
                eprintln!("victim: a child of a fork hangs");
                std::process::exit(4);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        if status != 0 {
            eprintln!("victim: a child of a fork ended with {status:#x}");
            std::process::exit(4);
        }
    }

    fn batch(&mut self) {
        let world = self.world;
        if let Some(spec) = world.forks.as_deref().filter(|_| self.random.below(60) == 0) {
            self.fork(spec);
        }
        let mut draw = self.random.below(world.weights.iter().sum());
        let what = world.weights.iter().position(|w| {
            let here = draw < *w;
            draw = draw.saturating_sub(*w);
            here
        });
        if what == Some(0) {
            let _alone = world.quiet.write().unwrap();
            self.one(Kind::ResetAll, Op::ZoneResetAll, u32::MAX);
            return;
        }
        let _beside = world.quiet.read().unwrap();
        match what {
            Some(1) => drop(self.one(Kind::ResetAll, Op::ZoneResetAll, u32::MAX)),
            Some(2) => drop(self.one(Kind::Flush, Op::Flush, u32::MAX)),
            Some(3) => self.conventional(),
            Some(4 | 5) => self.append(),
            Some(6) => {
                let zone = self.pick(true);
                self.manage(zone);
            }
            Some(7) => {
                let zone = self.pick(false);
                self.manage(zone);
            }
            Some(9) => self.mixed(),
            _ => self.write(),
        }
    }
}

/// Zones of a disk, as it reports them.
fn zones(disk: &HostedDisk) -> Vec<ZoneInfo> {
    let nr = disk.disk().geometry().nr_zones();
    zoneplug_host::BlockingDisk::new(disk).unwrap().report(Sector(0), nr).unwrap()
}

fn value<'a>(args: &'a [String], key: &str) -> &'a str {
    args.iter().find_map(|a| a.strip_prefix(key)?.strip_prefix('=')).unwrap_or("0")
}

/// The program, with its arguments.
pub(crate) fn run(args: &[String]) {
    let number = |key| value(args, key).parse::<u64>().unwrap();
    let (seed, threads) = (number("seed"), number("threads") as u32);
    let (batches, round) = (number("batches"), number("round"));
    let mut random = Random(seed);
    random.below(1);
    // Few runs flush often: a flush covers what a bug loses.
    let flush = [0, 2, 8][random.below(3) as usize];
    let (alone, beside) = (random.below(4), random.below(2));
    let weights = [alone, beside, flush, 8, 15, 15, random.below(3), 2, 40, 20];
    let fua = [0, 10, 40][random.below(3) as usize];
    let record = File::options().append(true).create(true).open(value(args, "record")).unwrap();
    // The record of a run begins with its number, so that no two operations have the same.
    let mut ids = number("run") << 32;
    let (mut gone, mut turn) = (0, 0);
    loop {
        let disk = match HostedDisk::open_spec(value(args, "spec")) {
            Ok(disk) => disk,
            Err(e) => {
                eprintln!("victim: {e}");
                std::process::exit(3);
            }
        };
        let (g, l) = (disk.disk().geometry(), disk.disk().limits());
        let conventional = (0..g.nr_zones()).filter(|z| g.is_conventional(ZoneNo(*z))).count();
        let world = World {
            record: record.try_clone().unwrap(),
            threads,
            ids: AtomicU64::new(ids + 1),
            quiet: RwLock::new(()),
            weights,
            fua,
            forks: Some(value(args, "forks").to_owned()).filter(|spec| spec != "0"),
            unit: l.logical_block_sectors.max(l.write_granularity_sectors),
            max_append: match l.zone_append_max_sectors {
                0 => 1024,
                n => n,
            },
            conventional: conventional as u32,
            zones: zones(&disk),
            failed: Mutex::new(None),
        };
        world.acknowledged(&Frame::plain(Kind::OpenDisk, world.id()), Status::Ok, 0);
        let now = match (round, batches) {
            (0, 0) => u64::MAX,
            (0, n) => n - gone,
            (n, 0) => n,
            (n, m) => n.min(m - gone),
        };
        std::thread::scope(|s| {
            for number in 0..threads {
                let (disk, world) = (&disk, &world);
                s.spawn(move || {
                    let depth = 16;
                    let mut thread = Thread {
                        world,
                        number,
                        random: Random(seed ^ (u64::from(number) << 40) ^ (turn << 20)),
                        client: disk.open_client(64, 16).unwrap(),
                        depth,
                        next: vec![None; world.zones.len()],
                    };
                    thread.random.below(1);
                    for _ in 0..now {
                        thread.batch();
                    }
                });
            }
        });
        gone += now;
        turn += 1;
        let end = batches > 0 && gone >= batches;
        if let Some(failed) = world.failed.lock().unwrap().take() {
            eprintln!("victim: {failed}");
            std::process::exit(4);
        }
        if end && seed % 2 == 0 {
            // Without a close, as when the power goes.
            std::process::exit(0);
        }
        let close = Frame::plain(Kind::CloseDisk, world.id());
        world.submitted(&close);
        drop(disk);
        world.acknowledged(&close, Status::Ok, 0);
        ids = world.id();
        if end {
            return;
        }
    }
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    run(&args);
}
