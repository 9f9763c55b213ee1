//! Namespaces that represent a disk.

use crate::spec::identify::{
    IdentifyNamespace, IdentifyNamespaceIndependent, IdentifyNamespaceZoned, LbaFormat, NO_LIMIT,
    NamespaceId, ZonedLbaFormat, csi, encode_namespace_ids,
};
use zoneplug_core::zone::{Geometry, Limits};
use zoneplug_core::{Error, ErrorKind, FNV_START, Sector, ZoneNo, fnv1a};

/// NSFEAT of Independent Identify Namespace (Base 2.1): the medium turns.
const ROTATIONAL: u8 = 1 << 4;
/// NSFEAT of Independent Identify Namespace: no volatile write cache, whatever the controller says.
const NO_WRITE_CACHE: u8 = 1 << 5;
/// The endurance group of media that do not turn. A controller with rotational media must have endurance groups, and
/// all namespaces of a group have the same kind of media (Base Specification, *Rotational Media*).
pub(super) const STILL_GROUP: u16 = 1;
/// The endurance group of media that turn, and the highest number of a group.
pub(super) const ROTATIONAL_GROUP: u16 = 2;
/// Largest logical block, in sectors: a page.
const MAX_BLOCK_SECTORS: u32 = 4096 >> 9;

/// Most namespaces of a subsystem at a time (MNAN). A list of them fits a structure of Identify.
pub(super) const MAX_NAMESPACES: u32 = 1024;
/// The highest number of a namespace (NN).
pub(super) const LAST_NSID: u32 = MAX_NAMESPACES << 10;
/// The shortest limit of appends that ZASL can express. One page would be 0, which means no limit but MDTS.
const MIN_APPEND_BYTES: u32 = 8192;

/// A namespace: a range of a disk's zones, either all sequential (Zoned Namespace Command Set) or all conventional (NVM
/// Command Set).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Namespace {
    disk: u32,
    uuid: [u8; 16],
    start: Sector,
    sectors: u64,
    /// log2 of the sectors of a block.
    shift: u8,
    zones: Option<Zones>,
    write_cache: bool,
    rotational: bool,
    read_only: bool,
    discard: bool,
    write_zeroes: bool,
}

/// The zones of a zoned namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Zones {
    /// The zones, from sector 0 of the namespace on. Their capacities are not kept here.
    pub(super) layout: Geometry,
    /// Sectors of the longest append.
    pub(super) append_sectors: u32,
    /// Whether these are all sequential zones of the disk.
    pub(super) all: bool,
    /// Writable sectors of all zones together.
    capacity_sectors: u64,
    max_open: u32,
    max_active: u32,
}

