//! Memory, descriptors and threads of the daemon, by /proc.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// At a time.
#[derive(Debug, Clone, Copy)]
struct Sample {
    resident_kib: u64,
    descriptors: u64,
    threads: u64,
}

/// What was seen from the second tenth of the run on, when all has been used once.
pub(crate) struct Seen(Vec<Sample>);

fn sample(pid: u32) -> Option<Sample> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let field = |name: &str| {
        let line = status.lines().find_map(|l| l.strip_prefix(name))?;
        line.split_whitespace().next()?.parse().ok()
    };
    let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd")).ok()?.count() as u64;
    Some(Sample { resident_kib: field("VmRSS:")?, descriptors, threads: field("Threads:")? })
}

/// Takes two hundred samples of a run that lasts so long.
pub(crate) fn watch(pid: u32, lasts: Duration, stop: &AtomicBool) -> Seen {
    let (mut samples, begun) = (Vec::new(), Instant::now());
    while !stop.load(Ordering::Relaxed) {
        std::thread::sleep(lasts / 200);
        if begun.elapsed() > lasts / 10 {
            samples.extend(sample(pid));
        }
    }
    Seen(samples)
}

impl Seen {
    /// What is usual in a third of the run: the medians. A question or a host that comes while another goes has a
    /// descriptor for a moment.
    fn usual(&self, third: usize) -> Sample {
        let n = self.0.len() / 3;
        let part = &self.0[n * third..n * (third + 1)];
        let median = |f: fn(&Sample) -> u64| {
            let mut all: Vec<u64> = part.iter().map(f).collect();
            all.sort_unstable();
            all.get(all.len() / 2).copied().unwrap_or(0)
        };
        Sample {
            resident_kib: median(|s| s.resident_kib),
            descriptors: median(|s| s.descriptors),
            threads: median(|s| s.threads),
        }
    }

    /// Nothing is higher in the last third than in the first two, but memory by 2 %, for what the allocator keeps.
    pub(crate) fn is_flat(&self) {
        let (a, b, last) = (self.usual(0), self.usual(1), self.usual(2));
        let memory = a.resident_kib.max(b.resident_kib);
        assert!(last.resident_kib * 100 <= memory * 102, "memory grows: {self}");
        assert!(last.descriptors <= a.descriptors.max(b.descriptors), "descriptors grow: {self}");
        assert!(last.threads <= a.threads.max(b.threads), "threads grow: {self}");
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = [0, 1, 2].map(|third| self.usual(third));
        let list = |of: fn(&Sample) -> u64| {
            all.iter().map(of).map(|n| n.to_string()).collect::<Vec<_>>().join(", ")
        };
        write!(
            f,
            "in each third, by the median: {} KiB resident; {} descriptors; {} threads",
            list(|s| s.resident_kib),
            list(|s| s.descriptors),
            list(|s| s.threads)
        )
    }
}
