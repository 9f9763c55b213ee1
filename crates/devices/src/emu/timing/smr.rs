//! A host-managed SMR hard disk: a link, a volatile write cache, and one head. This file tracks what is under way on
//! each of the three. It knows neither zone states nor data.
//!
//! A write waits for room in the cache in the order of arrival, is transferred over the link, and is then
//! acknowledged. From the start of its transfer it may be written to the medium. The head continues the run that it
//! is at, or else goes to the run that it reaches first. With [`SmrParams::queued_fifo`] or more writes not
//! acknowledged, the disk keeps the order of arrival instead, one command at a time. Reads wait for the head, and the
//! read that it reaches first goes first. Reads take turns with the cache.
//!
//! A write is *safe* when it is on the medium. The drive also saves part of the cache over a power cut
//! ([`SmrParams::protected_sectors`]): the writes in it that arrived first are safe, as far as they fit into that part.
//! A flush, a write with FUA, and each write while the write cache is off wait until data are safe.
//!
//! `docs/models.md` says where each rule comes from. Those about queued writes and about what is saved are hypotheses.

use super::cached::{Entry, Head, Runs};
use super::platter::{Platter, PlatterPlace};
use super::profile::{Destage, Profile, SmrParams};
use super::{CommandAtDrive, DriveStats, Outbox, span};
use std::collections::VecDeque;
use zoneplug_core::bio::{Flags, Op};
use zoneplug_core::unit::{Nanos, SECTOR_SHIFT};

/// The work of the head.
#[derive(Debug)]
enum Work {
    Write(Entry),
    Read { zone: u32, end: u32, held: CommandAtDrive },
}

/// The condition for acknowledging a command: all writes up to one of them, in the order of arrival, are safe.
#[derive(Debug)]
struct Sync {
    /// The number of that write.
    seq: u64,
    /// Sectors of those writes that are in the cache. They are safe when the drive saves as many.
    sectors: u64,
    /// Whether the command is that write. Then it is also done when that write is on the medium.
    one: bool,
}

/// A read that waits for the head.
#[derive(Debug)]
struct Read {
    zone: u32,
    offset: u32,
    place: PlatterPlace,
    held: CommandAtDrive,
}

/// The disk.
#[derive(Debug)]
pub(super) struct Smr {
    p: SmrParams,
    platter: Platter,
    zone_sectors: u32,
    /// Writes that wait for room in the cache, each with zone and offset.
    waiting: VecDeque<(u32, u32, CommandAtDrive)>,
    /// The transfer over the link: its end, and the number of its write in the order of arrival.
    link: Option<(Nanos, u64, CommandAtDrive)>,
    /// Commands without data, and their ends in order. Transfers do not overlap, but these commands do not use the
    /// link.
    short: VecDeque<(Nanos, CommandAtDrive)>,
    runs: Runs,
    /// Sectors in the cache, including those that are being written to the medium.
    dirty_sectors: u64,
    /// The number of writes in the cache, including those that are being written to the medium.
    dirty_entries: u32,
    /// The number of the last write whose transfer has begun. Writes are numbered in the order of arrival.
    seq: u64,
    /// The work of the head, and its end.
    medium: Option<(Nanos, Work)>,
    /// Reads that wait for the head.
    reads: Vec<Read>,
    /// Commands that wait until writes are safe.
    syncs: Vec<(Sync, CommandAtDrive)>,
    head: Head,
    /// The time since which the head has been idle at its place.
    head_since: Nanos,
    /// Sectors of the current run that were written in a row.
    run_sectors: u64,
    reads_in_turn: u32,
    writes_in_turn: u64,
    stats: DriveStats,
}

impl Smr {
    pub(super) fn new(profile: &Profile, p: &SmrParams) -> Smr {
        Smr {
            p: p.clone(),
            platter: Platter::new(profile, p),
            zone_sectors: profile.zone_sectors,
            waiting: VecDeque::new(),
            link: None,
            short: VecDeque::new(),
            runs: Runs::new(),
            dirty_sectors: 0,
            dirty_entries: 0,
            seq: 0,
            medium: None,
            reads: Vec::new(),
            syncs: Vec::new(),
            head: Head { zone: 0, offset: 0, cylinder: 0.0 },
            head_since: Nanos(0),
            run_sectors: 0,
            reads_in_turn: 0,
            writes_in_turn: 0,
            stats: DriveStats::default(),
        }
    }

    pub(super) fn stats(&self) -> DriveStats {
        self.stats
    }

