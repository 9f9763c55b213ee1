//! Decodes what the layer needs of the identify structures of the NVM Express Base, NVM Command Set and ZNS Command Set
//! specifications.

use super::sys::{Passthru, To, fetch, namespace};
use std::fs::File;
use std::io;
use zoneplug_nvme::spec::admin;
use zoneplug_nvme::spec::identify::{
    IDENTIFY_LEN, IdentifyController, IdentifyControllerNvm, IdentifyControllerZoned,
    IdentifyNamespace, IdentifyNamespaceZoned, cns, csi,
};

/// `MDTS` and `ZASL` are in pages of the controller's smallest size. No command reports that size; it is at least this.
const MIN_PAGE: u64 = 4096;

/// A zoned namespace and its controller.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct NamespaceIdentity {
    pub(super) nsid: u32,
    /// log2 of the bytes of a logical block.
    pub(super) lba_shift: u32,
    /// Bytes of metadata of each block.
    pub(super) metadata: u32,
    /// Logical blocks of the namespace, and of a zone.
    pub(super) blocks: u64,
    pub(super) zone_blocks: u64,
    /// 0: no limit.
    pub(super) max_open: u32,
    pub(super) max_active: u32,
    /// Longest transfer and longest append in bytes; 0: no limit.
    pub(super) max_transfer: u64,
    pub(super) max_append: u64,
    /// Longest write-zeroes command in bytes; 0: no limit, `None`: no such command.
    pub(super) max_zeroes: Option<u64>,
    pub(super) write_cache: bool,
    pub(super) read_only: bool,
}

/// Why a namespace cannot be used.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unfit(pub(super) String);

/// 2^`exponent` pages; 0: no limit.
fn pages(exponent: u8) -> u64 {
    match exponent {
        0 => 0,
        e => MIN_PAGE.checked_shl(u32::from(e)).unwrap_or(0),
    }
}

/// Converts a 0-based number with all ones for no limit to a number with 0 for no limit.
fn count(n: u32) -> u32 {
    n.wrapping_add(1)
}

impl NamespaceIdentity {
    /// From the structures of the controller, the namespace and the zoned namespace, and the controller's limits for the
    /// two command sets, which may be missing.
    pub(super) fn of(
        nsid: u32,
        ctrl: &IdentifyController,
        ns: &IdentifyNamespace,
        zns: &IdentifyNamespaceZoned,
        nvm_limits: Option<&IdentifyControllerNvm>,
        zns_limits: Option<&IdentifyControllerZoned>,
    ) -> Result<NamespaceIdentity, Unfit> {
        let lbaf = ns.lbaf[ns.format()];
        let lba_shift = u32::from(lbaf.lbads);
        if !(9..=20).contains(&lba_shift) {
            return Err(Unfit(format!("its logical blocks are of 2^{lba_shift} bytes")));
        }
        let zone_blocks = zns.lbafe[ns.format()].zsze;
        let blocks = ns.nsze;
        // Every byte of the namespace must have an address.
        if zone_blocks == 0 || blocks < zone_blocks || blocks > i64::MAX as u64 >> lba_shift {
            return Err(Unfit(format!("{blocks} blocks in zones of {zone_blocks}")));
        }
        // ZOC: the capacity of zones may change, or the drive may change zones by itself.
        if zns.zoc & 3 != 0 {
            return Err(Unfit("its zones change by themselves (ZOC)".to_owned()));
        }
        let max_transfer = pages(ctrl.mdts);
        let zasl = zns_limits.map_or(0, |b| b.zasl);
        let wzsl = nvm_limits.map_or(0, |b| b.wzsl);
        // ONCS bit 3.
        let has_zeroes = ctrl.oncs & 8 != 0;
        Ok(NamespaceIdentity {
            nsid,
            lba_shift,
            metadata: u32::from(lbaf.ms),
            blocks,
            zone_blocks,
            max_active: count(zns.mar),
            max_open: count(zns.mor),
            max_transfer,
            max_append: if zasl == 0 { max_transfer } else { pages(zasl) },
            max_zeroes: has_zeroes.then(|| if wzsl == 0 { max_transfer } else { pages(wzsl) }),
            write_cache: ctrl.vwc & 1 != 0,
            // NSATTR bit 0.
            read_only: ns.nsattr & 1 != 0,
        })
    }

