//! One queue of the layer: translates addresses on the way down and on the way up, and keeps what needs more than that: reads
//! of a gap, reads that cross into one, reports, zone management. Everything else passes in the list in which it came, and the
//! way back is noted in the command itself ([`Command::moved`]): a subtraction, whatever the operation, and no division.

use super::Map;
use crate::stack::part::{address, first_part};
use std::sync::Arc;
use std::task::Waker;
use zoneplug_core::bio::{Command, Commands, Op, Status};
use zoneplug_core::device::{Aside, Gone, Queue};
use zoneplug_core::unit::{Nanos, Sector};
use zoneplug_core::way::{Way, has_no_address, lower, lower_all, move_by, raise, raise_all};

/// What a command that is below is for, or was, where an addition does not make it that again.
enum Mark {
    /// The first part of this read; the rest is gap (N6).
    PartOf(Box<Command>),
    /// A report that was asked for at this sector.
    Report(Sector),
    /// Zone management, which was for this range: the lengths of zones differ too.
    Management(Sector, u32),
    /// A command that another layer of this kind, with something in between, has moved so far before.
    Twice(i64),
}

/// What is needed to give commands back as they came.
struct Upward {
    map: Arc<Map>,
    /// By the address of the command below; empty but for special ones.
    marks: Vec<(usize, Mark)>,
}

pub(super) struct Po2Queue {
    upward: Upward,
    /// The map's, where each command needs them. Without the short way `size` is 0, and so no command is plain.
    short: Way,
    inner: Box<dyn Queue>,
    /// Most commands of the gap that are kept here: they need no place at the device.
    depth: usize,
    /// On the way down: empty between calls.
    out: Commands,
    /// Finished here, not polled.
    done: Commands,
    /// Whether `marks` or `done` may have something.
    kept: bool,
    /// That, or the device may panic: not the short way.
    slow: bool,
    may_panic: bool,
    armed: bool,
    seen: Nanos,
    waker: Waker,
}

impl Po2Queue {
    pub(super) fn new(
        map: Arc<Map>,
        inner: Box<dyn Queue>,
        depth: u16,
        may_panic: bool,
        waker: Waker,
    ) -> Po2Queue {
        let depth = usize::from(depth);
        Po2Queue {
            short: map.way.unless(may_panic),
            upward: Upward { map, marks: Vec::with_capacity(depth) },
            inner,
            depth,
            out: Commands::with_capacity(depth),
            done: Commands::with_capacity(depth),
            kept: false,
            slow: may_panic,
            may_panic,
            armed: false,
            seen: Nanos(0),
            waker,
        }
    }

    /// [`Queue::submit`], but of a single command on the short way.
    #[inline(never)]
    fn submit_many(&mut self, now: Nanos, commands: &mut Commands) {
        if self.slow {
            return self.submit_slow(now, commands);
        }
        if !lower_all(&self.short, commands) {
            return self.submit_each(now, commands);
        }
        self.inner.submit(now, commands);
        if !commands.is_empty() {
            return raise_all(commands);
        }
        // The next list begins where the buffer does, and so is one slice.
        commands.clear();
    }

    /// [`Queue::submit`] while something is kept here, or to a device that may panic.
    #[inline(never)]
    fn submit_slow(&mut self, now: Nanos, commands: &mut Commands) {
        if self.kept || !lower_all(&self.upward.map.way, commands) {
            return self.submit_each(now, commands);
        }
        let list = GivenBack { upward: &mut self.upward, list: commands, first: 0 };
        self.inner.submit(now, list.list);
    }

    /// Commands one by one, because one of them cannot pass as it is.
    #[cold]
    fn submit_each(&mut self, now: Nanos, commands: &mut Commands) {
        self.kept = true;
        self.set_slow(true);
        while self.out.len() + self.done.len() < self.depth {
            let Some(mut c) = commands.pop_front() else { break };
            if lower(&self.upward.map.way, &mut c) || self.lower_other(&mut c) {
                self.out.push_back(c);
                continue;
            }
            // What ends here must not pass what the device does not take: a queue takes from the front.
            self.inner.submit(now, &mut self.out);
            if !self.out.is_empty() {
                commands.push_front(c);
                break;
            }
            self.special(c);
        }
        self.seen = now;
        self.inner.submit(now, &mut self.out);
        // What the device has no room for is not kept here: who sent it may have given it up when there is room.
        while let Some(c) = self.out.pop_back() {
            commands.push_front(self.upward.undo(c));
        }
        if self.armed && self.has_work() {
            self.wake();
        }
    }

