//! Commands of the NVM and ZNS Command Set specifications, and the report of zones. Converts numbers to bytes and back;
//! sends nothing.

use super::sys::Passthru;
use zoneplug_core::zone::{Condition, ZoneInfo, ZoneType};
use zoneplug_core::{Op, Sector};
use zoneplug_nvme::spec::zone::{SEQUENTIAL_ZONE, ZoneDescriptor, ZoneReportHeader};
use zoneplug_nvme::spec::{FUA, PARTIAL_REPORT, SELECT_ALL, ZoneAction, opcode};

const DESCRIPTOR: u32 = ZoneDescriptor::LEN as u32;

/// The addresses of a namespace, whose blocks have 2^`shift` sectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Blocks {
    pub(super) nsid: u32,
    pub(super) shift: u32,
}

impl Blocks {
    fn at(self, opcode: u8, sector: Sector) -> Passthru {
        let lba = sector.0 >> self.shift;
        let cdw = [lba as u32, (lba >> 32) as u32, 0, 0, 0, 0];
        Passthru { opcode, nsid: self.nsid, cdw, ..Default::default() }
    }

    /// A read, write, append or write-zeroes command of `len` sectors.
    pub(super) fn data(self, op: Op, sector: Sector, len: u32, fua: bool) -> Passthru {
        let opcode = match op {
            Op::Read => opcode::READ,
            Op::ZoneAppend => opcode::ZONE_APPEND,
            Op::WriteZeroes => opcode::WRITE_ZEROES,
            _ => opcode::WRITE,
        };
        let mut c = self.at(opcode, sector);
        // The number of blocks is 0-based.
        c.cdw[2] = (len >> self.shift) - 1;
        if fua {
            c.cdw[2] |= FUA;
        }
        c
    }

    pub(super) fn flush(self) -> Passthru {
        Passthru { opcode: opcode::FLUSH, nsid: self.nsid, ..Default::default() }
    }

    /// Zone management of the zone that starts at `sector`.
    pub(super) fn manage(self, op: Op, sector: Sector) -> Passthru {
        let mut c = self.at(opcode::ZONE_MANAGEMENT_SEND, sector);
        c.cdw[3] = match op {
            Op::ZoneClose => ZoneAction::Close as u32,
            Op::ZoneFinish => ZoneAction::Finish as u32,
            Op::ZoneOpen => ZoneAction::Open as u32,
            Op::ZoneReset => ZoneAction::Reset as u32,
            _ => ZoneAction::Reset as u32 | SELECT_ALL,
        };
        c
    }

    /// A report of the zones from `sector` on, into `bytes`.
    pub(super) fn report(self, sector: Sector, bytes: u32) -> Passthru {
        let mut c = self.at(opcode::ZONE_MANAGEMENT_RECEIVE, sector);
        // The number of dwords is 0-based.
        c.cdw[2] = bytes / 4 - 1;
        c.cdw[3] = PARTIAL_REPORT;
        c
    }

    /// Decodes the zones of a report, each `zone_sectors` long and the first at `from`. Returns `None` if the
    /// bytes are not such a report.
    pub(super) fn zones(
        self,
        bytes: &[u8],
        from: Sector,
        zone_sectors: u64,
    ) -> Option<Vec<ZoneInfo>> {
        let header = ZoneReportHeader::read(bytes)?;
        let (descriptors, _) = bytes[ZoneReportHeader::LEN..].as_chunks();
        let nr = header.nr_zones.min(descriptors.len() as u64) as usize;
        let mut next = from.0;
        let mut zone = |d| {
            let d = ZoneDescriptor::decode(d);
            let z = self.zone(&d, zone_sectors).filter(|z| z.start.0 == next)?;
            next += zone_sectors;
            Some(z)
        };
        descriptors[..nr].iter().map(&mut zone).collect()
    }

