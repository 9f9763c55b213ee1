//! A disk under measurement, real or a model: the measurement chooses how many commands are in
//! flight, and each completion is timed. Owns the clock and the write position of each zone.

use crate::time::OwnMemory;
use std::sync::Arc;
use std::time::{Duration, Instant};
use zoneplug_core::disk::{Disk, DiskConfig, DiskQueue};
use zoneplug_core::zone::{Geometry, Limits};
use zoneplug_core::{Bio, Bios, Device, Error, ErrorKind, Nanos, Op, Sector, ZoneNo};
use zoneplug_devices::emu::timing::Profile;
use zoneplug_devices::emu::{EmuDisk, EmuKind};

/// The longest command of a measurement.
const LONGEST: u32 = 4 << 20;

enum Clock {
    /// Runs since the disk was opened.
    Real(Instant),
    Virtual(Nanos),
}

/// A command that has completed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ended {
    /// The token given at submission.
    pub(super) token: u32,
    pub(super) took: Nanos,
}

/// A command that was submitted.
#[derive(Debug, Clone, Copy)]
struct Sent {
    at: Nanos,
    token: u32,
}

/// A disk under measurement, and its zones that may be written.
pub struct Instrument<'a> {
    queue: DiskQueue,
    clock: Clock,
    geometry: Geometry,
    limits: Limits,
    /// The queue's number of commands.
    tags: u16,
    zones: Vec<u32>,
    /// Sectors written in each of the zones.
    written: Vec<u32>,
    sent: Vec<Option<Sent>>,
    memory: OwnMemory,
    /// Commands to send: those that still need memory, and those that have it.
    out: Bios,
    ready: Bios,
    done: Bios,
    /// Scattered writes since the drive last rested.
    scattered: u32,
    is_asked: &'a dyn Fn() -> bool,
}

impl std::fmt::Debug for Instrument<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Instrument").field("zones", &self.zones).finish_non_exhaustive()
    }
}

