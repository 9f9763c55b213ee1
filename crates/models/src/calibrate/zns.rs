//! A ZNS SSD: four numbers, all from times and rates.

use super::measure::{Case, case, command, read};
use super::{Held, Instrument, Numbers, Progress};
use zoneplug_core::Error;

/// What is held back.
const HELD: [(Case, &str); 3] = [
    (Case { zones: 4, in_flight: 4, bytes: 128 << 10, reads: 0 }, "4 zones, writes of 128 KiB"),
    (Case { zones: 8, in_flight: 8, bytes: 4 << 10, reads: 0 }, "8 zones, writes of 4 KiB"),
    (Case { zones: 1, in_flight: 1, bytes: 64 << 10, reads: 0 }, "1 zone, writes of 64 KiB"),
];

/// Measures the drive.
pub(super) fn find(
    on: &mut Instrument<'_>,
    progress: &mut Progress<'_>,
) -> Result<(Numbers, Vec<Held>), Error> {
    let steps = 4 + HELD.len() as u32;
    let mut step = 0;
    let mut next = |what: &str| {
        step += 1;
        progress((step, steps), what);
    };
    let mut n = Numbers::reported(on, "zns");
    let long = on.sectors(1 << 20) << 9;
    next("the time of a write");
    let (short_ns, long_ns) = (command(on, 4096, 200)?, command(on, long, 64)?);
    let zone_rate = f64::from(long - 4096) / (long_ns - short_ns).max(1.0) * 1e9;
    let latency = (short_ns - 4096.0 / zone_rate * 1e9).max(0.0);
    next("the rate of many zones");
    let all = on.zones().len().min(usize::from(on.tags()));
    let many = Case { zones: all, in_flight: all, bytes: long, reads: 0 };
    let (rate, _) = case(on, many, 0)?;
    let drive_rate = (rate * 1e6).max(zone_rate);
    // So many zones could take less than the drive.
    let bound = all as f64 * f64::from(long) / long_ns * 1e9;
    let is_limit = rate * 1e6 < 0.9 * bound;
    next("the time of a read");
    let read_ns = read(on, 4096, 400)? - 4096.0 / drive_rate * 1e9;
    n.measured("latency", latency as u64, "to 2 %", "writes of 4 KiB and 1 MiB, one at a time");
    n.measured("zone-rate", zone_rate as u64, "to 2 %", "writes of 4 KiB and 1 MiB, one at a time");
    let how = if is_limit {
        "writes of 1 MiB to all zones"
    } else {
        "only a lower bound: so many zones take no more"
    };
    n.measured("drive-rate", drive_rate as u64, if is_limit { "to 3 %" } else { "at least" }, how);
    n.measured("read-latency", read_ns.max(0.0) as u64, "to 2 %", "reads of 4 KiB, one at a time");
    next("what is held back");
    let profile = n.profile()?;
    let mut held = Vec::new();
    for (c, what) in HELD {
        next(what);
        let zones = on.zones().to_vec();
        let mut model = Instrument::modelled(&profile, &zones, &|| false)?;
        let (measured, predicted) = (case(on, c, 0)?.0, case(&mut model, c, 0)?.0);
        held.push(Held { what: what.to_owned(), unit: "MB/s", measured, predicted });
    }
    Ok((n, held))
}
