//! Verification: runs the workload once more, unmeasured, with data that identifies the BIO that wrote it.
//!
//! Every BIO carries a pattern of its own. Every acknowledged write is read back from the place that the disk
//! reported, and compared byte by byte.

use super::arena::{Arena, Buffer};
use super::generator::Port;
use super::group::reset_all;
use super::pattern::{Extent, Verified, compare, pattern};
use crate::disk::Named;
use crate::failure::Failure;
use crate::interrupt::is_asked;
use crate::threads::together;
use std::time::{Duration, Instant};
use zoneplug_core::disk::DiskConfig;
use zoneplug_core::{BioPool, Bios, Nanos};
use zoneplug_host::HostedDisk;
use zoneplug_models::work::{Offsets, Rng, Rw, Work, max_open};

/// The amount of work after which a pass ends.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Enough {
    pub(crate) bytes: u64,
    pub(crate) time: Duration,
}

/// Empties the disk, lets `jobs` clients do `work` with patterns, and reads everything back. For a read workload the
/// disk is written sequentially, and the reads of the workload are compared.
pub(crate) fn pass(
    named: &Named,
    config: DiskConfig,
    work: Work,
    jobs: u32,
    enough: Enough,
    arena: &mut Arena,
) -> Result<Verified, Failure> {
    let hosted =
        if jobs > 1 { Some(HostedDisk::open(named.device.clone(), config.clone())?) } else { None };
    let disk = match &hosted {
        Some(hosted) => hosted.disk().clone(),
        None => named.driven(config)?,
    };
    reset_all(&disk)?;
    let rw = if work.rw.is_read() { Rw::Write } else { work.rw };
    let (g, max_open) = (named.device.geometry(), max_open(named.device.limits()));
    let mut bufs = arena.buffers(jobs * work.depth, work.block_sectors)?;
    let timed = named.device.is_timed();
    let mut writers = (0..jobs)
        .zip(bufs.chunks_mut(work.depth as usize))
        .map(|(i, bufs)| Writer {
            offsets: Offsets::new(g, Work { rw, ..work }, i, jobs, max_open),
            bufs,
            block_sectors: work.block_sectors,
            first_key: u64::from(i) << 40,
            timed: timed && jobs == 1,
            enough: Enough { bytes: enough.bytes / u64::from(jobs), ..enough },
            extents: Vec::new(),
            refused: 0,
        })
        .collect::<Vec<_>>();
    if let Some(hosted) = &hosted {
        let clients = (0..jobs)
            .map(|_| hosted.open_client(work.depth, work.tags))
            .collect::<Result<Vec<_>, _>>()?;
        together(writers.iter_mut().zip(clients).map(|(w, client)| || w.run(client)))?;
    } else {
        for writer in &mut writers {
            writer.run(disk.open_polled_queue(work.depth, work.tags)?);
        }
    }
    let refused = writers.iter().map(|w| w.refused).sum();
    let mut extents: Vec<Extent> = writers.into_iter().flat_map(|w| w.extents).collect();
    if matches!(work.rw, Rw::Randwrite | Rw::Randread) {
        let mut rng = Rng::new(1);
        for i in (1..extents.len()).rev() {
            extents.swap(i, rng.below(i as u64 + 1) as usize);
        }
    }
    let mut found = compare(&disk, &extents, work, &mut bufs[..work.depth as usize], timed)?;
    found.refused = refused;
    Ok(found)
}

/// A client that writes patterns.
struct Writer<'a> {
    offsets: Offsets,
    /// One buffer for each BIO in flight.
    bufs: &'a mut [Buffer],
    block_sectors: u32,
    first_key: u64,
    timed: bool,
    enough: Enough,
    extents: Vec<Extent>,
    refused: u64,
}

impl Writer<'_> {
    fn run(&mut self, mut port: impl Port) {
        let nr = self.bufs.len();
        let mut pool = BioPool::new(nr);
        let mut free: Vec<usize> = (0..nr).collect();
        let mut data = vec![0; self.block_sectors as usize * 512];
        let (mut list, mut done) = (Bios::new(), Bios::new());
        let (mut written, mut bytes) = (0u64, 0u64);
        let start = Instant::now();
        loop {
            while bytes < self.enough.bytes
                && (written < 64 || start.elapsed() < self.enough.time)
                && !is_asked()
                && let Some(slot) = free.pop()
            {
                let Some((op, sector, len)) = self.offsets.next() else {
                    free.push(slot);
                    break;
                };
                written += 1;
                bytes += u64::from(len) << 9;
                let key = self.first_key + written;
                let data = &mut data[..len as usize * 512];
                pattern(key, data);
                self.bufs[slot].whole.copy_from(0, data);
                let mut bio = pool.get();
                bio.set(op, sector, len, self.bufs[slot].lend(len << 9));
                bio.set_token(key << 16 | slot as u64);
                list.push_back(bio);
            }
            if list.is_empty() && free.len() == nr {
                return;
            }
            let now = if self.timed { Nanos(start.elapsed().as_nanos() as u64) } else { Nanos(0) };
            port.submit(now, &mut list);
            port.poll(now, &mut done);
            while let Some(mut bio) = done.pop_front() {
                let slot = (bio.token() & 0xffff) as usize;
                self.bufs[slot].take_back(bio.take_buf());
                free.push(slot);
                if bio.status.is_ok() {
                    let (sector, len_sectors) = (bio.sector, bio.len_sectors);
                    self.extents.push(Extent { sector, len_sectors, key: bio.token() >> 16 });
                } else {
                    self.refused += 1;
                    self.offsets.refused(bio.sector);
                }
                pool.put(bio);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zoneplug_core::disk::Mode;

    const ENOUGH: Enough = Enough { bytes: 1 << 20, time: Duration::from_secs(60) };

    fn work(rw: Rw) -> Work {
        Work { rw, block_sectors: 24, depth: 4, tags: 4 }
    }

    #[test]
    fn every_workload_reads_back_what_it_wrote() {
        let named = Named::open("mem,zones=8,zone-size=256K,conv=1,reorder=1").unwrap();
        for rw in [Rw::Write, Rw::Randwrite, Rw::Append, Rw::Read, Rw::Randread] {
            for jobs in [1, 3] {
                let config = DiskConfig::default();
                let v = pass(&named, config, work(rw), jobs, ENOUGH, &mut Arena::default());
                let v = v.unwrap();
                assert!(v.written > 64 && v.refused == 0 && v.wrong == 0, "{rw}: {v:?}");
                assert!(v.bytes >= 1 << 20, "{rw}: {v:?}");
            }
        }
    }

    #[test]
    fn a_disk_without_data_does_not_pass() {
        let named = Named::open("null,zones=8,zone-size=256K").unwrap();
        let v = pass(
            &named,
            DiskConfig { mode: Mode::None, ..DiskConfig::default() },
            work(Rw::Write),
            1,
            ENOUGH,
            &mut Arena::default(),
        )
        .unwrap();
        assert_eq!(v.wrong, v.written);
    }
}
