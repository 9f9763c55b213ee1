//! The door of ublk: serves disks as block devices of this machine.

mod join;
mod numbers;

use super::Looks;
use crate::compare::{WantedDisk, WantedDoor};
use crate::door::Door;
use crate::error::ServeError;
use crate::inherited::Inherited;
use crate::once::FileOrder;
use crate::open_disks::{OpenDisks, flush};
use crate::served::{Origin, PassedDisk, Served};
use join::{Joined, Parts};
pub use numbers::Numbers;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use zoneplug_control::Failure;
use zoneplug_control::client;
use zoneplug_core::plain;
use zoneplug_core::poison::lock;
use zoneplug_core::zone::Geometry;
use zoneplug_core::{Bytes, Error, Sector};
use zoneplug_host::signals::Notifier;
use zoneplug_host::ublk::{
    self, InUse, StopFailed, Ublk, UblkDisk, UblkError, UblkOptions, in_use, is_watched, slices,
    sync_before_stop,
};
use zoneplug_host::{HostedDisk, ServedCounters, Specification};

/// The name of this door.
const NAME: &str = "ublk";
/// How long the start waits until udev has seen the devices.
const UDEV: Duration = Duration::from_secs(5);

/// The options of a disk's devices.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeviceOptions {
    /// The number of the first device.
    pub id: Option<u32>,
    /// Number of queues, each with a thread. `None`: the default.
    pub queues: Option<u16>,
    /// Number of requests of each queue.
    pub depth: u16,
    /// Whether Linux removes the devices when the server dies.
    pub no_recovery: bool,
}

/// A disk that is served as a block device.
#[derive(Debug, Clone)]
pub struct BlockDisk {
    /// Its specification.
    pub spec: Specification,
    /// The options of its devices.
    pub device: DeviceOptions,
    /// Whether `device.id` belongs to this disk, and not to the first disk.
    pub own_id: bool,
}

/// A disk that is to be served as a block device.
pub struct Planned {
    /// The disk.
    pub of: BlockDisk,
    /// The number of its first device, if one is requested.
    pub id: Option<u32>,
    /// The geometry of the disk.
    pub geometry: Geometry,
}

/// Plans the devices, without opening a disk for writing. Refuses numbers that two disks would share.
pub(super) fn planned(
    disks: &[BlockDisk],
    mut next: Numbers,
    order: &FileOrder<'_>,
    looks: &mut Looks,
) -> Result<Vec<Planned>, Failure> {
    let mut all = Vec::new();
    for of in disks {
        let geometry = looks.at(&of.spec, |device| {
            ublk::check(device.geometry(), device.limits())?;
            Ok(*device.geometry())
        })?;
        all.push(Planned { of: of.clone(), id: next.first(of), geometry });
        next.take(of, slices(&geometry).len() as u32);
    }
    let numbered = all.iter().filter_map(|planned: &Planned| {
        Some((&*planned.of.spec, planned.id?, slices(&planned.geometry).len()))
    });
    numbers::check(numbered, order)?;
    Ok(all)
}

/// A device and its disk.
struct Device {
    disk: HostedDisk,
    spec: Specification,
    passed: PassedDisk,
    /// `None` after it is stopped.
    device: Arc<Mutex<Option<UblkDisk>>>,
    path: PathBuf,
    /// The zones that it shows, if it is one of several devices of the disk.
    zones: Option<Range<u32>>,
}

/// The zones of each device of a disk. `None`: all of them.
fn shown(geometry: &Geometry) -> Vec<Option<Range<u32>>> {
    let all = slices(geometry);
    if all.len() > 1 { all.into_iter().map(Some).collect() } else { vec![None] }
}

/// The devices of each disk with several devices.
fn parts(devices: &[Device]) -> Vec<Parts> {
    let mut all: Vec<Parts> = Vec::new();
    for d in devices {
        let Some(zones) = &d.zones else { continue };
        let sectors = zones.len() as u64 * u64::from(d.disk.disk().geometry().zone_sectors());
        let one = (d.path.clone(), sectors);
        match all.last_mut().filter(|_| zones.start > 0) {
            Some(Parts(parts)) => parts.push(one),
            None => all.push(Parts(vec![one])),
        }
    }
    all
}

