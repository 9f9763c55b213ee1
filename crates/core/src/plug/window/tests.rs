//! Every sequence of steps on one zone with an order window, of any length, against a model that fits on a page.
//!
//! Two sequences that lead to the same state of the model have the same future, so it is explored once. There are few
//! states, so none is left in the end.

use super::*;
use crate::bio::{Command, Op};
use crate::plug::{Merge, ReportEpochs};
use crate::unit::Sector;
use crate::zone::{Condition, ZoneInfo, ZoneType};
use std::collections::VecDeque;

const CAP: u32 = 6;
const LEN: u32 = 8;
/// How many ticks a write is held.
const WINDOW: u64 = 2;
const ZONE: ZoneNo = ZoneNo(0);
/// Each command carries one BIO.
const MERGE: Merge = Merge { max_sectors: LEN, max_zeroes_sectors: LEN, max_bios: 1 };

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// Offset and length. Writes to even offsets come from queue 0, the others from queue 1.
    Write(u32, u32),
    Append,
    /// The command in flight ends.
    Done(Status),
    Reset,
    Finish,
    /// A report comes back: the zone has one sector.
    Report,
    /// A report that moves the write pointer of an idle zone.
    Resync,
    Tick,
    /// The client of a queue goes away.
    Leave(u32),
}
use Step as S;

fn steps() -> Vec<Step> {
    let mut all = vec![S::Append, S::Reset, S::Finish, S::Report, S::Resync, S::Tick];
    all.extend((0..CAP).flat_map(|at| [S::Write(at, 1), S::Write(at, 2)]));
    let ends = [Status::Ok, Status::Io, Status::OpenLimit, Status::ZoneReadOnly];
    all.extend(ends.map(S::Done));
    all.extend([S::Leave(0), S::Leave(1)]);
    all
}

/// Returns the name of a write. A later write to the same place has the same name, so that states repeat.
fn token(offset: u32, len: u32) -> u64 {
    u64::from(offset * 10 + len)
}

/// A model: the requirements written down as simply as possible.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Model {
    wp: u32,
    stale: bool,
    read_only: bool,
    /// By offset: length, ticks that are left.
    held: BTreeMap<u32, (u32, u64)>,
    /// Offset, length, and whether the zone has not been reset since.
    flight: Option<(u32, u32, bool)>,
    waiting: VecDeque<(u32, u32)>,
    /// The writes that this step has returned, except those that succeeded.
    back: Vec<(u64, Status)>,
}

impl Model {
    fn refusal(&self, offset: u32, len: u32) -> Option<Status> {
        let reasons = [
            (self.read_only, Status::ZoneReadOnly),
            (self.stale, Status::StaleWritePointer),
            (self.wp >= CAP, Status::ZoneFull),
            (offset != self.wp, Status::NotAtWritePointer),
            (offset + len > CAP, Status::PastCapacity),
        ];
        reasons.into_iter().find(|r| r.0).map(|r| r.1)
    }

    fn accept(&mut self, offset: u32, len: u32) {
        self.wp += len;
        self.waiting.push_back((offset, len));
    }

    fn send(&mut self) {
        if self.flight.is_none() {
            self.flight = self.waiting.pop_front().map(|(offset, len)| (offset, len, true));
        }
    }

    fn write(&mut self, offset: u32, len: u32) {
        let Some(status) = self.refusal(offset, len) else {
            self.accept(offset, len);
            return self.follow_plug();
        };
        let apart = |(&at, &(n, _)): (&u32, &(u32, u64))| at >= offset + len || at + n <= offset;
        let early = status == Status::NotAtWritePointer && offset > self.wp && offset + len <= CAP;
        if early && self.held.iter().all(apart) {
            self.held.insert(offset, (len, WINDOW));
        } else {
            self.back.push((token(offset, len), status));
        }
    }

    /// Admits held writes whose turn has come, and refuses those that can no longer be admitted.
    fn follow_plug(&mut self) {
        while let Some((&offset, &(len, _))) = self.held.first_key_value() {
            let status = self.refusal(offset, len);
            if status == Some(Status::NotAtWritePointer) && offset > self.wp {
                return;
            }
            self.held.remove(&offset);
            match status {
                None => self.accept(offset, len),
                Some(status) => self.back.push((token(offset, len), status)),
            }
        }
    }

    fn refuse_held(&mut self, which: impl Fn(u32, u64) -> bool) {
        let status = if self.wp >= CAP { Status::ZoneFull } else { Status::NotAtWritePointer };
        for (offset, (len, left)) in std::mem::take(&mut self.held) {
            if which(offset, left) {
                self.back.push((token(offset, len), status));
            } else {
                self.held.insert(offset, (len, left));
            }
        }
    }

    fn abort(&mut self) {
        self.back.extend(self.waiting.drain(..).map(|(at, len)| (token(at, len), Status::Ok)));
    }

