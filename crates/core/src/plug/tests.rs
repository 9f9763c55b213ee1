//! Every sequence of operations and statuses to a small depth, against a model that fits on a page.

use super::state::{OFFLINE, RESYNC};
use super::*;
use crate::bio::Command;
use crate::unit::Sector;
use crate::zone::ZoneType;
use std::collections::VecDeque;

const CAP: u32 = 5;
const ZONE: u32 = 7;
const MERGE: Merge = Merge { max_sectors: 3, max_zeroes_sectors: 3, max_bios: 2 };

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Write(u32),
    Misaligned,
    TooLong,
    Append,
    Complete(Status),
    Reset,
    Finish,
    /// A report of a zone written to 1 sector: sent now, or before the last error.
    Report {
        fresh: bool,
    },
    /// A resync is sent; one is answered: empty.
    ResyncSent,
    ResyncDone,
    ReportOffline,
    NativeAppend,
}

use Step as S;
const STEPS: [Step; 16] = [
    S::Write(1),
    S::Write(2),
    S::Misaligned,
    S::TooLong,
    S::Append,
    S::Complete(Status::Ok),
    S::Complete(Status::OpenLimit),
    S::Complete(Status::Io),
    S::Reset,
    S::Finish,
    S::Report { fresh: true },
    S::Report { fresh: false },
    S::ResyncSent,
    S::ResyncDone,
    S::ReportOffline,
    S::NativeAppend,
];

/// The naive model: what a reader of the requirements would write down.
#[derive(Debug, Clone, Default)]
struct Model {
    wp: u32,
    /// (offset, length, generation) of the command in flight.
    flight: Option<(u32, u32, u32)>,
    /// (token, offset, length).
    waiting: VecDeque<(u64, u32, u32)>,
    stale: bool,
    offline: bool,
    generation: u32,
    resync: bool,
    /// Tokens that were aborted, in order.
    aborted: Vec<u64>,
    /// Epochs: now, when the write pointer was lost, and of the resync that was sent last.
    epoch: u32,
    lost_at: u32,
    resync_at: u32,
}

impl Model {
    fn admit(&mut self, token: u64, offset: u32, len: u32) -> Result<u32, Status> {
        if self.offline {
            Err(Status::ZoneOffline)
        } else if self.stale {
            Err(Status::StaleWritePointer)
        } else if self.wp >= CAP {
            Err(Status::ZoneFull)
        } else if offset != self.wp {
            Err(Status::NotAtWritePointer)
        } else if offset + len > CAP {
            Err(Status::PastCapacity)
        } else {
            self.wp += len;
            self.resync = false;
            match self.flight {
                None => self.flight = Some((offset, len, self.generation)),
                Some(_) => self.waiting.push_back((token, offset, len)),
            }
            Ok(offset)
        }
    }

    fn abort(&mut self) {
        self.aborted.extend(self.waiting.drain(..).map(|w| w.0));
    }

    fn complete(&mut self, status: Status) {
        let (offset, _, generation) = self.flight.take().expect("one in flight");
        if status == Status::OpenLimit && generation == self.generation {
            self.wp = offset;
            self.abort();
        } else if status == Status::Io {
            self.epoch += 1;
            (self.stale, self.lost_at) = (true, self.epoch);
            self.abort();
        }
        // The next command: two BIOs at most, three sectors at most.
        let Some((_, at, mut total)) = self.waiting.pop_front() else { return };
        if let Some(&(_, _, len)) = self.waiting.front()
            && total + len <= MERGE.max_sectors
        {
            self.waiting.pop_front();
            total += len;
        }
        self.flight = Some((at, total, self.generation));
    }

    fn restart(&mut self, wp: u32) {
        if !self.offline {
            self.wp = wp;
            self.generation += 1;
            (self.stale, self.resync) = (false, false);
            self.abort();
        }
    }

    fn settle(&mut self, wp: u32) {
        self.wp = wp;
        (self.stale, self.offline, self.resync) = (false, false, false);
    }
}

/// The real thing, with the command that is in flight.
struct Real {
    shard: Shard,
    flight: Option<Box<Command>>,
    aborted: Vec<Box<Bio>>,
}

fn zone(cond: Condition, wp: u64) -> ZoneInfo {
    ZoneInfo {
        start: Sector(0),
        len_sectors: u64::from(ZONE),
        capacity_sectors: u64::from(CAP),
        wp: Sector(wp),
        zone_type: ZoneType::SeqWriteRequired,
        cond,
    }
}

