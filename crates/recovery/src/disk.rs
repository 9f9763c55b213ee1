//! The notes of one disk about commands whose answers may be lost, shared by threads.

use crate::client_key::ClientKey;
use crate::data::data_hash;
use crate::last_server::Rule;
use crate::ledger::{AppendData, Landed, ResendLedger};
use crate::resend::{Outcome, Resend, Search, SentCommand};
use crate::space::{Space, block_hashes};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use zoneplug_buf::AlignedBuf;
use zoneplug_core::poison::lock;
use zoneplug_core::zone::Geometry;
use zoneplug_core::{Nanos, Op, Sector, Status, ZoneNo};

/// The ledger has notes of any kind.
const ANYTHING: u8 = 1;
/// The ledger has notes of appends.
const APPENDS: u8 = 2;
/// A client has several paths to the disk.
const PATHS: u8 = 4;
/// A query between queues is open.
const QUERIES: u8 = 8;
/// Commands of closed connections are being carried out.
const DRAINS: u8 = 16;

/// The ledger of a disk behind a lock, and bits that summarise it. While the ledger is empty, commands at
/// most read the bits; only resets take the lock.
#[derive(Debug)]
pub struct DiskRecovery {
    /// Set while the lock is held. A command that still reads the old bits was on its way before the loss was known.
    bits: AtomicU8,
    geometry: Geometry,
    /// For each zone, a number that grows when what is noted of the zone becomes invalid: before and after a reset, and before
    /// other changes where the first commands are compared. Changes only while the lock is held.
    resets: Box<[AtomicU32]>,
    /// For each zone, whether a command may be one of the last server, if these are recognised before they are sent.
    first: Box<[AtomicBool]>,
    ledger: Mutex<ResendLedger>,
}

/// The commands to compare of a disk whose one client outlived the last server, and has one write of a zone in flight.
#[derive(Debug)]
pub struct FirstCommands {
    /// How many sectors of each zone are written. The first write of a zone may be one of them; 0: it is not.
    pub written: Vec<u32>,
    /// By zone: space that the client was not told of.
    pub spaces: BTreeMap<u32, Space>,
    /// The length of a block in this space.
    pub block_sectors: u32,
    /// How many commands the client can have had in flight: so many appends of a zone are looked for.
    pub appends: u32,
}

impl DiskRecovery {
    /// Makes an empty ledger.
    pub fn new(geometry: Geometry) -> DiskRecovery {
        DiskRecovery {
            bits: AtomicU8::new(0),
            geometry,
            resets: (0..geometry.nr_zones()).map(|_| AtomicU32::new(0)).collect(),
            first: Box::default(),
            ledger: Mutex::new(ResendLedger::new(geometry)),
        }
    }

    /// Makes the ledger of a disk that was taken over and has one client, which is there all the time and has one write of a zone
    /// in flight.
    pub fn of_first_commands(geometry: Geometry, first: FirstCommands) -> DiskRecovery {
        let FirstCommands { written, spaces, block_sectors, appends } = first;
        let mut recovery = DiskRecovery::new(geometry);
        recovery.with(|ledger| {
            ledger.set_rule(Rule::First { appends });
            ledger.set_written_at_start(written, Nanos(0));
            ledger.set_spaces(spaces, block_sectors);
        });
        let ledger = lock(&recovery.ledger);
        let zones = (0..geometry.nr_zones()).map(ZoneNo);
        let first = zones.map(|zone| AtomicBool::new(ledger.is_of_last_server(zone))).collect();
        drop(ledger);
        recovery.first = first;
        recovery
    }

    /// Returns whether [`DiskRecovery::begin`] must be called for a command of the client of
    /// [`DiskRecovery::of_first_commands`].
    #[inline]
    pub fn is_before_first(&self, op: Op, at: Sector) -> bool {
        match op {
            // These operations change no data, and can be sent before the zone's first write is answered.
            Op::ZoneOpen | Op::ZoneClose => false,
            Op::ZoneResetAll => self.has(ANYTHING),
            op if op.is_write() => {
                let zone = self.geometry.zone_of(at).0;
                self.first.get(zone.0 as usize).is_some_and(|first| first.load(Ordering::Relaxed))
            }
            _ => false,
        }
    }

