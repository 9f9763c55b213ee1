//! `zoneplug serve --check-config`: reads flags and file, looks at the disks without opening one for writing, and shows
//! what would be served.

use super::prove;
use super::settings::{BlockDisk, Numbers, Settings};
use crate::failure::Failure;
use crate::json;
use crate::plain::plain;
use serde::Serialize;
use std::io::Write;
use zoneplug_core::zone::Geometry;
use zoneplug_core::{Bytes, Sector};
use zoneplug_host::DiskSpec;
use zoneplug_host::ublk::{self, UblkOptions, slices};

/// A disk that would be served.
#[derive(Debug, Serialize)]
struct Disk {
    spec: String,
    capacity_bytes: u64,
    zones: u32,
    zone_bytes: u64,
    /// As a block device.
    ublk: Option<Block>,
    nvme_tcp: bool,
}

#[derive(Debug, Serialize)]
struct Block {
    /// The number of the first of its devices, if one is wished for.
    id: Option<u32>,
    devices: u32,
    queues: u16,
    depth: u16,
    recovery: bool,
}

/// What would be served.
#[derive(Debug, Serialize)]
struct Checked {
    file: Option<String>,
    disks: Vec<Disk>,
    /// Where disks are served over the network, and by which name.
    addresses: Vec<String>,
    nqn: Option<String>,
}

/// What is known of a disk without writing to it.
fn look(spec: &str, block: Option<&BlockDisk>) -> Result<Geometry, Failure> {
    let device = DiskSpec::parse_to_look(spec)?.device;
    if block.is_some() {
        ublk::check(device.geometry(), device.limits())?;
    }
    Ok(*device.geometry())
}

fn disk(
    settings: &Settings,
    spec: &str,
    block: Option<&BlockDisk>,
    numbers: &mut Numbers,
) -> Result<Disk, Failure> {
    let g = look(spec, block).map_err(|f| settings.of_disk(spec, f))?;
    let block = block.map(|b| {
        let (id, devices) = (numbers.first(b), slices(&g).len() as u32);
        numbers.take(b, devices);
        let queues = b.device.queues.unwrap_or(UblkOptions::default().queues);
        Block { id, devices, queues, depth: b.device.depth, recovery: !b.device.no_recovery }
    });
    Ok(Disk {
        spec: spec.to_owned(),
        capacity_bytes: g.capacity_bytes().0,
        zones: g.nr_zones(),
        zone_bytes: Sector(u64::from(g.zone_sectors())).to_bytes().0,
        ublk: block,
        nvme_tcp: false,
    })
}

fn check(settings: &Settings) -> Result<Checked, Failure> {
    let plan = settings.plan()?;
    settings.access()?;
    if settings.args.takeover {
        // Says what the running server would refuse. That server gets questions only.
        prove::enough(&prove::find(settings, plan.as_ref())?)?;
    }
    let mut numbers = settings.numbers();
    let mut disks = Vec::new();
    for block in &settings.block {
        disks.push(disk(settings, &block.spec, Some(block), &mut numbers)?);
    }
    let (mut addresses, mut nqn) = (Vec::new(), None);
    if let Some(plan) = &plan {
        addresses = plan.addresses();
        nqn = Some(plan.nqn().to_owned());
        for spec in plan.specs() {
            if !disks.iter().any(|d| d.spec == *spec) {
                disks.push(disk(settings, spec, None, &mut numbers)?);
            }
        }
        for d in disks.iter_mut().filter(|d| plan.specs().contains(&d.spec)) {
            d.nvme_tcp = true;
        }
    }
    let file = settings.file.as_ref().map(|f| f.display().to_string());
    Ok(Checked { file, disks, addresses, nqn })
}

impl Block {
    /// `/dev/ublkb3, 2 queues of 128 requests`.
    fn shown(&self) -> String {
        let name = self
            .id
            .map_or_else(|| "the next free /dev/ublkbN".to_owned(), |id| format!("/dev/ublkb{id}"));
        let devices = if self.devices > 1 {
            format!(" and {} more", self.devices - 1)
        } else {
            String::new()
        };
        let kept = if self.recovery { "" } else { ", gone if the server dies" };
        let queues = if self.queues == 1 { "queue" } else { "queues" };
        format!("{name}{devices}, {} {queues} of {} requests{kept}", self.queues, self.depth)
    }
}

impl Disk {
    fn print(&self, out: &mut dyn Write) -> std::io::Result<()> {
        let (size, zone) = (Bytes(self.capacity_bytes), Bytes(self.zone_bytes));
        writeln!(out, "{}  {size}, {} zones of {zone}", plain(&self.spec), self.zones)?;
        if let Some(block) = &self.ublk {
            writeln!(out, "  as {}", block.shown())?;
        }
        if self.nvme_tcp {
            writeln!(out, "  over NVMe/TCP")?;
        }
        Ok(())
    }
}

/// Checks, and shows what would be served.
pub(super) fn run(settings: &Settings, out: &mut dyn Write) -> Result<(), Failure> {
    let checked = check(settings)?;
    if settings.args.json {
        return json::print(out, &checked);
    }
    if checked.disks.is_empty() {
        return Err(Failure::usage("no disk is named")
            .hint("--check-config FILE, or the flags that zoneplug serve is to be given"));
    }
    for disk in &checked.disks {
        disk.print(out)?;
    }
    for address in &checked.addresses {
        writeln!(out, "{address}  {}", plain(checked.nqn.as_deref().unwrap_or_default()))?;
    }
    Ok(writeln!(out, "nothing is wrong")?)
}
