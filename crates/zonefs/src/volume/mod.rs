//! A volume: the zones of a disk as files, independent of the FUSE protocol.
//!
//! The rules are those of Linux's zonefs. The size of a sequential file is the write pointer of its
//! zone. The file is written at its end, by zone append. Truncating it to 0 resets the zone,
//! truncating it to its capacity finishes the zone.

mod clients;
mod manage;
mod read;
mod recover;
mod state;
mod write;

use crate::layout::{Group, extents};
use crate::options::MountOptions;
use crate::super_block::{NoSuperBlock, SUPER_BLOCK_LEN, SuperBlock};
use clients::Clients;
use rustix::io::Errno;
use state::ZoneFile;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::SystemTime;
use zoneplug_core::zone::ZoneInfo;
use zoneplug_core::{Error, ErrorKind, Hint, Op, Sector, Status, ZoneNo};
use zoneplug_host::{BlockingDisk, HostedDisk, IoError};

pub use write::WriteMode;

/// A file of a [`Volume`], numbered in the order of zones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileNo(pub u32);

/// An event that a volume reports while it is in use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VolumeEvent {
    /// An error, in words.
    Warning(String),
    /// The volume is read-only from now on.
    ReadOnly,
}

/// Receives events, on the thread of the request that found them.
pub type Observer = Box<dyn Fn(VolumeEvent) + Send + Sync>;

/// The attributes of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attributes {
    /// The number of its first zone.
    pub ino: u64,
    /// The size in bytes.
    pub size: u64,
    /// Bytes that the file can hold.
    pub capacity: u64,
    /// Permissions, nine bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// When the data last changed.
    pub modified: SystemTime,
    /// When anything last changed.
    pub changed: SystemTime,
}

/// The figures of statfs(2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Bytes of a block.
    pub block: u32,
    /// Blocks of all files together.
    pub blocks: u64,
    /// Blocks that are not written.
    pub free: u64,
    /// The number of files and of their directories.
    pub files: u64,
}

/// A disk as files.
///
/// ```
/// use zoneplug_host::HostedDisk;
/// use zoneplug_zonefs::{WriteMode, FileNo, Group, MountOptions, SuperBlock, Volume};
///
/// let disk = HostedDisk::open_spec("mem,zones=8,zone-size=1M,conv=2").unwrap();
/// Volume::format(&disk, &SuperBlock::default()).unwrap();
/// let volume = Volume::open(&disk, MountOptions::default(), Box::new(|_| {})).unwrap();
/// assert_eq!((volume.files_of(Group::Conventional), volume.files_of(Group::Sequential)), (1, 6));
///
/// let file = volume.lookup(Group::Sequential, "0").unwrap();
/// assert_eq!(volume.write(file, 0, &[7; 4096], WriteMode::DIRECT).unwrap(), 4096);
/// assert_eq!(volume.attributes(file).size, 4096);
/// assert_eq!(volume.read(file, 4090, 100).unwrap().as_slice(), [7; 6]);
/// ```
pub struct Volume {
    disk: HostedDisk,
    clients: Clients,
    super_block: SuperBlock,
    options: MountOptions,
    nr_zones: u32,
    /// The write granularity in bytes.
    block: u64,
    /// The longest append in bytes, a multiple of the granularity.
    append_max: u64,
    files: Vec<ZoneFile>,
    /// The files of each directory.
    groups: [Vec<FileNo>; 2],
    /// The number of zones that may be open at a time; 0: no limit.
    max_open: u32,
    /// The number of sequential files open for writing.
    open_for_writing: AtomicU32,
    read_only: AtomicBool,
    observer: Observer,
}

/// The errno that Linux returns for a failed operation.
fn errno(e: &IoError) -> Errno {
    Errno::from_raw_os_error(e.status.errno())
}

