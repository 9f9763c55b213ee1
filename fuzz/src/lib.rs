//! What is fuzzed: each function takes any bytes, and panics if a promise is broken. `fuzz_targets/` hands them to
//! libFuzzer, `src/mutate.rs` to a runner that any compiler builds.

use zoneplug_core::Error;
use zoneplug_core::emu::{EmuConfig, EmuDisk};
use zoneplug_core::spec::Spec;
use zoneplug_core::stack::{FaultDisk, FaultPlan};

/// A target by name.
pub type Target = fn(&[u8]);

/// Every target.
pub const TARGETS: [(&str, Target); 2] = [("fault_text", fault_text), ("device_spec", device_spec)];

fn explained(e: &Error) {
    assert!(!e.to_string().is_empty() && e.what_to_try().is_some(), "an error without help: {e:?}");
}

/// The text of faults: read, shown and read again it is the same, and what is wrong is explained.
pub fn fault_text(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match text.parse::<FaultPlan>() {
        Ok(plan) => {
            let shown = plan.to_string();
            assert_eq!(shown.parse::<FaultPlan>().expect(&shown), plan, "{text}");
            assert!(
                !shown.contains([',', ':']),
                "commas are a specification's, colons fio's: {shown}"
            );
        }
        Err(e) => explained(&e),
    }
}

/// A device specification: what can be read is a disk or an explained error, and is shown as it is read.
pub fn device_spec(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let read = || -> Result<(EmuConfig, Option<FaultPlan>), Error> {
        let mut spec = Spec::parse(text)?;
        let plan = spec.take_text("fault").map(|t| t.parse::<FaultPlan>()).transpose()?;
        let config = EmuConfig::from_spec(&mut spec)?;
        spec.finish()?;
        Ok((config, plan))
    };
    match read() {
        Ok((config, plan)) => {
            let shown = config.to_string();
            assert_eq!(shown.parse::<EmuConfig>().expect(&shown), config, "{text}");
            // Large disks take time to make, which is not what is looked for.
            if config.geometry.nr_zones() <= 1024 {
                let disk = EmuDisk::new(config).expect("it was checked");
                FaultDisk::new(disk, &plan.unwrap_or_default())
                    .expect("an emulated disk reports its zones");
            }
        }
        Err(e) => explained(&e),
    }
}
