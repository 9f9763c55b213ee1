//! Every sequence of operations and statuses up to length 6, against a model that fits on a page.
//!
//! Two sequences that lead to the same state of plug and model have the same future, so it is explored once.

mod model;

use super::state::{MANAGED, OFFLINE, READONLY, RESYNC};
use super::*;
use crate::bio::Command;
use crate::unit::Sector;
use crate::zone::ZoneType;
use model::{Model, Waiting};
use std::collections::BTreeMap;

const CAP: u32 = 5;
const ZONE: u32 = 7;
const MERGE: Merge = Merge { max_sectors: 3, max_zeroes_sectors: 3, max_bios: 2 };

/// One step of a sequence. A write's number is its length in sectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Write(u32),
    /// Two BIOs of a sector each, in one run.
    Run,
    Zeroes,
    Append,
    Misaligned,
    TooLong,
    /// A write whose queue has no tag.
    WriteWithoutTag,
    /// A zone in line gets its tag.
    Tag,
    Complete(Status),
    /// A write fails on a disk that finds write pointers by itself. In `FailLate`, a write that was given up may
    /// still be at the device.
    Fail(Status),
    FailLate,
    LateBack,
    /// The layer's own report comes back. `OldAnswer`: the report of a recovery that has ended. `AnswerFailed`: the
    /// report has failed.
    Answer(Condition),
    OldAnswer(Condition),
    AnswerFailed,
    /// The layer's own report, or a client's, comes back while a reset or finish is in flight.
    AnswerBesideReset(Condition),
    ReportBesideReset(Condition),
    /// A write succeeds, and others are before the zone in line for the tag (C3).
    CompleteInLine,
    Reset,
    Finish,
    /// A report comes back that was sent now, or before the last error. `Closed`: the zone has 1 sector.
    Report(Condition, bool),
    /// A resync is sent, or its answer comes back.
    ResyncSent,
    ResyncDone(Condition),
    NativeAppend,
    /// Strict management begins, or ends.
    ManageBegin,
    ManageEnd,
}

use Step as S;

/// All steps, with every status with which a device may end a command.
fn steps() -> Vec<Step> {
    use Condition as C;
    let mut all = vec![
        S::Write(1),
        S::Write(2),
        S::Run,
        S::Zeroes,
        S::Append,
        S::Misaligned,
        S::TooLong,
        S::WriteWithoutTag,
        S::Tag,
        S::CompleteInLine,
        S::Reset,
        S::Finish,
        S::ResyncSent,
        S::NativeAppend,
        S::ManageBegin,
        S::ManageEnd,
    ];
    for cond in [C::Empty, C::Closed, C::Full, C::ReadOnly, C::Offline] {
        all.extend([S::Report(cond, true), S::Report(cond, false), S::ResyncDone(cond)]);
        all.push(S::Answer(cond));
    }
    all.extend([C::Closed, C::Offline].map(S::OldAnswer));
    all.extend([C::Empty, C::Full].map(S::AnswerBesideReset));
    all.push(S::ReportBesideReset(C::Empty));
    all.extend([S::FailLate, S::LateBack, S::AnswerFailed]);
    all.extend([Status::Io, Status::Timeout, Status::ZoneOffline, Status::OpenLimit].map(S::Fail));
    // *Busy* does not end a command: it is sent again (W23).
    all.extend(Status::all().filter(|s| *s != Status::Busy).map(S::Complete));
    all
}

/// The engine's shard, with the command that is in flight.
struct Real {
    shard: Shard,
    flight: Option<Box<Command>>,
    aborted: Vec<Box<Bio>>,
}

