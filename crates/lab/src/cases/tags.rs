//! Case 2: tags. Random reads while a thousand writes to one zone wait. If waiting writes hold
//! tags, reads find none.

use crate::disk::Named;
use crate::failure::Failure;
use crate::interrupt::is_asked;
use crate::load::arena::Arena;
use crate::load::clock::thread_cpu;
use crate::load::config;
use crate::load::latency::Latency;
use crate::load::latency::histogram;
use serde::Serialize;
use std::time::{Duration, Instant};
use zoneplug_core::disk::{DiskConfig, Mode};
use zoneplug_core::{BioPool, Bios, IoBuf, Nanos, Op};
use zoneplug_models::work::{Offsets, Rw, Work};

pub(crate) const SPEC: &str = "null,zones=64,zone-size=256M,latency=100us";
pub(crate) const TAGS: u16 = 32;
pub(crate) const WRITES: u32 = 1000;
pub(crate) const READS: u32 = 16;
const BLOCK_SECTORS: u32 = 8;

/// The figures of the reads.
#[derive(Debug, Serialize)]
pub(crate) struct Tags {
    pub(crate) mode: &'static str,
    /// Number of writes that were kept waiting.
    pub(crate) waiting: u32,
    pub(crate) reads_per_s: f64,
    pub(crate) writes_per_s: f64,
    pub(crate) read_latency: Latency,
    pub(crate) refused: u64,
    /// CPU time of the polling thread divided by wall-clock time: 1 if the thread had a core to itself.
    pub(crate) cpu_share: f64,
}

/// Runs the case with `waiting` writes in `mode`. Writes do not merge, so that both modes send the same commands.
pub(crate) fn run(
    mode: Mode,
    waiting: u32,
    time: Duration,
    arena: &mut Arena,
) -> Result<Tags, Failure> {
    let named = Named::open(SPEC)?;
    let disk = named.driven(DiskConfig { nomerges: true, ..config(mode) })?;
    let (g, depth) = (disk.geometry(), waiting + READS);
    let work = |rw| Work { rw, block_sectors: BLOCK_SECTORS, depth, tags: TAGS };
    let mut writes = Offsets::new(&g, work(Rw::Write), 0, 1, 0);
    let mut reads = Offsets::new(&g, work(Rw::Randread), 1, 2, 0);
    let mut queue = disk.open_polled_queue(depth, TAGS)?;
    let zeroes = arena.zeroes(BLOCK_SECTORS)?;
    let mut pool = BioPool::new(depth as usize);
    let (mut list, mut done) = (Bios::new(), Bios::new());
    let mut latency = histogram();
    let (mut want_writes, mut want_reads) = (waiting, READS);
    let (mut nr_reads, mut nr_writes, mut refused) = (0u64, 0u64, 0u64);
    let cpu = thread_cpu();
    let start = Instant::now();
    let mut now = start.elapsed();
    while now < time && !is_asked() {
        for _ in 0..std::mem::take(&mut want_writes) {
            let Some((op, sector, len)) = writes.next() else { break };
            let mut bio = pool.get();
            bio.set(op, sector, len, IoBuf::from_static(&zeroes[..(len as usize) << 9]));
            list.push_back(bio);
        }
        for _ in 0..std::mem::take(&mut want_reads) {
            let Some((op, sector, len)) = reads.next() else { break };
            let mut bio = pool.get();
            bio.set(op, sector, len, IoBuf::from_static(&zeroes[..(len as usize) << 9]));
            bio.set_token(now.as_nanos() as u64);
            list.push_back(bio);
        }
        queue.submit(Nanos(now.as_nanos() as u64), &mut list);
        now = start.elapsed();
        queue.poll(Nanos(now.as_nanos() as u64), &mut done);
        while let Some(bio) = done.pop_front() {
            refused += u64::from(!bio.status.is_ok());
            if bio.op == Op::Read {
                nr_reads += 1;
                want_reads += 1;
                latency.saturating_record(now.as_nanos() as u64 - bio.token());
            } else {
                nr_writes += 1;
                want_writes += 1;
            }
            pool.put(bio);
        }
    }
    let seconds = now.as_secs_f64().max(1e-9);
    let cpu_share = (thread_cpu() - cpu) as f64 / 1e9 / seconds;
    while queue.outstanding() > 0 {
        queue.poll(Nanos(start.elapsed().as_nanos() as u64), &mut done);
    }
    Ok(Tags {
        mode: mode.name(),
        waiting,
        reads_per_s: nr_reads as f64 / seconds,
        writes_per_s: nr_writes as f64 / seconds,
        read_latency: Latency::of(&latency),
        refused,
        cpu_share,
    })
}
