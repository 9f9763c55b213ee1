//! The server as hosts see it: its namespaces with their numbers and identifiers, its longest append, and whether
//! hosts authenticate. A server that takes over shows the same, or does not take over.

use super::NvmeTcpOptions;
use super::admission::admitted;
use crate::DiskMark;
use crate::served::identity::{new_uuid, uuid_of};
use zoneplug_core::Error;
use zoneplug_core::zone::{Geometry, Limits};
use zoneplug_nvme::target::{Namespace, Nqn, SubsystemConfig, Target};

/// The numbers and identifier by which hosts know a disk from the last server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownDisk {
    /// The numbers of its namespaces.
    pub nsids: Vec<u32>,
    /// The identifier of the disk. Those of its namespaces are derived from it.
    pub uuid: [u8; 16],
    /// Whether hosts see the disk.
    pub enabled: bool,
}

impl KnownDisk {
    /// A disk in memory whose data was lost with its last server. It keeps the numbers of its namespaces, and gets
    /// another identifier, so that hosts see that it is another disk.
    pub fn lost(nsids: Vec<u32>) -> KnownDisk {
        KnownDisk { nsids, uuid: new_uuid(), enabled: true }
    }
}

/// The properties of a disk that hosts can see.
#[derive(Debug, Clone)]
pub struct DiskShape {
    /// The mark by which servers compare the disk. Its identifier is derived from this and the name of the subsystem.
    /// `None`: the disk is in memory and ends with its server, so each server gives it another identifier.
    pub mark: Option<DiskMark>,
    /// The numbers and identifier that hosts know already, if any.
    pub known: Option<KnownDisk>,
    /// Its geometry.
    pub geometry: Geometry,
    /// Its limits.
    pub limits: Limits,
}

/// A namespace that hosts see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownNamespace {
    /// Its number.
    pub nsid: u32,
    /// The index of its disk among those of the server.
    pub disk: usize,
    /// Its identifier.
    pub uuid: [u8; 16],
    /// Bytes of a block.
    pub block_bytes: u32,
    /// The number of blocks.
    pub blocks: u64,
    /// Blocks of a zone; `None` if it is not zoned.
    pub zone_blocks: Option<u64>,
    /// A hash of everything that hosts read of the namespace except its identifier.
    pub digest: u64,
}

/// A subsystem that hosts see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownSubsystem {
    /// The namespaces, in ascending order.
    pub namespaces: Vec<ShownNamespace>,
    /// The longest append (ZASL).
    pub append_limit: u8,
    /// The identifier of each disk.
    pub uuids: Vec<[u8; 16]>,
}

impl ShownSubsystem {
    /// The numbers and identifier of a disk, by its index. `None`: hosts do not see it.
    pub fn known(&self, disk: usize) -> Option<KnownDisk> {
        let own = self.namespaces.iter().filter(|n| n.disk == disk);
        let nsids = own.map(|n| n.nsid).collect();
        Some(KnownDisk { nsids, uuid: *self.uuids.get(disk)?, enabled: true })
    }
}

