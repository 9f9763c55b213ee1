//! The ledger of one disk: commands whose answers a client may not have. A client that has lost a connection sends such a command
//! again, over another connection. The server must not carry it out twice.
//!
//! | lost answer of | noted | used for |
//! | --- | --- | --- |
//! | a write | its range | a write that is refused because it begins below the write pointer may be this one |
//! | an append that landed | its place | an append of the same client with the same length and data is this one, and gets the place once |
//!
//! A write is noted while its answer is one of the last of its queue, because a client may never have read bytes that its
//! transport has acknowledged. An append counts as answered once the client's transport has acknowledged the bytes of the answer.
//! An answer that was not acknowledged may have reached the client all the same. Answers arrive in their order, so of two appends
//! with the same data the one that was answered last is taken first.
//!
//! A note belongs to a client, whichever connection the command came by, and to a zone until its reset: a reset by any client
//! removes it. An append that was sent before a reset ended is not noted later, because its place may be another's by then
//! ([`DiskRecovery::lose_append`](super::DiskRecovery)). A write that was sent before the reset is still noted: a resend succeeds
//! only if the disk holds equal data. After a loss a client has [`WINDOW`] from its first command on; later commands are new ones.
//!
//! A server that starts does not know which answers of the last server are lost. For [`WINDOW`] from its first command on, a client
//! may send any write again that lies below the write pointers which the server found. An append may lie in space that no
//! client of the last server was told of ([`Space`]). A client that outlives its server sends all unanswered commands before it
//! sends others in their place. If it has one write of a zone in flight, only the first commands of each zone may be old ones.
//!
//! A new connection of a client waits until the commands of its old ones have ended: [`ResendLedger::is_draining`].

use crate::client_key::{ClientKey, ClientQueue};
use crate::last_server::{LastServer, Rule, WINDOW};
use crate::notes::{NotePlace, Notes};
use crate::peer_queries::{Asked, PeerQueries, PeerQueryId, Reply};
use crate::space::Space;
use std::collections::BTreeMap;
use zoneplug_core::zone::Geometry;
use zoneplug_core::{Nanos, Sector, ZoneNo};

/// Most notes of a disk's writes, and of its appends. Beyond that, the client with the most notes loses its oldest.
const MAX_NOTES: usize = 1 << 16;

/// Names a comparison of a command with a note.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ClaimId(u64);

/// An append that is on the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Landed {
    /// The first sector.
    pub at: Sector,
    /// How long it is.
    pub len_sectors: u32,
    /// The hash of the data, if known.
    pub hash: Option<u64>,
}

/// A range of sectors of a zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Written {
    at: Sector,
    len_sectors: u32,
}

/// A comparison of a command with the disk.
#[derive(Debug)]
struct Claim {
    zone: ZoneNo,
    /// False if the zone was reset meanwhile.
    alive: bool,
    reservation: Reservation,
}

/// The note that a comparison is about. No variant reserves its note: several commands may be compared with it.
#[derive(Debug)]
enum Reservation {
    Nothing,
    /// A note of an append.
    Append(NotePlace),
    /// Blocks of the last server's space: their offset in the zone in sectors, and their number.
    Blocks(u32, usize),
}

/// The places that an append was already compared with.
#[derive(Debug)]
pub(crate) struct AppendSearch {
    /// All notes with at least this number were compared.
    below: u64,
    /// The offsets in the last server's space that were compared.
    offsets: Vec<u32>,
}

impl AppendSearch {
    /// Starts a search.
    pub(crate) fn nowhere() -> AppendSearch {
        AppendSearch { below: u64::MAX, offsets: Vec::new() }
    }
}

/// The hashes of an append's data.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct AppendData {
    /// The hash of all data.
    pub(crate) hash: u64,
    /// The hashes of the blocks, if the last server left space to search.
    pub(crate) blocks: Vec<u64>,
}

/// The ledger of one disk.
#[derive(Debug)]
pub struct ResendLedger {
    geometry: Geometry,
    writes: Notes<Written>,
    appends: Notes<Landed>,
    claims: BTreeMap<ClaimId, Claim>,
    queries: PeerQueries,
    last: u64,
    /// The number of closed connections of each client whose commands are still being carried out.
    draining: BTreeMap<ClientKey, u32>,
    /// The commands that the last server may have carried out.
    last_server: LastServer,
}

