//! Checks a disk that no process writes, and repairs it: superblocks, table, notes, and space that holds no
//! data.

use super::format::{GROUP, NOTE, Note, Record, SECTOR, SESSION_AT, Session, encode_table};
use super::load::{self, Head, Zones, io_error};
use super::open_file;
use super::recover;
use super::storage::{Storage, make_hole};
use super::{Identity, create};
use std::path::Path;
use zoneplug_core::zone::Condition;
use zoneplug_core::{Bytes, Error, plain};

/// The findings of a check, and its repairs.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct CheckReport {
    /// Each finding and, with repair, what was done about it, one line each.
    pub lines: Vec<String>,
    /// Problems found.
    pub problems: u32,
    /// Problems repaired.
    pub repaired: u32,
    /// Zones that were checked.
    pub zones: u32,
}

impl std::fmt::Display for CheckReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for line in &self.lines {
            writeln!(f, "{line}")?;
        }
        write!(f, "{} zones, {} problems, {} repaired", self.zones, self.problems, self.repaired)
    }
}

/// Whether an ascending list has a number.
fn has(list: &[u32], n: u32) -> bool {
    list.binary_search(&n).is_ok()
}

/// The problems of a disk that opens in spite of them, for its user.
pub(super) fn notices(head: &Head, zones: &Zones) -> Vec<String> {
    let mut lines = Vec::new();
    for (good, name) in head.copies.into_iter().zip(["first", "second"]) {
        if !good {
            lines.push(format!(
                "the {name} copy of the superblock is damaged; the other one is used"
            ));
        }
    }
    for group in &zones.damaged {
        if !has(&zones.lost, *group) {
            lines.push(format!(
                "one copy of table sector {group} is damaged; the other one is used"
            ));
        }
    }
    for group in &zones.lost {
        let first = group * GROUP;
        let last = (first + GROUP).min(zones.table.len() as u32) - 1;
        lines.push(format!(
            "both copies of table sector {group} are damaged: zones {first} to {last} are offline"
        ));
    }
    if let Some(failure) = zones.failure() {
        let e = std::io::Error::from_raw_os_error(failure as i32);
        lines.push(format!(
            "the last writer could not make its writes durable ({e}): what it wrote after its last flush is lost"
        ));
    }
    for zone in &zones.short {
        lines.push(format!(
            "zone {zone}: writes of the last process never reached the medium; it ends before the first of them"
        ));
    }
    for zone in &zones.impossible {
        lines.push(format!("zone {zone} has an impossible record in the table: it is offline"));
    }
    lines
}

/// Checks the disk in a file that no process writes. With `repair`, repairs the problems that it finds. A problem
/// without repair is an error: both copies of the superblock are damaged, or the file is truncated.
///
/// ```
/// use zoneplug_host::file::{check, create, CreateOptions};
/// # let path = std::env::temp_dir().join(format!("zoneplug-check-{}.zbd", std::process::id()));
/// create(&path, &CreateOptions { size: Some(1 << 30), ..Default::default() }, false).unwrap();
/// let report = check(&path, false).unwrap();
/// assert_eq!((report.zones, report.problems), (4, 0));
/// # std::fs::remove_file(&path).unwrap();
/// ```
pub fn check(path: &Path, repair: bool) -> Result<CheckReport, Error> {
    check_in(&open_file(path, repair)?, &path.display().to_string(), repair)
}

