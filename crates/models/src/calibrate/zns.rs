//! Calibration of a ZNS SSD: finds four numbers, all from times and rates of commands.

use super::measure::{Case, case, read, transfer};
use super::{Held, Instrument, Numbers, Progress, near};
use zoneplug_core::Error;

/// The cases that are held back: they find no number, but show how well the profile predicts.
const HELD: [(Case, &str); 3] = [
    (Case { zones: 4, in_flight: 4, bytes: 128 << 10, reads: 0 }, "4 zones, writes of 128 KiB"),
    (Case { zones: 8, in_flight: 8, bytes: 4 << 10, reads: 0 }, "8 zones, writes of 4 KiB"),
    (Case { zones: 1, in_flight: 1, bytes: 64 << 10, reads: 0 }, "1 zone, writes of 64 KiB"),
];

/// Measures the drive and finds its numbers.
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
    let t = transfer(on, 200, 64)?;
    next("the rate of many zones");
    let all = on.zones().len().min(usize::from(on.tags()));
    let many = Case { zones: all, in_flight: all, bytes: long, reads: 0 };
    let (rate, _) = case(on, many, 0)?;
    let drive_rate = (rate * 1e6).max(t.rate);
    // Without a limit of the drive, all zones together reach the sum of their own rates (`bound`).
    let bound = all as f64 * f64::from(long) / t.long_ns * 1e9;
    let is_limit = rate * 1e6 < 0.9 * bound;
    next("the time of a read");
    let read_ns = read(on, 4096, 400)? - 4096.0 / drive_rate * 1e9;
    let put = |n: &mut Numbers, off: f64| {
        let how = "writes of 4 KiB and 1 MiB, one at a time";
        let latency = match t.command_ns {
            0.0 => "not told from 0".to_owned(),
            _ => near(2.0, off.max(t.command_off)),
        };
        n.measured("latency", t.command_ns as u64, &latency, how);
        n.measured("zone-rate", t.rate as u64, &near(2.0, off.max(t.rate_off)), how);
        match is_limit {
            true => {
                let how = "writes of 1 MiB to all zones";
                n.measured("drive-rate", drive_rate as u64, &near(3.0, off), how);
            }
            false => {
                let how = "only a lower bound: so many zones take no more";
                n.measured("drive-rate", drive_rate as u64, "at least", how);
            }
        }
        let read = match read_ns {
            ..=0.0 => "not told from 0".to_owned(),
            _ => near(2.0, off),
        };
        n.measured("read-latency", read_ns.max(0.0) as u64, &read, "reads of 4 KiB, one at a time");
    };
    put(&mut n, 0.0);
    next("what is held back");
    let profile = n.profile()?;
    let mut held = Vec::new();
    for (c, what) in HELD {
        next(what);
        let zones = on.zones().to_vec();
        let mut model = Instrument::modelled(&profile, &zones, on.is_asked())?;
        let (measured, predicted) = (case(on, c, 0)?.0, case(&mut model, c, 0)?.0);
        held.push(Held { what: what.to_owned(), unit: "MB/s", measured, predicted });
    }
    // The error of each number is at least that of the profile's predictions.
    let off =
        held.iter().filter_map(Held::error_percent).fold(0.0, |most: f64, e| most.max(e.abs()));
    put(&mut n, off);
    Ok((n, held))
}
