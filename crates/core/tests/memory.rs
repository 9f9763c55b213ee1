//! What zones cost (P12, R38): in a process of its own, so that no other memory is counted.

#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use zoneplug_core::disk::DiskConfig;
use zoneplug_core::zone::Geometry;
use zoneplug_core::{Bio, Bios, Nanos, Op, Sector, ZoneNo};
use zoneplug_devices::emu::{EmuConfig, EmuDisk, EmuKind};

/// R38, P12: a disk of which every zone is partly written: a plug for each, no more memory than when all were empty,
/// and each of them is known.
#[test]
fn r38_all_zones_partly_written_cost_what_empty_ones_do() {
    const ZONES: u64 = 50_000;
    let g = Geometry::new(ZONES, 64, 64).unwrap();
    let mut emu = EmuConfig::new(EmuKind::Null, g);
    emu.limits = limits();
    let disk = open(EmuDisk::new(emu).unwrap(), DiskConfig::default());
    let mut queue = disk.open_polled_queue(64, 64).unwrap();
    let mut all = |op: Op, before: u64| {
        for first in (0..ZONES).step_by(50) {
            let bio = |z: u64| Bio::new(op, Sector(z * 64 + before), 8);
            let mut list: Bios = (first..first + 50).map(bio).collect();
            list.iter_mut().for_each(|b| b.set_buf(buf(8)));
            recycle_buffers();
            assert_eq!(queue.submit(Nanos(0), &mut list), 50);
            let mut done = Bios::new();
            queue.poll(Nanos(0), &mut done);
            assert!(done.len() == 50 && done.iter().all(|b| b.status.is_ok()), "{:?}", done[0]);
        }
    };
    all(Op::Write, 0);
    let rss = || {
        let s = std::fs::read_to_string("/proc/self/statm").ok()?;
        s.split(' ').nth(1)?.parse::<u64>().ok().map(|pages| pages * 4)
    };
    let before = rss();
    all(Op::Write, 8);
    assert_eq!(disk.counters().live_plugs, ZONES as u32);
    all(Op::ZoneAppend, 0);
    if let (Some(before), Some(after)) = (before, rss()) {
        let grown = after.saturating_sub(before);
        assert!(grown < 8 << 10, "{grown} KiB for zones that are partly written");
    }
    for z in [0, 31_234, ZONES - 1] {
        assert_eq!(disk.cached_zone(ZoneNo(z as u32)).unwrap().wp.0, z * 64 + 24);
    }
}
