//! The emulated disks pass the conformance suite, in every shape that they have.

use std::sync::Arc;
use zoneplug_core::Device;
use zoneplug_devices::conformance::{Target, run};
use zoneplug_devices::emu::{EmuConfig, EmuDisk, EmuKind};

fn conforms(options: &str) {
    for kind in EmuKind::ALL {
        let spec = format!("{},{options}", kind.name());
        let config: EmuConfig = spec.parse().unwrap_or_else(|e| panic!("{spec}: {e}"));
        let mut make =
            || -> Arc<dyn Device> { EmuDisk::new(config.clone()).expect("it was checked") };
        run(&mut Target::new(&mut make, kind == EmuKind::Mem));
    }
}

const ROUGH: &str = "zones=12,zone-size=640K,zone-capacity=600K,conv=3,max-open=3,max-active=5,\
    last-zone-size=320K,last-zone-capacity=300K";

#[test]
fn plain() {
    conforms("zones=8,zone-size=1M");
}

#[test]
fn without_fua() {
    conforms("zones=8,zone-size=1M,write-cache=1,fua=0");
}

#[test]
fn blocks_of_one_sector_and_a_larger_granularity() {
    conforms("zones=8,zone-size=1M,conv=2,lba-size=512");
    conforms("zones=8,zone-size=1M,conv=2,lba-size=512,granularity=4096,max-transfer=64K");
}

/// W18: conventional zones, capacity below the size, limits, a short last zone, and no power of two anywhere.
#[test]
fn rough() {
    conforms(ROUGH);
}

#[test]
fn chunks_of_memory_are_crossed() {
    conforms("zones=5,zone-size=1300K,zone-capacity=1100K,conv=1");
}

#[test]
fn limits_that_are_equal_or_alone() {
    for limits in
        ["max-open=1,max-active=1", "max-open=2", "max-active=2", "max-open=1,max-active=4"]
    {
        conforms(&format!("zones=8,zone-size=64K,{limits}"));
    }
}

#[test]
fn native_append() {
    conforms(&format!("{ROUGH},append-max=64K"));
    conforms("zones=4,zone-size=1M,append=native,max-transfer=128K");
}

#[test]
fn latency() {
    conforms(&format!("{ROUGH},latency=1ms"));
}

#[test]
fn reordering() {
    conforms(&format!("{ROUGH},reorder=1"));
    conforms(&format!("{ROUGH},reorder=2,latency=80us,append=native"));
}

#[test]
fn paranoid_and_without_options() {
    conforms(&format!("{ROUGH},paranoid=1,max-bios=4,max-write-zeroes=0,discard=0"));
}

/// Zones of one and two blocks: every boundary at once.
#[test]
fn tiny_zones() {
    conforms("zones=9,zone-size=4K,conv=2");
    conforms("zones=9,zone-size=12K,zone-capacity=8K,append=native,max-open=2");
}
