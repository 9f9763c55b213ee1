//! The description of an emulated disk: kind, layout, limits and timing.

use super::keys;
use crate::spec::{Spec, SpecError};
use std::fmt;
use std::str::FromStr;
use zoneplug_core::Error;
use zoneplug_core::form::Time;
use zoneplug_core::unit::{Nanos, SECTOR_SHIFT, Sector, ZoneNo};
use zoneplug_core::zone::{Geometry, Limits, ZoneMemory};

/// The place of an emulated disk's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EmuKind {
    /// The disk keeps no data. A read leaves its buffer unchanged.
    Null,
    /// In memory, which is allocated on first write.
    Mem,
}

impl EmuKind {
    /// Returns the name in a specification.
    pub const fn name(self) -> &'static str {
        match self {
            EmuKind::Null => "null",
            EmuKind::Mem => "mem",
        }
    }
}

/// The description of an emulated disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EmuConfig {
    /// The kind, which says whether the disk keeps data.
    pub kind: EmuKind,
    /// The layout of zones.
    pub geometry: Geometry,
    /// The limits that the disk declares and enforces.
    pub limits: Limits,
    /// The time that each command takes, from submit to the first poll that returns it.
    pub latency: Nanos,
    /// With a seed, a queue carries out and completes the commands that it holds in a random order. Each queue draws
    /// its own numbers, which depend on the seed and on how many queues were opened before it. On a disk that keeps
    /// the order of writes ([`Limits::keeps_write_order`]), the writes of one zone keep their order.
    pub reorder: Option<u64>,
    /// Also check the buffers of a `null` disk in a release build, and count overlapping writes
    /// ([`Stats::overlaps`](super::Stats::overlaps)).
    pub paranoid: bool,
}

impl EmuConfig {
    /// Makes the description of a disk with this layout, default limits and no latency.
    pub fn new(kind: EmuKind, geometry: Geometry) -> EmuConfig {
        EmuConfig {
            kind,
            geometry,
            limits: Limits::default(),
            latency: Nanos(0),
            reorder: None,
            paranoid: false,
        }
    }

    /// Returns the memory that the zones take while a disk on this device is opened. Data come on top, when they are
    /// written.
    pub fn zone_memory(&self) -> ZoneMemory {
        // The state of a zone and its place in the list of open ones, the time at which a model lets it go on, and the
        // chunks of its data.
        let kept = match self.kind {
            EmuKind::Null => 8 + 8 + 8,
            EmuKind::Mem => 8 + 8 + 8 + 40,
        };
        self.geometry.memory().and_each(kept)
    }

    /// Checks that the parts agree with each other. Fails with an error of kind *invalid* that names the first that
    /// do not.
    pub fn check(&self) -> Result<(), Error> {
        let (g, l) = (&self.geometry, &self.limits);
        let (block, granularity) = (l.logical_block_sectors, l.write_granularity_sectors);
        let bytes = |sectors: u32| Sector(u64::from(sectors)).to_bytes();
        if !block.is_power_of_two() {
            return Err(Error::invalid(format!("a logical block of {}", bytes(block)))
                .hint("lba-size is a power of two and at least 512 bytes"));
        }
        if !granularity.is_power_of_two() || granularity < block {
            return Err(Error::invalid(format!(
                "a write granularity of {} with logical blocks of {}",
                bytes(granularity),
                bytes(block)
            ))
            .hint("granularity is a power of two and at least lba-size"));
        }
        let last = ZoneNo(g.nr_zones() - 1);
        for (what, sectors) in [
            ("zone size", g.zone_sectors()),
            ("zone capacity", g.zone_capacity_sectors()),
            ("size of the last zone", g.zone_len_sectors(last)),
            ("capacity of the last zone", g.capacity_of(last)),
        ] {
            if !sectors.is_multiple_of(granularity) {
                let (len, unit) = (bytes(sectors), bytes(granularity));
                return Err(Error::invalid(format!(
                    "the {what} of {len} is not a multiple of {unit}"
                ))
                .hint("sizes are multiples of lba-size and of granularity"));
            }
        }
        for (what, sectors) in
            [("max-transfer", l.max_transfer_sectors), ("append-max", l.zone_append_max_sectors)]
        {
            if sectors != 0 && sectors < granularity {
                let len = bytes(sectors);
                return Err(Error::invalid(format!("{what} of {len} is less than one block"))
                    .hint(format!("{what} is at least the write granularity")));
            }
        }
        let (open, active) = (l.max_open_zones, l.max_active_zones);
        if active != 0 && open > active {
            return Err(Error::invalid(format!(
                "max-open {open} is more than max-active {active}"
            ))
            .hint("an open zone is active: max-open is at most max-active"));
        }
        Ok(())
    }
}