    /// Starts the search for a command that is about to be sent to the disk, and forgets what it changes. `data`: the data of the
    /// command. Returns `None` if it was not sent before.
    pub fn begin(
        &self,
        op: Op,
        sent: SentCommand,
        data: Option<&AlignedBuf>,
        now: Nanos,
    ) -> Option<Search> {
        let is_first = !self.first.is_empty();
        let begun = match (op, data) {
            (Op::ZoneAppend, Some(buf)) => {
                // Only notes have this hash, and there are none of a client that is there all the time.
                let hash = if is_first { 0 } else { data_hash(buf, sent.len_sectors << 9) };
                let block = self.with(|ledger| ledger.looks_for_blocks());
                let blocks =
                    block.map_or_else(Vec::new, |b| block_hashes(buf, sent.len_sectors, b));
                let data = AppendData { hash, blocks };
                self.with(|ledger| Resend::of_append(sent, data, ledger, now))
            }
            (Op::Write | Op::WriteZeroes, _) => {
                self.with(|ledger| Resend::of_first_write(sent, ledger))
            }
            (Op::ZoneResetAll, _) => {
                self.forget_all();
                None
            }
            (Op::ZoneReset, _) => {
                self.forget_zone(sent.sector);
                None
            }
            (op, _) if is_first && op.is_write() && op != Op::ZoneAppend => {
                self.forget_zone(sent.sector);
                None
            }
            _ => None,
        };
        let zone = self.geometry.zone_of(sent.sector).0.0;
        let all = op == Op::ZoneResetAll;
        self.update_first(if all { 0..self.geometry.nr_zones() } else { zone..zone + 1 });
        begun
    }

    /// Starts the search for a write that the disk has `refused`. Returns `None` for a new write. `known`: another queue of the
    /// client has carried it out.
    pub fn begin_refused(
        &self,
        sent: SentCommand,
        refused: Status,
        known: bool,
        now: Nanos,
    ) -> Option<Search> {
        self.with(|ledger| Resend::of_write(sent, refused, known, ledger, now))
    }

    /// Takes the outcome of a search's step and returns the search with the next.
    pub fn next(&self, mut resend: Resend, outcome: Outcome, now: Nanos) -> Search {
        let step = self.with(|ledger| resend.next(outcome, ledger, now));
        let zone = resend.zone().0;
        self.update_first(zone..zone + 1);
        Search { resend, step }
    }

    /// Clears the marks of zones in which no command can be one of the last server any more.
    fn update_first(&self, zones: Range<u32>) {
        let range = zones.start as usize..zones.end as usize;
        let Some(first) = self.first.get(range) else { return };
        let ledger = lock(&self.ledger);
        for (zone, first) in zones.zip(first) {
            first.store(ledger.is_of_last_server(ZoneNo(zone)), Ordering::Relaxed);
        }
    }

    /// Tells the ledger of a disk that outlives its server how many sectors of each zone are written when this server
    /// starts. Clients of the last server may send the commands that wrote them again.
    pub fn set_written_at_start(&self, written: Vec<u32>, now: Nanos) {
        self.with(|ledger| ledger.set_written_at_start(written, now));
    }

    /// Sets the space in each zone that no client of the last server was told of, in blocks of this length. Call
    /// after [`DiskRecovery::set_written_at_start`].
    pub fn set_spaces(&self, spaces: BTreeMap<u32, Space>, block_sectors: u32) {
        self.with(|ledger| ledger.set_spaces(spaces, block_sectors));
    }

    /// Returns whether the ledger must be read or changed before a request is sent to the disk.
    #[inline]
    pub fn is_before(&self, op: Op) -> bool {
        match op {
            Op::ZoneAppend => self.has(APPENDS | DRAINS),
            Op::ZoneReset | Op::ZoneResetAll => true,
            _ => false,
        }
    }

    /// Returns whether the ledger must be read or changed after a request has come back from the disk.
    #[inline]
    pub fn is_after(&self, op: Op, status: Status) -> bool {
        match op {
            Op::Write | Op::WriteZeroes => !status.is_ok() && self.has(ANYTHING | PATHS | DRAINS),
            Op::ZoneReset | Op::ZoneResetAll => true,
            _ => false,
        }
    }

    /// Returns whether a query between queues is open.
    #[inline]
    pub fn has_queries(&self) -> bool {
        self.has(QUERIES)
    }

    #[inline]
    fn has(&self, bits: u8) -> bool {
        self.bits.load(Ordering::Acquire) & bits != 0
    }

