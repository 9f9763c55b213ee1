//! The parameters of a device for Linux (U2, U3, U5, U8), and why some disks cannot be served.

use super::abi::{self, Params};
use std::ops::Range;
use zoneplug_core::zone::{Geometry, Limits, ZONE_RECORD_LEN};
use zoneplug_core::{Error, ErrorKind, Sector, ZoneNo};

/// Longest request that the kernel may send, in sectors.
const USUAL_MAX_SECTORS: u32 = (1 << 20) >> 9;
/// Longest report of zones, in bytes. Linux numbers the zones of each report request from 0 (CODE-3), so all zones of
/// a device must fit into one report. A BIO has at most 256 pages: a report with a longer buffer ends in a BUG of the
/// kernel (block/bio.c, seen with 7.2) unless some pages are neighbours.
const MAX_REPORT_BYTES: u64 = 1 << 20;
/// Most zones of a device, limited by the longest report.
pub(super) const MAX_ZONES: u32 = (MAX_REPORT_BYTES / ZONE_RECORD_LEN as u64) as u32;
/// Largest logical block, in sectors: a page.
const MAX_BLOCK_SECTORS: u32 = 4096 >> 9;

/// The number of zones that the kernel can address: whole zones (U3). A shorter last zone is left out, as
/// fio's zoned mode does.
pub(super) fn whole_zones(g: &Geometry) -> u32 {
    (g.capacity().0 / u64::from(g.zone_sectors())) as u32
}

/// The zones of each device that a disk is served as: one range of all zones, or several of at most
/// [`MAX_ZONES`].
pub(super) fn slices(g: &Geometry) -> Vec<Range<u32>> {
    let whole = whole_zones(g);
    let starts = (0..whole.max(1)).step_by(MAX_ZONES as usize);
    starts.map(|first| first..whole.min(first.saturating_add(MAX_ZONES))).collect()
}

/// The ranges of sectors to reset for a reset of all `zones`: all but conventional zones.
pub(super) fn resets(g: &Geometry, zones: Range<u32>) -> Vec<(Sector, u32)> {
    let most = u32::MAX / g.zone_sectors();
    let mut ranges: Vec<Range<u32>> = Vec::new();
    for zone in zones.filter(|z| !g.is_conventional(ZoneNo(*z))) {
        match ranges.last_mut() {
            Some(last) if last.end == zone && last.end - last.start < most => last.end += 1,
            _ => ranges.push(zone..zone + 1),
        }
    }
    let sectors =
        |r: Range<u32>| (g.zone_start(ZoneNo(r.start)), (r.end - r.start) * g.zone_sectors());
    ranges.into_iter().map(sectors).collect()
}

/// The parameters of `zones` of a disk, or the reason why they cannot be served. `append_sectors` is the
/// longest append of a client.
pub(super) fn of(
    g: &Geometry,
    shown: Range<u32>,
    limits: &Limits,
    append_sectors: u32,
) -> Result<Params, Error> {
    let zone_sectors = g.zone_sectors();
    if !zone_sectors.is_power_of_two() {
        let bytes = Sector(u64::from(zone_sectors)).to_bytes();
        return Err(Error::new(
            ErrorKind::NotSupported,
            format!("Linux takes zones of a power of two, and these have {bytes}"),
        )
        .hint("put the layer for that on the disk: po2@SPEC"));
    }
    // The driver has no field for the write granularity, so granularity and block are shown as one block
    // size (B13).
    let block_sectors = limits.write_granularity_sectors.max(limits.logical_block_sectors);
    if block_sectors > MAX_BLOCK_SECTORS {
        let bytes = Sector(u64::from(block_sectors)).to_bytes();
        return Err(Error::new(
            ErrorKind::NotSupported,
            format!("Linux takes blocks of up to 4K, and this disk is written in {bytes}"),
        )
        .hint("another disk; zoneplug info shows the write granularity"));
    }
    let zones = shown.end.saturating_sub(shown.start);
    let conventional = shown.filter(|z| g.is_conventional(ZoneNo(*z))).count() as u32;
    let capacity = u64::from(zones) * u64::from(zone_sectors);
    if zones == conventional {
        return Err(Error::new(ErrorKind::NotSupported, "no whole sequential zone")
            .hint("a disk with more zones; a shorter last one is not shown to Linux"));
    }
    // Linux expects a capacity below the zone size only in sequential zones, and does not start other devices.
    if conventional > 0 && g.conventional_capacity_sectors() < zone_sectors {
        let [cap, size] = [g.conventional_capacity_sectors(), zone_sectors]
            .map(|n| Sector(u64::from(n)).to_bytes());
        return Err(Error::new(
            ErrorKind::NotSupported,
            format!(
                "Linux takes conventional zones that are usable as a whole, and of these {cap} of {size} are"
            ),
        )
        .hint(format!("leave them out, if they are the first: po2@linear,first={conventional}@SPEC")));
    }
    let report_bytes = u64::from(zones) * ZONE_RECORD_LEN as u64;
    if report_bytes > MAX_REPORT_BYTES {
        return Err(Error::new(
            ErrorKind::NotSupported,
            format!("Linux takes ublk disks of up to {MAX_ZONES} zones, and this one has {zones}"),
        )
        .hint("zoneplug serve shows it as several, each with some of the zones"));
    }
    let report_sectors = (report_bytes.next_multiple_of(4096) >> 9) as u32;
    let own = limits.transfer_sectors().min(USUAL_MAX_SECTORS) / block_sectors * block_sectors;
    let max_sectors = own.max(8).max(report_sectors);
    // A limit that cannot be reached is reported as none (O1). The driver refuses a limit above the number of zones.
    let limit = |n: u32| if n >= zones - conventional { 0 } else { n };
    let attr = |on: bool, attr: u32| if on { attr } else { 0 };
    Ok(Params {
        attrs: attr(limits.read_only, abi::ATTR_READ_ONLY)
            | attr(limits.rotational, abi::ATTR_ROTATIONAL)
            | attr(limits.write_cache, abi::ATTR_VOLATILE_CACHE)
            | attr(limits.write_cache && limits.fua, abi::ATTR_FUA),
        block_shift: (9 + block_sectors.trailing_zeros()) as u8,
        max_sectors,
        zone_sectors,
        dev_sectors: capacity,
        max_discard_sectors: if limits.discard && conventional > 0 { zone_sectors } else { 0 },
        max_write_zeroes_sectors: limits.write_zeroes_sectors().min(zone_sectors),
        max_open_zones: limit(limits.max_open_zones),
        max_active_zones: limit(limits.max_active_zones),
        max_append_sectors: append_sectors.min(max_sectors) / block_sectors * block_sectors,
    })
}