/// Number of zones if `zones=` is not given.
const ZONES: u64 = 64;

impl EmuKind {
    /// All kinds.
    pub const ALL: [EmuKind; 2] = [EmuKind::Null, EmuKind::Mem];

    /// Returns the sectors of a zone if `zone-size=` is not given: a realistic size where that costs nothing.
    const fn zone_sectors(self) -> u32 {
        match self {
            EmuKind::Null => (256 << 20) >> SECTOR_SHIFT,
            EmuKind::Mem => (16 << 20) >> SECTOR_SHIFT,
        }
    }
}

impl EmuConfig {
    /// Reads the description from a specification. Accepts the keys of an emulated disk: [`KEYS`](super::KEYS). Fails
    /// if a value is not allowed, or if values do not agree with each other.
    ///
    /// ```
    /// use zoneplug_devices::emu::EmuConfig;
    /// let c: EmuConfig = "null,size=1000M,zone-size=64M,zone-capacity=48M,conv=2".parse().unwrap();
    /// assert_eq!(c.geometry.nr_zones(), 16);
    /// assert_eq!(c.to_string(), "null,zones=16,zone-size=64M,zone-capacity=48M,last-zone-size=40M,\
    ///     last-zone-capacity=40M,conv=2");
    /// ```
    pub fn from_spec(spec: &mut Spec) -> Result<EmuConfig, Error> {
        let Some(kind) = EmuKind::ALL.into_iter().find(|k| k.name() == spec.kind()) else {
            return Err(spec.unknown_kind(&EmuKind::ALL.map(EmuKind::name)));
        };
        let geometry = take_geometry(spec, kind)?;
        let block = spec.number(&keys::LBA_SIZE)?.unwrap_or(8) as u32;
        let limits = Limits {
            logical_block_sectors: block,
            write_granularity_sectors: spec.number(&keys::GRANULARITY)?.map_or(block, |n| n as u32),
            max_transfer_sectors: spec.number(&keys::MAX_TRANSFER)?.unwrap_or(0) as u32,
            max_bios: spec.number(&keys::MAX_BIOS)?.unwrap_or(0) as u32,
            zone_append_max_sectors: 0,
            max_open_zones: spec.number(&keys::MAX_OPEN)?.unwrap_or(0) as u32,
            max_active_zones: spec.number(&keys::MAX_ACTIVE)?.unwrap_or(0) as u32,
            max_write_zeroes_sectors: match spec.number(&keys::MAX_WRITE_ZEROES)? {
                Some(n) => n as u32,
                None => u32::MAX,
            },
            discard: spec.flag(&keys::DISCARD)?.unwrap_or(true),
            write_cache: spec.flag(&keys::WRITE_CACHE)?.unwrap_or(false),
            fua: spec.flag(&keys::FUA)?.unwrap_or(true),
            rotational: spec.flag(&keys::ROTATIONAL)?.unwrap_or(false),
            read_only: spec.flag(&keys::READ_ONLY)?.unwrap_or(false),
            keeps_write_order: spec.flag(&keys::ORDERED)?.unwrap_or(false),
        };
        let mut config = EmuConfig {
            latency: Nanos(spec.number(&keys::LATENCY)?.unwrap_or(0)),
            reorder: spec.number(&keys::REORDER)?,
            paranoid: spec.flag(&keys::PARANOID)?.unwrap_or(false),
            limits,
            ..EmuConfig::new(kind, geometry)
        };
        let append = spec.number(&keys::APPEND)?;
        let append_max = spec.number(&keys::APPEND_MAX)?.map(|n| n as u32);
        config.limits.zone_append_max_sectors = match (append, append_max) {
            (Some(0), Some(_)) => {
                return Err(SpecError::Exclusive {
                    keys: ["append=emulated", "append-max"],
                    choice: "append-max is the limit of a native append: say append=native",
                }
                .into());
            }
            (_, Some(n)) => n,
            (Some(1), None) => {
                config.check()?;
                config.limits.visible_append_sectors(config.geometry.zone_sectors())
            }
            (_, None) => 0,
        };
        config.check()?;
        Ok(config)
    }
}

