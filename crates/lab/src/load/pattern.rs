//! Data that identify the BIO that wrote them, and their comparison with what a disk has.

use super::arena::Buffer;
use crate::failure::Failure;
use serde::Serialize;
use std::time::Instant;
use zoneplug_core::disk::Disk;
use zoneplug_core::{BioPool, Bios, Nanos, Op, Sector};
use zoneplug_models::work::Work;

/// The results of a verification.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(crate) struct Verified {
    /// Writes that the disk acknowledged.
    pub(crate) written: u64,
    /// Writes that failed.
    pub(crate) refused: u64,
    /// Bytes that were read back and compared.
    pub(crate) bytes: u64,
    /// BIOs that could not be read back, or with other data than was written there.
    pub(crate) wrong: u64,
}

#[cfg(feature = "models")]
impl Verified {
    pub(crate) fn add(&mut self, other: Verified) {
        self.written += other.written;
        self.refused += other.refused;
        self.bytes += other.bytes;
        self.wrong += other.wrong;
    }
}

/// A write that was acknowledged.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Extent {
    pub(crate) sector: Sector,
    pub(crate) len_sectors: u32,
    /// The pattern that it carried.
    pub(crate) key: u64,
}

/// Fills `out` with pattern `key`. No two sectors of any two patterns are equal.
pub(crate) fn pattern(key: u64, out: &mut [u8]) {
    let mut x = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x7a6f_6e65_706c_7567;
    for word in out.chunks_exact_mut(8) {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        word.copy_from_slice(&(x ^ (x >> 29)).to_le_bytes());
    }
}

/// Reads `extents` in their order, with the depth of `work`, and compares them with their patterns.
pub(crate) fn compare(
    disk: &Disk,
    extents: &[Extent],
    work: Work,
    bufs: &mut [Buffer],
    timed: bool,
) -> Result<Verified, Failure> {
    let mut queue = disk.open_polled_queue(work.depth, work.tags)?;
    let mut pool = BioPool::new(bufs.len());
    let mut free: Vec<usize> = (0..bufs.len()).collect();
    let longest = extents.iter().map(|e| e.len_sectors).max().unwrap_or(0) as usize * 512;
    let (mut want, mut got) = (vec![0; longest], vec![0; longest]);
    let (mut list, mut done) = (Bios::new(), Bios::new());
    let mut found = Verified { written: extents.len() as u64, ..Verified::default() };
    let mut next = 0;
    let start = Instant::now();
    loop {
        while let Some(e) = extents.get(next)
            && let Some(slot) = free.pop()
        {
            let mut bio = pool.get();
            bufs[slot].whole.fill_zero(0, e.len_sectors << 9);
            bio.set(Op::Read, e.sector, e.len_sectors, bufs[slot].lend(e.len_sectors << 9));
            bio.set_token((next as u64) << 16 | slot as u64);
            list.push_back(bio);
            next += 1;
        }
        if list.is_empty() && free.len() == bufs.len() {
            return Ok(found);
        }
        let now = if timed { Nanos(start.elapsed().as_nanos() as u64) } else { Nanos(0) };
        queue.submit(now, &mut list);
        queue.poll(now, &mut done);
        while let Some(mut bio) = done.pop_front() {
            let slot = (bio.token() & 0xffff) as usize;
            let e = extents[(bio.token() >> 16) as usize];
            let len = e.len_sectors as usize * 512;
            pattern(e.key, &mut want[..len]);
            bio.data().copy_to(0, &mut got[..len]);
            bufs[slot].take_back(bio.take_buf());
            found.bytes += len as u64;
            found.wrong += u64::from(!bio.status.is_ok() || want[..len] != got[..len]);
            free.push(slot);
            pool.put(bio);
        }
    }
}
