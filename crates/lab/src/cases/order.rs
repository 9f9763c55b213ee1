//! Case 1: the purpose of plugging. Several clients append to one log. Each chooses its offset and submits under one
//! lock, so the disk gets the writes in order. The disk reorders commands in flight, as real ones do.

use crate::disk::Named;
use crate::failure::Failure;
use crate::interrupt::is_asked;
use crate::load::arena::{Arena, Buffer};
use crate::load::config;
use crate::load::pattern::{Extent, Verified, compare, pattern};
use crate::threads::together;
use serde::Serialize;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};
use zoneplug_core::disk::{DiskQueue, Mode};
use zoneplug_core::zone::Geometry;
use zoneplug_core::{BioPool, Bios, Nanos, Op, Sector, ZoneNo};
use zoneplug_models::work::{Rw, Work};

pub(crate) const SPEC: &str = "mem,zones=4096,zone-size=1M,reorder=1";
pub(crate) const CLIENTS: u32 = 4;
pub(crate) const DEPTH: u32 = 16;
const BLOCK_SECTORS: u32 = 8;
/// Most writes of the case, because the disk keeps their data in memory.
const WRITES: u64 = 16_384;
/// Fewest writes, however long they take: a busy machine may give the clients no processor time at all.
const FEWEST: u64 = 256;

/// The figures of one mode.
#[derive(Debug, Serialize)]
pub(crate) struct OrderFigures {
    pub(crate) mode: &'static str,
    pub(crate) writes: u64,
    /// Writes that the disk or the layer refused.
    pub(crate) refused: u64,
    /// Number of writes before the first refused one.
    pub(crate) first_refused: Option<u64>,
    /// Zones that the log left unfinished because a write to them was refused.
    pub(crate) zones_given_up: u64,
    pub(crate) elapsed_s: f64,
    pub(crate) verified: Verified,
}

/// The log, with the place of the next write.
struct Log {
    geometry: Geometry,
    zone: u32,
    used: u32,
    sent: u64,
    writes: u64,
    given_up: u64,
    first_refused: Option<u64>,
}

impl Log {
    fn next(&mut self) -> Option<(u64, Sector)> {
        if self.sent == self.writes {
            return None;
        }
        if self.used
            == self.geometry.capacity_of(ZoneNo(self.zone.min(self.geometry.nr_zones() - 1)))
        {
            (self.zone, self.used) = (self.zone + 1, 0);
        }
        if self.zone >= self.geometry.nr_zones() {
            return None;
        }
        let at = self.geometry.zone_start(ZoneNo(self.zone)).plus(u64::from(self.used));
        self.used += BLOCK_SECTORS;
        self.sent += 1;
        Some((self.sent, at))
    }

    /// Notes a refused write. The log goes on in the next zone.
    fn refused(&mut self, number: u64, sector: Sector) {
        let first = self.first_refused.unwrap_or(u64::MAX).min(number - 1);
        self.first_refused = Some(first);
        if self.geometry.zone_of(sector).0.0 == self.zone {
            (self.zone, self.used) = (self.zone + 1, 0);
            self.given_up += 1;
        }
    }
}

fn lock(log: &Mutex<Log>) -> MutexGuard<'_, Log> {
    zoneplug_core::poison::lock(log)
}

/// Runs one client. Returns the acknowledged writes and the number of failed ones.
fn client(
    queue: &mut DiskQueue,
    log: &Mutex<Log>,
    working: &AtomicU32,
    bufs: &mut [Buffer],
    end: Instant,
) -> (Vec<Extent>, u64) {
    let now = Nanos(0);
    let mut pool = BioPool::new(bufs.len());
    let mut free: Vec<usize> = (0..bufs.len()).collect();
    let mut data = vec![0; BLOCK_SECTORS as usize * 512];
    let (mut extents, mut refused) = (Vec::new(), 0);
    let (mut list, mut done) = (Bios::new(), Bios::new());
    let mut over = false;
    loop {
        while !over && let Some(slot) = free.pop() {
            let mut bio = pool.get();
            let mut guard = lock(log);
            let enough = guard.sent >= FEWEST && (Instant::now() >= end || is_asked());
            let next = if enough { None } else { guard.next() };
            let Some((number, sector)) = next else {
                over = true;
                free.push(slot);
                break;
            };
            pattern(number, &mut data);
            bufs[slot].whole.copy_from(0, &data);
            bio.set(Op::Write, sector, BLOCK_SECTORS, bufs[slot].lend(BLOCK_SECTORS << 9));
            bio.set_token(number << 16 | slot as u64);
            list.push_back(bio);
            queue.submit(now, &mut list);
            drop(guard);
        }
        queue.poll(now, &mut done);
        while let Some(mut bio) = done.pop_front() {
            let slot = (bio.token() & 0xffff) as usize;
            bufs[slot].take_back(bio.take_buf());
            free.push(slot);
            let key = bio.token() >> 16;
            if bio.status.is_ok() {
                let (sector, len_sectors) = (bio.sector, bio.len_sectors);
                extents.push(Extent { sector, len_sectors, key });
            } else {
                refused += 1;
                lock(log).refused(key, bio.sector);
            }
            pool.put(bio);
        }
        if over && free.len() == bufs.len() {
            break;
        }
    }
    // This client's queue may hold work that another client waits for, so each client polls until all are done.
    working.fetch_sub(1, Ordering::AcqRel);
    while working.load(Ordering::Acquire) > 0 {
        queue.poll(now, &mut done);
        std::thread::yield_now();
    }
    (extents, refused)
}

/// Runs the case in `mode` for at most `time`.
pub(crate) fn run(mode: Mode, time: Duration, arena: &mut Arena) -> Result<OrderFigures, Failure> {
    let named = Named::open(SPEC)?;
    let disk = named.driven(config(mode))?;
    let mut bufs = arena.buffers(CLIENTS * DEPTH, BLOCK_SECTORS)?;
    let log = Mutex::new(Log {
        geometry: disk.geometry(),
        zone: 0,
        used: 0,
        sent: 0,
        writes: WRITES,
        given_up: 0,
        first_refused: None,
    });
    let working = AtomicU32::new(CLIENTS);
    let mut queues = (0..CLIENTS)
        .map(|_| disk.open_polled_queue(DEPTH, DEPTH as u16))
        .collect::<Result<Vec<_>, _>>()?;
    let start = Instant::now();
    let clients = queues.iter_mut().zip(bufs.chunks_mut(DEPTH as usize));
    let results = together(clients.map(|(queue, bufs)| {
        let (log, working) = (&log, &working);
        move || client(queue, log, working, bufs, start + time)
    }))?;
    let seconds = start.elapsed().as_secs_f64();
    drop(queues);
    let refused = results.iter().map(|r| r.1).sum();
    let extents: Vec<Extent> = results.into_iter().flat_map(|r| r.0).collect();
    let work =
        Work { rw: Rw::Read, block_sectors: BLOCK_SECTORS, depth: DEPTH, tags: DEPTH as u16 };
    let mut verified = compare(&disk, &extents, work, &mut bufs[..DEPTH as usize], false)?;
    verified.refused = refused;
    let log = zoneplug_core::poison::unpoisoned(log.into_inner());
    Ok(OrderFigures {
        mode: mode.name(),
        writes: log.sent,
        refused,
        first_refused: log.first_refused,
        zones_given_up: log.given_up,
        elapsed_s: seconds,
        verified,
    })
}
