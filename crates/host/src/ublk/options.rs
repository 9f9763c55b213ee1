//! Options for serving a device.

use std::ops::Range;
use std::path::PathBuf;

/// Options of a served disk.
#[derive(Debug, Clone)]
pub struct UblkOptions {
    /// The number N of `/dev/ublkbN`. `None`: the next free number.
    pub id: Option<u32>,
    /// Number of queues, each with a thread. Linux makes at most as many as it has processors.
    pub queues: u16,
    /// Requests that a queue takes at a time.
    pub depth: u16,
    /// Commands that a queue may have at the device below, if fewer than `depth`.
    pub tags: Option<u16>,
    /// Whether Linux keeps the device when this process dies, so that the next server can take it over.
    pub recovery: bool,
    /// A directory in memory, such as one in `/run`, for the journals of zone appends: one file for each device that
    /// can be taken over. If this server is killed, the next one reads the journal, so it must be given the same
    /// directory. Without a directory, or if it is not in memory, appends that were in flight are appended again.
    pub records: Option<PathBuf>,
    /// Whether to take over a device whose disk was moved to another file since its server died, for example to
    /// another file system. Only the caller knows that the file is not a copy.
    pub moved: bool,
    /// The zones that the device shows: one of [`slices`](super::slices). `None`: all zones.
    pub zones: Option<Range<u32>>,
    /// Whether to measure how long operations take: [`ServedOperation::latency`](crate::ServedOperation). Costs at
    /// most ten instructions for each operation of a busy queue.
    pub latencies: bool,
}

impl Default for UblkOptions {
    /// 128 requests in each queue; four queues, or one for each processor if there are fewer.
    fn default() -> Self {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        UblkOptions {
            id: None,
            queues: cpus.min(4) as u16,
            depth: 128,
            tags: None,
            recovery: true,
            records: None,
            moved: false,
            zones: None,
            latencies: false,
        }
    }
}
