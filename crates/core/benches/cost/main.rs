//! What a BIO costs, on one thread that polls.
//!
//! `cargo bench -p zoneplug-core --bench cost` prints nanoseconds per BIO. All cases run in one process and take short
//! slices in turns. The table gives the minimum, the tenth percentile and the median of the slices, and the minimum as a
//! multiple of an uncontended compare-and-exchange and of a mutex pair, so that machines can be compared. Disks that
//! keep data are compared with a memcpy. `-- --help` lists the options.

#![allow(clippy::disallowed_macros, clippy::disallowed_methods, clippy::vec_box)]

mod cases;
mod client;
mod slices;

use cases::{CASES, Case, disk};
use client::{Client, Raw};
use slices::{Alone, Figures, Slices, cas, timed};
use std::hint::black_box;
use std::sync::Mutex;
use zoneplug_core::Nanos;
use zoneplug_devices::emu::EmuKind;

const NOW: Nanos = Nanos(0);
/// BIOs in a slice, and how many go ahead of it untimed, so that the other cases leave nothing cold.
const BIOS: u64 = 2000;
const AHEAD: u64 = 128;
/// Turns that are not counted. The preparation leaves a large disk in the caches, and it takes some turns until other
/// disks have replaced it there.
const WARM_UP: usize = 50;
/// Rounds of the two loops that are the units of the other figures.
const LOOP: u64 = 20_000;
/// With more slices `Raw`, which never resets its disk, would come to the end of it.
const MOST_SLICES: usize = 50_000;

const HELP: &str = "\
cargo bench -p zoneplug-core --bench cost -- [OPTIONS] [NAME ...]

  --slices N      how many slices each case takes, instead of 2,000
  --json          prints data instead of tables
  --count CASE N  sends N BIOs of one case and prints nothing, for scripts/cost
  NAME ...        measures only cases whose name contains one of these";

/// Pairs of lock and unlock without contention.
fn mutex(n: u64) {
    let m = Alone(Mutex::new(0u64));
    let m = &black_box(&m).0;
    for _ in 0..n {
        *m.lock().expect("not poisoned") += 1;
    }
}

/// A row of a table.
struct Row {
    name: String,
    /// The number of BIOs, or of rounds of a loop, in a slice.
    bios: u64,
    /// Runs a slice and returns ns per BIO.
    slice: Box<dyn FnMut() -> f64>,
    slices: Slices,
}

impl Row {
    fn new(name: impl Into<String>, bios: u64, slice: impl FnMut() -> f64 + 'static) -> Row {
        Row { name: name.into(), bios, slice: Box::new(slice), slices: Slices::default() }
    }

    fn case(c: &Case) -> Row {
        let (_, disk) = disk(c);
        let mut client = Client::new(&disk, c);
        client.prepare(c);
        let (bios, ahead) = bios(c);
        Row::new(c.name, bios, move || {
            client.make_room(ahead + bios);
            client.run(ahead);
            timed(bios, || client.run(bios))
        })
    }

    fn raw(depth: usize) -> Row {
        let (device, _) = disk(&CASES[0]);
        let mut client = Raw::new(&device, depth);
        Row::new(format!("raw-{depth}"), BIOS, move || {
            client.run(AHEAD);
            timed(BIOS, || client.run(BIOS))
        })
    }

    /// Copies what a slice of a case copies, through 256 MiB, as the case has.
    fn memcpy(c: &Case) -> Row {
        let (block, (bios, _)) = (c.block as usize * 512, bios(c));
        let source = vec![1u8; block];
        let mut memory = vec![2u8; 256 << 20];
        let mut at = 0;
        Row::new(format!("memcpy of {}", c.name), bios, move || {
            let ns = timed(bios, || {
                for _ in 0..bios {
                    memory[at..at + block].copy_from_slice(black_box(&source));
                    at = (at + block) % memory.len();
                }
            });
            black_box(&mut memory);
            ns
        })
    }
}

/// How many BIOs a slice of a case has, and how many go ahead of it. Large BIOs take long, so one full queue is a slice.
fn bios(c: &Case) -> (u64, u64) {
    if c.block > 8 { (c.depth as u64, 0) } else { (BIOS, AHEAD) }
}

/// Each row takes a slice, then each takes its next one.
fn in_turns(rows: &mut [Row], slices: usize) {
    for turn in 0..WARM_UP + slices {
        for row in &mut *rows {
            let ns = (row.slice)();
            if turn >= WARM_UP {
                row.slices.push(ns);
            }
        }
    }
}

struct Options {
    slices: usize,
    json: bool,
    names: Vec<String>,
}

impl Options {
    fn parse(args: &[String]) -> Result<Options, String> {
        let mut options = Options { slices: 2000, json: false, names: Vec::new() };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--bench" => {} // cargo adds it
                "--json" => options.json = true,
                "--slices" => {
                    options.slices = args
                        .next()
                        .and_then(|n| n.parse().ok())
                        .filter(|n| (1..=MOST_SLICES).contains(n))
                        .ok_or(format!("--slices wants a number from 1 to {MOST_SLICES}"))?;
                }
                flag if flag.starts_with('-') => return Err(format!("unknown option {flag}")),
                name => options.names.push(name.to_owned()),
            }
        }
        Ok(options)
    }

    fn wants(&self, name: &str) -> bool {
        self.names.is_empty() || self.names.iter().any(|part| name.contains(part.as_str()))
    }
}

