//! A target with a disk, without a network: the side of a server that a session needs.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use zoneplug_buf::{AlignedBuf, Buffers, Lent};
use zoneplug_core::disk::{Disk, DiskConfig, DiskQueue};
use zoneplug_core::zone::{Geometry, Limits};
use zoneplug_core::{Bio, Bios, DiskClient, Nanos, Op, ZoneNo};
use zoneplug_devices::emu::{EmuConfig, EmuDisk, EmuKind};
use zoneplug_recovery::DiskRecovery;
use zoneplug_scsi::iscsi::{Access, Random, Server, Target, TargetEvent};
use zoneplug_scsi::unit::{Unit, UnitConfig};

pub(crate) const ZONES: u32 = 8;
pub(crate) const ZONE_BLOCKS: u32 = 16;
const ZONE_SECTORS: u32 = ZONE_BLOCKS * 8;

/// A disk, and how many results its clients get before they have to wait.
pub(crate) struct Hardware {
    pub(super) device: Arc<EmuDisk>,
    pub(super) disk: Disk,
    pub(super) results: Cell<usize>,
    pub(super) target: RefCell<Target>,
    pub(super) events: RefCell<Vec<TargetEvent>>,
    pub(super) recovery: DiskRecovery,
    /// Commands that the disk had carried out already when they were sent again.
    pub(super) replayed: Cell<u32>,
    pub(super) keys: Cell<u64>,
}

pub(crate) struct QueueClient {
    queue: DiskQueue,
    hardware: Rc<Hardware>,
    outstanding: u32,
}

impl DiskClient for QueueClient {
    fn submit(&mut self, bios: &mut Bios) -> usize {
        let n = self.queue.submit(Nanos(0), bios);
        self.outstanding += n as u32;
        n
    }

    fn poll(&mut self, done: &mut Bios) {
        let results = &self.hardware.results;
        if results.get() == 0 {
            return;
        }
        let before = done.len();
        self.queue.poll(self.queue.next_deadline().unwrap_or(Nanos(0)), done);
        self.outstanding -= (done.len() - before) as u32;
        results.set(results.get().saturating_sub(done.len() - before));
    }

    fn outstanding(&self) -> u32 {
        self.outstanding
    }

    fn reclaim(&mut self, bio: &mut Bio, lent: Lent) -> Option<AlignedBuf> {
        lent.take_back(bio.take_buf()).ok()
    }

    fn refuse_held(&mut self) {}

    fn keep_lent(&mut self, _: impl Iterator<Item = Lent>) {}
}

pub(crate) struct Side {
    pub(super) hardware: Rc<Hardware>,
    /// Queues of the disk that the session has asked for.
    pub(super) opened: usize,
    pub(super) buffers: Buffers,
    pub(super) now: Nanos,
}

impl Server<QueueClient> for Side {
    fn buffers(&mut self) -> &mut Buffers {
        &mut self.buffers
    }

    fn open(&mut self, _: u32, entries: u32) -> Option<QueueClient> {
        let queue = self.hardware.disk.open_polled_queue(entries, 64).ok()?;
        self.opened += 1;
        Some(QueueClient { queue, hardware: self.hardware.clone(), outstanding: 0 })
    }

    fn fills_buffers(&self, _: u32) -> bool {
        false
    }

    fn count(&mut self, _: u32, _: Op, _: u32, _: bool) {}

    fn recovery(&self, _: u32) -> &DiskRecovery {
        &self.hardware.recovery
    }

    fn now(&self) -> Nanos {
        self.now
    }

    fn count_replayed(&mut self, _: u32) {
        self.hardware.replayed.set(self.hardware.replayed.get() + 1);
    }

    fn target<R>(&mut self, f: impl FnOnce(&mut Target) -> R) -> R {
        let mut target = self.hardware.target.borrow_mut();
        let result = f(&mut target);
        self.hardware.events.borrow_mut().extend(target.take_events());
        result
    }

    fn random(&mut self) -> Option<Random> {
        Some([5; 17])
    }
}

impl Hardware {
    /// Makes a disk, and a target with two units of it.
    pub(crate) fn new() -> Rc<Hardware> {
        let g = Geometry::new(u64::from(ZONES), ZONE_SECTORS, ZONE_SECTORS).unwrap();
        let g = g.with_conventional([ZoneNo(0)]).unwrap();
        let mut emu = EmuConfig::new(EmuKind::Mem, g);
        emu.limits = Limits { max_open_zones: 4, ..Limits::default() };
        let mut wait = |due: Option<Nanos>| due.unwrap_or(Nanos(0));
        let device = EmuDisk::new(emu).unwrap();
        let disk = Disk::open(device.clone(), DiskConfig::default(), &mut wait).unwrap();
        let unit = |disk_no: u8| {
            let config = UnitConfig {
                disk: 0,
                uuid: [disk_no; 16],
                vendor: "ZONEPLUG".into(),
                product: "disk".into(),
                revision: "1".into(),
                rotation_rate: None,
                unrestricted_reads: true,
            };
            Arc::new(Unit::zoned(config, &disk.geometry(), &disk.limits()).unwrap())
        };
        let portals = ["0.0.0.0:3260", "[2001:db8::1]:3260"].map(|p| p.parse().unwrap());
        let target = Target::new(
            "iqn.2026-11.dev.zoneplug:test",
            Access::default(),
            portals.to_vec(),
            [(0, unit(1)), (1, unit(2))],
        );
        Rc::new(Hardware {
            results: Cell::new(usize::MAX),
            target: RefCell::new(target.unwrap()),
            events: RefCell::default(),
            recovery: DiskRecovery::new(disk.geometry()),
            replayed: Cell::new(0),
            keys: Cell::new(0),
            device,
            disk,
        })
    }
}
