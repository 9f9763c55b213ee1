//! The handle of a disk.

use super::config::DiskConfig;
use super::shared::Shared;
use super::snapshot::Layout;
use crate::bio::{Op, Status};
use crate::sync::{Ordering, lock};
use crate::unit::Sector;
use crate::zone::{Geometry, Limits};
use std::sync::Arc;

/// A disk. All clones are handles of the same disk.
///
/// ```
/// use zoneplug_core::disk::{Disk, DiskConfig, QueueConfig};
/// use zoneplug_core::{Bio, Bios, Nanos, Op, Sector};
/// use zoneplug_devices::{emu::{EmuConfig, EmuDisk}, spec::Spec};
///
/// let config = EmuConfig::from_spec(&mut Spec::parse("null,zones=4,zone-size=1M").unwrap()).unwrap();
/// let device = EmuDisk::new(config).unwrap();
/// let disk = Disk::open(device, DiskConfig::default(), &mut |_| Nanos(0)).unwrap();
/// let mut queue = disk.open_queue(QueueConfig::default()).unwrap();
///
/// let mut list = Bios::from([Bio::new(Op::WriteZeroes, Sector(0), 8)]);
/// assert_eq!(queue.submit(Nanos(0), &mut list), 1);
/// let mut done = Bios::new();
/// queue.poll(Nanos(0), &mut done);
/// assert!(done[0].status.is_ok());
/// ```
#[derive(Debug, Clone)]
pub struct Disk {
    pub(crate) shared: Arc<Shared>,
}

impl Disk {
    /// The layout of zones.
    pub fn geometry(&self) -> Geometry {
        self.layout().geometry
    }

    /// The limits of the device below.
    pub fn limits(&self) -> Limits {
        self.layout().limits.clone()
    }

    /// Returns the configuration with which the disk was opened, with the present values of attributes.
    pub fn config(&self) -> DiskConfig {
        self.layout().config.clone()
    }

    /// Returns whether the device or the layer uses the time that queues are given. If not, a driver may pass an old
    /// time. The answer may change with attributes.
    #[inline]
    pub fn is_timed(&self) -> bool {
        self.shared.timed.load(Ordering::Relaxed)
    }

    /// Checks whether this disk can take an operation of this length, for a caller that would otherwise allocate
    /// memory of that length first. The error is the status with which a queue would refuse the operation. A queue
    /// checks each BIO itself, so a caller that has the memory need not ask.
    ///
    /// ```
    /// use zoneplug_core::{Op, Sector, Status, disk::{Disk, DiskConfig}, Nanos};
    /// use zoneplug_devices::{emu::{EmuConfig, EmuDisk}, spec::Spec};
    ///
    /// let config = EmuConfig::from_spec(&mut Spec::parse("null,zones=4,zone-size=1M").unwrap()).unwrap();
    /// let disk = Disk::open(EmuDisk::new(config).unwrap(), DiskConfig::default(), &mut |_| Nanos(0)).unwrap();
    /// assert_eq!(disk.check_length(Op::Read, Sector(0), 4 * 2048), Ok(()));
    /// assert_eq!(disk.check_length(Op::Read, Sector(1), 4 * 2048), Err(Status::OutOfRange));
    /// assert_eq!(disk.check_length(Op::ZoneAppend, Sector(0), 4 * 2048), Err(Status::AppendTooLarge));
    /// ```
    pub fn check_length(&self, op: Op, sector: Sector, len_sectors: u64) -> Result<(), Status> {
        self.layout().check_length(op, sector, len_sectors)
    }

    pub(crate) fn layout(&self) -> Arc<Layout> {
        lock(&self.shared.layout).clone()
    }
}
