//! Handles the commands that the layer's address map cannot translate: reads that touch a gap, reports, and zone
//! management.
//!
//! The queue calls this while there is such a command. On a device that may panic it calls this for every list. This
//! code goes through each list one command at a time.

use super::Map;
use crate::stack::part::{Cut, address, cut};
use std::sync::Arc;
use std::task::Waker;
use zoneplug_core::bio::{Command, Commands, Op, Status};
use zoneplug_core::device::{AddressMap, Displacement, MapFallback, Queue};
use zoneplug_core::unit::{Nanos, Sector};

/// The earlier state of a command at the device, if [`AddressMap::raise`] does not restore it.
enum Mark {
    /// This read, whose end is in the gap (N6). The command at the device is its first part.
    PartOf(Cut),
    /// A report that starts at this sector.
    Report(Sector),
    /// Zone management of this range. Its length differs too, because zones have another length below.
    Management(Sector, u32),
    /// A command that the map of a layer further up had moved by this displacement before.
    Twice(Displacement),
}

/// Returns commands to their owner as they came.
struct Upward {
    map: Arc<Map>,
    /// For each command at the device that differs from its original: its address, and how to restore it.
    marks: Vec<(usize, Mark)>,
}

pub(super) struct Po2Fallback {
    upward: Upward,
    /// The queue's depth. Commands that end here need no place at the device, so they are counted.
    depth: usize,
    /// Commands on the way down. Empty between calls.
    out: Commands,
    /// Commands that have ended here and were not polled yet.
    done: Commands,
    /// Whether the device may panic. Every list must be guarded then, so no command bypasses this code.
    may_panic: bool,
    armed: bool,
    /// The time of the last list.
    seen: Nanos,
    waker: Waker,
}

impl Po2Fallback {
    pub(super) fn new(map: Arc<Map>, depth: u16, may_panic: bool, waker: Waker) -> Po2Fallback {
        let depth = usize::from(depth);
        Po2Fallback {
            upward: Upward { map, marks: Vec::with_capacity(depth) },
            depth,
            out: Commands::with_capacity(depth),
            done: Commands::with_capacity(depth),
            may_panic,
            armed: false,
            seen: Nanos(0),
            waker,
        }
    }

    /// Takes commands one by one.
    #[cold]
    fn submit_each(&mut self, below: &mut dyn Queue, now: Nanos, commands: &mut Commands) {
        while self.out.len() + self.done.len() < self.depth {
            let Some(mut c) = commands.pop_front() else { break };
            if self.upward.map.sectors.lower(&mut c) || self.lower_other(&mut c) {
                self.out.push_back(c);
                continue;
            }
            // The queue takes commands from the front. So before a command ends here, those in front of it are sent:
            // it must not pass one that the device does not take.
            below.submit(now, &mut self.out);
            if !self.out.is_empty() {
                commands.push_front(c);
                break;
            }
            self.special(c);
        }
        self.seen = now;
        below.submit(now, &mut self.out);
        // A command for which the device has no room is not kept here, because its owner may give it up before there
        // is room.
        while let Some(c) = self.out.pop_back() {
            commands.push_front(self.upward.undo(c));
        }
        if self.armed && self.has_work() {
            self.wake();
        }
    }

    /// Like [`AddressMap::lower`], for other commands that the device can carry out as a whole.
    fn lower_other(&mut self, c: &mut Command) -> bool {
        let map = &self.upward.map;
        if map.sectors.passes(c.op) {
            return true;
        }
        if c.op.is_zone_management() {
            let (zone, offset) = map.above.zone_of(c.sector);
            let whole = map.above.contains(c.sector, c.len_sectors)
                && offset == 0
                && c.len_sectors == map.above.zone_len_sectors(zone);
            if whole {
                let mark = Mark::Management(c.sector, c.len_sectors);
                self.upward.marks.push((address(c), mark));
                c.sector = map.below.zone_start(zone);
                c.len_sectors = map.below.zone_len_sectors(zone);
            }
            return whole;
        }
        match map.sectors.lower_again(c) {
            Some(before) => {
                self.upward.marks.push((address(c), Mark::Twice(before)));
                true
            }
            None => false,
        }
    }

    /// Handles a report, or a command that touches a gap.
    fn special(&mut self, mut c: Box<Command>) {
        let map = &self.upward.map;
        if c.op == Op::ReportZones && map.above.contains(c.sector, 1) {
            let asked = c.sector;
            let (zone, offset) = map.above.zone_of(asked);
            let offset = offset.min(map.below.zone_len_sectors(zone).saturating_sub(1));
            c.sector = map.below.zone_start(zone).plus(u64::from(offset));
            self.upward.marks.push((address(&c), Mark::Report(asked)));
            return self.out.push_back(c);
        }
        let size = map.below.zone_sectors();
        match check(map, &c) {
            Err(status) => c.status = status,
            // The range is in the gap (N5).
            Ok(offset) if offset >= size => {
                zero_from(&mut c, 0);
                c.status = Status::Ok;
            }
            Ok(offset) => {
                let below = map.sectors.below(c.sector);
                let (mut part, whole) = cut(c, size - offset);
                part.sector = below;
                self.upward.marks.push((address(&part), Mark::PartOf(whole)));
                return self.out.push_back(part);
            }
        }
        self.done.push_back(c);
    }

