//! Linux zoned block devices: `/dev/nullb0`, `/dev/sda`, `/dev/nvme0n1`, device mapper targets.
//!
//! Data goes through io_uring past the page cache. Zone management and reports are ioctls, on threads of their own. The
//! kernel may have zone write plugging (6.10 and newer), zone write locking in its scheduler (older), or neither. The
//! plug of this library sends one write of a zone at a time, each in a piece that the kernel does not split, so nothing
//! below can reorder them. A block device has no zone append; the layer emulates it.
//!
//! | file | state |
//! | --- | --- |
//! | `exec.rs` | one command: checks, entry, threads' work, answer |
//! | `diagnose.rs` | why a command failed, by a report of its zone |
//! | `sys.rs` | the ioctls |
//!
//! The queue of `drive` holds the commands in flight. This module keeps no write pointer; the layer above does.

mod diagnose;
mod exec;
mod sys;
#[cfg(test)]
mod table;

use crate::backend::drive::sysfs::QueueAttributes;
use crate::backend::drive::{
    Claim, DriveError, DriveOptions, DriveShared, Node, Rules, claim_or, geometry_of, memory_rules,
    no_ring, refuse_data,
};
use crate::backend::ring::transfer_now;
use crate::held::HeldDisk;
use exec::Blk;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::task::Waker;
use zoneplug_buf::AlignedBuf;
use zoneplug_core::zone::{Geometry, Limits};
use zoneplug_core::{Device, Error, ErrorKind, Queue, Sector};

/// Threads for ioctls.
const THREADS: usize = 4;
/// Most BIOs of a command.
const MAX_BIOS: u32 = 256;

/// A zoned block device: a [`Device`].
#[derive(Debug)]
pub struct BlkDisk {
    shared: Arc<DriveShared<Blk>>,
}

impl BlkDisk {
    /// Opens the block device at `path`, exclusively if it is for writing. Refuses a device without zones. For writing
    /// it also refuses one that is mounted, or that holds a file system or a partition table, unless `options` allow
    /// it.
    ///
    /// ```
    /// use zoneplug_host::{DriveOptions, blk::BlkDisk};
    /// use std::path::Path;
    /// let e = BlkDisk::open(Path::new("/dev/no-such-disk"), DriveOptions::default()).unwrap_err();
    /// assert!(e.what_to_try().is_some());
    /// ```
    pub fn open(path: &Path, options: DriveOptions) -> Result<Arc<BlkDisk>, Error> {
        BlkDisk::open_with(path, options, None)
    }

    /// Like [`BlkDisk::open`]. `given`: the drive as it is open already.
    pub(crate) fn open_with(
        path: &Path,
        options: DriveOptions,
        given: Option<&HeldDisk>,
    ) -> Result<Arc<BlkDisk>, Error> {
        let node = Node::of(path, "block")?;
        let name = node.name();
        if node.disk.is_partition() {
            return Err(DriveError::Partition { drive: name }.into());
        }
        let q = node.disk.queue();
        check_zoned(&name, &q)?;
        let mut options = options;
        if node.disk.is_read_only() && !options.read_only {
            return Err(DriveError::WriteProtected { drive: name }.into());
        }
        let Claim(file) = claim_or(given, path, &node.disk, options)?;
        let capacity = Sector(node.disk.size());
        let zones = exec::report_all(&file, Sector(0), u32::MAX, capacity).map_err(|e| {
            Error::new(ErrorKind::Io, format!("cannot report the zones of {name}: {e}"))
                .hint("dmesg may say more; blkzone report asks the same")
                .source(e)
        })?;
        let geometry = geometry_of(&name, &zones, q.chunk_sectors)?;
        refuse_data(&name, options, &geometry, &mut |at| read_block(&file, at))?;
        options.read_only |= node.disk.is_read_only();
        let rules = memory_rules(&q, q.logical_block_size as usize);
        let (limits, zero_command) = limits_of(&q, &rules, &geometry, options.read_only);
        let gone = AtomicBool::new(false);
        let drive = Blk { file, node, geometry, limits, rules, zero_command, gone };
        let shared = DriveShared::new(drive, "zoneplug-blk", THREADS).map_err(no_ring)?;
        Ok(Arc::new(BlkDisk { shared }))
    }

    /// Further descriptors of the drive as it is open.
    pub(crate) fn held(&self) -> std::io::Result<HeldDisk> {
        HeldDisk::of([&self.shared.drive.file])
    }
}

/// Only host-managed disks have rules that a plug can keep.
fn check_zoned(name: &str, q: &QueueAttributes) -> Result<(), Error> {
    let drive = name.to_owned();
    Err(match q.zoned.as_str() {
        "host-managed" if q.chunk_sectors > 0 => return Ok(()),
        "host-managed" => DriveError::NoZoneSize { drive },
        "host-aware" => DriveError::HostAware { drive },
        _ => DriveError::NotZoned { drive },
    }
    .into())
}

/// The limits of commands to the drive, and whether it has a command for zeroes.
fn limits_of(q: &QueueAttributes, rules: &Rules, g: &Geometry, read_only: bool) -> (Limits, bool) {
    let sectors = |bytes: u64| u32::try_from(bytes >> 9).unwrap_or(u32::MAX);
    let block = sectors(q.logical_block_size.into()).max(1);
    let granularity = sectors(q.zone_write_granularity.into()).max(block);
    // The longest transfer in whole blocks that the kernel sends in one piece.
    let longest = match q.max_sectors_kb {
        0 => rules.longest_sectors(),
        kb => rules.longest_sectors().min(sectors(kb.saturating_mul(1024))),
    };
    let longest = (longest / granularity * granularity).max(granularity);
    let zeroes = sectors(q.write_zeroes_max_bytes) / granularity * granularity;
    let limits = Limits {
        logical_block_sectors: block,
        write_granularity_sectors: granularity,
        max_transfer_sectors: longest,
        max_bios: MAX_BIOS,
        zone_append_max_sectors: 0,
        // A limit of active zones also limits open zones (O1). 0 means no limit, here and in sysfs.
        max_open_zones: match q.max_active_zones {
            0 => q.max_open_zones,
            active => q.max_open_zones.min(active),
        },
        max_active_zones: q.max_active_zones,
        max_write_zeroes_sectors: if zeroes > 0 { zeroes } else { longest },
        discard: q.discard_max_bytes > 0 && g.nr_conventional() > 0,
        write_cache: q.write_back,
        // The kernel carries it out, as a flush if the drive has no FUA.
        fua: true,
        rotational: q.rotational,
        read_only,
        // The ring may hand a write to a kernel thread and send the next one at once.
        keeps_write_order: false,
    };
    (limits, zeroes > 0)
}

/// Reads 4096 bytes of a file that is open past the page cache.
fn read_block(file: &File, at: u64) -> std::io::Result<Vec<u8>> {
    let (lent, io) = AlignedBuf::zeroed(4096).lend();
    // SAFETY: the alias is dropped before this function returns.
    let alias = unsafe { io.alias() };
    transfer_now(file.as_raw_fd(), false, at, &mut [(alias, 4096)].into_iter())?;
    Ok(lent.take_back(io).map_or_else(|_| Vec::new(), |buf| buf.to_vec()))
}

impl Device for BlkDisk {
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