impl ResendLedger {
    /// Makes an empty ledger.
    pub(crate) fn new(geometry: Geometry) -> ResendLedger {
        ResendLedger {
            geometry,
            writes: Notes::new(MAX_NOTES),
            appends: Notes::new(MAX_NOTES),
            claims: BTreeMap::new(),
            queries: PeerQueries::default(),
            last: 0,
            draining: BTreeMap::new(),
            last_server: LastServer::none(),
        }
    }

    /// Sets the space in each zone that no client of the last server was told of, in blocks of this length.
    pub(crate) fn set_spaces(&mut self, spaces: BTreeMap<u32, Space>, block_sectors: u32) {
        self.last_server.set_spaces(spaces, block_sectors);
    }

    /// Returns the length of a block, if appends must be looked for in space of the last server.
    pub(crate) fn looks_for_blocks(&self) -> Option<u32> {
        self.last_server.looks_for_blocks()
    }

    /// Sets how many sectors of each zone are written when this server starts. Clients of the last server may send the
    /// commands that wrote them again.
    pub(crate) fn set_written_at_start(&mut self, written: Vec<u32>, now: Nanos) {
        self.last_server.set_written(written, now);
    }

    /// Sets which commands may be those of the last server. Call it before the other calls that are about that server.
    pub(crate) fn set_rule(&mut self, rule: Rule) {
        self.last_server.set_rule(rule);
    }

    /// Returns whether a command of a zone may be one of the last server.
    pub(crate) fn is_of_last_server(&self, zone: ZoneNo) -> bool {
        self.last_server.concerns(zone)
    }

    /// Returns whether the ledger has no note.
    pub(crate) fn is_empty(&self) -> bool {
        self.writes.is_empty()
            && self.appends.is_empty()
            && self.claims.is_empty()
            && self.last_server.is_empty()
    }

    /// Returns whether the ledger has a note of an append.
    pub(crate) fn has_appends(&self) -> bool {
        !self.appends.is_empty() || self.looks_for_blocks().is_some()
    }

    /// Returns the appends with a note.
    pub(crate) fn appends(&self) -> impl Iterator<Item = Landed> {
        self.appends.iter()
    }

    /// Adds a queue of `client`, to which the disk is shown from now on.
    pub fn enter(&mut self, client: ClientKey, queue: ClientQueue) {
        self.queries.enter(client, queue);
    }

    /// Removes a queue that has ended and whose commands are noted.
    pub fn leave(&mut self, client: ClientKey, queue: ClientQueue) {
        self.queries.leave(client, queue);
    }

    /// Returns whether a client uses the disk through several paths.
    pub(crate) fn has_paths(&self) -> bool {
        self.queries.are_possible()
    }

    /// Returns whether commands of closed connections are being carried out.
    pub(crate) fn drains(&self) -> bool {
        !self.draining.is_empty()
    }

    /// Returns whether a query between queues is open.
    pub(crate) fn has_queries(&self) -> bool {
        self.queries.any()
    }

    /// Asks other queues of `client` about a write that was refused. Also returns these queues, which the caller must
    /// tell. Returns `None` if there are no other queues and no closed connection of the client is draining.
    pub fn ask(
        &mut self,
        client: ClientKey,
        from: ClientQueue,
        what: Asked,
    ) -> Option<(PeerQueryId, Vec<ClientQueue>)> {
        let drains = matches!(what, Asked::Had(_)) && self.is_draining(client);
        if !drains && !self.has_peers(client, from, what) {
            return None;
        }
        Some(self.queries.ask(client, from, what))
    }

    /// Returns whether [`ResendLedger::ask`] would ask any queue.
    pub fn has_peers(&self, client: ClientKey, from: ClientQueue, what: Asked) -> bool {
        self.queries.peers(client, from, what).next().is_some()
    }

    /// Withdraws a query.
    pub fn withdraw(&mut self, id: PeerQueryId) {
        self.queries.withdraw(id);
    }

    /// Answers the queries to a queue of `client` with `reply`. Returns whether it answered any, and whether any stay
    /// open.
    pub fn answer(
        &mut self,
        client: ClientKey,
        queue: ClientQueue,
        reply: impl Fn(Asked) -> Reply,
    ) -> (bool, bool) {
        self.queries.answer(client, queue, reply)
    }

