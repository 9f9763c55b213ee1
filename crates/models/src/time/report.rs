//! The results of a run.

use std::collections::BTreeMap;
use zoneplug_core::{Nanos, Status};
use zoneplug_devices::emu::timing::DriveStats;

/// The result of one client in the measured time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClientReport {
    /// Bytes that completed.
    pub bytes: u64,
    /// BIOs that completed.
    pub bios: u64,
    /// The latency of each BIO in nanoseconds, from submission to the device's completion,
    /// ascending. Empty in a run that does not keep them.
    pub latencies: Vec<u64>,
    /// BIOs that were outstanding at the end.
    pub waiting: u32,
    /// How long the oldest of them had waited. The latencies do not include it.
    pub oldest: Nanos,
    /// BIOs that failed, by status.
    pub refused: BTreeMap<Status, u64>,
    /// The sum of the outstanding BIOs at each submission, and the number of submissions.
    outstanding: (u64, u64),
    in_flight: u32,
}

impl ClientReport {
    pub(super) fn submitted(&mut self) {
        self.in_flight += 1;
        self.outstanding.0 += u64::from(self.in_flight);
        self.outstanding.1 += 1;
    }

    pub(super) fn finished(&mut self, sectors: u32, took: Nanos, keep: bool) {
        self.in_flight -= 1;
        self.bytes += u64::from(sectors) << 9;
        self.bios += 1;
        if keep {
            self.latencies.push(took.0);
        }
    }

    #[cold]
    pub(super) fn failed(&mut self, status: Status) {
        self.in_flight -= 1;
        *self.refused.entry(status).or_default() += 1;
    }

    /// Starts measuring: discards what was counted so far.
    pub(super) fn begin(&mut self) {
        self.bytes = 0;
        self.bios = 0;
        self.latencies.clear();
        self.refused.clear();
    }

    /// The latency that `permille` of 1000 BIOs do not exceed.
    pub fn latency(&self, permille: usize) -> Nanos {
        let n = self.latencies.len();
        let i = (n * permille / 1000).min(n.saturating_sub(1));
        Nanos(self.latencies.get(i).copied().unwrap_or(0))
    }

    /// The mean number of BIOs outstanding at a submission.
    pub fn mean_outstanding(&self) -> f64 {
        self.outstanding.0 as f64 / self.outstanding.1.max(1) as f64
    }
}

/// The result of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The measured time.
    pub length: Nanos,
    /// The result of each client.
    pub clients: Vec<ClientReport>,
    /// The drive's statistics in the measured time.
    pub drive: DriveStats,
    /// Write commands that the device received since the start.
    pub write_commands: u64,
    /// Sectors that they wrote.
    pub written_sectors: u64,
}

impl Report {
    /// Bytes per second of all clients, in units of 10^6.
    pub fn mb_per_s(&self) -> f64 {
        self.clients.iter().map(|c| c.bytes).sum::<u64>() as f64 / self.length.0 as f64 * 1e3
    }

    /// BIOs per second of all clients.
    pub fn iops(&self) -> f64 {
        self.clients.iter().map(|c| c.bios).sum::<u64>() as f64 / self.length.0 as f64 * 1e9
    }

    /// Mean length of a write command, in bytes.
    pub fn mean_command(&self) -> f64 {
        (self.written_sectors << 9) as f64 / self.write_commands.max(1) as f64
    }
}
