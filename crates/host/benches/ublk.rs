//! What the server of a ublk device costs in user space: the loop of a queue, with a kernel's side that needs no
//! kernel. `scripts/ublk-cost` counts its instructions.
//!
//! `cargo bench -p zoneplug-host --bench ublk -- --count CASE N` serves N requests of a case; `--count timed-CASE N` by a
//! server that measures how long they take. Without `--count` it serves some of each case and prints how many calls to the
//! kernel each took.

use zoneplug_core::Nanos;
use zoneplug_core::disk::DiskConfig;
use zoneplug_core::zone::Geometry;
use zoneplug_devices::emu::{EmuConfig, EmuDisk, EmuKind};
use zoneplug_host::HostedDisk;
use zoneplug_host::ublk::testing::{Answer, BlockClient, serve, serve_timed};

const CASES: [&str; 6] = ["write-1", "write-16", "random-16", "read-1", "read-16", "append-16"];
/// As a busy queue times operations, however slow the counting is.
const SELDOM: Nanos = Nanos(1 << 42);
const SECTORS: u64 = 8;
const ZONES: u64 = 64;
/// 2 GiB: a run fits.
const ZONE_SECTORS: u32 = 4 << 20;

/// The numbers of the driver's operations.
const READ: u8 = 0;
const WRITE: u8 = 1;
const APPEND: u8 = 13;

/// A program with a number of requests in flight.
struct Load {
    op: u8,
    /// Zones in turn.
    zones: u64,
    left: u64,
    sent: u64,
}

impl BlockClient for Load {
    fn next(&mut self, _tag: u16, _data: &mut [u8]) -> Option<[u8; 24]> {
        self.left = self.left.checked_sub(1)?;
        let (zone, nth) = (self.sent % self.zones, self.sent / self.zones);
        self.sent += 1;
        let within = if self.op == APPEND { 0 } else { nth * SECTORS };
        let sector = zone * u64::from(ZONE_SECTORS) + within;
        let mut descriptor = [0; 24];
        descriptor[0] = self.op;
        descriptor[4..8].copy_from_slice(&(SECTORS as u32).to_le_bytes());
        descriptor[8..16].copy_from_slice(&sector.to_le_bytes());
        Some(descriptor)
    }

    fn answered(&mut self, answer: Answer, _data: &[u8]) {
        assert!(answer.result >= 0, "{answer:?}");
    }
}

/// Serves `n` requests of a case. Returns the number of calls.
fn run(case: &str, n: u64) -> u64 {
    let (case, timed) = match case.strip_prefix("timed-") {
        Some(case) => (case, true),
        None => (case, false),
    };
    let (kind, depth) = case.split_once('-').expect("a case and its depth");
    let depth = depth.parse().expect("a depth");
    let (op, zones) = match kind {
        "write" => (WRITE, 1),
        "random" => (WRITE, ZONES),
        "read" => (READ, ZONES),
        "append" => (APPEND, 1),
        _ => panic!("one of {CASES:?}"),
    };
    let geometry = Geometry::new(ZONES, ZONE_SECTORS, ZONE_SECTORS).expect("a good geometry");
    let device = EmuDisk::new(EmuConfig::new(EmuKind::Null, geometry)).expect("a good disk");
    let disk = HostedDisk::open(device, DiskConfig::default()).expect("an emulated disk opens");
    let mut load = Load { op, zones, left: n, sent: 0 };
    // The copy of the data is the kernel's work.
    if timed {
        let counters = serve_timed(&disk, depth, 0, &mut load, SELDOM).expect("all is served");
        let counted = counters.operations[0].latency.expect("it was timed").count();
        assert!(counted <= n && counted + 256 > n, "{counted} of {n}");
        return 0;
    }
    serve(&disk, depth, 0, &mut load).expect("all is served")
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    match arguments.iter().position(|a| a == "--count") {
        Some(at) => {
            let n = arguments[at + 2].parse().expect("a number of requests");
            run(&arguments[at + 1], n);
        }
        None => {
            for case in CASES {
                println!("{case:<12} {:.2} calls a request", run(case, 10_000) as f64 / 1e4);
            }
        }
    }
}
