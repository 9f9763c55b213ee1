//! Ranges of zones in the notations of `blkzone` and `zbd`, and text about zones.

use crate::failure::Failure;
use std::ops::Range;
use zoneplug_core::form;
use zoneplug_core::zone::{Condition, Geometry, ZoneInfo};
use zoneplug_core::{Bytes, Sector, ZoneNo};

/// The heading of these flags in the help.
const RANGE: &str = "Range";

/// Which part of the disk.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct RangeArgs {
    /// First sector (512 bytes each; decimal, or hexadecimal after 0x)
    #[arg(help_heading = RANGE, short, long, value_name = "SECTOR", value_parser = parse_sectors)]
    pub offset: Option<u64>,

    /// So many sectors at most; of data, where data are copied
    #[arg(help_heading = RANGE, short, long, value_name = "SECTORS", value_parser = parse_sectors, conflicts_with = "count")]
    pub length: Option<u64>,

    /// So many zones at most
    #[arg(help_heading = RANGE, short, long, value_name = "ZONES", value_parser = clap::value_parser!(u32).range(1..))]
    pub count: Option<u32>,

    /// As --offset, in bytes; K, M, G and T stand for powers of 1024 (zbd's -ofst)
    #[arg(help_heading = RANGE, long, value_name = "BYTES", value_parser = parse_bytes, conflicts_with = "offset")]
    pub ofst: Option<u64>,

    /// As --length, in bytes (zbd's -len)
    #[arg(help_heading = RANGE, long, value_name = "BYTES", value_parser = parse_bytes, conflicts_with_all = ["length", "count"])]
    pub len: Option<u64>,
}

/// Parses a number of sectors. Refuses units: `blkzone` reads `1M` as a number of sectors, but users mean bytes.
fn parse_sectors(text: &str) -> Result<u64, zoneplug_core::Error> {
    let number = match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    };
    // 2^55 sectors are 2^64 bytes.
    number.filter(|n| n >> 55 == 0).ok_or_else(|| {
        zoneplug_core::Error::invalid(format!("'{text}' is no number of sectors"))
            .hint("a plain number, such as 524288 or 0x80000; --ofst and --len take bytes: 256M")
    })
}

/// Parses a number of bytes, with or without a unit.
pub fn parse_bytes(text: &str) -> Result<u64, zoneplug_core::Error> {
    form::parse_size(text).ok_or_else(|| {
        zoneplug_core::Error::invalid(format!("'{text}' is no size"))
            .hint("a number of bytes, such as 4096, 128K, 64MiB, 1G or 2T")
    })
}

impl RangeArgs {
    /// The first sector, if given.
    pub fn start(&self) -> Result<Option<Sector>, Failure> {
        match self.ofst {
            Some(b) if b % 512 != 0 => {
                Err(Failure::usage(format!("--ofst {b} is not a multiple of 512"))
                    .hint(format!("--ofst {}", b & !511)))
            }
            Some(b) => Ok(Some(Bytes(b).to_sectors())),
            None => Ok(self.offset.map(Sector)),
        }
    }

    /// The length in bytes, if given.
    pub fn bytes(&self) -> Option<u64> {
        self.len.or(self.length.map(|s| s << 9))
    }

    /// The zones that the range touches.
    pub fn zones(&self, g: &Geometry) -> Result<Range<u32>, Failure> {
        let start = self.start()?.unwrap_or(Sector(0));
        if start >= g.capacity() {
            return Err(Failure::usage(format!("{start} is past the end of the disk"))
                .hint(format!("the disk ends at {}", g.capacity())));
        }
        let (first, _) = g.zone_of(start);
        let end = match (self.bytes(), self.count) {
            (Some(0), _) => {
                return Err(Failure::usage("a range of no sectors")
                    .hint("leave the length out for all zones to the end"));
            }
            (Some(bytes), _) => {
                let last = start.0.saturating_add(bytes.div_ceil(512)).min(g.capacity().0) - 1;
                g.zone_of(Sector(last)).0.0 + 1
            }
            (None, Some(count)) => first.0.saturating_add(count).min(g.nr_zones()),
            (None, None) => g.nr_zones(),
        };
        Ok(first.0..end)
    }

    /// The zones of the range. Fails if the range cuts a zone.
    pub fn whole_zones(&self, g: &Geometry) -> Result<Range<u32>, Failure> {
        let zones = self.zones(g)?;
        let start = self.start()?.unwrap_or(Sector(0));
        let (zone, offset) = g.zone_of(start);
        let size = Sector(u64::from(g.zone_sectors()));
        if offset != 0 {
            return Err(Failure::usage(format!("{start} is not the start of a zone"))
                .hint(format!("{zone} starts at {}", g.zone_start(zone))));
        }
        if let Some(bytes) = self.bytes() {
            let to_end = start.plus(bytes.div_ceil(512)) >= g.capacity();
            if bytes % size.to_bytes().0 != 0 && !to_end {
                return Err(Failure::usage("the length is not a whole number of zones")
                    .hint(format!("a multiple of {} sectors ({})", size.0, size.to_bytes())));
            }
        }
        Ok(zones)
    }
}