fn zone(cond: Condition) -> ZoneInfo {
    let wp = match cond {
        Condition::Empty => 0,
        Condition::Full => u64::from(ZONE),
        Condition::Closed => 1,
        _ => u64::MAX,
    };
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
        shard.plugs.push(Plug::new(&zone(Condition::Empty)));
        Real { shard, flight: None, aborted: Vec::new() }
    }

    fn write(&mut self, w: Waiting, append: bool, tag: bool) -> Result<u32, Status> {
        let (token, offset, len, nr, zeroes, _) = w;
        let plug = &mut self.shard.plugs[0];
        let at = plug.write_pointer();
        let admit = if append {
            plug.admit(at, len)
        } else {
            let checked = plug.check(offset, len);
            let admit = plug.admit(offset, len);
            assert_eq!(checked.is_ok(), !matches!(admit, Admit::Reject(_)));
            admit
        };
        let mut run = Vec::new();
        for i in 0..u64::from(nr) {
            let op = match (append, zeroes) {
                (true, _) => Op::ZoneAppend,
                (_, true) => Op::WriteZeroes,
                _ => Op::Write,
            };
            let mut bio = Bio::new(op, Sector(u64::from(at) + i * u64::from(len / nr)), len / nr);
            bio.set_token(token + i);
            run.push(bio);
        }
        let kind = Kind::of(&run[0]);
        match admit {
            Admit::Reject(status) => return Err(status),
            Admit::Issue if tag => {
                let mut cmd = Command::new(2);
                cmd.set(kind.op(), run[0].sector, len, Flags::NONE);
                cmd.generation = plug.generation();
                cmd.bios = run;
                assert!(self.flight.replace(cmd).is_none(), "I1");
            }
            _ => {
                if admit == Admit::Issue {
                    plug.get_in_line();
                }
                self.shard.park(0, &mut run, len, 0, kind);
            }
        }
        Ok(at)
    }

    fn complete(&mut self, status: Status, epoch: u32, to_line: bool) {
        let mut cmd = self.flight.take().expect("one in flight");
        cmd.status = status;
        let offset = cmd.sector.0 as u32;
        let next = self.shard.begin_change(0).complete(&cmd, offset, epoch, &mut self.aborted);
        if status.is_ok() && self.shard.plugs[0].awaits_report() {
            self.shard.begin_change(0).written_before_report(epoch);
        }
        if next == AfterWrite::Issue && to_line {
            self.shard.plugs[0].get_in_line();
        } else if next == AfterWrite::Issue {
            cmd.bios.clear();
            assert!(self.shard.fill(0, MERGE, &mut cmd), "I4: something waits");
            self.flight = Some(cmd);
        }
    }

    /// Fails a write while the layer finds write pointers. `late`: a write that was given up may be at the device.
    fn fail(&mut self, status: Status, epoch: u32, late: bool) {
        let mut cmd = self.flight.take().expect("one in flight");
        cmd.status = status;
        let offset = cmd.sector.0 as u32;
        let next = self.shard.begin_change(0).complete(&cmd, offset, epoch, &mut self.aborted);
        assert_ne!(next, AfterWrite::Issue, "all of these abort what waits, or nothing does");
        cmd.bios[0].late = u32::from(status == Status::Timeout && late);
        let open = |a: u32, b: u32| if late { a.max(b) } else { 0 };
        if next == AfterWrite::Lost {
            self.shard.begin_change(0).ask(&cmd, offset, epoch, true, open);
        } else {
            self.shard.given_up(0, cmd.bios[0].late, open);
        }
    }

    /// Delivers the layer's own report.
    fn answer(&mut self, cond: Option<Condition>, number: u32, epoch: u32, in_doubt: bool) {
        let mut cmd = Command::new(0);
        cmd.epoch = number;
        cmd.status = if cond.is_some() { Status::Ok } else { Status::Io };
        cmd.report.extend(cond.map(zone));
        let report = RecoveryReport {
            cmd: &cmd,
            start: Sector(0),
            mask: 0,
            may_move: &|| in_doubt,
            epoch: &|| epoch,
        };
        let step = self.shard.begin_change(0).recover(&report, &mut self.aborted);
        assert_eq!(
            step == QueueStep::InLine,
            self.shard.plugs[0].in_line && step != QueueStep::Nothing
        );
    }

    fn tag(&mut self) {
        let mut cmd = Command::new(2);
        if self.shard.fill_from_line(0, MERGE, &mut cmd) {
            assert!(self.flight.replace(cmd).is_none(), "I1");
        }
    }
}

/// E6. However many events there were since, a report that is sent now is newer than they.
#[test]
fn e6_epochs_wrap() {
    for event in [0, 5, 1 << 31, u32::MAX - 1] {
        for age in [0, 1, 1 << 30, 1 << 31, u32::MAX - 8] {
            let now = u32::wrapping_add(event, age);
            let of = |ago: u32| ReportEpochs { sent: now.wrapping_sub(ago), now };
            assert!(of(0).are_since(event), "{event} {age}");
            assert!(age == 0 || of(1).are_since(event));
            assert!(age > 4 || !of(age + 1).are_since(event), "sent before it");
        }
    }
}

