//! What threads cost: a hosted disk beside a disk that the program polls itself, and two clients on threads of their own
//! beside one. ns per BIO, null disk, 4 KiB.
//!
//! `cargo bench -p zoneplug-host --bench hosted`. `-- --help` lists the options.

#![allow(clippy::disallowed_macros, clippy::disallowed_methods)]

mod cpus;
mod load;
mod port;
#[path = "../../../core/benches/cost/slices.rs"]
mod slices;

use load::{Load, ZONE_SECTORS, Zones, together};
use port::Port;
use slices::{Figures, Slices, cas, timed};
use std::sync::Barrier;
use zoneplug_core::Nanos;
use zoneplug_core::disk::{Disk, DiskConfig};
use zoneplug_core::zone::Geometry;
use zoneplug_devices::emu::{EmuConfig, EmuDisk, EmuKind};
use zoneplug_host::HostedDisk;

const HELP: &str = "\
cargo bench -p zoneplug-host --bench hosted -- [--slices N]

  --slices N   how many slices each row takes, instead of 500

Two threads use the first two processors that the process may use. Choose others
with taskset.";

const ZONES: u64 = 4096;
/// BIOs that go ahead of a slice untimed, so that the other rows leave nothing cold.
const AHEAD: u64 = 500;
/// Turns that do not count.
const WARM_UP: usize = 10;
/// With more slices a client would come to the end of its disk.
const MOST_SLICES: usize = 50_000;
/// Two threads ran at the same time in a slice if the slower one had done this part of its work when the faster one ended.
/// Other slices do not count: if another program takes a processor from one thread, the other has the disk for itself, and
/// the slice looks as if threads did not slow each other.
const SHARE: f64 = 0.5;
/// If two disks give less than this, as a multiple of one thread, two threads have less than two cores.
const TWO_CORES: f64 = 1.5;

fn device() -> std::sync::Arc<EmuDisk> {
    let geometry = Geometry::new(ZONES, ZONE_SECTORS, ZONE_SECTORS).expect("a good geometry");
    EmuDisk::new(EmuConfig::new(EmuKind::Null, geometry)).expect("a good disk")
}

fn hosted() -> HostedDisk {
    HostedDisk::open(device(), DiskConfig::default()).expect("an emulated disk opens")
}

/// A row of the table.
struct Row {
    name: &'static str,
    /// Runs a slice. Returns ns per BIO, or nothing if the slice does not count.
    slice: Box<dyn FnMut() -> Option<f64>>,
    slices: Slices,
    counted: usize,
}

impl Row {
    fn new(name: &'static str, slice: impl FnMut() -> Option<f64> + 'static) -> Row {
        Row { name, slice: Box::new(slice), slices: Slices::default(), counted: 0 }
    }

    /// One client on the calling thread.
    fn one<P: Port + 'static>(name: &'static str, port: P, depth: u16) -> Row {
        let mut load = Load::new(port, depth.into(), Zones::From(0), 0);
        let n = bios(depth, Zones::From(0));
        Row::new(name, move || {
            load.run(AHEAD);
            let ns = timed(n, || load.run(n));
            load.check();
            Some(ns)
        })
    }

    fn driven(name: &'static str, depth: u16) -> Row {
        let disk = Disk::open(device(), DiskConfig::default(), &mut |_| Nanos(0)).expect("opens");
        Row::one(name, disk.open_polled_queue(depth.into(), depth).expect("opens"), depth)
    }

    fn hosted(name: &'static str, depth: u16) -> Row {
        Row::one(name, hosted().open_client(depth.into(), depth).expect("opens"), depth)
    }

    /// As many clients as `zones` has entries, each on a thread of its own. They share one disk, or have one each.
    fn threads(name: &'static str, shared: bool, depth: u16, zones: &[Zones]) -> Row {
        let cpus = cpus::allowed();
        let one = hosted();
        // Each client is opened and warmed up on a thread of its own, and the threads exist at the same time. So the
        // allocator takes the memory of each from an arena of its own. If clients shared cache lines by chance, the
        // figures would depend on what was allocated before.
        let opened = Barrier::new(zones.len());
        let mut loads: Vec<_> = std::thread::scope(|s| {
            let spawned: Vec<_> = (0..)
                .zip(zones)
                .map(|(number, &zones)| {
                    let (one, opened) = (&one, &opened);
                    s.spawn(move || {
                        let disk = if shared { one.clone() } else { hosted() };
                        let client = disk.open_client(depth.into(), depth).expect("opens");
                        let mut load = Load::new(client, depth.into(), zones, number);
                        load.run(AHEAD);
                        opened.wait();
                        load
                    })
                })
                .collect();
            spawned.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        });
        let n = bios(depth, zones[0]);
        Row::new(name, move || {
            let slice = together(&mut loads, &cpus, AHEAD, n);
            (slice.share >= SHARE).then_some(slice.ns)
        })
    }

    fn figures(&self) -> Option<Figures> {
        (self.counted > 0).then(|| self.slices.figures())
    }
}