/// Sectors of a zone that have been written; 0 if unknown.
pub fn written(z: &ZoneInfo) -> u64 {
    match z.cond {
        Condition::Full => z.capacity_sectors,
        _ if has_wp(z) => (z.wp.0 - z.start.0).min(z.capacity_sectors),
        _ => 0,
    }
}

/// Whether the write pointer of a zone is valid.
pub fn has_wp(z: &ZoneInfo) -> bool {
    let pointed = matches!(z.cond, Condition::Empty | Condition::Closed | Condition::Active);
    (pointed || z.cond.is_open()) && z.wp >= z.start
}

/// Whether a zone holds data that its reset would destroy.
pub fn holds_data(z: &ZoneInfo) -> bool {
    z.cond == Condition::Full || has_wp(z) && z.wp > z.start
}

/// Formats sorted zone numbers as `3-5, 9, 11-12`; cuts a long list.
pub fn numbers(zones: &[u32]) -> String {
    const RUNS: usize = 8;
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for &z in zones {
        match runs.last_mut() {
            Some(run) if run.1 + 1 == z => run.1 = z,
            _ => runs.push((z, z)),
        }
    }
    let shown: Vec<String> = runs
        .iter()
        .take(RUNS)
        .map(|&(a, b)| if a == b { a.to_string() } else { format!("{a}-{b}") })
        .collect();
    let rest: u32 = runs.iter().skip(RUNS).map(|(a, b)| b - a + 1).sum();
    let more = if rest > 0 { format!(" and {rest} more") } else { String::new() };
    shown.join(", ") + &more
}

/// Formats a count: `1 zone`, `2 zones`.
pub fn count(n: usize, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}

/// Formats a size with a unit.
pub fn size(bytes: u64) -> String {
    let units = [(40, "T"), (30, "G"), (20, "M"), (10, "K")];
    match units.iter().find(|(s, _)| bytes >> s > 0) {
        Some((s, _)) if bytes.trailing_zeros() >= *s => Bytes(bytes).to_string(),
        Some((s, unit)) => format!("{:.1}{unit}", bytes as f64 / (1u64 << s) as f64),
        None => bytes.to_string(),
    }
}

/// The number of the zone that starts at `z.start`.
pub fn number(g: &Geometry, z: &ZoneInfo) -> u32 {
    let (ZoneNo(n), _) = g.zone_of(z.start);
    n
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_the_zones_that_it_touches() {
        let g = Geometry::new(10, 100, 80).unwrap().with_last_zone(50, 50).unwrap();
        let range = |offset, length, count| {
            let r = RangeArgs { offset, length, count, ..RangeArgs::default() };
            r.zones(&g).map_err(|e| e.to_string())
        };
        assert_eq!(range(None, None, None), Ok(0..10));
        assert_eq!(range(Some(150), None, Some(3)), Ok(1..4));
        assert_eq!(range(Some(199), Some(2), None), Ok(1..3));
        assert_eq!(range(Some(900), Some(u64::MAX >> 9), None), Ok(9..10));
        assert_eq!(range(None, None, Some(u32::MAX)), Ok(0..10));
        assert!(range(Some(950), None, None).unwrap_err().contains("ends at sector 950"));
        assert!(range(Some(0), Some(0), None).unwrap_err().contains("no sectors"));
        let whole = |offset, length| {
            let r = RangeArgs { offset, length, ..RangeArgs::default() };
            r.whole_zones(&g).map_err(|e| e.to_string())
        };
        assert_eq!(whole(Some(200), Some(300)), Ok(2..5));
        assert_eq!(whole(Some(800), Some(150)), Ok(8..10));
        assert!(whole(Some(210), None).unwrap_err().contains("zone 2 starts at sector 200"));
        assert!(whole(Some(200), Some(150)).unwrap_err().contains("a multiple of 100 sectors"));
    }

    #[test]
    fn numbers_are_told_in_runs() {
        assert_eq!(numbers(&[3, 4, 5, 9, 11, 12]), "3-5, 9, 11-12");
        let odd: Vec<u32> = (0..40).map(|n| n * 2).collect();
        assert_eq!(numbers(&odd), "0, 2, 4, 6, 8, 10, 12, 14 and 32 more");
        assert_eq!((parse_sectors("0x80").ok(), parse_sectors("1M").ok()), (Some(128), None));
        assert_eq!(size(1_500_000), "1.4M");
    }
}