    pub(super) fn take(&mut self, now: Nanos, zone: u32, offset: u32, held: CommandAtDrive) {
        match held.command.op {
            Op::Write | Op::WriteZeroes | Op::ZoneAppend => {
                self.waiting.push_back((zone, offset, held));
                self.accept(now);
            }
            Op::Read => {
                let place = self.platter.place(zone, offset);
                self.reads.push(Read { zone, offset, place, held });
                self.start(now);
            }
            Op::Flush if self.dirty_sectors > self.p.protected_sectors => {
                let sync = Sync { seq: self.seq, sectors: self.dirty_sectors, one: false };
                self.syncs.push((sync, held));
            }
            _ => self.short.push_back((now.plus(self.p.command_time), held)),
        }
    }

    /// Returns how long the transfer over the link takes.
    fn link_time(&self, held: &CommandAtDrive) -> Nanos {
        let bytes = u64::from(held.command.len_sectors) << SECTOR_SHIFT;
        self.p.command_time.plus(span(bytes, self.p.link_rate))
    }

    /// Begins the next transfer, if the link is free and the cache has room.
    fn accept(&mut self, now: Nanos) {
        if self.link.is_some() {
            return;
        }
        let Some((_, _, held)) = self.waiting.front() else { return };
        let sectors = held.command.len_sectors;
        if self.dirty_sectors > 0 {
            let full = self.dirty_sectors + u64::from(sectors) > self.p.cache_sectors;
            let entries = self.p.cache_entries;
            let flushes = held.command.flags.contains(Flags::PREFLUSH)
                && self.dirty_sectors > self.p.protected_sectors;
            if full || entries != 0 && self.dirty_entries >= entries || flushes {
                return;
            }
        }
        let Some((zone, offset, held)) = self.waiting.pop_front() else { return };
        self.seq += 1;
        self.dirty_sectors += u64::from(sectors);
        self.dirty_entries += 1;
        self.link = Some((now.plus(self.link_time(&held)), self.seq, held));
        // The medium is slower than the link, so it may begin before all the data has arrived.
        self.runs.push(&self.platter, zone, offset, sectors, self.seq);
        self.start(now);
    }

    /// Returns the number of writes at the disk that are not acknowledged.
    fn unacknowledged(&self) -> u32 {
        let until_safe = self.syncs.iter().filter(|(sync, _)| sync.one).count();
        (self.waiting.len() + until_safe) as u32 + u32::from(self.link.is_some())
    }

    fn phase_ns(&self, now: Nanos) -> u32 {
        (now.0 % u64::from(self.platter.turn_ns())) as u32
    }

    /// Gives an idle head work.
    fn start(&mut self, now: Nanos) {
        if self.medium.is_some() {
            return;
        }
        if !self.reads.is_empty() {
            if self.reads_in_turn >= self.p.read_burst
                && self.writes_in_turn >= u64::from(self.p.write_burst_sectors)
            {
                self.reads_in_turn = 0;
                self.writes_in_turn = 0;
            }
            if self.runs.is_empty() || self.reads_in_turn < self.p.read_burst {
                return self.start_read(now);
            }
        } else {
            self.reads_in_turn = 0;
        }
        let Some(i) = self.choose(now) else { return };
        let (entry, place) = self.runs.pop(&self.platter, i);
        self.run_sectors += u64::from(entry.sectors);
        self.writes_in_turn += u64::from(entry.sectors);
        let end = self.access(now, entry.zone, entry.offset, place, entry.sectors);
        self.medium = Some((end, Work::Write(entry)));
    }

    /// Chooses the run to write next.
    fn choose(&mut self, now: Nanos) -> Option<usize> {
        let p = &self.p;
        let in_order = p.destage == Destage::Fifo
            || p.queued_fifo != 0 && self.unacknowledged() >= p.queued_fifo;
        let too_long = p.max_run_sectors != 0 && self.run_sectors >= u64::from(p.max_run_sectors);
        if (!in_order || p.queued_runs)
            && let Some(i) = self.runs.at(&self.head)
            && !(too_long && self.runs.has_older_than(i))
        {
            return Some(i);
        }
        if in_order {
            if p.queued_runs {
                self.run_sectors = 0;
            }
            let phase = self.phase_ns(now);
            return self.runs.nearest_of_oldest(&self.platter, &self.head, phase, p.queued_window);
        }
        let except = (too_long && self.runs.len() > 1).then_some(self.head.zone);
        self.run_sectors = 0;
        self.runs.nearest(&self.platter, &self.head, self.phase_ns(now), except)
    }

    fn start_read(&mut self, now: Nanos) {
        let phase = self.phase_ns(now);
        let reach = |r: &Read| {
            let here = (r.zone, r.offset) == (self.head.zone, self.head.offset);
            let cylinder = self.head.cylinder;
            let seek = if here { 0 } else { self.platter.seek_ns(cylinder, r.place.cylinder) };
            seek + self.platter.wait_ns(r.place.angle_ns, phase + seek)
        };
        let Some(i) = (0..self.reads.len()).min_by_key(|&i| reach(&self.reads[i])) else { return };
        let Read { zone, offset, place, held } = self.reads.remove(i);
        self.reads_in_turn += 1;
        let sectors = held.command.len_sectors;
        let end = self.access(now, zone, offset, place, sectors);
        self.medium = Some((end, Work::Read { zone, end: offset + sectors, held }));
    }

