//! Checks one command as a drive does, before any data moves. Owns the order of the checks; a command that
//! fails one changes nothing.

use super::commit::Want;
use super::load;
use super::state::{Core, FileState, is_resettable, lock};
use std::ops::Range;
use zoneplug_core::zone::machine::{Advance, ZoneState};
use zoneplug_core::zone::{Condition, ZoneInfo};
use zoneplug_core::{Command, Flags, Op, Status, ZoneNo};

/// Space for a zone is allocated ahead of its writes: as much as the zone has data, within these limits, in sectors.
/// So a disk with little data takes little space, and a long zone is in few pieces.
const LEAST_AHEAD: u32 = (4 << 20) >> 9;
const MOST_AHEAD: u32 = (256 << 20) >> 9;

/// The next step of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FileStep {
    /// Nothing; the command is done.
    Done(Status),
    /// Its zone is in use; try again later.
    Wait,
    /// Move data.
    Data(Data),
    /// Write the table.
    Commit(Want),
}

/// Data that moves between a command and the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Data {
    /// From the command to the file.
    pub(super) write: bool,
    /// Whether zeroes are written instead of data.
    pub(super) zeroes: bool,
    /// The zone whose write pointer moves, or a conventional zone.
    pub(super) zone: u32,
    /// Offset in the zone and length, in sectors.
    pub(super) at: u32,
    pub(super) len: u32,
}

impl Core {
    /// Checks a command and takes its zone.
    pub(super) fn begin(&self, c: &mut Command) -> FileStep {
        let next = match c.op {
            Op::Write | Op::WriteZeroes | Op::ZoneAppend => self.begin_write(c),
            Op::Read => self.begin_read(c),
            Op::Flush => Ok(if !self.limits.read_only && self.state().is_dirty() {
                FileStep::Commit(Want::Flush)
            } else {
                FileStep::Done(Status::Ok)
            }),
            Op::Discard => self.begin_discard(c),
            Op::ZoneOpen | Op::ZoneClose | Op::ZoneFinish | Op::ZoneReset => self.manage(c),
            Op::ZoneResetAll => self.reset_all(),
            Op::ReportZones => self.report(c),
        };
        next.unwrap_or_else(FileStep::Done)
    }

    /// Checks the range of a command against the disk. Returns its zone, and its offset in the zone.
    fn range(&self, c: &Command, max: u32) -> Result<(ZoneNo, u32), Status> {
        let mask = self.limits.logical_block_sectors - 1;
        self.sup.geometry.range(c.sector, c.len_sectors, mask, max)
    }

    /// Checks that the buffers of a command are as long as the command, and that merged BIOs are
    /// contiguous.
    fn buffers(&self, c: &Command) -> Result<(), Status> {
        let few = c.bios.len() <= self.limits.max_bios as usize;
        if few && c.has_whole_bios(false) { Ok(()) } else { Err(Status::InvalidField) }
    }

