//! Makes disks: writes everything but the data, and the superblocks last.

use super::format::{GROUP, Layout, NOTE, Record, SECTOR, SESSION_AT, Super, encode_table};
use super::load::{Head, io_error};
use super::storage::{FileStorage, Storage};
use super::{Claim, CreateOptions, FileError, Identity};
use crate::os_error::cannot_make;
use crate::part::{Part, take_after};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use zoneplug_core::zone::Geometry;
use zoneplug_core::{Error, Hint, Random, ZoneNo};

/// Bytes that are written at a time before the data of a new disk.
const AT_ONCE: usize = 1 << 20;

/// Random bytes for identities and sessions. They are no secrets.
pub(super) fn random<const N: usize>() -> [u8; N] {
    let mut b = [0; N];
    if getrandom::fill(&mut b).is_err() {
        let seed = now().as_nanos() as u64 ^ u64::from(std::process::id()) << 32;
        let mut random = Random::new(seed);
        b.fill_with(|| random.draw() as u8);
    }
    b
}

fn now() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

/// The superblock of a new disk.
pub(super) fn describe(o: &CreateOptions) -> Result<Super, Error> {
    let mut uuid = random::<16>();
    // Version 4, variant 1 (RFC 9562, section 5.4).
    uuid[6] = uuid[6] & 0x0f | 0x40;
    uuid[8] = uuid[8] & 0x3f | 0x80;
    Super::new(o, uuid, now().as_secs())
}

/// Gives a disk a new UUID. The first half stays, because the table contains it and would have to change
/// with the superblock.
pub(super) fn renew(storage: &dyn Storage, head: &Head) -> io::Result<Super> {
    let mut uuid = head.sup.uuid;
    uuid[8..].copy_from_slice(&random::<8>());
    uuid[8] = uuid[8] & 0x3f | 0x80;
    let sup = Super { uuid, ..head.sup.clone() };
    let [first, second] = head.layout.supers();
    // One whole copy stays until the other is durable, so a power cut leaves one of them.
    let order = if head.copies[0] { [second, first] } else { [first, second] };
    for at in order {
        storage.write_at(at, &sup.encode())?;
        storage.sync()?;
    }
    Ok(sup)
}

/// Writes a disk without data into a storage that is long enough and reads as zeroes.
pub(super) fn format(storage: &dyn Storage, sup: &Super) -> io::Result<()> {
    let layout = Layout::of(&sup.geometry);
    let nr = sup.geometry.nr_zones();
    // Writes every byte before the data, so that later changes of the table need no space. A part at a time: a disk
    // may have more zones than this machine has memory for.
    let end = (layout.notes + u64::from(nr) * NOTE).next_multiple_of(4096);
    let mut groups = (0..layout.groups).map(|group| (layout.table(group, 0), group)).peekable();
    let mut part = vec![0; AT_ONCE];
    for start in (SESSION_AT..end).step_by(AT_ONCE) {
        let part = &mut part[..(end - start).min(AT_ONCE as u64) as usize];
        part.fill(0);
        let ends = start + part.len() as u64;
        while let Some((at, group)) = groups.next_if(|(at, _)| *at < ends) {
            let zones = group * GROUP..nr.min((group + 1) * GROUP);
            let records: Vec<_> =
                zones.map(|z| Record::new(sup.geometry.is_conventional(ZoneNo(z)))).collect();
            let sector = encode_table(&sup.uuid, group, 0, &records);
            part[(at - start) as usize..][..SECTOR].copy_from_slice(&sector);
        }
        storage.write_at(start, part)?;
    }
    storage.sync()?;
    for at in layout.supers() {
        storage.write_at(at, &sup.encode())?;
    }
    storage.sync()
}

/// A disk that is being made. Until [`finish`](NewDisk::finish) returns, its name is free or belongs to the old file,
/// also after a power cut. If it is dropped earlier, nothing is left.
///
/// ```
/// use zoneplug_host::file::{check, CreateOptions, NewDisk};
/// # let path = std::env::temp_dir().join(format!("zoneplug-new-{}.zbd", std::process::id()));
/// let o = CreateOptions { size: Some(1 << 30), ..Default::default() };
/// let new = NewDisk::begin(&path, &o, false).unwrap();
/// assert!(!path.exists());
/// new.finish().unwrap();
/// assert_eq!(check(&path, false).unwrap().problems, 0);
/// # std::fs::remove_file(&path).unwrap();
/// ```
#[derive(Debug)]
pub struct NewDisk {
    sup: Super,
    storage: FileStorage,
    part: Part,
    /// The name that the user gave.
    path: PathBuf,
    /// The file that is replaced.
    old: Option<Claim>,
    /// Whether the file holds the disk, and is durable.
    is_written: bool,
}

