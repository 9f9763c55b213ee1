//! Maps zones to files. The first zone holds the super block and is no file.

use zoneplug_core::Sector;
use zoneplug_core::zone::{Condition, ZoneInfo, ZoneType};

/// The two directories.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    /// `cnv`: conventional zones, which can be written anywhere.
    Conventional,
    /// `seq`: sequential zones, which are written at the end of the file.
    Sequential,
}

impl Group {
    /// Both, in the order of their inode numbers.
    pub const ALL: [Group; 2] = [Group::Conventional, Group::Sequential];

    /// The name of the directory.
    pub fn name(self) -> &'static str {
        match self {
            Group::Conventional => "cnv",
            Group::Sequential => "seq",
        }
    }
}

/// A file: one zone, or several adjacent conventional zones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) group: Group,
    /// The number of its first zone, which is the inode number of the file.
    pub(crate) zone: u32,
    pub(crate) start: Sector,
    /// The capacity of the file.
    pub(crate) capacity_sectors: u64,
    /// The written part of the file.
    pub(crate) written_sectors: u64,
    pub(crate) cond: Condition,
}

/// The written sectors of a zone, which give the size of its file. The write pointer of a read-only
/// zone is not valid: `otherwise` is used instead. An offline zone counts as empty.
pub(crate) fn written_sectors(zone: &ZoneInfo, otherwise: u64) -> u64 {
    match (zone.zone_type, zone.cond) {
        (_, Condition::Offline) => 0,
        (ZoneType::Conventional, _) | (_, Condition::Full) => zone.capacity_sectors,
        (_, Condition::ReadOnly) => otherwise,
        _ => zone.wp.0.saturating_sub(zone.start.0).min(zone.capacity_sectors),
    }
}

fn extent(number: usize, zone: &ZoneInfo) -> Extent {
    let group = match zone.zone_type {
        ZoneType::Conventional => Group::Conventional,
        ZoneType::SeqWriteRequired => Group::Sequential,
    };
    Extent {
        group,
        zone: number as u32,
        start: zone.start,
        capacity_sectors: zone.capacity_sectors,
        written_sectors: written_sectors(zone, 0),
        cond: zone.cond,
    }
}

/// The files of a disk with the report `zones`, in the order of the zones. With `aggregate`,
/// adjacent conventional zones form one file.
pub(crate) fn extents(zones: &[ZoneInfo], aggregate: bool) -> Vec<Extent> {
    let mut files: Vec<Extent> = Vec::with_capacity(zones.len());
    for (number, zone) in zones.iter().enumerate().skip(1) {
        let one = extent(number, zone);
        let joins = |f: &Extent| {
            let conventional = [f.group, one.group] == [Group::Conventional; 2];
            aggregate && conventional && f.start.plus(f.capacity_sectors) == one.start
        };
        match files.last_mut().filter(|f| joins(f)) {
            Some(file) => {
                file.capacity_sectors += one.capacity_sectors;
                file.written_sectors += one.written_sectors;
                // The file takes the worst condition of its zones.
                let worse = |c: Condition| {
                    matches!(c, Condition::Offline)
                        || c == Condition::ReadOnly && file.cond != Condition::Offline
                };
                if worse(one.cond) {
                    file.cond = one.cond;
                }
            }
            None => files.push(one),
        }
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zone(n: u64, zone_type: ZoneType, wp: u64, cond: Condition) -> ZoneInfo {
        let start = Sector(n * 2048);
        ZoneInfo {
            start,
            len_sectors: 2048,
            capacity_sectors: 2048,
            wp: start.plus(wp),
            zone_type,
            cond,
        }
    }

    #[test]
    fn the_first_zone_is_no_file_and_conventional_zones_join() {
        use {Condition as C, ZoneType as T};
        let zones = [
            zone(0, T::Conventional, 0, C::NotWp),
            zone(1, T::Conventional, 0, C::NotWp),
            zone(2, T::Conventional, 0, C::ReadOnly),
            zone(3, T::SeqWriteRequired, 8, C::ImpOpen),
            zone(4, T::SeqWriteRequired, 2048, C::Full),
            zone(5, T::SeqWriteRequired, u64::MAX - 5 * 2048, C::ReadOnly),
            zone(6, T::SeqWriteRequired, 9, C::Offline),
        ];
        let of = |aggregate| {
            extents(&zones, aggregate)
                .iter()
                .map(|f| (f.group.name(), f.zone, f.capacity_sectors, f.written_sectors))
                .collect::<Vec<_>>()
        };
        let seq =
            [("seq", 3, 2048, 8), ("seq", 4, 2048, 2048), ("seq", 5, 2048, 0), ("seq", 6, 2048, 0)];
        assert_eq!(of(false)[..2], [("cnv", 1, 2048, 2048), ("cnv", 2, 2048, 2048)]);
        assert_eq!(of(false)[2..], seq);
        assert_eq!(of(true)[..1], [("cnv", 1, 4096, 4096)]);
        assert_eq!(of(true)[1..], seq);
        assert_eq!(extents(&zones, true)[0].cond, C::ReadOnly);
    }
}
