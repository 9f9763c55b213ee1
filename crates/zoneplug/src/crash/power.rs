//! A disk in memory whose power a test cuts when it wants to.

use super::search::config;
use std::sync::Arc;
use zoneplug_core::Error;
use zoneplug_core::disk::DiskConfig;
use zoneplug_devices::emu::EmuDisk;
use zoneplug_devices::stack::{FaultDisk, FaultPlan};
use zoneplug_host::HostedDisk;

/// The medium of a disk in memory, and its power. For tests of single cuts at moments that the test chooses;
/// [`Crash`](super::Crash) chooses many moments itself.
///
/// ```
/// use zoneplug::crash::Power;
/// use zoneplug::{BlockingDisk, Sector, ZoneNo};
///
/// let power = Power::new("mem,zones=4,zone-size=1M", 7)?;
/// let mut io = BlockingDisk::new(&power.open()?)?;
/// io.append_from(Sector(0), &[1; 4096])?;
/// io.flush()?;
/// io.append_from(Sector(0), &[2; 4096])?;
/// power.cut()?;
/// let mut io = BlockingDisk::new(&power.open()?)?;
/// let wp = io.zone(ZoneNo(0))?.wp;
/// assert!(wp == Sector(8) || wp == Sector(16), "the first block was flushed");
/// # Ok::<(), zoneplug::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Power {
    device: Arc<FaultDisk>,
}

impl Power {
    /// Makes an empty disk with a volatile write cache: `disk` is a specification of the kind `mem`. `seed` chooses what each cut
    /// takes.
    ///
    /// # Errors
    ///
    /// The specification is wrong, or of another kind.
    pub fn new(disk: &str, seed: u64) -> Result<Power, Error> {
        let mut config = config(disk)?;
        config.limits.write_cache = true;
        let device = FaultDisk::new(EmuDisk::new(config)?, &FaultPlan { rules: Vec::new(), seed })?;
        device.watch_cache()?;
        Ok(Power { device })
    }

    /// Opens the disk, as a program does after the power is back. Drop what was opened before.
    ///
    /// # Errors
    ///
    /// The disk cannot be opened.
    pub fn open(&self) -> Result<HostedDisk, Error> {
        HostedDisk::open(self.device.clone(), DiskConfig::default())
    }

    /// Cuts the power and restores it. Commands in flight fail. Each sequential zone keeps a random prefix of its written data, at
    /// least what a flush or FUA covers; each block of a conventional zone that no flush covers is kept or lost.
    ///
    /// # Errors
    ///
    /// The zones of the disk cannot be read or written.
    pub fn cut(&self) -> Result<(), Error> {
        self.device.power_cut()
    }
}
