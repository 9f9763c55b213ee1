//! Emulated zoned disks: strict state machines without data (`null`) or with data in memory (`mem`).
//!
//! This room has the zones and data of its disks, and enforces every rule of ZBC and ZNS. A write that a drive would
//! refuse is refused here, so these disks are the oracle of the layer's tests. The layer's cost is measured on the
//! `null` disk. An emulated disk never orders, retries, splits or merges anything. It has no clock (time is an
//! argument) and no thread: a delayed command finishes in `poll`.
//!
//! | file | state |
//! | --- | --- |
//! | `config.rs`, `keys.rs` | the description of a disk, and the keys of its specification |
//! | `table.rs` | the zones, a word each, and the budget of open zones |
//! | `data.rs` | the data of a `mem` disk |
//! | `exec.rs` | one command against all of these |
//! | `queue.rs` | commands on their way through |
//! | `hooks.rs` | counters, and the faults that tests inject |
//! | `timing/` | how long commands take on real drives |
//!
//! Locks are taken in this order: the data of one zone of a `mem` disk, the budget. On a `null` disk a write to an
//! open zone that it does not fill takes no lock and changes one word, and a read looks at no zone.

mod config;
mod data;
mod exec;
mod hooks;
mod keys;
mod queue;
mod table;
pub mod timing;

pub use config::{EmuConfig, EmuKind};
pub use hooks::{Fault, Stats};
pub use keys::KEYS;
pub use table::ZonesInUse;

use exec::Shared;
use std::sync::Arc;
use std::task::Waker;
use timing::{Drive, DriveStats, Profile, TimedQueue};
use zoneplug_core::device::{Device, Queue};
use zoneplug_core::unit::{Sector, ZoneNo};
use zoneplug_core::zone::{Condition, Geometry, Limits, ZoneInfo};
use zoneplug_core::{Error, ErrorKind};

/// An emulated zoned disk.
///
/// A test keeps the `Arc<EmuDisk>` for its hooks while the layer holds the same disk as `Arc<dyn Device>`.
///
/// ```
/// use zoneplug_devices::emu::{EmuConfig, EmuDisk, EmuKind};
/// use zoneplug_core::zone::Geometry;
/// use zoneplug_core::{Command, Commands, Device, Nanos, Op, Sector, Status};
/// use std::task::Waker;
/// let geometry = Geometry::new(16, 1000, 800).unwrap();
/// let disk = EmuDisk::new(EmuConfig::new(EmuKind::Null, geometry)).unwrap();
/// let mut queue = disk.open_queue(4, Waker::noop().clone()).unwrap();
/// let mut commands = Commands::from([Command::without_data(Op::ZoneFinish, Sector(1000), 1000)]);
/// queue.submit(Nanos(0), &mut commands);
/// queue.poll(Nanos(0), &mut commands);
/// assert_eq!(commands[0].status, Status::Ok);
/// ```
#[derive(Debug)]
pub struct EmuDisk {
    shared: Arc<Shared>,
    /// The drive model that times commands, if there is one.
    drive: Option<Arc<Drive>>,
}

impl EmuDisk {
    /// Makes the disk that `config` describes. Every sequential zone is empty. Fails if the parts of `config` do not
    /// agree.
    pub fn new(config: EmuConfig) -> Result<Arc<EmuDisk>, Error> {
        config.check()?;
        Ok(Arc::new(EmuDisk { shared: Arc::new(Shared::new(config)), drive: None }))
    }

    /// Makes a disk with the zones, limits and times of a drive. It is as strict as any other. It has no latency of
    /// its own and does not reorder. Fails if the numbers of the profile do not describe a valid disk.
    pub fn timed(profile: &Profile, kind: EmuKind) -> Result<Arc<EmuDisk>, Error> {
        let mut config = EmuConfig::new(kind, profile.geometry()?);
        config.limits = profile.limits();
        Self::timed_with(profile, config)
    }