    /// Returns a number that changes with each reset of the zone of a sector. An append takes this number before it is sent to the disk.
    #[inline]
    pub fn resets(&self, at: Sector) -> u32 {
        let zone = self.geometry.zone_of(at).0;
        self.resets.get(zone.0 as usize).map_or(0, |n| n.load(Ordering::Acquire))
    }

    /// Notes an append of `client` that is on the disk and whose answer may be lost. `resets` is the number taken when
    /// it was sent. If that has changed, the append may have landed before a reset and its place may belong to
    /// another append, so it is not noted.
    pub fn lose_append(&self, client: ClientKey, landed: Landed, resets: u32) {
        self.with(|ledger| {
            if self.resets(landed.at) == resets {
                ledger.lose_append(client, landed);
            }
        });
    }

    /// Returns the appends that their clients may send again to the next server: first sector and length in sectors.
    pub fn lost_appends(&self) -> Vec<(Sector, u32)> {
        lock(&self.ledger).appends().map(|landed| (landed.at, landed.len_sectors)).collect()
    }

    /// Forgets a zone that is about to be reset, or was.
    pub fn forget_zone(&self, at: Sector) {
        self.with(|ledger| {
            if let Some(n) = self.resets.get(self.geometry.zone_of(at).0.0 as usize) {
                n.fetch_add(1, Ordering::Release);
            }
            ledger.forget_zone(at);
        });
    }

    /// Forgets all zones, which are about to be reset, or were.
    pub fn forget_all(&self) {
        self.with(|ledger| {
            for n in &self.resets {
                n.fetch_add(1, Ordering::Release);
            }
            ledger.forget_all();
        });
    }

    /// Calls `f` with the ledger and updates the bits.
    pub fn with<T>(&self, f: impl FnOnce(&mut ResendLedger) -> T) -> T {
        let mut ledger = lock(&self.ledger);
        let result = f(&mut ledger);
        let bits = (u8::from(!ledger.is_empty()) * ANYTHING)
            | (u8::from(ledger.has_appends()) * APPENDS)
            | (u8::from(ledger.has_paths()) * PATHS)
            | (u8::from(ledger.has_queries()) * QUERIES)
            | (u8::from(ledger.drains()) * DRAINS);
        self.bits.store(bits, Ordering::Release);
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::{AppendData, AppendSearch};

    /// L5. An append whose zone was reset after it was sent is not noted, because its place may belong to another
    /// append.
    #[test]
    fn l5_an_append_from_before_a_reset_is_not_noted() {
        let client = ClientKey(1);
        type Reset = fn(&DiskRecovery);
        let resets: [(Reset, [bool; 2]); 3] = [
            (|_| {}, [true, true]),
            (|d| d.forget_zone(Sector(0x80f)), [false, true]),
            (DiskRecovery::forget_all, [false, false]),
        ];
        for (reset, noted) in resets {
            let disk = DiskRecovery::new(Geometry::new(3, 0x800, 0x800).unwrap());
            let sent = [1, 2].map(|zone| (zone, disk.resets(Sector(zone * 0x800))));
            reset(&disk);
            for (zone, count) in sent {
                let landed = Landed { at: Sector(zone * 0x800 + 8), len_sectors: 8, hash: None };
                disk.lose_append(client, landed, count);
            }
            let found = [1, 2].map(|zone| {
                let (data, search) = (AppendData::default(), &mut AppendSearch::nowhere());
                let zone = ZoneNo(zone);
                disk.with(|ledger| ledger.claim_append(client, zone, 8, &data, search, Nanos(0)))
                    .is_some()
            });
            assert_eq!(found, noted);
        }
    }

    /// L11. The server takes these out of its journal when it ends, so that the next one finds them.
    #[test]
    fn l11_the_appends_that_may_come_again_are_known_when_the_server_ends() {
        let disk = DiskRecovery::new(Geometry::new(3, 0x800, 0x800).unwrap());
        assert_eq!(disk.lost_appends(), []);
        for (client, at, len_sectors) in [(1, 0x808, 8), (2, 0x1000, 16)] {
            let landed = Landed { at: Sector(at), len_sectors, hash: None };
            disk.lose_append(ClientKey(client), landed, 0);
        }
        let mut lost = disk.lost_appends();
        lost.sort_unstable();
        assert_eq!(lost, [(Sector(0x808), 8), (Sector(0x1000), 16)]);
        disk.forget_zone(Sector(0x800));
        assert_eq!(disk.lost_appends(), [(Sector(0x1000), 16)]);
    }
}
