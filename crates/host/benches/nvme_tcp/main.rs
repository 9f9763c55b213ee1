//! What a disk served over NVMe/TCP costs, loaded through loopback sockets by a host that does nothing else.
//!
//! `cargo bench -p zoneplug-host --bench nvme_tcp` prints rates, times and system calls; with `-- --disk SPEC` of a disk whose data
//! may be destroyed. `-- --stalled` shows what a disk that stalls does to others.
//! `-- --count SPEC CASE N` serves N commands of a case by a server that runs in turns with its host, on one thread, so
//! that `scripts/nvme-cost` can count what the server alone executes. With `timed-CASE` the server measures how long commands
//! take.

#[path = "../network/case.rs"]
mod case;
#[path = "../network/load.rs"]
mod load;
#[path = "../network/pipe.rs"]
mod pipe;
mod queue;
mod stalled;

use case::{BLOCK, Case, Pattern, Shape};
use load::Load;
use queue::Host;
use std::time::{Duration, Instant};
use zoneplug_host::HostedDisk;
use zoneplug_host::nvme_tcp::testing::{SteppedServer, stepped};
use zoneplug_host::nvme_tcp::{Disk, NvmeTcp, NvmeTcpOptions};

pub(crate) const NQN: &str = "nqn.2026-11.dev.zoneplug:bench";
const NULL: &str = "null,zones=128,zone-size=2G";
const MEM: &str = "mem,zones=128,zone-size=8M";

pub(crate) fn disk(spec: &str) -> (Disk, Shape) {
    let disk = HostedDisk::open_spec(spec).expect("the disk opens");
    let shape = Shape::of(&disk);
    (Disk { disk, spec: spec.parse().expect("it was opened"), tags: None, known: None }, shape)
}

pub(crate) fn options() -> NvmeTcpOptions {
    NvmeTcpOptions::new("127.0.0.1:0".parse().expect("an address"), NQN)
}

/// A profiler counts this.
#[inline(never)]
fn served_by_turns(server: &mut SteppedServer<NvmeTcp>) {
    server.step().expect("the server runs");
}

/// `name` may end with `+` and a number of further queues, whose disk does not answer the command that each has in flight.
fn count(spec: &str, name: &str, n: u64) {
    let timed = name.strip_prefix("timed-");
    let name = timed.unwrap_or(name);
    let (name, waiting) = name.split_once('+').unwrap_or((name, "0"));
    let (case, waiting) =
        (Case::of(name).expect("a case"), waiting.parse::<u16>().expect("a number"));
    let (served, shape) = disk(spec);
    let disks = if waiting > 0 { vec![served, disk(stalled::NEVER).0] } else { vec![served] };
    let options = NvmeTcpOptions { latencies: timed.is_some(), ..options() };
    let mut server = stepped(&options, disks).expect("a server");
    let (at, queues) = (server.address(), case.queues + waiting);
    let host = Host::connect(at, NQN, queues, || server.step().expect("the server runs"));
    let mut host = host.expect("a host");
    for (zone, queue) in (0..).zip(&mut host.queues[usize::from(case.queues)..]) {
        stalled::stall(queue, 1, zone, 1);
        server.step().expect("the server runs");
    }
    let mut load = Load::new(host, case, shape, false);
    load.step(n, || served_by_turns(&mut server));
    // A disk that never answers keeps its server from ending.
    std::process::exit(0);
}

/// Nanoseconds that the threads of the server have run.
pub(crate) fn server_ran() -> u64 {
    let tasks = std::fs::read_dir("/proc/self/task").expect("/proc");
    let of = |task: std::path::PathBuf| {
        let name = std::fs::read_to_string(task.join("comm")).ok()?;
        let ran = std::fs::read_to_string(task.join("schedstat")).ok()?;
        name.starts_with("zoneplug-nvme").then(|| ran.split(' ').next()?.parse::<u64>().ok())?
    };
    tasks.filter_map(|t| of(t.ok()?.path())).sum()
}

/// One row of the table.
fn measure(spec: &str, name: &str, time: Duration) {
    let case = Case::of(name).expect("a case");
    let (disk, shape) = disk(spec);
    let all = shape.zones * shape.zone_blocks * u64::from(BLOCK);
    let server = NvmeTcp::start(&options(), vec![disk], || ()).expect("a server");
    let connect = |queues| {
        let wait = || std::thread::sleep(Duration::from_micros(100));
        Host::connect(server.address(), NQN, queues, wait).expect("a host")
    };
    if case.pattern == Pattern::Read && !spec.starts_with("null") {
        let fill = Case { pattern: Pattern::Sequential, bytes: 1 << 20, depth: 4, queues: 1 };
        Load::new(connect(1), fill, shape, false).run(all >> 20);
    }
    let mut load = Load::new(connect(case.queues), case, shape, true);
    let chunk = (case.depth as u64 * u64::from(case.queues)).max(64);
    let fits = if case.pattern == Pattern::Read { u64::MAX } else { all / u64::from(case.bytes) };
    load.run(chunk);
    load.latencies = Some(Vec::with_capacity(1 << 20));
    let (before, ran, begun, mut n) = (server.calls(), server_ran(), Instant::now(), 0);
    while begun.elapsed() < time && n + 2 * chunk <= fits {
        load.run(chunk);
        n += chunk;
    }
    let (passed, ran, calls) = (begun.elapsed(), server_ran() - ran, server.calls());
    let [p50, p99] = load.percentiles([500, 990]);
    println!(
        "{name:<12} {:>9.1} {:>9.0} {:>10.0} {:>10} {:>8.1} {:>8.1}",
        n as f64 / passed.as_secs_f64() / 1e3,
        n as f64 * f64::from(case.bytes) / passed.as_secs_f64() / 1e6,
        ran as f64 / n as f64,
        format!("{:.2}", (calls.all() - before.all()) as f64 / n as f64),
        p50 / 1e3,
        p99 / 1e3,
    );
}

fn table(what: &str, spec: &str, only: &str) {
    println!("{what}: {spec}");
    println!(
        "{:<12} {:>9} {:>9} {:>10} {:>10} {:>8} {:>8}",
        "case", "K/s", "MB/s", "server ns", "calls", "p50 us", "p99 us"
    );
    for case in CASES.iter().filter(|c| c.contains(only)) {
        measure(spec, case, Duration::from_secs(1));
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["--count", spec, case, n] => count(spec, case, n.parse().expect("a number")),
        ["--disk", spec] => table("the disk", spec, ""),
        ["--disk", spec, only] => table("the disk", spec, only),
        [] => {
            table("no data", NULL, "");
            table("in memory", MEM, "");
            stalled::table();
        }
        ["--stalled"] => stalled::table(),
        [only] => {
            table("no data", NULL, only);
            table("in memory", MEM, only);
        }
        _ => panic!("[--disk SPEC] [PART OF THE NAMES OF CASES], or --count SPEC CASE N"),
    }
}

const CASES: [&str; 22] = [
    "seqw4K1",
    "seqw4K16",
    "seqw4K128",
    "seqw4K1x8",
    "seqw4K1x64",
    "seqw4K16x64",
    "rndw4K16",
    "rndw4K128",
    "rndr4K1",
    "rndr4K16",
    "rndr4K128",
    "rndr4K1x64",
    "seqw128K1",
    "seqw128K16",
    "rndw128K16",
    "rndr128K1",
    "rndr128K16",
    "seqw1M1",
    "seqw1M16",
    "rndw1M16",
    "rndr1M1",
    "rndr1M16",
];