/// Gives a disk that no process writes a new UUID. A copy of a file needs one, because it has the UUID of the
/// original. After a power cut meanwhile, the disk has the old or the new UUID. Returns the new identity.
///
/// ```
/// use zoneplug_host::file::{create, new_uuid, Access, CreateOptions, FileDisk};
/// # let dir = std::env::temp_dir().join(format!("zoneplug-new-uuid-{}", std::process::id()));
/// # std::fs::create_dir_all(&dir).unwrap();
/// let (path, copy) = (dir.join("disk.zbd"), dir.join("copy.zbd"));
/// let original = create(&path, &CreateOptions { size: Some(1 << 30), ..Default::default() }, false).unwrap();
/// std::fs::copy(&path, &copy).unwrap();
/// let own = new_uuid(&copy).unwrap();
/// assert_ne!(own.uuid, original.uuid);
/// assert_eq!(FileDisk::open(&copy, Access::ReadWrite).unwrap().identity().uuid, own.uuid);
/// # std::fs::remove_dir_all(&dir).unwrap();
/// ```
pub fn new_uuid(path: &Path) -> Result<Identity, Error> {
    new_uuid_in(&open_file(path, true)?, &path.display().to_string())
}

/// Gives the disk in a storage a new UUID.
pub(super) fn new_uuid_in(storage: &dyn Storage, what: &str) -> Result<Identity, Error> {
    let head = load::head(storage, what)?;
    // The syncs below would receive an error that the next opening must know about, so recovery comes
    // first.
    let zones = recover::zones(storage, &head, what)?;
    let sup = create::renew(storage, &head).map_err(|e| {
        let _ = recover::void(storage, zones.session, recover::errno(&e));
        io_error(format!("cannot write the UUID of {what}"), e)
    })?;
    Ok(sup.identity(zones.session.map_or(0, |s| s.opened)))
}

/// Checks the disk in a storage.
pub(super) fn check_in(
    storage: &dyn Storage,
    what: &str,
    repair: bool,
) -> Result<CheckReport, Error> {
    let failed = |e| io_error(format!("cannot check {what}"), e);
    let head = load::head(storage, what)?;
    let zones = match repair {
        // The repair must not build on data that may be missing from the medium, nor give back space that
        // the table on the medium needs.
        true => recover::zones(storage, &head, what)?,
        false => load::zones(storage, &head).map_err(failed)?,
    };
    let mut report = CheckReport { zones: zones.table.len() as u32, ..CheckReport::default() };
    let id = head.sup.identity(zones.session.map_or(0, |s| s.opened));
    report.lines.push(format!(
        "{}: format version {}, UUID {}, label '{}'",
        plain(what),
        id.version,
        id.uuid,
        plain(&id.label)
    ));
    report.lines.push(closed(storage, &zones));
    let found = notices(&head, &zones);
    report.problems = found.len() as u32;
    report.lines.extend(found);
    if !repair {
        space(storage, &head, &zones, false, &mut report);
        return Ok(report);
    }
    let repaired = (|| {
        if report.problems > 0 {
            report.repaired = mend(storage, &head, &zones, &mut report.lines)?;
        }
        space(storage, &head, &zones, true, &mut report);
        storage.sync()
    })();
    if let Err(e) = repaired {
        // Which data is durable is unknown.
        let _ = recover::void(storage, zones.session, recover::errno(&e));
        return Err(failed(e));
    }
    Ok(report)
}

/// How the last writer ended.
fn closed(storage: &dyn Storage, zones: &Zones) -> String {
    let newer = zones.live.iter().zip(&zones.table).filter(|(l, t)| l != t).count();
    if zones.session.is_none() {
        "it was never opened for writing".to_owned()
    } else if !zones.is_unclean() {
        "it was closed".to_owned()
    } else if zones.failure().is_some() {
        "its last writer could not make its writes durable; what was flushed before is there"
            .to_owned()
    } else if zones.process_died(storage.boot_id()) {
        format!(
            "it is open, or its last writer died; {newer} zones have writes that the table lacks"
        )
    } else {
        "its last writer was cut off by a power cut or restart; what was flushed is there"
            .to_owned()
    }
}

