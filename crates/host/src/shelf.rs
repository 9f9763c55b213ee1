//! Buffers of operations that were given up, kept until the device is done with them. The adapters put them here instead
//! of giving them back or freeing them; the reactor looks for those that are free again.

use crate::lane::lock;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use zoneplug_buf::AlignedBuf;
use zoneplug_core::disk::{Disk, Late};

static LEAKED: AtomicU64 = AtomicU64::new(0);

/// Buffers of the safe adapters that were leaked on purpose since the process started: a device had them, did not give
/// them back, and its disk is closed.
///
/// ```
/// assert_eq!(zoneplug_host::leaked_buffers(), 0);
/// ```
pub fn leaked_buffers() -> u64 {
    LEAKED.load(Ordering::Relaxed)
}

/// Loses memory that a device may still use.
pub(crate) fn leak(bufs: Vec<AlignedBuf>) {
    LEAKED.fetch_add(bufs.len() as u64, Ordering::Relaxed);
    bufs.into_iter().for_each(std::mem::forget);
}

/// What the adapters of a disk have withheld from their clients: see [`HostedDisk::withheld`](crate::HostedDisk::withheld).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Withheld {
    /// Buffers of operations that were given up, which the device may still use.
    pub buffers: usize,
    /// Their bytes.
    pub bytes: u64,
}

/// Buffers that are in use while any of the tickets is open.
#[derive(Debug)]
struct Lot {
    late: Vec<Late>,
    bufs: Vec<AlignedBuf>,
}

#[derive(Debug, Default)]
pub(crate) struct Shelf {
    lots: Mutex<Vec<Lot>>,
}

impl Shelf {
    /// Keeps `bufs` while any of `late` is.
    pub(crate) fn put(&self, disk: &Disk, late: Vec<Late>, bufs: Vec<AlignedBuf>) {
        if !bufs.is_empty() {
            lock(&self.lots).push(Lot { late, bufs });
            self.sweep(disk);
        }
    }

    /// Frees what no device uses any more.
    pub(crate) fn sweep(&self, disk: &Disk) {
        lock(&self.lots).retain_mut(|lot| {
            lot.late.retain(|late| disk.is_late(*late));
            !lot.late.is_empty()
        });
    }

    pub(crate) fn withheld(&self) -> Withheld {
        let lots = lock(&self.lots);
        let bufs = lots.iter().flat_map(|lot| &lot.bufs);
        bufs.fold(Withheld::default(), |w, b| Withheld {
            buffers: w.buffers + 1,
            bytes: w.bytes + u64::from(b.len()),
        })
    }

    /// The disk is closing: what is still in use stays so for ever.
    pub(crate) fn end(&self, disk: &Disk) {
        self.sweep(disk);
        for lot in std::mem::take(&mut *lock(&self.lots)) {
            leak(lot.bufs);
        }
    }
}
