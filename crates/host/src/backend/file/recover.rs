//! Recovery: makes the state that the last writer left durable or void before anything builds on it. Owns the session
//! of a writer that did not close the disk. Changes no zone.
//!
//! Linux reports a failed write-back once: to each file that was open then, or to the next file that is opened if no
//! other was told. The pages then count as clean: reads see them, but they are not on the medium and are never
//! written again. So after a writer that did not close the disk, this module never assumes that the page cache is on
//! the medium.

use super::create::random;
use super::format::{Debt, GROUP, NOTE, PAGE, SECTOR, SESSION_AT, Session};
use super::load::{self, Head, Zones};
use super::state::is_resettable;
use super::storage::Storage;
use std::io;
use std::ops::Range;
use zoneplug_core::{Error, ZoneNo};

/// Bytes that are written again at a time.
const CHUNK: usize = 1 << 20;
/// Attempts to write a void session.
const TRIES: usize = 4;

/// Reads the zones of a disk that is opened for writing or repaired. Their state is on the medium; the notes of a
/// process that died, and their data, are durable too.
pub(super) fn zones(storage: &dyn Storage, head: &Head, what: &str) -> Result<Zones, Error> {
    let failed = |e| load::io_error(format!("cannot read {what}"), e);
    let zones = load::zones(storage, head).map_err(failed)?;
    if !zones.is_unclean() {
        return Ok(zones);
    }
    if let Some(failure) = zones.failure() {
        // The mark may be in the page cache only, so it is written again before the cache is dropped.
        void(storage, zones.session, failure).map_err(|e| unsettled(what, e))?;
        return medium(storage, head, zones.session).map_err(failed);
    }
    let mut zones = zones;
    for _ in 0..TRIES {
        if zones.process_died(storage.boot_id()) {
            // An error changes nothing: the next opening tries again.
            write_again(storage, head, &zones).map_err(failed)?;
        }
        if let Err(e) = storage.sync() {
            // The kernel reports the error once. The next opening would not see it and believe the notes.
            let _ = void(storage, zones.session, errno(&e));
            return Err(unsettled(what, e));
        }
        let mut now = medium(storage, head, None).map_err(failed)?;
        stay_short(&zones, &mut now);
        if now.table == zones.table && now.live == zones.live {
            return Ok(now);
        }
        // The page cache had a table that is not on the medium, such as one without the data of a zone that was being
        // reset. So not everything that counts was written again.
        zones = now;
    }
    Err(unsettled(what, io::Error::other("it is never the same twice")))
}

/// Calls `each` for every zone with data past its write pointer: its number, the place of these data, and the space from the page
/// above the write pointer to the end of the zone, in bytes of the file.
pub(super) fn past_write_pointers(
    storage: &dyn Storage,
    head: &Head,
    zones: &Zones,
    mut each: impl FnMut(u32, u64, Range<u64>),
) {
    let mut known = None;
    for (zone, r) in (0..).zip(&zones.live) {
        if !is_resettable(r.cond) {
            continue;
        }
        let capacity = head.sup.geometry.zone_len_sectors(ZoneNo(zone));
        let from = head.layout.data(zone, r.wp.min(capacity)).next_multiple_of(PAGE);
        let end = head.layout.zone_end(zone);
        if from >= end {
            continue;
        }
        // The answer holds for all zones up to the data that was found.
        if known.is_none_or(|data| data < from) {
            known = Some(storage.next_data(from).unwrap_or(u64::MAX));
        }
        if let Some(at) = known.filter(|at| *at < end) {
            each(zone, at, from..end);
        }
    }
}

/// The space past write pointers in which a power cut, a kill or a failed write has left data, as ranges of the file. If holes are made
/// of it, later data there that are lost are holes, by which the next opening finds the loss. Zones whose record may be an old one
/// keep their data.
pub(super) fn holes_to_make(storage: &dyn Storage, head: &Head, zones: &Zones) -> Vec<Range<u64>> {
    let mut holes = Vec::new();
    if storage.tells_holes() {
        past_write_pointers(storage, head, zones, |zone, _, past| {
            if zones.damaged.binary_search(&(zone / GROUP)).is_err() {
                holes.push(past);
            }
        });
    }
    holes
}

