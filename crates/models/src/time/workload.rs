//! Workloads of writes, and the repeats of a figure: the layout of a drive's tracks is unknown, and random places follow
//! from a seed.

use super::client::{SeqWriter, ZoneWriter};
use super::host_times::HostTimes;
use super::io::Client;

/// Rates of the medium, in millionths of the profile's. The layout of tracks is unknown, so a
/// figure is the mean over these.
pub const GEOMETRIES: [u32; 5] = [985_000, 995_000, 1_000_000, 1_005_000, 1_015_000];
/// Seeds of the clients.
pub const SEEDS: [u64; 4] = [1, 2, 3, 4];

/// The writes of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Workload {
    /// One job, zone after zone.
    Sequential {
        /// Length of a write, in bytes.
        bs: u32,
        /// Writes outstanding.
        depth: u32,
    },
    /// fio's zoned mode, random.
    Random {
        /// Number of jobs.
        jobs: u32,
        /// Writes that each job may have outstanding.
        depth: u32,
        /// Length of a write, in bytes.
        bs: u32,
        /// Open zones.
        zones: u32,
    },
    /// A full queue over open zones, without a lock on any zone.
    FullQueue {
        /// Writes outstanding.
        outstanding: u32,
        /// Length of a write, in bytes.
        bs: u32,
        /// Open zones.
        zones: u32,
    },
    /// A full queue of zone appends over open zones.
    Append {
        /// Appends outstanding.
        outstanding: u32,
        /// Length of an append, in bytes.
        bs: u32,
        /// Open zones.
        zones: u32,
    },
}

impl Workload {
    /// The clients of this workload.
    pub fn clients(&self, times: &HostTimes, seed: u64) -> Vec<Box<dyn Client>> {
        let mut zones = match *self {
            Workload::Sequential { bs, depth } => {
                let mut client = SeqWriter::new(depth, bs);
                (client.reap, client.cpu) = (times.next, times.cpu);
                // Near the outer edge: the published rates are those of the first zones of a new
                // disk.
                client.first_zone = 1500;
                return vec![Box::new(client)];
            }
            Workload::Random { jobs, depth, bs, zones } => {
                ZoneWriter::fio_zbd(jobs, depth, bs, zones, seed)
            }
            Workload::FullQueue { outstanding, bs, zones } => {
                ZoneWriter::open_queue(outstanding, bs, zones, seed)
            }
            Workload::Append { outstanding, bs, zones } => {
                ZoneWriter::appender(outstanding, bs, zones, seed)
            }
        };
        (zones.reap, zones.wake) = (times.reap, times.wake);
        vec![Box::new(zones)]
    }
}
