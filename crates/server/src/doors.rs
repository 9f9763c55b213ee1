//! The doors. Only these files know a protocol.

pub mod iscsi;
pub mod nvme_tcp;
pub mod ublk;

use crate::once::{self, FileOrder, NamedAddress};
use nvme_tcp::Plan;
use std::collections::HashSet;
use ublk::{BlockDisk, Numbers, Planned};
use zoneplug_control::Failure;
use zoneplug_control::client::KnownHostShown;
use zoneplug_core::zone::ZoneMemory;
use zoneplug_core::{Device, Error};
use zoneplug_host::nvme_tcp::KnownClient;
use zoneplug_host::{MemoryLimits, Specification};

/// The plans of the doors of the network.
#[derive(Debug, Clone, Default)]
pub struct NetworkPlans {
    /// The namespaces of NVMe/TCP.
    pub nvme_tcp: Option<Plan>,
    /// The units of iSCSI.
    pub iscsi: Option<iscsi::Plan>,
}

impl NetworkPlans {
    /// The addresses of all doors, each with the name of its door.
    pub fn addresses(&self) -> impl Iterator<Item = NamedAddress<'static>> {
        let named = |key| move |address| NamedAddress { key, address };
        let namespaces = self.nvme_tcp.iter().flat_map(Plan::addresses).map(named("nvme-tcp"));
        let units = self.iscsi.iter().flat_map(iscsi::Plan::addresses).map(named("iscsi"));
        namespaces.chain(units)
    }
}

/// Plans the block devices, the namespaces and the units, without opening a disk for writing. Refuses disks that exclude each other, and
/// disks that their door cannot show.
pub fn planned(
    blocks: &[BlockDisk],
    numbers: Numbers,
    network: &NetworkPlans,
    order: &FileOrder<'_>,
) -> Result<Vec<Planned>, Failure> {
    let specs = [
        blocks.iter().map(|disk| &disk.spec).collect(),
        network.nvme_tcp.iter().flat_map(|plan| plan.specs()).collect(),
        network.iscsi.iter().flat_map(|plan| plan.specs()).collect(),
    ];
    once::disks(&specs, order).map_err(|(spec, f)| f.of_disk(spec))?;
    let mut looks = Looks::new();
    let planned = ublk::planned(blocks, numbers, order, &mut looks)?;
    network.nvme_tcp.as_ref().map_or(Ok(()), |plan| plan.check_disks(&mut looks))?;
    network.iscsi.as_ref().map_or(Ok(()), |plan| plan.check_disks(&mut looks))?;
    Ok(planned)
}

/// Opens the disks of a server to look at them, and refuses disks whose zones together take more memory than there is.
struct Looks {
    /// The memory that was left before the first disk was opened.
    memory: MemoryLimits,
    /// The disks that are counted. Several doors may have one.
    seen: HashSet<String>,
    /// The zones of these disks, without what a device keeps of them.
    zones: ZoneMemory,
}

impl Looks {
    fn new() -> Looks {
        Looks { memory: MemoryLimits::now(), seen: HashSet::new(), zones: ZoneMemory::default() }
    }

    /// Opens a disk, which is closed again at the end of `check`. Each failure names the disk.
    fn at<R>(
        &mut self,
        spec: &Specification,
        check: impl FnOnce(&dyn Device) -> Result<R, Error>,
    ) -> Result<R, Failure> {
        let looked = spec.open_to_look().and_then(|look| {
            if self.seen.insert(spec.to_string()) {
                self.zones = self.zones.and(look.device.geometry().memory());
                self.memory.check(self.zones)?;
            }
            check(&*look.device)
        });
        looked.map_err(|e| Failure::from(e).of_disk(spec))
    }
}

/// A client for which a server reserves places, as the record for the next server has it.
fn known_client(k: KnownClient) -> KnownHostShown {
    KnownHostShown { nqn: k.name, address: k.address.to_string() }
}

/// The client of such a record. `None`: its address is invalid.
fn known_client_of(k: &KnownHostShown) -> Option<KnownClient> {
    Some(KnownClient { name: k.nqn.clone(), address: k.address.parse().ok()? })
}
