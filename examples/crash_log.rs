//! 10,000 power cuts of a log: what the author of storage code writes to test it.
//!
//! The work appends records and says of each sync what is durable from then on. The check opens what a power cut has left
//! and compares. `cargo run --release -p zoneplug --example crash_log` runs it with `ZoneLog`, and then with a bug in it: one time
//! in 20 the work forgets to sync before it promises. The harness has to find that, and says how to repeat it.

use std::error::Error;
use zoneplug::HostedDisk;
use zoneplug::crash::{Crash, CrashFailure, CrashReport, Random, Work};
use zoneplug::zone_log::{LogAddress, LogError, LogOptions, ZoneLog};

/// A record that is durable.
type Promise = (LogAddress, Vec<u8>);

/// Appends records of random lengths. `forget`: whether it sometimes promises without a sync.
fn work(work: &Work<Promise>, forget: bool) -> Result<(), LogError> {
    let mut random = Random::new(work.seed());
    let log = ZoneLog::open(work.disk(), LogOptions::new())?;
    let mut new = Vec::new();
    for n in 0..30u8 {
        let record = vec![n; random.below(6_000) as usize];
        new.push((log.append(&record)?, record));
        if random.one_in(3) {
            if !(forget && random.one_in(20)) {
                log.sync()?;
            }
            new.drain(..).for_each(|p| work.promise(p));
        }
    }
    Ok(())
}

/// Every record that was promised is there, and what is there is without a gap.
fn check(disk: &HostedDisk, promised: &[Promise]) -> Result<(), Box<dyn Error>> {
    let log = ZoneLog::open(disk, LogOptions::new())?;
    for (at, record) in promised {
        if log.read(*at)? != *record {
            return Err(format!("{at} is another").into());
        }
    }
    for record in log.iter() {
        record?;
    }
    Ok(())
}

/// Makes so many power cuts.
pub(crate) fn run(cuts: u64, forget: bool) -> Result<CrashReport, CrashFailure> {
    Crash::new("mem,zones=4,zone-size=64K").seeds(1..101).cuts(cuts).run(|w| work(w, forget), check)
}

fn main() -> Result<(), Box<dyn Error>> {
    println!("{}", run(10_000, false)?);
    let found = match run(10_000, true) {
        Ok(report) => return Err(format!("the missing sync was not found: {report}").into()),
        Err(found) => found,
    };
    println!("\nWith a sync that is forgotten at times:\n\n{found}");
    Ok(())
}
