//! The journals of the disks that a server shows: they tell the next server which appends hosts were told of. A disk
//! in memory has none. `recovery/journal.rs` has their content.
//!
//! A journal is believed if its server was the last that opened the disk for writing: disks in files count how often
//! they were opened. Drives do not count; the journal of a drive is believed if it is of this boot.

use super::Disk;
use crate::recovery::bases::{Bases, hash};
use crate::recovery::directory::{boot, place};
use crate::recovery::journal::{About, Change, FoundZone, Journal};
use crate::recovery::shared_words::user;
use crate::recovery::space::read_spaces;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use zoneplug_core::zone::ZoneInfo;
use zoneplug_core::{Op, ZoneNo};
use zoneplug_nvme::target::io::IoRequest;
use zoneplug_recovery::Space;

/// How many appends of each thread the journal keeps, and so the length of its rings.
const DEPTH: u16 = 1024;

/// A number that no ublk device has.
const NO_DEVICE: u32 = u32::MAX;

/// The usual directory of journals. The directory is in memory, and the next server of this user finds it. `of_root`: the one for
/// root; other users have one below `XDG_RUNTIME_DIR`.
pub fn usual_records(of_root: &Path) -> Option<PathBuf> {
    if user() == 0 {
        return Some(of_root.to_owned());
    }
    let directory = std::env::var_os("XDG_RUNTIME_DIR").filter(|d| !d.is_empty());
    directory.map(|d| PathBuf::from(d).join("zoneplug"))
}

/// The journal of this server, and what the last one has left of the disk.
pub(super) struct Opened {
    pub(super) journal: Option<Journal>,
    /// Space by zone that no client of the last server was told of.
    pub(super) spaces: BTreeMap<u32, Space>,
    /// Why the disk has no journal.
    pub(super) why_not: Option<String>,
}

/// Opens the journal of a disk with these zones, or creates one. `threads` will write to it. Waits for the disk.
pub(super) fn open(d: &Disk, directory: &Path, threads: u16, zones: &[ZoneInfo]) -> Opened {
    match try_open(d, directory, threads, zones) {
        Ok((journal, spaces)) => Opened { journal: Some(journal), spaces, why_not: None },
        Err(why) => Opened { journal: None, spaces: BTreeMap::new(), why_not: Some(why) },
    }
}

fn try_open(
    d: &Disk,
    directory: &Path,
    threads: u16,
    zones: &[ZoneInfo],
) -> Result<(Journal, BTreeMap<u32, Space>), String> {
    place(directory)?;
    let g = d.disk.geometry();
    let bases = Bases::held(&d.disk, &d.spec);
    let disks = bases.disk_state();
    let identity = bases.name() ^ hash(bases.layers()).rotate_left(32);
    // Opening the disk has added 1 to the open count of each of its files. The last server had the sum without that.
    let (me, last) = (disks.opened, disks.opened.saturating_sub(bases.files()));
    let about = About {
        dev_id: NO_DEVICE,
        instance: disks.place,
        boot: boot().map_err(|e| format!("the kernel does not say which boot this is: {e}"))?,
        identity,
        geometry: g,
        shown: 0..g.nr_zones(),
        queues: threads,
        depth: DEPTH,
        disks,
    };
    let path = directory.join(format!("nvme-{identity:016x}.told"));
    let found: Vec<FoundZone> = zones.iter().map(FoundZone::of).collect();
    if let Ok(journal) = Journal::open(&path, about.clone(), last, me, &found) {
        let spaces = read_spaces(journal.unacked(&found), &d.disk);
        return Ok((journal, spaces));
    }
    let hidden = (0..).zip(&found).map(|(zone, f)| f.hidden(g.is_conventional(ZoneNo(zone))));
    let journal = Journal::create(&path, about, me, hidden);
    let journal = journal.map_err(|e| format!("{}: {e}", path.display()))?;
    Ok((journal, BTreeMap::new()))
}

/// The part of a request that the journal needs. `None`: the request does not concern it. Appends are noted when they are
/// answered, not here.
pub(super) fn change(r: &IoRequest) -> Option<Change> {
    match r.op {
        Op::Write | Op::WriteZeroes | Op::ZoneFinish | Op::ZoneReset | Op::ZoneResetAll => {
            Some(Change { op: r.op, sector: r.sector, len_sectors: r.len_sectors })
        }
        _ => None,
    }
}