    fn done(&mut self, status: Status) {
        let (offset, _, own) = self.flight.take().expect("one in flight");
        match status {
            Status::Ok => return,
            Status::Io => self.stale = true,
            Status::OpenLimit if !own => return,
            _ => {
                self.wp = if own { offset } else { self.wp };
                self.read_only |= status == Status::ZoneReadOnly;
            }
        }
        self.abort();
        self.follow_plug();
    }

    fn restart(&mut self, wp: u32) {
        if self.read_only {
            return;
        }
        (self.wp, self.stale) = (wp, false);
        self.flight = self.flight.map(|(offset, len, _)| (offset, len, false));
        self.abort();
        self.refuse_held(|_, _| true);
    }

    /// Returns false if the step is not possible now.
    fn step(&mut self, what: Step) -> bool {
        self.back.clear();
        let idle = self.flight.is_none() && self.waiting.is_empty();
        match what {
            S::Write(offset, len) => self.write(offset, len),
            S::Append => match self.refusal(self.wp, 1) {
                None => {
                    self.accept(self.wp, 1);
                    self.follow_plug();
                }
                Some(status) => self.back.push((0, status)),
            },
            S::Done(_) if self.flight.is_none() => return false,
            S::Done(status) => self.done(status),
            S::Reset => self.restart(0),
            S::Finish => self.restart(LEN),
            S::Report | S::Resync => {
                if what == S::Resync && !idle {
                    return false;
                }
                if self.stale || self.read_only || what == S::Resync {
                    (self.wp, self.stale, self.read_only) = (1, false, false);
                    self.follow_plug();
                }
            }
            S::Tick => {
                self.held.values_mut().for_each(|h| h.1 -= 1);
                self.refuse_held(|_, left| left == 0);
            }
            S::Leave(queue) => self.refuse_held(|offset, _| offset % 2 == queue),
        }
        self.send();
        true
    }
}

/// The engine's plug and window.
struct Real {
    shard: Shard,
    window: OrderWindow,
    flight: Option<Box<Command>>,
    now: u64,
    epoch: u32,
    back: Vec<Box<Bio>>,
}

fn zone(wp: u32) -> ZoneInfo {
    ZoneInfo {
        start: Sector(0),
        len_sectors: u64::from(LEN),
        capacity_sectors: u64::from(CAP),
        wp: Sector(u64::from(wp)),
        zone_type: ZoneType::SeqWriteRequired,
        cond: if wp == 0 { Condition::Empty } else { Condition::Closed },
    }
}

impl Real {
    fn new() -> Real {
        let mut shard = Shard::default();
        shard.plugs.push(Plug::new(&zone(0)));
        let (window, back) = (OrderWindow::default(), Vec::new());
        Real { shard, window, flight: None, now: 0, epoch: 0, back }
    }

    fn follow_plug(&mut self) {
        if self.shard.plugs[0].has_early() {
            let early = self.window.follow_plug(ZONE, &mut self.shard, 0, &mut self.back);
            assert!(!early.in_line || self.flight.is_none());
        }
    }

    fn write(&mut self, offset: u32, len: u32, append: bool) {
        let queue = offset % 2;
        let mut bio = Bio::new(Op::WriteZeroes, Sector(u64::from(offset)), len);
        bio.set_token(if append { 0 } else { token(offset, len) });
        bio.queue = queue;
        let plug = &mut self.shard.plugs[0];
        match plug.admit_beside_early(offset, len) {
            Admit::Issue | Admit::Park => {
                self.shard.park_one(0, bio, &mut Vec::new());
                self.follow_plug();
            }
            Admit::Reject(status) => {
                let write = EarlyWrite { zone: ZONE, offset, len_sectors: len, queue, queues: 2 };
                let early = status == Status::NotAtWritePointer && !append;
                if early && self.window.may_hold(plug, write) {
                    self.window.hold(plug, write, vec![bio]);
                    return self.window.set_due(queue, Nanos(self.now + WINDOW));
                }
                bio.status = status;
                self.back.push(bio);
            }
        }
    }

    fn done(&mut self, status: Status) {
        let mut cmd = self.flight.take().expect("one in flight");
        cmd.status = status;
        self.epoch += 1;
        let offset = cmd.sector.0 as u32;
        self.shard.begin_change(0).complete(&cmd, offset, self.epoch, &mut self.back);
        self.follow_plug();
    }

