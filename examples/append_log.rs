//! A log over all zones of a disk: what the author of a database writes.
//!
//! Records are appended without choosing a place: the log says where each landed, and that address is the record's
//! name. When all zones are full the oldest one is reset: the oldest part of the history goes, as in any ring.
//!
//! `cargo run --release -p zoneplug --example append_log` runs it on a disk in memory; a device specification as its argument
//! takes another disk. What is on that disk is lost.

use std::error::Error;
use zoneplug::HostedDisk;
use zoneplug::zone_log::{LogAddress, LogError, LogOptions, ZoneLog};

/// Appends a record; in a full log the oldest records make room.
fn append(log: &ZoneLog, record: &[u8], resets: &mut u32) -> Result<LogAddress, LogError> {
    loop {
        match log.append(record) {
            Err(LogError::Full) if log.reset_oldest()?.is_some() => *resets += 1,
            result => return result,
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let spec = std::env::args().nth(1).unwrap_or("mem,zones=2,zone-size=1M".to_owned());
    println!("{}", run(&spec)?);
    Ok(())
}

/// Writes 1000 records to the disk that `spec` names, and reads those that are still there.
pub(crate) fn run(spec: &str) -> Result<String, Box<dyn Error>> {
    let disk = HostedDisk::open_spec(spec)?;
    let log = ZoneLog::create(&disk, LogOptions::new())?;
    let (mut written, mut resets) = (Vec::new(), 0);
    for n in 0..1000 {
        let record = format!("record {n} {}", "x".repeat(n % 5000));
        let at = append(&log, record.as_bytes(), &mut resets)?;
        written.push((at, record));
    }
    // What was appended before is durable from here on.
    log.sync()?;

    // The log opened again, as after a crash: the newest records are there, and nothing between them is missing.
    drop(log);
    let log = ZoneLog::open(&disk, LogOptions::new())?;
    let kept = log.iter().collect::<Result<Vec<_>, _>>()?;
    let expected = &written[written.len() - kept.len()..];
    for (found, (at, record)) in kept.iter().zip(expected) {
        if found.address != *at || log.read(*at)? != record.as_bytes() {
            return Err(format!("{at} is another").into());
        }
    }
    let (last, _) = written.last().ok_or("nothing was written")?;
    Ok(format!("1000 records, {resets} zones reset, {} records kept, {last}", kept.len()))
}
