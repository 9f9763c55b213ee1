//! The requests of the kernel, one function for each.

use crate::layout::Group;
use crate::volume::{Attributes, FileNo, Volume, WriteMode};
use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    KernelConfig, LockOwner, OpenAccMode, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate,
    ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, Request,
    TimeOrNow, WriteFlags,
};
use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// The node numbers that the kernel uses. They differ from the inode numbers that stat(2) shows,
/// because FUSE fixes the number of the root.
const ROOT: u64 = 1;
const DIRECTORIES: u64 = 2;
const FILES: u64 = 16;

/// How long the kernel may cache a name. Names do not change.
const NAMES_LAST: Duration = Duration::from_secs(3600);
/// How long the kernel may cache attributes: an error in another file may change them.
const ATTRIBUTES_LAST: Duration = Duration::ZERO;
/// Background requests, such as readahead, that the kernel may have outstanding.
const BACKGROUND: u16 = 64;
/// Bytes of a page. Files with smaller blocks bypass the page cache: the cached page in which a
/// file ended would be stale once the file grows.
const PAGE: u32 = 4096;

/// The object that a node number names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Node {
    Root,
    Directory(Group),
    File(FileNo),
}

/// A volume behind fuser's interface.
pub(crate) struct Requests {
    volume: Arc<Volume>,
    mounted: SystemTime,
    /// Called when a file that was open for writing is closed.
    writer_closed: Box<dyn Fn() + Send + Sync>,
}

fn error(e: rustix::io::Errno) -> Errno {
    Errno::from_i32(e.raw_os_error())
}

fn writes(flags: OpenFlags) -> bool {
    flags.acc_mode() != OpenAccMode::O_RDONLY
}

/// `O_DIRECT` and `O_APPEND`, as the open file has them now.
fn how(flags: OpenFlags) -> WriteMode {
    let flags = rustix::fs::OFlags::from_bits_retain(flags.0 as u32);
    WriteMode {
        direct: flags.contains(rustix::fs::OFlags::DIRECT),
        append: flags.contains(rustix::fs::OFlags::APPEND),
    }
}

impl Requests {
    pub(crate) fn new(
        volume: Arc<Volume>,
        writer_closed: impl Fn() + Send + Sync + 'static,
    ) -> Requests {
        Requests { volume, mounted: SystemTime::now(), writer_closed: Box::new(writer_closed) }
    }

    fn node(&self, number: INodeNo) -> Option<Node> {
        match number.0 {
            ROOT => Some(Node::Root),
            n @ DIRECTORIES..FILES => {
                Group::ALL.get((n - DIRECTORIES) as usize).map(|g| Node::Directory(*g))
            }
            n => u32::try_from(n.checked_sub(FILES)?)
                .ok()
                .map(FileNo)
                .filter(|f| self.volume.has(*f))
                .map(Node::File),
        }
    }

    fn file(&self, number: INodeNo) -> Result<FileNo, Errno> {
        match self.node(number) {
            Some(Node::File(file)) => Ok(file),
            Some(_) => Err(Errno::EISDIR),
            None => Err(Errno::ENOENT),
        }
    }

    /// The inode number of a node, as in Linux's zonefs: a file has that of its first zone,
    /// directories have the numbers after the last zone.
    fn ino(&self, node: Node) -> u64 {
        let behind = u64::from(self.volume.nr_zones());
        match node {
            Node::Root => behind,
            Node::Directory(group) => behind + 1 + group as u64,
            Node::File(file) => self.volume.attributes(file).ino,
        }
    }

    fn directory(&self, node: Node) -> FileAttr {
        let (entries, below) = match node {
            Node::Directory(group) => (self.volume.files_of(group), 0),
            _ => {
                let dirs = Group::ALL.iter().filter(|g| self.volume.files_of(**g) > 0).count();
                (2 + dirs as u32, dirs as u32)
            }
        };
        FileAttr {
            ino: INodeNo(self.ino(node)),
            size: u64::from(entries),
            blocks: 0,
            atime: self.mounted,
            mtime: self.mounted,
            ctime: self.mounted,
            crtime: self.mounted,
            kind: FileType::Directory,
            perm: 0o555,
            nlink: 2 + below,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: self.volume.block_bytes(),
            flags: 0,
        }
    }