    /// Takes the combined answer of all queues. Returns `None` while one is missing or closed connections drain.
    pub fn take_answer(&mut self, id: PeerQueryId) -> Option<bool> {
        let draining = &self.draining;
        self.queries.take(id, |client| draining.contains_key(&client))
    }

    /// Counts a closed connection of `client` whose commands are still being carried out.
    pub fn begin_drain(&mut self, client: ClientKey) {
        *self.draining.entry(client).or_default() += 1;
    }

    /// Counts the end of these commands.
    pub fn end_drain(&mut self, client: ClientKey) {
        if let Some(n) = self.draining.get_mut(&client) {
            *n -= 1;
            if *n == 0 {
                self.draining.remove(&client);
            }
        }
    }

    /// Returns whether a new connection of `client` must wait.
    pub fn is_draining(&self, client: ClientKey) -> bool {
        self.draining.contains_key(&client)
    }

    fn place(&mut self, client: ClientKey, at: Sector) -> NotePlace {
        self.last += 1;
        NotePlace { zone: self.zone(at), client, number: self.last }
    }

    /// Notes a write of `client` that may have been carried out and whose answer may be lost.
    pub fn lose_write(&mut self, client: ClientKey, at: Sector, len_sectors: u32) {
        if at >= self.geometry.capacity() || self.is_conventional(at) {
            return;
        }
        let place = self.place(client, at);
        self.writes.add(place, Written { at, len_sectors });
    }

    /// Notes an append of `client` that is on the disk and whose answer may be lost. The caller notes several in the
    /// order of their answers.
    pub(crate) fn lose_append(&mut self, client: ClientKey, landed: Landed) {
        let place = self.place(client, landed.at);
        self.appends.add(place, landed);
    }

    /// Starts the time limit of `client`, whose first command on a new connection has come.
    pub fn is_back(&mut self, client: ClientKey, now: Nanos) {
        self.expire(now);
        let until = now.plus(WINDOW);
        self.writes.end_at(client, until);
        self.appends.end_at(client, until);
        self.last_server.is_back(client, now);
    }

    /// Forgets expired notes.
    fn expire(&mut self, now: Nanos) {
        self.writes.expire(now);
        self.appends.expire(now);
        let claims = &self.claims;
        self.last_server.expire(now, |zone| {
            let of = |c: &Claim| c.zone == zone && matches!(c.reservation, Reservation::Blocks(..));
            claims.values().any(of)
        });
    }

    pub(crate) fn zone_start(&self, zone: ZoneNo) -> Sector {
        self.geometry.zone_start(zone)
    }

    pub(crate) fn zone(&self, at: Sector) -> ZoneNo {
        self.geometry.zone_of(at).0
    }

    fn is_conventional(&self, at: Sector) -> bool {
        self.geometry.is_conventional(self.zone(at))
    }

    /// Starts a comparison for a refused write of `client` at `at`, if it may have been sent again. The caller compares
    /// the disk's data and calls [`ResendLedger::confirm`] or [`ResendLedger::reject`]. `known`: another queue of the
    /// client has carried it out.
    pub(crate) fn claim_write(
        &mut self,
        client: ClientKey,
        at: Sector,
        known: bool,
        now: Nanos,
    ) -> Option<ClaimId> {
        self.expire(now);
        if at >= self.geometry.capacity() {
            return None;
        }
        let zone = self.zone(at);
        let has = |w: &Written| w.at <= at && at < w.at.plus(u64::from(w.len_sectors));
        let is_noted = || self.writes.last(zone, client, u64::MAX, has).is_some();
        let (_, offset) = self.geometry.zone_of(at);
        if !known && !is_noted() && !self.last_server.may_have_written(client, zone, offset, now) {
            return None;
        }
        Some(self.claim(zone, Reservation::Nothing))
    }

    /// Starts a comparison for a write that no disk has got yet, if it may be one of the last server. Returns how many of its
    /// sectors are on the disk.
    pub(crate) fn claim_first_write(
        &mut self,
        at: Sector,
        len_sectors: u32,
    ) -> Option<(ClaimId, u32)> {
        if at >= self.geometry.capacity() {
            return None;
        }
        let (zone, offset) = self.geometry.zone_of(at);
        let written = self.last_server.take_written(zone)?;
        let there = written.checked_sub(offset).filter(|n| *n > 0)?.min(len_sectors);
        Some((self.claim(zone, Reservation::Nothing), there))
    }

