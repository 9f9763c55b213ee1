//! Finds the places of a stream's bytes on the disk.

use crate::disk::Opened;
use crate::failure::Failure;
use crate::zones::{RangeArgs, holds_data, number, written};
use serde::Serialize;
use zoneplug_core::Sector;
use zoneplug_core::zone::{Condition, Geometry, ZoneInfo, ZoneType};

/// A part of a stream: consecutive sectors of one zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) struct Extent {
    pub(super) zone: u32,
    pub(super) sector: u64,
    pub(super) sectors: u64,
}

/// The length of a list of extents in bytes.
pub(super) fn bytes(extents: &[Extent]) -> u64 {
    extents.iter().map(|e| e.sectors << 9).sum()
}

/// The zones that a copy may touch, and its start if one was given.
pub(super) fn zones(
    disk: &mut Opened,
    range: &RangeArgs,
) -> Result<(Vec<ZoneInfo>, Option<Sector>), Failure> {
    let start = range.start()?;
    // A length limits the stream, not the range of the disk.
    let mut zones = RangeArgs { length: None, len: None, ..range.clone() }.zones(&disk.geometry)?;
    if start.is_none() && range.count.is_some() {
        // The count is of zones that can be used, so all zones are looked at.
        zones.end = disk.geometry.nr_zones();
    }
    Ok((disk.report(zones)?, start))
}

fn is_sequential(z: &ZoneInfo) -> bool {
    z.zone_type == ZoneType::SeqWriteRequired
}

fn is_writable(z: &ZoneInfo) -> bool {
    !matches!(z.cond, Condition::Full | Condition::ReadOnly | Condition::Offline)
}

/// Finds room for a stream, zone by zone. Without `start`, it begins in the first sequential zone with room. Each
/// part begins at the zone's write pointer, or with `reset` at the start of the zone, which is then emptied.
pub(super) fn room(
    g: &Geometry,
    zones: &[ZoneInfo],
    start: Option<Sector>,
    count: Option<u32>,
    reset: bool,
) -> Result<Vec<Extent>, Failure> {
    let mut extents = Vec::new();
    for (i, z) in zones.iter().enumerate() {
        let first = start.filter(|_| i == 0);
        if !is_sequential(z) {
            if start.is_none() {
                continue;
            }
            // A layer may make a zone longer than its writable part.
            let (sector, end) = (first.unwrap_or(z.start).0, z.start.0 + z.capacity_sectors);
            if sector >= end {
                let n = number(g, z);
                return Err(Failure::usage(format!("zone {n} takes data up to sector {end} only"))
                    .hint(format!("--offset {}, or one of another zone", z.start.0)));
            }
            extents.push(Extent { zone: number(g, z), sector, sectors: end - sector });
            continue;
        }
        let dead = matches!(z.cond, Condition::ReadOnly | Condition::Offline);
        let wp = if reset { z.start } else { Sector(z.start.0 + written(z)) };
        if let Some(at) = first {
            let n = number(g, z);
            if dead || !reset && !is_writable(z) {
                return Err(Failure::usage(format!("zone {n} takes no writes: {}", z.cond))
                    .hint(if dead { "another zone" } else { "another zone, or --reset" }));
            }
            if at != wp && at != z.start {
                return Err(Failure::usage(format!("{at} is not the write pointer of zone {n}"))
                    .hint(format!("--offset {}: the write pointer is there", wp.0)));
            }
        }
        let sectors = z.start.0 + z.capacity_sectors - wp.0;
        if !dead && sectors > 0 {
            extents.push(Extent { zone: number(g, z), sector: wp.0, sectors });
        }
    }
    extents.truncate(count.unwrap_or(u32::MAX) as usize);
    if extents.is_empty() {
        return Err(Failure::io("no zone has room").hint("zoneplug reset, or --reset"));
    }
    Ok(extents)
}

/// Finds the data of a stream. Without `len`, all written data; with it, so many bytes of readable sectors.
pub(super) fn data(
    g: &Geometry,
    zones: &[ZoneInfo],
    start: Option<Sector>,
    count: Option<u32>,
    len: Option<u64>,
) -> Result<Vec<Extent>, Failure> {
    let mut extents = Vec::new();
    let mut left = len.map_or(u64::MAX, |b| b.div_ceil(512));
    let mut used = 0;
    for (i, z) in zones.iter().enumerate() {
        if !is_sequential(z) && start.is_none() || z.cond == Condition::Offline {
            continue;
        }
        if left == 0 || count.is_some_and(|c| used == c) {
            break;
        }
        let sector = start.filter(|_| i == 0).unwrap_or(z.start).0;
        // A read-only zone does not tell how far it was written.
        let all = len.is_some() || !is_sequential(z) || z.cond == Condition::ReadOnly;
        let end = z.start.0 + if all { z.capacity_sectors } else { written(z) };
        let sectors = end.saturating_sub(sector).min(left);
        if start.is_some() || holds_data(z) || len.is_some() {
            used += 1;
        }
        if sectors > 0 {
            left -= sectors;
            extents.push(Extent { zone: number(g, z), sector, sectors });
        }
    }
    if let Some(len) = len
        && bytes(&extents) < len
    {
        let there = bytes(&extents);
        return Err(Failure::usage(format!("{len} bytes are more than there are from there on"))
            .hint(format!("--len {there}, or leave the length out for what was written")));
    }
    Ok(extents)
}

