//! What a BIO costs: nanoseconds, and with `--count CASE N` a bare run for an instruction counter.
//!
//! `cargo bench -p zoneplug-core --bench cost` prints the table: ns per BIO as the median of several runs, beside
//! mode `none`, a memcpy and a mutex pair of the same run. `scripts/cost` counts instructions with callgrind.

#![allow(clippy::disallowed_macros, clippy::disallowed_methods, clippy::vec_box)]

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use zoneplug_core::disk::{Disk, DiskConfig, DiskQueue, Mode};
use zoneplug_core::sched::Scheduler;
use zoneplug_core::zone::Geometry;
use zoneplug_core::{
    Bio, BioPool, Bios, Command, Commands, Device, IoBuf, Nanos, Op, Sector, ZoneNo,
};
use zoneplug_devices::emu::{EmuConfig, EmuDisk, EmuKind};
use zoneplug_devices::stack::Po2Disk;

const NOW: Nanos = Nanos(0);
const ZONES: u64 = 4096;
const ZONE_SECTORS: u32 = 256 << 11;
const RUNS: usize = 7;

#[derive(Clone, Copy, PartialEq)]
enum Work {
    Seq,
    Append,
    Random,
    Read,
}

/// The zones of the device.
#[derive(Clone, Copy, PartialEq)]
enum Zones {
    /// A power of two.
    Po2,
    /// A power of two, and the first half of the zones is conventional: writes there take no plug. Counted only.
    Conventional,
    /// 4 KiB shorter. Counted only: what is sent knows nothing of gaps.
    Other,
    /// The same, under a layer that makes powers of two of them.
    Layer,
}

#[derive(Clone, Copy)]
struct Case {
    name: &'static str,
    mode: Mode,
    nomerges: bool,
    qd1: bool,
    scheduler: Scheduler,
    work: Work,
    depth: usize,
    block: u32,
    kind: EmuKind,
    zones: Zones,
}

const fn case(name: &'static str, mode: Mode, work: Work, depth: usize) -> Case {
    let scheduler = Scheduler::None;
    Case {
        name,
        mode,
        nomerges: false,
        qd1: false,
        scheduler,
        work,
        depth,
        block: 8,
        kind: EmuKind::Null,
        zones: Zones::Po2,
    }
}

const CASES: &[Case] = &[
    case("seq-1", Mode::Plug, Work::Seq, 1),
    case("seq-16", Mode::Plug, Work::Seq, 16),
    case("seq-128", Mode::Plug, Work::Seq, 128),
    Case { nomerges: true, ..case("seq-16-nomerges", Mode::Plug, Work::Seq, 16) },
    case("append-16", Mode::Plug, Work::Append, 16),
    case("random-1", Mode::Plug, Work::Random, 1),
    case("random-16", Mode::Plug, Work::Random, 16),
    case("read-1", Mode::Plug, Work::Read, 1),
    case("read-16", Mode::Plug, Work::Read, 16),
    case("none-seq-1", Mode::None, Work::Seq, 1),
    case("none-seq-16", Mode::None, Work::Seq, 16),
    case("none-random-1", Mode::None, Work::Random, 1),
    case("none-random-16", Mode::None, Work::Random, 16),
    Case { qd1: true, ..case("qd1-seq-1", Mode::Plug, Work::Seq, 1) },
    Case { qd1: true, ..case("qd1-seq-16", Mode::Plug, Work::Seq, 16) },
    Case { qd1: true, ..case("qd1-random-16", Mode::Plug, Work::Random, 16) },
    Case { scheduler: Scheduler::MqDeadline, ..case("mq-seq-1", Mode::Plug, Work::Seq, 1) },
    Case { scheduler: Scheduler::MqDeadline, ..case("mq-random-16", Mode::Plug, Work::Random, 16) },
    Case { scheduler: Scheduler::MqDeadline, ..case("mq-read-16", Mode::Plug, Work::Read, 16) },
    case("lock-random-16", Mode::Lock, Work::Random, 16),
    Case { zones: Zones::Conventional, ..case("conv-seq-1", Mode::Plug, Work::Seq, 1) },
    Case { zones: Zones::Conventional, ..case("conv-random-16", Mode::Plug, Work::Random, 16) },
    Case { zones: Zones::Other, ..case("npo2-seq-1", Mode::Plug, Work::Seq, 1) },
    Case { zones: Zones::Other, ..case("npo2-seq-16", Mode::Plug, Work::Seq, 16) },
    Case { zones: Zones::Other, ..case("npo2-random-16", Mode::Plug, Work::Random, 16) },
    Case { zones: Zones::Other, ..case("npo2-read-1", Mode::Plug, Work::Read, 1) },
    Case { zones: Zones::Other, ..case("npo2-read-16", Mode::Plug, Work::Read, 16) },
    Case { zones: Zones::Layer, ..case("po2-seq-1", Mode::Plug, Work::Seq, 1) },
    Case { zones: Zones::Layer, ..case("po2-seq-16", Mode::Plug, Work::Seq, 16) },
    Case { zones: Zones::Layer, ..case("po2-random-16", Mode::Plug, Work::Random, 16) },
    Case { zones: Zones::Layer, ..case("po2-read-1", Mode::Plug, Work::Read, 1) },
    Case { zones: Zones::Layer, ..case("po2-read-16", Mode::Plug, Work::Read, 16) },
    Case { kind: EmuKind::Mem, ..case("mem-4k-16", Mode::Plug, Work::Seq, 16) },
    Case { kind: EmuKind::Mem, block: 2048, ..case("mem-1m-16", Mode::Plug, Work::Seq, 16) },
];

