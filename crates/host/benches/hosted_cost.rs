//! What a client of a hosted disk executes for a BIO, beside a program that polls the disk itself. Counts need no quiet
//! machine: `--count CASE N` is a bare run of `N` BIOs for an instruction counter such as callgrind.
//!
//! `cargo bench -p zoneplug-host --bench hosted_cost` runs every case once, as a check that it works.
//!
//! * `driven-D`, `hosted-D`: emulated appends to one zone, `D` BIOs in flight.
//! * `hand-over`: two clients append one BIO each to one zone. The first sends and completes both, and the second gets
//!   its BIO through its mailbox. Both run on one thread, so the count is the same each time.

#![allow(clippy::disallowed_macros)]

#[path = "hosted/port.rs"]
mod port;

use port::Port;
use std::sync::Arc;
use zoneplug_core::disk::{Disk, DiskConfig};
use zoneplug_core::zone::Geometry;
use zoneplug_core::{BioPool, Bios, IoBuf, Nanos, Op, Sector};
use zoneplug_devices::emu::{EmuConfig, EmuDisk, EmuKind};
use zoneplug_host::HostedDisk;

/// A zone holds 4 million BIOs of 4 KiB.
const ZONE_SECTORS: u32 = 16 << 21;
const CASES: [&str; 5] = ["driven-1", "driven-16", "hosted-1", "hosted-16", "hand-over"];

static BLOCK: [u8; 4096] = [0; 4096];

fn device() -> Arc<EmuDisk> {
    let geometry = Geometry::new(16, ZONE_SECTORS, ZONE_SECTORS).expect("a good geometry");
    EmuDisk::new(EmuConfig::new(EmuKind::Null, geometry)).expect("a good disk")
}

/// One port with its own BIOs.
struct Load<P> {
    port: P,
    pool: BioPool,
    list: Bios,
    done: Bios,
}

impl<P: Port> Load<P> {
    fn new(port: P, depth: usize) -> Self {
        let list = || Bios::with_capacity(depth);
        Load { port, pool: BioPool::new(depth), list: list(), done: list() }
    }

    fn submit(&mut self, nr: usize) {
        for _ in 0..nr {
            let mut bio = self.pool.get();
            bio.set(Op::ZoneAppend, Sector(0), 8, IoBuf::from_static(&BLOCK));
            self.list.push_back(bio);
        }
        self.port.submit(&mut self.list);
    }

    /// Polls once, and returns how many BIOs came back.
    fn poll(&mut self) -> usize {
        self.port.poll(&mut self.done);
        let nr = self.done.len();
        while let Some(bio) = self.done.pop_front() {
            assert!(bio.status.is_ok(), "{}", bio.status);
            self.pool.put(bio);
        }
        nr
    }
}

fn alone<P: Port>(port: P, depth: usize, nr: usize) {
    let mut load = Load::new(port, depth);
    let mut left = nr;
    while left > 0 {
        let batch = left.min(depth);
        load.submit(batch);
        assert_eq!(load.poll(), batch, "the device ends commands when they are submitted");
        left -= batch;
    }
}

fn hand_over(disk: &HostedDisk, nr: usize) {
    let load = || Load::new(disk.open_client(1, 1).expect("opens"), 1);
    let (mut first, mut second) = (load(), load());
    for _ in 0..nr / 2 {
        first.submit(1);
        // The first client's write is not polled yet, so this one is parked behind it.
        second.submit(1);
        assert_eq!(first.poll(), 1);
        assert_eq!(second.poll(), 0, "the first client's queue has it");
        assert_eq!(first.poll(), 0);
        assert_eq!(second.poll(), 1);
    }
}

fn run(case: &str, nr: usize) {
    let depth: u16 = if case.ends_with("16") { 16 } else { 1 };
    let hosted = || HostedDisk::open(device(), DiskConfig::default()).expect("opens");
    match case {
        "hand-over" => hand_over(&hosted(), nr),
        "hosted-1" | "hosted-16" => {
            let client = hosted().open_client(depth.into(), depth).expect("opens");
            alone(client, depth.into(), nr);
        }
        "driven-1" | "driven-16" => {
            let disk =
                Disk::open(device(), DiskConfig::default(), &mut |_| Nanos(0)).expect("opens");
            let queue = disk.open_polled_queue(depth.into(), depth).expect("opens");
            alone(queue, depth.into(), nr);
        }
        _ => panic!("no case {case}: there are {CASES:?}"),
    }
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    match &args[..] {
        [count, case, nr] if count == "--count" => run(case, nr.parse().expect("a number of BIOs")),
        [] => {
            for case in CASES {
                run(case, 1000);
                println!("{case}: works");
            }
        }
        _ => panic!("usage: [--count CASE N]"),
    }
}
