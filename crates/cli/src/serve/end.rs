//! The end of a server: which devices are removed, and which stay for the next server.

use super::block::Device;
use super::handover::HandOver;
use super::join::Joined;
use super::nvme;
use crate::failure::Failure;
use std::os::unix::net::UnixStream;
use zoneplug_core::plain;
use zoneplug_core::poison::lock;
use zoneplug_host::signals::{Event, Signals};
use zoneplug_host::ublk::{InUse, StopFailed, in_use, sync_before_stop};
use zoneplug_host::{BlockingDisk, HostedDisk};

/// Why a server ends, if nothing has failed.
#[derive(Debug)]
pub(super) enum End {
    /// A signal asked for it.
    Signal,
    /// Another server asks for the disks.
    Asked(UnixStream),
}

/// Waits until a signal or another server asks for the end, or a device or the server of the network ends by itself.
pub(super) fn wait(
    signals: &Signals,
    devices: &[Device],
    network: Option<&nvme::Server>,
    hand_over: &HandOver,
) -> Result<End, Failure> {
    loop {
        match signals.wait() {
            Ok(Event::Signal(_)) => return Ok(End::Signal),
            Ok(Event::Notified) => {
                if let Some(by) = hand_over.take() {
                    return Ok(End::Asked(by));
                }
                for d in devices {
                    d.look()?;
                }
                network.map_or(Ok(()), nvme::Server::look)?;
            }
            Err(e) => return Err(Failure::io(format!("signals: {e}")).hint("start it again")),
        }
    }
}

/// Takes apart what joins devices, unless it is in use and can stay.
pub(super) fn part(joined: Joined, remove: bool) -> Result<(), Failure> {
    let mounted = sync_before_stop(&joined.path);
    if !remove && let Some(by) = in_use(&joined.path) {
        stays(&joined.path.display().to_string(), &by);
        return Ok(());
    }
    for mount in mounted {
        let (path, on) = (joined.path.display(), mount.display());
        log::warn!(
            event = "removed-in-use";
            "{path} is mounted on {on}, and is removed now; its data were written first"
        );
    }
    joined.part()
}

fn stays(path: &str, by: &InUse) {
    let by = by.to_string();
    let by = plain(&by);
    log::warn!(
        event = "left-in-use", path;
        "{path} is {by}: it stays, and its I/O waits for the next server (or --remove-on-exit)"
    );
}

/// Removes all devices that are not in use, or with `remove` all, and makes everything durable. The first failure is
/// told, but no device is left out.
pub(super) fn stop(devices: Vec<Device>, remove: bool) -> Result<(), Failure> {
    let mut result = Ok(());
    for d in devices {
        let Some(device) = lock(&d.device).take() else { continue };
        let mounted = device.sync_before_stop();
        let path = d.path.display().to_string();
        let stopped = if !remove && device.outlives() {
            match device.stop_unless_in_use() {
                Ok(()) => Ok(()),
                Err(StopFailed::InUse(device, by)) => {
                    stays(&path, &by);
                    device.leave();
                    Ok(())
                }
                Err(StopFailed::Error(e)) => Err(Failure::from(e)),
            }
        } else {
            for mount in mounted {
                let on = mount.to_string_lossy();
                let on = plain(&on);
                log::warn!(
                    event = "removed-in-use", disk = d.name();
                    "{path} is mounted on {on}, and is removed now; its data were written first"
                );
            }
            device.stop().map_err(Failure::from)
        };
        let flushed = flush(&d.disk);
        if stopped.is_ok() && flushed.is_ok() {
            let name = d.name();
            log::info!(event = "disk-stop", disk = name; "{name}: not served any more, and its data are durable");
        }
        result = result.and(stopped).and(flushed);
    }
    result
}

/// Removes what was served when a further step failed. Leaves a device that was taken over as it was found, since it
/// may be in use.
pub(super) fn give_up(devices: Vec<Device>, failure: Failure) -> Failure {
    for d in &devices {
        if d.recovered()
            && let Some(device) = lock(&d.device).take()
        {
            device.abandon();
        }
    }
    // The first failure is the one to report.
    let _ = stop(devices, true);
    failure
}

pub(super) fn flush(disk: &HostedDisk) -> Result<(), Failure> {
    BlockingDisk::new(disk)?.flush()?;
    Ok(())
}
