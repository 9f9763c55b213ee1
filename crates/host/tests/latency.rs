//! Histograms of how long operations take: `scripts/features` runs this.

#![cfg(feature = "latency")]
#![allow(clippy::unwrap_used)]

mod common;

use common::block_on;
use zoneplug_buf::AlignedBuf;
use zoneplug_core::{Op, Sector};
use zoneplug_host::{AsyncDisk, Batch, BlockingDisk, HostedDisk, Latencies};

/// The delay of each read, in nanoseconds.
const DELAY: u64 = 20_000_000;

fn open() -> HostedDisk {
    HostedDisk::open_spec("mem,zones=4,zone-size=1M,fault=read/delay=20ms/count=all").unwrap()
}

/// Asserts that `l` has so many reads, which took the delay, and so many writes, which took less.
#[track_caller]
fn assert_recorded(l: &Latencies, reads: u64, writes: u64) {
    let (r, w) = (l.of(Op::Read).unwrap(), l.of(Op::Write).unwrap());
    assert_eq!((r.len(), w.len()), (reads, writes));
    assert!(r.min() >= DELAY && w.min() < DELAY, "{} {}", r.min(), w.min());
}

#[test]
fn operations_are_recorded_by_kind_while_recording_is_on() {
    let disk = open();
    let mut io = BlockingDisk::new(&disk).unwrap();
    let other = AsyncDisk::new(&disk, 4).unwrap();
    io.write_from(Sector(0), &[1; 4096]).unwrap();
    block_on(other.write_from(Sector(8), &[1; 4096])).unwrap();
    assert_eq!(io.latencies().iter().count() + other.latencies().iter().count(), 0);

    io.record_latency(true);
    other.record_latency(true);
    for n in 2..5 {
        // Not at the write pointer. An operation that fails is not recorded.
        io.write_from(Sector(n * 16), &[2; 4096]).unwrap_err();
        io.write_from(Sector(n * 16 - 16), &[2; 4096]).unwrap();
        block_on(other.write_from(Sector(n * 16 - 8), &[2; 4096])).unwrap();
    }
    for _ in 0..2 {
        io.read(Sector(0), 8).unwrap();
        block_on(other.read(Sector(0), 8)).unwrap();
    }
    assert_recorded(io.latencies(), 2, 3);
    assert_recorded(&other.latencies(), 2, 3);

    io.record_latency(false);
    io.read(Sector(0), 8).unwrap();
    let mut both = io.latencies().clone();
    both.add(&other.latencies());
    assert_recorded(&both, 4, 6);
    assert_eq!(both.iter().map(|(name, _)| name).collect::<Vec<_>>(), ["read", "write"]);
}

#[test]
fn a_batch_records_what_it_waited_for() {
    let mut batch = Batch::new(&open(), 8).unwrap();
    batch.record_latency(true);
    for n in 0..4 {
        batch.write(Sector(n * 8), AlignedBuf::zeroed(4096));
        batch.read(Sector(2048), 8);
    }
    while let Some(one) = batch.wait_any(None) {
        one.result.unwrap();
    }
    assert_recorded(batch.latencies(), 4, 4);
}