/// The first `len` bytes of `extents`; `len` is a multiple of 512, or all of them.
pub(super) fn prefix(extents: &[Extent], len: u64) -> Vec<Extent> {
    let mut left = len.div_ceil(512);
    let mut out = Vec::new();
    for e in extents {
        let sectors = e.sectors.min(left);
        if sectors == 0 {
            break;
        }
        left -= sectors;
        out.push(Extent { sectors, ..*e });
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A conventional zone, then zones of 100 sectors, 80 of them writable and `written` of those written.
    fn disk(written: &[u64]) -> (Geometry, Vec<ZoneInfo>) {
        let n = written.len() as u64 + 1;
        let g = Geometry::new(n, 100, 80).unwrap().with_conventional([zoneplug_core::ZoneNo(0)]);
        let g = g.unwrap();
        let mut zones = vec![ZoneInfo {
            start: Sector(0),
            len_sectors: 100,
            capacity_sectors: 100,
            wp: Sector(u64::MAX),
            zone_type: ZoneType::Conventional,
            cond: Condition::NotWp,
        }];
        for (i, &w) in written.iter().enumerate() {
            let start = Sector((i as u64 + 1) * 100);
            let (cond, wp) = match w {
                0 => (Condition::Empty, start),
                80 => (Condition::Full, start.plus(100)),
                _ => (Condition::Closed, start.plus(w)),
            };
            let zone_type = ZoneType::SeqWriteRequired;
            zones.push(ZoneInfo {
                start,
                len_sectors: 100,
                capacity_sectors: 80,
                wp,
                zone_type,
                cond,
            });
        }
        (g, zones)
    }

    fn list(extents: Result<Vec<Extent>, Failure>) -> Vec<(u64, u64)> {
        extents.unwrap().iter().map(|e| (e.sector, e.sectors)).collect()
    }

    #[test]
    fn a_stream_goes_on_at_write_pointers_and_skips_what_is_no_room() {
        let (g, z) = disk(&[80, 30, 0, 80, 0]);
        assert_eq!(list(room(&g, &z, None, None, false)), [(230, 50), (300, 80), (500, 80)]);
        assert_eq!(list(room(&g, &z, None, Some(1), false)), [(230, 50)]);
        let all = list(room(&g, &z, None, None, true));
        assert_eq!(all, [(100, 80), (200, 80), (300, 80), (400, 80), (500, 80)]);
        // The start of a zone stands for its write pointer; any other sector must be the write pointer.
        assert_eq!(list(room(&g, &z[2..], Some(Sector(200)), None, false))[0], (230, 50));
        assert_eq!(list(room(&g, &z[2..], Some(Sector(230)), None, false))[0], (230, 50));
        let e = room(&g, &z[2..], Some(Sector(231)), None, false).unwrap_err().to_string();
        assert!(e.contains("--offset 230"), "{e}");
        let e = room(&g, &z[1..], Some(Sector(100)), None, false).unwrap_err().to_string();
        assert!(e.contains("zone 1 takes no writes: FULL"), "{e}");
        assert_eq!(list(room(&g, &z, Some(Sector(10)), Some(2), false)), [(10, 90), (230, 50)]);
        let (g, z) = disk(&[80, 80]);
        assert!(room(&g, &z, None, None, false).is_err());
    }

    #[test]
    fn reading_takes_up_what_writing_laid_down() {
        let (g, z) = disk(&[80, 80, 30, 0, 10]);
        let written = [(100, 80), (200, 80), (300, 30), (500, 10)];
        assert_eq!(list(data(&g, &z, None, None, None)), written);
        assert_eq!(list(data(&g, &z, None, Some(3), None)), &written[..3]);
        assert_eq!(
            list(data(&g, &z[2..], Some(Sector(210)), Some(2), None)),
            [(210, 70), (300, 30)]
        );
        // With a length, sectors count whether they are written or not.
        assert_eq!(
            list(data(&g, &z[3..], Some(Sector(300)), None, Some(100 * 512))),
            [(300, 80), (400, 20)]
        );
        assert_eq!(list(data(&g, &z, Some(Sector(0)), None, Some(512 * 101)))[0], (0, 100));
        assert!(data(&g, &z[5..], Some(Sector(500)), None, Some(512 * 81)).is_err());
        let all = data(&g, &z, None, None, None).unwrap();
        assert_eq!(list(Ok(prefix(&all, 512 * 81))), [(100, 80), (200, 1)]);
    }
}