    fn step(&mut self, what: Step) {
        self.back.clear();
        match what {
            S::Write(offset, len) => self.write(offset, len, false),
            S::Append => self.write(self.shard.plugs[0].write_pointer(), 1, true),
            S::Done(status) => self.done(status),
            S::Reset => self.shard.begin_change(0).reset(&mut self.back),
            S::Finish => self.shard.begin_change(0).finish(LEN, &mut self.back),
            S::Report | S::Resync => {
                let resync = what == S::Resync;
                self.epoch += 1;
                let epochs = ReportEpochs { sent: self.epoch, now: self.epoch };
                assert!(!resync || self.shard.plugs[0].begin_resync(epochs));
                self.shard.begin_change(0).reported(&zone(1), epochs, resync, &mut self.back);
            }
            S::Tick => {
                self.now += 1;
                for zone in self.window.zones_due(Nanos(self.now)) {
                    let now = Nanos(self.now);
                    self.window.expire(zone, &mut self.shard, 0, now, &mut self.back);
                }
            }
            S::Leave(queue) => {
                self.window.leave(ZONE, &mut self.shard, 0, queue, &mut self.back);
            }
        }
        self.follow_plug();
        if self.flight.is_none() && self.shard.plugs[0].parked() > 0 {
            let mut cmd = Command::new(1);
            assert!(self.shard.fill(0, MERGE, &mut cmd));
            self.flight = Some(cmd);
        }
    }

    /// Compares all visible state with the model.
    fn compare(&self, model: &Model) {
        let plug = &self.shard.plugs[0];
        assert_eq!((plug.write_pointer(), plug.is_stale()), (model.wp, model.stale), "I3");
        let flight = self.flight.as_ref().map(|c| (c.sector.0 as u32, c.len_sectors));
        assert_eq!(flight, model.flight.map(|f| (f.0, f.1)), "I2");
        assert_eq!(plug.parked() as usize, model.waiting.len());
        assert_eq!((plug.has_early(), self.window.is_empty()), {
            let held = !model.held.is_empty();
            (held, !held)
        });
        let here = self.window.zones.get(&ZONE);
        let amount = here.map(|z| (z.amount.writes, z.amount.sectors)).unwrap_or_default();
        let sectors: u64 = model.held.values().map(|h| u64::from(h.0)).sum();
        assert_eq!(amount, (model.held.len() as u64, sectors), "H6");
        let held = here.into_iter().flat_map(|z| &z.writes);
        let held: Vec<_> = held.map(|(&at, e)| (at, e.len_sectors)).collect();
        assert_eq!(held, model.held.iter().map(|(&at, h)| (at, h.0)).collect::<Vec<_>>());
        let due = model.held.values().map(|h| Nanos(self.now + h.1)).min();
        assert_eq!(self.window.next_due(), due, "H5");
        let mut back: Vec<_> = self.back.iter().map(|b| (b.token(), b.status)).collect();
        let mut wanted = model.back.clone();
        // Appends have no name of their own in the model once they are accepted.
        for list in [&mut back, &mut wanted] {
            list.retain(|b| b.1 != Status::Ok);
            list.sort_unstable();
        }
        assert_eq!(back, wanted);
        let c = self.window.counters();
        assert_eq!(c.held, c.writes + c.admitted + c.expired + c.dropped, "H12");
        assert_eq!(c.writes as usize, model.held.len(), "H6");
        let clients: u64 = self.window.clients.values().map(|c| c.writes).sum();
        assert_eq!((clients, self.window.due.len() as u64), (c.writes, c.writes), "H6");
        assert!(self.window.undated.is_empty());
    }
}

/// H2-H6, H8, H10, H12, M4. The window and the model agree in every sequence of steps.
#[test]
fn every_sequence_of_steps() {
    let steps = steps();
    let mut known = BTreeSet::from([Model::default()]);
    let mut ends: Vec<(Vec<Step>, Model)> = vec![(Vec::new(), Model::default())];
    let mut compared = 0u32;
    while !ends.is_empty() {
        for (path, model) in std::mem::take(&mut ends) {
            for &what in &steps {
                let mut next = model.clone();
                if !next.step(what) {
                    continue;
                }
                let mut path = path.clone();
                path.push(what);
                compared += 1;
                let result = std::panic::catch_unwind(|| {
                    let mut real = Real::new();
                    path.iter().for_each(|&s| real.step(s));
                    real.compare(&next);
                });
                assert!(result.is_ok(), "{path:?}: the model is {next:?}");
                next.back.clear();
                if known.insert(next.clone()) {
                    ends.push((path, next));
                }
            }
        }
    }
    assert!(compared > 200_000 && known.len() > 9000, "{compared}, {} states", known.len());
}

/// H6. A full disk holds no more writes, whatever the share of a client.
#[test]
fn h6_a_disk_holds_so_many_writes_and_bytes() {
    let mut shard = Shard::default();
    shard.plugs.push(Plug::new(&zone(0)));
    let write = EarlyWrite { zone: ZONE, offset: 2, len_sectors: 2, queue: 0, queues: 1 };
    let amount = |writes, sectors| HeldAmount {
        writes: DISK.writes - writes,
        sectors: DISK.sectors - sectors,
    };
    for (all, fits) in [(amount(1, 2), true), (amount(0, 2), false), (amount(1, 1), false)] {
        let mut window = OrderWindow { all, ..OrderWindow::default() };
        assert_eq!(window.may_hold(&shard.plugs[0], write), fits);
        assert_eq!(window.counters.over_disk, u64::from(!fits));
    }
}