/// Repairs superblocks and table. Returns the number of problems that it has repaired.
fn mend(
    storage: &dyn Storage,
    head: &Head,
    zones: &Zones,
    lines: &mut Vec<String>,
) -> std::io::Result<u32> {
    let mut repaired = 0;
    // If the repair is interrupted, the disk must not say that it was closed.
    let open = Session {
        closed: false,
        failure: 0,
        boot: [0; 16],
        debt: zones.debt(storage.boot_id()),
        ..zones.session.unwrap_or_default()
    };
    let session = |s: Session| storage.write_at(SESSION_AT, &s.encode());
    if !zones.is_unclean() {
        session(open)?;
        storage.sync()?;
    }
    for (good, at) in head.copies.into_iter().zip(head.layout.supers()) {
        if !good {
            storage.write_at(at, &head.sup.encode())?;
            lines.push("repaired: the superblock was written again".to_owned());
            repaired += 1;
        }
    }
    let mut groups: Vec<u32> = zones.damaged.iter().chain(&zones.lost).copied().collect();
    groups.extend(zones.impossible.iter().map(|z| z / GROUP));
    groups.sort_unstable();
    groups.dedup();
    let mut mended = Vec::with_capacity(groups.len());
    for group in groups {
        let first = (group * GROUP) as usize;
        let last = zones.table.len().min(first + GROUP as usize);
        let mut records = zones.table[first..last].to_vec();
        let lost = has(&zones.lost, group);
        for (zone, r) in (first as u32..).zip(&mut records) {
            if (lost || has(&zones.impossible, zone)) && r.cond == Condition::Offline {
                // The content of the zone is unknown, so its note becomes void too.
                let generation = r.generation.wrapping_add(1);
                *r = Record { generation, ..Record::new(false) };
                storage.write_at(head.layout.note(zone), &[0; NOTE as usize])?;
                lines.push(format!("repaired: zone {zone} is empty now, its data is lost"));
            }
        }
        lines.push(format!("repaired: table sector {group} was written again"));
        repaired += 1;
        mended.push((group, records));
    }
    // Writes the copies that do not count first, so that a power cut leaves one of each.
    for step in [1, 2] {
        for (group, records) in &mended {
            let seq = zones.seqs[*group as usize].wrapping_add(step);
            let sector: [u8; SECTOR] = encode_table(&head.sup.uuid, *group, seq, records);
            storage.write_at(head.layout.table(*group, seq), &sector)?;
        }
        storage.sync()?;
    }
    for &zone in &zones.short {
        let Some(Session { id: session, .. }) = zones.session else { continue };
        let Record { wp, generation, writes, .. } = zones.live[zone as usize];
        let note = Note { wp, generation, writes, session };
        storage.write_at(head.layout.note(zone), &note.encode())?;
        lines.push(format!("repaired: zone {zone} ends where its data does"));
        repaired += 1;
    }
    storage.sync()?;
    if zones.failure().is_some() || !zones.is_unclean() {
        session(Session { closed: true, ..open })?;
        storage.sync()?;
    }
    if zones.failure().is_some() {
        lines.push("repaired: the disk is what its last flush left".to_owned());
        repaired += 1;
    }
    let gone = zones.impossible.len() as u32;
    Ok((repaired + gone).min(notices(head, zones).len() as u32))
}

/// Finds space in use past write pointers. It costs room and is no problem: a crash between a reset and its hole
/// leaves such space, as do writes that were not acknowledged, and allocation ahead of writes.
fn space(
    storage: &dyn Storage,
    head: &Head,
    zones: &Zones,
    repair: bool,
    report: &mut CheckReport,
) {
    if head.sup.keeps_space {
        return;
    }
    let mut bytes = 0;
    recover::past_write_pointers(storage, head, zones, |_, at, past| {
        bytes += past.end - at;
        if repair {
            make_hole(storage, head.sup.keeps_space, past);
        }
    });
    if bytes > 0 {
        let did = if repair { "given back" } else { "no problem; a repair gives it back" };
        report.lines.push(format!("up to {} past write pointers: {did}", Bytes(bytes)));
    }
}
