//! The times of the host and its clients for each kind of drive.

use zoneplug_core::Nanos;
use zoneplug_devices::emu::timing::{Model, Profile};

/// Times of the host and its clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostTimes {
    /// The host's work; see [`Run::work`](super::Run::work).
    pub work: Nanos,
    /// Time from a completion until the client reaps it.
    pub reap: Nanos,
    /// Time from the release of a lock until the job that slept on it runs.
    pub wake: Nanos,
    /// For a sequential job, the time from a completion to the next write.
    pub next: Nanos,
    /// For a sequential job, the processor time of a write.
    pub cpu: Nanos,
}

impl HostTimes {
    /// Times for a hard disk. Only their order matters (the next command leaves before the client's
    /// next write arrives), not their size.
    pub const DISK: HostTimes = HostTimes {
        work: Nanos(5_000),
        reap: Nanos(20_000),
        wake: Nanos(50_000),
        next: Nanos(10_000),
        cpu: Nanos(0),
    };
    /// Times for an NVMe drive, where they are a part of the result.
    pub const NVME: HostTimes = HostTimes {
        work: Nanos(1_000),
        reap: Nanos(4_000),
        wake: Nanos(30_000),
        next: Nanos(0),
        cpu: Nanos(2_400),
    };

    /// Adds a scheduler's processor time for each command.
    pub const fn with_scheduler(self, time: Nanos) -> HostTimes {
        let Nanos(each) = time;
        HostTimes { reap: Nanos(self.reap.0 + each), cpu: Nanos(self.cpu.0 + each), ..self }
    }

    /// The times for a drive with this profile.
    pub fn of(profile: &Profile) -> HostTimes {
        match profile.model {
            Model::Smr(_) => HostTimes::DISK,
            Model::Zns(_) => HostTimes::NVME,
        }
    }
}
