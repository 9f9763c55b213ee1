//! The commands of one disk whose answers a host may not have. A host that has lost a connection sends them again, over
//! another one. What was carried out must then not be carried out twice.
//!
//! | lost | what is noted | what it is for |
//! | --- | --- | --- |
//! | a write | its range | a write that is refused because it begins behind the write pointer may be this one |
//! | an append that landed | where | an append of the same host with the same length and the same data is this one. It gets the place once |
//!
//! A command counts as answered once the host's TCP has acknowledged the bytes of the answer. An answer that was sent and
//! not acknowledged may have reached the host all the same. The answers that reached it are the first of these, so of two
//! appends with the same data the one that was answered last is taken first.
//!
//! A note is of one host, whichever connection its command comes by, and of the zone as the host knows it: a reset of the
//! zone, by any host, removes it. A host has [`WINDOW`] from its first command after the loss; later
//! commands are new ones.
//!
//! A server that starts does not know what hosts of the last one have lost. Every write that is behind the write pointers
//! which it finds may be sent again, for [`WINDOW`] from a host's first command on.
//!
//! A new connection of a host waits until the commands of its old ones have ended: [`Lost::is_draining`].

use crate::target::HostId;
use std::collections::{BTreeMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use zoneplug_core::zone::Geometry;
use zoneplug_core::{Nanos, Sector, ZoneNo};

/// How long a host that is back may send commands again, counted from the first.
pub(crate) const WINDOW: Nanos = Nanos(20_000_000_000);
/// How long after the start of a server a host of the last one may come back.
const RESTART: Nanos = Nanos(3_600_000_000_000);
/// Most notes of a disk. The oldest make way: they are of hosts that did not come back.
const MAX_NOTES: usize = 1 << 16;

/// Names a host: a hash of its NQN and identifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostKey(u64);

impl HostKey {
    /// That of a host.
    pub fn of(host: &HostId) -> HostKey {
        let mut hasher = DefaultHasher::new();
        (host.nqn.as_str(), host.id).hash(&mut hasher);
        HostKey(hasher.finish())
    }
}

/// Names the note that a comparison is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ClaimId(u64);

/// An append that is on the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Landed {
    /// Where.
    pub(crate) at: Sector,
    /// How long it is.
    pub(crate) len_sectors: u32,
    /// The hash of its data, if it is known.
    pub(crate) hash: Option<u64>,
}

#[derive(Debug, Clone, Copy)]
struct Note<T> {
    /// Counts notes.
    number: u64,
    host: HostKey,
    /// When it ends, once the host is back.
    until: Option<Nanos>,
    what: T,
}

/// A range of sectors of a zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Written {
    at: Sector,
    len_sectors: u32,
}

/// A note that is being compared with the disk.
#[derive(Debug)]
struct Claim {
    id: ClaimId,
    zone: ZoneNo,
    /// False: the zone was reset meanwhile.
    alive: bool,
    /// The append that it has taken out of the notes.
    append: Option<Note<Landed>>,
}

/// What is known of one disk.
#[derive(Debug)]
pub(crate) struct Lost {
    geometry: Geometry,
    writes: VecDeque<Note<Written>>,
    /// In the order of their numbers.
    appends: VecDeque<Note<Landed>>,
    claims: Vec<Claim>,
    last: u64,
    /// Closed connections of each host whose commands are still being carried out.
    draining: BTreeMap<HostKey, u32>,
    /// For a disk whose last server may have died: sectors of each zone that were written when this one started.
    at_start: Vec<u32>,
    /// How long these count.
    at_start_until: Nanos,
    /// Until when each host may send commands again that the last server had.
    back: BTreeMap<HostKey, Nanos>,
}

/// Most hosts that may send commands again after a restart.
const MAX_HOSTS: usize = 1024;

impl Lost {
    /// Nothing is lost.
    pub(crate) fn new(geometry: Geometry) -> Lost {
        Lost {
            geometry,
            writes: VecDeque::new(),
            appends: VecDeque::new(),
            claims: Vec::new(),
            last: 0,
            draining: BTreeMap::new(),
            at_start: Vec::new(),
            at_start_until: Nanos(0),
            back: BTreeMap::new(),
        }
    }

    /// A disk of which so many sectors of each zone are written now, when this server starts: hosts of the last server may
    /// send again what is there.
    pub(crate) fn set_written_at_start(&mut self, written: Vec<u32>, now: Nanos) {
        self.at_start = if written.iter().any(|n| *n > 0) { written } else { Vec::new() };
        self.at_start_until = now.plus(RESTART);
    }

