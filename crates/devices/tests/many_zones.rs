//! Disks of as many zones as several large drives have together.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use zoneplug_core::Device;
use zoneplug_core::disk::{Disk, DiskConfig};
use zoneplug_core::zone::{Geometry, GeometryError, MAX_ZONES};
use zoneplug_core::{Bio, Bios, IoBuf, Nanos, Op, Sector, Status, ZoneNo};
use zoneplug_devices::emu::timing::Profile;
use zoneplug_devices::emu::{EmuConfig, EmuDisk, EmuKind};
use zoneplug_devices::spec::Spec;
use zoneplug_devices::stack::JoinDisk;

/// The data of each write: the devices keep none.
static BLOCK: [u8; 4096] = [0; 4096];

fn open(device: Arc<dyn Device>) -> Disk {
    let mut now = Nanos(0);
    let clock = &mut |next: Option<Nanos>| {
        now = next.unwrap_or(now);
        now
    };
    Disk::open(device, DiskConfig::default(), clock).unwrap()
}

/// Writes a block to a zone, and returns its status.
fn write_to(disk: &Disk, zone: ZoneNo) -> Status {
    let mut queue = disk.open_polled_queue(4, 4).unwrap();
    let at = disk.geometry().zone_start(zone);
    let mut bio = Bio::new(Op::Write, at, 8);
    bio.set(Op::Write, at, 8, IoBuf::from_static(&BLOCK));
    let mut list = Bios::from([bio]);
    queue.submit(Nanos(0), &mut list);
    let mut done = Bios::new();
    let mut now = Nanos(0);
    while done.is_empty() {
        now = queue.next_deadline().unwrap_or(now);
        queue.poll(now, &mut done);
    }
    done[0].status
}

/// Two drives of 30 TB with zones of 256 MiB have 223,518 zones.
#[test]
fn two_drives_of_30_tb_are_one_disk() {
    let drive = || -> Arc<dyn Device> {
        let profile = Profile::from_spec(&mut Spec::parse("sim-smr30").unwrap()).unwrap().unwrap();
        EmuDisk::timed(&profile, EmuKind::Null).unwrap()
    };
    for join in [JoinDisk::linear, JoinDisk::stripe] {
        let both = join(vec![drive(), drive()]).unwrap();
        assert_eq!(both.geometry().nr_zones(), 2 * 111_759);
        let disk = open(both);
        assert_eq!(write_to(&disk, ZoneNo(2 * 111_759 - 1)), Status::Ok);
    }
}

/// The largest disk: every zone can be written, and one zone more is refused with what a zone costs.
#[test]
fn the_largest_disk() {
    let g = Geometry::new(MAX_ZONES, 8, 8).unwrap();
    let disk = open(EmuDisk::new(EmuConfig::new(EmuKind::Null, g)).unwrap());
    for zone in [0, 200_000, MAX_ZONES as u32 - 1] {
        assert_eq!(write_to(&disk, ZoneNo(zone)), Status::Ok);
    }
    assert_eq!(g.capacity(), Sector(8 * MAX_ZONES));
    let e = Geometry::new(MAX_ZONES + 1, 8, 8).unwrap_err();
    assert_eq!(e, GeometryError::Zones(MAX_ZONES + 1));
    assert!(e.to_string().contains("bytes of memory"), "{e}");
}