impl Volume {
    /// Writes a super block to the first zone, and resets the others. All data on the disk are
    /// lost.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if the disk has a single zone, or a first zone without room for a super block.
    pub fn format(disk: &HostedDisk, super_block: &SuperBlock) -> Result<(), Error> {
        let g = disk.geometry();
        can_hold(disk)?;
        let mut io = BlockingDisk::new(disk)?;
        io.manage(Op::ZoneResetAll, Sector(0), 0)?;
        let first = g.zone_start(ZoneNo(0));
        let len = u64::from(g.zone_len_sectors(ZoneNo(0)));
        io.write_from(first, &padded(&super_block.encode(), write_block(disk)))?;
        if !g.is_conventional(ZoneNo(0)) {
            io.finish(first, len)?;
        }
        Ok(io.flush()?)
    }

    /// Reads the super block in the first zone, if it holds one.
    pub fn super_block_of(disk: &HostedDisk) -> Result<Result<SuperBlock, NoSuperBlock>, Error> {
        let mut io = BlockingDisk::new(disk)?;
        let mut bytes = padded(&[0; SUPER_BLOCK_LEN], write_block(disk));
        io.read_into(Sector(0), &mut bytes)?;
        let mut block = [0; SUPER_BLOCK_LEN];
        block.copy_from_slice(&bytes[..SUPER_BLOCK_LEN]);
        Ok(SuperBlock::decode(&block))
    }

    /// Opens the volume on `disk`. Closes open zones, as Linux does.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if the disk holds no volume.
    pub fn open(
        disk: &HostedDisk,
        options: MountOptions,
        observer: Observer,
    ) -> Result<Volume, Error> {
        can_hold(disk)?;
        let super_block = Self::super_block_of(disk)?.map_err(|why| {
            let hint = match why {
                NoSuperBlock::Absent => {
                    Hint::from("").option("format").text(" makes one, and empties the disk")
                }
                _ => Hint::from("a newer version, or ")
                    .option("format")
                    .text(", which empties the disk"),
            };
            Error::new(ErrorKind::Invalid, format!("the disk {why}")).hint(hint)
        })?;
        let (limits, g) = (disk.limits(), disk.geometry());
        let clients = Clients::new(disk)?;
        let zones = clients.with(|io| io.report(Sector(0), g.nr_zones()))??;
        let read_only = options.read_only || limits.read_only;
        if !read_only {
            clients.with(|io| close_open_zones(io, &zones))??;
        }
        let now = SystemTime::now();
        let extents = extents(&zones, super_block.aggregate_conventional);
        let files: Vec<_> = extents.iter().map(|e| ZoneFile::new(e, &super_block, now)).collect();
        let of = |group| {
            let numbered = files.iter().zip(0..).filter(|(f, _)| f.group == group);
            numbered.map(|(_, n)| FileNo(n)).collect()
        };
        let groups = Group::ALL.map(of);
        let block = u64::from(limits.write_granularity_sectors) << 9;
        let append = u64::from(limits.visible_append_sectors(g.zone_sectors())) << 9;
        let max_open = limits.max_open_zones;
        // Without limits an explicit open would reserve nothing.
        let limited = max_open != 0 || limits.max_active_zones != 0;
        let options = MountOptions { explicit_open: options.explicit_open && limited, ..options };
        Ok(Volume {
            disk: disk.clone(),
            clients,
            super_block,
            options,
            nr_zones: g.nr_zones(),
            block,
            append_max: (append / block * block).max(block),
            files,
            groups,
            max_open,
            open_for_writing: AtomicU32::new(0),
            read_only: AtomicBool::new(read_only),
            observer,
        })
    }

    /// The super block.
    pub fn super_block(&self) -> &SuperBlock {
        &self.super_block
    }

    /// The options of the mount.
    pub fn options(&self) -> &MountOptions {
        &self.options
    }

    /// The number of zones of the disk.
    pub fn nr_zones(&self) -> u32 {
        self.nr_zones
    }

    /// Bytes of a block: writes to sequential files are whole blocks.
    pub fn block_bytes(&self) -> u32 {
        self.block as u32
    }

    /// The number of sequential files open for writing.
    pub fn open_for_writing(&self) -> u32 {
        self.open_for_writing.load(Ordering::Relaxed)
    }

    /// The number of sequential files whose zones are active: opened explicitly, or neither empty
    /// nor full.
    pub fn active_files(&self) -> u32 {
        let sequential = self.files.iter().filter(|f| f.is_sequential());
        let active = sequential.filter(|f| {
            let s = f.shown();
            s.zone_open || s.written > 0 && s.written < f.capacity
        });
        active.count() as u32
    }

