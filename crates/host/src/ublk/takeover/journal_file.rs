//! The file of a device's journal: its path, and whether it belongs to this device. Creates one for a new device, and
//! opens that of a dead server. `journal.rs` has the content. A device can be served without a journal; the reason is
//! then reported.
//!
//! A server without a journal, or with one in another directory, would make the file wrong for later servers. So each
//! server leaves a *stamp* at the device before it serves anything, and believes a journal only if its server left
//! the stamp that is there. The kernel has one place for it: the time of the device's directory in sysfs, which
//! nothing else sets. A stamp is a time in the far future. If a stamp exists and cannot be replaced, the takeover
//! fails. (The driver gets the number of the server's process, but does not return it after that process has died;
//! seen with Linux 7.2.)

use super::replay;
use crate::recovery::bases::DiskState;
use crate::recovery::directory::{boot, place};
use crate::recovery::journal::{self, About, FoundZone, HIDDEN, Journal};
use crate::runtime::hosted::HostedDisk;
use crate::ublk::abi::DevInfo;
use std::fs::{File, FileTimes};
use std::io;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use zoneplug_core::{Error, ErrorKind, ZoneNo};

/// The zones that a device shows, and the places of their disks.
pub(in crate::ublk) struct Served {
    pub(in crate::ublk) shown: Range<u32>,
    pub(in crate::ublk) disks: DiskState,
}

/// The journal of a device, if it has one.
#[derive(Default)]
pub(in crate::ublk) struct JournalFile {
    pub(in crate::ublk) journal: Option<Journal>,
    /// Why the device has no journal, or why the last server's acknowledged appends are unknown.
    pub(in crate::ublk) unknown: Option<String>,
}

impl JournalFile {
    fn none(why: String) -> JournalFile {
        JournalFile { journal: None, unknown: Some(why) }
    }

    /// The journal of a new device. Without a directory there is none.
    pub(in crate::ublk) fn of_new(
        disk: &HostedDisk,
        directory: Option<&Path>,
        info: &DevInfo,
        served: Served,
    ) -> JournalFile {
        let Some(directory) = directory else { return JournalFile::default() };
        Self::make_new(disk, directory, info, new_stamp(), served).unwrap_or_else(JournalFile::none)
    }

    fn make_new(
        disk: &HostedDisk,
        directory: &Path,
        info: &DevInfo,
        me: u64,
        served: Served,
    ) -> Result<JournalFile, String> {
        place(directory)?;
        let about = about(disk, info, served)?;
        let found = replay::find(disk, about.shown.clone()).map_err(|e| e.what().to_owned())?;
        let g = about.geometry;
        let hidden = (0..).zip(&found).map(|(zone, f)| f.hidden(g.is_conventional(ZoneNo(zone))));
        write_checked_stamp(info.dev_id, me)?;
        make(&path(directory, info.dev_id), about, me, hidden, None)
    }

    /// The journal of a device whose last server has died. `found`: the zones of its disk. If the last server's
    /// journal cannot be believed, creates one that hides everything. Fails if a stale journal would remain that the
    /// next server would believe.
    pub(in crate::ublk) fn of_last(
        disk: &HostedDisk,
        directory: Option<&Path>,
        info: &DevInfo,
        found: &[FoundZone],
        served: Served,
    ) -> Result<JournalFile, Error> {
        let me = new_stamp();
        let record = match directory {
            Some(directory) => Self::take(disk, directory, info, found, me, served),
            None => Ok(JournalFile::default()),
        };
        // The stamp is replaced even if there is no journal, so that a journal with the old stamp becomes invalid.
        let Err(why) = write_checked_stamp(info.dev_id, me) else {
            return Ok(record.unwrap_or_else(JournalFile::none));
        };
        if stamp(info.dev_id).is_ok_and(is_stamp) {
            return Err(Error::new(
                ErrorKind::NotSupported,
                format!("/dev/ublkb{} has a record of its last server, which cannot be made invalid: {why}", info.dev_id),
            )
            .hint("serve it where /sys can be written, as it was served before"));
        }
        match record {
            // No journal was requested.
            Ok(record) if record.journal.is_none() => Ok(record),
            Ok(_) => {
                // This server's appends would be missing in it.
                directory.into_iter().for_each(|d| remove(d, info.dev_id));
                Ok(JournalFile::none(why))
            }
            Err(why) => Ok(JournalFile::none(why)),
        }
    }

    fn take(
        disk: &HostedDisk,
        directory: &Path,
        info: &DevInfo,
        found: &[FoundZone],
        me: u64,
        served: Served,
    ) -> Result<JournalFile, String> {
        place(directory)?;
        let (about, last) = (about(disk, info, served)?, stamp(info.dev_id)?);
        let path = path(directory, info.dev_id);
        match Journal::open(&path, about.clone(), last, me, found) {
            Ok(journal) => Ok(JournalFile { journal: Some(journal), unknown: None }),
            Err(why) => {
                let why = format!("{}: {why}", path.display());
                let hidden = (0..about.geometry.nr_zones()).map(|_| HIDDEN);
                make(&path, about, me, hidden, Some(why))
            }
        }
    }

    /// The journal of the last server, if it is believed.
    pub(in crate::ublk) fn of_last_server(&self) -> Option<&Journal> {
        self.journal.as_ref().filter(|_| self.unknown.is_none())
    }
}

