//! One daemon with sixty disks and eight hosts, for as long as `ZONEPLUG_ENDURANCE` says (seconds; 4 without it):
//! everything that was acknowledged is there at the end, memory and descriptors do not grow, and a disk that stalls
//! slows no other. `scripts/endurance` runs it for two minutes, or an hour.
//!
//! | disks | what they are |
//! | --- | --- |
//! | 1 | each of its commands takes three seconds |
//! | 29 | in memory, without faults: their latency is measured |
//! | 20 | in memory: writes and resets fail or are torn, reads come late, commands are lost |
//! | 10 | modelled SMR disks of 30 TB, which keep no data |
//!
//! A host has two zones of each disk, and a command in flight in each of them at most. What a block holds follows from
//! the disk, the zone, how often that was reset, and the block. So it can be checked also where an outcome was unknown.

#![allow(clippy::unwrap_used)]

mod host;
mod watch;

use hdrhistogram::Histogram;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const ZONEPLUG: &str = env!("CARGO_BIN_EXE_zoneplug");
const NQN: &str = "nqn.2026-11.dev.zoneplug:endurance";
const HOSTS: u32 = 8;

/// A kind of disk, and how it is treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Commands are in flight there half of the time.
    Stalled,
    Good,
    Faulty,
    Modelled,
}

/// The disks, in the order of their namespaces.
fn disks() -> Vec<(Kind, String)> {
    let mem = "mem,zones=16,zone-size=1M,timeout=10s";
    let good = ["", ",rotational=1", ",append=native,latency=100us", ",latency=200us"];
    let faults = "write/io/p=0.002+write/torn/p=0.002+read/delay=5ms/p=0.01+reset/io/p=0.01+writes/lost/p=0.0002";
    let mut all = vec![(Kind::Stalled, format!("{mem},fault=any/delay=3s/p=1"))];
    all.extend((0..29).map(|n| (Kind::Good, format!("{mem},lba-size=4K{}", good[n % 4]))));
    // Each text once: a server does not serve a disk twice.
    let faulty = |n| (Kind::Faulty, format!("{mem},timeout={}ms,fault={faults}", 500 + n));
    all.extend((0..20).map(faulty).map(|(k, s)| (k, s.replacen(",timeout=10s", "", 1))));
    all.extend(
        (0..10).map(|n| (Kind::Modelled, format!("sim-smr30,anticipation_us={}us", 100 + n))),
    );
    for (n, (_, spec)) in all.iter_mut().enumerate().filter(|(_, (k, _))| *k == Kind::Good) {
        *spec = spec.replacen("timeout=10s", &format!("timeout={}ms", 10_000 + n), 1);
    }
    all
}

/// The daemon, which does not outlive its test.
struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(specs: &[String], socket: &str) -> (Daemon, String) {
    let mut child = Command::new(ZONEPLUG)
        .args(["serve", "--nvme-tcp", "127.0.0.1:0"])
        .args(specs)
        .args(["--nqn", NQN, "--socket", socket])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.split_once("  ").unwrap().0.to_owned();
    (Daemon(child), address)
}

/// What the server has counted, of each disk: reads, writes.
fn counted(socket: &str) -> Vec<(u64, u64)> {
    let out =
        Command::new(ZONEPLUG).args(["status", "--json", "--socket", socket]).output().unwrap();
    let status: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    let of = |d: &serde_json::Value| (d["reads"].as_u64().unwrap(), d["writes"].as_u64().unwrap());
    status["disks"].as_array().unwrap().iter().map(of).collect()
}

fn percentile(h: &Histogram<u64>, q: f64) -> f64 {
    h.value_at_quantile(q) as f64 / 1000.0
}