fn disk(c: &Case) -> (Arc<EmuDisk>, Disk) {
    // The memory disk is small enough to be written whole, so that its pages are warm.
    let (zones, sectors) = match c.kind {
        EmuKind::Null => (ZONES, ZONE_SECTORS),
        EmuKind::Mem => (16, 16 << 11),
    };
    let sectors = sectors - if matches!(c.zones, Zones::Other | Zones::Layer) { 8 } else { 0 };
    let mut geometry = Geometry::new(zones, sectors, sectors).expect("a good geometry");
    if c.zones == Zones::Conventional {
        let half = (0..zones as u32 / 2).map(ZoneNo);
        geometry = geometry.with_conventional(half).expect("the other half is sequential");
    }
    let device = EmuDisk::new(EmuConfig::new(c.kind, geometry)).expect("a good disk");
    let top: Arc<dyn Device> = match c.zones {
        Zones::Layer => Po2Disk::new(device.clone()).expect("a layer"),
        _ => device.clone(),
    };
    let config = DiskConfig {
        mode: c.mode,
        nomerges: c.nomerges,
        zoned_qd1_writes: Some(c.qd1),
        scheduler: c.scheduler,
        ..DiskConfig::default()
    };
    let disk = Disk::open(top, config, &mut |_| NOW).expect("an emulated disk opens");
    (device, disk)
}

/// A load generator: one client that keeps `depth` BIOs in flight.
struct Client {
    queue: DiskQueue,
    pool: BioPool,
    list: Bios,
    done: Bios,
    work: Work,
    depth: usize,
    block: u32,
    sectors: u64,
    zone_sectors: u64,
    zones: u64,
    at: u64,
    wps: Vec<u64>,
    rng: u64,
    errors: u64,
}

impl Client {
    fn new(disk: &Disk, c: &Case, first_zone: u64, zones: u64) -> Client {
        let g = disk.geometry();
        let zone_sectors = u64::from(g.zone_sectors());
        // Each BIO has memory of its own, and keeps it.
        let mut pool = BioPool::new(0);
        for _ in 0..c.depth {
            let buf = IoBuf::leaked(c.block << 9);
            pool.put(Bio::with_buf(Op::Write, Sector(0), c.block, buf));
        }
        Client {
            queue: disk.open_polled_queue(c.depth as u32, c.depth as u16).expect("a queue opens"),
            pool,
            list: Bios::with_capacity(c.depth),
            done: Bios::with_capacity(c.depth),
            work: c.work,
            depth: c.depth,
            block: c.block,
            sectors: g.capacity().0,
            zone_sectors,
            zones,
            at: first_zone * zone_sectors,
            wps: (0..zones).map(|z| (first_zone + z) * zone_sectors).collect(),
            rng: 0x2545_f491_4f6c_dd1d,
            errors: 0,
        }
    }

