//! The workloads of the published tables: what was run, so far as it is known, as clients of a run.

use super::client::{SeqWriter, ZoneWriter};
use super::io::Client;
use super::report::Report;
use super::run::Run;
use zoneplug_core::disk::DiskConfig;
use zoneplug_core::emu::timing::Profile;
use zoneplug_core::{Error, Nanos};

/// Depths of the sequential table.
pub const DEPTHS: [u32; 8] = [1, 2, 4, 8, 16, 32, 64, 128];
/// Open zones of the random table.
pub const ZONES: [u32; 8] = DEPTHS;
/// Rates of the medium, in millionths of the profile's: where the tracks lie is not known, so a figure is a mean over these.
pub const GEOMETRIES: [u32; 5] = [985_000, 995_000, 1_000_000, 1_005_000, 1_015_000];
/// Seeds of the clients.
pub const SEEDS: [u64; 4] = [1, 2, 3, 4];

/// One workload of the SMR tables: writes of 1 MiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Workload {
    /// One job, so many outstanding, zone after zone.
    Sequential(u32),
    /// 16 jobs of fio with 32 each, so many open zones.
    Random(u32),
}

/// With the single writer or without.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Column {
    /// Zone write plugging, each zone by itself.
    Baseline,
    /// One writer for the disk (Q1-Q12).
    Patched,
}

/// One cell of the SMR tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cell {
    /// The workload.
    pub workload: Workload,
    /// The column.
    pub column: Column,
}

impl Cell {
    /// All 32.
    pub fn all() -> impl Iterator<Item = Cell> {
        let columns = [Column::Baseline, Column::Patched];
        columns.into_iter().flat_map(|column| {
            let seq = DEPTHS.map(Workload::Sequential);
            let random = ZONES.map(Workload::Random);
            seq.into_iter().chain(random).map(move |workload| Cell { workload, column })
        })
    }

    /// What was published, in MB/s.
    pub fn published(&self) -> u32 {
        let table = match (self.workload, self.column) {
            (Workload::Sequential(_), Column::Baseline) => [244, 244, 245, 242, 222, 211, 193, 112],
            (Workload::Sequential(_), Column::Patched) => [245, 245, 245, 245, 246, 245, 244, 246],
            (Workload::Random(_), Column::Baseline) => [191, 101, 115, 90, 64, 58, 56, 55],
            (Workload::Random(_), Column::Patched) => [192, 128, 123, 120, 115, 105, 101, 99],
        };
        let (Workload::Sequential(n) | Workload::Random(n)) = self.workload;
        DEPTHS.iter().position(|&d| d == n).map_or(0, |i| table[i])
    }

    /// The run of this cell on a drive, and its clients.
    pub fn run(&self, profile: &Profile, seed: u64) -> (Run, Vec<Box<dyn Client>>) {
        let mut run = Run::new(profile.clone());
        run.disk = self.config();
        match self.workload {
            Workload::Sequential(depth) => {
                run.work = Nanos(if self.column == Column::Baseline { 10_000 } else { 5_000 });
                run.warm_up = Nanos(3_000_000_000);
                run.length = Nanos(12_000_000_000);
                let mut client = SeqWriter::new(depth, 1 << 20);
                client.first_zone = 1500;
                (run, vec![Box::new(client)])
            }
            Workload::Random(zones) => {
                (run, vec![Box::new(ZoneWriter::fio_zbd(16, 32, 1 << 20, zones, seed))])
            }
        }
    }

    fn config(&self) -> DiskConfig {
        DiskConfig::default()
    }

    /// Runs the cell on a drive. A sequential cell draws nothing: its seed does not matter.
    pub fn go(&self, profile: &Profile, seed: u64) -> Result<Report, Error> {
        let (run, clients) = self.run(profile, seed);
        run.go(clients)
    }
}