/// How many BIOs a slice has: some hundred microseconds.
fn bios(depth: u16, zones: Zones) -> u64 {
    match (depth, zones) {
        (1, _) => 2000,
        (_, Zones::Shared(2..)) => 4000,
        _ => 20_000,
    }
}

/// Rows that are compared with each other.
struct Group {
    title: &'static str,
    rows: Vec<Row>,
}

/// One thread, then two, on the same zones.
fn sharing(title: &'static str, depth: u16, zones: u64) -> Group {
    let zones = [Zones::Shared(zones); 2];
    let rows = vec![
        Row::threads("one thread", true, depth, &zones[..1]),
        Row::threads("two threads", true, depth, &zones),
    ];
    Group { title, rows }
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let slices = match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => 500,
        ["--slices", n] if n.parse().is_ok_and(|n| (1..=MOST_SLICES).contains(&n)) => {
            n.parse().expect("it did just now")
        }
        ["--help"] => return println!("{HELP}"),
        _ => {
            eprintln!("error: --slices N is the only option, with N from 1 to {MOST_SLICES}");
            std::process::exit(2);
        }
    };
    if cpus::allowed().len() < 2 {
        eprintln!("error: two threads need two processors, and this process may use only one");
        std::process::exit(2);
    }
    let one = vec![
        Row::new("compare-and-exchange", || Some(timed(20_000, || cas(20_000)))),
        Row::driven("depth 1, Driven", 1),
        Row::hosted("depth 1, Hosted", 1),
        Row::driven("depth 16, Driven", 16),
        Row::hosted("depth 16, Hosted", 16),
    ];
    let apart = [Zones::From(0), Zones::From(ZONES / 2)];
    let own = vec![
        Row::threads("one thread", true, 16, &apart[..1]),
        Row::threads("two threads, two disks", false, 16, &apart),
        Row::threads("two threads, one disk", true, 16, &apart),
    ];
    let mut groups = [
        Group { title: "one client", rows: one },
        Group { title: "zones of its own each, depth 16", rows: own },
        sharing("one shared zone, depth 1", 1, 1),
        sharing("one shared zone, depth 16", 16, 1),
        sharing("64 shared zones, depth 16", 16, 64),
    ];
    for turn in 0..WARM_UP + slices {
        for row in groups.iter_mut().flat_map(|group| &mut group.rows) {
            if let Some(ns) = (row.slice)()
                && turn >= WARM_UP
            {
                row.slices.push(ns);
                row.counted += 1;
            }
        }
    }
    let profile = if cfg!(debug_assertions) { "debug" } else { "bench: fat LTO, one codegen unit" };
    println!("build: {profile}; null disk, 4 KiB emulated appends");
    println!("ns per BIO; {slices} slices of each row, all rows in turns\n");
    let [one, own, shared @ ..] = &groups;
    one_client(one);
    println!("\nTwo threads: ns per BIO of both together. A slice counts if both ran in it.");
    println!("times: throughput as a multiple of one thread's, of the tenth percentiles");
    threads(own);
    control(own);
    shared.iter().for_each(threads);
}

fn head(title: &str, more: &str) {
    println!("{title:<32} {:>7} {:>7} {:>7} {more}", "min", "p10", "median");
}

fn line(name: &str, f: Figures) {
    print!("{name:<32} {:>7.1} {:>7.1} {:>7.1}", f.min, f.p10, f.median);
}

/// Multiples of the first row's minimum; and of each Hosted, what it adds to the Driven above it.
fn one_client(group: &Group) {
    head(group.title, "  x cas");
    let mut before = 0.0;
    let mut cas = None;
    for row in &group.rows {
        let figures = row.figures().expect("each slice counts");
        line(row.name, figures);
        print!(" {:>7.2}", figures.min / *cas.get_or_insert(figures.min));
        if row.name.ends_with("Hosted") {
            print!("  {:+.1} ns", figures.min - before);
        }
        println!();
        before = figures.min;
    }
}

/// Multiples of the first row's throughput. The tenth percentile is not the minimum: the fastest slice of two threads
/// that contend is the one in which they met least.
fn threads(group: &Group) {
    println!();
    head(group.title, " slices   times");
    let one = group.rows[0].figures();
    for row in &group.rows {
        if let (Some(one), Some(figures)) = (one, row.figures()) {
            line(row.name, figures);
            println!(" {:>7} {:>7.2}", row.counted, one.p10 / figures.p10);
        } else {
            println!("{:<32} no slice in which both threads ran", row.name);
        }
    }
}

/// Says what two separate disks gain, and what one disk gives beside them.
fn control(own: &Group) {
    let [Some(one), Some(two), Some(shared)] = [0, 1, 2].map(|i| own.rows[i].figures()) else {
        return;
    };
    println!("one disk gives {:.2} of what two give", two.p10 / shared.p10);
    let times = one.p10 / two.p10;
    if times < TWO_CORES {
        println!(
            "Two separate disks give only {times:.2} times one thread, less than {TWO_CORES}: the\n\
             processors are siblings on one core, or other programs use them. Compare\n\
             rows of two threads with that, not with 2."
        );
    }
}