    #[inline]
    fn random(&mut self) -> u64 {
        self.rng ^= self.rng << 13;
        self.rng ^= self.rng >> 7;
        self.rng ^= self.rng << 17;
        self.rng
    }

    #[inline]
    fn next(&mut self) -> Box<Bio> {
        let mut bio = self.pool.get();
        let n = u64::from(self.block);
        match self.work {
            Work::Seq => {
                if self.at == self.sectors {
                    self.at = 0;
                }
                bio.renew(Op::Write, Sector(self.at), self.block);
                self.at += n;
            }
            Work::Append => {
                let zone = self.at & !(self.zone_sectors - 1);
                bio.renew(Op::ZoneAppend, Sector(zone), self.block);
                self.at += n;
            }
            Work::Random => {
                let z = (self.random() % self.zones) as usize;
                bio.renew(Op::Write, Sector(self.wps[z]), self.block);
                self.wps[z] += n;
            }
            Work::Read => {
                let block = self.random() % (self.sectors / n);
                bio.renew(Op::Read, Sector(block * n), self.block);
            }
        }
        bio
    }

    fn run(&mut self, n: u64) {
        let mut left = n;
        let mut in_flight = 0;
        while left > 0 || in_flight > 0 {
            while in_flight < self.depth && left > 0 {
                let bio = self.next();
                self.list.push_back(bio);
                in_flight += 1;
                left -= 1;
            }
            self.queue.submit(NOW, &mut self.list);
            self.queue.poll(NOW, &mut self.done);
            in_flight -= self.done.len();
            while let Some(bio) = self.done.pop_front() {
                self.errors += u64::from(!bio.status.is_ok());
                self.pool.put(bio);
            }
        }
        assert_eq!(self.errors, 0, "every BIO succeeds");
    }

    fn reset(&mut self) {
        self.list.push_back(Bio::new(Op::ZoneResetAll, Sector(0), 0));
        self.queue.submit(NOW, &mut self.list);
        while self.done.is_empty() {
            self.queue.poll(NOW, &mut self.done);
        }
        assert!(self.done.pop_front().is_some_and(|b| b.status.is_ok()));
        self.at = 0;
    }
}

/// The driver and the bare device, without the layer.
fn raw(depth: usize, n: u64) {
    let (device, _disk) = disk(&CASES[0]);
    let mut queue =
        device.open_queue(depth as u16, std::task::Waker::noop().clone()).expect("opens");
    let bio = || Bio::with_buf(Op::Write, Sector(0), 8, IoBuf::leaked(4096));
    let mut pool: Vec<_> = (0..depth).map(|_| Command::of(bio())).collect();
    let (mut list, mut done) = (Commands::new(), Commands::new());
    let (mut at, mut left) = (0, n);
    while left > 0 {
        for _ in 0..depth.min(left as usize) {
            let mut c = pool.pop().expect("one for each tag");
            c.set(Op::Write, Sector(at), 8, zoneplug_core::Flags::NONE);
            at += 8;
            left -= 1;
            list.push_back(c);
        }
        queue.submit(NOW, &mut list);
        queue.poll(NOW, &mut done);
        while let Some(c) = done.pop_front() {
            assert!(c.status.is_ok());
            pool.push(c);
        }
    }
}

fn median(mut v: Vec<f64>) -> f64 {
    v.sort_by(f64::total_cmp);
    v[v.len() / 2]
}

fn timed(n: u64, mut f: impl FnMut()) -> f64 {
    median(
        (0..RUNS)
            .map(|_| {
                let t = Instant::now();
                f();
                t.elapsed().as_nanos() as f64 / n as f64
            })
            .collect(),
    )
}