/// Keeps a zone short if its data was a hole at the first reading: reading has put pages of the hole into the page
/// cache, so it no longer shows as a hole.
fn stay_short(before: &Zones, now: &mut Zones) {
    for &n in &before.short {
        let (was, is) = (before.live[n as usize], &mut now.live[n as usize]);
        if was.generation == is.generation && is.wp > was.wp {
            (is.wp, is.cond) = (was.wp, was.cond);
            now.short.push(n);
        }
    }
    now.short.sort_unstable();
    now.short.dedup();
}

/// The error for state that cannot be made durable.
fn unsettled(what: &str, e: io::Error) -> Error {
    load::io_error(format!("cannot make durable what the last writer of {what} left"), e).hint(
        "make room or mend the device below, then open it again: what was written after the last flush is lost",
    )
}

/// Reads table, session and notes from the medium, which has everything that was synced. A failed session stays
/// failed even if the page cache has dropped its mark.
fn medium(storage: &dyn Storage, head: &Head, failed: Option<Session>) -> io::Result<Zones> {
    let end = match failed {
        // Data that is only in the page cache would be shown until memory is short.
        Some(_) => head.layout.len,
        None => head.layout.data,
    };
    storage.forget(0, end)?;
    let mut zones = load::zones(storage, head)?;
    if failed.is_some() {
        zones.session = failed;
        zones.live.clone_from(&zones.table);
    }
    Ok(zones)
}

/// Writes the notes that count and their data from the page cache again, so that the next sync covers them even if an
/// earlier sync failed. Leaves the table alone: a torn sector must not be the one that counts.
fn write_again(storage: &dyn Storage, head: &Head, zones: &Zones) -> io::Result<()> {
    let layout = &head.layout;
    let mut buf = vec![0; CHUNK];
    again(storage, SESSION_AT, SESSION_AT + SECTOR as u64, &mut buf)?;
    let notes = layout.notes + zones.live.len() as u64 * NOTE;
    again(storage, layout.notes, notes, &mut buf)?;
    for (n, (live, table)) in (0..).zip(zones.live.iter().zip(&zones.table)) {
        let (from, to) = if head.sup.geometry.is_conventional(ZoneNo(n)) {
            let all = head.sup.geometry.zone_len_sectors(ZoneNo(n));
            (0, if live.writes == table.writes { 0 } else { all })
        } else {
            (table.wp, live.wp)
        };
        again(storage, layout.data(n, from), layout.data(n, to), &mut buf)?;
    }
    Ok(())
}

fn again(storage: &dyn Storage, mut at: u64, end: u64, buf: &mut [u8]) -> io::Result<()> {
    while at < end {
        let len = (end - at).min(buf.len() as u64) as usize;
        match storage.read_cached(at, &mut buf[..len])? {
            // The page is on the medium, or lost: skip the rest of it.
            0 => at = (at + 1).next_multiple_of(4096),
            n => {
                storage.write_at(at, &buf[..n])?;
                at += n as u64;
            }
        }
    }
    Ok(())
}

/// The number of an error; never 0.
pub(super) fn errno(e: &io::Error) -> u32 {
    e.raw_os_error().filter(|n| *n > 0).unwrap_or(libc::EIO) as u32
}

/// Marks the durability of this session in the file as unknown: every version of zoneplug then takes its notes for
/// void, as after a power cut. If this fails, even the mark may not be durable.
///
/// A session that is void already keeps its list of told clients. After any other session, all clients are to be
/// told.
pub(super) fn void(storage: &dyn Storage, of: Option<Session>, failure: u32) -> io::Result<()> {
    let id = u64::from_le_bytes(random());
    let of = of.unwrap_or(Session { id, ..Session::default() });
    let debt = match of.failure != 0 && of.debt.boot != [0; 16] {
        true => of.debt,
        false => Debt::new(storage.boot_id()),
    };
    let session = Session { boot: [0; 16], closed: false, failure, debt, ..of };
    let mut done = Ok(());
    for _ in 0..TRIES {
        // The session is written for each attempt: a failed sync leaves the page clean, and the next sync would skip
        // it. The error may also belong to other pages; it is then reported once.
        done = storage.write_at(SESSION_AT, &session.encode()).and_then(|()| storage.sync());
        if done.is_ok() {
            break;
        }
    }
    done
}