/// The common options of all devices of a server.
#[derive(Debug, Clone, Copy, Default)]
pub struct Rules {
    /// Whether disks may be in other files than when their last server ended.
    pub moved: bool,
    /// Whether the devices of one disk are joined.
    pub join: bool,
    /// Whether latencies are measured.
    pub latencies: bool,
}

/// The options of a device.
fn options(
    rules: Rules,
    disk: &BlockDisk,
    id: Option<u32>,
    tags: Option<u16>,
    zones: Option<Range<u32>>,
) -> UblkOptions {
    let usual = UblkOptions::default();
    UblkOptions {
        id,
        queues: disk.device.queues.unwrap_or(usual.queues),
        depth: disk.device.depth,
        tags,
        recovery: !disk.device.no_recovery,
        // The directory does not depend on --socket, so that a restarted server with another socket finds it. It is
        // in memory.
        records: Some(PathBuf::from(client::DIRECTORY)),
        moved: rules.moved,
        zones,
        latencies: rules.latencies,
    }
}

/// Starts a device of a disk.
fn start(
    ublk: &Ublk,
    disk: HostedDisk,
    spec: &Specification,
    passed: &PassedDisk,
    options: &UblkOptions,
    notifier: Notifier,
) -> Result<Device, Failure> {
    let device = ublk.serve(&disk, spec, options, move || notifier.notify())?;
    let path = device.path();
    let (spec, zones) = (spec.to_owned(), options.zones.clone());
    let passed = passed.clone();
    Ok(Device { disk, spec, passed, device: Arc::new(Mutex::new(Some(device))), path, zones })
}

impl Device {
    fn recovered(&self) -> bool {
        lock(&self.device).as_ref().is_some_and(UblkDisk::recovered)
    }

    /// Whether Linux keeps the device for the next server.
    fn outlives(&self) -> bool {
        lock(&self.device).as_ref().is_some_and(UblkDisk::outlives)
    }

    /// The line that reports the device: `/dev/ublkb0  po2@disk.zbd  1G, 8 zones of 128M`.
    fn line(&self) -> String {
        let g = self.disk.disk().geometry();
        let zone = Sector(u64::from(g.zone_sectors())).to_bytes();
        let (zones, size) = (g.nr_zones(), g.capacity_bytes());
        let whole = g.capacity_bytes().0 / zone.0 * zone.0;
        let mut line = format!(
            "{}  {}  {size}, {zones} zones of {zone}",
            self.path.display(),
            plain(&self.spec)
        );
        if let Some(zones) = &self.zones {
            line += &format!(", of which this shows {} from zone {} on", zones.len(), zones.start);
        } else if whole != size.0 {
            line += &format!(", shown without the shorter last one: {}", Bytes(whole));
        }
        let unrecorded =
            lock(&self.device).as_ref().and_then(|d| d.unrecorded().map(str::to_owned));
        if self.recovered() {
            line += ", taken over";
            if let Some(why) = unrecorded {
                line += &format!(", and appends that were in flight are appended again ({why})");
            }
        } else if let Some(why) = unrecorded {
            line += &format!(", without a record of appends for the next server ({why})");
        } else if self.spec.is_volatile() {
            line += ", in memory: gone when this process ends";
        }
        line
    }

    /// The name of the device: `ublkb0`.
    fn name(&self) -> &str {
        self.path.file_name().and_then(|n| n.to_str()).unwrap_or_default()
    }

    fn log_start(&self) {
        let (disk, spec, line) = (self.name(), &*self.spec, self.line());
        if self.recovered() {
            log::info!(event = "takeover", disk, spec; "{line}");
        } else {
            log::info!(event = "disk-start", disk, spec; "{line}");
        }
    }

    /// A warning if udev watches the device.
    fn watched(&self, end: Instant) -> Option<String> {
        is_watched(&self.path, end).then(|| {
            format!(
                "{} is watched by udev, which reads it through the page cache after each close: writes of io_uring may fail; to end \
                 that: zoneplug serve --udev-rule > /etc/udev/rules.d/61-zoneplug.rules",
                self.path.display()
            )
        })
    }

