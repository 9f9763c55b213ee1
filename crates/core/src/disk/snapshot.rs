//! The snapshot of a disk that the hot path uses. It is computed once, and replaced as a whole when the layout or an
//! attribute changes.

use super::config::{DiskConfig, Mode, ZoneRecovery};
use crate::bio::{Bio, Op, Status};
use crate::plug::{Merge, Words};
use crate::sched::elevator::Setup;
use crate::sched::writer::WriterParams;
use crate::sched::{Policy, Scheduler};
use crate::unit::{Nanos, Sector, ZoneNo};
use crate::zone::{Geometry, Limits};
use std::sync::Arc;

/// A snapshot of geometry, limits and attributes. [`Geometry`] alone says where the zones are.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    pub(crate) geometry: Geometry,
    pub(crate) limits: Limits,
    pub(crate) config: DiskConfig,
    /// The words of the plugs.
    pub(crate) words: Arc<Words>,
    /// Whether writes and appends go through plugs.
    pub(crate) plugs: bool,
    /// Whether appends go to the device as they are.
    pub(crate) native_append: bool,
    /// Whether a scheduler, a single writer or several writes of a zone in flight decide what is sent next. On other
    /// disks free tags alone decide. An arbitrated queue keeps its tags in `held`, so the code for the other disks need
    /// not test for this.
    pub(crate) arbitrated: bool,
    /// Whether a scheduler is on.
    pub(crate) scheduled: bool,
    /// Whether there is a single writer (Q1), and how it behaves.
    pub(crate) single_writer: bool,
    pub(crate) writer_params: WriterParams,
    /// Whether a turn of one command needs no lock while no zone waits (`sched/writer_cell.rs`). A writer that waits for
    /// more, or whose policy is the program's own, needs to know more of each turn.
    pub(crate) short_turns: bool,
    /// Whether a write that finds nothing waiting in the scheduler passes it by (`queue/past_scheduler.rs`). Such plugs
    /// are in their words while no write waits.
    pub(crate) passes_scheduler: bool,
    /// Most writes of a zone in flight. If it is more than 1, `arbitrated` is set too, so other disks need not count
    /// writes.
    pub(crate) zone_depth: u16,
    /// Whether the layer reports a zone by itself after a failure (E12).
    pub(crate) zone_recovery: bool,
    /// How long a write that comes before its place is held; 0: it is refused at once.
    pub(crate) order_window: Nanos,
    /// Whether the layer itself uses the time.
    pub(crate) timed: bool,
    pub(crate) merge: Merge,
    /// Longest command with data, in sectors.
    pub(crate) max_transfer: u32,
    /// Longest append, in sectors.
    pub(crate) append_max: u32,
    block_mask: u32,
    write_mask: u32,
}

/// Returns why a disk may have only one write of a zone in flight, and what to try. `None`: it may have several.
pub(crate) fn no_zone_depth(
    limits: &Limits,
    config: &DiskConfig,
) -> Option<(&'static str, &'static str)> {
    if config.mode != Mode::Plug {
        return Some(("a disk without plugs", "open the disk with mode=plug"));
    }
    if !limits.keeps_write_order {
        let why = "a device that does not declare that it keeps the order of writes";
        return Some((why, "an emulated disk declares it with ordered=1"));
    }
    if config.zoned_qd1_writes.unwrap_or(limits.rotational) {
        return Some(("a single writer", "switch it off first: zoned_qd1_writes=0 (qd1=0)"));
    }
    if !config.scheduler.keeps_zone_order() {
        return Some((
            "a scheduler that does not keep the order of a zone",
            "use the scheduler none",
        ));
    }
    None
}

impl Layout {
    pub(crate) fn new(
        geometry: Geometry,
        limits: Limits,
        config: DiskConfig,
        words: Arc<Words>,
    ) -> Layout {
        let max_transfer = limits.transfer_sectors();
        let native = limits.zone_append_max_sectors != 0 && !config.emulate_append;
        let plugs = config.mode == Mode::Plug;
        // Only a scheduler locks zones (C1).
        let scheduled = config.scheduler != Scheduler::None || config.mode == Mode::Lock;
        let single_writer = plugs && config.zoned_qd1_writes.unwrap_or(limits.rotational);
        // An attribute that contradicts others is refused (`attributes/`), but a device may change its limits later.
        let zone_depth = match no_zone_depth(&limits, &config) {
            None => config.zone_write_depth.max(1),
            Some(_) => 1,
        };
        Layout {
            plugs,
            arbitrated: single_writer || scheduled || zone_depth > 1,
            zone_depth,
            zone_recovery: plugs
                && match config.zone_recovery {
                    None => !native,
                    Some(recovery) => recovery == ZoneRecovery::Auto,
                },
            scheduled,
            single_writer,
            short_turns: single_writer
                && !scheduled
                && config.anticipation.0 == 0
                && !config.zone_counters
                && !matches!(config.zoned_qd1_policy, Policy::Own(_)),
            passes_scheduler: plugs
                && scheduled
                && !single_writer
                && config.read_write_balance.is_none()
                && !config.zone_counters,
            order_window: if plugs { config.order_window } else { Nanos(0) },
            timed: config.timeout.is_some()
                || scheduled
                || plugs && config.order_window.0 != 0
                || single_writer && (config.anticipation.0 | config.zone_deadline.0) != 0,
            writer_params: WriterParams {
                policy: config.zoned_qd1_policy,
                anticipation: config.anticipation,
                deadline: config.zone_deadline,
                capacity: geometry.capacity(),
            },
            native_append: native,
            merge: Merge {
                max_sectors: max_transfer,
                max_zeroes_sectors: limits.write_zeroes_sectors(),
                max_bios: match (config.nomerges, limits.max_bios) {
                    (true, _) => 1,
                    (false, 0) => u32::MAX,
                    (false, n) => n,
                },
            },
            max_transfer,
            append_max: if native {
                limits.visible_append_sectors(geometry.zone_sectors())
            } else {
                max_transfer.min(geometry.zone_sectors())
            },
            block_mask: limits.logical_block_sectors - 1,
            write_mask: limits.write_granularity_sectors - 1,
            geometry,
            limits,
            config,
            words,
        }
    }

