//! The limits and abilities of a device.

use crate::error::Error;

/// The limits that a device declares. 0 means no limit, unless a field says otherwise. Units are in the names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Logical block: a power of two, at least 1 sector. Every address and length must be a multiple of it.
    pub logical_block_sectors: u32,
    /// Writes to sequential zones must be multiples of this: a physical block on SMR disks. A power of two, at least
    /// the logical block.
    pub write_granularity_sectors: u32,
    /// Longest command with data.
    pub max_transfer_sectors: u32,
    /// Most BIOs in one command. A device that takes one segment for each BIO states its segments.
    pub max_bios: u32,
    /// Longest native zone append. 0: the device has none, and the layer emulates it.
    pub zone_append_max_sectors: u32,
    /// Most open zones.
    pub max_open_zones: u32,
    /// Most active zones.
    pub max_active_zones: u32,
    /// Longest write-zeroes command; 0: the device has none.
    pub max_write_zeroes_sectors: u32,
    /// Whether discard of conventional zones does anything.
    pub discard: bool,
    /// Whether the device has a volatile cache that a flush makes durable.
    pub write_cache: bool,
    /// Whether the device carries out FUA. If not, it is never asked to: a disk sends a write and a flush behind it, and only the
    /// write if there is no volatile cache.
    pub fua: bool,
    /// Whether the device is a rotating disk.
    pub rotational: bool,
    /// Whether the device takes no writes.
    pub read_only: bool,
    /// Whether the device carries out the writes that one queue sends to one zone in the order in which they were
    /// sent. Then several of them may be in flight (see `zone_write_depth` of
    /// [`DiskConfig`](crate::disk::DiskConfig)), and they may complete in any order. A write behind one that has
    /// failed must fail too, because it is not at the write pointer. A layer may pass this on only if it keeps the
    /// order.
    pub keeps_write_order: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            logical_block_sectors: 8,
            write_granularity_sectors: 8,
            max_transfer_sectors: 0,
            max_bios: 0,
            zone_append_max_sectors: 0,
            max_open_zones: 0,
            max_active_zones: 0,
            max_write_zeroes_sectors: u32::MAX,
            discard: true,
            write_cache: false,
            fua: true,
            rotational: false,
            read_only: false,
            keeps_write_order: false,
        }
    }
}

impl Limits {
    /// Returns `max_transfer_sectors`, rounded down to the write granularity so that all parts of a split are
    /// aligned. No limit is returned as the largest number.
    pub fn transfer_sectors(&self) -> u32 {
        let max = if self.max_transfer_sectors == 0 { u32::MAX } else { self.max_transfer_sectors };
        (max / self.write_granularity_sectors * self.write_granularity_sectors)
            .max(self.write_granularity_sectors)
    }

    /// Returns the longest write-zeroes command, rounded down to the write granularity so that all parts of a split
    /// are aligned. 0: the device has none.
    pub fn write_zeroes_sectors(&self) -> u32 {
        self.max_write_zeroes_sectors / self.write_granularity_sectors
            * self.write_granularity_sectors
    }

    /// The append limit that a client sees, native or emulated. It is never 0 on a zoned disk.
    pub fn visible_append_sectors(&self, zone_sectors: u32) -> u32 {
        let own = zone_sectors.min(self.transfer_sectors());
        if self.zone_append_max_sectors == 0 { own } else { own.min(self.zone_append_max_sectors) }
    }

    /// Checks that a disk can work with these limits. Fails with [`ErrorKind::Invalid`](crate::ErrorKind::Invalid).
    pub(crate) fn check(&self) -> Result<(), Error> {
        let ok = self.logical_block_sectors.is_power_of_two()
            && self.write_granularity_sectors.is_power_of_two()
            && self.write_granularity_sectors >= self.logical_block_sectors;
        if !ok {
            return Err(Error::invalid(format!(
                "a device with blocks of {} sectors and a write granularity of {} sectors",
                self.logical_block_sectors, self.write_granularity_sectors
            ))
            .hint("both are powers of two, and the granularity is at least one block"));
        }
        if self.max_active_zones != 0 && self.max_open_zones > self.max_active_zones {
            return Err(Error::invalid(format!(
                "a device with {} open zones of {} active zones",
                self.max_open_zones, self.max_active_zones
            ))
            .hint("max_open_zones is at most max_active_zones"));
        }
        Ok(())
    }
}