    fn zone(self, d: &ZoneDescriptor, zone_sectors: u64) -> Option<ZoneInfo> {
        let sectors = |lba: u64| lba.checked_mul(1 << self.shift);
        if d.zone_type() != SEQUENTIAL_ZONE {
            return None;
        }
        let cond = Condition::from_u8(d.state()).filter(|&c| c != Condition::NotWp)?;
        let start = sectors(d.zslba)?;
        let end = start.checked_add(zone_sectors)?;
        Some(ZoneInfo {
            start: Sector(start),
            len_sectors: zone_sectors,
            capacity_sectors: sectors(d.zcap).filter(|n| *n <= zone_sectors)?,
            wp: Sector(match cond {
                Condition::ReadOnly | Condition::Offline => u64::MAX,
                // The write pointer of a full zone is not valid (Y7).
                Condition::Full => end,
                Condition::Empty => start,
                _ => sectors(d.wp).filter(|wp| (start..=end).contains(wp))?,
            }),
            zone_type: ZoneType::SeqWriteRequired,
            cond,
        })
    }
}

/// How many zones fit into a report of so many bytes.
pub(super) const fn zones_in(bytes: u32) -> u32 {
    bytes / DESCRIPTOR - 1
}

/// Bytes of a report of `zones` zones.
pub(super) const fn report_bytes(zones: u32) -> u32 {
    (zones + 1) * DESCRIPTOR
}

#[cfg(test)]
mod tests {
    use super::*;

    const B: Blocks = Blocks { nsid: 3, shift: 3 };

    /// Y4, Y5, Y7: addresses and lengths are in blocks, counts are 0-based, and each operation has its action.
    #[test]
    fn commands_are_in_blocks_and_counts_are_zero_based() {
        let c = B.data(Op::Write, Sector(0x8_0000_0008), 16, true);
        assert_eq!((c.opcode, c.nsid, c.cdw[0], c.cdw[1], c.cdw[2]), (1, 3, 1, 1, 1 | 1 << 30));
        let c = B.data(Op::ZoneAppend, Sector(8), 8, false);
        assert_eq!((c.opcode, c.cdw[0], c.cdw[2]), (0x7d, 1, 0));
        assert_eq!(B.data(Op::Read, Sector(0), 8, false).opcode, 2);
        assert_eq!(B.data(Op::WriteZeroes, Sector(0), 8, false).opcode, 8);
        let ops = [Op::ZoneClose, Op::ZoneFinish, Op::ZoneOpen, Op::ZoneReset, Op::ZoneResetAll];
        assert_eq!(ops.map(|op| B.manage(op, Sector(0)).cdw[3]), [1, 2, 3, 4, 0x104]);
        let r = B.report(Sector(80), report_bytes(2));
        assert_eq!((r.opcode, r.cdw[0], r.cdw[2], r.cdw[3]), (0x7a, 10, 47, 1 << 16));
        assert_eq!((zones_in(4096), zones_in(report_bytes(5))), (63, 5));
        assert_eq!(B.flush().opcode, 0);
    }

    /// Y3, Y7: the descriptors of a report become zones; the write pointer of a full zone is not used.
    #[test]
    fn a_report_of_zones() {
        let mut b = vec![0u8; 64 * 5];
        b[..8].copy_from_slice(&3u64.to_le_bytes());
        let mut put = |n: usize, state: u8, zslba: u64, wp: u64| {
            let d = &mut b[64 * (n + 1)..64 * (n + 2)];
            (d[0], d[1]) = (2, state << 4);
            d[8..16].copy_from_slice(&80u64.to_le_bytes());
            d[16..24].copy_from_slice(&zslba.to_le_bytes());
            d[24..32].copy_from_slice(&wp.to_le_bytes());
        };
        put(0, 2, 0, 5);
        put(1, 0xe, 100, u64::MAX);
        put(2, 0xf, 200, 0);
        let z = B.zones(&b, Sector(0), 800).unwrap();
        assert_eq!(z.len(), 3);
        assert_eq!(
            (z[0].cond, z[0].wp, z[0].capacity_sectors),
            (Condition::ImpOpen, Sector(40), 640)
        );
        assert_eq!((z[1].start, z[1].cond, z[1].wp), (Sector(800), Condition::Full, Sector(1600)));
        assert_eq!((z[2].cond, z[2].wp), (Condition::Offline, Sector(u64::MAX)));
        b[64] = 1;
        assert_eq!(B.zones(&b, Sector(0), 800), None, "zones must be sequential");
        assert_eq!(B.zones(&[0; 4], Sector(0), 800), None);
    }
}
