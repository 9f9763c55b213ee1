//! The format of a durable disk. The bytes are a script: what disk is made in memory, what its clients do, how the
//! power goes, and what then damages the file. After it the disk is examined (`examine.rs`).
//!
//! A script reaches the deep code where an image of random bytes does not: an edit may make the checksum of what it
//! changed right again, or set one field of a record.

mod client;
mod examine;

use client::Client;
use std::sync::Arc;
use zoneplug_core::Op;
use zoneplug_host::file::testing::{CutStorage, Left};
use zoneplug_host::file::{Access, CreateOptions, Storage};

/// Most steps of a script.
const STEPS: usize = 40;

/// The bytes of a script; past their end all are zeroes.
struct Script<'a>(std::slice::Iter<'a, u8>);

impl Script<'_> {
    fn is_empty(&self) -> bool {
        self.0.len() == 0
    }

    fn byte(&mut self) -> u8 {
        self.0.next().copied().unwrap_or(0)
    }

    fn below(&mut self, n: u32) -> u32 {
        u32::from(self.byte()) % n
    }

    fn short(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }

    fn long(&mut self) -> u64 {
        u64::from_le_bytes([0; 8].map(|_: u8| self.byte()))
    }

    /// A number that is likely to matter: small, at an edge, or any.
    fn number(&mut self) -> u64 {
        match self.byte() {
            n @ 0..200 => u64::from(n),
            n @ 200..216 => u64::from(u32::MAX) - u64::from(n - 200),
            n @ 216..224 => (1 << 32) + u64::from(n - 216),
            n @ 224..232 => u64::MAX - u64::from(n - 224),
            232..240 => u64::from(self.short()),
            _ => self.long(),
        }
    }
}

fn options(s: &mut Script) -> CreateOptions {
    let zones = 1 + s.below(34);
    let flags = s.byte();
    let lba = if flags & 1 == 0 { 512 } else { 4096 };
    let granularity = lba << (flags >> 1 & 1);
    let units = 1 + s.below(6);
    let capacity = units - s.below(units);
    let [open, active] = [s.below(5), s.below(5)];
    let bytes = |units: u32| u64::from(units) * granularity;
    CreateOptions {
        zones: Some(u64::from(zones)),
        zone_size: Some(bytes(units)),
        zone_capacity: Some(bytes(capacity)),
        last_zone_size: (flags & 4 != 0).then_some(bytes(units.div_ceil(2))),
        conv: u32::from(flags >> 4 & 3).min(zones - 1),
        max_open: if active == 0 { open } else { open.min(active) },
        max_active: active,
        lba_size: Some(lba),
        granularity: Some(granularity),
        zone_append_max: (flags & 8 != 0).then_some(granularity),
        preallocate: flags & 64 != 0,
        label: "fuzz".into(),
        ..CreateOptions::default()
    }
}

/// The world of a script: a storage, and who has it open.
struct World {
    storage: Arc<CutStorage>,
    client: Option<Client>,
    /// The file was changed by something else than its disk.
    damaged: bool,
    /// The superblocks and the length are as they were made.
    whole: bool,
    /// Stamps of writes.
    stamp: u8,
}

impl World {
    /// The disk, opened for writing if it can be.
    fn client(&mut self) -> Option<&mut Client> {
        if self.client.is_none() {
            self.client = Client::open(&self.storage, Access::ReadWrite).ok();
        }
        self.client.as_mut()
    }

    /// A moment since the last kill or cut: `back` events ago.
    fn moment(&self, back: u32) -> usize {
        self.storage.moments().saturating_sub(back as usize)
    }

    /// The process dies, or died some events ago.
    fn kill(&mut self, back: u32) {
        self.storage = self.storage.after_kill(self.moment(back));
        self.client = None;
    }

    /// The power is cut. Of what was not synced as much is left as `pick` has bits.
    fn cut(&mut self, back: u32, mut pick: u64, torn: bool) {
        self.storage = self.storage.after_cut(self.moment(back), &mut || {
            pick = pick.rotate_right(1);
            match pick & 1 {
                0 => Left::Nothing,
                _ if torn => Left::Torn,
                _ => Left::All,
            }
        });
        self.client = None;
        // One copy of a table sector: that is worth a line, no more.
        self.damaged |= torn;
    }

    /// One step of clients. Zones and lengths are what the disk has.
    fn work(&mut self, s: &mut Script) {
        let (what, zone, len) = (s.byte(), s.byte(), s.byte());
        self.stamp = self.stamp.wrapping_add(1).max(1);
        let stamp = self.stamp;
        let Some(c) = self.client() else { return };
        let zone = u32::from(zone) % c.nr_zones();
        match what % 8 {
            0 => c.manage(Op::ZoneReset, zone),
            1 => c.manage(Op::ZoneFinish, zone),
            2 => c.manage(Op::ZoneOpen, zone),
            3 => c.manage(Op::ZoneClose, zone),
            4 => c.flush(),
            5 => c.manage(Op::ZoneResetAll, 0),
            _ => c.write(zone, u32::from(len), stamp, what & 8 != 0),
        };
    }

