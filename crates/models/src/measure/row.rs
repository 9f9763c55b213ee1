//! The figures of a workload on a disk opened in one way.

use crate::status_key::by_status;
use crate::time::{ClientReport, Report};
use crate::virtual_disk::{VirtualDisk, Way};
use serde::Serialize;
use std::collections::BTreeMap;
use zoneplug_core::Nanos;

/// Latency from submission to the completion at the drive, in nanoseconds.
#[derive(Debug, Clone, Serialize)]
#[allow(missing_docs)] // the names describe the fields
pub struct Latency {
    pub mean_ns: u64,
    pub p50_ns: u64,
    pub p99_ns: u64,
    pub p999_ns: u64,
    pub max_ns: u64,
}

/// The figures of the jobs, or of the reads beside them.
#[derive(Debug, Clone, Serialize)]
pub struct Part {
    /// BIOs that succeeded.
    pub bios: u64,
    /// Their bytes.
    pub bytes: u64,
    /// 10^6 bytes a second.
    pub mb_per_s: f64,
    /// BIOs a second.
    pub iops: f64,
    /// Their latencies.
    pub latency: Latency,
    /// Operations outstanding at the end. The latencies do not include them.
    pub waiting: u32,
    /// The age of the oldest outstanding operation.
    pub oldest_waiting_ns: u64,
    /// BIOs that failed.
    pub refused: u64,
    /// The failed BIOs by status.
    #[serde(serialize_with = "by_status")]
    pub refused_by_status: BTreeMap<&'static str, u64>,
}

impl Part {
    fn of(clients: &[ClientReport], length: Nanos) -> Part {
        let seconds = (length.0 as f64 / 1e9).max(1e-9);
        let mut all = ClientReport::default();
        for c in clients {
            (all.bytes, all.bios) = (all.bytes + c.bytes, all.bios + c.bios);
            all.latencies.extend_from_slice(&c.latencies);
            for (&status, n) in &c.refused {
                *all.refused.entry(status).or_default() += n;
            }
        }
        all.latencies.sort_unstable();
        let sum: u128 = all.latencies.iter().map(|&ns| u128::from(ns)).sum();
        Part {
            bios: all.bios,
            bytes: all.bytes,
            mb_per_s: all.bytes as f64 / 1e6 / seconds,
            iops: all.bios as f64 / seconds,
            latency: Latency {
                mean_ns: (sum / all.latencies.len().max(1) as u128) as u64,
                p50_ns: all.latency(500).0,
                p99_ns: all.latency(990).0,
                p999_ns: all.latency(999).0,
                max_ns: all.latency(1000).0,
            },
            waiting: clients.iter().map(|c| c.waiting).sum(),
            oldest_waiting_ns: clients.iter().map(|c| c.oldest.0).max().unwrap_or(0),
            refused: all.refused.values().sum(),
            refused_by_status: all.refused.iter().map(|(s, &n)| (s.name(), n)).collect(),
        }
    }
}

/// How several disks share a common adapter and host.
#[derive(Debug, Clone, Serialize)]
pub struct Shelf {
    /// The number of disks.
    pub disks: u32,
    /// 10^6 bytes a second of the slowest disk's jobs; `fastest_mb_per_s` is the fastest disk's.
    pub slowest_mb_per_s: f64,
    #[allow(missing_docs)] // the field above describes it
    pub fastest_mb_per_s: f64,
    /// Jain's index of the rates of the disks: 1 if all are equal, 1 / disks if one disk has all.
    pub fairness: f64,
    /// The highest p99 of a disk.
    pub worst_p99_ns: u64,
}

impl Shelf {
    /// Computes the shares from the jobs' clients, which are assigned to the disks in turns.
    fn of(jobs: &[ClientReport], disks: u32, length: Nanos) -> Shelf {
        let parts = (0..disks as usize).map(|d| {
            let own: Vec<ClientReport> =
                jobs.iter().skip(d).step_by(disks as usize).cloned().collect();
            Part::of(&own, length)
        });
        let parts: Vec<(f64, u64)> = parts.map(|p| (p.mb_per_s, p.latency.p99_ns)).collect();
        let rates = || parts.iter().map(|p| p.0);
        let squares: f64 = rates().map(|r| r * r).sum();
        let all: f64 = rates().sum();
        Shelf {
            disks,
            slowest_mb_per_s: rates().fold(f64::INFINITY, f64::min),
            fastest_mb_per_s: rates().fold(0.0, f64::max),
            fairness: if squares > 0.0 { all * all / squares / f64::from(disks) } else { 1.0 },
            worst_p99_ns: parts.iter().map(|p| p.1).max().unwrap_or(0),
        }
    }
}

/// The figures of one way to open the disk.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// The way in which the disk was opened, in the words of the attributes.
    pub layer: String,
    /// The mode, which sets how writes are ordered.
    pub mode: &'static str,
    /// The figures of all jobs together.
    pub jobs: Part,
    /// The figures of the reads beside them.
    pub reads: Option<Part>,
    /// How the disks share; `None` for one disk.
    pub shelf: Option<Shelf>,
    /// Accesses a second for which the head had to seek or wait. `None` for a drive without a head.
    pub head_moves_per_s: Option<f64>,
    /// The percentage of the time in which the head or the data path of a drive was busy.
    pub drive_busy_percent: f64,
    /// The mean length of a write command at the drive.
    pub mean_write_command_bytes: f64,
    /// The measured time: shorter than requested if the run was asked to end early.
    pub virtual_s: f64,
}

impl Row {
    pub(super) fn new(
        way: &Way,
        disk: &VirtualDisk,
        disks: u32,
        with_reads: bool,
        report: &Report,
    ) -> Row {
        let turns = disk.rotational();
        let drives = f64::from(disks * disk.drives);
        let reads = if with_reads { disks as usize } else { 0 };
        let (jobs, reads) = report.clients.split_at(report.clients.len() - reads);
        let length = report.length.0.max(1) as f64;
        let seconds = length / 1e9;
        Row {
            layer: way.name(turns),
            mode: way.config.mode.name(),
            jobs: Part::of(jobs, report.length),
            reads: with_reads.then(|| Part::of(reads, report.length)),
            shelf: (disks > 1).then(|| Shelf::of(jobs, disks, report.length)),
            head_moves_per_s: turns.then(|| report.drive.moves as f64 / seconds),
            // An access counts fully from its start, so it may exceed the measured time.
            drive_busy_percent: (report.drive.busy.0 as f64 * 100.0 / length / drives).min(100.0),
            virtual_s: seconds,
            mean_write_command_bytes: report.mean_command(),
        }
    }
}
