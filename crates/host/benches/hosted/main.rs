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
mod threads;
mod words;

use load::{Load, ZONE_SECTORS, Zones};
use port::Port;
use slices::{Figures, Slices, cas, timed};
use std::sync::{Arc, Barrier};
use threads::{Work, together};
use words::{Exchanges, Exchanging, Words};
use zoneplug_core::Nanos;
use zoneplug_core::disk::{Disk, DiskConfig};
use zoneplug_core::zone::Geometry;
use zoneplug_devices::emu::{EmuConfig, EmuDisk, EmuKind};
use zoneplug_host::{Client, HostedDisk};

const HELP: &str = "\
cargo bench -p zoneplug-host --bench hosted -- [OPTIONS] [TITLE ...]

  --slices N   how many slices each row takes, instead of 500
  TITLE ...    takes only the groups whose title contains one of these

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
const SHARE: f64 = 0.85;
/// If two disks give less than this, as a multiple of one thread, two threads have less than two cores.
const TWO_CORES: f64 = 1.5;

fn device() -> Arc<EmuDisk> {
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
        let zones = Zones::own(0, 1);
        let mut load = Load::new(port, depth.into(), zones, 0);
        let n = bios(depth, zones);
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
    fn clients(name: &'static str, shared: bool, depth: u16, zones: &[Zones]) -> Row {
        Row::threads(name, shared, depth, zones, |client| client)
    }

    /// Clients with zones of their own, which exchange two shared words for each command: what the threads would need if
    /// they shared nothing but the word of a plug and the write pointer that the emulated disk keeps.
    fn control(name: &'static str, depth: u16, zones: &[Zones; 2]) -> Row {
        let words = Words::new(zones[0].nr as usize, 2);
        Row::threads(name, true, depth, zones, move |port| Exchanging {
            port,
            words: words.clone(),
        })
    }

    /// As [`Row::clients`], with what `port` makes of each client.
    fn threads<P: Port + 'static>(
        name: &'static str,
        shared: bool,
        depth: u16,
        zones: &[Zones],
        port: impl Fn(Client) -> P + Sync,
    ) -> Row {
        let one = hosted();
        // Each client is opened and warmed up on a thread of its own, and the threads exist at the same time. So the
        // allocator takes the memory of each from an arena of its own. If clients shared cache lines by chance, the
        // figures would depend on what was allocated before.
        let opened = Barrier::new(zones.len());
        let loads: Vec<_> = std::thread::scope(|s| {
            let spawned: Vec<_> = (0..)
                .zip(zones)
                .map(|(number, &zones)| {
                    let (one, opened, port) = (&one, &opened, &port);
                    s.spawn(move || {
                        let disk = if shared { one.clone() } else { hosted() };
                        let client = disk.open_client(depth.into(), depth).expect("opens");
                        let mut load = Load::new(port(client), depth.into(), zones, number);
                        load.run(AHEAD);
                        opened.wait();
                        load
                    })
                })
                .collect();
            spawned.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        });
        Row::together(name, loads, bios(depth, zones[0]))
    }

    /// As many threads as this that exchange the words of a group, and do nothing else.
    fn words(name: &'static str, threads: u64, groups: usize, group: usize) -> Row {
        let words = Words::new(groups, group);
        let loads = (0..threads).map(|number| Exchanges::new(words.clone(), number)).collect();
        Row::together(name, loads, 5000)
    }

    /// Each load on a thread of its own, with `n` units of work in a slice.
    fn together<W: Work + 'static>(name: &'static str, mut loads: Vec<W>, n: u64) -> Row {
        let cpus = cpus::allowed();
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
        (_, Zones { nr: 2.., .. }) => 4000,
        _ => 20_000,
    }
}

/// Rows that are compared with each other.
struct Group {
    title: &'static str,
    rows: Vec<Row>,
    print: fn(&Group),
}

/// One thread, then two, on the same zones.
fn sharing(title: &'static str, depth: u16, nr: u64) -> Group {
    let zones = [Zones::shared(nr); 2];
    let own = [Zones::own(0, nr), Zones::own(ZONES / 2, nr)];
    let rows = vec![
        Row::clients("one thread", true, depth, &zones[..1]),
        Row::clients("two threads", true, depth, &zones),
        Row::control("own zones, two shared words", depth, &own),
    ];
    Group { title, rows, print: threads }
}

struct Options {
    slices: usize,
    titles: Vec<String>,
}

impl Options {
    fn parse(args: impl Iterator<Item = String>) -> Result<Options, String> {
        let mut options = Options { slices: 500, titles: Vec::new() };
        let mut args = args.filter(|arg| arg != "--bench");
        while let Some(arg) = args.next() {
            match &arg[..] {
                "--help" => {
                    println!("{HELP}");
                    std::process::exit(0);
                }
                "--slices" => {
                    let n = args.next().and_then(|n| n.parse().ok());
                    options.slices = n
                        .filter(|n| (1..=MOST_SLICES).contains(n))
                        .ok_or(format!("--slices takes a number from 1 to {MOST_SLICES}"))?;
                }
                _ if arg.starts_with('-') => return Err(format!("no option {arg}")),
                _ => options.titles.push(arg),
            }
        }
        Ok(options)
    }

    fn takes(&self, title: &str) -> bool {
        self.titles.is_empty() || self.titles.iter().any(|part| title.contains(&part[..]))
    }
}

fn groups() -> [Group; 6] {
    let one = vec![
        Row::new("compare-and-exchange", || Some(timed(20_000, || cas(20_000)))),
        Row::driven("depth 1, Driven", 1),
        Row::hosted("depth 1, Hosted", 1),
        Row::driven("depth 16, Driven", 16),
        Row::hosted("depth 16, Hosted", 16),
    ];
    let apart = [Zones::own(0, 1), Zones::own(ZONES / 2, 1)];
    let own = vec![
        Row::clients("one thread", true, 16, &apart[..1]),
        Row::clients("two threads, two disks", false, 16, &apart),
        Row::clients("two threads, one disk", true, 16, &apart),
    ];
    let words = vec![
        Row::words("one thread, one word", 1, 1, 1),
        Row::words("two threads, one word", 2, 1, 1),
        Row::words("two threads, both of two words", 2, 1, 2),
        Row::words("two threads, any of 64 words", 2, 64, 1),
        Row::words("two threads, any of 64 pairs", 2, 64, 2),
    ];
    [
        Group { title: "one client", rows: one, print: one_client },
        Group { title: "zones of its own each, depth 16", rows: own, print: own_zones },
        Group { title: "exchanges alone", rows: words, print: threads },
        sharing("one shared zone, depth 1", 1, 1),
        sharing("one shared zone, depth 16", 16, 1),
        sharing("64 shared zones, depth 16", 16, 64),
    ]
}

fn main() {
    let options = Options::parse(std::env::args().skip(1)).unwrap_or_else(|error| {
        eprintln!("error: {error}");
        std::process::exit(2);
    });
    if cpus::allowed().len() < 2 {
        eprintln!("error: two threads need two processors, and this process may use only one");
        std::process::exit(2);
    }
    let slices = options.slices;
    let mut groups = Vec::from(groups());
    groups.retain(|group| options.takes(group.title));
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
    println!("ns per BIO; {slices} slices of each row, all rows in turns");
    println!("Two threads: ns per BIO of both together. A slice counts if both ran in it.");
    println!("times: throughput as a multiple of one thread's, of the tenth percentiles");
    for group in &groups {
        println!();
        (group.print)(group);
    }
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

/// Says also what two separate disks gain, and what one disk gives beside them.
fn own_zones(own: &Group) {
    threads(own);
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