    /// Whether there is no note.
    pub(crate) fn is_empty(&self) -> bool {
        self.writes.is_empty()
            && self.appends.is_empty()
            && self.claims.is_empty()
            && self.at_start.is_empty()
    }

    /// Whether there is a note of an append.
    pub(crate) fn has_appends(&self) -> bool {
        !self.appends.is_empty()
    }

    /// A connection of `host` has ended, and commands of it are still being carried out.
    pub(crate) fn begin_drain(&mut self, host: HostKey) {
        *self.draining.entry(host).or_default() += 1;
    }

    /// They have ended.
    pub(crate) fn end_drain(&mut self, host: HostKey) {
        if let Some(n) = self.draining.get_mut(&host) {
            *n -= 1;
            if *n == 0 {
                self.draining.remove(&host);
            }
        }
    }

    /// Whether a new connection of `host` has to wait.
    pub(crate) fn is_draining(&self, host: HostKey) -> bool {
        self.draining.contains_key(&host)
    }

    fn note<T>(&mut self, host: HostKey, what: T) -> Note<T> {
        self.last += 1;
        Note { number: self.last, host, until: None, what }
    }

    /// A write of `host` may have been carried out, and its answer may be lost.
    pub(crate) fn lose_write(&mut self, host: HostKey, at: Sector, len_sectors: u32) {
        if at >= self.geometry.capacity() || self.is_conventional(at) {
            return;
        }
        let note = self.note(host, Written { at, len_sectors });
        make_room(&mut self.writes);
        self.writes.push_back(note);
    }

    /// An append of `host` is on the disk, and its answer may be lost. Of several that were answered, the first one comes
    /// first.
    pub(crate) fn lose_append(&mut self, host: HostKey, landed: Landed) {
        let note = self.note(host, landed);
        make_room(&mut self.appends);
        self.appends.push_back(note);
    }

    /// `host` is back: its first command on a new connection has come.
    pub(crate) fn is_back(&mut self, host: HostKey, now: Nanos) {
        self.expire(now);
        let until = now.plus(WINDOW);
        let writes = self.writes.iter_mut().map(|n| (n.host, &mut n.until));
        let appends = self.appends.iter_mut().map(|n| (n.host, &mut n.until));
        for (_, ends) in writes.chain(appends).filter(|(of, _)| *of == host) {
            ends.get_or_insert(until);
        }
        if !self.at_start.is_empty() && self.back.len() < MAX_HOSTS {
            self.back.entry(host).or_insert(until);
        }
    }

    /// Forgets what is too old.
    fn expire(&mut self, now: Nanos) {
        self.writes.retain(|n| n.until.is_none_or(|until| now < until));
        self.appends.retain(|n| n.until.is_none_or(|until| now < until));
        if now >= self.at_start_until {
            self.at_start.clear();
        }
    }

    pub(super) fn zone(&self, at: Sector) -> ZoneNo {
        self.geometry.zone_of(at).0
    }

    fn is_conventional(&self, at: Sector) -> bool {
        self.geometry.is_conventional(self.zone(at))
    }

    /// Whether a write of `host` at `at` that was refused may have been sent again. The disk is to be asked then, and
    /// [`Lost::confirm`] says whether the answer counts.
    pub(crate) fn claim_write(&mut self, host: HostKey, at: Sector, now: Nanos) -> Option<ClaimId> {
        self.expire(now);
        if at >= self.geometry.capacity() {
            return None;
        }
        let noted = self.writes.iter().any(|n| {
            let end = n.what.at.plus(u64::from(n.what.len_sectors));
            n.host == host && n.what.at <= at && at < end
        });
        if !noted && !self.was_there_at_start(host, at, now) {
            return None;
        }
        Some(self.claim(self.zone(at), None))
    }

    fn was_there_at_start(&self, host: HostKey, at: Sector, now: Nanos) -> bool {
        let (zone, offset) = self.geometry.zone_of(at);
        self.at_start.get(zone.0 as usize).is_some_and(|written| offset < *written)
            && self.back.get(&host).is_some_and(|until| now < *until)
    }

    /// Takes the last note of an append that may be this one, and whose number is below `below`. The data at its place
    /// are to be compared then.
    pub(crate) fn claim_append(
        &mut self,
        host: HostKey,
        (zone, len_sectors, hash): (ZoneNo, u32, u64),
        below: u64,
        now: Nanos,
    ) -> Option<(ClaimId, u64, Landed)> {
        self.expire(now);
        let n = self.appends.iter().rposition(|n| {
            n.number < below
                && n.host == host
                && n.what.len_sectors == len_sectors
                && n.what.hash.is_none_or(|h| h == hash)
                && self.geometry.zone_of(n.what.at).0 == zone
        })?;
        let note = self.appends.remove(n)?;
        Some((self.claim(zone, Some(note)), note.number, note.what))
    }