    /// Asks the drive behind `file`.
    pub(super) fn ask(file: &File) -> io::Result<Result<NamespaceIdentity, Unfit>> {
        let nsid = namespace(file)?;
        let identify = |cns: u8, csi: u8, nsid: u32| {
            let cdw = [u32::from(cns), u32::from(csi) << 24, 0, 0, 0, 0];
            let cmd = Passthru { opcode: admin::IDENTIFY, nsid, cdw, ..Default::default() };
            fetch(file, To::Admin, cmd, IDENTIFY_LEN as u32)
        };
        let short = || io::Error::other("a short answer");
        let Ok(zns) = identify(cns::COMMAND_SET_NAMESPACE, csi::ZONED, nsid) else {
            return Ok(Err(Unfit("it is not a zoned namespace".to_owned())));
        };
        let zns = IdentifyNamespaceZoned::read(&zns).ok_or_else(short)?;
        let ctrl = identify(cns::CONTROLLER, 0, 0)?;
        let ctrl = IdentifyController::read(&ctrl).ok_or_else(short)?;
        let ns = identify(cns::NAMESPACE, 0, nsid)?;
        let ns = IdentifyNamespace::read(&ns).ok_or_else(short)?;
        let limits = |csi| identify(cns::COMMAND_SET_CONTROLLER, csi, 0).ok();
        let nvm = limits(csi::NVM).and_then(|b| IdentifyControllerNvm::read(&b));
        let zoned = limits(csi::ZONED).and_then(|b| IdentifyControllerZoned::read(&b));
        Ok(NamespaceIdentity::of(nsid, &ctrl, &ns, &zns, nvm.as_ref(), zoned.as_ref()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(b: &mut [u8], at: usize, v: u64, n: usize) {
        b[at..at + n].copy_from_slice(&v.to_le_bytes()[..n]);
    }

    /// A namespace as QEMU makes it: 16 zones of 96 MiB, blocks of 4096, 16 open and 32 active zones.
    fn drive() -> [Vec<u8>; 5] {
        let mut all: [Vec<u8>; 5] = std::array::from_fn(|_| vec![0; 4096]);
        let [ctrl, ns, zns, nvm, zoned] = &mut all;
        ctrl[77] = 7;
        put(ctrl, 520, 0x8 | 0x4, 2);
        ctrl[525] = 7;
        put(ns, 0, 16 * 24576, 8);
        ns[26] = 4;
        put(ns, 128 + 4 * 4, 12 << 16, 4);
        put(zns, 4, 31, 4);
        put(zns, 8, 15, 4);
        put(zns, 2816 + 16 * 4, 24576, 8);
        nvm[1] = 3;
        zoned[0] = 5;
        all
    }

    fn of(all: &[Vec<u8>; 5]) -> Result<NamespaceIdentity, Unfit> {
        decoded(all, true)
    }

    fn decoded(
        [ctrl, ns, zns, nvm, zoned]: &[Vec<u8>; 5],
        limits: bool,
    ) -> Result<NamespaceIdentity, Unfit> {
        let ctrl = IdentifyController::read(ctrl).unwrap();
        let ns = IdentifyNamespace::read(ns).unwrap();
        let zns = IdentifyNamespaceZoned::read(zns).unwrap();
        let nvm = IdentifyControllerNvm::read(nvm).filter(|_| limits);
        let zoned = IdentifyControllerZoned::read(zoned).filter(|_| limits);
        NamespaceIdentity::of(1, &ctrl, &ns, &zns, nvm.as_ref(), zoned.as_ref())
    }

    /// Y1: limits, sizes and features are read from the identify structures.
    #[test]
    fn a_zoned_namespace() {
        let all = drive();
        let id = of(&all).unwrap();
        assert_eq!((id.lba_shift, id.zone_blocks, id.blocks), (12, 24576, 393_216));
        assert_eq!((id.max_open, id.max_active), (16, 32));
        assert_eq!(
            (id.max_transfer, id.max_append, id.max_zeroes),
            (512 << 10, 128 << 10, Some(32 << 10))
        );
        assert!(id.write_cache && !id.read_only && id.metadata == 0);
        // Neither limit: appends are as long as transfers; no limit of either resource.
        let mut all = all;
        put(&mut all[2], 4, 0xffff_ffff, 4);
        put(&mut all[2], 8, 0xffff_ffff, 4);
        let id = decoded(&all, false).unwrap();
        assert_eq!((id.max_open, id.max_active, id.max_append), (0, 0, 512 << 10));
    }

    #[test]
    fn what_is_not_for_us_says_why() {
        let mut all = drive();
        put(&mut all[1], 128 + 4 * 4, 8 << 16, 4);
        assert!(of(&all).unwrap_err().0.contains("2^8"));
        let mut all = drive();
        all[2][0] = 1;
        assert!(of(&all).unwrap_err().0.contains("ZOC"));
        let mut all = drive();
        put(&mut all[2], 2816 + 16 * 4, 0, 8);
        assert!(of(&all).unwrap_err().0.contains("zones of 0"));
        // More than 16 formats: two more bits of the number.
        let mut all = drive();
        all[1][25] = 40;
        all[1][26] = 0x24;
        put(&mut all[1], 128 + 4 * 20, 9 << 16 | 8, 4);
        put(&mut all[2], 2816 + 16 * 20, 4096, 8);
        let id = of(&all).unwrap();
        assert_eq!((id.lba_shift, id.metadata, id.zone_blocks), (9, 8, 4096));
    }
}
