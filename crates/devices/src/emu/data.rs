//! The data of a `mem` disk: chunks of memory that are allocated when they are first written. They are kept from then
//! on, across resets too.
//!
//! This file has the bytes and a lock for each zone. It knows nothing of write pointers: the caller says how much of
//! a zone is valid, and holds the zone's lock while it finds out.

use std::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use zoneplug_core::bio::Bio;
use zoneplug_core::unit::{SECTOR_SHIFT, ZoneNo};
use zoneplug_core::zone::Geometry;

/// Bytes of a chunk.
const CHUNK: u64 = 256 << 10;

/// The bytes of every zone.
#[derive(Debug)]
pub(super) struct Mem {
    zones: Box<[RwLock<Chunks>]>,
}

/// The bytes of one zone, in chunks of [`CHUNK`] bytes. The last chunk may be longer than the zone needs.
#[derive(Debug, Default)]
pub(super) struct Chunks(Vec<Option<Box<[u8]>>>);

impl Mem {
    pub(super) fn new(g: &Geometry) -> Mem {
        Mem { zones: (0..g.nr_zones()).map(|_| RwLock::default()).collect() }
    }

    pub(super) fn read(&self, zone: ZoneNo) -> RwLockReadGuard<'_, Chunks> {
        zoneplug_core::poison::unpoisoned(self.zones[zone.0 as usize].read())
    }

    pub(super) fn write(&self, zone: ZoneNo) -> RwLockWriteGuard<'_, Chunks> {
        zoneplug_core::poison::unpoisoned(self.zones[zone.0 as usize].write())
    }
}

/// Divides the bytes `[at, at + len)` of a zone at the ends of chunks. Each piece has its chunk, its first byte in
/// the chunk, its length, and the number of bytes before it.
fn pieces(at: u64, len: u64) -> impl Iterator<Item = (usize, usize, usize, u32)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let (chunk, from) = ((at + done) / CHUNK, (at + done) % CHUNK);
        let n = (CHUNK - from).min(len - done);
        let piece = (chunk as usize, from as usize, n as usize, done as u32);
        done += n;
        (n > 0).then_some(piece)
    })
}

fn bytes(sectors: u32) -> u64 {
    u64::from(sectors) << SECTOR_SHIFT
}

impl Chunks {
    /// Writes the first `len_sectors` of the data of `bios` at offset `at`. Ignores the sectors of the BIOs, because
    /// these are addresses of a layer above.
    pub(super) fn write(&mut self, at_sectors: u32, len_sectors: u32, bios: &[Box<Bio>]) {
        let (mut at, mut left) = (bytes(at_sectors), bytes(len_sectors));
        for bio in bios {
            let len = bytes(bio.len_sectors).min(left);
            for (i, from, n, skip) in pieces(at, len) {
                bio.data().copy_to(skip, &mut self.chunk(i)[from..from + n]);
            }
            at += len;
            left -= len;
        }
    }

    /// Fills the memory of `bios` from offset `at`. Data at or past offset `valid` read as zeroes.
    pub(super) fn read(&self, at_sectors: u32, valid_sectors: u32, bios: &mut [Box<Bio>]) {
        let (mut at, valid) = (bytes(at_sectors), bytes(valid_sectors));
        for bio in bios {
            let len = bytes(bio.len_sectors);
            let data = valid.saturating_sub(at).min(len);
            for (i, from, n, skip) in pieces(at, data) {
                match self.0.get(i).and_then(Option::as_deref) {
                    Some(chunk) => bio.data_mut().copy_from(skip, &chunk[from..from + n]),
                    None => bio.data_mut().fill_zero(skip, n as u32),
                }
            }
            bio.data_mut().fill_zero(data as u32, (len - data) as u32);
            at += len;
        }
    }

    /// Writes `data` at offset `at`.
    pub(super) fn put(&mut self, at_sectors: u32, data: &[u8]) {
        for (i, from, n, skip) in pieces(bytes(at_sectors), data.len() as u64) {
            let skip = skip as usize;
            self.chunk(i)[from..from + n].copy_from_slice(&data[skip..skip + n]);
        }
    }

    /// Fills a range with zeroes.
    pub(super) fn zero(&mut self, at_sectors: u32, len_sectors: u32) {
        for (i, from, n, _) in pieces(bytes(at_sectors), bytes(len_sectors)) {
            if let Some(Some(chunk)) = self.0.get_mut(i) {
                chunk[from..from + n].fill(0);
            }
        }
    }

    fn chunk(&mut self, i: usize) -> &mut [u8] {
        if i >= self.0.len() {
            self.0.resize_with(i + 1, || None);
        }
        self.0[i].get_or_insert_with(|| vec![0; CHUNK as usize].into_boxed_slice())
    }
}