impl Real {
    fn new() -> Real {
        let mut shard = Shard::default();
        shard.plugs.push(Plug::new(&zone(Condition::Empty, 0)));
        Real { shard, flight: None, aborted: Vec::new() }
    }

    fn write(&mut self, token: u64, offset: Option<u32>, len: u32) -> Result<u32, Status> {
        let plug = &mut self.shard.plugs[0];
        let at = plug.write_pointer();
        let admit = match offset {
            Some(o) => {
                let checked = plug.check(o, len);
                let admit = plug.admit(o, len);
                assert_eq!(checked.is_ok(), !matches!(admit, Admit::Reject(_)));
                admit
            }
            None => plug.admit_append(len),
        };
        let mut bio = Bio::new(Op::Write, Sector(u64::from(at)), len);
        bio.token = token;
        match admit {
            Admit::Reject(status) => return Err(status),
            Admit::Issue => {
                let mut cmd = Command::new(2);
                cmd.set(Op::Write, bio.sector, len, Flags::NONE);
                cmd.generation = plug.generation();
                cmd.bios.push(bio);
                assert!(self.flight.replace(cmd).is_none(), "I1");
            }
            Admit::Park => {
                let kind = Kind::of(&bio);
                self.shard.park(0, &mut vec![bio], len, 0, kind);
            }
        }
        Ok(at)
    }

    fn complete(&mut self, status: Status, epoch: u32) {
        let mut cmd = self.flight.take().expect("one in flight");
        cmd.status = status;
        let offset = cmd.sector.0 as u32;
        let next = self.shard.complete(0, &cmd, offset, epoch, &mut self.aborted);
        if next == Next::Issue {
            cmd.bios.clear();
            assert!(self.shard.fill(0, MERGE, &mut cmd), "I4: something waits");
            self.flight = Some(cmd);
        }
    }
}

/// Carries out one step on both; false if it makes no sense now.
fn step(real: &mut Real, model: &mut Model, what: Step, token: u64) -> bool {
    let reported = |real: &mut Real, info: &ZoneInfo, epoch, resync| {
        real.shard.reported(0, info, epoch, resync, &mut real.aborted)
    };
    match what {
        S::Write(_) | S::Misaligned | S::TooLong => {
            let (offset, len) = match what {
                S::Write(n) => (model.wp, n),
                S::Misaligned => (model.wp + 1, 1),
                _ => (model.wp, CAP + 1),
            };
            let before = real.shard.plugs[0].write_pointer();
            let answer = real.write(token, Some(offset), len);
            assert_eq!(answer, model.admit(token, offset, len));
            assert!(answer.is_ok() || before == real.shard.plugs[0].write_pointer(), "W9");
        }
        S::Append => {
            let at = model.wp;
            assert_eq!(real.write(token, None, 1), model.admit(token, at, 1));
        }
        S::Complete(status) => {
            if model.flight.is_none() {
                return false;
            }
            model.complete(status);
            real.complete(status, model.epoch);
        }
        S::Reset => {
            real.shard.reset(0, &mut real.aborted);
            model.restart(0);
        }
        S::Finish => {
            real.shard.finish(0, ZONE, &mut real.aborted);
            model.restart(ZONE);
        }
        S::Report { fresh } => {
            let epoch = if fresh { model.epoch } else { model.lost_at.wrapping_sub(1) };
            reported(real, &zone(Condition::Closed, 1), epoch, false);
            // The epoch decides, of a zone that was offline too (E6).
            if fresh && (model.offline || model.stale) {
                model.settle(1);
            }
        }
        S::ResyncSent => {
            model.epoch += 1;
            model.resync_at = model.epoch;
            let idle = real.shard.plugs[0].begin_resync(model.epoch);
            assert_eq!(idle, model.flight.is_none());
            if idle {
                model.resync = true;
                if !model.stale {
                    model.lost_at = model.epoch;
                }
            }
        }
        S::ResyncDone => {
            if model.resync_at == 0 {
                return false;
            }
            let busy = reported(real, &zone(Condition::Empty, 0), model.resync_at, true);
            let newer = model.resync_at >= model.lost_at;
            if newer && (model.offline || model.stale || model.resync) {
                model.settle(0);
                assert!(!busy);
            } else {
                assert!(busy);
            }
            model.resync_at = 0;
        }
        S::ReportOffline => {
            reported(real, &zone(Condition::Offline, u64::MAX), model.epoch, false);
            (model.offline, model.stale, model.resync) = (true, false, false);
            model.lost_at = model.epoch;
            model.abort();
        }
        S::NativeAppend => {
            model.epoch += 1;
            real.shard.forget_write_pointer(0, model.epoch, &mut real.aborted);
            if !model.stale {
                model.abort();
            }
            (model.stale, model.resync, model.lost_at) = (true, false, model.epoch);
        }
    }
    true
}

