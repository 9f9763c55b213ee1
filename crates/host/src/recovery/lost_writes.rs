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
