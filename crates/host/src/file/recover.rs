//! What the last writer left, before anything is built on it: durable and known to be, or void. Owns the session of a
//! writer that did not close the disk; changes no zone.
//!
//! Linux says once that writing back has failed, to each open file of that moment, and to one that is opened later only
//! if it told nobody before. The pages are clean from then on: seen, not on the medium, and never written again. So
//! nothing that memory shows of a disk that was not closed is believed to be on the medium.

use super::create::random;
use super::format::{NOTE, SECTOR, SESSION_AT, Session};
use super::load::{self, Head, Zones};
use super::storage::Storage;
use std::io;
use zoneplug_core::Error;

/// Bytes that are written again at a time.
const CHUNK: usize = 1 << 20;
/// How often a session is declared void before that is given up.
const TRIES: usize = 4;

/// Reads the zones of a disk that is opened for writing or repaired. What they say is on the medium, but for the notes
/// of a process that died: these and their data are durable.
pub(super) fn zones(storage: &dyn Storage, head: &Head, what: &str) -> Result<Zones, Error> {
    let failed = |e| load::io_error(format!("cannot read {what}"), e);
    let zones = load::zones(storage, head).map_err(failed)?;
    if !zones.is_unclean() {
        return Ok(zones);
    }
    if let Some(failure) = zones.failure() {
        // It may be in memory alone, so it is written again before memory is forgotten.
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
            // The kernel says so once. The next opening would hear nothing and believe the notes.
            let _ = void(storage, zones.session, errno(&e));
            return Err(unsettled(what, e));
        }
        let mut now = medium(storage, head, None).map_err(failed)?;
        stay_short(&zones, &mut now);
        if now.table == zones.table && now.live == zones.live {
            return Ok(now);
        }
        // Memory had a table that is not on the medium, such as one without the data of a zone that was being reset. So
        // not all that counts was written again.
        zones = now;
    }
    Err(unsettled(what, io::Error::other("it is never the same twice")))
}

/// What was a hole before anything was read is one, although what a read left in memory is none.
fn stay_short(before: &Zones, now: &mut Zones) {
    for &n in &before.short {
        let (was, is) = (before.live[n as usize], &mut now.live[n as usize]);
        if was.generation == is.generation && is.wp > was.wp {
            (is.wp, is.cond) = (was.wp, was.cond);
            if !now.short.contains(&n) {
                now.short.push(n);
            }
        }
    }
}

/// The error for what cannot be made durable.
fn unsettled(what: &str, e: io::Error) -> Error {
    load::io_error(format!("cannot make durable what the last writer of {what} left"), e).hint(
        "make room or mend the device below, then open it again: what was written after the last flush is lost",
    )
}

/// Reads table, session and notes from the medium, where everything is that was synced. A writer that failed is one
/// although memory has forgotten it.
fn medium(storage: &dyn Storage, head: &Head, failed: Option<Session>) -> io::Result<Zones> {
    let end = match failed {
        // Data that memory shows and the medium does not have would be seen until memory is short.
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

/// Writes again what memory has of notes that count and of their data, so that the next sync covers it, whatever became
/// of an earlier one. The table is not: a sector of it that is torn must not be the one that counts.
fn write_again(storage: &dyn Storage, head: &Head, zones: &Zones) -> io::Result<()> {
    let layout = &head.layout;
    let mut buf = vec![0; CHUNK];
    again(storage, SESSION_AT, SESSION_AT + SECTOR as u64, &mut buf)?;
    let notes = layout.notes + zones.live.len() as u64 * NOTE;
    again(storage, layout.notes, notes, &mut buf)?;
    for (n, (live, table)) in (0..).zip(zones.live.iter().zip(&zones.table)) {
        let (from, to) = if head.sup.geometry.is_conventional(zoneplug_core::ZoneNo(n)) {
            let all = head.sup.geometry.zone_len_sectors(zoneplug_core::ZoneNo(n));
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
            // On the medium, or lost: the rest of this page, and on with the next.
            0 => at = (at + 1).next_multiple_of(4096),
            n => {
                storage.write_at(at, &buf[..n])?;
                at += n as u64;
            }
        }
    }
    Ok(())
}

/// The number of an error, never 0.
pub(super) fn errno(e: &io::Error) -> u32 {
    e.raw_os_error().filter(|n| *n > 0).unwrap_or(libc::EIO) as u32
}

/// Says in the file that nobody knows what of this session is durable: its notes are void, for every version of this
/// program, as after a power cut. An error says that even this may not be durable.
pub(super) fn void(storage: &dyn Storage, of: Option<Session>, failure: u32) -> io::Result<()> {
    let id = u64::from_le_bytes(random());
    let of = of.unwrap_or(Session { id, boot: [0; 16], closed: false, failure, opened: 0 });
    let session = Session { boot: [0; 16], closed: false, failure, ..of };
    let mut done = Ok(());
    for _ in 0..TRIES {
        // Written each time: a sync that failed has left it clean, and the next one would skip it. The error that a sync
        // says may also be that of other pages, which is said once.
        done = storage.write_at(SESSION_AT, &session.encode()).and_then(|()| storage.sync());
        if done.is_ok() {
            break;
        }
    }
    done
}