    fn begin_write(&self, c: &mut Command) -> Result<FileStep, Status> {
        let (g, l) = (&self.sup.geometry, &self.limits);
        if l.read_only {
            return Err(Status::ReadOnlyDisk);
        }
        if !l.write_cache {
            c.flags = c.flags.with(Flags::FUA);
        }
        let append = c.op == Op::ZoneAppend;
        let max = match c.op {
            Op::WriteZeroes => l.max_write_zeroes_sectors,
            Op::ZoneAppend if l.zone_append_max_sectors == 0 => return Err(Status::NotSupported),
            Op::ZoneAppend => l.zone_append_max_sectors.min(l.max_transfer_sectors),
            _ => l.max_transfer_sectors,
        };
        let (zone, offset) = self.range(c, max)?;
        let conventional = g.is_conventional(zone);
        if append && (offset != 0 || conventional || c.bios.len() > 1) {
            return Err(Status::InvalidField);
        }
        self.buffers(c)?;
        let mask = l.write_granularity_sectors - 1;
        if !conventional && (offset | c.len_sectors) & mask != 0 {
            return Err(Status::InvalidField);
        }
        let zeroes = c.op == Op::WriteZeroes;
        let data = |at| Data { write: true, zeroes, zone: zone.0, at, len: c.len_sectors };
        let mut guard = self.state();
        let s = &mut *guard;
        if let Some(status) = s.failed {
            return Err(status);
        }
        if conventional {
            self.conventional_begins(s, zone.0)?;
            return Ok(FileStep::Data(data(offset)));
        }
        let z = zone.0 as usize;
        if s.meta[z].busy {
            return Ok(FileStep::Wait);
        }
        let capacity = g.capacity_of(zone);
        let at = (!append).then_some(offset);
        let mut after: ZoneState = s.zones[z];
        match after.advance(at, c.len_sectors, capacity) {
            Advance::Refused(status) => return Err(status),
            // Opens the zone. It becomes full after its data is written.
            Advance::Transition if !s.zones[z].cond.is_open() => {
                s.budget.write(&mut s.zones, zone, at, 0, capacity)?;
            }
            Advance::At(_) | Advance::Transition => {}
        }
        let at = s.zones[z].wp;
        let m = &mut s.meta[z];
        m.busy = true;
        m.touched = true;
        let end = at + c.len_sectors;
        if end > m.space
            && let Some(file) = self.storage.file()
            && !file.is_tmpfs()
            && !self.sup.keeps_space
        {
            let from = at.max(m.space);
            let ahead = end.clamp(LEAST_AHEAD, MOST_AHEAD);
            let to = end.saturating_add(ahead).min(capacity);
            m.space = to;
            drop(guard);
            let at = self.layout.data(zone.0, from);
            // An optimisation: the write itself reports errors.
            let _ = file.preallocate(at, self.layout.data(zone.0, to) - at);
        }
        Ok(FileStep::Data(data(at)))
    }

    fn begin_read(&self, c: &mut Command) -> Result<FileStep, Status> {
        let (zone, offset) = self.range(c, self.limits.max_transfer_sectors)?;
        self.buffers(c)?;
        if self.change.get().is_some() {
            return Err(Status::Io);
        }
        let state = self.state().zones[zone.0 as usize];
        let valid = match state.cond {
            Condition::Offline => return Err(Status::ZoneOffline),
            Condition::NotWp => self.sup.geometry.zone_len_sectors(zone),
            _ => state.wp,
        };
        let len = valid.saturating_sub(offset).min(c.len_sectors);
        let mut skip = len;
        for bio in &mut c.bios {
            let data = skip.min(bio.len_sectors);
            let rest = bio.len_sectors - data;
            bio.data_mut().fill_zero(data << 9, rest << 9);
            skip -= data;
        }
        if len == 0 {
            return Ok(FileStep::Done(Status::Ok));
        }
        Ok(FileStep::Data(Data { write: false, zeroes: false, zone: zone.0, at: offset, len }))
    }

    fn begin_discard(&self, c: &Command) -> Result<FileStep, Status> {
        if self.limits.read_only {
            return Err(Status::ReadOnlyDisk);
        }
        let (zone, offset) = self.range(c, u32::MAX)?;
        if !self.sup.geometry.is_conventional(zone) {
            return Err(Status::InvalidField);
        }
        let mut s = self.state();
        if let Some(status) = s.failed {
            return Err(status);
        }
        self.conventional_begins(&mut s, zone.0)?;
        Ok(FileStep::Data(Data {
            write: true,
            zeroes: true,
            zone: zone.0,
            at: offset,
            len: c.len_sectors,
        }))
    }

