//! What a disk served over iSCSI costs, loaded through loopback sockets by an initiator that does nothing else.
//!
//! `-- --count SPEC CASE N` serves N commands of a case by a server that runs in turns with its initiator, on one thread, so that
//! `scripts/iscsi-cost` can count what the server alone executes. With `timed-CASE` the server measures how long commands take.
//! Without arguments it serves some commands of a case of each size, and prints that it did.

// The benchmark of NVMe/TCP uses more of them.
#[allow(dead_code)]
#[path = "../network/case.rs"]
mod case;
#[allow(dead_code)]
#[path = "../network/load.rs"]
mod load;
#[path = "../network/pipe.rs"]
mod pipe;
mod queue;

use case::{Case, Shape};
use load::Load;
use queue::Host;
use zoneplug_host::HostedDisk;
use zoneplug_host::iscsi::testing::{SteppedServer, stepped};
use zoneplug_host::iscsi::{Disk, Iscsi, IscsiOptions};

const TARGET: &str = "iqn.2026-11.dev.zoneplug:bench";

fn disk(spec: &str) -> (Disk, Shape) {
    let disk = HostedDisk::open_spec(spec).expect("the disk opens");
    let shape = Shape::of(&disk);
    (Disk { disk, spec: spec.parse().expect("it was opened"), tags: None }, shape)
}

/// A profiler counts this.
#[inline(never)]
fn served_by_turns(server: &mut SteppedServer<Iscsi>) {
    server.step().expect("the server runs");
}

fn count(spec: &str, name: &str, n: u64) {
    let timed = name.strip_prefix("timed-");
    let case = Case::of(timed.unwrap_or(name)).expect("a case");
    let (served, shape) = disk(spec);
    let mut options = IscsiOptions::new("127.0.0.1:0".parse().expect("an address"), TARGET);
    options.latencies = timed.is_some();
    let mut server = stepped(&options, vec![served]).expect("a server");
    let at = server.address();
    let host = Host::connect(at, TARGET, case.queues, || server.step().expect("the server runs"));
    Load::new(host.expect("an initiator"), case, shape, false)
        .step(n, || served_by_turns(&mut server));
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["--count", spec, case, n] => count(spec, case, n.parse().expect("a number")),
        [] => {
            for case in ["seqw4K16", "rndw4K16x8", "rndr4K1", "seqw128K16", "seqw1M1", "rndr1M1"] {
                count("mem,zones=128,zone-size=8M", case, 256);
                println!("{case}: 256 commands");
            }
        }
        _ => panic!("--count SPEC CASE N, or nothing"),
    }
}
