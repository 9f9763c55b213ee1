//! `zoneplug serve --check-config`: reads flags and file, looks at the disks without opening one for writing, and shows
//! what would be served.

use super::settings::{ClientAccess, Settings};
use super::{config, planned, requested};
use crate::failure::Failure;
use crate::{json, term};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::{ErrorKind, Write};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use zoneplug_core::plain;
use zoneplug_core::zone::Geometry;
use zoneplug_core::{Bytes, Sector};
use zoneplug_host::Specification;
use zoneplug_host::nvme_tcp::refused_by_linux;
use zoneplug_host::ublk::{UblkOptions, slices};
use zoneplug_server::doors::iscsi;
use zoneplug_server::doors::nvme_tcp::Plan;
use zoneplug_server::doors::ublk::Planned;
use zoneplug_server::{Access, check};

/// A disk that would be served.
#[derive(Debug, Serialize)]
struct Disk {
    spec: String,
    capacity_bytes: u64,
    zones: u32,
    zone_bytes: u64,
    /// How the disk would be served as a block device, if it would be.
    ublk: Option<Block>,
    nvme_tcp: bool,
    iscsi: bool,
    /// Why Linux makes no block device of its namespace. `None`: Linux makes one, or the disk is not served over NVMe/TCP.
    refused_by_linux: Option<String>,
}

#[derive(Debug, Serialize)]
struct Block {
    /// The number of its first device, if one is requested.
    id: Option<u32>,
    devices: u32,
    queues: u16,
    depth: u16,
    recovery: bool,
}

/// The result of the check.
#[derive(Debug, Serialize)]
struct Checked {
    file: Option<String>,
    disks: Vec<Disk>,
    /// The addresses of the NVMe/TCP server.
    addresses: Vec<String>,
    /// The NVMe name (NQN) of the NVMe/TCP server.
    nqn: Option<String>,
    /// The addresses of the iSCSI target, and its name.
    iscsi_addresses: Vec<String>,
    iqn: Option<String>,
}

/// A disk with this geometry that is served neither as a block device nor over the network yet.
fn disk(spec: &str, g: &Geometry) -> Disk {
    Disk {
        spec: spec.to_owned(),
        capacity_bytes: g.capacity_bytes().0,
        zones: g.nr_zones(),
        zone_bytes: Sector(u64::from(g.zone_sectors())).to_bytes().0,
        ublk: None,
        nvme_tcp: false,
        iscsi: false,
        refused_by_linux: None,
    }
}

/// A disk that would be served as a block device.
fn block_disk(planned: &Planned) -> Disk {
    let device = &planned.of.device;
    let block = Block {
        id: planned.id,
        devices: slices(&planned.geometry).len() as u32,
        queues: device.queues.unwrap_or(UblkOptions::default().queues),
        depth: device.depth,
        recovery: !device.no_recovery,
    };
    Disk { ublk: Some(block), ..disk(&planned.of.spec, &planned.geometry) }
}

/// Whether no interface has this address now. Binding a socket to any free port shows that and keeps no port in use.
fn no_interface_has(ip: IpAddr) -> bool {
    UdpSocket::bind((ip, 0)).is_err_and(|e| e.kind() == ErrorKind::AddrNotAvailable)
}

fn checked(settings: &Settings) -> Result<Checked, Failure> {
    let ClientAccess { plans, metrics_at, .. } = settings.client_access()?;
    for at in plans.addresses().map(|named| named.address).chain(metrics_at) {
        // An interface may get its address before the server starts.
        if no_interface_has(at.ip()) {
            let what = "no interface of this machine has that address now";
            term::note(&format!("{at}: {what}: a start fails until one has it"));
        }
    }
    let args = &settings.args;
    let blocks = planned(settings, &plans)?;
    let mut disks: Vec<Disk> = blocks.iter().map(block_disk).collect();
    let mut doors = requested(args, None, blocks, plans.clone());
    check(&config(args, Access::default(), None), &mut doors)?;
    let mut known: BTreeMap<String, usize> =
        disks.iter().enumerate().map(|(n, d)| (d.spec.clone(), n)).collect();
    // The place of a disk in the list, to which it is added if need be.
    let mut place = |disks: &mut Vec<Disk>, spec: &Specification| -> Result<usize, Failure> {
        let next = disks.len();
        let n = *known.entry(spec.to_string()).or_insert(next);
        if n == next {
            let look = spec.open_to_look().map_err(|e| Failure::from(e).of_disk(spec))?;
            disks.push(disk(spec, look.device.geometry()));
        }
        Ok(n)
    };
    for spec in plans.nvme_tcp.iter().flat_map(|plan| plan.specs()) {
        let n = place(&mut disks, spec)?;
        let look = spec.open_to_look().map_err(|e| Failure::from(e).of_disk(spec))?;
        let (g, limits) = (look.device.geometry(), look.device.limits());
        disks[n].refused_by_linux = refused_by_linux(g, limits).map(|e| e.to_string());
        disks[n].nvme_tcp = true;
    }
    for spec in plans.iscsi.iter().flat_map(|plan| plan.specs()) {
        let n = place(&mut disks, spec)?;
        disks[n].iscsi = true;
    }
    let text = |at: SocketAddr| at.to_string();
    let (network, scsi) = (plans.nvme_tcp.as_ref(), plans.iscsi.as_ref());
    Ok(Checked {
        file: settings.file.as_ref().map(|f| f.display().to_string()),
        disks,
        addresses: network.into_iter().flat_map(Plan::addresses).map(text).collect(),
        nqn: network.map(|plan| plan.nqn().to_owned()),
        iscsi_addresses: scsi.into_iter().flat_map(iscsi::Plan::addresses).map(text).collect(),
        iqn: scsi.map(|plan| plan.target().to_owned()),
    })
}

impl Block {
    /// Describes the block device: `/dev/ublkb3, 2 queues of 128 requests`.
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
        if self.iscsi {
            writeln!(out, "  over iSCSI")?;
        }
        if let Some(why) = &self.refused_by_linux {
            writeln!(out, "  Linux makes no block device of it: {}", plain(why))?;
        }
        Ok(())
    }
}

/// Checks the settings, and shows what a server would serve.
pub(super) fn run(settings: &Settings, out: &mut dyn Write) -> Result<(), Failure> {
    let checked = checked(settings)?;
    if settings.args.json {
        return json::print(out, &checked);
    }
    for disk in &checked.disks {
        disk.print(out)?;
    }
    for address in &checked.addresses {
        writeln!(out, "{address}  {}", plain(checked.nqn.as_deref().unwrap_or_default()))?;
    }
    for address in &checked.iscsi_addresses {
        writeln!(out, "{address}  {}", plain(checked.iqn.as_deref().unwrap_or_default()))?;
    }
    Ok(writeln!(out, "no errors")?)
}
