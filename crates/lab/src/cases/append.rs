//! Case 3: zone append. Eight clients append to one zone of a disk that takes a millisecond for a command.

use crate::disk::Named;
use crate::failure::Failure;
use crate::interrupt::is_asked;
use crate::load::arena::Arena;
use crate::load::clock::nap;
use crate::load::latency::Latency;
use crate::load::latency::histogram;
use serde::Serialize;
use std::time::{Duration, Instant};
use zoneplug_core::disk::{DiskConfig, DiskQueue};
use zoneplug_core::{Bio, Bios, IoBuf, Nanos, Op, ZoneNo};

pub(crate) const SPEC: &str = "null,zones=64,zone-size=256M,latency=1ms,append=native";
pub(crate) const CLIENTS: u32 = 8;
const BLOCK_SECTORS: u32 = 8;

/// How appends reach the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum AppendMode {
    /// The layer sends each append as a write, one by one: `nomerges`, as Linux does.
    OneByOne,
    /// The layer sends appends as writes; waiting writes merge into one command.
    Merged,
    /// The disk's own append command is used.
    Native,
}

impl AppendMode {
    pub(crate) const ALL: [AppendMode; 3] =
        [AppendMode::OneByOne, AppendMode::Merged, AppendMode::Native];

    #[cfg(feature = "models")]
    pub(crate) fn name(self) -> &'static str {
        match self {
            AppendMode::OneByOne => "emulated, one by one (nomerges)",
            AppendMode::Merged => "emulated, merged",
            AppendMode::Native => "native",
        }
    }
}

/// The results of one run, over all clients.
#[derive(Debug, Serialize)]
pub(crate) struct Append {
    pub(crate) way: AppendMode,
    pub(crate) appends_per_s: f64,
    pub(crate) latency: Latency,
    pub(crate) refused: u64,
}

/// Runs the case.
pub(crate) fn run(way: AppendMode, time: Duration, arena: &mut Arena) -> Result<Append, Failure> {
    let named = Named::open(SPEC)?;
    let disk = named.driven(DiskConfig {
        nomerges: way == AppendMode::OneByOne,
        emulate_append: way != AppendMode::Native,
        ..DiskConfig::default()
    })?;
    let g = disk.geometry();
    let zeroes = arena.zeroes(BLOCK_SECTORS)?;
    let mut queues =
        (0..CLIENTS).map(|_| disk.open_polled_queue(1, 1)).collect::<Result<Vec<_>, _>>()?;
    let mut idle: Vec<Option<Box<Bio>>> =
        (0..CLIENTS).map(|_| Some(Bio::new(Op::ZoneAppend, g.zone_start(ZoneNo(0)), 0))).collect();
    let (mut list, mut done) = (Bios::new(), Bios::new());
    let mut latency = histogram();
    let (mut zone, mut used, mut appends, mut refused) = (0u32, 0u32, 0u64, 0u64);
    let start = Instant::now();
    let mut now = start.elapsed();
    let mut seconds = None;
    while seconds.is_none() || idle.iter().any(Option::is_none) {
        let nanos = Nanos(now.as_nanos() as u64);
        if (now >= time || is_asked()) && seconds.is_none() {
            seconds = Some(now.as_secs_f64());
        }
        for (queue, idle) in queues.iter_mut().zip(&mut idle) {
            if seconds.is_none()
                && let Some(mut bio) = idle.take()
            {
                if used == g.capacity_of(ZoneNo(zone)) {
                    (zone, used) = ((zone + 1) % g.nr_zones(), 0);
                }
                used += BLOCK_SECTORS;
                bio.set(
                    Op::ZoneAppend,
                    g.zone_start(ZoneNo(zone)),
                    BLOCK_SECTORS,
                    IoBuf::from_static(zeroes),
                );
                bio.set_token(nanos.0);
                list.push_back(bio);
                queue.submit(nanos, &mut list);
            }
            queue.poll(nanos, &mut done);
            if let Some(bio) = done.pop_front() {
                if seconds.is_none() {
                    appends += 1;
                    refused += u64::from(!bio.status.is_ok());
                    latency.saturating_record(nanos.0 - bio.token());
                }
                *idle = Some(bio);
            }
        }
        nap(nanos, queues.iter().filter_map(DiskQueue::next_deadline).min());
        now = start.elapsed();
    }
    let seconds = seconds.unwrap_or(now.as_secs_f64());
    Ok(Append {
        way,
        appends_per_s: (appends - refused) as f64 / seconds,
        latency: Latency::of(&latency),
        refused,
    })
}