#[cfg(test)]
mod tests {
    // clippy takes a list of one range for a mistake, but these lists may have more.
    #![allow(clippy::single_range_in_vec_init)]

    use super::*;

    fn limits() -> Limits {
        Limits { max_transfer_sectors: 256, ..Limits::default() }
    }

    fn params(g: &Geometry, l: &Limits) -> Result<Params, Error> {
        of(g, 0..whole_zones(g), l, l.visible_append_sectors(g.zone_sectors()))
    }

    /// X6, U8: the parameters have the sizes, limits, cache and FUA of the disk, and whether it is rotational.
    #[test]
    fn u2_a_disk_is_described() {
        let g = Geometry::new(8, 0x20000, 0x18000).unwrap();
        let l = Limits { rotational: true, write_cache: true, max_open_zones: 3, ..limits() };
        let p = params(&g, &l).unwrap();
        assert_eq!((p.dev_sectors, p.zone_sectors), (8 * 0x20000, 0x20000));
        assert_eq!((p.block_shift, p.max_sectors, p.max_append_sectors), (12, 256, 256));
        assert_eq!((p.max_open_zones, p.max_active_zones), (3, 0));
        // On rotational disks Linux uses its own single writer (U8).
        assert_eq!(p.attrs, abi::ATTR_ROTATIONAL | abi::ATTR_VOLATILE_CACHE | abi::ATTR_FUA);
        // Linux sends a flush after the write.
        let p = params(&g, &Limits { fua: false, ..l }).unwrap();
        assert_eq!(p.attrs, abi::ATTR_ROTATIONAL | abi::ATTR_VOLATILE_CACHE);
        assert_eq!(
            p.max_discard_sectors, 0,
            "there is nothing to discard without conventional zones"
        );
    }

    /// X1: zones whose size is not a power of two are refused with the hint to add the layer `po2`.
    #[test]
    fn u2_zones_of_another_size_are_refused_with_the_layer_for_them() {
        let e = params(&Geometry::new(8, 0x30000, 0x30000).unwrap(), &limits()).unwrap_err();
        assert_eq!(e.what(), "Linux takes zones of a power of two, and these have 96M");
        assert!(e.what_to_try().unwrap().contains("po2@SPEC"));
    }

    #[test]
    fn u2_conventional_zones_with_a_gap_are_refused_with_a_way_out() {
        let g = Geometry::new(8, 0x40000, 0x30000).unwrap();
        let g = g.with_conventional((0..3).map(zoneplug_core::ZoneNo)).unwrap();
        assert!(params(&g, &limits()).is_ok());
        let e = params(&g.with_conventional_capacity(0x30000).unwrap(), &limits()).unwrap_err();
        assert!(e.what().ends_with("usable as a whole, and of these 96M of 128M are"), "{e}");
        assert!(e.what_to_try().unwrap().ends_with("po2@linear,first=3@SPEC"));
    }

