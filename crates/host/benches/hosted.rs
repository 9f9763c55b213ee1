//! What threads cost: Hosted beside Driven for one client that polls, and two clients on two threads beside a control
//! of the same minute. ns per BIO, null disk, 4 KiB, medians.
//!
//! `cargo bench -p zoneplug-host --bench hosted`

use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;
use zoneplug_core::disk::{Disk, DiskConfig, DiskQueue};
use zoneplug_core::zone::Geometry;
use zoneplug_core::{Bio, BioPool, Bios, IoBuf, Nanos, Op, Sector};
use zoneplug_devices::emu::{EmuConfig, EmuDisk, EmuKind};
use zoneplug_host::{Client, HostedDisk};

const RUNS: usize = 7;
const ZONES: u64 = 4096;
/// 16 GiB: a run of one client must fit.
const ZONE_SECTORS: u32 = 16 << 21;
/// BIOs that fill half a zone.
const HALF: u64 = 2_000_000;

trait Port: Send {
    fn submit(&mut self, bios: &mut Bios);
    fn poll(&mut self, done: &mut Bios);
}

struct Driven(DiskQueue);

impl Port for Driven {
    fn submit(&mut self, bios: &mut Bios) {
        self.0.submit(Nanos(0), bios);
    }
    fn poll(&mut self, done: &mut Bios) {
        self.0.poll(Nanos(0), done);
    }
}

impl Port for Client {
    fn submit(&mut self, bios: &mut Bios) {
        Client::submit(self, bios);
    }
    fn poll(&mut self, done: &mut Bios) {
        Client::poll(self, done);
    }
}

fn device() -> std::sync::Arc<EmuDisk> {
    let geometry = Geometry::new(ZONES, ZONE_SECTORS, ZONE_SECTORS).expect("a good geometry");
    EmuDisk::new(EmuConfig::new(EmuKind::Null, geometry)).expect("a good disk")
}

fn hosted() -> HostedDisk {
    HostedDisk::open(device(), DiskConfig::default()).expect("an emulated disk opens")
}

/// Which zones appends go to.
#[derive(Clone, Copy)]
enum Zones {
    /// The `n`th, and the following ones when it is full.
    From(u64),
    /// One for all clients, another one in each run.
    Shared,
    /// 64 for all clients, others in each run; at random.
    Shared64,
}

/// A client that appends or writes, keeping `depth` BIOs in flight.
struct Load<P> {
    port: P,
    pool: BioPool,
    list: Bios,
    done: Bios,
    depth: usize,
    zones: Zones,
    run: u64,
    count: u64,
    rng: u64,
}

/// What every append moves.
static BLOCK: [u8; 4096] = [0; 4096];

impl<P: Port> Load<P> {
    fn new(port: P, depth: usize, zones: Zones) -> Self {
        let seed = 0x9e37_79b9_7f4a_7c15;
        Load {
            port,
            pool: BioPool::new(depth),
            list: Bios::with_capacity(depth),
            done: Bios::with_capacity(depth),
            depth,
            zones,
            run: 0,
            count: 0,
            rng: seed,
        }
    }

    #[inline]
    fn next(&mut self) -> Box<Bio> {
        let mut bio = self.pool.get();
        let zone = match self.zones {
            Zones::From(first) => first + self.count / HALF,
            Zones::Shared => self.run,
            Zones::Shared64 => {
                self.rng ^= self.rng << 13;
                self.rng ^= self.rng >> 7;
                self.rng ^= self.rng << 17;
                self.run * 64 + self.rng % 64
            }
        };
        bio.set(
            Op::ZoneAppend,
            Sector(zone * u64::from(ZONE_SECTORS)),
            8,
            IoBuf::from_static(&BLOCK),
        );
        self.count += 1;
        bio
    }

    fn run(&mut self, n: u64) {
        let (mut left, mut in_flight) = (n, 0);
        while left > 0 || in_flight > 0 {
            while in_flight < self.depth && left > 0 {
                let bio = self.next();
                self.list.push_back(bio);
                in_flight += 1;
                left -= 1;
            }
            self.port.submit(&mut self.list);
            self.port.poll(&mut self.done);
            in_flight -= self.done.len();
            while let Some(bio) = self.done.pop_front() {
                assert!(bio.status.is_ok(), "{}", bio.status);
                self.pool.put(bio);
            }
        }
        self.run += 1;
    }
}

