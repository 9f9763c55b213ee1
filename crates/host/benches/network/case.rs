//! A workload, by its name: `seqw4K16x8` writes each 4 KiB in order, 16 commands in flight on each of 8 connections.

use zoneplug_host::HostedDisk;

/// Bytes of a logical block.
pub(crate) const BLOCK: u32 = 4096;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pattern {
    /// Each connection writes a zone, then the next of its own.
    Sequential,
    /// Each connection writes to all of its zones by turns.
    Random,
    /// Reads anywhere.
    Read,
}

/// A workload.
#[derive(Clone, Copy)]
pub(crate) struct Case {
    pub(crate) pattern: Pattern,
    pub(crate) bytes: u32,
    pub(crate) depth: usize,
    pub(crate) queues: u16,
}

impl Case {
    /// From its name; without `x` it has one connection.
    pub(crate) fn of(name: &str) -> Option<Case> {
        let (kind, rest) = name.split_at_checked(4)?;
        let pattern = match kind {
            "seqw" => Pattern::Sequential,
            "rndw" => Pattern::Random,
            "rndr" => Pattern::Read,
            _ => return None,
        };
        let (work, queues) = rest.split_once('x').unwrap_or((rest, "1"));
        let unit = work.find(['K', 'M'])?;
        let shift = if work[unit..].starts_with('K') { 10 } else { 20 };
        let bytes = work[..unit].parse::<u32>().ok()? << shift;
        let depth = work[unit + 1..].parse().ok()?;
        Some(Case { pattern, bytes, depth, queues: queues.parse().ok()? })
    }
}

/// The shape of a disk.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) zones: u64,
    pub(crate) zone_blocks: u64,
}

impl Shape {
    pub(crate) fn of(disk: &HostedDisk) -> Shape {
        let g = disk.geometry();
        let zone_blocks = u64::from(g.zone_capacity_sectors()) * 512 / u64::from(BLOCK);
        Shape { zones: u64::from(g.nr_zones()), zone_blocks }
    }
}

/// A read or a write.
#[derive(Clone, Copy)]
pub(crate) struct Access {
    /// The number of the disk; the first is 0.
    pub(crate) disk: u32,
    pub(crate) is_read: bool,
    pub(crate) lba: u64,
    pub(crate) blocks: u32,
}

/// The commands of a connection.
pub(crate) struct Commands {
    case: Case,
    shape: Shape,
    queue: u64,
    disk: u32,
    sent: u64,
    random: u64,
}

impl Commands {
    pub(crate) fn new(case: Case, shape: Shape, queue: u16) -> Commands {
        let random = 0x9e37_79b9 + u64::from(queue);
        Commands { case, shape, queue: u64::from(queue), disk: 0, sent: 0, random }
    }

    /// These commands on another disk.
    pub(crate) fn on(self, disk: u32) -> Commands {
        Commands { disk, ..self }
    }

    /// The next command.
    pub(crate) fn access(&mut self) -> Access {
        let Shape { zones, zone_blocks } = self.shape;
        let blocks = u64::from(self.case.bytes / BLOCK);
        // Zones of this connection, and commands that fit into one.
        let (own, fit) = (zones / u64::from(self.case.queues), zone_blocks / blocks);
        let n = self.sent;
        self.sent += 1;
        let (zone, within) = match self.case.pattern {
            Pattern::Sequential => (n / fit, n % fit),
            Pattern::Random => (n % own, n / own),
            Pattern::Read => {
                // Marsaglia's xorshift.
                self.random ^= self.random << 13;
                self.random ^= self.random >> 7;
                self.random ^= self.random << 17;
                (self.random % own, (self.random >> 32) % fit)
            }
        };
        assert!(zone < own && within < fit, "the disk is too small for so many commands");
        let zone = self.queue + zone * u64::from(self.case.queues);
        Access {
            disk: self.disk,
            is_read: self.case.pattern == Pattern::Read,
            lba: zone * zone_blocks + within * blocks,
            blocks: blocks as u32,
        }
    }
}