    /// Whether the volume is read-only: opened so, or since an I/O error.
    pub fn is_read_only(&self) -> bool {
        self.read_only.load(Ordering::Relaxed)
    }

    /// The number of files in a directory. A directory without files does not exist.
    pub fn files_of(&self, group: Group) -> u32 {
        self.groups[group as usize].len() as u32
    }

    /// The `nth` file of a directory.
    pub fn file(&self, group: Group, nth: u32) -> Option<FileNo> {
        self.groups[group as usize].get(nth as usize).copied()
    }

    /// Finds the file with this name in a directory: its number there, without leading zeroes.
    pub fn lookup(&self, group: Group, name: &str) -> Option<FileNo> {
        let nth: u32 = name.parse().ok()?;
        (nth.to_string() == name).then(|| self.file(group, nth))?
    }

    /// Whether a file with this number exists.
    pub fn has(&self, file: FileNo) -> bool {
        (file.0 as usize) < self.files.len()
    }

    /// The directory of a file.
    pub fn group_of(&self, file: FileNo) -> Group {
        self.of(file).group
    }

    /// The attributes that stat(2) shows.
    pub fn attributes(&self, file: FileNo) -> Attributes {
        let f = self.of(file);
        let s = f.shown();
        Attributes {
            ino: u64::from(f.zone),
            size: s.size(),
            capacity: f.capacity,
            mode: s.mode,
            uid: s.uid,
            gid: s.gid,
            modified: s.modified,
            changed: s.changed,
        }
    }

    /// The figures that statfs(2) shows.
    pub fn usage(&self) -> Usage {
        let capacity: u64 = self.files.iter().map(|f| f.capacity).sum();
        let used: u64 = self.files.iter().map(|f| f.shown().size()).sum();
        let dirs = self.groups.iter().filter(|g| !g.is_empty()).count() as u64;
        Usage {
            block: self.block_bytes(),
            blocks: capacity / self.block,
            free: (capacity - used.min(capacity)) / self.block,
            files: self.files.len() as u64 + dirs,
        }
    }

    fn of(&self, file: FileNo) -> &ZoneFile {
        &self.files[file.0 as usize]
    }

    /// Runs a request with its own client. Getting a client fails only if the system refuses a
    /// thread.
    fn io<R>(
        &self,
        request: impl FnOnce(&mut BlockingDisk) -> Result<R, IoError>,
    ) -> Result<R, IoError> {
        match self.clients.with(request) {
            Ok(result) => result,
            Err(_) => Err(IoError::new(Op::Flush, Sector(0), Status::Busy)),
        }
    }

    fn warn(&self, text: String) {
        (self.observer)(VolumeEvent::Warning(text));
    }
}

impl fmt::Debug for Volume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Volume")
            .field("super_block", &self.super_block)
            .field("files", &self.files.len())
            .finish_non_exhaustive()
    }
}

/// Fails if the first zone has no room for a super block, or is the only one.
fn can_hold(disk: &HostedDisk) -> Result<(), Error> {
    let g = disk.geometry();
    let room = u64::from(g.capacity_of(ZoneNo(0))) << 9;
    if g.nr_zones() >= 2 && room >= SUPER_BLOCK_LEN as u64 {
        return Ok(());
    }
    Err(Error::invalid("a disk with one zone, or zones of less than 4 KiB, holds no volume")
        .hint("larger zones, and two or more: the first one is for the super block"))
}

/// The write granularity in bytes.
fn write_block(disk: &HostedDisk) -> usize {
    disk.limits().write_granularity_sectors as usize * 512
}

/// Pads `bytes` with zeroes to whole blocks.
fn padded(bytes: &[u8], block: usize) -> Vec<u8> {
    let mut all = bytes.to_vec();
    all.resize(bytes.len().next_multiple_of(block), 0);
    all
}

fn close_open_zones(io: &mut BlockingDisk, zones: &[ZoneInfo]) -> Result<(), IoError> {
    for zone in zones.iter().skip(1).filter(|z| z.cond.is_open()) {
        io.close_zones(zone.start, zone.len_sectors)?;
    }
    Ok(())
}
