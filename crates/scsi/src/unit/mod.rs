//! A logical unit: a disk as SCSI shows it.
//!
//! [`LogicalUnit::begin`] takes a command of an initiator. It returns the first [`TaskStep`]: submit a request to the disk,
//! or answer. [`Task::next`] returns the step after a request has ended.
//!
//! | file | what it owns |
//! | --- | --- |
//! | `mod.rs` | what a unit is: its disk, its layout, its names |
//! | `logical_unit.rs` | unit attentions and reservations, before each command |
//! | `nexus.rs` | the name of an initiator |
//! | `task.rs` | the steps of a command |
//! | `ranges.rs` | whether a range of blocks may be read or written |
//! | `report.rs` | REPORT ZONES |
//! | `manage.rs` | OPEN, CLOSE and FINISH of several zones |
//! | `answer.rs` | the answer to a command |
//! | `control.rs` | answers that need no disk |
//! | `reservations.rs` | persistent reservations |
//! | `outcome.rs` | from the status of a request to sense data |

mod answer;
mod control;
mod logical_unit;
mod manage;
mod nexus;
mod outcome;
mod ranges;
mod report;
mod reservations;
mod task;

pub use answer::{Answer, AnswerData};
pub(crate) use control::encode_lun;
pub use control::{answer_without_unit, decode_lun, report_luns};
pub use logical_unit::{Arrived, LogicalUnit};
pub use nexus::{Nexus, TransportId};
pub use task::{IoRequest, IoResult, Task, TaskStep};

use crate::spec::block::Capacity;
use crate::spec::inquiry::{DIRECT_ACCESS, HOST_MANAGED};
use crate::spec::operation::Abilities;
use crate::spec::zone::Same;
use zoneplug_core::zone::{Geometry, Limits};
use zoneplug_core::{Error, ErrorKind, Sector, ZoneNo};

/// The longest transfer of a unit whose disk has no limit, in bytes.
const MAX_TRANSFER: u32 = 16 << 20;
/// The largest logical block that Linux takes: a page.
const MAX_BLOCK_SECTORS: u32 = 4096 >> 9;

/// Most ranges of an UNMAP.
const MAX_UNMAP_RANGES: u32 = 64;

/// The names and properties that a unit shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnitConfig {
    /// The caller's number of the disk, which each request contains.
    pub disk: u32,
    /// The disk's UUID: the unit has the same names wherever it is served.
    pub uuid: [u8; 16],
    /// The vendor: at most 8 ASCII characters.
    pub vendor: String,
    /// The product: at most 16.
    pub product: String,
    /// The version of the product: at most 4.
    pub revision: String,
    /// Turns of the medium a minute, if it turns and the number is known.
    pub rotation_rate: Option<u16>,
    /// URSWRZ: blocks above a write pointer can be read, as zeroes.
    pub unrestricted_reads: bool,
}

/// A disk as SCSI shows it. Nothing here changes while the unit is served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unit {
    config: UnitConfig,
    /// Zones; `None`: a disk without.
    zones: Option<Geometry>,
    blocks: u64,
    /// log2 of the sectors of a block.
    shift: u32,
    limits: Limits,
}

