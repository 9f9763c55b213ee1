//! NVMe zoned namespaces through the generic character device (`/dev/ng0n1`): passthrough commands on io_uring.
//!
//! Commands bypass the kernel's block layer: zones may have any size, appends are the drive's own, and statuses are the
//! drive's own. A namespace that Linux refuses ("invalid zone size") can be used here.
//!
//! | file | state |
//! | --- | --- |
//! | `exec.rs` | one command: checks, entry, answer |
//! | `command.rs` | commands and reports as bytes |
//! | `identify.rs` | the drive's identify structures |
//! | `sys.rs` | the ioctls, the layout of a ring command |
//!
//! The queue of `drive` holds the commands in flight. This module keeps no write pointer; the layer above does.

mod command;
mod exec;
mod identify;
#[cfg(test)]
mod round_trip;
mod sys;
#[cfg(test)]
mod table;
#[doc(hidden)]
pub mod testing;

use crate::backend::drive::{
    Claim, DriveError, DriveOptions, DriveShared, Node, Rules, cannot_open, claim, geometry_of,
    memory_rules, no_ring, refuse_data,
};
use crate::held::HeldDisk;
use command::{Blocks, report_bytes, zones_in};
use exec::Nvme;
use identify::{NamespaceIdentity, Unfit};
use std::fs::{File, OpenOptions};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::task::Waker;
use zoneplug_core::zone::{Geometry, Limits, ZoneInfo};
use zoneplug_core::{Device, Error, ErrorKind, Op, Queue, Sector};

/// Most BIOs of a command.
const MAX_BIOS: u32 = 256;
/// Most blocks of a command: the count has 16 bits.
const MAX_BLOCKS: u64 = 1 << 16;
/// Most bytes of one report.
const MAX_REPORT: u32 = 64 << 10;

/// A zoned namespace behind its generic character device: a [`Device`].
#[derive(Debug)]
pub struct NvmeDisk {
    shared: Arc<DriveShared<Nvme>>,
}

/// Whether a namespace is write-protected. False if the drive cannot be asked.
pub(crate) fn is_protected(path: &Path) -> bool {
    let id = File::open(path).and_then(|file| NamespaceIdentity::ask(&file));
    id.is_ok_and(|id| id.is_ok_and(|id| id.read_only))
}

impl NvmeDisk {
    /// Opens the namespace at `path`, with a lock that excludes other zoneplug processes if it is for writing. Refuses
    /// a namespace without zones. For writing it also refuses one whose block device is mounted or in use, or that
    /// holds a file system or a partition table, unless `options` allow it.
    ///
    /// ```
    /// use zoneplug_host::{DriveOptions, nvme::NvmeDisk};
    /// use std::path::Path;
    /// let e = NvmeDisk::open(Path::new("/dev/null"), DriveOptions::default()).unwrap_err();
    /// assert!(e.to_string().contains("not an NVMe namespace"));
    /// ```
    pub fn open(path: &Path, options: DriveOptions) -> Result<Arc<NvmeDisk>, Error> {
        NvmeDisk::open_with(path, options, None)
    }