impl Namespace {
    /// Makes the namespaces of a disk: a conventional one if the disk begins with conventional zones, and a zoned
    /// one. `disk` is the caller's number of the disk, which each request contains. `uuid` identifies the disk for
    /// ever; the conventional namespace's UUID differs in its eleventh byte. A last zone that is shorter than the
    /// others is not shown (J3).
    ///
    /// Fails with [`ErrorKind::NotSupported`] if namespaces cannot describe the disk.
    ///
    /// ```
    /// use zoneplug_core::ZoneNo;
    /// use zoneplug_core::zone::{Geometry, Limits};
    /// use zoneplug_nvme::target::Namespace;
    /// let g = Geometry::new(8, 0x8000, 0x8000)?.with_conventional([ZoneNo(0)])?;
    /// let all = Namespace::of(0, [7; 16], &g, &Limits::default())?;
    /// let zoned: Vec<bool> = all.iter().map(|n| n.is_zoned()).collect();
    /// assert_eq!(zoned, [false, true]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn of(
        disk: u32,
        uuid: [u8; 16],
        g: &Geometry,
        limits: &Limits,
    ) -> Result<Vec<Namespace>, Error> {
        let refused = |what: String, hint: &'static str| {
            Err(Error::new(ErrorKind::NotSupported, what).hint(hint))
        };
        let size = |sectors: u32| Sector(u64::from(sectors)).to_bytes();
        // NVMe has no write granularity, so the larger of granularity and block is shown as the block size.
        let block = limits.logical_block_sectors.max(limits.write_granularity_sectors);
        if block > MAX_BLOCK_SECTORS {
            return refused(
                format!(
                    "a namespace has blocks of up to 4K, and this disk is written in {}",
                    size(block)
                ),
                "another disk; zoneplug info shows the write granularity",
            );
        }
        let conventional = g.nr_conventional();
        if !(0..conventional).all(|z| g.is_conventional(ZoneNo(z))) {
            return refused(
                "a zoned namespace has no conventional zones, and this disk has some behind sequential ones".to_owned(),
                "a disk with its conventional zones at the start is shown as two namespaces",
            );
        }
        let zone_sectors = g.zone_sectors();
        let whole = (g.capacity().0 / u64::from(zone_sectors)) as u32;
        if whole <= conventional {
            return refused(
                "no whole sequential zone".to_owned(),
                "a disk with more zones; a shorter last one is not shown",
            );
        }
        if conventional > 0 && g.conventional_capacity_sectors() < zone_sectors {
            return refused(
                format!(
                    "a namespace has no gaps, and of conventional zones {} of {} are usable",
                    size(g.conventional_capacity_sectors()),
                    size(zone_sectors)
                ),
                "leave them out: linear,first=N@SPEC",
            );
        }
        let last_capacity = g.capacity_of(ZoneNo(whole - 1));
        let capacity =
            if whole - conventional == 1 { last_capacity } else { g.zone_capacity_sectors() };
        if [zone_sectors, capacity, last_capacity].iter().any(|n| n % block != 0) {
            return refused(
                format!(
                    "zones of {} of {} in blocks of {}",
                    size(capacity),
                    size(zone_sectors),
                    size(block)
                ),
                "the zone size and the capacity must be multiples of the block",
            );
        }
        let append_sectors = limits.visible_append_sectors(zone_sectors) / block * block;
        if append_sectors < MIN_APPEND_BYTES >> 9 {
            return refused(
                format!(
                    "a zoned namespace takes appends of 8K and more, and this disk of {}",
                    size(append_sectors)
                ),
                "another disk; zoneplug info shows the longest append",
            );
        }
        let common = Namespace {
            disk,
            uuid,
            start: g.zone_start(ZoneNo(conventional)),
            sectors: u64::from(whole - conventional) * u64::from(zone_sectors),
            shift: block.trailing_zeros() as u8,
            zones: None,
            write_cache: limits.write_cache,
            rotational: limits.rotational,
            read_only: limits.read_only,
            discard: false,
            write_zeroes: limits.write_zeroes_sectors() > 0,
        };
        let count = whole - conventional;
        let layout = Geometry::new(u64::from(count), zone_sectors, zone_sectors);
        let layout = layout.map_err(|e| Error::invalid(e.to_string()))?;
        // A limit that cannot be reached is shown as none. Open zones are active, so without a limit of its own MOR
        // equals MAR.
        let limit = |n: u32| if n >= count { 0 } else { n };
        let max_active = limit(limits.max_active_zones);
        let max_open = match limit(limits.max_open_zones) {
            0 => max_active,
            n => n,
        };
        let zones = Zones {
            layout,
            append_sectors,
            all: whole == g.nr_zones(),
            capacity_sectors: u64::from(count - 1) * u64::from(capacity) + u64::from(last_capacity),
            max_open,
            max_active,
        };
        let mut namespaces = Vec::new();
        if conventional > 0 {
            let mut uuid = uuid;
            uuid[10] ^= 0xff;
            namespaces.push(Namespace {
                uuid,
                start: Sector(0),
                sectors: common.start.0,
                discard: limits.discard,
                ..common
            });
        }
        namespaces.push(Namespace { zones: Some(zones), ..common });
        Ok(namespaces)
    }

    /// Returns the caller's number of the disk.
    pub fn disk(&self) -> u32 {
        self.disk
    }

    /// Returns whether the namespace belongs to the Zoned Namespace Command Set.
    pub fn is_zoned(&self) -> bool {
        self.zones.is_some()
    }

    /// Returns the identifier by which hosts know the namespace.
    pub fn uuid(&self) -> [u8; 16] {
        self.uuid
    }

    /// Returns the blocks of a zone; `None` if the namespace is not zoned.
    pub fn zone_blocks(&self) -> Option<u64> {
        Some(u64::from(self.zones?.layout.zone_sectors()) >> self.shift)
    }

    /// Returns a number that is equal for namespaces whose structures look the same to a host, apart from the
    /// identifier. The kind of medium, and so the endurance group, does not count: hosts do not depend on it, and
    /// servers of earlier versions did not report it.
    pub fn digest(&self) -> u64 {
        let still = Namespace { rotational: false, ..*self };
        let common = IdentifyNamespace { endgid: 0, ..still.identify() }.encode();
        let independent = still.identify_independent();
        let independent = IdentifyNamespaceIndependent { endgid: 0, ..independent }.encode();
        let zoned = self.identify_zoned().map(|z| z.encode());
        let bytes = common.iter().chain(&independent).chain(zoned.iter().flatten());
        fnv1a(FNV_START, bytes.copied())
    }

    /// Returns the bytes of a logical block.
    pub fn block_bytes(&self) -> u32 {
        512 << self.shift
    }

    /// Returns the size in blocks.
    pub fn blocks(&self) -> u64 {
        self.sectors >> self.shift
    }

    /// Returns why Linux makes no block device of this namespace, and what helps. The character device works in any
    /// case.
    pub fn refused_by_linux(&self) -> Option<Error> {
        let zone_sectors = self.zones?.layout.zone_sectors();
        if zone_sectors.is_power_of_two() {
            return None;
        }
        let bytes = Sector(u64::from(zone_sectors)).to_bytes();
        let what = format!("Linux takes zones of a power of two, and these have {bytes}");
        Some(
            Error::new(ErrorKind::NotSupported, what)
                .hint("put the layer for that on the disk: po2@SPEC"),
        )
    }

    pub(super) fn csi(&self) -> u8 {
        if self.is_zoned() { csi::ZONED } else { csi::NVM }
    }

    pub(super) fn zones(&self) -> Option<&Zones> {
        self.zones.as_ref()
    }

    pub(super) fn start(&self) -> Sector {
        self.start
    }

    pub(super) fn shift(&self) -> u32 {
        u32::from(self.shift)
    }

    pub(super) fn can_discard(&self) -> bool {
        self.discard
    }

    pub(super) fn can_write_zeroes(&self) -> bool {
        self.write_zeroes
    }

    fn endurance_group(&self) -> u16 {
        if self.rotational { ROTATIONAL_GROUP } else { STILL_GROUP }
    }

    /// Returns Identify Namespace (CNS 00h).
    pub(super) fn identify(&self) -> IdentifyNamespace {
        let capacity = self.zones.map_or(self.sectors, |z| z.capacity_sectors) >> self.shift;
        let mut id = IdentifyNamespace {
            nsze: self.blocks(),
            ncap: capacity,
            nuse: capacity,
            nsattr: u8::from(self.read_only),
            endgid: self.endurance_group(),
            ..Default::default()
        };
        id.lbaf[0] = LbaFormat { lbads: 9 + self.shift, ..Default::default() };
        id
    }

    /// Returns Identify Namespace of the Zoned Namespace Command Set (CNS 05h).
    pub(super) fn identify_zoned(&self) -> Option<IdentifyNamespaceZoned> {
        let zones = self.zones?;
        // MAR and MOR are one less than the limit.
        let limit = |n: u32| if n == 0 { NO_LIMIT } else { n - 1 };
        let mut id = IdentifyNamespaceZoned {
            // Reads may cross zones.
            ozcs: 1,
            mar: limit(zones.max_active),
            mor: limit(zones.max_open),
            ..Default::default()
        };
        id.lbafe[0] =
            ZonedLbaFormat { zsze: u64::from(zones.layout.zone_sectors()) >> self.shift, zdes: 0 };
        Some(id)
    }

    /// Returns I/O Command Set Independent Identify Namespace (CNS 08h).
    pub(super) fn identify_independent(&self) -> IdentifyNamespaceIndependent {
        IdentifyNamespaceIndependent {
            nsfeat: if self.write_cache { 0 } else { NO_WRITE_CACHE }
                | if self.rotational { ROTATIONAL } else { 0 },
            nsattr: u8::from(self.read_only),
            endgid: self.endurance_group(),
            nstat: 1,
            ..Default::default()
        }
    }

    /// Returns Namespace Identification Descriptors (CNS 03h).
    pub(super) fn descriptors(&self) -> [u8; 4096] {
        encode_namespace_ids(&[NamespaceId::Uuid(self.uuid), NamespaceId::Csi(self.csi())])
    }
}

