//! One server with many disks, of which one does not answer for a while.

use crate::case::{Access, BLOCK, Case, Commands, Pattern};
use crate::load::Load;
use crate::queue::{Host, Queue};
use crate::{NQN, disk, options, server_ran};
use std::time::{Duration, Instant};
use zoneplug_host::nvme_tcp::NvmeTcp;

/// A disk that answers too late for any measurement.
pub(crate) const NEVER: &str = "null,zones=128,zone-size=64M,fault=write/lost/p=1";
const DISKS: u16 = 60;
const GOOD: &str = "null,zones=4,zone-size=2G";
const STALLS: &str = "null,zones=4,zone-size=2G,fault=write/delay=10s";
/// Commands that wait for the disk that stalls.
const WAITING: u16 = 64;
const TIME: Duration = Duration::from_secs(3);

/// Sends `n` writes of a block to a zone of 64 MiB or more of a disk that does not answer.
pub(crate) fn stall(queue: &mut Queue, disk: u32, zone: u64, n: u16) {
    for block in 0..u64::from(n) {
        let lba = zone * (64 << 20) / u64::from(BLOCK) + block;
        queue.push(Access { disk, is_read: false, lba, blocks: 1 }, None);
    }
    queue.pipe.send().expect("the server takes it");
}

/// Each disk has a connection, with one write in flight; then the last of them does not answer.
pub(crate) fn table() {
    let (mut disks, shape) = (Vec::new(), disk(GOOD).1);
    for n in 1..=DISKS {
        disks.push(disk(if n < DISKS { GOOD } else { STALLS }).0);
    }
    let server = NvmeTcp::start(&options(), disks, || ()).expect("a server");
    let wait = || std::thread::sleep(Duration::from_micros(100));
    let host = Host::connect(server.address(), NQN, DISKS, wait).expect("a host");
    let case = Case { pattern: Pattern::Random, bytes: BLOCK, depth: 1, queues: 1 };
    let commands = (0..DISKS - 1).map(|n| Commands::new(case, shape, 0).on(u32::from(n)));
    let mut load = Load::of(host, case, commands.collect(), true);
    load.run(u64::from(DISKS) * 100);
    println!(
        "{DISKS} disks, of which the last answers after 10 s; 4 KiB writes to the others, a connection and a write in flight each"
    );
    println!(
        "{:<34} {:>9} {:>10} {:>10} {:>8} {:>8}",
        "commands that wait for the last", "K/s", "server ns", "calls", "p50 us", "p99 us"
    );
    for waiting in [0, 0, WAITING] {
        load.percentiles([500]);
        if waiting > 0 {
            stall(&mut load.host.queues[usize::from(DISKS) - 1], u32::from(DISKS) - 1, 0, waiting);
        }
        let (begun, ran, calls, mut n) = (Instant::now(), server_ran(), server.calls(), 0);
        while begun.elapsed() < TIME {
            load.run(u64::from(DISKS) * 100);
            n += u64::from(DISKS) * 100;
        }
        let (passed, ran) = (begun.elapsed(), server_ran() - ran);
        let calls = server.calls().all() - calls.all();
        let [p50, p99] = load.percentiles([500, 990]);
        println!(
            "{waiting:<34} {:>9.1} {:>10.0} {:>10.2} {:>8.1} {:>8.1}",
            n as f64 / passed.as_secs_f64() / 1e3,
            ran as f64 / n as f64,
            calls as f64 / n as f64,
            p50 / 1e3,
            p99 / 1e3,
        );
    }
}