    /// Like [`NvmeDisk::open`]. `given`: the namespace as it is open already, and its block device, with their locks.
    pub(crate) fn open_with(
        path: &Path,
        options: DriveOptions,
        given: Option<&HeldDisk>,
    ) -> Result<Arc<NvmeDisk>, Error> {
        let node = Node::of(path, "char")?;
        let name = node.name();
        let given = given.map(HeldDisk::duplicate).transpose().map_err(|e| cannot_open(path, e))?;
        let mut given = given.into_iter().flatten();
        let (file, given_sibling) = match given.next() {
            Some(file) => (file, Some(given.next())),
            None => {
                let mut how = OpenOptions::new();
                let file = how.read(true).write(!options.read_only).open(path);
                (file.map_err(|e| cannot_open(path, e))?, None)
            }
        };
        let unfit =
            |Unfit(why)| Error::from(DriveError::Namespace { drive: name.to_string(), why });
        let id =
            NamespaceIdentity::ask(&file).map_err(|e| no_namespace(&name, &e))?.map_err(unfit)?;
        if id.metadata != 0 {
            return Err(unfit(Unfit(format!("{} bytes of metadata in each block", id.metadata))));
        }
        if id.read_only && !options.read_only {
            return Err(DriveError::WriteProtected { drive: name }.into());
        }
        let sibling = match given_sibling {
            Some(sibling) => sibling,
            None => lock(&node, &file, options)?,
        };
        let blocks = Blocks { nsid: id.nsid, shift: id.lba_shift - 9 };
        let q = node.disk.sibling().map(|s| s.queue()).unwrap_or_default();
        let rules = memory_rules(&q, 1 << id.lba_shift);
        let kernel = if q.max_hw_sectors_kb == 0 { u64::MAX } else { q.max_hw_sectors_kb << 10 };
        let (limits, zero_command) =
            limits_of(&id, &rules, kernel, q.rotational, options.read_only);
        let most = limits.max_transfer_sectors.saturating_mul(512).min(MAX_REPORT);
        let report_bytes = report_bytes(zones_in(most).max(1));
        let failed = |e: std::io::Error| {
            Error::new(ErrorKind::Io, format!("cannot report the zones of {name}: {e}"))
                .hint("nvme zns report-zones asks the same; dmesg may say more")
                .source(e)
        };
        let zones = report_all(&file, blocks, &id, report_bytes).map_err(failed)?;
        let geometry = geometry_of(&name, &zones, id.zone_blocks << blocks.shift)?;
        refuse_data(&name, options, &geometry, &mut |at| read_block(&file, blocks, at))?;
        let gone = AtomicBool::new(false);
        let drive = Nvme {
            file,
            sibling,
            node,
            blocks,
            geometry,
            limits,
            rules,
            zero_command,
            report_bytes,
            gone,
        };
        let shared = DriveShared::new(drive, "zoneplug-nvme", 0).map_err(no_ring)?;
        Ok(Arc::new(NvmeDisk { shared }))
    }

    /// Further descriptors of the namespace and its block device as they are open.
    pub(crate) fn held(&self) -> std::io::Result<HeldDisk> {
        let drive = &self.shared.drive;
        HeldDisk::of([&drive.file].into_iter().chain(&drive.sibling))
    }
}

/// The error of a path that is not an NVMe namespace.
fn no_namespace(name: &str, e: &std::io::Error) -> Error {
    Error::new(ErrorKind::NotSupported, format!("{name} is not an NVMe namespace: {e}")).hint(
        "the generic device of a namespace, such as /dev/ng0n1 (not the controller /dev/nvme0)",
    )
}

/// Takes the namespace for writing. Opens its block device where the kernel shows one, so that no other program mounts
/// it, and locks its character device, which cannot be opened exclusively.
fn lock(node: &Node, file: &File, o: DriveOptions) -> Result<Option<File>, Error> {
    if o.read_only {
        return Ok(None);
    }
    let name = node.name();
    match file.try_lock() {
        Ok(()) => {}
        Err(std::fs::TryLockError::WouldBlock) => {
            return Err(DriveError::InUse { drive: name }.into());
        }
        Err(std::fs::TryLockError::Error(e)) => return Err(cannot_open(&node.path, e)),
    }
    let Some(sibling) = node.disk.sibling().filter(|s| s.dev().is_some()) else { return Ok(None) };
    let path = Path::new("/dev").join(&sibling.name);
    let Claim(file) = claim(&path, &sibling, o)?;
    Ok(Some(file))
}

/// The limits of commands to the drive, and whether it has a command for zeroes. `kernel`: the longest transfer in
/// bytes that the kernel passes through.
fn limits_of(
    id: &NamespaceIdentity,
    rules: &Rules,
    kernel: u64,
    rotational: bool,
    read_only: bool,
) -> (Limits, bool) {
    let block = 1u32 << (id.lba_shift - 9);
    let whole = |sectors: u32| (sectors / block * block).max(block);
    let most = MAX_BLOCKS << id.lba_shift;
    let bytes = |limit: u64| if limit == 0 { most } else { limit.min(most) };
    let sectors = |bytes: u64| u32::try_from(bytes >> 9).unwrap_or(u32::MAX);
    let transfer = sectors(bytes(id.max_transfer).min(kernel)).min(rules.longest_sectors());
    let transfer = whole(transfer);
    let limits = Limits {
        logical_block_sectors: block,
        write_granularity_sectors: block,
        max_transfer_sectors: transfer,
        max_bios: MAX_BIOS,
        zone_append_max_sectors: whole(sectors(bytes(id.max_append))).min(transfer),
        max_open_zones: id.max_open,
        max_active_zones: id.max_active,
        max_write_zeroes_sectors: id.max_zeroes.map_or(transfer, |n| whole(sectors(bytes(n)))),
        // The layer discards conventional zones only, and the drive has none.
        discard: false,
        write_cache: id.write_cache,
        fua: true,
        rotational,
        read_only,
        // Neither the ring nor the drive keeps the order of writes.
        keeps_write_order: false,
    };
    (limits, id.max_zeroes.is_some())
}

