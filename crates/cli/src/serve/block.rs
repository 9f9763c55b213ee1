//! Disks that are served as block devices: how each is made, and what a server says of it.

use super::Args;
use super::answer::{Passed, Served};
use super::join::Parts;
use super::served::Origin;
use super::settings::BlockDisk;
use crate::failure::{Failure, Kind};
use crate::server_client;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Instant;
use zoneplug_core::plain;
use zoneplug_core::poison::lock;
use zoneplug_core::zone::Geometry;
use zoneplug_core::{Bytes, Sector};
use zoneplug_host::signals::Signals;
use zoneplug_host::ublk::{Ublk, UblkDisk, UblkOptions, is_watched, slices};
use zoneplug_host::{HostedDisk, ServedCounters, is_volatile};

/// A device and its disk, from start to end.
pub(super) struct Device {
    pub(super) disk: HostedDisk,
    spec: String,
    passed: Passed,
    /// `None` once it is stopped.
    pub(super) device: Arc<Mutex<Option<UblkDisk>>>,
    pub(super) path: PathBuf,
    /// The zones that it shows, if they are not all of the disk.
    zones: Option<Range<u32>>,
}

/// The zones of each device that a disk is served as; `None`: all of them.
pub(super) fn shown(geometry: &Geometry) -> Vec<Option<Range<u32>>> {
    let all = slices(geometry);
    if all.len() > 1 { all.into_iter().map(Some).collect() } else { vec![None] }
}

/// The devices of each disk that has several.
pub(super) fn parts(devices: &[Device]) -> Vec<Parts> {
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

/// How a device of a disk is served.
pub(super) fn options(
    args: &Args,
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
        // Not beside --socket: a server restarted with another socket must find it, and it must be in memory.
        records: Some(PathBuf::from(server_client::DIRECTORY)),
        moved: args.moved,
        zones,
        latencies: args.measured.times(),
    }
}

/// Has a disk served.
pub(super) fn start(
    ublk: &Ublk,
    disk: HostedDisk,
    (spec, passed): (&str, &Passed),
    options: &UblkOptions,
    signals: &Signals,
) -> Result<Device, Failure> {
    let notifier = signals.notifier();
    let device = ublk.serve(&disk, spec, options, move || notifier.notify())?;
    let path = device.path();
    let (spec, zones) = (spec.to_owned(), options.zones.clone());
    let passed = passed.clone();
    Ok(Device { disk, spec, passed, device: Arc::new(Mutex::new(Some(device))), path, zones })
}

impl Device {
    pub(super) fn recovered(&self) -> bool {
        lock(&self.device).as_ref().is_some_and(UblkDisk::recovered)
    }

    /// Whether Linux keeps it for another server.
    pub(super) fn outlives(&self) -> bool {
        lock(&self.device).as_ref().is_some_and(UblkDisk::outlives)
    }

    /// `/dev/ublkb0  po2@disk.zbd  1G, 8 zones of 128M`.
    pub(super) fn line(&self) -> String {
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
        } else if is_volatile(&self.spec) {
            line += ", in memory: gone when this process ends";
        }
        line
    }

    /// `ublkb0`.
    pub(super) fn name(&self) -> &str {
        self.path.file_name().and_then(|n| n.to_str()).unwrap_or_default()
    }

    pub(super) fn log_start(&self) {
        let (disk, spec, line) = (self.name(), &*self.spec, self.line());
        if self.recovered() {
            log::info!(event = "takeover", disk, spec; "{line}");
        } else {
            log::info!(event = "disk-start", disk, spec; "{line}");
        }
    }

    /// What it costs that udev watches it, if udev does.
    pub(super) fn watched(&self, end: Instant) -> Option<String> {
        is_watched(&self.path, end).then(|| {
            format!(
                "{} is watched by udev, which reads it through the page cache after each close: writes of io_uring may fail; to end \
                 that: zoneplug serve --udev-rule > /etc/udev/rules.d/61-zoneplug.rules",
                self.path.display()
            )
        })
    }

    /// Whether it has ended by itself.
    pub(super) fn look(&self) -> Result<(), Failure> {
        let device = lock(&self.device);
        let (path, hint) =
            (self.path.display(), "start it again; dmesg has what the kernel says of it");
        match device.as_ref() {
            Some(d) if d.failure().is_some() => {
                let why = d.failure().unwrap_or_default();
                Err(Failure::io(format!("{path}: {why}")).hint(hint))
            }
            Some(d) if !d.is_served() => {
                let what = format!("{path} was stopped from outside");
                Err(Failure::new(Kind::Device, what).hint(hint))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn served(&self) -> Served {
        let device = self.device.clone();
        Served {
            name: self.name().to_owned(),
            spec: self.spec.clone(),
            disk: self.disk.clone(),
            recovered: self.recovered() && self.passed.origin != Origin::TakenBack,
            outlives: self.outlives(),
            counters: Box::new(move || {
                lock(&device).as_ref().map_or_else(ServedCounters::default, UblkDisk::counters)
            }),
            network: None,
            passed: self.passed.clone(),
        }
    }
}