/// Carries out one step on both. Returns false if the step is not possible now.
fn step(real: &mut Real, model: &mut Model, what: Step, token: u64) -> bool {
    let reported = |real: &mut Real, cond, (sent, now), resync| {
        let aborted = &mut real.aborted;
        let epochs = ReportEpochs { sent, now };
        if real
            .shard
            .begin_change(0)
            .reported_meanwhile(&zone(cond), epochs, 0, &|| false, aborted)
            .is_some()
        {
            return false;
        }
        real.shard.begin_change(0).reported(&zone(cond), epochs, resync, &mut real.aborted)
    };
    let wp = model.wp;
    match what {
        S::Write(_)
        | S::Run
        | S::Zeroes
        | S::Append
        | S::Misaligned
        | S::TooLong
        | S::WriteWithoutTag => {
            let w = match what {
                S::Write(n) => (token, wp, n, 1, false, false),
                S::Run => (token, wp, 2, 2, false, false),
                S::Zeroes => (token, wp, 1, 1, true, false),
                S::Misaligned => (token, wp + 1, 1, 1, false, false),
                S::TooLong => (token, wp, CAP + 1, 1, false, false),
                _ => (token, wp, 1, 1, false, what == S::Append),
            };
            let tag = what != S::WriteWithoutTag;
            let before = format!("{:?}", real.shard.plugs[0]);
            let answer = real.write(w, what == S::Append, tag);
            assert_eq!(answer, model.admit(w, tag));
            let after = answer.is_err().then(|| format!("{:?}", real.shard.plugs[0]));
            assert!(after.is_none_or(|a| a == before), "W9: a refused write changes nothing");
        }
        S::Complete(_) | S::CompleteInLine => {
            let to_line = what == S::CompleteInLine;
            if model.flight.is_none() || to_line && model.waiting.is_empty() {
                return false;
            }
            let status = if let S::Complete(s) = what { s } else { Status::Ok };
            model.complete(status, to_line);
            real.complete(status, model.epoch, to_line);
        }
        S::Fail(_) | S::FailLate => {
            let Some((_, _, generation)) = model.flight else { return false };
            let status = if let S::Fail(s) = what { s } else { Status::Timeout };
            // A limit proves that nothing was written. The write is from before a reset, so the waiting writes go on.
            if generation != model.generation && status == Status::OpenLimit {
                return false;
            }
            model.late |= what == S::FailLate;
            model.fail(status);
            real.fail(status, model.epoch, model.late);
        }
        S::LateBack => {
            if !std::mem::take(&mut model.late) {
                return false;
            }
        }
        S::Answer(_) | S::AnswerFailed => {
            let Some(number) = model.report_number else { return false };
            let cond = if let S::Answer(c) = what { Some(c) } else { None };
            model.answer(cond, number);
            real.answer(cond, number, model.epoch, false);
        }
        S::AnswerBesideReset(cond) => {
            let Some(number) = model.report_number else { return false };
            // The report is not believed, as if it had failed.
            model.answer(None, number);
            real.answer(Some(cond), number, model.epoch, true);
        }
        S::ReportBesideReset(cond) => {
            let Some(number) = model.report_number else { return false };
            // Waiting writes are not sent, because the write pointer may have moved.
            model.abort();
            model.resume_from_report(cond, number, 0);
            let aborted = &mut real.aborted;
            let ends = real.shard.begin_change(0).reported_meanwhile(
                &zone(cond),
                ReportEpochs { sent: number, now: model.epoch },
                0,
                &|| true,
                aborted,
            );
            assert!(ends.is_some(), "E3: its client may look");
        }
        S::OldAnswer(cond) => {
            // The number of the last recovery, also after its end.
            let last = real.shard.tracks.first().map_or(0, |t| t.report_number);
            let number = last.wrapping_sub(u32::from(model.report_number.is_some()));
            model.answer(Some(cond), number);
            real.answer(Some(cond), number, model.epoch, false);
        }
        S::Tag => {
            if !std::mem::take(&mut model.line) {
                return false;
            }
            model.send();
            real.tag();
        }
        S::Reset => {
            real.shard.begin_change(0).reset(&mut real.aborted);
            model.restart(0);
        }
        S::Finish => {
            real.shard.begin_change(0).finish(ZONE, &mut real.aborted);
            model.restart(ZONE);
        }
        S::Report(cond, fresh) => {
            let epoch = if fresh { model.epoch } else { model.lost_at.wrapping_sub(1) };
            let met_busy = model.report(cond, epoch, false);
            assert_eq!(reported(real, cond, (epoch, model.epoch), false), met_busy);
        }
        S::ResyncSent => {
            model.epoch += 1;
            model.resync_at = model.epoch;
            let epochs = ReportEpochs { sent: model.epoch, now: model.epoch };
            let idle = real.shard.plugs[0].begin_resync(epochs);
            assert_eq!(idle, !model.has_writes());
            if idle {
                model.resync = true;
                model.lost_at = if model.stale { model.lost_at } else { model.epoch };
            }
        }
        S::ResyncDone(cond) => {
            let epoch = std::mem::take(&mut model.resync_at);
            if epoch == 0 {
                return false;
            }
            let met_busy = model.report(cond, epoch, true);
            assert_eq!(reported(real, cond, (epoch, model.epoch), true), met_busy);
        }
        S::NativeAppend => {
            model.epoch += 1;
            real.shard.begin_change(0).forget_write_pointer(model.epoch, &mut real.aborted);
            if !model.stale {
                model.abort();
            }
            (model.stale, model.resync, model.lost_at) = (true, false, model.epoch);
        }
        S::ManageBegin => {
            let free = !model.managed && !model.has_writes();
            assert_eq!(real.shard.plugs[0].begin_management(), free);
            model.managed |= free;
        }
        S::ManageEnd => {
            if !std::mem::take(&mut model.managed) {
                return false;
            }
            real.shard.plugs[0].end_management();
        }
    }
    true
}