/// Reports all zones.
fn report_all(
    file: &File,
    b: Blocks,
    id: &NamespaceIdentity,
    bytes: u32,
) -> std::io::Result<Vec<ZoneInfo>> {
    let (mut zones, size) = (Vec::new(), id.zone_blocks << b.shift);
    let end = Sector(id.blocks << b.shift);
    let mut at = Sector(0);
    while at < end {
        let got = sys::fetch(file, sys::To::Io, b.report(at, bytes), bytes)?;
        let got = b.zones(&got, at, size).filter(|z| !z.is_empty());
        let got = got.ok_or_else(|| std::io::Error::other(format!("no report at {at}")))?;
        at = at.plus(size * got.len() as u64);
        zones.extend(got);
    }
    Ok(zones)
}

/// Reads 4096 bytes, or a block if that is longer.
fn read_block(file: &File, b: Blocks, at: u64) -> std::io::Result<Vec<u8>> {
    let (at, len) = (Sector(at >> 9), 8.max(1 << b.shift));
    sys::fetch(file, sys::To::Io, b.data(Op::Read, at, len, false), len << 9)
}

impl Device for NvmeDisk {
    fn geometry(&self) -> &Geometry {
        &self.shared.drive.geometry
    }

    fn limits(&self) -> &Limits {
        &self.shared.drive.limits
    }

    fn is_timed(&self) -> bool {
        false
    }

    fn open_queue(&self, depth: u16, waker: Waker) -> Result<Box<dyn Queue>, Error> {
        self.shared.open_queue(depth, waker)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zoneplug_core::zone::Limits;

    /// Y1: the drive's limits and the kernel's, whichever is shorter; whole blocks.
    #[test]
    fn limits_are_the_shorter_of_the_drives_and_the_kernels() {
        let id = NamespaceIdentity {
            lba_shift: 12,
            blocks: 1 << 20,
            zone_blocks: 24576,
            max_open: 16,
            max_active: 32,
            max_transfer: 512 << 10,
            max_append: 512 << 10,
            max_zeroes: Some(512 << 10),
            write_cache: true,
            ..Default::default()
        };
        let rules = memory_rules(&crate::backend::drive::sysfs::QueueAttributes::default(), 4096);
        // The block device that the kernel hides has the limits of a queue that was never set up.
        let (l, zeroes) = limits_of(&id, &rules, 127 << 10, false, false);
        let want = Limits {
            logical_block_sectors: 8,
            write_granularity_sectors: 8,
            max_transfer_sectors: 124 << 1,
            max_bios: 256,
            zone_append_max_sectors: 124 << 1,
            max_open_zones: 16,
            max_active_zones: 32,
            max_write_zeroes_sectors: 1024,
            discard: false,
            write_cache: true,
            ..Limits::default()
        };
        assert_eq!((l, zeroes), (want, true));
        let none = NamespaceIdentity { max_transfer: 0, max_append: 0, max_zeroes: None, ..id };
        let (l, zeroes) = limits_of(&none, &rules, u64::MAX, false, true);
        assert_eq!((l.max_transfer_sectors, l.max_write_zeroes_sectors), (2048, 2048));
        assert!(l.read_only && !zeroes);
    }

    #[test]
    fn a_controller_or_another_device_says_what_is_needed() {
        let e = NvmeDisk::open(Path::new("/dev/zero"), DriveOptions::default()).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::NotSupported);
        assert!(e.what_to_try().is_some_and(|h| h.contains("/dev/ng0n1")));
    }
}