    /// Something damages the file while no process has it open.
    fn damage(&mut self, s: &mut Script) {
        self.kill(0);
        self.damaged = true;
        let p = self.storage.places();
        let kind = s.byte();
        let seal = kind & 0x80 != 0;
        match kind % 9 {
            // Fields of a zone's record, mostly in the copy that counts.
            0..=2 => {
                let zone = s.below(p.nr_zones);
                let (group, record) = (u64::from(zone / 15), u64::from(zone % 15));
                let field = s.byte();
                let copy = self.newest(group) ^ usize::from(field & 0x80 != 0);
                let sector = p.tables[copy] + group * 512;
                let record = sector + 32 + 32 * record;
                let n = s.number();
                let (at, len) = match field % 8 {
                    0 => (record, 4),
                    1 => (record + 4, 1),
                    2 => (record + 8, 8),
                    3 => (record + 16, 8),
                    4 => (sector + 16, 8),
                    5 => (sector + 8, 4),
                    // A condition that goes with a write pointer.
                    _ => {
                        let conditions = [0, 1, 4, 13, 14, 15];
                        self.set(record + 4, &[conditions[s.below(6) as usize]], true);
                        (record, 4)
                    }
                };
                self.set(at, &n.to_le_bytes()[..len], true);
            }
            // A note, which may be one of this session.
            3 => {
                let zone = s.below(p.nr_zones);
                let at = p.notes + 32 * u64::from(zone);
                let (wp, generation, writes) = (s.number() as u32, s.number(), s.number());
                let mut note = [0; 32];
                note[4..8].copy_from_slice(&wp.to_le_bytes());
                note[8..16].copy_from_slice(&generation.to_le_bytes());
                note[16..24].copy_from_slice(&writes.to_le_bytes());
                let _ = self.storage.read_at(p.session + 8, &mut note[24..]);
                if at + 32 <= p.data {
                    self.set(at, &note, true);
                }
            }
            // A field of a superblock.
            4 => {
                let copies = 1 + s.below(3);
                let (at, len) = match s.below(16) {
                    n @ 0..12 => (96 + 4 * u64::from(n), 4),
                    12 => (20, 4),
                    13 => (208, 4),
                    14 => (48 + 8 * u64::from(s.below(6)), 8),
                    _ => (u64::from(s.short() % 512), 1),
                };
                let n = s.number();
                for i in [0, 1].iter().filter(|i| copies >> **i & 1 != 0) {
                    self.whole = false;
                    self.set(p.supers[*i] + at, &n.to_le_bytes()[..len], true);
                }
            }
            // Bytes anywhere.
            5 => {
                let regions = [
                    p.supers[0],
                    p.supers[1],
                    p.session,
                    p.tables[0],
                    p.tables[1],
                    p.notes,
                    p.data,
                ];
                let region = s.below(7) as usize;
                let at = regions[region] + u64::from(s.short());
                let n = s.number().to_le_bytes();
                let len = 1 + s.below(8) as usize;
                self.set(at, &n[..len], seal);
            }
            // A sector of the table, in both copies.
            6 => {
                let at = 512 * u64::from(s.below(p.groups));
                let byte = [s.byte().max(1)];
                p.tables.iter().for_each(|t| self.set(t + at + 100, &byte, false));
            }
            // One sector in the place of another.
            7 => {
                let starts = [0, p.session, p.tables[0], p.tables[1], p.notes, p.data, p.supers[1]];
                let mut place = || starts[s.below(7) as usize] + 512 * u64::from(s.byte() & 15);
                let (from, to) = (place(), place());
                let mut b = [0; 512];
                let _ = self.storage.read_at(from, &mut b);
                self.set(to, &b, seal);
            }
            // Another length.
            _ => {
                let n = s.number();
                self.whole = false;
                let len = self.storage.len().unwrap_or(0);
                self.storage.resize(match s.below(5) {
                    0 => len.saturating_sub(n),
                    1 => len.saturating_sub(n.saturating_mul(4096)),
                    2 => len.saturating_add(n.saturating_mul(4096)),
                    3 => len.saturating_add(n),
                    _ => n,
                });
            }
        }
    }

    /// The copy of the table that counts for a group.
    fn newest(&self, group: u64) -> usize {
        let p = self.storage.places();
        let [a, b] = p.tables.map(|t| {
            let mut n = [0; 8];
            let _ = self.storage.read_at(t + group * 512 + 16, &mut n);
            u64::from_le_bytes(n)
        });
        usize::from(b.wrapping_sub(a) as i64 > 0)
    }

    fn set(&mut self, at: u64, bytes: &[u8], seal: bool) {
        let p = self.storage.places();
        let len = self.storage.len().unwrap_or(0);
        let Some(end) = at.checked_add(bytes.len() as u64).filter(|end| *end <= len) else {
            return;
        };
        self.whole &= at >= 4096 && end <= p.supers[1];
        self.storage.damage(at, bytes);
        if seal {
            self.storage.seal(at);
        }
    }
}

/// A durable disk after a script of work, cuts and damage.
pub fn disk_format(data: &[u8]) {
    let mut s = Script(data.iter());
    // Not every layout is one; that is said well.
    let storage = match CutStorage::create(&options(&mut s)) {
        Ok(storage) => storage,
        Err(e) => return crate::explained(&e),
    };
    let mut w = World { storage, client: None, damaged: false, whole: true, stamp: 0 };
    for _ in 0..STEPS {
        if s.is_empty() {
            break;
        }
        match s.byte() % 8 {
            0..=2 => w.work(&mut s),
            3 => w.kill(s.below(32)),
            4 => {
                let (back, pick, torn) = (s.below(32), s.number(), s.byte() & 3 == 0);
                w.cut(back, pick, torn);
            }
            // Closed as it should be.
            5 => w.client = None,
            _ => w.damage(&mut s),
        }
    }
    if s.byte() & 1 == 0 {
        w.kill(0);
    }
    w.client = None;
    examine::examine(&w.storage.after_kill(w.storage.moments()), w.damaged, w.whole, s.byte());
}