    /// Starts the search for an append.
    pub(crate) fn begin_append(&mut self, zone: ZoneNo) {
        self.last_server.begin_append(zone);
    }

    /// Ends the search for an append, whatever it has found.
    pub(crate) fn end_append(&mut self, zone: ZoneNo) {
        self.last_server.end_append(zone);
    }

    /// Starts a comparison of an append with its next possible place, the last one first. The caller compares the
    /// data there and calls [`ResendLedger::confirm`] or [`ResendLedger::reject`]. Several appends may be compared
    /// with one place at once: only one of them is the lost one, and not always the first.
    pub(crate) fn claim_append(
        &mut self,
        client: ClientKey,
        zone: ZoneNo,
        len_sectors: u32,
        data: &AppendData,
        search: &mut AppendSearch,
        now: Nanos,
    ) -> Option<(ClaimId, Landed)> {
        self.expire(now);
        let is = |landed: &Landed| {
            landed.len_sectors == len_sectors && landed.hash.is_none_or(|h| h == data.hash)
        };
        match self.appends.last(zone, client, search.below, is) {
            Some((place, landed)) => {
                self.appends.begin_comparison(place);
                search.below = place.number;
                Some((self.claim(zone, Reservation::Append(place)), landed))
            }
            None => {
                search.below = 0;
                self.claim_blocks(client, zone, len_sectors, data, search, now)
            }
        }
    }

    /// Like `claim_append`, in the space of the last server, the best place first.
    fn claim_blocks(
        &mut self,
        client: ClientKey,
        zone: ZoneNo,
        len_sectors: u32,
        data: &AppendData,
        search: &mut AppendSearch,
        now: Nanos,
    ) -> Option<(ClaimId, Landed)> {
        let offset = self.last_server.place(
            client,
            zone,
            len_sectors,
            &data.blocks,
            &search.offsets,
            now,
        )?;
        search.offsets.push(offset);
        let at = self.geometry.zone_start(zone).plus(u64::from(offset));
        let id = self.claim(zone, Reservation::Blocks(offset, data.blocks.len()));
        Some((id, Landed { at, len_sectors, hash: None }))
    }

    fn claim(&mut self, zone: ZoneNo, reservation: Reservation) -> ClaimId {
        self.last += 1;
        let id = ClaimId(self.last);
        self.claims.insert(id, Claim { zone, alive: true, reservation });
        id
    }

    /// Ends a comparison whose data are equal. An append now owns its place. Returns false if the zone was reset
    /// meanwhile, or if another append has got the place.
    pub(crate) fn confirm(&mut self, id: ClaimId) -> bool {
        let Some(claim) = self.end_claim(id).filter(|c| c.alive) else { return false };
        match claim.reservation {
            Reservation::Append(place) => self.appends.remove(place),
            Reservation::Blocks(offset, blocks) => {
                self.last_server.take_blocks(claim.zone, offset, blocks)
            }
            Reservation::Nothing => true,
        }
    }

    /// Ends a comparison whose data differ, or that was given up. The note stays for other commands.
    pub(crate) fn reject(&mut self, id: ClaimId) {
        if let Some(Claim { alive: true, reservation: Reservation::Append(place), .. }) =
            self.end_claim(id)
        {
            self.appends.end_comparison(place);
        }
    }

    fn end_claim(&mut self, id: ClaimId) -> Option<Claim> {
        self.claims.remove(&id)
    }

    /// Forgets a zone that is about to be reset, or was.
    pub(crate) fn forget_zone(&mut self, at: Sector) {
        if at >= self.geometry.capacity() {
            return;
        }
        let zone = self.zone(at);
        self.writes.forget_zone(zone);
        self.appends.forget_zone(zone);
        self.claims.values_mut().filter(|c| c.zone == zone).for_each(|c| c.alive = false);
        self.last_server.forget_zone(zone);
    }

    /// Forgets all zones, which are about to be reset, or were.
    pub(crate) fn forget_all(&mut self) {
        self.writes.clear();
        self.appends.clear();
        self.claims.values_mut().for_each(|c| c.alive = false);
        self.last_server.forget_all();
    }
}

#[cfg(test)]
mod tests;