fn ns(c: &Case) -> f64 {
    let (_, disk) = disk(c);
    let mut client = Client::new(&disk, c, 0, 64.min(u64::from(disk.geometry().nr_zones())));
    match c.kind {
        EmuKind::Null => {
            // Each run stays inside what the zones hold.
            let n = 1_000_000;
            client.run(10_000);
            let mut client = client;
            timed(n, || {
                if c.work == Work::Append {
                    client.at = (client.at / client.zone_sectors + 40) * client.zone_sectors;
                }
                if c.work == Work::Append {
                    for _ in 0..n / 50_000 {
                        client.run(50_000);
                        client.at = (client.at / client.zone_sectors + 1) * client.zone_sectors;
                    }
                } else {
                    client.run(n);
                }
                if c.work == Work::Random {
                    client.reset_random();
                }
            })
        }
        EmuKind::Mem => {
            let n = client.sectors / u64::from(c.block);
            client.run(n);
            client.reset();
            timed(n, || {
                client.run(n);
                client.reset();
            })
        }
    }
}

impl Client {
    fn reset_random(&mut self) {
        self.reset();
        for z in 0..self.zones {
            self.wps[z as usize] = z * self.zone_sectors;
        }
    }
}

fn memcpy_ns(bytes: usize) -> f64 {
    let total = 256usize << 20;
    let src = vec![1u8; bytes];
    let mut dst = vec![0u8; total];
    dst.fill(2);
    let n = total / bytes;
    timed(n as u64, || {
        for chunk in dst.chunks_exact_mut(bytes) {
            chunk.copy_from_slice(black_box(&src));
        }
        black_box(&mut dst);
    })
}

/// Compare-and-exchange operations that nobody contends.
fn cas(n: u64) {
    let word = AtomicU64::new(0);
    for i in 0..n {
        let swapped =
            black_box(&word).compare_exchange(i, i + 1, Ordering::AcqRel, Ordering::Relaxed);
        assert!(swapped.is_ok());
    }
}

/// Pairs of lock and unlock that nobody contends.
fn mutex(n: u64) {
    let m = std::sync::Mutex::new(0u64);
    for _ in 0..n {
        *black_box(&m).lock().expect("not poisoned") += 1;
    }
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    if let Some(i) = args.iter().position(|a| a == "--count") {
        let (name, n): (&str, u64) = (&args[i + 1], args[i + 2].parse().expect("a number"));
        match name {
            "cas" => return cas(n),
            "mutex" => return mutex(n),
            _ => {}
        }
        if let Some(depth) = name.strip_prefix("raw-") {
            return raw(depth.parse().expect("a depth"), n);
        }
        let c = CASES.iter().find(|c| c.name == name).expect("a case");
        let (_, disk) = disk(c);
        let zones = 64.min(u64::from(disk.geometry().nr_zones()));
        return Client::new(&disk, c, 0, zones).run(n);
    }
    println!("build: {}; one thread, Driven; ns per BIO, median of {RUNS}", profile());
    let pair = timed(10_000_000, || mutex(10_000_000));
    println!("{:<20} {pair:>8.1}", "mutex pair");
    for depth in [1, 16] {
        let t = timed(1_000_000, || raw(depth, 1_000_000));
        println!("{:<20} {t:>8.1}", format!("raw-{depth}"));
    }
    for c in CASES.iter().filter(|c| c.zones == Zones::Po2) {
        let t = ns(c);
        let beside = match (c.kind, c.block) {
            (EmuKind::Mem, b) => {
                let m = memcpy_ns(b as usize * 512);
                format!("{:.2} of memcpy ({m:.0})", t / m)
            }
            _ => String::new(),
        };
        println!("{:<20} {t:>8.1}  {beside}", c.name);
    }
}

fn profile() -> &'static str {
    if cfg!(debug_assertions) { "debug" } else { "bench: opt-level 3, fat LTO, one codegen unit" }
}
