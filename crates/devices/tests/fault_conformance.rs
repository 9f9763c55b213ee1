//! A fault injector without faults is a device like any other: alone, on itself, and with rules that never hit.

use std::sync::Arc;
use zoneplug_core::Device;
use zoneplug_devices::conformance::{Target, run};
use zoneplug_devices::emu::{EmuConfig, EmuDisk, EmuKind};
use zoneplug_devices::stack::{FaultDisk, FaultPlan};

fn conforms(options: &str, plans: &[&str], cache: bool) {
    for kind in EmuKind::ALL {
        let config: EmuConfig = format!("{},{options}", kind.name()).parse().expect("a disk");
        let mut make = || -> Arc<dyn Device> {
            let mut device: Arc<dyn Device> = EmuDisk::new(config.clone()).expect("it was checked");
            for plan in plans {
                let plan: FaultPlan = plan.parse().expect("a plan");
                let fault = FaultDisk::new(device, &plan).expect("a layer");
                if cache {
                    fault.watch_cache().expect("the device reports its zones");
                }
                device = fault;
            }
            device
        };
        run(&mut Target::new(&mut make, kind == EmuKind::Mem));
    }
}

const ROUGH: &str = "zones=12,zone-size=640K,zone-capacity=600K,conv=3,max-open=3,max-active=5,\
    last-zone-size=320K,last-zone-capacity=300K";
/// Rules are looked at, and none ever hits.
const NEVER: &str = "any/io/from=1T";

#[test]
fn without_faults() {
    for plans in [&["seed=1"][..], &["seed=1", "seed=2"]] {
        conforms(ROUGH, plans, false);
        conforms(&format!("{ROUGH},reorder=1"), plans, false);
        conforms(&format!("{ROUGH},latency=1ms,append=native"), plans, false);
    }
}

#[test]
fn with_rules_that_never_hit() {
    for plans in [&[NEVER][..], &[NEVER, NEVER]] {
        conforms(ROUGH, plans, false);
        conforms(&format!("{ROUGH},reorder=2,latency=80us,append=native"), plans, false);
    }
}

/// What only costs time changes nothing.
#[test]
fn with_delays_and_a_cache() {
    conforms(ROUGH, &["any/delay=3us/p=0.5"], false);
    conforms(ROUGH, &[NEVER], true);
    conforms(&format!("{ROUGH},reorder=3"), &[NEVER, "any/delay=1us/p=0.3"], true);
}
