//! Memory that did not come back with its BIO, because the operation was given up, or because the device gave back
//! another BIO or other memory. The adapters keep it here instead of returning or freeing it. The reactor frees
//! memory that comes back late.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use zoneplug_buf::Lent;
use zoneplug_core::disk::Disk;
use zoneplug_core::poison::lock;

static LEAKED: AtomicU64 = AtomicU64::new(0);

/// The number of buffers of the safe adapters that were leaked on purpose since the process started: a device did not
/// give them back before its disk was closed.
///
/// ```
/// assert_eq!(zoneplug_host::leaked_buffers(), 0);
/// ```
pub fn leaked_buffers() -> u64 {
    LEAKED.load(Ordering::Relaxed)
}

/// Loses memory that a device may still use.
pub(crate) fn leak(lent: Vec<Lent>) {
    LEAKED.fetch_add(lent.len() as u64, Ordering::Relaxed);
    // Dropping a loan frees nothing.
    drop(lent);
}

/// The buffers that the adapters of a disk have withheld from their clients: see
/// [`HostedDisk::withheld`](crate::HostedDisk::withheld).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Withheld {
    /// Buffers of operations that ended without them: the device may still use them.
    pub buffers: usize,
    /// Their bytes.
    pub bytes: u64,
}

/// The withheld memory of one disk.
#[derive(Debug, Default)]
pub(crate) struct WithheldBuffers {
    lent: Mutex<Vec<Lent>>,
}

impl WithheldBuffers {
    /// Keeps memory until the disk has it back.
    pub(crate) fn keep(&self, disk: &Disk, lent: impl IntoIterator<Item = Lent>) {
        let mut lent = lent.into_iter().peekable();
        if lent.peek().is_some() {
            lock(&self.lent).extend(lent);
            self.sweep(disk);
        }
    }

    /// Frees the memory that has come back.
    pub(crate) fn sweep(&self, disk: &Disk) {
        let mut lent = lock(&self.lent);
        let all = std::mem::take(&mut *lent);
        lent.extend(all.into_iter().filter_map(|l| match disk.reclaim(l.range()) {
            Some(buf) => l.take_back(buf).err().map(|(l, _)| l),
            None => Some(l),
        }));
    }

    pub(crate) fn count(&self) -> Withheld {
        let lent = lock(&self.lent);
        lent.iter().fold(Withheld::default(), |w, l| Withheld {
            buffers: w.buffers + 1,
            bytes: w.bytes + u64::from(l.len()),
        })
    }

    /// Leaks the memory that has not come back. The disk is closing, so none comes back later.
    pub(crate) fn leak_rest(&self, disk: &Disk) {
        self.sweep(disk);
        leak(std::mem::take(&mut *lock(&self.lent)));
    }
}
