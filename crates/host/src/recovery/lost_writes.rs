//! The notes of a server of the network about the writes of a disk that clients may send again.

use crate::BlockingDisk;
use crate::runtime::hosted::HostedDisk;
use zoneplug_core::zone::ZoneInfo;
use zoneplug_core::{Nanos, Sector};
use zoneplug_recovery::{DiskRecovery, written_in};

/// Makes the notes of a disk whose server starts, and returns its zones. `outlives`: the disk is older than this server, so the
/// last server may have carried out writes without an answer.
pub(crate) fn after_start(
    disk: &HostedDisk,
    outlives: bool,
    now: Nanos,
) -> (DiskRecovery, Vec<ZoneInfo>) {
    let recovery = DiskRecovery::new(disk.geometry());
    if !outlives {
        return (recovery, Vec::new());
    }
    // A disk that cannot be read counts as empty.
    let zones = disk.geometry().nr_zones();
    let found = BlockingDisk::new(disk).ok();
    let found = found.and_then(|mut io| io.report(Sector(0), zones).ok()).unwrap_or_default();
    recovery.set_written_at_start(found.iter().map(written_in).collect(), now);
    (recovery, found)
}

/// Returns whether a command that changes the zone of `at` was given up, and the device may still carry it out: then how
/// long a resent write waits for that.
pub(crate) fn late_limit(disk: &HostedDisk, at: Sector) -> Option<Nanos> {
    let disk = disk.disk();
    let is_late = disk.has_late(disk.geometry().zone_of(at).0);
    // Without a deadline, only the commands of a queue of the device that has died are late: they never end.
    is_late.then(|| disk.config().timeout.unwrap_or(Nanos(0)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use zoneplug_buf::AlignedBuf;
    use zoneplug_core::disk::DiskConfig;
    use zoneplug_core::{Op, Status};
    use zoneplug_devices::emu::{EmuConfig, EmuDisk};
    use zoneplug_devices::stack::{TapDisk, TapEvent};

    /// The status of a write of the first zone.
    fn write(disk: &HostedDisk) -> Option<Status> {
        let written = BlockingDisk::new(disk).unwrap().write(Sector(0), AlignedBuf::zeroed(4096));
        written.err().map(|e| e.status)
    }

    /// The limits of a resend in the first zone and in the next one.
    fn limits(disk: &HostedDisk) -> [Option<Nanos>; 2] {
        [0, 2048].map(|at| late_limit(disk, Sector(at)))
    }

    /// L14. A resent write waits for the commands of its zone that the disk has given up, at most as long as the deadline of
    /// the disk.
    #[test]
    fn l14_a_resend_waits_for_what_the_disk_has_given_up() {
        let disk = HostedDisk::open_spec(
            "mem,zones=4,zone-size=1M,io_timeout=20ms,fault=write/lost/zone=0/count=1",
        )
        .unwrap();
        assert_eq!(limits(&disk), [None; 2]);
        assert_eq!(write(&disk), Some(Status::Timeout));
        assert_eq!(limits(&disk), [Some(Nanos(20_000_000)), None]);
    }

    /// L14. A device without a deadline has died with a write, and may still carry it out. A resent write of that zone is not
    /// compared with the disk then. The limit is 0, because a dead queue never answers.
    #[test]
    fn l14_what_a_dead_queue_had_is_late_on_a_disk_without_a_deadline() {
        let emu = EmuDisk::new("mem,zones=4,zone-size=1M".parse::<EmuConfig>().unwrap()).unwrap();
        // The device has taken the write when it panics.
        let die = |event: &TapEvent| assert_ne!(event.op, Op::Write, "the device dies on purpose");
        let device = TapDisk::new(emu, Arc::new(die));
        let disk = HostedDisk::open(device, DiskConfig::default()).unwrap();
        assert_eq!(limits(&disk), [None; 2]);
        assert_eq!(write(&disk), Some(Status::NoDevice));
        assert_eq!(limits(&disk), [Some(Nanos(0)), None]);
    }
}
