//! Plugged writes on the way down: forms runs, admits them, and parks writes that must wait.

use crate::bio::{Bio, Bios, Command, Op, Status, Waiter};
use crate::disk::queue_state::QueueState;
use crate::disk::shared::Shared;
use crate::disk::snapshot::Layout;
use crate::disk::trace;
use crate::plug::{Admit, Kind, LockFreeAdmission, PlugPlace, Shard};
use crate::unit::{Sector, ZoneNo};

/// A description of the run in [`QueueState::run`]: contiguous writes of one kind to one zone.
#[derive(Debug, Clone, Copy)]
pub(super) struct Run {
    pub(super) zone: ZoneNo,
    pub(super) zone_start: Sector,
    pub(super) kind: Kind,
    /// The run's offset in its zone, in sectors. `None`: appends, which go wherever the write pointer is.
    pub(super) offset: Option<u32>,
    pub(super) len_sectors: u32,
}

impl QueueState {
    /// Submits a write, write-zeroes or emulated append together with those BIOs behind it in `bios` that continue
    /// it.
    pub(crate) fn write(
        &mut self,
        shared: &Shared,
        layout: &Layout,
        bio: Box<Bio>,
        bios: &mut Bios,
    ) {
        if let Err(status) = layout.check_write(&bio) {
            return self.reject(bio, status);
        }
        let (zone, offset) = layout.geometry.zone_of(bio.sector);
        let append = bio.op == Op::ZoneAppend;
        let len = bio.len_sectors;
        let max = layout.max_of(bio.op);
        if append {
            if let Err(status) = layout.check_append(offset, len) {
                return self.refuse(shared, bio, zone, status);
            }
        } else if len > max
            || u64::from(offset) + u64::from(len) > u64::from(layout.geometry.zone_sectors())
        {
            return self.split_write(shared, layout, bio);
        }
        let kind = Kind::of(&bio);
        let zone_start = layout.geometry.zone_start(zone);
        let len_sectors = self.collect(layout, bio, bios, kind, offset);
        let offset = (!append).then_some(offset);
        self.send_run(shared, layout, Run { zone, zone_start, kind, offset, len_sectors });
    }

    /// Starts a run with `bio`, and takes the BIOs behind it that continue it: of the same operation and kind, and
    /// contiguous or appends to the same zone. Returns the length of the run in sectors. Takes no lock and does not
    /// ask the plug.
    #[inline]
    fn collect(
        &mut self,
        layout: &Layout,
        bio: Box<Bio>,
        bios: &mut Bios,
        kind: Kind,
        offset: u32,
    ) -> u32 {
        let (op, first, len) = (bio.op, bio.sector, bio.len_sectors);
        self.run.push(bio);
        let next = if op == Op::ZoneAppend { first } else { first.plus(u64::from(len)) };
        if bios.front().is_none_or(|b| b.sector != next) || !kind.merges(kind) {
            return len;
        }
        self.collect_more(layout, bios, offset)
    }

    /// Takes the BIOs that continue the run in `self.run`, which has one BIO. Returns the length of the run in sectors. A
    /// function of its own has the registers for its loop.
    #[inline(never)]
    fn collect_more(&mut self, layout: &Layout, bios: &mut Bios, offset: u32) -> u32 {
        let Bio { op, sector: first, len_sectors: mut total, flags, .. } = *self.run[0];
        let flags = flags.0 & Kind::FLAGS;
        let append = op == Op::ZoneAppend;
        let max = if append { layout.append_max } else { layout.max_of(op) };
        let room = layout.geometry.zone_sectors() - offset;
        while self.intake.has_room() {
            let next = if append { first } else { first.plus(u64::from(total)) };
            let Some(mut bio) = bios.pop_front_if(|b| {
                b.op == op
                    && b.sector == next
                    && b.flags.0 & Kind::FLAGS == flags
                    && b.len_sectors & layout.write_mask() == 0
                    && b.len_sectors.wrapping_sub(1) < max
                    && b.len_sectors <= room - total
                    && (op == Op::WriteZeroes || Layout::buffer_fits(b))
            }) else {
                break;
            };
            self.take(&mut bio);
            total += bio.len_sectors;
            self.run.push(bio);
        }
        total
    }