    /// Fails if the device has ended by itself.
    fn check_running(&self) -> Result<(), Failure> {
        let device = lock(&self.device);
        let path = self.path.display().to_string();
        match device.as_ref().map(|d| (d.failure(), d.is_served())) {
            Some((Some(because), _)) => {
                let then = "dmesg has what the kernel says of it";
                Err(ServeError::DoorFailed { at: path, because, then }.into())
            }
            Some((None, false)) => Err(Error::from(UblkError::Stopped { path }).into()),
            _ => Ok(()),
        }
    }

    fn served(&self) -> Served {
        let device = self.device.clone();
        Served {
            recovered: self.recovered() && self.passed.origin != Origin::TakenBack,
            outlives: self.outlives(),
            counters: Box::new(move || {
                lock(&device).as_ref().map_or_else(ServedCounters::default, UblkDisk::counters)
            }),
            ..Served::new(NAME, self.name(), &self.spec, &self.disk, &self.passed)
        }
    }
}

/// Removes a joined device. One in use stays unless `remove` is set.
fn part(joined: Joined, remove: bool) -> Result<(), Failure> {
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

/// Removes all devices, and makes their data durable. Devices in use stay unless `remove` is set. Returns the first
/// failure, but handles all devices.
fn stop(devices: impl Iterator<Item = Device>, remove: bool) -> Result<(), Failure> {
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
                    device.leave_device();
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

/// The door of ublk.
pub struct UblkDoor {
    /// The driver of Linux. `None`: the door serves only for comparisons.
    control: Option<Ublk>,
    planned: Vec<Planned>,
    rules: Rules,
    devices: Vec<Device>,
    parts: Vec<Parts>,
    /// Started once, because the filter of system calls denies to start them again.
    joined: Option<Vec<Joined>>,
    has_served: bool,
}

impl UblkDoor {
    /// A door that serves no disk yet.
    pub fn new(control: Option<Ublk>, planned: Vec<Planned>, rules: Rules) -> UblkDoor {
        let (devices, parts) = (Vec::new(), Vec::new());
        UblkDoor { control, planned, rules, devices, parts, joined: None, has_served: false }
    }

    /// Calls `f` for each device that is served.
    fn each(&self, f: fn(&UblkDisk)) {
        self.devices.iter().for_each(|d| lock(&d.device).iter().for_each(f));
    }
}

impl Door for UblkDoor {
    fn specs(&self) -> Vec<&Specification> {
        self.planned.iter().map(|planned| &planned.of.spec).collect()
    }

    fn wanted(&self) -> WantedDoor<'_> {
        let of = |p: &Planned| WantedDisk::new(&p.of.spec, p.id, !p.of.device.no_recovery);
        WantedDoor::new(NAME, self.planned.iter().map(of).collect())
    }

    fn needs_root(&self) -> bool {
        true
    }

    /// Checks a disk before it is opened, so that a refused copy stays unchanged.
    fn check_disk(&self, spec: &Specification) -> Result<(), Failure> {
        let planned = self.planned.iter().find(|planned| planned.of.spec == *spec);
        let Some((ublk, planned)) = self.control.as_ref().zip(planned) else { return Ok(()) };
        if !spec.is_volatile() {
            let options = options(self.rules, &planned.of, planned.id, None, None);
            ublk.waiting(spec, &planned.geometry, &options)?;
        }
        Ok(())
    }

    fn start(
        &mut self,
        disks: &OpenDisks,
        _: &Inherited,
        notifier: &Notifier,
    ) -> Result<(), Failure> {
        let Some(ublk) = &self.control else { return Ok(()) };
        for planned in &self.planned {
            let spec = &planned.of.spec;
            let Some(open) = disks.get(spec) else { continue };
            for (zones, nth) in shown(&open.disk.disk().geometry()).into_iter().zip(0..) {
                let id = planned.id.map(|id| id + nth);
                let options = options(self.rules, &planned.of, id, open.tags, zones);
                let disk = open.disk.clone();
                let device = start(ublk, disk, spec, &open.passed, &options, notifier.clone());
                self.devices.push(device.map_err(|f| f.of_disk(spec))?);
            }
        }
        self.parts = parts(&self.devices);
        if self.rules.join && self.joined.is_none() {
            self.joined = Some(self.parts.iter().map(Parts::join).collect::<Result<_, _>>()?);
        }
        Ok(())
    }

    fn undo(&mut self) {
        if !self.has_served {
            let joined = self.joined.take().into_iter().flatten();
            joined.filter(|joined| joined.is_new).for_each(|joined| drop(joined.part()));
        }
        for d in self.devices.iter().filter(|d| d.recovered()) {
            lock(&d.device).take().into_iter().for_each(UblkDisk::abandon);
        }
        // The caller reports the failure of the start instead.
        let _ = stop(self.devices.drain(..), true);
    }

    fn serves(&mut self) -> Result<(), Failure> {
        self.has_served = true;
        Ok(())
    }

    fn served(&self) -> Vec<Served> {
        self.devices.iter().map(Device::served).collect()
    }

    fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let udev = Instant::now() + UDEV;
        for d in &self.devices {
            lines.push(d.line());
            lines.extend(d.watched(udev));
        }
        lines.extend(self.parts.iter().map(|parts| match self.rules.join {
            true => format!("{}  joins {}", parts.path().display(), parts.names()),
            false => format!("to join them:\n{}", parts.command()),
        }));
        lines
    }

    fn log_start(&self) {
        self.devices.iter().for_each(Device::log_start);
    }

    fn check_running(&self) -> Result<(), Failure> {
        self.devices.iter().try_for_each(Device::check_running)
    }

    fn ask_to_leave(&self) {
        self.each(UblkDisk::ask_to_leave);
    }

    fn drains_until(&self, end: Instant) -> Result<(), String> {
        let is_slow = |d: &&Device| !lock(&d.device).iter().all(|d| d.drains_until(end));
        self.devices.iter().find(is_slow).map_or(Ok(()), |d| Err(d.name().to_owned()))
    }

    fn stay(&self) {
        self.each(UblkDisk::stay);
    }

    /// Leaves the devices. Linux keeps their requests for the next server.
    fn leave_disks(&mut self) {
        for d in self.devices.drain(..) {
            let device = lock(&d.device).take();
            device.into_iter().for_each(UblkDisk::leave_device);
        }
    }

    fn stop(&mut self, remove: bool) -> Result<(), Failure> {
        let outlive = self.devices.iter().all(Device::outlives);
        let mut joined = self.joined.take().into_iter().flatten();
        let parted = joined.try_for_each(|joined| part(joined, remove || !outlive));
        stop(self.devices.drain(..), remove).and(parted)
    }
}