/// Makes the subsystem with the namespaces of `disks`. Namespaces that hosts know keep their numbers; others get
/// numbers above these and above [`NvmeTcpOptions::last_nsid`].
pub(super) fn subsystem(
    target: &mut Target,
    options: &NvmeTcpOptions,
    disks: &[DiskShape],
) -> Result<ShownSubsystem, Error> {
    let (hosts, keys) = admitted(options)?;
    let nqn = Nqn::new(&options.nqn)?;
    let last_nsid = options.last_nsid;
    let usual = SubsystemConfig::new(nqn.clone());
    target.add_subsystem(SubsystemConfig { hosts, keys, last_nsid, ..usual })?;
    let uuid = |n: usize, d: &DiskShape| match (&d.known, d.mark) {
        (Some(known), _) => known.uuid,
        (None, Some(mark)) => {
            let same = |other: &&DiskShape| {
                other.mark.is_some_and(|o| (o.disks, o.layers) == (mark.disks, mark.layers))
            };
            uuid_of(nqn.as_str(), mark, disks[..n].iter().filter(same).count())
        }
        (None, None) => new_uuid(),
    };
    let uuids: Vec<[u8; 16]> = disks.iter().enumerate().map(|(n, d)| uuid(n, d)).collect();
    let all = || disks.iter().zip(&uuids).enumerate();
    let of = |(n, (d, uuid)): (usize, (&DiskShape, &[u8; 16]))| {
        Namespace::of(n as u32, *uuid, &d.geometry, &d.limits)
    };
    for one in all().filter(|(_, (d, _))| d.known.is_some()) {
        let nsids = one.1.0.known.as_ref().map_or(&[][..], |known| &known.nsids);
        target.add_known_namespaces(&nqn, of(one)?, nsids)?;
    }
    for one in all().filter(|(_, (d, _))| d.known.is_none()) {
        target.add_namespaces(&nqn, of(one)?)?;
    }
    let shown = |(nsid, n): (u32, &Namespace)| ShownNamespace {
        nsid,
        disk: n.disk() as usize,
        uuid: n.uuid(),
        block_bytes: n.block_bytes(),
        blocks: n.blocks(),
        zone_blocks: n.zone_blocks(),
        digest: n.digest(),
    };
    let namespaces = target.namespaces(&nqn);
    let mut namespaces: Vec<_> = namespaces.iter().flat_map(|all| all.iter()).map(shown).collect();
    namespaces.sort_by_key(|n| n.nsid);
    Ok(ShownSubsystem { namespaces, append_limit: target.append_limit(&nqn), uuids })
}

impl NvmeTcpOptions {
    /// The subsystem that a server with these options would show of these disks, without serving them.
    ///
    /// ```
    /// use zoneplug_core::zone::{Geometry, Limits};
    /// use zoneplug_host::{DiskMark, Specification};
    /// use zoneplug_host::nvme_tcp::{DiskShape, NvmeTcpOptions};
    /// let options = NvmeTcpOptions::new("127.0.0.1:4420".parse()?, "nqn.2026-11.dev.zoneplug:example");
    /// let geometry = Geometry::new(8, 0x8000, 0x8000)?;
    /// let disk = |spec: &str| DiskShape {
    ///     mark: Some(DiskMark::of(&Specification::parse(spec).unwrap())),
    ///     known: None,
    ///     geometry,
    ///     limits: Limits::default(),
    /// };
    /// let before = options.would_show(&[disk("a.zbd"), disk("b.zbd")])?;
    /// let known = |n, spec| DiskShape { known: before.known(n), ..disk(spec) };
    /// let after = options.would_show(&[disk("new.zbd"), known(1, "b.zbd"), known(0, "./a.zbd")])?;
    /// let disks: Vec<_> = after.namespaces.iter().map(|n| (n.nsid, n.disk)).collect();
    /// assert_eq!(disks, [(1, 2), (2, 1), (3, 0)], "a number stays with its disk");
    /// assert_eq!(after.namespaces[0].uuid, before.namespaces[0].uuid);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// A disk cannot be shown, or another disk has its known numbers.
    pub fn would_show(&self, disks: &[DiskShape]) -> Result<ShownSubsystem, Error> {
        subsystem(&mut Target::new(Vec::new()), self, disks)
    }
}

/// Checks that a disk can be shown as namespaces. Opens nothing.
pub fn check(g: &Geometry, limits: &Limits) -> Result<(), Error> {
    Namespace::of(0, [0; 16], g, limits).map(drop)
}

/// Why Linux makes no block device of a namespace of a disk, if so. Hosts have its character device in any case.
pub fn refused_by_linux(g: &Geometry, limits: &Limits) -> Option<Error> {
    Namespace::of(0, [0; 16], g, limits).ok()?.iter().find_map(Namespace::refused_by_linux)
}
