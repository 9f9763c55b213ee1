//! For fuzzing: decodes the identify structures of a drive and the report of its zones. No program uses this.

use super::command::{Blocks, report_bytes, zones_in};
use super::identify::{NamespaceIdentity, Unfit};
use super::limits_of;
use crate::backend::drive::sysfs::QueueAttributes;
use crate::backend::drive::{geometry_of, memory_rules};
use zoneplug_core::Error;
use zoneplug_core::zone::{Geometry, Limits, ZoneInfo};
use zoneplug_core::{Op, Sector};
use zoneplug_nvme::spec::identify::{
    IdentifyController, IdentifyControllerNvm, IdentifyControllerZoned, IdentifyNamespace,
    IdentifyNamespaceZoned,
};

/// A namespace according to its identify structures.
#[derive(Debug)]
pub struct Namespace {
    id: NamespaceIdentity,
    blocks: Blocks,
}

impl Namespace {
    /// Decodes five structures of 4096 bytes each: controller, namespace, zoned namespace, and the limits of the two
    /// command sets, which a drive may lack. The error says why the namespace cannot be used.
    pub fn of(all: [&[u8; 4096]; 5], has_limits: [bool; 2]) -> Result<Namespace, String> {
        let [ctrl, ns, zns, nvm, zoned] = all;
        let ctrl = IdentifyController::decode(ctrl);
        let ns = IdentifyNamespace::decode(ns);
        let zns = IdentifyNamespaceZoned::decode(zns);
        let nvm = has_limits[0].then(|| IdentifyControllerNvm::decode(nvm));
        let zoned = has_limits[1].then(|| IdentifyControllerZoned::decode(zoned));
        let id = NamespaceIdentity::of(1, &ctrl, &ns, &zns, nvm.as_ref(), zoned.as_ref())
            .map_err(|Unfit(why)| why)?;
        let blocks = Blocks { nsid: 1, shift: id.lba_shift - 9 };
        Ok(Namespace { id, blocks })
    }

    /// The limits of commands, if the kernel passes transfers of up to `kernel` bytes through.
    pub fn limits(&self, kernel: u64) -> Limits {
        let rules = memory_rules(&QueueAttributes::default(), 1 << self.id.lba_shift);
        limits_of(&self.id, &rules, kernel, false, false).0
    }

    /// Sectors of the namespace.
    pub fn sectors(&self) -> u64 {
        self.id.blocks << self.blocks.shift
    }

    /// Sectors of a zone.
    pub fn zone_sectors(&self) -> u64 {
        self.id.zone_blocks << self.blocks.shift
    }

    /// The zones of a report that begins at sector `from`.
    pub fn zones(&self, report: &[u8], from: u64) -> Option<Vec<ZoneInfo>> {
        self.blocks.zones(report, Sector(from), self.zone_sectors())
    }

    /// The geometry of a disk with these zones.
    pub fn geometry(&self, zones: &[ZoneInfo]) -> Result<Geometry, Error> {
        geometry_of("the drive", zones, self.zone_sectors())
    }

    /// Blocks of a write of so many sectors, as its command has them, and bytes of a report of so many zones.
    pub fn sizes(&self, sectors: u32, zones: u32) -> (u32, u32) {
        let c = self.blocks.data(Op::Write, Sector(0), sectors, false);
        assert_eq!(zones_in(report_bytes(zones)), zones);
        ((c.cdw[2] & 0xffff) + 1, report_bytes(zones))
    }
}