#[test]
fn endurance() {
    let seconds = std::env::var("ZONEPLUG_ENDURANCE").map_or(4, |s| s.parse().expect("seconds"));
    let socket = std::env::temp_dir().join(format!("zoneplug-endurance-{}", std::process::id()));
    let socket = socket.to_str().unwrap();
    let (kinds, specs): (Vec<Kind>, Vec<String>) = disks().into_iter().unzip();
    let (mut daemon, address) = start(&specs, socket);
    let (stop, begun) = (AtomicBool::new(false), Instant::now());
    let pid = daemon.0.id();
    let (reports, seen) = std::thread::scope(|scope| {
        let watch = scope.spawn(|| watch::watch(pid, Duration::from_secs(seconds), &stop));
        let of = |n| (&address[..], &kinds[..], n, &stop);
        let hosts: Vec<_> = (0..HOSTS)
            .map(of)
            .map(|(address, kinds, n, stop)| {
                scope.spawn(move || host::run(address, kinds, n, stop))
            })
            .collect();
        while begun.elapsed() < Duration::from_secs(seconds)
            && !hosts.iter().any(|h| h.is_finished())
        {
            std::thread::sleep(Duration::from_millis(100));
            // A question each second, as an operator's program asks it.
            if begun.elapsed().subsec_millis() < 100 {
                counted(socket);
            }
        }
        stop.store(true, Ordering::Relaxed);
        let reports: Vec<host::Report> = hosts.into_iter().map(|h| h.join().unwrap()).collect();
        (reports, watch.join().unwrap())
    });

    let mut all = host::Report::new(kinds.len());
    reports.into_iter().for_each(|r| all.add(&r));
    println!("{seconds} s, {} disks, {HOSTS} hosts; {} operations", kinds.len(), all.operations());
    for kind in [Kind::Stalled, Kind::Good, Kind::Faulty, Kind::Modelled] {
        let of: Vec<_> = (0..kinds.len()).filter(|n| kinds[*n] == kind).collect();
        let sum = |f: fn(&host::Count) -> u64| of.iter().map(|n| f(&all.counts[*n])).sum::<u64>();
        println!(
            "  {:9} {:2} disks: {} writes, {} reads, {} others, {} failed, {} blocks compared",
            format!("{kind:?}").to_lowercase(),
            of.len(),
            sum(|c| c.writes),
            sum(|c| c.reads),
            sum(|c| c.others),
            sum(|c| c.failed),
            sum(|c| c.compared)
        );
    }
    let [alone, beside] = [&all.alone, &all.beside];
    let ratio = percentile(beside, 0.99) / percentile(alone, 0.99);
    println!(
        "  p50, p99 of good disks: {:.0} us, {:.0} us ({} requests); while another disk stalls {:.0} us, {:.0} us ({}): p99 x {ratio:.2}",
        percentile(alone, 0.5),
        percentile(alone, 0.99),
        alone.len(),
        percentile(beside, 0.5),
        percentile(beside, 0.99),
        beside.len()
    );
    println!("  {seen}");
    println!("  {} connections, one at a time for each host", all.connections);

    assert!(all.wrong.is_empty(), "{}", all.wrong.join("\n"));
    for (n, (count, (reads, writes))) in all.counts.iter().zip(counted(socket)).enumerate() {
        assert_eq!(
            (count.reads, count.writes),
            (reads, writes),
            "what the server counted of disk {n}"
        );
    }
    let of = |kind| kinds.iter().zip(&all.counts).filter(move |(k, _)| **k == kind).map(|(_, c)| c);
    assert!(of(Kind::Faulty).map(|c| c.failed).sum::<u64>() > 0, "no fault was injected");
    assert_eq!(of(Kind::Good).map(|c| c.failed).sum::<u64>(), 0, "a good disk failed");
    assert!(of(Kind::Good).all(|c| c.writes > 0 && c.compared > 0), "a disk was left out");
    // Less says nothing of a tail.
    if seconds >= 60 {
        assert!(ratio < 1.2, "a stalled disk slows others: p99 x {ratio:.2}");
        seen.is_flat();
    }
    let kill = Command::new("kill").arg(pid.to_string()).status().unwrap();
    assert!(kill.success() && daemon.0.wait().unwrap().success(), "the daemon ends well");
}