impl<'a> Instrument<'a> {
    /// Opens a real device. Only `zones` are written; each is reset first. `is_asked` says whether
    /// to end early.
    pub fn real(
        device: Arc<dyn Device>,
        tags: u16,
        zones: &[u32],
        is_asked: &'a dyn Fn() -> bool,
    ) -> Result<Instrument<'a>, Error> {
        Self::open(device, tags, Clock::Real(Instant::now()), zones, is_asked)
    }

    /// Opens a model of a drive, in virtual time.
    pub fn modelled(
        profile: &Profile,
        zones: &[u32],
        is_asked: &'a dyn Fn() -> bool,
    ) -> Result<Instrument<'a>, Error> {
        let device = EmuDisk::timed(profile, EmuKind::Null)?;
        Self::open(device, profile.queue_depth, Clock::Virtual(Nanos(0)), zones, is_asked)
    }

    fn open(
        device: Arc<dyn Device>,
        tags: u16,
        mut clock: Clock,
        zones: &[u32],
        is_asked: &'a dyn Fn() -> bool,
    ) -> Result<Instrument<'a>, Error> {
        let (geometry, limits) = (*device.geometry(), device.limits().clone());
        let (zones, written) = (zones.to_vec(), vec![0; zones.len()]);
        // The measurement itself chooses how many writes are in flight.
        let config = DiskConfig { zoned_qd1_writes: Some(false), ..DiskConfig::default() };
        let disk = Disk::open(device, config, &mut |due| match &mut clock {
            Clock::Real(start) => Nanos(start.elapsed().as_nanos() as u64),
            Clock::Virtual(now) => {
                *now = due.unwrap_or(*now).max(*now);
                *now
            }
        })?;
        let queue = disk.open_polled_queue(u32::from(tags).max(64), tags)?;
        Ok(Instrument {
            queue,
            clock,
            geometry,
            limits,
            tags,
            zones,
            written,
            sent: Vec::new(),
            memory: OwnMemory::new(),
            out: Bios::new(),
            ready: Bios::new(),
            done: Bios::new(),
            scattered: 0,
            is_asked,
        })
    }

    /// Says whether the measurement should end early.
    pub(super) fn is_asked(&self) -> &'a dyn Fn() -> bool {
        self.is_asked
    }

    pub(super) fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    pub(super) fn limits(&self) -> &Limits {
        &self.limits
    }

    pub(super) fn tags(&self) -> u16 {
        self.tags
    }

    /// The zones that may be written.
    pub(super) fn zones(&self) -> &[u32] {
        &self.zones
    }

    /// Sectors of the longest command that measurements use.
    pub(super) fn longest(&self) -> u32 {
        let most = self.limits.max_transfer_sectors;
        let granularity = self.limits.write_granularity_sectors.max(1);
        let most = if most == 0 { LONGEST >> 9 } else { most.min(LONGEST >> 9) };
        most / granularity * granularity
    }

    /// Converts a length in bytes to one that this disk accepts, in sectors.
    pub(super) fn sectors(&self, bytes: u32) -> u32 {
        let granularity = self.limits.write_granularity_sectors.max(1);
        ((bytes >> 9).next_multiple_of(granularity)).min(self.longest())
    }

    /// The capacity of the `zone`th zone, in sectors.
    pub(super) fn room(&self, zone: usize) -> u32 {
        self.geometry.capacity_of(ZoneNo(self.zones[zone]))
    }

    /// Notes the number of writes that were scattered.
    pub(super) fn scattered(&mut self, writes: u32) {
        self.scattered = writes;
    }

    /// Returns the number of scattered writes and sets it to 0.
    pub(super) fn take_scattered(&mut self) -> u32 {
        std::mem::take(&mut self.scattered)
    }

    /// Sectors written in the `zone`th zone.
    pub(super) fn written(&self, zone: usize) -> u32 {
        self.written[zone]
    }

    pub(super) fn now(&self) -> Nanos {
        match &self.clock {
            Clock::Real(start) => Nanos(start.elapsed().as_nanos() as u64),
            Clock::Virtual(now) => *now,
        }
    }

    fn submit(&mut self, op: Op, sector: Sector, sectors: u32, token: u32) -> Result<(), Error> {
        let now = self.now();
        let slot = self.sent.iter().position(Option::is_none).unwrap_or(self.sent.len());
        let sent = Some(Sent { at: now, token });
        match self.sent.get_mut(slot) {
            Some(free) => *free = sent,
            None => self.sent.push(sent),
        }
        let mut bio = Bio::new(op, sector, sectors);
        bio.set_token(slot as u64);
        self.out.push_back(bio);
        self.memory.equip(&mut self.out, &mut self.ready);
        match self.queue.submit(now, &mut self.ready) {
            1 => Ok(()),
            _ => Err(Error::new(ErrorKind::Busy, "the queue of the disk is full")
                .hint("a bug of a measurement")),
        }
    }

    /// Sends a write at the write position of the `zone`th zone. The caller checks that the zone
    /// has room.
    pub(super) fn write(&mut self, zone: usize, sectors: u32, token: u32) -> Result<(), Error> {
        let start = self.geometry.zone_start(ZoneNo(self.zones[zone]));
        let at = start.plus(u64::from(self.written[zone]));
        self.written[zone] += sectors;
        self.submit(Op::Write, at, sectors, token)
    }

    /// Sends a read of the `zone`th zone.
    pub(super) fn read(
        &mut self,
        zone: usize,
        offset: u32,
        sectors: u32,
        token: u32,
    ) -> Result<(), Error> {
        let at = self.geometry.zone_start(ZoneNo(self.zones[zone])).plus(u64::from(offset));
        self.submit(Op::Read, at, sectors, token)
    }

    /// Waits until a command completes. Fails if the command failed or the measurement is asked to
    /// end.
    pub(super) fn wait(&mut self) -> Result<Ended, Error> {
        loop {
            let now = self.now();
            self.queue.poll(now, &mut self.done);
            if let Some(mut bio) = self.done.pop_front() {
                self.memory.take_back(&mut bio);
                let slot = bio.token() as usize;
                let Some(sent) = self.sent.get_mut(slot).and_then(Option::take) else { continue };
                if !bio.status.is_ok() {
                    let what =
                        format!("{} at {} failed: {}", bio.op.name(), bio.sector, bio.status);
                    return Err(
                        Error::new(ErrorKind::Io, what).hint("look at the drive, and begin again")
                    );
                }
                let took = Nanos(self.now().0.saturating_sub(sent.at.0));
                return Ok(Ended { token: sent.token, took });
            }
            if (self.is_asked)() {
                return Err(
                    Error::new(ErrorKind::Busy, "the measurement was ended").hint("begin again")
                );
            }
            match &mut self.clock {
                Clock::Virtual(now) => {
                    let due = self.queue.next_deadline().ok_or_else(|| {
                        Error::new(ErrorKind::Busy, "a command that never ends")
                            .hint("a bug of a model, or of the layer")
                    })?;
                    *now = due.max(now.plus(Nanos(1)));
                }
                Clock::Real(_) => std::thread::yield_now(),
            }
        }
    }

    /// Sends nothing for this long.
    pub(super) fn rest(&mut self, span: Nanos) {
        match &mut self.clock {
            Clock::Virtual(now) => *now = now.plus(span),
            Clock::Real(_) => std::thread::sleep(Duration::from_nanos(span.0)),
        }
    }

    /// Sends a flush and returns its time. Nothing else is in flight.
    pub(super) fn flush(&mut self) -> Result<Nanos, Error> {
        self.submit(Op::Flush, Sector(0), 0, 0)?;
        Ok(self.wait()?.took)
    }

    /// Resets the `zone`th zone. Nothing else is in flight.
    pub(super) fn reset(&mut self, zone: usize) -> Result<(), Error> {
        let no = ZoneNo(self.zones[zone]);
        let (start, len) = (self.geometry.zone_start(no), self.geometry.zone_len_sectors(no));
        self.submit(Op::ZoneReset, start, len, 0)?;
        self.written[zone] = 0;
        self.wait().map(|_| ())
    }
}