fn take_geometry(spec: &mut Spec, kind: EmuKind) -> Result<Geometry, Error> {
    let bytes = |sectors: u32| Sector(u64::from(sectors)).to_bytes();
    let zone = match spec.number(&keys::ZONE_SIZE)? {
        Some(n) => n as u32,
        None => kind.zone_sectors(),
    };
    let capacity = spec.number(&keys::ZONE_CAPACITY)?.map_or(zone, |n| n as u32);
    let zones = spec.number(&keys::ZONES)?;
    let size = spec.number(&keys::SIZE)?;
    let mut last = spec.number(&keys::LAST_ZONE_SIZE)?.map(|n| n as u32);
    let last_capacity = spec.number(&keys::LAST_ZONE_CAPACITY)?.map(|n| n as u32);
    let conv = spec.number(&keys::CONV)?.unwrap_or(0) as u32;

    let nr_zones = match (zones, size) {
        (Some(_), Some(_)) => {
            return Err(SpecError::Exclusive {
                keys: ["zones", "size"],
                choice: "give the number of zones, or the size of the whole disk",
            }
            .into());
        }
        (zones, None) => zones.unwrap_or(ZONES),
        (None, Some(size)) => {
            if last.is_some() {
                return Err(SpecError::Exclusive {
                    keys: ["size", "last-zone-size"],
                    choice: "what remains of size becomes the last zone",
                }
                .into());
            }
            if (1..u64::from(zone)).contains(&size) {
                let (size, zone) = (Sector(size).to_bytes(), bytes(zone));
                return Err(Error::invalid(format!(
                    "a disk of {size} has no room for a zone of {zone}"
                ))
                .hint(format!("a larger size, or a zone size of at most {size}")));
            }
            let remainder = (size % u64::from(zone)) as u32;
            last = (remainder > 0).then_some(remainder);
            size.div_ceil(u64::from(zone))
        }
    };
    let invalid = |e: zoneplug_core::zone::GeometryError| {
        Error::invalid(format!("the zones are not possible: {e}")).hint(
            "see zones, size, zone-size, zone-capacity, last-zone-size, last-zone-capacity, conv",
        )
    };
    if capacity == 0 || capacity > zone {
        let allowed = format!("from one block to the zone size, {}", bytes(zone));
        return Err(SpecError::value("zone-capacity", bytes(capacity), allowed).into());
    }
    let mut g = Geometry::new(nr_zones, zone, capacity).map_err(invalid)?;
    if last.is_some() || last_capacity.is_some() {
        let len = last.unwrap_or(zone);
        let capacity = last_capacity.unwrap_or(capacity.min(len));
        for (key, n, most, of) in [
            ("last-zone-size", len, zone, "zone size"),
            ("last-zone-capacity", capacity, len, "size of the last zone"),
        ] {
            if n == 0 || n > most {
                let allowed = format!("from one block to the {of}, {}", bytes(most));
                return Err(SpecError::value(key, bytes(n), allowed).into());
            }
        }
        g = g.with_last_zone(len, capacity).map_err(invalid)?;
    }
    if u64::from(conv) >= nr_zones {
        return Err(Error::invalid(format!("conv={conv} of {nr_zones} zones is not possible"))
            .hint("at least one zone is sequential: conv is less than the number of zones"));
    }
    g.with_conventional((0..conv).map(ZoneNo)).map_err(invalid)
}

impl FromStr for EmuConfig {
    type Err = Error;

    /// Reads a specification that has keys of an emulated disk only.
    fn from_str(text: &str) -> Result<EmuConfig, Error> {
        let mut spec = Spec::parse(text)?;
        let config = EmuConfig::from_spec(&mut spec)?;
        spec.finish()?;
        Ok(config)
    }
}

