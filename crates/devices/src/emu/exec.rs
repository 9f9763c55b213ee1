//! Carries out one command on a disk: first every check that a drive makes, then the effect. This file defines the
//! order of the checks. A command that fails a check changes nothing.

use super::config::{EmuConfig, EmuKind};
use super::data::Mem;
use super::hooks::{Counters, Hooks};
use super::table::Table;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use zoneplug_core::bio::{Command, Commands, Flags, Op, Status};
use zoneplug_core::unit::{SECTOR_SHIFT, Sector, ZoneNo};
use zoneplug_core::zone::machine::ZoneStates;
use zoneplug_core::zone::{Condition, ZoneInfo};

/// State that all queues of a disk share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) config: EmuConfig,
    pub(super) table: Table,
    pub(super) mem: Option<Mem>,
    pub(super) hooks: Hooks,
    /// Whether the BIOs of commands are checked.
    walk: bool,
    /// Sectors of a logical block, less one.
    block_mask: u32,
    /// Sectors of the write granularity, less one.
    write_mask: u32,
    /// `max_transfer_sectors` and `max_bios`, with the largest number for no limit.
    max_transfer: u32,
    max_bios: usize,
    /// The number of offline zones. While it is 0, a read of a `null` disk need not look at its zone.
    offline: AtomicU32,
    /// The number of queues opened so far.
    queues: AtomicU32,
}

impl Shared {
    /// Makes the shared state. `config` must have been checked.
    pub(super) fn new(mut config: EmuConfig) -> Shared {
        let (g, l) = (&config.geometry, &mut config.limits);
        let sequential = g.nr_zones() - g.nr_conventional();
        for limit in [&mut l.max_open_zones, &mut l.max_active_zones] {
            if *limit >= sequential {
                *limit = 0;
            }
        }
        let unlimited = |n: u32| if n == 0 { u32::MAX } else { n };
        Shared {
            table: Table::new(g, l.max_open_zones, l.max_active_zones),
            mem: (config.kind == EmuKind::Mem).then(|| Mem::new(g)),
            hooks: Hooks::new(if config.paranoid { g.nr_zones() } else { 0 }),
            walk: config.kind == EmuKind::Mem || config.paranoid || cfg!(debug_assertions),
            block_mask: l.logical_block_sectors - 1,
            write_mask: l.write_granularity_sectors - 1,
            max_transfer: unlimited(l.max_transfer_sectors),
            max_bios: unlimited(l.max_bios) as usize,
            offline: AtomicU32::new(0),
            queues: AtomicU32::new(0),
            config,
        }
    }

    /// Returns the number of a queue that is being opened.
    pub(super) fn next_queue(&self) -> u64 {
        u64::from(self.queues.fetch_add(1, Relaxed))
    }

    /// Counts the writes among the first `n` of `commands` as being at the device. `tag` remembers which commands
    /// were counted.
    #[cold]
    pub(super) fn arrive(&self, commands: &mut Commands, n: usize, queue: &Counters) {
        let g = &self.config.geometry;
        for c in commands.iter_mut().take(n) {
            c.tag = u32::MAX;
            let (zone, _) = g.zone_of(c.sector);
            if matches!(c.op, Op::Write | Op::WriteZeroes)
                && g.contains(c.sector, 1)
                && !g.is_conventional(zone)
            {
                c.tag = zone.0;
                self.hooks.write_arrives(zone.0, queue, self.config.limits.keeps_write_order);
            }
        }
    }