    /// [`lower`] for all other commands that go down as they are.
    fn lower_other(&mut self, c: &mut Command) -> bool {
        let map = &self.upward.map;
        if has_no_address(&map.way, c.op) {
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
        let before = std::mem::take(&mut c.moved);
        let plain = before != 0 && lower(&map.way, c);
        if plain {
            self.upward.marks.push((address(c), Mark::Twice(before)));
        } else {
            c.moved = before;
        }
        plain
    }

    fn set_slow(&mut self, slow: bool) {
        self.slow = slow;
        self.short = self.upward.map.way.unless(slow);
    }

    /// A report, or a command that touches a gap.
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
            // All of it is gap (N5).
            Ok(offset) if offset >= size => {
                zero_from(&c, 0);
                c.status = Status::Ok;
            }
            Ok(offset) => {
                let mut part = first_part(&c, size - offset);
                move_by(&mut part, map.way.down(c.sector));
                self.upward.marks.push((address(&part), Mark::PartOf(c)));
                return self.out.push_back(part);
            }
        }
        self.done.push_back(c);
    }

    /// [`Queue::poll`], by any way but the short one.
    fn poll_each(&mut self, now: Nanos, done: &mut Commands) {
        let first = done.len();
        let list = GivenBack { upward: &mut self.upward, list: done, first };
        self.inner.poll(now, list.list);
        drop(list);
        done.append(&mut self.done);
        self.kept = !self.upward.marks.is_empty();
        self.set_slow(self.kept || self.may_panic);
    }

    /// Whether there is something to poll for.
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
    /// A command that has not gone, as it came.
    #[cold]
    fn undo(&mut self, mut c: Box<Command>) -> Box<Command> {
        let Some(i) = self.marks.iter().position(|(a, _)| *a == address(&c)) else {
            raise(&mut c);
            return c;
        };
        match self.marks.swap_remove(i).1 {
            Mark::Report(asked) => c.sector = asked,
            Mark::Management(sector, len_sectors) => {
                (c.sector, c.len_sectors) = (sector, len_sectors);
            }
            Mark::Twice(before) => {
                raise(&mut c);
                c.moved = before;
            }
            Mark::PartOf(whole) => return whole,
        }
        c
    }

    /// Makes a command that is back what it was.
    fn finish(&mut self, c: &mut Box<Command>) {
        let Some(i) = self.marks.iter().position(|(a, _)| *a == address(c)) else {
            return raise(c);
        };
        match self.marks.swap_remove(i).1 {
            Mark::Report(asked) => {
                c.report.iter_mut().for_each(|info| self.map.translate(info));
                c.sector = asked;
            }
            Mark::Management(sector, len_sectors) => {
                (c.sector, c.len_sectors) = (sector, len_sectors);
            }
            Mark::Twice(before) => {
                raise(c);
                c.moved = before;
            }
            Mark::PartOf(mut whole) => {
                whole.status = c.status;
                if c.status.is_ok() {
                    zero_from(&whole, c.len_sectors);
                }
                *c = whole;
            }
        }
    }
}

/// A list that the device has: in the end its commands from `first` on are as they came, also if the device panics (those that
/// are back by then count).
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

/// The offset in its zone of a read that touches a gap, or why a command fails here. The checks are a device's.
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

/// Zeroes what a read gets from its sector `from` on: all of its BIOs and all of their segments (N8).
fn zero_from(c: &Command, from: u32) {
    let mut at = 0;
    for bio in &c.bios {
        let skip = from.saturating_sub(at).min(bio.len_sectors);
        if skip < bio.len_sectors && !bio.data().is_empty() {
            bio.data().fill_zero(skip << 9, (bio.len_sectors - skip) << 9);
        }
        at += bio.len_sectors;
    }
}

impl Queue for Po2Queue {
    #[inline]
    fn submit(&mut self, now: Nanos, commands: &mut Commands) {
        // A single one has a way of its own: finding the slices of a list costs as much as a translation.
        if commands.len() != 1 || !lower(&self.short, &mut commands[0]) {
            return self.submit_many(now, commands);
        }
        self.inner.submit(now, commands);
        if !commands.is_empty() {
            raise_all(commands);
        }
    }

    #[inline]
    fn poll(&mut self, now: Nanos, done: &mut Commands) {
        if self.slow {
            return self.poll_each(now, done);
        }
        // What was there is not ours.
        if !done.is_empty() {
            return self.poll_each(now, done);
        }
        self.inner.poll(now, done);
        if done.len() != 1 {
            return raise_all(done);
        }
        raise(&mut done[0]);
    }

    fn next_deadline(&self) -> Option<Nanos> {
        if self.has_work() { Some(self.seen) } else { self.inner.next_deadline() }
    }

    fn arm(&mut self) {
        self.armed = true;
        self.inner.arm();
        if self.has_work() {
            self.wake();
        }
    }

    fn arm_fd(&mut self) -> Option<i32> {
        if self.has_work() {
            self.arm();
            return None;
        }
        // Another who polls may send a gap's read while the owner sleeps: that ends here, and makes no descriptor readable.
        self.armed = true;
        self.inner.arm_fd()
    }

    fn step_aside(&mut self) -> Option<Aside> {
        if self.slow {
            return None;
        }
        debug_assert!(self.out.is_empty() && self.done.is_empty() && self.upward.marks.is_empty());
        let below = std::mem::replace(&mut self.inner, Box::new(Gone));
        Some(Aside { way: self.upward.map.way, below })
    }

    fn step_in(&mut self, below: Box<dyn Queue>) {
        self.inner = below;
    }
}