fn make(
    path: &Path,
    about: About,
    me: u64,
    hidden: impl Iterator<Item = u32>,
    unknown: Option<String>,
) -> Result<JournalFile, String> {
    let journal = Journal::create(path, about, me, hidden);
    let journal = journal.map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(JournalFile { journal: Some(journal), unknown })
}

/// The path of a device's journal.
fn path(directory: &Path, dev_id: u32) -> PathBuf {
    directory.join(format!("ublkb{dev_id}.told"))
}

/// Removes the journal of a device that is gone, if there is one.
pub(in crate::ublk) fn remove(directory: &Path, dev_id: u32) {
    let _ = std::fs::remove_file(path(directory, dev_id));
}

/// The description of this device for its journal.
fn about(disk: &HostedDisk, info: &DevInfo, served: Served) -> Result<About, String> {
    let failed = |e: io::Error| format!("the kernel does not say which device this is: {e}");
    Ok(About {
        dev_id: info.dev_id,
        instance: instance(info.dev_id).map_err(failed)?,
        boot: boot().map_err(failed)?,
        identity: info.identity,
        geometry: disk.disk().geometry(),
        queues: info.nr_hw_queues,
        depth: info.queue_depth,
        shown: served.shown,
        disks: served.disks,
    })
}

/// The note of a device's last server about its disks, if it kept a journal in `directory`.
pub(in crate::ublk) fn noted_by_last(directory: Option<&Path>, dev_id: u32) -> Option<DiskState> {
    let (instance, boot) = (instance(dev_id).ok()?, boot().ok()?);
    let last = stamp(dev_id).ok().filter(|s| is_stamp(*s))?;
    journal::noted(&path(directory?, dev_id), dev_id, instance, boot, last)
}

/// The device's directory in sysfs.
fn sysfs(dev_id: u32) -> PathBuf {
    PathBuf::from(format!("/sys/class/ublk-char/ublkc{dev_id}"))
}

/// The inode of the directory in sysfs. sysfs uses each number once in a boot.
pub(in crate::ublk) fn instance(dev_id: u32) -> io::Result<u64> {
    std::fs::metadata(sysfs(dev_id)).map(|m| m.ino())
}

/// The bit that makes a time a stamp: some 270 years.
const OFF: u64 = 1 << 63;

/// A new stamp: the current time, with that bit.
fn new_stamp() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    OFF | now.map_or(0, |t| t.as_nanos() as u64)
}

/// Whether a time is a stamp.
fn is_stamp(time: u64) -> bool {
    time & OFF != 0
}

/// The stamp of the last server of a device.
fn stamp(dev_id: u32) -> Result<u64, String> {
    read_stamp(&sysfs(dev_id)).map_err(|e| format!("{}: {e}", sysfs(dev_id).display()))
}

/// Leaves a stamp at a device, and checks that it is there.
fn write_checked_stamp(dev_id: u32, stamp: u64) -> Result<(), String> {
    let dir = sysfs(dev_id);
    let left = write_stamp(&dir, stamp).and_then(|()| read_stamp(&dir));
    match left {
        Ok(found) if found == stamp => Ok(()),
        Ok(_) => Err(format!("{} keeps no time", dir.display())),
        Err(e) => Err(format!("{}: {e}", dir.display())),
    }
}

fn read_stamp(dir: &Path) -> io::Result<u64> {
    let meta = std::fs::metadata(dir)?;
    Ok((meta.mtime() as u64).wrapping_mul(1_000_000_000).wrapping_add(meta.mtime_nsec() as u64))
}

fn write_stamp(dir: &Path, stamp: u64) -> io::Result<()> {
    let time = SystemTime::UNIX_EPOCH + Duration::from_nanos(stamp);
    File::open(dir)?.set_times(FileTimes::new().set_modified(time))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_is_found_where_it_was_left() {
        let dir = std::env::temp_dir().join(format!("zoneplug-stamp-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let stamp = new_stamp();
        assert!(!is_stamp(read_stamp(&dir).unwrap()), "a directory's own time is none");
        write_stamp(&dir, stamp).unwrap();
        assert_eq!(read_stamp(&dir).unwrap(), stamp);
        assert!(is_stamp(stamp));
        std::fs::remove_dir(&dir).unwrap();
        assert!(write_checked_stamp(u32::MAX, stamp).unwrap_err().contains("ublkc4294967295: "));
    }

    /// A new device that can have no journal says why, unless none was asked for.
    #[test]
    fn a_new_device_without_a_journal_says_why() {
        let disk = HostedDisk::open_spec("mem,zones=4,zone-size=1M").unwrap();
        let info =
            DevInfo { nr_hw_queues: 1, queue_depth: 8, dev_id: u32::MAX, ..DevInfo::default() };
        let unknown = |directory: Option<&str>| {
            let disks = DiskState { place: 1, opened: 2, paths: String::new() };
            let served = Served { shown: 0..4, disks };
            let file = JournalFile::of_new(&disk, directory.map(Path::new), &info, served);
            assert!(file.journal.is_none());
            file.unknown
        };
        assert_eq!(unknown(None), None);
        assert_eq!(unknown(Some("/proc")).unwrap(), "/proc is not in memory (tmpfs)");
    }
}