fn check(real: &Real, model: &Model) {
    let plug = &real.shard.plugs[0];
    // I3: the write pointer is after the last reserved write.
    assert_eq!(plug.write_pointer(), model.wp);
    let bits = |bit| plug.state & bit != 0;
    assert_eq!(
        [plug.is_stale(), bits(READONLY), bits(OFFLINE), bits(RESYNC), bits(MANAGED)],
        [
            model.stale || model.report_number.is_some(),
            model.read_only,
            model.offline,
            model.resync,
            model.managed
        ]
    );
    assert_eq!(plug.generation(), model.generation);
    // I4: a plugged zone has a write in flight or is in line. Writes wait only in a plugged zone.
    let busy = model.flight.is_some() || model.line || model.report_number.is_some();
    assert_eq!(plug.is_plugged(), busy);
    assert_eq!(plug.is_plugged() && plug.in_line, model.line);
    let busy = model.flight.is_some() || !model.waiting.is_empty();
    assert_eq!(plug.linux_flags() & 1 != 0, busy, "T2");
    assert!(plug.parked() == 0 || plug.is_plugged());
    // I2: the writes that wait, in order.
    let waiting = model.waiting.iter().map(|w| (u64::from(w.1), w.2, w.3, w.4));
    assert!(real.shard.waiting(0).into_iter().eq(waiting), "{:?}", real.shard);
    assert_eq!(plug.parked(), model.waiting.iter().map(|w| w.3).sum());
    // I1: one command, and the one that the model has.
    let flight = real.flight.as_ref().map(|c| (c.sector.0 as u32, c.len_sectors, c.generation));
    assert_eq!(flight, model.flight);
    // I7: aborted once each, in order.
    assert!(real.aborted.iter().map(|b| b.token()).eq(model.aborted.iter().copied()));
    let expected = if model.read_only {
        Condition::ReadOnly
    } else if model.offline {
        Condition::Offline
    } else if model.wp >= CAP {
        Condition::Full
    } else if model.wp == 0 && !(model.stale || model.report_number.is_some()) {
        Condition::Empty
    } else {
        Condition::Active
    };
    assert_eq!(plug.condition(), expected);
    assert_eq!(plug.is_live(), busy || plug.is_stale() || expected == Condition::Active);
}

/// Returns everything in shard and model that decides future steps. Counters and tokens are left out.
fn state_of(real: &Real, model: &Model) -> String {
    let p = &real.shard.plugs[0];
    let rel = |epoch: u32| epoch.wrapping_sub(model.epoch) as i32;
    let flight = real.flight.as_ref().map(|c| {
        let whole: Vec<_> = c.bios.iter().map(|b| (b.sector.0, b.len_sectors)).collect();
        (c.op, c.sector.0, c.len_sectors, p.generation.wrapping_sub(c.generation), whole)
    });
    let real = (p.wp, p.parked, p.state, p.in_line, rel(p.error_epoch), real.shard.waiting(0));
    let resync = (model.resync_at != 0).then(|| rel(model.resync_at));
    let waiting: Vec<_> = model.waiting.iter().map(|w| (w.1, w.2, w.3, w.4, w.5)).collect();
    let m = (model.wp, model.line, waiting, model.stale, model.read_only, model.offline);
    let found = (model.recovered_wp.0, model.recovered_wp.1 == model.generation);
    let asked =
        (model.report_number.map(rel), model.succeeded_to, model.attempts, found, model.late);
    let recovery = format!("{asked:?}{:?}", p.recovery);
    format!("{flight:?}{real:?}{resync:?}{m:?}{:?}{}{recovery}", rel(model.lost_at), model.managed)
}

