//! Commands: the requests and answers of the seam between a disk and its device.

use super::{Bio, Flags, Op, Status, WritePointer, ZoneClaim};
use crate::unit::{Nanos, SECTOR_SHIFT, Sector};
use crate::zone::ZoneInfo;
use std::collections::VecDeque;
use std::ops::Range;

/// One command for a device; Linux calls it a request. A command carries the BIOs that were merged into it, contiguous
/// and in the order of their sectors. The device goes through the BIOs for their memory.
///
/// Commands belong to the queue that sends them and are its tags. A queue has as many commands as tags. Each comes
/// back through [`Queue::poll`](crate::Queue::poll) and is used again.
#[derive(Debug)]
pub struct Command {
    /// First sector. For a native append: the start of the zone on the way down, and where the data landed on the way
    /// up.
    pub sector: Sector,
    /// Sum of the lengths of the BIOs, in sectors; for zone management the length of the range.
    pub len_sectors: u32,
    /// The operation. An emulated append is a write here.
    pub op: Op,
    /// `FUA` and `PREFLUSH`. The device carries out both itself. A device without FUA never gets that flag.
    pub flags: Flags,
    /// Set by the device.
    pub status: Status,
    /// The operation that was sent. A faulty device may change `op`.
    pub(crate) sent_op: Op,
    /// The party that waits for the command.
    pub(crate) waiter: Waiter,
    /// The zone of `sector`, where the engine needs it.
    pub(crate) zone: u32,
    /// The zone's generation when the command was sent. A failure undoes the reservation only if the generation is
    /// still the same.
    pub(crate) generation: u32,
    /// The disk's error epoch when a report was sent (E6).
    pub(crate) epoch: u32,
    /// The zones of the BIO of a zone management command. `zone` is the one that the device works on.
    pub(crate) managed: Range<u32>,
    /// The claim of the BIO of a reset or finish.
    pub(crate) claim: ZoneClaim,
    /// The queue of all BIOs, or [`MIXED`].
    pub(crate) owner: u32,
    /// For a mixed command: runs of BIOs in order, each with its queue and number.
    pub(crate) owners: Vec<(u32, u32)>,
    /// The index of this command's note in `disk/guard/inflight.rs`, or [`NO_SLOT`] or [`UNSENT`]. The note holds while
    /// the device has the command.
    pub(crate) slot: u32,
    /// The step that carries out FUA on a device without it, while the command is at such a device.
    pub(crate) fua: FuaStep,
    /// The number that an [`AddressMap`](crate::device::AddressMap) has added to `sector`, which is never positive.
    /// 0 unless the command is below the map.
    pub(crate) moved: i64,
    /// For the device: it may keep any number here while it holds the command.
    pub tag: u32,
    /// The completion time, for the device. The engine does not look at it.
    pub due: Nanos,
    /// The BIOs, first sector first. Empty for a command of the engine's own.
    pub bios: Vec<Box<Bio>>,
    /// The answer to a report: the device appends at most `report_max` zones.
    pub report: Vec<ZoneInfo>,
    /// The most zones that a report may describe.
    pub report_max: u32,
}

/// The party that waits for a command. The completion takes a different path for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waiter {
    /// The owners of the BIOs. No plug waits.
    Client,
    /// The owner of the BIO: the command is zone management.
    Management,
    /// A revalidation: the command is the disk's own report of all zones.
    Revalidation,
    /// A plug: the command is the write of a sequential zone.
    Plug,
    /// A zone whose write has failed: the command is the layer's own report of that zone.
    Recovery,
}

/// The role of a command where a [`FuaQueue`](crate::device::FuaQueue) replaces FUA by a flush after the write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FuaStep {
    /// None: the command has no FUA, or is not in such a queue.
    None,
    /// A write whose FUA a flush carries out.
    Write,
    /// The flush of such writes.
    Flush,
}

/// `owner` of a command whose BIOs belong to several queues.
pub(crate) const MIXED: u32 = u32::MAX;

/// `slot` of a command without a note.
pub(crate) const NO_SLOT: u32 = u32::MAX;
/// `slot` of a command that did not reach the device, so it changed nothing.
pub(crate) const UNSENT: u32 = u32::MAX - 1;

/// Commands on their way down or up, first in, first out.
pub type Commands = VecDeque<Box<Command>>;