    /// Open, close, finish and reset of one zone.
    fn manage(&self, c: &Command) -> Result<FileStep, Status> {
        let g = &self.sup.geometry;
        if self.limits.read_only {
            return Err(Status::ReadOnlyDisk);
        }
        let zone = g.whole_zone(c.sector, c.len_sectors)?;
        let mut guard = self.state();
        let s = &mut *guard;
        let z = zone.0 as usize;
        if let Some(status) = s.failed {
            return Err(status);
        }
        if s.meta[z].busy {
            return Ok(FileStep::Wait);
        }
        let cond = s.zones[z].cond;
        match c.op {
            Op::ZoneOpen => s.budget.open(&mut s.zones, zone)?,
            Op::ZoneClose => s.budget.close(&mut s.zones, zone)?,
            Op::ZoneFinish => {
                // Until the table says that the zone is full, the zone stays among the active zones, so that no other
                // zone becomes durable in its place.
                if cond != Condition::Full && !cond.is_open() {
                    s.budget.open(&mut s.zones, zone)?;
                }
                if cond == Condition::Full && !s.is_dirty() {
                    return Ok(FileStep::Done(Status::Ok));
                }
                s.meta[z].busy = true;
                return Ok(FileStep::Commit(Want::Finish(zone.0)));
            }
            _ => {
                match cond {
                    Condition::ReadOnly => return Err(Status::ZoneReadOnly),
                    Condition::Offline => return Err(Status::ZoneOffline),
                    Condition::NotWp => return Err(Status::InvalidField),
                    _ => {}
                }
                s.meta[z].busy = true;
                return Ok(FileStep::Commit(Want::Reset(zone.0)));
            }
        }
        Ok(FileStep::Done(Status::Ok))
    }

    fn reset_all(&self) -> Result<FileStep, Status> {
        if self.limits.read_only {
            return Err(Status::ReadOnlyDisk);
        }
        let mut guard = self.state();
        let s: &mut FileState = &mut guard;
        if let Some(status) = s.failed {
            return Err(status);
        }
        if s.meta.iter().any(|m| m.busy) {
            return Ok(FileStep::Wait);
        }
        for (z, m) in s.zones.iter().zip(&mut s.meta) {
            m.busy = is_resettable(z.cond);
        }
        Ok(FileStep::Commit(Want::ResetAll))
    }

    fn report(&self, c: &mut Command) -> Result<FileStep, Status> {
        let g = &self.sup.geometry;
        if !g.contains(c.sector, 1) {
            return Err(Status::InvalidField);
        }
        let first = g.zone_of(c.sector).0.0;
        let end = first.saturating_add(c.report_max).min(g.nr_zones());
        // Another process may be writing, so these zones are read again. A report holds the lock of the table from
        // reading the zones until it has copied their state, so that no report shows or restores an older reading
        // than the last.
        let _turn = self.limits.read_only.then(|| {
            let turn = lock(&self.table);
            self.refresh(first..end);
            turn
        });
        let s = self.state();
        c.report.extend((first..end).map(|z| ZoneInfo::of(g, ZoneNo(z), s.zones[z as usize])));
        Ok(FileStep::Done(Status::Ok))
    }

    fn refresh(&self, zones: Range<u32>) {
        if let Ok(live) = load::live(&*self.storage, &self.sup, &self.layout, zones.clone()) {
            self.replace(zones.start, &live);
        }
    }

    /// Releases the zone of a write whose data never moved.
    pub(super) fn give_up(&self, d: Data) {
        let m = &mut self.state().meta[d.zone as usize];
        m.busy = false;
        m.in_flight = m.in_flight.saturating_sub(1);
    }

    /// Ends a command whose data has moved, or failed to move.
    pub(super) fn end(&self, c: &mut Command, d: Data, moved: std::io::Result<()>) -> Status {
        let status = match moved {
            Ok(()) => Status::Ok,
            Err(e) => super::state::status_of(&e),
        };
        if !d.write {
            return status;
        }
        if !status.is_ok() {
            match self.is_conventional(d.zone) {
                // A part may have moved, which a snapshot that is being taken must see.
                true => drop(self.written(d.zone, d.at, d.len, 1)),
                false => self.give_up(d),
            }
            return status;
        }
        // A hole needs no count: it can be seen in the file.
        let is_hole = c.op == Op::Discard && !self.discards_by_writing();
        let writes = if is_hole { 0 } else { c.bios.len().max(1) as u32 };
        match self.written(d.zone, d.at, d.len, writes) {
            Ok(at) => {
                if c.op == Op::ZoneAppend {
                    c.sector = self.sup.geometry.zone_start(ZoneNo(d.zone)).plus(u64::from(at));
                }
                Status::Ok
            }
            Err(status) => status,
        }
    }
}
