//! Makes disks: writes everything but the data, and the superblocks last.

use super::format::{GROUP, Layout, NOTE, Record, SECTOR, SESSION_AT, Super, encode_table};
use super::load::{Head, io_error};
use super::storage::{FileStorage, Lock, Storage, place_of};
use super::{CreateOptions, Identity};
use crate::os_error::cannot_make;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, SystemTime};
use zoneplug_core::{Bytes, Error, ErrorKind, ZoneNo};

/// Random bytes for identities and sessions. They are no secrets.
pub(super) fn random<const N: usize>() -> [u8; N] {
    let mut b = [0; N];
    let read = File::open("/dev/urandom").and_then(|mut f| f.read_exact(&mut b));
    if read.is_err() {
        let mut n = now().as_nanos() as u64 ^ u64::from(std::process::id()) << 32;
        for byte in &mut b {
            n = n.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            *byte = (n >> 56) as u8;
        }
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
    // Writes every byte before the data, so that later changes of the table need no space.
    let notes_end = layout.notes + u64::from(nr) * NOTE;
    let mut head = vec![0; (notes_end.next_multiple_of(4096) - SESSION_AT) as usize];
    for group in 0..layout.groups {
        let zones = group * GROUP..nr.min((group + 1) * GROUP);
        let records: Vec<_> =
            zones.map(|z| Record::new(sup.geometry.is_conventional(ZoneNo(z)))).collect();
        let at = (layout.table(group, 0) - SESSION_AT) as usize;
        let sector = encode_table(&sup.uuid, group, 0, &records);
        head[at..at + SECTOR].copy_from_slice(&sector);
    }
    for (i, part) in head.chunks(1 << 20).enumerate() {
        storage.write_at(SESSION_AT + ((i as u64) << 20), part)?;
    }
    storage.sync()?;
    for at in layout.supers() {
        storage.write_at(at, &sup.encode())?;
    }
    storage.sync()
}

/// Opens the file for a new disk. Returns true if it did not exist before.
fn open(path: &Path, force: bool) -> Result<(File, bool), Error> {
    let shown = path.display();
    let failed = |e| io_error(format!("cannot create {shown}"), e);
    let mut new = OpenOptions::new();
    // Only the owner may read what is on a disk.
    new.read(true).write(true).create_new(true).mode(0o600);
    match new.open(path) {
        Ok(file) => return Ok((file, true)),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists && !force => {
            return Err(Error::new(ErrorKind::Busy, format!("{shown} exists"))
                .hint("choose another name, or say --force to lose what is in it"));
        }
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
        Err(e) => return Err(cannot_make(path, e)),
    }
    let mut old = OpenOptions::new();
    let file = old.read(true).write(true).custom_flags(libc::O_NONBLOCK).open(path);
    let file = file.map_err(failed)?;
    if !file.metadata().map_err(failed)?.is_file() {
        return Err(Error::invalid(format!("{shown} is not a regular file"))
            .hint("a durable disk is made in a regular file"));
    }
    Ok((file, false))
}

pub(super) fn create(path: &Path, o: &CreateOptions, force: bool) -> Result<Identity, Error> {
    let sup = Super { keeps_space: o.preallocate, ..describe(o)? };
    let len = Layout::of(&sup.geometry).len;
    let (file, new) = open(path, force)?;
    let shown = path.display();
    let failed = |e| io_error(format!("cannot create {shown}"), e);
    let place = place_of(&file.metadata().map_err(failed)?);
    let made = (|| {
        let storage = FileStorage::of(file, path, true).map_err(failed)?;
        if storage.lock().map_err(failed)? != Lock::Taken {
            return Err(super::in_use(path));
        }
        storage.set_len(0).map_err(failed)?;
        storage.set_len(len).map_err(|e| {
            io_error(format!("cannot make {shown} {} long", Bytes(len)), e)
                .hint("the file system may not have files of this size: make a smaller disk")
        })?;
        if sup.keeps_space {
            let data = Layout::of(&sup.geometry).data;
            storage.preallocate(data, len - data).map_err(|e| {
                io_error(format!("cannot find space for {shown}"), e)
                    .hint("make room, make a smaller disk, or leave --preallocate out")
            })?;
        }
        format(&storage, &sup).map_err(failed)?;
        sync_directory(path).map_err(failed)
    })();
    let is_ours = || std::fs::metadata(path).is_ok_and(|m| place_of(&m) == place);
    if made.is_err() && new && is_ours() {
        let _ = std::fs::remove_file(path);
    }
    made.map(|()| sup.identity(0))
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
