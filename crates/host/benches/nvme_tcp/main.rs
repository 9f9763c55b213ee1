//! What a disk served over NVMe/TCP costs, loaded through loopback sockets by a host that does nothing else.
//!
//! `cargo bench -p zoneplug-host --bench nvme_tcp` prints rates, times and system calls.
//! `-- --count SPEC CASE N` serves N commands of a case by a server that runs in turns with its host, on one thread, so
//! that `scripts/nvme-cost` can count what the server alone executes. It prints the system calls of a command.

mod case;
mod queue;

use case::{BLOCK, Case, Commands, Pattern, Shape};
use queue::Host;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};
use zoneplug_host::HostedDisk;
use zoneplug_host::nvme_tcp::testing::SteppedServer;
use zoneplug_host::nvme_tcp::{Disk, NvmeTcp, NvmeTcpCalls, NvmeTcpOptions};

const NQN: &str = "nqn.2026-11.dev.zoneplug:bench";
const NULL: &str = "null,zones=128,zone-size=2G";
const MEM: &str = "mem,zones=128,zone-size=8M";

fn disk(spec: &str) -> (Disk, Shape) {
    let disk = HostedDisk::open_spec(spec).expect("the disk opens");
    let g = disk.geometry();
    let zone_blocks = u64::from(g.zone_capacity_sectors()) * 512 / u64::from(BLOCK);
    let shape = Shape { zones: u64::from(g.nr_zones()), zone_blocks };
    (Disk { disk, spec: spec.to_owned(), tags: None }, shape)
}

fn options() -> NvmeTcpOptions {
    NvmeTcpOptions::new("127.0.0.1:0".parse().expect("an address"), NQN)
}

/// The queues of a host and what they do.
struct Load {
    host: Host,
    case: Case,
    commands: Vec<Commands>,
    scratch: Vec<u8>,
    left: u64,
    done: u64,
    /// Nanoseconds of commands, if they are wanted.
    latencies: Option<Vec<u64>>,
}

impl Load {
    fn new(host: Host, case: Case, shape: Shape, latencies: bool) -> Load {
        let commands = (0..case.queues).map(|q| Commands::new(case, shape, q)).collect();
        let latencies = latencies.then(Vec::new);
        Load { host, case, commands, scratch: vec![0; 512 << 10], left: 0, done: 0, latencies }
    }

    /// Sends what there is to send on queue `q`.
    fn send(&mut self, q: usize) {
        let queue = &mut self.host.queues[q];
        while self.left > 0 && queue.in_flight() < self.case.depth {
            let begun = self.latencies.is_some().then(Instant::now);
            queue.push(self.commands[q].command(), self.case.bytes, begun);
            self.left -= 1;
        }
        queue.send().expect("the server takes it");
    }

    fn receive(&mut self, q: usize) {
        let (done, latencies) = (&mut self.done, &mut self.latencies);
        let queue = &mut self.host.queues[q];
        let counted = queue.receive(&mut self.scratch, &mut |begun| {
            *done += 1;
            if let (Some(all), Some(begun)) = (latencies.as_mut(), begun) {
                all.push(begun.elapsed().as_nanos() as u64);
            }
        });
        counted.expect("the server answers");
    }

    /// `n` commands in turns with a server that `serve` runs.
    fn step(&mut self, n: u64, mut serve: impl FnMut()) {
        (self.left, self.done) = (n, 0);
        while self.done < n {
            (0..self.host.queues.len()).for_each(|q| self.send(q));
            serve();
            (0..self.host.queues.len()).for_each(|q| self.receive(q));
        }
    }

    /// `n` commands beside a server with threads.
    fn run(&mut self, n: u64) {
        (self.left, self.done) = (n, 0);
        let mut watched: Vec<_> = self
            .host
            .queues
            .iter()
            .map(|q| libc::pollfd { fd: q.stream().as_raw_fd(), events: libc::POLLIN, revents: 0 })
            .collect();
        (0..watched.len()).for_each(|q| self.send(q));
        while self.done < n {
            for (p, q) in watched.iter_mut().zip(&self.host.queues) {
                let room = if q.has_output() { libc::POLLOUT } else { 0 };
                (p.events, p.revents) = (libc::POLLIN | room, 0);
            }
            // SAFETY: `watched` lives across the call, and has so many entries.
            let ready = unsafe { libc::poll(watched.as_mut_ptr(), watched.len() as _, 10_000) };
            assert!(ready > 0, "the server does nothing for 10 s");
            for (q, watched) in watched.iter().enumerate() {
                if watched.revents & libc::POLLIN != 0 {
                    self.receive(q);
                }
                if watched.revents != 0 {
                    self.send(q);
                }
            }
        }
    }
}

/// What [`count`] prints of `n` commands.
fn per_command(calls: NvmeTcpCalls, before: NvmeTcpCalls, n: u64) -> String {
    let per = |now: u64, before: u64| (now - before) as f64 / n as f64;
    format!(
        "{:.3} {:.3} {:.3}",
        per(calls.waits, before.waits),
        per(calls.receives, before.receives),
        per(calls.sends, before.sends)
    )
}

/// What a profiler counts.
#[inline(never)]
fn served_by_turns(server: &mut SteppedServer) {
    server.step().expect("the server runs");
}

fn count(spec: &str, name: &str, n: u64) {
    let case = Case::of(name).expect("a case");
    let (disk, shape) = disk(spec);
    let mut server = SteppedServer::new(&options(), vec![disk]).expect("a server");
    let at = server.address();
    let host = Host::connect(at, NQN, case.queues, || server.step().expect("the server runs"));
    let mut load = Load::new(host.expect("a host"), case, shape, false);
    let before = server.calls();
    load.step(n, || served_by_turns(&mut server));
    println!("{}", per_command(server.calls(), before, n));
}

/// Nanoseconds that the threads of the server have run.
fn server_ran() -> u64 {
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
    if case.pattern == Pattern::Read && spec.starts_with("mem") {
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
    let mut latencies = load.latencies.take().expect("they were wanted");
    latencies.sort_unstable();
    let at = |percent: usize| latencies[latencies.len() * percent / 100] as f64 / 1e3;
    println!(
        "{name:<12} {:>9.1} {:>9.0} {:>10.0} {:>10} {:>8.1} {:>8.1}",
        n as f64 / passed.as_secs_f64() / 1e3,
        n as f64 * f64::from(case.bytes) / passed.as_secs_f64() / 1e6,
        ran as f64 / n as f64,
        format!("{:.2}", (calls.all() - before.all()) as f64 / n as f64),
        at(50),
        at(99),
    );
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["--count", spec, case, n] => count(spec, case, n.parse().expect("a number")),
        [] | [_] => {
            let only = words.first().copied().unwrap_or_default();
            for (what, spec) in [("no data", NULL), ("in memory", MEM)] {
                println!("{what}: {spec}");
                println!(
                    "{:<12} {:>9} {:>9} {:>10} {:>10} {:>8} {:>8}",
                    "case", "K/s", "MB/s", "server ns", "calls", "p50 us", "p99 us"
                );
                for case in CASES.iter().filter(|c| c.contains(only)) {
                    measure(spec, case, Duration::from_secs(1));
                }
            }
        }
        _ => panic!("--count SPEC CASE N, or a part of the name of a case"),
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