impl NewDisk {
    /// Begins a disk that gets the name `path`. With `force` it replaces a file that no process has open as a disk.
    ///
    /// # Errors
    ///
    /// [`Busy`](zoneplug_core::ErrorKind::Busy) if something has the name, or with `force` if a process has it open.
    pub fn begin(path: &Path, o: &CreateOptions, force: bool) -> Result<NewDisk, Error> {
        let sup = Super { keeps_space: o.preallocate, ..describe(o)? };
        let old = old(path, force)?;
        let place = old.as_ref().map_or(path, Claim::place);
        // Only the owner may read the data of a disk.
        let (part, file) = Part::beside(place, 0o600).map_err(|e| cannot_make(path, e))?;
        let storage = FileStorage::of(file, part.path(), true);
        let storage = storage.map_err(|e| cannot_make(path, e))?;
        Ok(NewDisk { sup, storage, part, path: path.to_owned(), old, is_written: false })
    }

    /// Returns the zones that the disk gets.
    pub fn geometry(&self) -> &Geometry {
        &self.sup.geometry
    }

    /// Writes the disk and makes it durable, without a name. This is the longer part of making a disk.
    pub fn write(&mut self) -> Result<(), Error> {
        let NewDisk { sup, storage, path, old, .. } = &*self;
        let shown = path.display();
        let failed = |e| io_error(format!("cannot create {shown}"), e);
        let layout = Layout::of(&sup.geometry);
        let len = layout.len;
        storage.set_len(len).map_err(|e| {
            let capacity = sup.geometry.capacity_bytes();
            io_error(format!("cannot make {shown} long enough for {capacity}"), e)
        })?;
        if sup.keeps_space {
            storage.preallocate(layout.data, len - layout.data).map_err(|e| {
                let or = match old {
                    Some(_) => "; the old file keeps its room until the new one is whole",
                    None => "",
                };
                io_error(format!("cannot find space for {shown}"), e).hint(
                    Hint::from("make room, make a smaller disk, or leave ")
                        .option("preallocate")
                        .text(format!(" out{or}")),
                )
            })?;
        }
        format(storage, sup).map_err(failed)?;
        self.is_written = true;
        Ok(())
    }

    /// Gives the disk its name, after [writing](NewDisk::write) it if it is not written yet.
    pub fn finish(mut self) -> Result<Identity, Error> {
        if !self.is_written {
            self.write()?;
        }
        let NewDisk { sup, part, path, old, .. } = self;
        let shown = path.display();
        let failed = |e| io_error(format!("cannot create {shown}"), e);
        match &old {
            None => part.name(&path).map_err(|e| match e.kind() {
                io::ErrorKind::AlreadyExists => exists(&path),
                _ => cannot_make(&path, e),
            })?,
            Some(old) => {
                let file = File::open(part.path()).map_err(failed)?;
                take_after(&file, old.metadata()).map_err(failed)?;
                file.sync_all().map_err(failed)?;
                part.replace(old.place()).map_err(|e| cannot_make(&path, e))?;
            }
        }
        sync_directory(old.as_ref().map_or(&path, Claim::place)).map_err(failed)?;
        Ok(sup.identity(0))
    }
}

/// The file that has the name of a new disk, if there is one.
fn old(path: &Path, force: bool) -> Result<Option<Claim>, Error> {
    let shown = path.display();
    let is_link = match std::fs::symlink_metadata(path) {
        Ok(there) => there.is_symlink(),
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(cannot_make(path, e)),
    };
    match std::fs::metadata(path) {
        Err(e) if is_link && e.kind() == io::ErrorKind::NotFound => {
            let target = std::fs::read_link(path).unwrap_or_default().display().to_string();
            Err(FileError::DanglingLink { path: shown.to_string(), target }.into())
        }
        Err(e) => Err(cannot_make(path, e)),
        Ok(there) if !there.is_file() => {
            Err(FileError::NotRegular { path: shown.to_string() }.into())
        }
        Ok(_) if !force => Err(exists(path)),
        Ok(_) => Claim::of(path).map(Some),
    }
}

fn exists(path: &Path) -> Error {
    FileError::Exists { path: path.display().to_string() }.into()
}

/// Makes the name of a new file durable.
pub(super) fn sync_directory(path: &Path) -> io::Result<()> {
    let dir = match path.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir,
        _ => Path::new("."),
    };
    File::open(dir)?.sync_all()?;
    #[cfg(test)]
    note_synced(dir);
    Ok(())
}

#[cfg(test)]
thread_local! {
    /// The folders that this thread has synced, each with the names that were in it.
    pub(super) static SYNCED: std::cell::RefCell<Vec<(std::path::PathBuf, Vec<String>)>> =
        const { std::cell::RefCell::new(Vec::new()) };
}

#[cfg(test)]
fn note_synced(dir: &Path) {
    let names =
        std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.file_name());
    let names = names.map(|name| name.to_string_lossy().into_owned()).collect();
    SYNCED.with_borrow_mut(|all| all.push((dir.to_owned(), names)));
}