/// A namespace and its number, which stays while the namespace is hidden.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Slot {
    nsid: u32,
    enabled: bool,
    namespace: Namespace,
}

/// The namespaces that a controller shows. A list never changes; a new list replaces it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Namespaces {
    /// The namespaces, each at the index of its number, less one, modulo [`MAX_NAMESPACES`].
    slots: Vec<Option<Slot>>,
    /// Most bytes of a command (MDTS).
    max_data: u32,
    /// Whether hosts must send I/O to another port.
    inaccessible: bool,
}

impl Namespaces {
    pub(super) fn new(max_data: u32) -> Namespaces {
        Namespaces { slots: Vec::new(), max_data, inaccessible: false }
    }

    /// Returns the namespace with this number.
    pub fn get(&self, nsid: u32) -> Option<&Namespace> {
        let place = nsid.checked_sub(1)? % MAX_NAMESPACES;
        match self.slots.get(place as usize)? {
            Some(slot) if slot.nsid == nsid && slot.enabled => Some(&slot.namespace),
            _ => None,
        }
    }

    /// Returns all namespaces with their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Namespace)> {
        self.slots.iter().flatten().filter(|s| s.enabled).map(|s| (s.nsid, &s.namespace))
    }

    /// Returns the most bytes of a command's data.
    pub fn max_data(&self) -> u32 {
        self.max_data
    }

    /// Adds a namespace under the first number after `last` that is free and whose slot is free. Returns `None` if
    /// all slots are taken.
    pub(super) fn add(&mut self, namespace: Namespace, last: u32) -> Option<u32> {
        let after = |n: u32| if n >= LAST_NSID { 1 } else { n + 1 };
        let mut nsid = last;
        for _ in 0..MAX_NAMESPACES {
            nsid = after(nsid);
            let place = ((nsid - 1) % MAX_NAMESPACES) as usize;
            if self.slots.len() <= place {
                self.slots.resize(place + 1, None);
            }
            if self.slots[place].is_none() {
                self.slots[place] = Some(Slot { nsid, enabled: true, namespace });
                return Some(nsid);
            }
        }
        None
    }

    /// Adds a namespace under a number that it had before. Returns false if another namespace has that number or its
    /// slot.
    pub(super) fn put(&mut self, namespace: Namespace, nsid: u32) -> bool {
        let Some(n) = nsid.checked_sub(1).filter(|_| nsid <= LAST_NSID) else { return false };
        let place = (n % MAX_NAMESPACES) as usize;
        if self.slots.len() <= place {
            self.slots.resize(place + 1, None);
        }
        let is_free = self.slots[place].is_none();
        if is_free {
            self.slots[place] = Some(Slot { nsid, enabled: true, namespace });
        }
        is_free
    }

    /// Removes the namespaces of a disk and returns their numbers.
    pub(super) fn remove(&mut self, disk: u32) -> Vec<u32> {
        let mut gone = Vec::new();
        for slot in &mut self.slots {
            if let Some(slot) = slot.take_if(|s| s.namespace.disk == disk) {
                gone.push(slot.nsid);
            }
        }
        gone
    }

    /// Shows or hides the namespaces of a disk and returns the numbers of those that change.
    pub(super) fn enable(&mut self, disk: u32, enabled: bool) -> Vec<u32> {
        let slots = self.slots.iter_mut().flatten();
        let changed = slots.filter(|s| s.namespace.disk == disk && s.enabled != enabled);
        changed
            .map(|s| {
                s.enabled = enabled;
                s.nsid
            })
            .collect()
    }

    /// Returns only the namespaces of the NVM Command Set, for a host that has not enabled the others.
    pub(super) fn nvm_only(&self) -> Namespaces {
        let keep = |slot: &Option<Slot>| slot.filter(|s| !s.namespace.is_zoned());
        Namespaces { slots: self.slots.iter().map(keep).collect(), ..*self }
    }

    /// Returns the same namespaces for a port that does not take I/O.
    pub(super) fn without_access(self) -> Namespaces {
        Namespaces { inaccessible: true, ..self }
    }

    /// Returns whether hosts must send I/O to another port.
    pub(crate) fn are_inaccessible(&self) -> bool {
        self.inaccessible
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(g: &Geometry, l: &Limits) -> Result<Vec<Namespace>, Error> {
        Namespace::of(5, [1; 16], g, l)
    }

    /// J3. A disk of sequential zones is one namespace.
    #[test]
    fn a_disk_of_sequential_zones_is_one_namespace() {
        let g = Geometry::new(8, 0x8000, 0x6000).unwrap();
        let l = Limits {
            max_open_zones: 3,
            max_active_zones: 8,
            write_cache: true,
            ..Limits::default()
        };
        let all = of(&g, &l).unwrap();
        let [n] = &all[..] else { panic!("{all:?}") };
        let (id, zoned) = (n.identify(), n.identify_zoned().unwrap());
        assert_eq!((id.nsze, id.ncap, id.lbaf[0].lbads), (8 * 0x1000, 8 * 0xc00, 12));
        assert_eq!((zoned.mor, zoned.mar, zoned.lbafe[0].zsze), (2, NO_LIMIT, 0x1000));
        let active = Limits { max_active_zones: 5, ..Limits::default() };
        let zoned = of(&g, &active).unwrap()[0].identify_zoned().unwrap();
        assert_eq!((zoned.mor, zoned.mar), (4, 4), "an open zone is active");
        assert_eq!((n.disk(), n.csi(), n.start()), (5, csi::ZONED, Sector(0)));
        assert!(n.refused_by_linux().is_none());
    }

    /// A server takes over from one that did not report whether the medium turns.
    #[test]
    fn a_medium_that_turns_is_no_other_disk() {
        let g = Geometry::new(8, 0x8000, 0x8000).unwrap();
        let still = Limits { write_cache: true, ..Limits::default() };
        let digest = |l: &Limits| of(&g, l).unwrap()[0].digest();
        assert_eq!(digest(&Limits { rotational: true, ..still.clone() }), digest(&still));
        assert_ne!(digest(&Limits { write_cache: false, ..still.clone() }), digest(&still));
        // Other versions of the server keep this number in their notes.
        assert_eq!(digest(&still), 7_182_351_100_350_915_313);
    }

    /// J3: the granularity is the block size; the last zone has its own capacity; a shorter last zone is not shown.
    #[test]
    fn blocks_and_the_last_zone() {
        let g = Geometry::new(3, 24, 24).unwrap().with_last_zone(24, 16).unwrap();
        let l =
            Limits { logical_block_sectors: 1, write_granularity_sectors: 8, ..Limits::default() };
        let n = &of(&g, &l).unwrap()[0];
        assert_eq!((n.block_bytes(), n.blocks(), n.identify().ncap), (4096, 9, 8));
        assert!(n.zones().unwrap().all);
        assert!(n.refused_by_linux().unwrap().what_to_try().unwrap().contains("po2@"));
        let g = Geometry::new(3, 24, 24).unwrap().with_last_zone(8, 8).unwrap();
        let n = &of(&g, &Limits { write_granularity_sectors: 1, logical_block_sectors: 1, ..l })
            .unwrap()[0];
        assert_eq!((n.block_bytes(), n.blocks(), n.zones().unwrap().all), (512, 48, false));
    }

    /// J3: leading conventional zones form their own namespace.
    #[test]
    fn a_disk_with_conventional_zones_is_two_namespaces() {
        let g =
            Geometry::new(8, 64, 48).unwrap().with_conventional([ZoneNo(0), ZoneNo(1)]).unwrap();
        let all = of(&g, &Limits::default()).unwrap();
        let [conventional, zoned] = &all[..] else { panic!("{all:?}") };
        assert_eq!(
            (conventional.start(), conventional.blocks(), conventional.csi()),
            (Sector(0), 16, 0)
        );
        assert_eq!((zoned.start(), zoned.blocks(), zoned.csi()), (Sector(128), 48, 2));
        assert!(conventional.can_discard() && !zoned.can_discard());
        assert_ne!(conventional.uuid, zoned.uuid);
        assert!(conventional.identify_zoned().is_none());
    }

    #[test]
    fn what_cannot_be_shown_says_why() {
        let g = Geometry::new(8, 64, 64).unwrap();
        let says = |g: &Geometry, l: &Limits, what: &str| {
            let e = of(g, l).unwrap_err();
            assert!(e.to_string().contains(what), "{e}");
            assert!(e.what_to_try().is_some() && e.kind() == ErrorKind::NotSupported);
        };
        let l = Limits::default();
        says(&g.with_conventional([ZoneNo(3)]).unwrap(), &l, "behind sequential ones");
        let gap = g.with_conventional([ZoneNo(0)]).unwrap().with_conventional_capacity(32).unwrap();
        says(&gap, &l, "no gaps");
        says(&g, &Limits { write_granularity_sectors: 16, ..l }, "up to 4K");
        says(&Geometry::new(8, 60, 60).unwrap(), &l, "in blocks of 4K");
        says(&g, &Limits { zone_append_max_sectors: 8, ..Limits::default() }, "of 4K");
        let short = Geometry::new(2, 64, 64).unwrap().with_last_zone(8, 8).unwrap();
        says(&short.with_conventional([ZoneNo(0)]).unwrap(), &l, "no whole sequential zone");
    }

    #[test]
    fn numbers_of_namespaces() {
        let g = Geometry::new(8, 64, 64).unwrap();
        let n = |disk| Namespace::of(disk, [0; 16], &g, &Limits::default()).unwrap().remove(0);
        let mut all = Namespaces::new(1 << 20);
        assert_eq!([10, 11, 12].map(|d| all.add(n(d), d - 10)), [1, 2, 3].map(Some));
        assert_eq!((all.remove(11), all.remove(11)), (vec![2], vec![]));
        assert!([0, 2, 4, 1025].iter().all(|i| all.get(*i).is_none()));
        // A number is not reused soon: a host may still use it for the disk that had it.
        assert_eq!((all.add(n(13), 3), all.get(4).map(Namespace::disk)), (Some(4), Some(13)));
        assert_eq!(all.add(n(14), 1024), Some(1026), "the place of 1025 is taken");
        assert_eq!((all.get(2), all.get(1026).map(Namespace::disk)), (None, Some(14)));
        let numbers: Vec<u32> = all.iter().map(|(i, _)| i).collect();
        assert_eq!(numbers, [1, 1026, 3, 4]);
        assert_eq!(
            all.add(n(15), LAST_NSID),
            Some(5),
            "after the last comes the first that is free"
        );
        while all.iter().count() < MAX_NAMESPACES as usize {
            all.add(n(99), 0).unwrap();
        }
        assert_eq!(all.add(n(99), 0), None);
        assert_eq!(all.nvm_only().iter().count(), 0);
    }
}