    fn attr(&self, node: Node) -> FileAttr {
        let Node::File(file) = node else { return self.directory(node) };
        let Attributes { ino, size, capacity, mode, uid, gid, modified, changed } =
            self.volume.attributes(file);
        FileAttr {
            ino: INodeNo(ino),
            size,
            // The file occupies the whole capacity of its zones.
            blocks: capacity >> 9,
            atime: modified,
            mtime: modified,
            ctime: changed,
            crtime: self.mounted,
            kind: FileType::RegularFile,
            perm: mode as u16,
            nlink: 1,
            uid,
            gid,
            rdev: 0,
            blksize: self.volume.block_bytes(),
            flags: 0,
        }
    }

    fn find(&self, parent: INodeNo, name: &OsStr) -> Option<(u64, Node)> {
        let name = name.to_str()?;
        match self.node(parent)? {
            Node::Root => {
                let exists = |g: &Group| g.name() == name && self.volume.files_of(*g) > 0;
                let group = Group::ALL.into_iter().find(exists)?;
                Some((DIRECTORIES + group as u64, Node::Directory(group)))
            }
            Node::Directory(group) => {
                let file = self.volume.lookup(group, name)?;
                Some((FILES + u64::from(file.0), Node::File(file)))
            }
            Node::File(_) => None,
        }
    }

    /// Whether reads may go through the page cache of the kernel.
    fn cached(&self, file: FileNo, write: bool) -> bool {
        match self.volume.group_of(file) {
            Group::Conventional => true,
            Group::Sequential => {
                let pages = self.volume.block_bytes().is_multiple_of(PAGE);
                pages && !write && !self.volume.options().buffered
            }
        }
    }

    /// Writes, and makes the data durable if the file's flags demand it. The kernel sends a sync of
    /// its own only for files in its page cache.
    fn write_file(
        &self,
        file: FileNo,
        offset: u64,
        data: &[u8],
        how: WriteMode,
        flags: OpenFlags,
    ) -> Result<usize, rustix::io::Errno> {
        let n = self.volume.write(file, offset, data, how)?;
        let sequential = self.volume.group_of(file) == Group::Sequential;
        // O_SYNC has the bit of O_DSYNC. In rustix the constants of both are O_SYNC.
        if sequential && flags.0 & libc::O_DSYNC != 0 {
            self.volume.sync(file)?;
        }
        Ok(n)
    }

    fn change(
        &self,
        file: FileNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        modified: Option<TimeOrNow>,
    ) -> Result<(), rustix::io::Errno> {
        if let Some(size) = size {
            self.volume.truncate(file, size)?;
        }
        if mode.is_some() || uid.is_some() || gid.is_some() {
            self.volume.set_owner(file, mode, uid, gid)?;
        }
        match modified {
            Some(TimeOrNow::SpecificTime(time)) => self.volume.set_modified(file, time),
            Some(TimeOrNow::Now) => self.volume.set_modified(file, SystemTime::now()),
            None => {}
        }
        Ok(())
    }
}