/// Sends `n` BIOs of a case, or runs `n` rounds of a loop, while scripts/cost counts the instructions.
fn run_for_count(name: &str, n: u64) {
    match name {
        "cas" => return cas(n),
        "mutex" => return mutex(n),
        _ => {}
    }
    if let Some(depth) = name.strip_prefix("raw-") {
        let (device, _) = disk(&CASES[0]);
        return Raw::new(&device, depth.parse().expect("a depth")).run(n);
    }
    let c = CASES.iter().find(|c| c.name == name).expect("a case");
    let (_, disk) = disk(c);
    Client::new(&disk, c).run(n);
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [flag, name, n, ..] = args.as_slice()
        && flag == "--count"
    {
        return run_for_count(name, n.parse().expect("a number"));
    }
    if args.iter().any(|arg| arg == "--help") {
        return println!("{HELP}");
    }
    if let Err(error) = Options::parse(&args).and_then(|options| measure(&options)) {
        eprintln!("error: {error}\n\n{HELP}");
        std::process::exit(2);
    }
}

fn measure(options: &Options) -> Result<(), String> {
    let timed_cases = || CASES.iter().filter(|c| c.zones.timed() && options.wants(c.name));
    let mut null = vec![
        Row::new("cas", LOOP, || timed(LOOP, || cas(LOOP))),
        Row::new("mutex pair", LOOP, || timed(LOOP, || mutex(LOOP))),
    ];
    null.extend([1, 16].into_iter().filter(|d| options.wants(&format!("raw-{d}"))).map(Row::raw));
    null.extend(timed_cases().filter(|c| c.kind == EmuKind::Null).map(Row::case));
    // These have turns of their own, because they drive everything else out of the caches.
    let mut mem: Vec<Row> = timed_cases()
        .filter(|c| c.kind == EmuKind::Mem)
        .flat_map(|c| [Row::case(c), Row::memcpy(c)])
        .collect();
    if null.len() == 2 && mem.is_empty() {
        return Err("no case that is measured has such a name".to_owned());
    }
    in_turns(&mut null, options.slices);
    in_turns(&mut mem, options.slices);
    let print = if options.json { json } else { tables };
    print(&null, &mem, options.slices);
    Ok(())
}

/// The minimum, in units of the minimum of each of the two loops.
fn multiples(null: &[Row], figures: Figures) -> (f64, f64) {
    let min = |row: &Row| row.slices.figures().min;
    (figures.min / min(&null[0]), figures.min / min(&null[1]))
}

fn tables(null: &[Row], mem: &[Row], slices: usize) {
    println!("build: {}; one thread that polls", profile());
    println!("ns per BIO; {slices} slices of {BIOS} BIOs, or of a full queue if BIOs are large;");
    println!("all cases in turns. x cas, x mutex, x copy: the minimum as a multiple of the");
    println!("minimum of cas, of a mutex pair, of the memcpy\n");
    let head = |name, last| println!("{name:<20} {:>8} {:>8} {:>8} {last}", "min", "p10", "median");
    let line = |name: &str, f: Figures| {
        print!("{name:<20} {:>8.1} {:>8.1} {:>8.1}", f.min, f.p10, f.median);
    };
    head("null, 4 KiB", "  x cas x mutex");
    for row in null {
        let figures = row.slices.figures();
        let (cas, mutex) = multiples(null, figures);
        line(&row.name, figures);
        println!(" {cas:>7.2} {mutex:>7.2}");
    }
    if !mem.is_empty() {
        println!();
        head("in memory", " x copy");
    }
    for pair in mem.chunks_exact(2) {
        let [figures, copy] = [&pair[0], &pair[1]].map(|row| row.slices.figures());
        line(&pair[0].name, figures);
        println!(" {:>7.2}", figures.min / copy.min);
        line("  memcpy", copy);
        println!(" {:>7.2}", 1.0);
    }
}

/// One row a line.
fn json(null: &[Row], mem: &[Row], slices: usize) {
    println!("{{\"build\": \"{}\", \"slices\": {slices}, \"cases\": [", profile());
    let rows = null.len() + mem.len();
    for (i, row) in null.iter().chain(mem).enumerate() {
        let figures = row.slices.figures();
        let Figures { min, p10, median } = figures;
        let (cas, mutex) = multiples(null, figures);
        let comma = if i + 1 < rows { "," } else { "" };
        println!(
            "{{\"case\": \"{}\", \"bios\": {}, \"min\": {min:.2}, \"p10\": {p10:.2}, \"median\": {median:.2}, \
             \"cas\": {cas:.2}, \"mutex\": {mutex:.2}}}{comma}",
            row.name, row.bios
        );
    }
    println!("]}}");
}

fn profile() -> &'static str {
    if cfg!(debug_assertions) { "debug" } else { "bench: opt-level 3, fat LTO, one codegen unit" }
}