impl fmt::Display for EmuConfig {
    /// Shows the specification without default values. Conventional zones are shown as if they were the first of the
    /// disk, because a specification can only place them there.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (g, l) = (&self.geometry, &self.limits);
        let d = EmuConfig::new(self.kind, *g).limits;
        let size = |sectors: u32| Sector(u64::from(sectors)).to_bytes();
        let (zone, capacity) = (g.zone_sectors(), g.zone_capacity_sectors());
        let last = ZoneNo(g.nr_zones() - 1);
        write!(f, "{},zones={},zone-size={}", self.kind.name(), g.nr_zones(), size(zone))?;
        let last_len = g.zone_len_sectors(last);
        for (key, sectors, default) in [
            ("zone-capacity", capacity, zone),
            ("last-zone-size", last_len, zone),
            ("last-zone-capacity", g.capacity_of(last), capacity),
            ("lba-size", l.logical_block_sectors, d.logical_block_sectors),
            ("granularity", l.write_granularity_sectors, l.logical_block_sectors),
            ("max-transfer", l.max_transfer_sectors, 0),
            ("append-max", l.zone_append_max_sectors, 0),
            ("max-write-zeroes", l.max_write_zeroes_sectors, d.max_write_zeroes_sectors),
        ] {
            if sectors != default {
                write!(f, ",{key}={}", size(sectors))?;
            }
        }
        for (key, n, default) in [
            ("conv", g.nr_conventional(), 0),
            ("max-bios", l.max_bios, 0),
            ("max-open", l.max_open_zones, 0),
            ("max-active", l.max_active_zones, 0),
            ("discard", u32::from(l.discard), 1),
            ("write-cache", u32::from(l.write_cache), 0),
            ("fua", u32::from(l.fua), 1),
            ("rotational", u32::from(l.rotational), 0),
            ("read-only", u32::from(l.read_only), 0),
            ("ordered", u32::from(l.keeps_write_order), 0),
            ("paranoid", u32::from(self.paranoid), 0),
        ] {
            if n != default {
                write!(f, ",{key}={n}")?;
            }
        }
        if self.latency != Nanos(0) {
            write!(f, ",latency={}", Time(self.latency))?;
        }
        match self.reorder {
            Some(seed) => write!(f, ",reorder={seed}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_kind_alone_is_a_useful_disk() {
        for (text, zone) in [("null", 256u64 << 20), ("mem", 16 << 20)] {
            let c: EmuConfig = text.parse().unwrap();
            assert_eq!(c.geometry.capacity_bytes().0, 64 * zone);
            assert_eq!(c.limits, Limits::default());
            assert_eq!(c.latency, Nanos(0));
        }
    }

    #[test]
    fn every_key_is_taken() {
        let c: EmuConfig = "mem,zones=64,zone-size=64M,zone-capacity=48M,conv=4,max-open=8,latency=1ms,\
            reorder=7,max-transfer=128K,append=native,append-max=64K,last-zone-size=32M,\
            last-zone-capacity=16M,lba-size=512,granularity=4096,max-active=12,rotational=1,read-only=1,\
            max-bios=16,max-write-zeroes=1M,discard=0,write-cache=1,fua=0,paranoid=1,ordered=1"
            .parse()
            .unwrap();
        let l = &c.limits;
        assert_eq!((l.logical_block_sectors, l.write_granularity_sectors), (1, 8));
        assert_eq!((l.max_transfer_sectors, l.zone_append_max_sectors, l.max_bios), (256, 128, 16));
        assert_eq!(
            (l.max_open_zones, l.max_active_zones, l.max_write_zeroes_sectors),
            (8, 12, 2048)
        );
        assert!(l.rotational && l.read_only && l.write_cache && !l.discard && c.paranoid);
        assert!(l.keeps_write_order && !l.fua);
        assert_eq!((c.latency, c.reorder), (Nanos(1_000_000), Some(7)));
        let g = &c.geometry;
        assert_eq!((g.nr_zones(), g.nr_conventional()), (64, 4));
        assert_eq!((g.zone_len_sectors(ZoneNo(63)), g.capacity_of(ZoneNo(63))), (65536, 32768));
        assert_eq!(c.to_string().parse::<EmuConfig>().unwrap(), c);
    }

    #[test]
    fn a_native_append_is_as_long_as_a_transfer_unless_said_otherwise() {
        let max = |t: &str| t.parse::<EmuConfig>().unwrap().limits.zone_append_max_sectors;
        assert_eq!(max("mem"), 0);
        assert_eq!(max("mem,append=emulated"), 0);
        assert_eq!(max("mem,append=native"), 16 << 11);
        assert_eq!(max("mem,append=native,max-transfer=128K"), 256);
        assert_eq!(max("mem,append-max=64K"), 128);
    }

    #[test]
    fn an_impossible_disk_says_why_and_what_to_try() {
        for (text, what) in [
            ("men", "no kind of device is called 'men'"),
            ("mem,zones=0", "zones=0"),
            ("mem,zones=4000001", "zones=4000001"),
            ("mem,size=5000000M,zone-size=1M", "5000000 zones"),
            ("mem,zone-capacity=17M", "zone-capacity=17M"),
            ("mem,zone-capacity=0", "zone-capacity=0"),
            ("mem,zone-size=0", "zone-size=0"),
            ("mem,size=0", "size=0 is not possible"),
            ("mem,zone-size=2T", "zone-size=2T"),
            ("mem,zones=4,size=64M", "zones and size"),
            ("mem,size=100M,last-zone-size=4M", "size and last-zone-size"),
            ("mem,last-zone-size=17M", "last-zone-size=17M is not possible"),
            (
                "mem,last-zone-size=1M,last-zone-capacity=2M",
                "last-zone-capacity=2M is not possible",
            ),
            ("mem,zones=4,conv=4", "conv=4 of 4 zones"),
            ("mem,max-open=9,max-active=8", "max-open 9 is more than max-active 8"),
            ("mem,lba-size=3K", "lba-size=3K is not possible"),
            ("mem,lba-size=128M", "lba-size=128M is not possible"),
            ("mem,granularity=512", "a write granularity of 512 with logical blocks of 4K"),
            ("mem,granularity=0", "granularity=0 is not possible"),
            ("mem,zone-size=1030K", "the zone size of 1030K is not a multiple of 4K"),
            ("mem,size=16386K", "the size of the last zone of 2K is not a multiple"),
            ("mem,max-transfer=2K", "max-transfer of 2K is less than one block"),
            ("mem,append=emulated,append-max=4K", "exclude each other"),
            ("mem,append-max=0", "append-max=0"),
            ("mem,append=maybe", "append=maybe"),
            ("mem,latency=5", "latency=5"),
            ("mem,rotational=yes", "rotational=yes"),
            ("mem,zons=4", "mem has no option zons"),
        ] {
            let e = text.parse::<EmuConfig>().expect_err(text);
            assert!(e.to_string().contains(what), "{text}: {e}");
            assert!(e.what_to_try().is_some(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_disk_is_read_as_it_is_shown(
            (mem, zones, zone, capacity, last, last_capacity) in (any::<bool>(), 2u64..300, 1u32..5000, 1u32..5000, 1u32..5000, 1u32..5000),
            (conv, lba, more, transfer, append, open, active) in (0u32..300, 0u32..4, 0u32..3, 0u32..999, 0u32..999, 0u32..20, 0u32..20),
            (latency, reorder, flags, zeroes, bios) in (any::<u64>(), any::<Option<u64>>(), 0u8..128, any::<Option<u16>>(), 0u32..300),
        ) {
            let (block, unit) = (1u32 << lba, 1u32 << (lba + more));
            let g = Geometry::new(zones, zone * unit, capacity.min(zone) * unit).unwrap();
            let g = g.with_last_zone(last.min(zone) * unit, last_capacity.min(last).min(zone) * unit).unwrap();
            let g = g.with_conventional((0..conv.min(zones as u32 - 1)).map(ZoneNo)).unwrap();
            let kind = EmuKind::ALL[usize::from(mem)];
            let limits = Limits {
                logical_block_sectors: block,
                write_granularity_sectors: unit,
                max_transfer_sectors: transfer * unit,
                max_bios: bios,
                zone_append_max_sectors: append * unit,
                max_open_zones: if active == 0 { open } else { open.min(active) },
                max_active_zones: active,
                max_write_zeroes_sectors: zeroes.map_or(u32::MAX, u32::from),
                discard: flags & 1 != 0,
                write_cache: flags & 2 != 0,
                fua: flags & 64 == 0,
                rotational: flags & 4 != 0,
                read_only: flags & 8 != 0,
                keeps_write_order: flags & 32 != 0,
            };
            let config = EmuConfig {
                limits, latency: Nanos(latency), reorder, paranoid: flags & 16 != 0,
                ..EmuConfig::new(kind, g)
            };
            config.check().unwrap();
            let text = config.to_string();
            prop_assert_eq!(text.parse::<EmuConfig>().unwrap(), config, "{}", text);
        }

        #[test]
        fn any_options_are_read_without_a_panic(text in "(,(zones|size|zone-size|zone-capacity|conv|max-open|append-max|last-zone-size|lba-size|latency)=[0-9]{1,19}[KMGT]?){0,6}") {
            if let Ok(c) = format!("mem{text}").parse::<EmuConfig>() {
                prop_assert_eq!(c.to_string().parse::<EmuConfig>().unwrap(), c);
            }
        }
    }
}
