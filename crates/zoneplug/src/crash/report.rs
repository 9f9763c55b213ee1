//! Reports of power cuts.

use super::REPEAT;
use super::image::{Cut, Loss};
use super::record::{Tape, TapeEvent};
use std::collections::BTreeMap;
use std::fmt::{self, Write};
use zoneplug_core::zone::Geometry;
use zoneplug_core::{Error, Op};

/// The number of commands before the cut that a failure shows.
const SHOWN: usize = 8;

/// Counts of a test that passed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CrashReport {
    /// Runs of the work.
    pub runs: u64,
    /// Commands of all runs that changed the disk: writes, flushes, resets and the like.
    pub commands: u64,
    /// Moments at which the power could be cut, over all runs.
    pub points: u64,
    /// Power cuts that were checked, including those in the middle of a check.
    pub cuts: u64,
}

impl fmt::Display for CrashReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CrashReport { runs, commands, points, cuts } = self;
        write!(
            f,
            "{cuts} power cuts at {points} points of {runs} runs, {commands} commands: passed"
        )
    }
}

/// A cut as text: `SEED.POINT.DRAW`, with `.zN=SECTORS` for the sectors that a zone keeps, and
/// `/POINT.DRAW` for a cut in the check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Case {
    pub(super) seed: u64,
    pub(super) cut: Cut,
    pub(super) again: Option<Cut>,
}

fn cut_text(f: &mut fmt::Formatter<'_>, cut: &Cut) -> fmt::Result {
    write!(f, "{}.{}", cut.point, cut.draw)?;
    cut.keep.iter().try_for_each(|(zone, keep)| write!(f, ".z{zone}={keep}"))
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.", self.seed)?;
        cut_text(f, &self.cut)?;
        match &self.again {
            Some(again) => {
                f.write_str("/")?;
                cut_text(f, again)
            }
            None => Ok(()),
        }
    }
}

fn cut_of(text: &str) -> Option<Cut> {
    let mut parts = text.split('.');
    let point = parts.next()?.parse().ok()?;
    let draw = parts.next()?.parse().ok()?;
    let keep = parts
        .map(|p| {
            let (zone, keep) = p.strip_prefix('z')?.split_once('=')?;
            Some((zone.parse().ok()?, keep.parse().ok()?))
        })
        .collect::<Option<BTreeMap<u32, u32>>>()?;
    Some(Cut { point, draw, keep })
}

impl Case {
    pub(super) fn parse(text: &str) -> Option<Case> {
        let (seed, rest) = text.split_once('.')?;
        let (cut, again) = match rest.split_once('/') {
            Some((cut, again)) => (cut, Some(cut_of(again)?)),
            None => (rest, None),
        };
        Some(Case { seed: seed.parse().ok()?, cut: cut_of(cut)?, again })
    }
}

/// Why [`Crash::run`](super::Crash::run) failed. `Display` and `Debug` show all of it, in several
/// lines.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CrashFailure {
    /// The error of the check, or its panic message.
    pub message: String,
    /// The seed of the run.
    pub seed: u64,
    /// The number of events (commands sent and commands completed) of the run before the cut.
    /// `None` if the work itself failed, or the specification is wrong.
    pub point: Option<usize>,
    /// The number of the first cut that failed, counted from 1, before the search for a smaller
    /// one.
    pub nr: u64,
    /// The value of the environment variable [`REPEAT`] that repeats the cut.
    pub repeat: String,
    pub(super) story: String,
}

impl CrashFailure {
    pub(super) fn setup(e: &Error) -> CrashFailure {
        CrashFailure {
            message: e.to_string(),
            seed: 0,
            point: None,
            nr: 0,
            repeat: String::new(),
            story: String::new(),
        }
    }

    pub(super) fn work(seed: u64, message: &str) -> CrashFailure {
        CrashFailure {
            message: format!("the work of seed {seed} failed before any power cut: {message}"),
            seed,
            point: None,
            nr: 0,
            repeat: String::new(),
            story: String::new(),
        }
    }
}

impl fmt::Display for CrashFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(point) = self.point else { return f.write_str(&self.message) };
        writeln!(f, "after a power cut: {}", self.message)?;
        let (seed, nr) = (self.seed, self.nr);
        writeln!(f, "seed {seed}, cut after event {point} (cut {nr} was the first to fail)")?;
        f.write_str(&self.story)?;
        write!(f, "repeat it: {REPEAT}={}{}", self.repeat, command())
    }
}

impl fmt::Debug for CrashFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for CrashFailure {}

/// The command that repeats this run: the program, and in a test also the test's name, which is
/// that of its thread.
fn command() -> String {
    let mut text = String::new();
    for (i, arg) in std::env::args().enumerate() {
        text += " ";
        text += &arg;
        let thread = std::thread::current();
        let test = thread.name().filter(|n| *n != "main" && n.chars().all(|c| !c.is_whitespace()));
        if let (0, Some(test)) = (i, test) {
            let _ = write!(text, " --exact {test}");
            break;
        }
    }
    text
}

/// Describes the commands before a cut, and the losses.
pub(super) fn story(
    g: &Geometry,
    tape: &Tape,
    point: usize,
    promised: usize,
    losses: &[Loss],
) -> String {
    let mut text = String::new();
    let sent = |e: &TapeEvent| match e {
        TapeEvent::Sent(nr) => Some(*nr),
        TapeEvent::Done(_) => None,
    };
    let all: Vec<usize> = tape.events.iter().take(point).filter_map(sent).collect();
    let _ = writeln!(text, "{} commands were sent before it, the last of them:", all.len());
    for nr in all.iter().skip(all.len().saturating_sub(SHOWN)) {
        let c = &tape.changes[*nr];
        let (zone, offset) = g.zone_of(c.sector);
        let end = match c.done {
            Some((at, status)) if at < point => format!("{status}"),
            _ => "in flight".to_owned(),
        };
        let place = match c.op {
            Op::Flush | Op::ZoneResetAll => String::new(),
            op if op.is_zone_management() => format!(" zone {}", zone.0),
            _ => format!(" zone {} at {offset}, {} sectors", zone.0, c.len_sectors),
        };
        let _ = writeln!(text, "  {}{place}: {end}", c.op.name());
    }
    for Loss { zone, written, durable, kept } in losses {
        let _ =
            writeln!(text, "zone {zone} kept {kept} of {written} sectors; {durable} were flushed");
    }
    let _ = writeln!(text, "promises made before it: {promised}");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_is_what_its_text_says() {
        for text in ["3.41.0", "3.41.1.z2=8.z5=0", "1.0.7/12.3", "1.0.1.z0=8/2.0"] {
            assert_eq!(Case::parse(text).map(|c| c.to_string()).as_deref(), Some(text));
        }
        for text in ["", "3", "3.41", "a.1.2", "3.41.0.x", "3.41.0/", "3.41.0.z1"] {
            assert_eq!(Case::parse(text), None, "{text}");
        }
    }
}