fn median(mut v: Vec<f64>) -> f64 {
    v.sort_by(f64::total_cmp);
    v[v.len() / 2]
}

fn one<P: Port>(load: &mut Load<P>, n: u64) -> f64 {
    let t = Instant::now();
    load.run(n);
    t.elapsed().as_nanos() as f64 / n as f64
}

/// One round of all clients at the same time; ns per BIO of all together.
fn round(loads: &mut [Load<Client>], n: u64) -> f64 {
    let (go, running) = (Barrier::new(loads.len()), AtomicUsize::new(loads.len()));
    let total = n * loads.len() as u64;
    let t = Instant::now();
    std::thread::scope(|s| {
        for load in loads {
            let (go, running) = (&go, &running);
            s.spawn(move || {
                go.wait();
                load.run(n);
                running.fetch_sub(1, Ordering::Relaxed);
            });
        }
    });
    t.elapsed().as_nanos() as f64 / total as f64
}

/// Two ways in turn, so that both meet the same machine: medians of each, and of the ratio `a / b`.
fn in_turn(mut a: impl FnMut() -> f64, mut b: impl FnMut() -> f64) -> (f64, f64, f64) {
    let pairs: Vec<(f64, f64)> = (0..RUNS).map(|_| (a(), b())).collect();
    (
        median(pairs.iter().map(|p| p.0).collect()),
        median(pairs.iter().map(|p| p.1).collect()),
        median(pairs.iter().map(|p| p.0 / p.1).collect()),
    )
}

fn main() {
    let profile = if cfg!(debug_assertions) { "debug" } else { "bench: fat LTO, one codegen unit" };
    println!("build: {profile}; null disk, 4 KiB emulated appends, ns per BIO, medians of {RUNS}");
    for depth in [1, 16] {
        let driven = Disk::open(device(), DiskConfig::default(), &mut |_| Nanos(0)).expect("opens");
        let queue = driven.open_polled_queue(depth as u32, depth as u16).expect("opens");
        let mut d = Load::new(Driven(queue), depth, Zones::From(0));
        let disk = hosted();
        let client = disk.open_client(depth as u32, depth as u16).expect("opens");
        let mut h = Load::new(client, depth, Zones::From(0));
        let n = 1_000_000;
        let (a, b, _) = in_turn(|| one(&mut d, n), || one(&mut h, n));
        println!("depth {depth:<3} Driven {a:6.1}   Hosted {b:6.1}   {:+.1}", b - a);
    }
    let client = |d: &HostedDisk| d.open_client(16, 16).expect("opens");
    // Different zones, beside two separate disks.
    let (disk, x, y) = (hosted(), hosted(), hosted());
    let mut apart = [
        Load::new(client(&disk), 16, Zones::From(0)),
        Load::new(client(&disk), 16, Zones::From(2000)),
    ];
    let mut control =
        [Load::new(client(&x), 16, Zones::From(0)), Load::new(client(&y), 16, Zones::From(2000))];
    let n = 2_000_000;
    let (c, a, r) = in_turn(|| round(&mut control, n), || round(&mut apart, n));
    println!(
        "two threads, two disks {c:6.1}   one disk, different zones {a:6.1}   {r:.2} of the control"
    );
    for (name, zones, n) in
        [("one shared zone", Zones::Shared, HALF), ("64 shared zones", Zones::Shared64, HALF)]
    {
        let (alone, disk) = (hosted(), hosted());
        let mut single = [Load::new(client(&alone), 16, zones)];
        let mut both = [Load::new(client(&disk), 16, zones), Load::new(client(&disk), 16, zones)];
        let (s, b, r) = in_turn(|| round(&mut single, n), || round(&mut both, n));
        println!(
            "one thread, {name} {s:6.1}   two threads {b:6.1}   {r:.2} of one thread in total"
        );
    }
}