    /// Admits `self.run` as a whole. If the zone is idle and a tag is free, sends the part that fits into one command
    /// and parks the rest. Otherwise parks all of it.
    ///
    /// On an arbitrated disk a run that is all of its call may have its turn at once. `dispatch` gives other runs their
    /// turns, after they have merged.
    #[inline(always)]
    fn send_run(&mut self, shared: &Shared, layout: &Layout, run: Run) {
        let place = shared.place(run.zone);
        // An arbitrated queue has no free tag here.
        if !self.tags.any_free() {
            if layout.short_turns
                && shared.single_writer(run.zone).0.is_free()
                && self.send_in_short_turn(shared, layout, run)
            {
                return;
            }
            if layout.passes_scheduler
                && self.may_go_at_once(layout, run)
                && layout.words.is_idle(place)
                && self.send_past_scheduler(shared, layout, run)
            {
                return;
            }
        } else if self.is_one_command(layout, run) {
            let end = || layout.geometry.sequential_capacity(run.zone);
            match layout.words.admit(place, run.offset, run.len_sectors, end) {
                LockFreeAdmission::Admitted { offset, generation } => {
                    let cmd = self.tags.take().expect("a tag is free");
                    return self.send_admitted(layout, run, cmd, offset, generation);
                }
                LockFreeAdmission::Locked => {}
                LockFreeAdmission::Conventional => {
                    return self.run_refused(shared, layout, run, Status::ConventionalZone);
                }
            }
        }
        self.send_run_locked(shared, layout, run, place);
    }

    /// Returns whether `self.run` may go at once on an arbitrated disk: it is all of its call and one command, and nothing
    /// waits in this queue.
    #[inline]
    pub(super) fn may_go_at_once(&self, layout: &Layout, run: Run) -> bool {
        self.run.len() == self.call_bios
            && self.backlog.is_empty()
            && self.is_one_command(layout, run)
            && !self.late_commands.is_down()
    }

    /// Sends `self.run`, which the word of its plug has admitted at `offset` in its zone.
    #[inline(always)]
    pub(super) fn send_admitted(
        &mut self,
        layout: &Layout,
        run: Run,
        mut cmd: Box<Command>,
        offset: u32,
        generation: u32,
    ) {
        if run.offset.is_none() {
            self.place_appends(layout, run.zone_start, offset);
        }
        self.begin_write(&mut cmd, run, generation);
        std::mem::swap(&mut cmd.bios, &mut self.run);
        self.send_write(cmd);
    }

    /// Returns whether `self.run` fits into one command.
    #[inline(always)]
    fn is_one_command(&self, layout: &Layout, run: Run) -> bool {
        let merge = &layout.merge;
        run.len_sectors <= merge.max_of(run.kind) && self.run.len() as u32 <= merge.max_bios
    }

    /// Like [`QueueState::send_run`], under the lock of the zone's shard.
    #[inline(always)]
    fn send_run_locked(&mut self, shared: &Shared, layout: &Layout, run: Run, place: PlugPlace) {
        let Run { zone, kind, len_sectors: total, .. } = run;
        let nr = self.run.len() as u32;
        let whole = self.is_one_command(layout, run);
        let (mut guard, i) = (shared.lock_plug(place), place.index);
        let plug = &mut guard.plugs[i];
        let at = plug.write_pointer();
        let admit = plug.admit(run.offset.unwrap_or(at), total);
        if let Admit::Reject(status) = admit {
            return self.not_admitted(shared, layout, run, guard, i, status);
        }
        let generation = plug.generation();
        let shard = &mut *guard;
        if run.offset.is_none() {
            self.place_appends(layout, run.zone_start, at);
        }
        let cmd = if admit == Admit::Issue { self.tags.take() } else { None };
        let Some(mut cmd) = cmd else {
            self.mailbox.counts.0.parked(self.run.len());
            let mut listed = None;
            if admit == Admit::Issue {
                shard.plugs[i].get_in_line();
                listed = layout.single_writer.then(|| shard.plugs[i].get_listed());
            }
            if whole {
                shard.park(i, &mut self.run, total, self.id, kind);
            } else {
                self.park_in_parts(layout, shard, i, kind);
            }
            drop(guard);
            let sector = run.zone_start.plus(u64::from(run.offset.unwrap_or(at)));
            trace::add_to_plug(zone.0, sector.0, total, nr);
            if admit == Admit::Issue {
                // The zone waits for a tag. Its BIOs hold none.
                match listed {
                    Some(ticket) => self.backlog.push_listed(zone, ticket),
                    None => self.backlog.push_zone(zone),
                }
            }
            return;
        };
        self.begin_write(&mut cmd, run, generation);
        if whole {
            shard.issued(i, nr);
            shard.unlock_plug(i);
            drop(guard);
            std::mem::swap(&mut cmd.bios, &mut self.run);
        } else {
            let (n, sectors) = layout.merge.prefix(kind, &self.run);
            cmd.len_sectors = sectors;
            cmd.bios.extend(self.run.drain(..n));
            shard.issued(i, n as u32);
            self.mailbox.counts.0.parked(self.run.len());
            self.park_in_parts(layout, shard, i, kind);
            drop(guard);
            let rest = cmd.sector.0 + u64::from(sectors);
            trace::add_to_plug(zone.0, rest, total - sectors, nr - n as u32);
        }
        self.send_write(cmd);
    }

