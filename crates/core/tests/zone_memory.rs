//! The memory of a zone: what a disk of many zones takes while it is opened, and afterwards.

#![allow(clippy::unwrap_used)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use zoneplug_core::Nanos;
use zoneplug_core::disk::{Disk, DiskConfig};
use zoneplug_core::zone::{Geometry, MAX_ZONES, ZONE_BYTES};
use zoneplug_devices::emu::{EmuConfig, EmuDisk, EmuKind};

/// Counts the bytes that are allocated, and the most at a time.
struct Counting;

static NOW: AtomicU64 = AtomicU64::new(0);
static MOST: AtomicU64 = AtomicU64::new(0);

// SAFETY: passes everything to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = NOW.fetch_add(layout.size() as u64, Relaxed) + layout.size() as u64;
        MOST.fetch_max(now, Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size() as u64, Relaxed);
        // SAFETY: `ptr` came from `alloc` above.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Bytes that opening a disk of so many zones takes at most, and bytes of the open disk. The device's own are not counted.
fn opened(zones: u64) -> (u64, u64) {
    let g = Geometry::new(zones, 8, 8).unwrap();
    let device = EmuDisk::new(EmuConfig::new(EmuKind::Null, g)).unwrap();
    let before = NOW.load(Relaxed);
    MOST.store(before, Relaxed);
    let disk = Disk::open(device, DiskConfig::default(), &mut |due| due.unwrap_or(Nanos(0)));
    let (most, now) = (MOST.load(Relaxed) - before, NOW.load(Relaxed) - before);
    drop(disk.unwrap());
    (most, now)
}

/// `ZONE_BYTES`, which refusals tell, is what a zone takes while a disk is opened, whatever the number of zones.
#[test]
fn a_zone_takes_what_is_told() {
    for zones in [100_000, 200_000, 223_518, 1_000_000, 1 << 20, (1 << 20) + 1, MAX_ZONES] {
        let (most, open) = opened(zones);
        let (most, open) = (most / zones, open / zones);
        assert!((84..=ZONE_BYTES).contains(&most), "{most} bytes for each of {zones} zones");
        assert!((44..=60).contains(&open), "{open} bytes stay for each of {zones} zones");
    }
}