    fn claim(&mut self, zone: ZoneNo, append: Option<Note<Landed>>) -> ClaimId {
        self.last += 1;
        let id = ClaimId(self.last);
        self.claims.push(Claim { id, zone, alive: true, append });
        id
    }

    /// The data are there. False: the zone was changed meanwhile.
    pub(crate) fn confirm(&mut self, id: ClaimId) -> bool {
        self.end_claim(id).is_some_and(|claim| claim.alive)
    }

    /// The data are not there, or the answer was lost once more.
    pub(crate) fn give_back(&mut self, id: ClaimId) {
        let Some(Claim { alive: true, append: Some(note), .. }) = self.end_claim(id) else {
            return;
        };
        let at = self.appends.partition_point(|n| n.number < note.number);
        self.appends.insert(at, note);
    }

    fn end_claim(&mut self, id: ClaimId) -> Option<Claim> {
        let n = self.claims.iter().position(|c| c.id == id)?;
        Some(self.claims.swap_remove(n))
    }

    /// A zone is to be reset, or was.
    pub(crate) fn forget_zone(&mut self, at: Sector) {
        if at >= self.geometry.capacity() {
            return;
        }
        let (g, zone) = (self.geometry, self.zone(at));
        self.writes.retain(|n| g.zone_of(n.what.at).0 != zone);
        self.appends.retain(|n| g.zone_of(n.what.at).0 != zone);
        self.claims.iter_mut().filter(|c| c.zone == zone).for_each(|c| c.alive = false);
        if let Some(written) = self.at_start.get_mut(zone.0 as usize) {
            *written = 0;
        }
    }

    /// All zones are to be reset, or were.
    pub(crate) fn forget_all(&mut self) {
        self.writes.clear();
        self.appends.clear();
        self.claims.iter_mut().for_each(|c| c.alive = false);
        self.at_start.clear();
    }
}