fn check(real: &Real, model: &Model) {
    let plug = &real.shard.plugs[0];
    // I3: the write pointer is after the last reserved write.
    assert_eq!(plug.write_pointer(), model.wp);
    assert_eq!(plug.is_stale(), model.stale);
    assert_eq!(plug.state & OFFLINE != 0, model.offline);
    assert_eq!(plug.state & RESYNC != 0, model.resync);
    assert_eq!(plug.generation(), model.generation);
    // I4: plugged is in flight, here where every command is sent at once; whoever waits has somebody to wait for.
    assert_eq!(plug.is_plugged(), model.flight.is_some());
    assert!(plug.parked() == 0 || plug.is_plugged());
    assert_eq!(plug.parked() as usize, model.waiting.len());
    // I1: one command, and the one that the model has.
    let flight = real.flight.as_ref().map(|c| (c.sector.0 as u32, c.len_sectors, c.generation));
    assert_eq!(flight, model.flight);
    // I7: aborted once each, in order.
    assert!(real.aborted.iter().map(|b| b.token).eq(model.aborted.iter().copied()));
    let expected = if model.offline {
        Condition::Offline
    } else if model.wp >= CAP {
        Condition::Full
    } else if model.wp == 0 && !model.stale {
        Condition::Empty
    } else {
        Condition::Active
    };
    assert_eq!(plug.condition(), expected);
    assert_eq!(
        plug.is_live(),
        model.flight.is_some() || model.stale || expected == Condition::Active
    );
}

/// Runs a sequence from the start (a shard cannot be copied). Returns false if a step makes no sense.
fn run(sequence: &[Step]) -> bool {
    let (mut real, mut model) = (Real::new(), Model { lost_at: 0, epoch: 10, ..Model::default() });
    for (i, &what) in sequence.iter().enumerate() {
        if !step(&mut real, &mut model, what, i as u64) {
            return false;
        }
        if i + 1 == sequence.len() {
            check(&real, &model);
        }
    }
    true
}

fn explore(sequence: &mut Vec<Step>, depth: usize, n: &mut u64) {
    for what in STEPS {
        sequence.push(what);
        if run(sequence) {
            *n += 1;
            if sequence.len() < depth {
                explore(sequence, depth, n);
            }
        }
        sequence.pop();
    }
}

/// I1, I3, I4, R2, R7-R10, R14: every sequence of six steps.
#[test]
fn every_short_sequence_of_operations_agrees_with_the_naive_model() {
    let mut n = 0;
    explore(&mut Vec::new(), 6, &mut n);
    assert!(n > 4_000_000, "{n} sequences");
}

/// The same from a zone with one write in flight and two waiting, where most of what can go wrong begins.
#[test]
fn every_short_sequence_behind_three_writes_agrees_with_the_naive_model() {
    let mut n = 0;
    let mut busy = vec![S::Write(1), S::Append, S::Write(1)];
    explore(&mut busy, 8, &mut n);
    assert!(n > 40_000, "{n} sequences");
}

/// A5: kinds that merge and kinds that do not.
#[test]
fn kinds_merge_with_their_like() {
    let kind = |op, flags| {
        let mut b = Bio::new(op, Sector(0), 8);
        b.flags = flags;
        Kind::of(&b)
    };
    let plain = kind(Op::Write, Flags::NONE);
    assert!(plain.merges(kind(Op::ZoneAppend, Flags::NOWAIT)));
    assert!(kind(Op::Write, Flags::FUA).merges(kind(Op::ZoneAppend, Flags::FUA)));
    for other in [
        kind(Op::WriteZeroes, Flags::NONE),
        kind(Op::Write, Flags::FUA),
        kind(Op::Write, Flags::NOMERGE),
        kind(Op::Write, Flags::PREFLUSH),
    ] {
        assert!(!plain.merges(other) && !other.merges(plain));
    }
    let alone = kind(Op::Write, Flags::PREFLUSH);
    assert!(!alone.merges(alone));
    assert_eq!((alone.op(), alone.flags()), (Op::Write, Flags::PREFLUSH));
    assert_eq!(kind(Op::WriteZeroes, Flags::NONE).op(), Op::WriteZeroes);
}