    /// Like [`EmuDisk::timed`], with the settings of `config` that a profile does not have, such as `paranoid`.
    /// Ignores `latency` and `reorder` of `config`. Fails if the zones of `config` are not those of the profile.
    pub fn timed_with(profile: &Profile, config: EmuConfig) -> Result<Arc<EmuDisk>, Error> {
        config.check()?;
        if config.geometry != profile.geometry()? {
            return Err(Error::invalid("the zones of a timed disk are those of its profile")
                .hint("change zones, zone-size or zone-capacity of the profile"));
        }
        let drive = Some(Arc::new(Drive::new(profile)));
        Ok(Arc::new(EmuDisk { shared: Arc::new(Shared::new(config)), drive }))
    }

    /// Returns the description from which the disk was made. Limits of open and active zones that no workload can
    /// reach are 0 here.
    pub fn config(&self) -> &EmuConfig {
        &self.shared.config
    }

    /// Returns the report of one zone.
    ///
    /// # Panics
    ///
    /// If there is no such zone.
    pub fn zone_info(&self, zone: ZoneNo) -> ZoneInfo {
        self.shared.zone_info(zone)
    }

    /// Puts a sequential zone into a condition from outside, as a drive does that declares it read-only or offline.
    /// *Empty* sets its write pointer to 0. Returns false for a conventional zone, and for `NotWp` and `Active`.
    ///
    /// # Panics
    ///
    /// If there is no such zone.
    pub fn set_condition(&self, zone: ZoneNo, cond: Condition) -> bool {
        self.shared.set_condition(zone, cond)
    }

    /// Moves the write pointer of a sequential zone to `sectors` (at most the capacity) from outside, as another
    /// program does that shares the disk. Skipped sectors read as zeroes. 0 is a reset, and the capacity makes the
    /// zone full. A zone that was empty or full becomes closed; otherwise the condition stays.
    ///
    /// # Panics
    ///
    /// If there is no such zone, or it is conventional.
    pub fn set_write_pointer(&self, zone: ZoneNo, sectors: u32) {
        self.shared.set_write_pointer(zone, sectors);
    }

    /// Changes data from outside, as a decaying medium does. The write pointer stays where it is. A `null` disk has
    /// no data to change.
    ///
    /// # Panics
    ///
    /// If the range is not within one zone of the disk.
    pub fn set_data(&self, at: Sector, data: &[u8]) {
        self.shared.set_data(at, data);
    }

    /// Returns the counts of the disk's queues so far. Exact when no queue is in use.
    pub fn stats(&self) -> Stats {
        self.shared.hooks.stats()
    }

    /// Returns the counts of the drive model. `None` if the disk has none.
    pub fn drive_stats(&self) -> Option<DriveStats> {
        self.drive.as_ref().map(|d| d.stats())
    }

    /// Makes one command fail. Several faults may be set, and each counts commands by itself.
    pub fn fail_next(&self, fault: Fault) {
        self.shared.hooks.add_fault(fault);
    }

    /// Makes the next `n` calls of submit, on any queue, take nothing.
    pub fn force_busy(&self, n: u64) {
        self.shared.hooks.set_busy(n);
    }

    /// Returns how many zones are open now, and how many are active.
    pub fn zones_in_use(&self) -> ZonesInUse {
        self.shared.table.zones_in_use()
    }
}

impl Device for EmuDisk {
    fn geometry(&self) -> &Geometry {
        &self.shared.config.geometry
    }

    fn limits(&self) -> &Limits {
        &self.shared.config.limits
    }

    fn is_timed(&self) -> bool {
        self.drive.is_some() || self.shared.config.latency.0 != 0
    }

    fn never_panics(&self) -> bool {
        true
    }

    fn open_queue(&self, depth: u16, waker: Waker) -> Result<Box<dyn Queue>, Error> {
        if depth == 0 {
            return Err(Error::new(ErrorKind::Invalid, "a queue of depth 0")
                .hint("a queue takes 1 to 65535 commands at a time"));
        }
        let shared = Arc::clone(&self.shared);
        Ok(match &self.drive {
            Some(drive) => Box::new(TimedQueue::new(shared, Arc::clone(drive), depth, waker)),
            None => Box::new(queue::EmuQueue::new(shared, depth, waker)),
        })
    }
}
