//! Several disks in one run, and the adapter that they are behind.
#![allow(clippy::unwrap_used)]

use zoneplug_core::Nanos;
use zoneplug_devices::emu::timing::Profile;
use zoneplug_models::time::{Adapter, HostTimes, RandomReader, Report, Run, Workload};

/// A run of so many disks behind an adapter, each with one client.
fn shelf(disks: u32, adapter: &str, profile: &str, work: Workload) -> Report {
    let mut run = Run::new(Profile::builtin(profile).unwrap());
    (run.disks, run.warm_up, run.length) = (disks, Nanos(200_000_000), Nanos(2_000_000_000));
    run.adapter = (!adapter.is_empty()).then(|| Adapter::parse(adapter).unwrap());
    let clients = (0..disks).flat_map(|d| work.clients(&HostTimes::DISK, 7 + u64::from(d)));
    run.go(clients.collect()).unwrap()
}

const FULL_QUEUE: Workload = Workload::FullQueue { outstanding: 16, bs: 1 << 20, zones: 8 };

/// Disks that share nothing do what each does alone, and an adapter without limits is none.
#[test]
fn disks_of_a_shelf_are_independent_of_each_other() {
    let alone = shelf(1, "", "smr30", FULL_QUEUE);
    let three = shelf(3, "", "smr30", FULL_QUEUE);
    assert_eq!(three.clients[0].latencies, alone.clients[0].latencies);
    assert_ne!(three.clients[1].bytes, 0);
    assert_ne!(three.clients[1].latencies, three.clients[0].latencies, "a seed of its own");
    let unlimited = shelf(3, "queue=100000", "smr30", FULL_QUEUE);
    for (a, b) in unlimited.clients.iter().zip(&three.clients) {
        assert_eq!(a.latencies, b.latencies);
    }
}

/// What goes through a link is bounded by its rate, and shared evenly; so is what goes through an expander, by the disks behind it.
#[test]
fn an_adapter_and_its_expanders_bound_the_rate() {
    let rates = |r: &Report| -> Vec<f64> {
        r.clients.iter().map(|c| c.bytes as f64 / r.length.0 as f64 * 1e3).collect()
    };
    // How many commands a client has at the adapter changes a little: a zone may have two writes.
    let near = |is: f64, of: f64| assert!((is / of - 1.0).abs() < 0.08, "{is} for {of} MB/s");
    let r = shelf(4, "rate=1000MB/s", "zns1", FULL_QUEUE);
    assert!((rates(&r).iter().sum::<f64>() / 1000.0 - 1.0).abs() < 0.005);
    rates(&r).iter().for_each(|is| near(*is, 250.0));
    // Two disks share 500 MB/s, and the third has its expander alone.
    let r = shelf(3, "expander-drives=2,expander-rate=500MB/s", "zns1", FULL_QUEUE);
    for (is, of) in rates(&r).iter().zip([250.0, 250.0, 500.0]) {
        near(*is, of);
    }
    // Reads have a direction of their own.
    let mut run = Run::new(Profile::builtin("zns1").unwrap());
    (run.warm_up, run.length) = (Nanos(200_000_000), Nanos(1_000_000_000));
    run.adapter = Some(Adapter::parse("rate=400MB/s").unwrap());
    let mut clients = FULL_QUEUE.clients(&HostTimes::DISK, 1);
    clients.push(Box::new(RandomReader::new(16, 1 << 20, 1)));
    rates(&run.go(clients).unwrap()).iter().for_each(|is| near(*is, 400.0));
}

/// An adapter with one place does one command after the other, and takes turns.
#[test]
fn the_places_of_an_adapter_are_shared_in_turns() {
    let one = shelf(1, "queue=1", "zns1", FULL_QUEUE);
    let four = shelf(4, "queue=1", "zns1", FULL_QUEUE);
    let total: u64 = four.clients.iter().map(|c| c.bytes).sum();
    // The poll of another disk comes after the host's work, as its own does.
    assert!((total as f64 / one.clients[0].bytes as f64 - 1.0).abs() < 0.02);
    for c in &four.clients {
        assert!((c.bytes as f64 * 4.0 / total as f64 - 1.0).abs() < 0.08, "{}", c.bytes);
    }
}
