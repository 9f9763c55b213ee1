//! A small model of Linux's page cache: the content of a storage that processes see, and the content of its medium.
//! The model knows no disks.

use std::collections::{BTreeMap, BTreeSet};

/// Bytes of a sector. A power cut does not tear a sector.
pub(super) const SECTOR: u64 = 512;

/// A sector of memory.
type Sector = [u8; SECTOR as usize];

/// A change of the storage.
#[derive(Debug, Clone)]
pub(super) enum StorageChange {
    Write {
        at: u64,
        bytes: Vec<u8>,
    },
    Punch {
        at: u64,
        len: u64,
    },
    Sync,
    /// A sync or a write-back failed. These sectors are not on the medium, but clean: no later sync writes them, and
    /// processes see them until they are evicted. If `silent`, the next sync reports the error.
    Failed {
        lost: BTreeSet<u64>,
        silent: bool,
    },
    /// These sectors are read from the medium again if they are clean.
    Evict {
        sectors: BTreeSet<u64>,
    },
}

/// The sectors of a range.
fn sectors(at: u64, len: u64) -> std::ops::Range<u64> {
    at / SECTOR..(at + len).div_ceil(SECTOR)
}

/// The sectors that are not zeroes.
#[derive(Clone, Default)]
pub(super) struct Image(pub(super) BTreeMap<u64, Box<Sector>>);

impl std::fmt::Debug for Image {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} sectors", self.0.len())
    }
}

impl Image {
    pub(super) fn read(&self, at: u64, buf: &mut [u8]) {
        let mut done = 0;
        while done < buf.len() {
            let at = at + done as u64;
            let from = (at % SECTOR) as usize;
            let n = (buf.len() - done).min(SECTOR as usize - from);
            match self.0.get(&(at / SECTOR)) {
                Some(s) => buf[done..done + n].copy_from_slice(&s[from..from + n]),
                None => buf[done..done + n].fill(0),
            }
            done += n;
        }
    }

    pub(super) fn write(&mut self, at: u64, bytes: &[u8]) {
        self.write_but(at, bytes, &BTreeSet::new());
    }

    /// Writes all sectors except those in `but`.
    fn write_but(&mut self, at: u64, bytes: &[u8], but: &BTreeSet<u64>) {
        let mut done = 0;
        while done < bytes.len() {
            let at = at + done as u64;
            let from = (at % SECTOR) as usize;
            let n = (bytes.len() - done).min(SECTOR as usize - from);
            if !but.contains(&(at / SECTOR)) {
                let sector = self.0.entry(at / SECTOR).or_insert_with(|| Box::new([0; 512]));
                sector[from..from + n].copy_from_slice(&bytes[done..done + n]);
            }
            done += n;
        }
    }

    pub(super) fn punch(&mut self, at: u64, len: u64) {
        let gone: Vec<u64> = self.0.range(sectors(at, len)).map(|(n, _)| *n).collect();
        for n in gone {
            self.0.remove(&n);
        }
    }

    fn apply(&mut self, e: &StorageChange, but: &BTreeSet<u64>) {
        match e {
            StorageChange::Write { at, bytes } => self.write_but(*at, bytes, but),
            StorageChange::Punch { at, len } => self.punch(*at, *len),
            _ => {}
        }
    }
}

/// The state of the storage at one moment.
#[derive(Debug, Clone, Default)]
pub(super) struct Memory {
    /// The content that processes see.
    pub(super) seen: Image,
    /// The content of the medium after the last sync.
    pub(super) medium: Image,
    /// Writes and holes since the last sync. Any of them may have reached the medium, too.
    pub(super) dirty: Vec<StorageChange>,
    /// A write-back has failed, and no sync has reported it.
    pub(super) unreported: bool,
}

impl Memory {
    pub(super) fn apply(&mut self, e: &StorageChange) {
        match e {
            StorageChange::Write { .. } | StorageChange::Punch { .. } => {
                self.seen.apply(e, &BTreeSet::new());
                self.dirty.push(e.clone());
            }
            StorageChange::Sync => {
                for e in std::mem::take(&mut self.dirty) {
                    self.medium.apply(&e, &BTreeSet::new());
                }
                self.unreported = false;
            }
            StorageChange::Failed { lost, silent } => {
                self.unreported |= silent;
                for e in std::mem::take(&mut self.dirty) {
                    self.medium.apply(&e, lost);
                }
            }
            StorageChange::Evict { sectors } => {
                let dirty = self.dirty_sectors();
                for n in sectors.difference(&dirty) {
                    match self.medium.0.get(n) {
                        Some(s) => self.seen.0.insert(*n, s.clone()),
                        None => self.seen.0.remove(n),
                    };
                }
            }
        }
    }

    /// Sectors that wait to be written.
    pub(super) fn dirty_sectors(&self) -> BTreeSet<u64> {
        let each = self.dirty.iter().flat_map(|e| match e {
            StorageChange::Write { at, bytes } => sectors(*at, bytes.len() as u64),
            StorageChange::Punch { at, len } => sectors(*at, *len),
            _ => 0..0,
        });
        each.collect()
    }

    /// Sectors that processes see, but that are not on the medium and will never be written.
    pub(super) fn phantoms(&self) -> BTreeSet<u64> {
        let (a, b) = (&self.seen.0, &self.medium.0);
        let differ = |n: &&u64| a.get(n) != b.get(n);
        let all: BTreeSet<u64> = a.keys().chain(b.keys()).filter(differ).copied().collect();
        all.difference(&self.dirty_sectors()).copied().collect()
    }

    /// Makes everything durable.
    pub(super) fn make_durable(&mut self) {
        self.medium = self.seen.clone();
        self.dirty.clear();
    }

    /// Changes bytes in memory and on the medium, as damage.
    pub(super) fn damage(&mut self, at: u64, bytes: &[u8]) {
        self.seen.write(at, bytes);
        self.medium.write(at, bytes);
        if !self.dirty.is_empty() {
            self.dirty.push(StorageChange::Write { at, bytes: bytes.to_vec() });
        }
    }

    pub(super) fn truncate(&mut self, len: u64) {
        self.seen.0.split_off(&len.div_ceil(SECTOR));
        self.medium.0.split_off(&len.div_ceil(SECTOR));
        self.dirty.retain(|e| match e {
            StorageChange::Write { at, bytes } => at + bytes.len() as u64 <= len,
            StorageChange::Punch { at, len: n } => at + n <= len,
            _ => true,
        });
    }
}