    /// Counts the writes among `commands` as handed back.
    #[cold]
    pub(super) fn leave<'a>(&self, commands: impl Iterator<Item = &'a Box<Command>>) {
        for c in commands.filter(|c| c.tag != u32::MAX) {
            self.hooks.write_leaves(c.tag);
        }
    }

    /// Returns the index of the command to carry out instead of the one at `i`, on a queue that keeps the order of
    /// writes: the first of `waiting` that writes to the same sequential zone. For a command that is not such a
    /// write, returns `i`.
    pub(super) fn first_of_zone(&self, waiting: &Commands, i: usize) -> usize {
        let g = &self.config.geometry;
        let zone = |c: &Command| {
            let writes = matches!(c.op, Op::Write | Op::WriteZeroes) && g.contains(c.sector, 1);
            let (zone, _) = g.zone_of(c.sector);
            (writes && !g.is_conventional(zone)).then_some(zone)
        };
        match zone(&waiting[i]) {
            None => i,
            own => waiting.iter().position(|c| zone(c) == own).unwrap_or(i),
        }
    }

    /// Carries a command out and sets its status.
    #[inline(always)]
    pub(super) fn execute(&self, c: &mut Command, counters: &Counters) {
        counters.command(c.op);
        let status = if self.hooks.armed() {
            self.execute_with_faults(c, counters)
        } else {
            self.run(c, c.len_sectors, counters)
        };
        c.status = status;
        if !status.is_ok() {
            counters.failure(status);
        }
    }

    #[cold]
    fn execute_with_faults(&self, c: &mut Command, counters: &Counters) -> Status {
        let Some(fault) = self.hooks.take_fault(c) else {
            return self.run(c, c.len_sectors, counters);
        };
        if let (Some(torn), Op::Write | Op::WriteZeroes | Op::ZoneAppend) =
            (fault.torn_sectors, c.op)
            && torn > 0
        {
            let sector = c.sector;
            // The command ends with the fault's status, even if the disk would have refused it.
            let _ = self.run(c, torn.min(c.len_sectors), counters);
            c.sector = sector;
        }
        fault.status
    }

    /// Carries out a command, of which only the first `take` sectors are written.
    #[inline(always)]
    fn run(&self, c: &mut Command, take: u32, counters: &Counters) -> Status {
        let done = match c.op {
            Op::Read => self.read(c),
            Op::Write => self.write(c, take, counters),
            _ => self.other(c, take, counters),
        };
        match done {
            Ok(()) => Status::Ok,
            Err(status) => status,
        }
    }

    /// Carries out a command of any operation. Kept out of [`Self::run`], so that it does not slow down reads and
    /// writes.
    #[inline(never)]
    fn other(&self, c: &mut Command, take: u32, counters: &Counters) -> Result<(), Status> {
        match c.op {
            Op::Read => self.read(c),
            Op::Write | Op::ZoneAppend | Op::WriteZeroes => self.write(c, take, counters),
            Op::Flush => Ok(()),
            Op::Discard => self.discard(c),
            Op::ZoneOpen | Op::ZoneClose | Op::ZoneFinish | Op::ZoneReset => self.manage(c),
            Op::ZoneResetAll => self.reset_all(),
            Op::ReportZones => self.report(c),
        }
    }

    /// Checks the range of a command against the disk; `max` is the longest range allowed. Returns the zone that
    /// contains the range, and the offset there.
    #[inline]
    fn range(&self, c: &Command, max: u32) -> Result<(ZoneNo, u32), Status> {
        self.config.geometry.range(c.sector, c.len_sectors, self.block_mask, max)
    }

    /// Checks that the memory of a command's BIOs is as long as the command, and that the BIOs are contiguous.
    #[inline]
    fn buffers(&self, c: &Command) -> Result<(), Status> {
        if c.bios.len() > self.max_bios {
            return Err(Status::InvalidField);
        }
        // A disk without data accepts BIOs without memory.
        let whole = !self.walk || c.has_whole_bios(self.mem.is_none());
        if whole { Ok(()) } else { Err(Status::InvalidField) }
    }

    /// Carries out a write, write-zeroes or append.
    #[inline(never)]
    fn write(&self, c: &mut Command, take: u32, counters: &Counters) -> Result<(), Status> {
        let l = &self.config.limits;
        if l.read_only {
            return Err(Status::ReadOnlyDisk);
        }
        if c.flags.contains(Flags::FUA) && !l.fua {
            return Err(Status::InvalidField);
        }
        let max = match c.op {
            Op::WriteZeroes if l.max_write_zeroes_sectors == 0 => return Err(Status::NotSupported),
            Op::WriteZeroes => l.max_write_zeroes_sectors,
            Op::ZoneAppend => return self.append(c, take, counters),
            _ => self.max_transfer,
        };
        let (zone, offset) = self.range(c, max)?;
        self.buffers(c)?;
        self.put(c, zone, Some(offset), take, counters).map(|_| ())
    }

    #[inline(never)]
    fn append(&self, c: &mut Command, take: u32, counters: &Counters) -> Result<(), Status> {
        let g = &self.config.geometry;
        let max = self.config.limits.zone_append_max_sectors;
        if max == 0 {
            return Err(Status::NotSupported);
        }
        let (zone, offset) = self.range(c, max.min(self.max_transfer))?;
        if offset != 0 || g.is_conventional(zone) || c.bios.len() > 1 {
            return Err(Status::InvalidField);
        }
        self.buffers(c)?;
        let at = self.put(c, zone, None, take, counters)?;
        c.sector = g.zone_start(zone).plus(u64::from(at));
        Ok(())
    }

    /// Writes `take` sectors at `at`, or at the write pointer. The range is within the zone.
    #[inline(always)]
    fn put(
        &self,
        c: &Command,
        zone: ZoneNo,
        at: Option<u32>,
        take: u32,
        counters: &Counters,
    ) -> Result<u32, Status> {
        let g = &self.config.geometry;
        let conventional = g.is_conventional(zone);
        if !conventional && (at.unwrap_or(0) | c.len_sectors) & self.write_mask != 0 {
            return Err(Status::InvalidField);
        }
        let start = match &self.mem {
            None => self.advance(c, zone, at, take)?,
            Some(mem) => self.put_data(mem, c, zone, at, take)?,
        };
        counters.written(take);
        Ok(start)
    }

    /// Moves the write pointer, and copies the data.
    #[inline(never)]
    fn put_data(
        &self,
        mem: &Mem,
        c: &Command,
        zone: ZoneNo,
        at: Option<u32>,
        take: u32,
    ) -> Result<u32, Status> {
        // Locked until the data are copied. So a reader that sees the write pointer past this write also sees its
        // data (O7).
        let mut data = mem.write(zone);
        let start = self.advance(c, zone, at, take)?;
        if c.op == Op::WriteZeroes {
            data.zero(start, take);
        } else {
            data.write(start, take, &c.bios);
        }
        Ok(start)
    }

    /// Moves the write pointer of a sequential zone by `take` sectors. Returns where the write begins.
    #[inline(always)]
    fn advance(
        &self,
        c: &Command,
        zone: ZoneNo,
        at: Option<u32>,
        take: u32,
    ) -> Result<u32, Status> {
        let g = &self.config.geometry;
        if let Some(offset) = at
            && g.is_conventional(zone)
        {
            return Ok(offset);
        }
        let capacity = g.capacity_of(zone);
        // Only a write that the disk would have taken as a whole can be torn.
        if take < c.len_sectors && c.len_sectors > capacity - self.table.get(zone).wp {
            return Err(Status::Boundary);
        }
        self.table.write(zone, at, take, capacity)
    }

    #[inline]
    fn read(&self, c: &mut Command) -> Result<(), Status> {
        let (zone, offset) = self.range(c, self.max_transfer)?;
        self.buffers(c)?;
        let Some(mem) = &self.mem else {
            if self.offline.load(Relaxed) > 0 && self.table.get(zone).cond == Condition::Offline {
                return Err(Status::ZoneOffline);
            }
            return Ok(());
        };
        let data = mem.read(zone);
        let state = self.table.get(zone);
        let valid = match state.cond {
            Condition::Offline => return Err(Status::ZoneOffline),
            Condition::NotWp => self.config.geometry.zone_len_sectors(zone),
            _ => state.wp,
        };
        data.read(offset, valid, &mut c.bios);
        Ok(())
    }

    #[cold]
    fn discard(&self, c: &Command) -> Result<(), Status> {
        let l = &self.config.limits;
        if l.read_only {
            return Err(Status::ReadOnlyDisk);
        }
        if !l.discard {
            return Err(Status::NotSupported);
        }
        let (zone, offset) = self.range(c, u32::MAX)?;
        if !self.config.geometry.is_conventional(zone) {
            return Err(Status::InvalidField);
        }
        if let Some(mem) = &self.mem {
            mem.write(zone).zero(offset, c.len_sectors);
        }
        Ok(())
    }

    /// Opens, closes, finishes or resets one zone.
    fn manage(&self, c: &Command) -> Result<(), Status> {
        let g = &self.config.geometry;
        if self.config.limits.read_only {
            return Err(Status::ReadOnlyDisk);
        }
        let zone = g.whole_zone(c.sector, c.len_sectors)?;
        let (zones, mut budget) = (&mut &self.table, self.table.budget());
        match c.op {
            Op::ZoneOpen => budget.open(zones, zone),
            Op::ZoneClose => budget.close(zones, zone),
            Op::ZoneFinish => budget.finish(zones, zone),
            _ => budget.reset(zones, zone),
        }
    }

    fn reset_all(&self) -> Result<(), Status> {
        if self.config.limits.read_only {
            return Err(Status::ReadOnlyDisk);
        }
        self.table.reset_all();
        Ok(())
    }

    fn report(&self, c: &mut Command) -> Result<(), Status> {
        let g = &self.config.geometry;
        if !g.contains(c.sector, 1) {
            return Err(Status::InvalidField);
        }
        let first = g.zone_of(c.sector).0.0;
        let end = first.saturating_add(c.report_max).min(g.nr_zones());
        c.report.extend((first..end).map(|z| self.zone_info(ZoneNo(z))));
        Ok(())
    }

    pub(super) fn zone_info(&self, zone: ZoneNo) -> ZoneInfo {
        let g = &self.config.geometry;
        assert!(zone.0 < g.nr_zones(), "{zone} is not on the disk");
        ZoneInfo::of(g, zone, self.table.get(zone))
    }

    pub(super) fn set_condition(&self, zone: ZoneNo, cond: Condition) -> bool {
        assert!(zone.0 < self.config.geometry.nr_zones(), "{zone} is not on the disk");
        let mut budget = self.table.budget();
        let old = self.table.get(zone).cond;
        // The count is raised before the zone goes offline, and lowered after it is back. So a read of an offline
        // zone always looks at the zone.
        if cond == Condition::Offline {
            self.offline.fetch_add(1, Relaxed);
        }
        let done = budget.set_condition(&mut &self.table, zone, cond);
        let no_longer = if done { old } else { cond };
        if no_longer == Condition::Offline {
            self.offline.fetch_sub(1, Relaxed);
        }
        done
    }

    pub(super) fn set_data(&self, at: Sector, data: &[u8]) {
        let (zone, offset) = self.config.geometry.zone_of(at);
        let sectors = data.len() as u64 >> SECTOR_SHIFT;
        let room = u64::from(self.config.geometry.zone_len_sectors(zone)) - u64::from(offset);
        assert!(sectors <= room, "{sectors} sectors at {at} are not inside of {zone}");
        if let Some(mem) = &self.mem {
            mem.write(zone).put(offset, data);
        }
    }

    pub(super) fn set_write_pointer(&self, zone: ZoneNo, sectors: u32) {
        let g = &self.config.geometry;
        assert!(zone.0 < g.nr_zones(), "{zone} is not on the disk");
        assert!(!g.is_conventional(zone), "{zone} is conventional");
        let capacity = g.capacity_of(zone);
        let sectors = sectors.min(capacity);
        let mut data = self.mem.as_ref().map(|m| m.write(zone));
        let mut budget = self.table.budget();
        let old = self.table.get(zone);
        let cond = match old.cond {
            Condition::ReadOnly | Condition::Offline => old.cond,
            _ if sectors == 0 => Condition::Empty,
            _ if sectors == capacity => Condition::Full,
            Condition::Empty | Condition::Full => Condition::Closed,
            open_or_closed => open_or_closed,
        };
        if let Some(data) = &mut data
            && sectors > old.wp
        {
            data.zero(old.wp, sectors - old.wp);
        }
        if cond != old.cond {
            budget.set_condition(&mut &self.table, zone, cond);
        }
        (&mut &self.table).update(zone, |s| s.wp = sectors);
    }
}