    /// Returns whether a command has ended here.
    fn has_work(&self) -> bool {
        !self.done.is_empty()
    }

    #[cold]
    fn wake(&mut self) {
        self.armed = false;
        self.waker.wake_by_ref();
    }
}

impl Upward {
    /// Returns a command that the device did not take, as it came.
    #[cold]
    fn undo(&mut self, mut c: Box<Command>) -> Box<Command> {
        let Some(i) = self.marks.iter().position(|(a, _)| *a == address(&c)) else {
            AddressMap::raise(&mut c);
            return c;
        };
        match self.marks.swap_remove(i).1 {
            Mark::Report(asked) => c.sector = asked,
            Mark::Management(sector, len_sectors) => {
                (c.sector, c.len_sectors) = (sector, len_sectors);
            }
            Mark::Twice(before) => AddressMap::raise_again(&mut c, before),
            Mark::PartOf(whole) => return whole.rejoin(&mut c),
        }
        c
    }

    /// Restores a command that came back, and keeps its result.
    fn finish(&mut self, c: &mut Box<Command>) {
        let Some(i) = self.marks.iter().position(|(a, _)| *a == address(c)) else {
            return AddressMap::raise(c);
        };
        match self.marks.swap_remove(i).1 {
            Mark::Report(asked) => {
                c.report.iter_mut().for_each(|info| self.map.translate(info));
                c.sector = asked;
            }
            Mark::Management(sector, len_sectors) => {
                (c.sector, c.len_sectors) = (sector, len_sectors);
            }
            Mark::Twice(before) => AddressMap::raise_again(c, before),
            Mark::PartOf(whole) => {
                let mut whole = whole.rejoin(c);
                whole.status = c.status;
                if c.status.is_ok() {
                    zero_from(&mut whole, c.len_sectors);
                }
                *c = whole;
            }
        }
    }
}

/// A list that is lent to the device. When this is dropped, its commands from `first` on are restored. That also
/// holds if the device panics, for the commands that are in the list then.
struct GivenBack<'a> {
    upward: &'a mut Upward,
    list: &'a mut Commands,
    first: usize,
}

impl Drop for GivenBack<'_> {
    fn drop(&mut self) {
        self.list.range_mut(self.first..).for_each(|c| self.upward.finish(c));
    }
}

/// Returns the offset in its zone of a read that touches a gap. For other commands, returns the status with which
/// they fail here. Makes the checks of a device.
fn check(map: &Map, c: &Command) -> Result<u32, Status> {
    let limits = &map.limits;
    if c.op.is_zone_management() || c.op == Op::ReportZones {
        return Err(Status::InvalidField);
    }
    let max = if c.op == Op::Discard { u32::MAX } else { limits.transfer_sectors() };
    let mask = limits.logical_block_sectors - 1;
    let (_, offset) = map.above.range(c.sector, c.len_sectors, mask, max)?;
    if c.op != Op::Read {
        return Err(Status::Boundary);
    }
    let bios = limits.max_bios == 0 || c.bios.len() <= limits.max_bios as usize;
    if bios && c.has_whole_bios(true) { Ok(offset) } else { Err(Status::InvalidField) }
}

/// Zeroes the memory of a read from its sector `from` on, in all of its BIOs and their segments (N8).
fn zero_from(c: &mut Command, from: u32) {
    let mut at = 0;
    for bio in &mut c.bios {
        let skip = from.saturating_sub(at).min(bio.len_sectors);
        // If memory is missing or is other memory, it is not the client's and is not written.
        let memory = bio.data().len() == bio.len_sectors << 9 && !bio.data().is_shared();
        if skip < bio.len_sectors && memory {
            let len = (bio.len_sectors - skip) << 9;
            bio.data_mut().fill_zero(skip << 9, len);
        }
        at += bio.len_sectors;
    }
}

impl MapFallback for Po2Fallback {
    fn submit(&mut self, below: &mut dyn Queue, now: Nanos, commands: &mut Commands) {
        let kept = !self.upward.marks.is_empty() || self.has_work();
        if kept || !self.upward.map.sectors.lower_all(commands) {
            return self.submit_each(below, now, commands);
        }
        let list = GivenBack { upward: &mut self.upward, list: commands, first: 0 };
        below.submit(now, list.list);
    }

    fn poll(&mut self, below: &mut dyn Queue, now: Nanos, done: &mut Commands) {
        let first = done.len();
        let list = GivenBack { upward: &mut self.upward, list: done, first };
        below.poll(now, list.list);
        drop(list);
        done.append(&mut self.done);
    }

    fn is_idle(&self) -> bool {
        !self.may_panic && self.upward.marks.is_empty() && !self.has_work()
    }

    fn next_deadline(&self) -> Option<Nanos> {
        self.has_work().then_some(self.seen)
    }

    fn arm(&mut self) -> bool {
        self.armed = true;
        let ended = self.has_work();
        if ended {
            self.wake();
        }
        ended
    }
}