    /// X1: a shorter last zone is left out of the capacity.
    #[test]
    fn u3_the_capacity_is_whole_zones() {
        let g = Geometry::new(8, 0x2000, 0x2000).unwrap().with_last_zone(0x800, 0x800).unwrap();
        let p = params(&g, &limits()).unwrap();
        assert_eq!((whole_zones(&g), p.dev_sectors), (7, 7 * 0x2000));
    }

    /// Every zone fits into one report, or the disk is refused (U5, CODE-3). R31.
    #[test]
    fn u5_a_request_is_as_long_as_a_report_of_all_zones() {
        for zones in [1, 100, 8192, 8193, 16_384] {
            let g = Geometry::new(zones, 0x800, 0x800).unwrap();
            let p = params(&g, &limits()).unwrap();
            assert!(u64::from(p.max_sectors) * 512 >= zones * 64, "{zones}");
            assert!(p.max_sectors.is_multiple_of(8) && p.max_sectors <= USUAL_MAX_SECTORS);
            assert!(zones > 2048 || p.max_sectors == 256, "{zones}: {}", p.max_sectors);
        }
        let e = params(&Geometry::new(16_385, 0x800, 0x800).unwrap(), &limits()).unwrap_err();
        assert!(e.to_string().contains("up to 16384 zones, and this one has 16385"), "{e}");
    }

    /// A disk with more zones is served as several devices, which together show each zone once.
    #[test]
    fn more_zones_are_several_devices() {
        let g = |zones| Geometry::new(zones, 0x800, 0x800).unwrap();
        assert_eq!(slices(&g(16_384)), [0..16_384]);
        assert_eq!(slices(&g(16_385)), [0..16_384, 16_384..16_385]);
        assert_eq!(slices(&g(16_385).with_last_zone(8, 8).unwrap()), [0..16_384], "a short one");
        let large = g(120_000).with_conventional((0..100).map(ZoneNo)).unwrap();
        let all = slices(&large);
        assert_eq!((all.len(), all[0].clone(), all[7].clone()), (8, 0..16_384, 114_688..120_000));
        let l = Limits { max_open_zones: 6000, ..limits() };
        let p = |i: usize| of(&large, all[i].clone(), &l, 8).unwrap();
        assert_eq!((p(0).dev_sectors, p(0).max_discard_sectors), (16_384 * 0x800, 0x800));
        assert_eq!((p(1).dev_sectors, p(1).max_discard_sectors), (16_384 * 0x800, 0));
        assert_eq!((p(7).dev_sectors, p(7).max_open_zones), (5_312 * 0x800, 0), "fewer than that");
        assert_eq!(p(6).max_open_zones, 6000);
        let none = of(&large.clone(), 0..100, &l, 8).unwrap_err();
        assert!(none.to_string().contains("no whole sequential zone"), "{none}");
    }

    #[test]
    fn a_reset_of_all_zones_of_a_part_is_of_ranges() {
        let g = Geometry::new(40_000, 0x80000, 0x80000).unwrap();
        let g = g.with_conventional([0, 1, 7].map(ZoneNo)).unwrap();
        let at = |zone: u64| Sector(zone * 0x80000);
        assert_eq!(resets(&g, 0..9), [(at(2), 5 * 0x80000), (at(8), 0x80000)]);
        assert_eq!(resets(&g, 0..2), []);
        // A length has 32 bits, so a range is at most 2 TiB.
        let all = resets(&g, 16_384..32_768);
        assert_eq!(all.iter().map(|r| u64::from(r.1)).sum::<u64>(), 16_384 * 0x80000);
        assert_eq!((all[0], all.len()), ((at(16_384), 8191 * 0x80000), 3));
    }

    #[test]
    fn b13_the_granularity_is_the_block() {
        let g = Geometry::new(8, 0x2000, 0x2000).unwrap();
        let l = Limits { logical_block_sectors: 1, write_granularity_sectors: 8, ..limits() };
        assert_eq!(params(&g, &l).unwrap().block_shift, 12);
        let l = Limits { logical_block_sectors: 1, write_granularity_sectors: 1, ..limits() };
        assert_eq!(params(&g, &l).unwrap().block_shift, 9);
        let l = Limits { write_granularity_sectors: 32, ..limits() };
        assert!(params(&g, &l).unwrap_err().to_string().contains("16K"));
    }

    /// U2: a limit that cannot be reached is reported as none.
    #[test]
    fn o1_limits_that_cannot_be_reached_are_none() {
        let g = Geometry::new(8, 0x2000, 0x2000).unwrap();
        let l = Limits { max_open_zones: 8, max_active_zones: 14, ..limits() };
        let p = params(&g, &l).unwrap();
        assert_eq!((p.max_open_zones, p.max_active_zones), (0, 0));
    }
}