    /// The scheduler in use.
    pub(crate) fn scheduler(&self) -> Scheduler {
        match (self.config.mode, self.config.scheduler) {
            (Mode::Lock, Scheduler::None) => Scheduler::MqDeadline,
            (_, scheduler) => scheduler,
        }
    }

    pub(crate) fn elevator_setup(&self) -> Setup {
        Setup {
            scheduler: self.scheduler(),
            deadline: self.config.deadline,
            balance: self.config.read_write_balance,
            depth: self.config.queue_depth,
            locks: if self.config.mode == Mode::Lock { self.geometry.nr_zones() } else { 0 },
        }
    }

    /// Checks that hold for all reads and writes: the range is on the disk, the memory fits, and both ends are
    /// aligned.
    #[inline]
    pub(crate) fn check(&self, bio: &Bio, mask: u32) -> Result<(), Status> {
        if !self.geometry.contains(bio.sector, bio.len_sectors) {
            return Err(Status::OutOfRange);
        }
        if (bio.sector.0 as u32 | bio.len_sectors) & mask != 0 {
            return Err(Status::Unaligned);
        }
        if bio.op.has_data() && !Self::buffer_fits(bio) {
            return Err(Status::BadBuffer);
        }
        Ok(())
    }

    #[inline]
    pub(crate) fn buffer_fits(bio: &Bio) -> bool {
        u64::from(bio.data().len()) == u64::from(bio.len_sectors) << 9
    }

    pub(crate) fn check_read(&self, bio: &Bio) -> Result<(), Status> {
        self.check(bio, self.block_mask)
    }

    /// Checks a write to any zone.
    #[inline]
    pub(crate) fn check_write(&self, bio: &Bio) -> Result<(), Status> {
        if let Err(status) = self.check(bio, self.write_mask) {
            self.finer_grain(bio, status)?;
        }
        if self.limits.read_only {
            return Err(Status::ReadOnlyDisk);
        }
        Ok(())
    }

    /// Checks an append that begins `offset` sectors behind the start of its zone.
    #[inline]
    pub(crate) fn check_append(&self, offset: u32, len_sectors: u32) -> Result<(), Status> {
        if offset != 0 {
            Err(Status::NotZoneStart)
        } else if len_sectors > self.append_max {
            Err(Status::AppendTooLarge)
        } else {
            Ok(())
        }
    }

    /// Checks the limits on the length of an operation, before there is a BIO with memory of that length.
    pub(crate) fn check_length(
        &self,
        op: Op,
        sector: Sector,
        len_sectors: u64,
    ) -> Result<(), Status> {
        let len = u32::try_from(len_sectors).map_err(|_| Status::OutOfRange)?;
        // The queue refuses an empty range with the other BIOs.
        if len != 0 && !self.geometry.contains(sector, len) {
            return Err(Status::OutOfRange);
        }
        if len == 0 || op != Op::ZoneAppend {
            return Ok(());
        }
        let (zone, offset) = self.geometry.zone_of(sector);
        if self.native_append && self.geometry.is_conventional(zone) {
            return Err(Status::ConventionalZone);
        }
        self.check_append(offset, len)
    }

    /// Checks the write granularity of a write to a sequential zone. Conventional zones take any block.
    #[cold]
    fn finer_grain(&self, bio: &Bio, status: Status) -> Result<(), Status> {
        if status != Status::Unaligned {
            return Err(status);
        }
        let (first, _) = self.geometry.zone_of(bio.sector);
        let (last, _) = self.geometry.zone_of(bio.sector.plus(u64::from(bio.len_sectors) - 1));
        if !(first.0..=last.0).all(|z| self.geometry.is_conventional(ZoneNo(z))) {
            return Err(status);
        }
        self.check(bio, self.block_mask)
    }

    /// The longest command of an operation that writes or reads, in sectors. 0: the device does not have it.
    #[inline]
    pub(crate) fn max_of(&self, op: Op) -> u32 {
        if op == Op::WriteZeroes { self.merge.max_zeroes_sectors } else { self.max_transfer }
    }

    #[inline]
    pub(crate) fn write_mask(&self) -> u32 {
        self.write_mask
    }
}