/// Removes a device whose server has died.
pub fn remove(number: u32) -> Result<(), Failure> {
    Ok(Ublk::open()?.remove(number, Some(Path::new(client::DIRECTORY)))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A device that shows these zones of a disk in memory, and is stopped.
    fn device(n: u32, zones: Option<Range<u32>>) -> Device {
        let text = "mem,zones=8,zone-size=1M";
        Device {
            disk: HostedDisk::open_spec(text).unwrap(),
            spec: text.parse().unwrap(),
            passed: PassedDisk::default(),
            device: Arc::default(),
            path: PathBuf::from(format!("/dev/ublkb{n}")),
            zones,
        }
    }

    /// The devices of each disk are joined in the order of its zones. A disk with one device has nothing to join.
    #[test]
    fn the_devices_of_a_disk_are_its_parts() {
        let all = [(0, Some(0..3)), (1, Some(3..8)), (2, None), (3, Some(0..4)), (4, Some(4..8))];
        let all = all.map(|(n, zones)| device(n, zones));
        let part = |n: u32, zones: u64| (PathBuf::from(format!("/dev/ublkb{n}")), zones * 2048);
        let (first, last) = (vec![part(0, 3), part(1, 5)], vec![part(3, 4), part(4, 4)]);
        assert_eq!(parts(&all), [Parts(first), Parts(last)]);
    }

    /// Nothing of a device that is stopped can be handed over.
    #[test]
    fn a_stopped_device_does_not_outlive_its_server() {
        assert!(!device(0, None).outlives());
    }
}