impl Filesystem for Requests {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // A kernel that allows fewer keeps its own number.
        let _ = config.set_max_background(BACKGROUND);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.find(parent, name) {
            Some((number, node)) => {
                let attr = FileAttr { ino: INodeNo(number), ..self.attr(node) };
                reply.entry_with_ttls(&ATTRIBUTES_LAST, &NAMES_LAST, &attr, Generation(0));
            }
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.node(ino) {
            Some(node) => reply.attr(&ATTRIBUTES_LAST, &self.attr(node)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn setattr(
        &self,
        _: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let Ok(file) = self.file(ino) else { return reply.error(Errno::EPERM) };
        match self.change(file, mode, uid, gid, size, mtime) {
            Ok(()) => reply.attr(&ATTRIBUTES_LAST, &self.attr(Node::File(file))),
            Err(e) => reply.error(error(e)),
        }
    }

    fn open(&self, _: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let write = writes(flags);
        let opened = self
            .file(ino)
            .and_then(|file| self.volume.open_file(file, write).map(|()| file).map_err(error));
        match opened {
            Ok(file) => {
                let direct = FopenFlags::FOPEN_DIRECT_IO;
                let cached = self.cached(file, write);
                reply.opened(FileHandle(0), if cached { FopenFlags::empty() } else { direct });
            }
            Err(e) => reply.error(e),
        }
    }

    fn release(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        flags: OpenFlags,
        _: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        let write = writes(flags);
        let closed =
            self.file(ino).and_then(|file| self.volume.close_file(file, write).map_err(error));
        match closed {
            Ok(()) => reply.ok(),
            Err(e) => reply.error(e),
        }
        if write {
            (self.writer_closed)();
        }
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let data =
            self.file(ino).and_then(|file| self.volume.read(file, offset, size).map_err(error));
        match data {
            Ok(data) => reply.data(data.as_slice()),
            Err(e) => reply.error(e),
        }
    }

    fn write(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        write: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        // The kernel writes back pages without the flags of a file.
        let how = match write.contains(WriteFlags::FUSE_WRITE_CACHE) {
            true => WriteMode::BUFFERED,
            false => how(flags),
        };
        let written = self
            .file(ino)
            .and_then(|file| self.write_file(file, offset, data, how, flags).map_err(error));
        match written {
            // The kernel never sends more than fits into this number.
            Ok(n) => reply.written(n as u32),
            Err(e) => reply.error(e),
        }
    }

    fn fsync(&self, _: &Request, ino: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        let synced = self.file(ino).and_then(|file| self.volume.sync(file).map_err(error));
        match synced {
            Ok(()) => reply.ok(),
            Err(e) => reply.error(e),
        }
    }

    fn readdir(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let node = match self.node(ino) {
            Some(Node::File(_)) => return reply.error(Errno::ENOTDIR),
            Some(node) => node,
            None => return reply.error(Errno::ENOENT),
        };
        let dots = [(".", node), ("..", Node::Root)];
        for place in offset.. {
            let (name, child) = match (place, node) {
                (0 | 1, _) => {
                    let (name, node) = dots[place as usize];
                    (name.to_owned(), node)
                }
                (_, Node::Directory(group)) => {
                    let nth = u32::try_from(place - 2).ok();
                    match nth.and_then(|n| self.volume.file(group, n)) {
                        Some(file) => ((place - 2).to_string(), Node::File(file)),
                        None => break,
                    }
                }
                _ => {
                    let mut there = Group::ALL.iter().filter(|g| self.volume.files_of(**g) > 0);
                    match there.nth((place - 2) as usize) {
                        Some(group) => (group.name().to_owned(), Node::Directory(*group)),
                        None => break,
                    }
                }
            };
            let kind = match child {
                Node::File(_) => FileType::RegularFile,
                _ => FileType::Directory,
            };
            if reply.add(INodeNo(self.ino(child)), place + 1, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        let u = self.volume.usage();
        // The longest file name has 16 bytes, as in Linux.
        reply.statfs(u.blocks, u.free, u.free, u.files, 0, u.block, 16, u.block);
    }

    fn fallocate(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: u64,
        _: u64,
        _: i32,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::EOPNOTSUPP);
    }

    // Files and directories are neither created nor removed.

    fn create(
        &self,
        _: &Request,
        _: INodeNo,
        _: &OsStr,
        _: u32,
        _: u32,
        _: i32,
        reply: ReplyCreate,
    ) {
        reply.error(Errno::EACCES);
    }

    fn mknod(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, _: u32, _: u32, reply: ReplyEntry) {
        reply.error(Errno::EPERM);
    }

    fn mkdir(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, _: u32, reply: ReplyEntry) {
        reply.error(Errno::EPERM);
    }

    fn unlink(&self, _: &Request, _: INodeNo, _: &OsStr, reply: ReplyEmpty) {
        reply.error(Errno::EPERM);
    }

    fn rmdir(&self, _: &Request, _: INodeNo, _: &OsStr, reply: ReplyEmpty) {
        reply.error(Errno::EPERM);
    }

    fn symlink(&self, _: &Request, _: INodeNo, _: &OsStr, _: &Path, reply: ReplyEntry) {
        reply.error(Errno::EPERM);
    }

    fn rename(
        &self,
        _: &Request,
        _: INodeNo,
        _: &OsStr,
        _: INodeNo,
        _: &OsStr,
        _: RenameFlags,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::EPERM);
    }
}
