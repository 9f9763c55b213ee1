//! The last handle of a disk is dropped while the device has commands. What the disk has goes with it: the device is
//! free to be opened again.

mod common;

use common::*;
use std::sync::Arc;
use zoneplug_core::disk::DiskConfig;
use zoneplug_core::{Bios, Device, Nanos, Status, lost_bios};
use zoneplug_devices::emu::EmuDisk;

/// P14. Two queues with BIOs at the device and parked. One of them finishes its own, or none does.
#[test]
fn a_disk_without_a_handle_lets_its_device_go() {
    let mut expected = 0;
    for (polled, disk_first) in [(false, false), (false, true), (true, false), (true, true)] {
        // Commands take 100 ns.
        let dev = EmuDisk::new(make(4, 64, 64).emu).expect("a device");
        let disk = open(dev.clone() as Arc<dyn Device>, DiskConfig::default());
        let mut a = disk.open_polled_queue(8, 4).expect("a queue");
        let mut b = disk.open_polled_queue(8, 4).expect("a queue");
        assert_eq!(a.submit(Nanos(0), &mut Bios::from([write(0, 8), write(64, 8)])), 2);
        assert_eq!(b.submit(Nanos(0), &mut Bios::from([write(8, 8), read(128, 8)])), 2);
        drop(a);
        let mut done = Bios::new();
        if polled {
            // The writes of `a` end, and its own BIOs with them.
            for now in 1..4 {
                b.poll(Nanos(now * 100), &mut done);
            }
            assert!(done.len() == 2 && done.iter().all(|bio| bio.status == Status::Ok));
        } else {
            expected += 4;
        }
        if disk_first {
            drop(disk);
            drop(b);
        } else {
            drop(b);
            drop(disk);
        }
        assert_eq!(Arc::strong_count(&dev), 1, "polled: {polled}, disk first: {disk_first}");
        assert_eq!(lost_bios(), expected);
    }
}