fn make_room<T>(notes: &mut VecDeque<Note<T>>) {
    if notes.len() == MAX_NOTES {
        notes.pop_front();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: HostKey = HostKey(1);
    const B: HostKey = HostKey(2);
    const NOW: Nanos = Nanos(7);
    const LATE: Nanos = Nanos(7 + WINDOW.0);

    /// Zones of 0x800 sectors.
    fn lost() -> Lost {
        Lost::new(Geometry::new(4, 0x800, 0x800).unwrap())
    }

    fn landed(at: u64, hash: Option<u64>) -> Landed {
        Landed { at: Sector(at), len_sectors: 8, hash }
    }

    fn append(l: &mut Lost, host: HostKey, zone: u32, hash: u64, now: Nanos) -> Option<u64> {
        let (id, _, found) = l.claim_append(host, (ZoneNo(zone), 8, hash), u64::MAX, now)?;
        l.confirm(id).then_some(found.at.0)
    }

    fn write(l: &mut Lost, host: HostKey, at: u64, now: Nanos) -> bool {
        l.claim_write(host, Sector(at), now).is_some_and(|id| l.confirm(id))
    }

    /// L2, L3.
    #[test]
    fn l2_a_write_is_recognised_by_its_host_its_range_and_its_time() {
        let mut l = lost();
        assert!(!write(&mut l, A, 0x808, NOW), "nothing is lost");
        l.lose_write(A, Sector(0x808), 16);
        assert!(!write(&mut l, B, 0x808, NOW), "another host");
        for (at, is) in [(0x800, false), (0x808, true), (0x810, true), (0x818, false)] {
            assert_eq!(write(&mut l, A, at, NOW), is, "{at:x}");
        }
        assert!(write(&mut l, A, 0x808, LATE), "it is not back yet");
        l.is_back(B, NOW);
        assert!(write(&mut l, A, 0x808, LATE));
        l.is_back(A, NOW);
        l.is_back(A, LATE);
        assert!(
            !write(&mut l, A, 0x808, LATE),
            "a queue that connects later does not begin it anew"
        );
        assert!(l.is_empty());
    }

    /// L4.
    #[test]
    fn l4_an_append_gets_a_place_once_and_the_last_first() {
        let mut l = lost();
        l.lose_append(A, landed(0x800, Some(5)));
        l.lose_append(A, landed(0x808, Some(5)));
        l.lose_append(A, landed(0x810, Some(6)));
        assert_eq!(append(&mut l, B, 1, 5, NOW), None, "another host");
        assert_eq!(append(&mut l, A, 2, 5, NOW), None, "another zone");
        assert_eq!(append(&mut l, A, 1, 7, NOW), None, "other data");
        assert_eq!(append(&mut l, A, 1, 5, NOW), Some(0x808));
        assert_eq!(append(&mut l, A, 1, 5, NOW), Some(0x800));
        assert_eq!(append(&mut l, A, 1, 5, NOW), None);
        l.is_back(A, NOW);
        assert_eq!(append(&mut l, A, 1, 6, LATE), None, "too late");
    }

    #[test]
    fn of_unknown_data_each_place_is_compared_once() {
        let mut l = lost();
        for at in [0x800, 0x808, 0x810] {
            l.lose_append(A, landed(at, None));
        }
        let what = (ZoneNo(1), 8, 5);
        let (first, number, found) = l.claim_append(A, what, u64::MAX, NOW).unwrap();
        assert_eq!(found.at.0, 0x810);
        let (other, _, found) = l.claim_append(A, what, u64::MAX, NOW).unwrap();
        assert_eq!(found.at.0, 0x808, "what is being compared is taken");
        l.give_back(other);
        l.give_back(first);
        let (next, _, found) = l.claim_append(A, what, number, NOW).unwrap();
        assert_eq!(found.at.0, 0x808);
        l.give_back(next);
        assert_eq!(l.claim_append(A, what, u64::MAX, NOW).unwrap().2.at.0, 0x810, "in order again");
    }

    /// L5. Also while the data are being compared.
    #[test]
    fn l5_a_reset_forgets_its_zone_and_no_other() {
        for all in [false, true] {
            let mut l = lost();
            l.set_written_at_start(vec![0, 64, 64, 0], NOW);
            l.is_back(B, NOW);
            for zone in [1, 2] {
                l.lose_write(A, Sector(zone * 0x800), 8);
                l.lose_append(A, landed(zone * 0x800 + 8, Some(5)));
                l.lose_append(A, landed(zone * 0x800 + 16, Some(5)));
            }
            let compared = l.claim_write(A, Sector(0x800), NOW).unwrap();
            let taken = l.claim_append(A, (ZoneNo(1), 8, 5), u64::MAX, NOW).unwrap().0;
            if all {
                l.forget_all();
            } else {
                l.forget_zone(Sector(0x800));
            }
            assert!(!l.confirm(compared));
            l.give_back(taken);
            assert_eq!(append(&mut l, A, 1, 5, NOW), None);
            assert!(!write(&mut l, A, 0x800, NOW) && !write(&mut l, B, 0x800, NOW));
            assert_eq!(append(&mut l, A, 2, 5, NOW), (!all).then_some(0x1010));
            assert_eq!([write(&mut l, A, 0x1000, NOW), write(&mut l, B, 0x1000, NOW)], [!all; 2]);
            assert_eq!(l.is_empty(), all);
        }
    }

    /// L7. Each host has its time, from its first command on.
    #[test]
    fn l7_after_a_restart_what_was_written_at_the_start_may_be_sent_again() {
        let mut l = lost();
        l.set_written_at_start(vec![0, 64, 0, 0], NOW);
        assert!(!write(&mut l, A, 0x800, NOW), "it is not connected");
        l.is_back(A, NOW);
        for (at, is) in [(0, false), (0x800, true), (0x83f, true), (0x840, false), (0x1000, false)]
        {
            assert_eq!(write(&mut l, A, at, NOW), is, "{at:x}");
        }
        l.is_back(B, LATE);
        assert!(!write(&mut l, A, 0x800, LATE) && write(&mut l, B, 0x800, LATE));
        l.is_back(HostKey(3), NOW.plus(RESTART));
        assert!(l.is_empty(), "a host that takes so long is a new one");
        l.set_written_at_start(vec![0; 4], NOW);
        assert!(l.is_empty(), "nothing was written");
    }

    /// L1.
    #[test]
    fn l1_a_host_waits_for_all_of_its_old_connections() {
        let mut l = lost();
        l.begin_drain(A);
        l.begin_drain(A);
        l.end_drain(A);
        assert!(l.is_draining(A) && !l.is_draining(B));
        l.end_drain(A);
        assert!(!l.is_draining(A));
    }

    #[test]
    fn notes_are_bounded() {
        let mut l = lost();
        for _ in 0..MAX_NOTES + 3 {
            l.lose_write(A, Sector(0x800), 8);
        }
        assert_eq!(l.writes.len(), MAX_NOTES);
        for host in 0..2 * MAX_HOSTS as u64 {
            l.set_written_at_start(vec![8; 4], NOW);
            l.is_back(HostKey(host), NOW);
        }
        assert_eq!(l.back.len(), MAX_HOSTS);
    }
}