/// Runs a sequence from the start, because a shard cannot be copied, and returns the state at its end. `None` if a
/// step is not possible.
fn run(sequence: &[Step]) -> Option<String> {
    let (mut real, mut model) = (Real::new(), Model { epoch: 10, ..Model::default() });
    for (i, &what) in sequence.iter().enumerate() {
        if !step(&mut real, &mut model, what, 2 * i as u64) {
            return None;
        }
    }
    let agree = std::panic::AssertUnwindSafe(|| check(&real, &model));
    assert!(std::panic::catch_unwind(agree).is_ok(), "after {sequence:?}: {:?}", real.shard);
    Some(state_of(&real, &model))
}

/// Runs every sequence that is `depth` steps longer than `begin`. Returns how many there are, and how many states
/// they end in.
fn explore(begin: &[Step], depth: usize) -> (u64, usize) {
    let steps = steps();
    let mut level = BTreeMap::from([(String::new(), (begin.to_vec(), 1u64))]);
    for _ in 0..depth {
        let mut next: BTreeMap<String, (Vec<Step>, u64)> = BTreeMap::new();
        for (sequence, n) in level.into_values() {
            for &what in &steps {
                let mut longer = sequence.clone();
                longer.push(what);
                if let Some(state) = run(&longer) {
                    next.entry(state).or_insert((longer, 0)).1 += n;
                }
            }
        }
        level = next;
    }
    (level.values().map(|l| l.1).sum(), level.len())
}

/// Runs the same sequences without comparing states.
fn explore_all(sequence: &mut Vec<Step>, depth: usize, steps: &[Step]) -> u64 {
    let mut n = 0;
    for &what in steps {
        sequence.push(what);
        if run(sequence).is_some() {
            n += if depth == 1 { 1 } else { explore_all(sequence, depth - 1, steps) };
        }
        sequence.pop();
    }
    n
}

/// I1, I3, I4, R2, R7-R10, R14, E6, E12. The plug and the model agree in every sequence of six operations and
/// statuses.
#[test]
fn every_short_sequence_of_operations_agrees_with_the_naive_model() {
    let (sequences, states) = explore(&[], 6);
    assert!(sequences > 500_000_000 && states > 10_000, "{sequences} sequences, {states} states");
}

/// Every short sequence from a zone with one write in flight and two waiting, where most mistakes would show.
#[test]
fn every_short_sequence_behind_three_writes_agrees_with_the_naive_model() {
    let (sequences, states) = explore(&[S::Write(1), S::Append, S::Write(1)], 4);
    assert!(sequences > 1_000_000 && states > 1_000, "{sequences} sequences, {states} states");
}

/// Exploring each state once loses nothing: the number of sequences is the same.
#[test]
fn states_stand_for_sequences() {
    for begin in [vec![], vec![S::Write(1), S::Append, S::Zeroes]] {
        let (sequences, _) = explore(&begin, 3);
        assert_eq!(sequences, explore_all(&mut begin.clone(), 3, &steps()));
    }
}

/// A zone whose writes were aborted while it was listed with the single writer does not stay in line, so that strict
/// management sees its next write (M5, Q7).
#[test]
fn a_zone_that_is_not_listed_any_more_is_busy_with_its_next_write() {
    let mut real = Real::new();
    real.write((1, 0, 1, 1, false, false), false, false).unwrap();
    let plug = &mut real.shard.plugs[0];
    let ticket = plug.get_listed();
    plug.wp = 1;
    real.shard.begin_change(0).reset(&mut real.aborted);
    assert_eq!(real.aborted.len(), 1);
    assert!(!real.shard.plugs[0].leave_list(ticket), "its entry is not valid any more");
    assert!(real.shard.plugs[0].begin_management());
    real.shard.plugs[0].end_management();
    real.write((2, 0, 1, 1, false, false), false, true).unwrap();
    assert!(real.flight.is_some());
    assert!(!real.shard.plugs[0].begin_management(), "a write is in flight");
}

/// W15. Some kinds of writes merge and some do not (A5).
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