    /// Gives the appends of `self.run` their sectors, from `offset` in the zone on.
    #[inline]
    pub(super) fn place_appends(&mut self, layout: &Layout, zone_start: Sector, mut offset: u32) {
        for bio in &mut self.run {
            bio.sector = zone_start.plus(u64::from(offset));
            offset += bio.len_sectors;
        }
        trace::append_positions(layout, &self.run);
    }

    /// Fills in the command of `self.run`, all but its BIOs.
    #[inline(always)]
    fn begin_write(&self, cmd: &mut Command, run: Run, generation: u32) {
        let Run { zone, kind, .. } = run;
        cmd.set(kind.op(), self.run[0].sector, run.len_sectors, kind.flags());
        cmd.generation = generation;
        cmd.waiter = Waiter::Plug;
        cmd.zone = zone.0;
        cmd.begin_owners(self.id);
    }

    /// Puts a plugged write on the way to the device, and counts it.
    #[inline]
    pub(crate) fn send_write(&mut self, cmd: Box<Command>) {
        self.mailbox.counts.0.issued(cmd.bios.len());
        self.send(cmd);
    }

    /// Puts a command on the way to the device.
    #[inline(always)]
    pub(crate) fn send(&mut self, cmd: Box<Command>) {
        trace::issue(&cmd);
        self.out.push_back(cmd);
    }

    /// Parks `self.run` in pieces, each of which makes one command.
    #[cold]
    pub(super) fn park_in_parts(
        &mut self,
        layout: &Layout,
        shard: &mut Shard,
        i: usize,
        kind: Kind,
    ) {
        while !self.run.is_empty() {
            let (n, sectors) = layout.merge.prefix(kind, &self.run);
            self.spare_bios.extend(self.run.drain(..n));
            shard.park(i, &mut self.spare_bios, sectors, self.id, kind);
        }
    }

    /// Answers each BIO of a run that was not admitted as a whole.
    #[cold]
    pub(super) fn run_refused(
        &mut self,
        shared: &Shared,
        layout: &Layout,
        run: Run,
        status: Status,
    ) {
        if self.run.len() == 1 {
            let Some(bio) = self.run.pop() else { return };
            return self.write_refused(shared, layout, bio, run.zone, status);
        }
        for bio in std::mem::take(&mut self.run) {
            // A BIO that continues a run was not checked alone: the disk may end within the zone.
            if let Err(status) = layout.check_write(&bio) {
                self.reject(bio, status);
                continue;
            }
            let (_, offset) = layout.geometry.zone_of(bio.sector);
            let alone =
                Run { offset: run.offset.map(|_| offset), len_sectors: bio.len_sectors, ..run };
            self.run.push(bio);
            self.send_run(shared, layout, alone);
        }
    }

    #[cold]
    fn write_refused(
        &mut self,
        shared: &Shared,
        layout: &Layout,
        bio: Box<Bio>,
        zone: ZoneNo,
        status: Status,
    ) {
        if status == Status::ConventionalZone && bio.op != Op::ZoneAppend {
            // A conventional zone has no plug and no order (W2).
            return self.submit_unplugged(layout, bio);
        }
        self.refuse(shared, bio, zone, status);
    }
}