impl Unit {
    /// Makes a host-managed unit of a disk (device type 14h). Fails with [`ErrorKind::NotSupported`] if SCSI cannot
    /// describe the disk: zones with less capacity than length, or blocks that do not divide the zones.
    ///
    /// ```
    /// use zoneplug_core::ZoneNo;
    /// use zoneplug_core::zone::{Geometry, Limits};
    /// use zoneplug_scsi::unit::{Unit, UnitConfig};
    /// let config = UnitConfig {
    ///     disk: 0, uuid: [7; 16], vendor: "ZONEPLUG".into(), product: "disk".into(), revision: "1".into(),
    ///     rotation_rate: None, unrestricted_reads: true,
    /// };
    /// let g = Geometry::new(8, 0x8000, 0x8000)?.with_conventional([ZoneNo(0)])?;
    /// let unit = Unit::zoned(config, &g, &Limits::default())?;
    /// assert_eq!((unit.block_len(), unit.blocks()), (4096, 8 * 0x1000));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn zoned(config: UnitConfig, g: &Geometry, limits: &Limits) -> Result<Unit, Error> {
        let refused = |what: String, hint: &'static str| {
            Err(Error::new(ErrorKind::NotSupported, what).hint(hint))
        };
        let size = |sectors: u32| Sector(u64::from(sectors)).to_bytes();
        let last = g.zone_len_sectors(ZoneNo(g.nr_zones() - 1));
        let whole = g.zone_capacity_sectors() == g.zone_sectors()
            && g.last_zone_capacity_sectors() == last
            && (g.nr_conventional() == 0 || g.conventional_capacity_sectors() == g.zone_sectors());
        if !whole {
            return refused(
                format!(
                    "a zone of SCSI can be written to its end, and this disk has zones of {} of {}",
                    size(g.zone_capacity_sectors()),
                    size(g.zone_sectors())
                ),
                "serve it over NVMe/TCP or ublk, or a disk without zone_capacity",
            );
        }
        let granularity = limits.write_granularity_sectors;
        if !g.zone_sectors().is_multiple_of(granularity) || !last.is_multiple_of(granularity) {
            return refused(
                format!(
                    "zones of {} are not written in whole blocks of {}",
                    size(last),
                    size(granularity)
                ),
                "the zone size must be a multiple of the block and of the write granularity",
            );
        }
        Unit::of(config, Some(*g), g.capacity(), limits)
    }

    /// Makes a unit without zones (device type 0) of the first `sectors` of a disk, all conventional.
    pub fn conventional(
        config: UnitConfig,
        sectors: Sector,
        limits: &Limits,
    ) -> Result<Unit, Error> {
        Unit::of(config, None, sectors, limits)
    }

    fn of(
        config: UnitConfig,
        zones: Option<Geometry>,
        sectors: Sector,
        limits: &Limits,
    ) -> Result<Unit, Error> {
        let block = limits.logical_block_sectors;
        if block > MAX_BLOCK_SECTORS {
            let what = format!(
                "a unit has blocks of up to 4K, and this disk of {}",
                Sector(u64::from(block)).to_bytes()
            );
            return Err(Error::new(ErrorKind::NotSupported, what)
                .hint("another disk; zoneplug info shows its blocks"));
        }
        let shift = block.trailing_zeros();
        if sectors.0 >> shift == 0 {
            return Err(Error::invalid("a unit without a block").hint("another disk"));
        }
        Ok(Unit { config, zones, blocks: sectors.0 >> shift, shift, limits: limits.clone() })
    }

    /// Returns the caller's number of the disk.
    pub fn disk(&self) -> u32 {
        self.config.disk
    }

    /// Returns the bytes of a logical block.
    pub fn block_len(&self) -> u32 {
        512 << self.shift
    }

    /// Returns the number of logical blocks.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Returns the most bytes of a command's data.
    pub fn max_transfer(&self) -> u32 {
        let sectors = self.limits.transfer_sectors().min(MAX_TRANSFER >> 9);
        (sectors >> self.shift << self.shift) << 9
    }

    /// Returns which of the optional commands the unit has.
    pub fn abilities(&self) -> Abilities {
        let conventional = self.zones.is_none_or(|g| g.nr_conventional() > 0);
        Abilities {
            zoned: self.zones.is_some(),
            unmap: self.limits.discard && conventional,
            zeroes: self.max_zeroes() > 0,
            reservations: true,
        }
    }

    /// The peripheral device type.
    fn device_type(&self) -> u8 {
        if self.zones.is_some() { HOST_MANAGED } else { DIRECT_ACCESS }
    }

    /// Most blocks of a WRITE SAME. 0: the unit has none.
    fn max_zeroes(&self) -> u32 {
        self.limits.write_zeroes_sectors() >> self.shift
    }

    /// Most open zones. Open zones count against the limit of active zones too, which SCSI does not know.
    fn max_open(&self) -> Option<u32> {
        [self.limits.max_open_zones, self.limits.max_active_zones]
            .into_iter()
            .filter(|n| *n > 0)
            .min()
    }

    /// Returns the capacity as the commands for it describe it.
    fn capacity(&self) -> Capacity {
        let granularity = self.limits.write_granularity_sectors >> self.shift;
        Capacity {
            blocks: self.blocks,
            block_len: self.block_len(),
            physical_exponent: granularity.max(1).trailing_zeros() as u8,
            zoned: self.zones.is_some(),
            unmap: self.abilities().unmap,
        }
    }

    /// The serial number: the UUID as text.
    fn serial(&self) -> String {
        self.config.uuid.iter().map(|b| format!("{b:02x}")).collect()
    }

    fn sector(&self, lba: u64) -> Sector {
        Sector(lba << self.shift)
    }

    fn lba(&self, sector: Sector) -> u64 {
        sector.0 >> self.shift
    }
}

/// The properties that all zones of a layout share.
fn same(g: &Geometry) -> Same {
    let short = g.zone_len_sectors(ZoneNo(g.nr_zones() - 1)) < g.zone_sectors();
    match (g.nr_conventional() > 0, short) {
        (false, false) => Same::All,
        (false, true) => Same::AllButLastLength,
        (true, false) => Same::Length,
        (true, true) => Same::Nothing,
    }
}