    /// Returns the end of an access that starts now.
    fn access(
        &mut self,
        now: Nanos,
        zone: u32,
        offset: u32,
        place: PlatterPlace,
        sectors: u32,
    ) -> Nanos {
        let here = zone == self.head.zone && offset == self.head.offset;
        let mut wait = 0;
        if !(here && now == self.head_since) {
            let seek =
                if here { 0 } else { self.platter.seek_ns(self.head.cylinder, place.cylinder) };
            let turn = self.platter.wait_ns(place.angle_ns, self.phase_ns(now) + seek);
            // A place that passes the head just now must not count as missed because a nanosecond was rounded.
            let missed = turn > self.platter.turn_ns() - self.platter.turn_ns() / 100_000;
            wait = seek + if missed { 0 } else { turn };
        }
        let whole = Nanos(u64::from(wait) + self.platter.transfer_ns(zone, sectors));
        self.stats.access(Nanos(u64::from(wait)), whole);
        now.plus(whole)
    }

    pub(super) fn advance(&mut self, now: Nanos, out: &mut Outbox) {
        loop {
            let link = self.link.as_ref().map(|l| l.0);
            let medium = self.medium.as_ref().map(|m| m.0);
            let short = self.short.front().map(|s| s.0);
            let Some(at) = [link, medium, short].into_iter().flatten().min() else { return };
            if at > now {
                return;
            }
            if link == Some(at) {
                self.acknowledge(at, out);
            } else if medium == Some(at) {
                self.medium_done(at, out);
            } else if let Some((_, held)) = self.short.pop_front() {
                out.finish(held);
            }
        }
    }

    fn acknowledge(&mut self, at: Nanos, out: &mut Outbox) {
        let Some((_, seq, held)) = self.link.take() else { return };
        let writing =
            |m: &Option<(Nanos, Work)>| matches!(m, Some((_, Work::Write(e))) if e.seq == seq);
        let must_be_safe = !self.p.write_cache || held.command.flags.contains(Flags::FUA);
        if must_be_safe
            && self.dirty_sectors > self.p.protected_sectors
            && (self.runs.contains(seq) || writing(&self.medium))
        {
            // No later write has arrived.
            self.syncs.push((Sync { seq, sectors: self.dirty_sectors, one: true }, held));
        } else {
            out.finish(held);
        }
        self.accept(at);
    }

    fn medium_done(&mut self, at: Nanos, out: &mut Outbox) {
        let Some((_, work)) = self.medium.take() else { return };
        let (zone, end) = match work {
            Work::Read { zone, end, held } => {
                out.finish(held);
                (zone, end)
            }
            Work::Write(e) => {
                self.dirty_sectors -= u64::from(e.sectors);
                self.dirty_entries -= 1;
                if !self.syncs.is_empty() {
                    self.sync(&e, out);
                }
                (e.zone, e.offset + e.sectors)
            }
        };
        let cylinder = self.platter.place(zone, end).cylinder;
        // The end of a zone is the start of the next zone.
        let (zone, offset) = if end >= self.zone_sectors { (zone + 1, 0) } else { (zone, end) };
        self.head = Head { zone, offset, cylinder };
        self.head_since = at;
        self.accept(at);
        self.start(at);
    }

    /// Handles a write that has reached the medium.
    #[cold]
    fn sync(&mut self, e: &Entry, out: &mut Outbox) {
        let mut i = 0;
        while i < self.syncs.len() {
            let sync = &mut self.syncs[i].0;
            if e.seq <= sync.seq {
                sync.sectors -= u64::from(e.sectors);
            }
            if sync.sectors <= self.p.protected_sectors || sync.one && e.seq == sync.seq {
                out.finish(self.syncs.remove(i).1);
            } else {
                i += 1;
            }
        }
    }

    /// Returns a time before which no command completes. The end of a transfer is exact. A write without room in the
    /// cache is transferred at the earliest when the medium has finished a write.
    pub(super) fn next(&self) -> Option<Nanos> {
        let medium = self.medium.as_ref().map(|m| m.0);
        let reading = matches!(self.medium, Some((_, Work::Read { .. })));
        let waits_for_medium = reading || !self.reads.is_empty() || !self.syncs.is_empty();
        let transfer = match (&self.link, self.waiting.front()) {
            (Some(link), _) => Some(link.0),
            (None, Some((_, _, held))) => medium.map(|m| m.plus(self.link_time(held))),
            (None, None) => None,
        };
        let short = self.short.front().map(|s| s.0);
        [transfer, short, medium.filter(|_| waits_for_medium)].into_iter().flatten().min()
    }
}
