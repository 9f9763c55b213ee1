//! What an emulated disk is: its kind, layout, limits and timing.

use crate::error::Error;
use crate::unit::{Nanos, Sector};
use crate::zone::{Geometry, Limits};

/// Where the data of an emulated disk goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EmuKind {
    /// Nowhere; a read leaves its buffer as it is.
    Null,
    /// Into memory, which is allocated when it is first written.
    Mem,
}

impl EmuKind {
    /// The name in a specification.
    pub const fn name(self) -> &'static str {
        match self {
            EmuKind::Null => "null",
            EmuKind::Mem => "mem",
        }
    }
}

/// What an emulated disk is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EmuConfig {
    /// Whether it keeps data.
    pub kind: EmuKind,
    /// Its layout.
    pub geometry: Geometry,
    /// What it declares, and enforces.
    pub limits: Limits,
    /// How long each command takes, from submit to the first poll that gives it back.
    pub latency: Nanos,
    /// With a seed: a queue carries out and completes the commands that it holds in a random order. Each queue
    /// draws numbers of its own, which depend on the seed and on how many were opened before it.
    pub reorder: Option<u64>,
    /// Also check the buffers of a `null` disk in a release build, and count overlapping writes
    /// ([`Stats::overlaps`](super::Stats::overlaps)).
    pub paranoid: bool,
}

impl EmuConfig {
    /// A disk with this layout, default limits and no latency.
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

    /// Whether the parts fit together.
    pub fn check(&self) -> Result<(), Error> {
        let (g, l) = (&self.geometry, &self.limits);
        let (block, granularity) = (l.logical_block_sectors, l.write_granularity_sectors);
        if !block.is_power_of_two() {
            return Err(Error::invalid(format!("a logical block of {block} sectors"))
                .hint("lba-size is a power of two and at least 512 bytes"));
        }
        if !granularity.is_power_of_two() || granularity < block {
            return Err(Error::invalid(format!(
                "a write granularity of {granularity} sectors with logical blocks of {block}"
            ))
            .hint("granularity is a power of two and at least lba-size"));
        }
        let last = crate::unit::ZoneNo(g.nr_zones() - 1);
        for (what, sectors) in [
            ("zone size", g.zone_sectors()),
            ("zone capacity", g.zone_capacity_sectors()),
            ("size of the last zone", g.zone_len_sectors(last)),
            ("capacity of the last zone", g.capacity_of(last)),
        ] {
            if !sectors.is_multiple_of(granularity) {
                let bytes = Sector(u64::from(sectors)).to_bytes();
                let unit = Sector(u64::from(granularity)).to_bytes();
                return Err(Error::invalid(format!(
                    "the {what} of {bytes} is not a multiple of {unit}"
                ))
                .hint("sizes are multiples of lba-size and of granularity"));
            }
        }
        for (what, sectors) in
            [("max-transfer", l.max_transfer_sectors), ("append-max", l.zone_append_max_sectors)]
        {
            if sectors != 0 && sectors < granularity {
                let bytes = Sector(u64::from(sectors)).to_bytes();
                return Err(Error::invalid(format!("{what} of {bytes} is less than one block"))
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