impl Command {
    /// Makes an empty command with room for `bios` BIOs.
    pub fn new(bios: usize) -> Box<Command> {
        Box::new(Command {
            sector: Sector(0),
            len_sectors: 0,
            op: Op::Flush,
            flags: Flags::NONE,
            status: Status::Ok,
            sent_op: Op::Flush,
            waiter: Waiter::Client,
            zone: 0,
            generation: 0,
            epoch: 0,
            managed: 0..0,
            claim: ZoneClaim::None,
            owner: 0,
            // Room for the usual number of owners, so that the list rarely grows.
            owners: Vec::with_capacity(bios.min(32)),
            slot: NO_SLOT,
            fua: FuaStep::None,
            moved: 0,
            tag: 0,
            due: Nanos(0),
            bios: Vec::with_capacity(bios),
            report: Vec::new(),
            report_max: 0,
        })
    }

    /// Makes this command zone management of `zones`, starting with the first of them. The command keeps the zones and
    /// the claim of its BIO, because a faulty device may return it without the BIO or with another one.
    pub(crate) fn manage(&mut self, zones: Range<u32>, claim: ZoneClaim) {
        self.waiter = Waiter::Management;
        self.zone = zones.start;
        self.managed = zones;
        self.claim = claim;
    }

    /// Returns what the command's status says about the write pointer of its zone.
    #[inline]
    pub(crate) fn write_pointer(&self) -> WritePointer {
        match self.status.write_pointer() {
            WritePointer::Unknown if self.slot == UNSENT => WritePointer::Kept,
            said => said,
        }
    }

    /// Notes that the first BIO of the command belongs to `queue`.
    #[inline]
    pub(crate) fn begin_owners(&mut self, queue: u32) {
        self.owner = queue;
    }

    /// Notes that the next `nr` BIOs, which are about to be pushed, belong to `queue`. The list keeps runs of one
    /// owner, so completing a merged command does not touch BIOs of other clients.
    #[inline]
    pub(crate) fn add_owner(&mut self, queue: u32, nr: u32) {
        if self.owner == queue {
            return;
        }
        if self.owner != MIXED {
            self.owners.clear();
            self.owners.push((self.owner, self.bios.len() as u32));
            self.owner = MIXED;
        }
        match self.owners.last_mut() {
            Some((q, n)) if *q == queue => *n += nr,
            _ => self.owners.push((queue, nr)),
        }
    }

    /// Makes a command without BIOs, as tests of a device and stacked devices send it.
    ///
    /// ```
    /// use zoneplug_core::{Command, Op, Sector};
    /// let c = Command::without_data(Op::ZoneReset, Sector(0), 0x8000);
    /// assert!(c.bios.is_empty());
    /// ```
    pub fn without_data(op: Op, sector: Sector, len_sectors: u32) -> Box<Command> {
        let mut c = Self::new(0);
        c.set(op, sector, len_sectors, Flags::NONE);
        c
    }

    /// Makes a command of one BIO, as tests of a device send it.
    pub fn of(bio: Box<Bio>) -> Box<Command> {
        let mut c = Self::new(1);
        c.set(bio.op, bio.sector, bio.len_sectors, bio.flags);
        c.bios.push(bio);
        c
    }

    /// Checks that the BIOs of a command are together as long as the command, have memory for their data, and are
    /// contiguous. Every device that goes through the BIOs calls this.
    ///
    /// `dataless`: the device keeps no data, so a BIO may have no memory and a command may have no BIOs; a BIO that
    /// has memory must still have all of it. Without `dataless`, a read into memory that was lent shared, and so may
    /// only be read, fails the check.
    pub fn has_whole_bios(&self, dataless: bool) -> bool {
        let data = self.op.has_data();
        let fills = self.op == Op::Read && !dataless;
        let mut sum = 0;
        for bio in &self.bios {
            let len = u64::from(bio.len_sectors);
            let matches = u64::from(bio.data().len()) == len << SECTOR_SHIFT;
            if len == 0 || data && !(matches || dataless && bio.data().is_empty()) {
                return false;
            }
            if fills && bio.data().is_shared() {
                return false;
            }
            sum += len;
        }
        // An append names its zone and has no sector yet. The BIOs of writes and reads must have contiguous sectors.
        let contiguous = self
            .bios
            .windows(2)
            .all(|w| w.iter().any(|b| b.op == Op::ZoneAppend) || w[0].end() == Some(w[1].sector));
        let bare = self.bios.is_empty() && (dataless || !data);
        contiguous && (bare || sum == u64::from(self.len_sectors))
    }

    /// Makes this a new command, without BIOs.
    #[inline]
    pub fn set(&mut self, op: Op, sector: Sector, len_sectors: u32, flags: Flags) {
        self.sector = sector;
        self.len_sectors = len_sectors;
        self.op = op;
        self.sent_op = op;
        self.flags = Flags(flags.0 & Flags::DEVICE);
        self.status = Status::Ok;
        self.waiter = Waiter::Client;
    }
}
