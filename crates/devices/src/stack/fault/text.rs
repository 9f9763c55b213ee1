//! Faults as text: one form for the command line, benchmarks and tests.
//!
//! `write/io/zone=3/count=2+read/delay=5ms/p=0.01` is two rules. A rule has an operation, an action, and filters for
//! commands. `+` separates rules and `/` their parts, because specifications use the comma and fio uses the colon.

use crate::spec::SpecError;
use std::fmt;
use std::str::FromStr;
use zoneplug_core::Error;
use zoneplug_core::bio::{Op, Status};
use zoneplug_core::form::{Time, parse_size, parse_time};
use zoneplug_core::unit::{Nanos, SECTOR_SIZE};

/// A set of operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpSet(pub u16);

impl OpSet {
    /// All operations.
    pub const ANY: OpSet = OpSet(0xfff);
    /// The operations that write data to the medium.
    pub const WRITES: OpSet = OpSet::of(&[Op::Write, Op::WriteZeroes, Op::ZoneAppend]);

    /// The set of these operations.
    pub const fn of(ops: &[Op]) -> OpSet {
        let (mut bits, mut i) = (0, 0);
        while i < ops.len() {
            bits |= 1 << ops[i] as u16;
            i += 1;
        }
        OpSet(bits)
    }

    /// Returns whether `op` is in the set.
    pub const fn has(self, op: Op) -> bool {
        self.0 >> op as u16 & 1 != 0
    }
}

const KINDS: [(&str, OpSet); 15] = [
    ("any", OpSet::ANY),
    ("writes", OpSet::WRITES),
    (
        "manage",
        OpSet::of(&[Op::ZoneOpen, Op::ZoneClose, Op::ZoneFinish, Op::ZoneReset, Op::ZoneResetAll]),
    ),
    ("read", OpSet::of(&[Op::Read])),
    ("write", OpSet::of(&[Op::Write])),
    ("flush", OpSet::of(&[Op::Flush])),
    ("discard", OpSet::of(&[Op::Discard])),
    ("zeroes", OpSet::of(&[Op::WriteZeroes])),
    ("open", OpSet::of(&[Op::ZoneOpen])),
    ("close", OpSet::of(&[Op::ZoneClose])),
    ("finish", OpSet::of(&[Op::ZoneFinish])),
    ("append", OpSet::of(&[Op::ZoneAppend])),
    ("reset", OpSet::of(&[Op::ZoneReset])),
    ("reset-all", OpSet::of(&[Op::ZoneResetAll])),
    ("report", OpSet::of(&[Op::ReportZones])),
];

/// The statuses that a rule may name: answers of devices.
const STATUSES: [(&str, Status); 13] = [
    ("busy", Status::Busy),
    ("io", Status::Io),
    ("medium", Status::Medium),
    ("short", Status::ShortTransfer),
    ("nospace", Status::NoSpace),
    ("timeout", Status::Timeout),
    ("nodevice", Status::NoDevice),
    ("open-limit", Status::OpenLimit),
    ("active-limit", Status::ActiveLimit),
    ("boundary", Status::Boundary),
    ("invalid", Status::InvalidField),
    ("transition", Status::InvalidTransition),
    ("unaligned", Status::UnalignedWrite),
];

/// The effect of a rule on a command that it hits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultAction {
    /// The command fails with this status, and the device never sees it.
    Fail(Status),
    /// The device takes this many of the command's sectors (`None`: a random number), and then the command fails with
    /// this status: a torn write, or a short transfer. A command without data just fails.
    Torn(Status, Option<u32>),
    /// The command is carried out, and its completion is delayed by this time. Delays of commands in flight run at
    /// the same time.
    Delay(Nanos),
    /// The command is carried out, and its completion never comes.
    Lost,
    /// The command's zone becomes read-only.
    ReadOnly,
    /// The command's zone goes offline.
    Offline,
    /// The device vanishes: this command and all others end with *no device*, for ever.
    Gone,
    /// The power fails and returns: commands in flight end with *no device*, and data that no flush covers may be
    /// lost.
    Cut,
}

/// The sectors that a rule is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FaultSectors {
    /// The first sector.
    pub from: u64,
    /// The sector past the last. `u64::MAX`: the rest of the disk.
    pub to: u64,
}

impl FaultSectors {
    const ALL: FaultSectors = FaultSectors { from: 0, to: u64::MAX };
}

/// A rule: an action, and the commands that it hits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FaultRule {
    /// The operations that the rule is for.
    pub kinds: OpSet,
    /// The effect on them.
    pub action: FaultAction,
    /// Only commands that touch this zone. `None`: any zone.
    pub zone: Option<u32>,
    /// Only commands that touch these sectors. `None`: any.
    pub sectors: Option<FaultSectors>,
    /// Matching commands that go unharmed first.
    pub skip: u64,
    /// The number of commands that are hit; `None`: all that match.
    pub count: Option<u64>,
    /// The probability that a matching command is hit, in millionths.
    pub ppm: u32,
}

/// The probability of a rule without chance, in millionths.
const CERTAIN: u32 = 1_000_000;

impl FaultRule {
    /// Makes a rule for the next command of `kinds` only.
    pub const fn next(kinds: OpSet, action: FaultAction) -> FaultRule {
        FaultRule {
            kinds,
            action,
            zone: None,
            sectors: None,
            skip: 0,
            count: Some(1),
            ppm: CERTAIN,
        }
    }
}

/// Rules, and the seed of all chance.
///
/// ```
/// use zoneplug_devices::stack::FaultPlan;
/// let plan: FaultPlan = "write/io/zone=3/count=2+read/delay=5ms/p=0.01+seed=7".parse().unwrap();
/// assert_eq!((plan.rules.len(), plan.seed), (2, 7));
/// assert_eq!(plan.to_string().parse::<FaultPlan>().unwrap(), plan);
/// let e = "write/oi".parse::<FaultPlan>().unwrap_err();
/// assert!(e.to_string().contains("'oi'"));
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FaultPlan {
    /// The rules, in the order in which they are tried. The first one that hits decides.
    pub rules: Vec<FaultRule>,
    /// The seed of all random numbers.
    pub seed: u64,
}

const FORM: &str =
    "a fault is OPERATION/WHAT/WHICH, such as write/io/zone=3/count=2; see zoneplug help spec";

/// The actions of a rule besides failing a command with a status: the form, and the effect.
const ACTIONS: [(&str, &str); 10] = [
    ("torn", "Some of its sectors are written, then it fails with io."),
    ("torn=SIZE", "So much of it is written, then it fails with io."),
    ("partial", "Some of its sectors are written, then it fails with short."),
    ("short=SIZE", "So much of it is written, then it fails with short."),
    ("delay=TIME", "It is carried out and completes so much later."),
    ("lost", "It is carried out and never completes."),
    ("readonly", "Its zone becomes read-only."),
    ("offline", "Its zone goes offline."),
    ("gone", "The device goes away for ever."),
    ("cut", "The power goes and comes back; what no flush covers may be lost."),
];

/// The filters of a rule: the form, and the meaning.
const FILTERS: [(&str, &str); 6] = [
    ("zone=N", "Only commands that touch this zone."),
    ("from=BYTES", "Only commands that touch the disk from here on."),
    ("to=BYTES", "Only commands that touch the disk before this."),
    ("skip=N", "So many that match are not hit first."),
    ("count=N", "So many are hit; count=all: all. Without it one, and all with p=."),
    ("p=CHANCE", "Each that matches is hit with this probability, 0.000001 to 1."),
];

impl FaultPlan {
    /// Returns the operations that a rule may name.
    ///
    /// ```
    /// use zoneplug_devices::stack::FaultPlan;
    /// assert!(FaultPlan::operations().any(|o| o == "append"));
    /// ```
    pub fn operations() -> impl Iterator<Item = &'static str> {
        KINDS.iter().map(|k| k.0)
    }

    /// Returns the statuses with which a rule may fail a command, and the meaning of each.
    pub fn statuses() -> impl Iterator<Item = (&'static str, Status)> {
        STATUSES.into_iter()
    }

    /// Returns the other actions on a command: the form, and a sentence.
    pub fn actions() -> impl Iterator<Item = (&'static str, &'static str)> {
        ACTIONS.into_iter()
    }

    /// Returns the filters that limit a rule to some commands: the form, and a sentence.
    pub fn filters() -> impl Iterator<Item = (&'static str, &'static str)> {
        FILTERS.into_iter()
    }
}

fn names<T>(table: &[(&'static str, T)]) -> String {
    table.iter().map(|t| t.0).collect::<Vec<_>>().join(", ")
}

fn find<T: Copy>(table: &[(&'static str, T)], name: &str) -> Option<T> {
    table.iter().find(|t| t.0 == name).map(|t| t.1)
}

fn whole(key: &str, text: &str) -> Result<u64, Error> {
    let n = text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok()).flatten();
    n.ok_or_else(|| SpecError::value(key, text, "a whole number").into())
}

fn sectors(key: &str, text: &str) -> Result<u64, Error> {
    let unit = u64::from(SECTOR_SIZE);
    parse_size(text).filter(|n| n % unit == 0).map(|n| n / unit).ok_or_else(|| {
        SpecError::value(key, text, format!("a multiple of {unit} bytes, such as 4K or 1M")).into()
    })
}

/// Reads a probability, in millionths.
fn probability(text: &str) -> Result<u32, Error> {
    let bad = || {
        SpecError::value(
            "p",
            text,
            "a probability from 0.000001 to 1 with up to six places, such as 0.01",
        )
        .into()
    };
    let (whole, places) = text.split_once('.').unwrap_or((text, ""));
    let digits = |t: &str| t.bytes().all(|b| b.is_ascii_digit());
    if !matches!(whole, "0" | "1") || !digits(places) || places.len() > 6 {
        return Err(bad());
    }
    let ppm = format!("{whole}{places:0<6}").parse::<u32>().map_err(|_| bad())?;
    if ppm == 0 || ppm > CERTAIN { Err(bad()) } else { Ok(ppm) }
}

fn time(key: &str, text: &str) -> Result<Nanos, Error> {
    parse_time(text)
        .map(Nanos)
        .ok_or_else(|| SpecError::value(key, text, "a time, such as 80us, 5ms or 2s").into())
}

fn action(text: &str) -> Result<FaultAction, Error> {
    if let Some(status) = find(&STATUSES, text) {
        return Ok(FaultAction::Fail(status));
    }
    if let Some((key, value)) = text.split_once('=') {
        match key {
            "torn" | "short" => {
                let n = sectors(key, value)?.min(u64::from(u32::MAX)) as u32;
                let status = if key == "torn" { Status::Io } else { Status::ShortTransfer };
                return Ok(FaultAction::Torn(status, Some(n)));
            }
            "delay" => return Ok(FaultAction::Delay(time(key, value)?)),
            _ => {}
        }
    }
    Ok(match text {
        "torn" => FaultAction::Torn(Status::Io, None),
        "partial" => FaultAction::Torn(Status::ShortTransfer, None),
        "lost" => FaultAction::Lost,
        "readonly" => FaultAction::ReadOnly,
        "offline" => FaultAction::Offline,
        "gone" => FaultAction::Gone,
        "cut" => FaultAction::Cut,
        _ => {
            return Err(SpecError::syntax(
                format!("'{text}' is nothing that can happen to a command"),
                format!(
                    "a status ({}), or torn[=SIZE], short=SIZE, partial, delay=TIME, lost, readonly, offline, \
                     gone, cut",
                    names(&STATUSES)
                ),
            )
            .into());
        }
    })
}

fn rule(text: &str) -> Result<FaultRule, Error> {
    let mut parts = text.split('/');
    let name = parts.next().unwrap_or_default();
    let Some(kinds) = find(&KINDS, name) else {
        let problem = format!("'{name}' in the fault '{text}' is no operation");
        let form = format!("{FORM}. Operations: {}", names(&KINDS));
        return Err(SpecError::syntax(problem, form).into());
    };
    let Some(what) = parts.next() else {
        let problem = format!("the fault '{text}' does not say what happens");
        return Err(SpecError::syntax(problem, FORM).into());
    };
    let mut rule = FaultRule::next(kinds, action(what)?);
    let (mut count, mut chance) = (None, None);
    for part in parts {
        let (key, value) = part.split_once('=').unwrap_or((part, ""));
        match key {
            "zone" => rule.zone = Some(whole(key, value)?.min(u64::from(u32::MAX)) as u32),
            "from" => {
                let range = rule.sectors.get_or_insert(FaultSectors::ALL);
                range.from = sectors(key, value)?;
            }
            "to" => rule.sectors.get_or_insert(FaultSectors::ALL).to = sectors(key, value)?,
            "skip" => rule.skip = whole(key, value)?,
            "count" if value == "all" => count = Some(None),
            "count" => count = Some(Some(whole(key, value)?)),
            "p" => chance = Some(probability(value)?),
            _ => {
                return Err(SpecError::syntax(
                    format!("'{part}' in the fault '{text}' selects nothing"),
                    "zone=N, from=BYTES, to=BYTES, skip=N, count=N|all, p=PROBABILITY",
                )
                .into());
            }
        }
    }
    // A rule with a probability may hit any number of commands, unless `count` limits them.
    rule.count = count.unwrap_or(if chance.is_some() { None } else { Some(1) });
    rule.ppm = chance.unwrap_or(CERTAIN);
    Ok(rule)
}

impl FromStr for FaultPlan {
    type Err = Error;

    fn from_str(text: &str) -> Result<FaultPlan, Error> {
        let mut plan = FaultPlan::default();
        for part in text.split('+') {
            if part.is_empty() {
                return Err(SpecError::syntax(format!("a fault of '{text}' is empty"), FORM).into());
            }
            match part.strip_prefix("seed=") {
                Some(n) => plan.seed = whole("seed", n)?,
                None => plan.rules.push(rule(part)?),
            }
        }
        Ok(plan)
    }
}

fn name_of<T: PartialEq>(table: &[(&'static str, T)], what: &T) -> &'static str {
    table.iter().find(|t| t.1 == *what).map_or("any", |t| t.0)
}

impl fmt::Display for FaultAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            FaultAction::Fail(status) => f.write_str(name_of(&STATUSES, &status)),
            FaultAction::Torn(Status::ShortTransfer, None) => f.write_str("partial"),
            FaultAction::Torn(Status::ShortTransfer, Some(n)) => {
                write!(f, "short={}", u64::from(n) * u64::from(SECTOR_SIZE))
            }
            FaultAction::Torn(_, None) => f.write_str("torn"),
            FaultAction::Torn(_, Some(n)) => {
                write!(f, "torn={}", u64::from(n) * u64::from(SECTOR_SIZE))
            }
            FaultAction::Delay(t) => write!(f, "delay={}", Time(t)),
            FaultAction::Lost => f.write_str("lost"),
            FaultAction::ReadOnly => f.write_str("readonly"),
            FaultAction::Offline => f.write_str("offline"),
            FaultAction::Gone => f.write_str("gone"),
            FaultAction::Cut => f.write_str("cut"),
        }
    }
}

impl fmt::Display for FaultRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", name_of(&KINDS, &self.kinds), self.action)?;
        if let Some(z) = self.zone {
            write!(f, "/zone={z}")?;
        }
        if let Some(FaultSectors { from, to }) = self.sectors {
            write!(f, "/from={}", from * u64::from(SECTOR_SIZE))?;
            if to != u64::MAX {
                write!(f, "/to={}", to * u64::from(SECTOR_SIZE))?;
            }
        }
        if self.skip > 0 {
            write!(f, "/skip={}", self.skip)?;
        }
        match self.count {
            None => f.write_str("/count=all")?,
            Some(1) if self.ppm == CERTAIN => {}
            Some(n) => write!(f, "/count={n}")?,
        }
        if self.ppm != CERTAIN {
            write!(f, "/p=0.{:06}", self.ppm)?;
        }
        Ok(())
    }
}

impl fmt::Display for FaultPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for rule in &self.rules {
            write!(f, "{rule}+")?;
        }
        write!(f, "seed={}", self.seed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The manual describes everything that the parser accepts.
    #[test]
    fn every_word_of_the_manual_is_read() {
        let value = |form: &str| {
            let values = [("SIZE", "4K"), ("TIME", "5ms"), ("BYTES", "1M"), ("N", "3")];
            let text = form.replace("CHANCE", "0.5");
            values.iter().fold(text, |t, (name, value)| t.replace(name, value))
        };
        let read = |text: String| {
            text.parse::<FaultPlan>().unwrap_or_else(|e| panic!("{text}: {e}")).rules.len()
        };
        for operation in FaultPlan::operations() {
            assert_eq!(read(format!("{operation}/io")), 1);
        }
        for (status, _) in FaultPlan::statuses() {
            assert_eq!(read(format!("write/{status}")), 1);
        }
        for (form, about) in FaultPlan::actions() {
            assert_eq!(read(format!("write/{}", value(form))), 1);
            assert!(about.ends_with('.'));
        }
        for (form, about) in FaultPlan::filters() {
            assert_eq!(read(format!("write/io/{}", value(form))), 1);
            assert!(about.ends_with('.'));
        }
        // The parser's errors name every action and filter, so a new one must be in the manual.
        let hint = |text: &str| {
            let e = text.parse::<FaultPlan>().unwrap_err();
            e.what_to_try().unwrap().to_owned()
        };
        let words = hint("write/x").split_once("), or ").unwrap().1.replace("[=SIZE]", "");
        for word in words.split(", ") {
            assert!(FaultPlan::actions().any(|(form, _)| form == word), "{word}");
        }
        for word in hint("write/io/x").split(", ") {
            let word = word.split('=').next().unwrap();
            assert!(FaultPlan::filters().any(|(form, _)| form.split('=').next() == Some(word)));
        }
    }

    #[test]
    fn what_is_no_fault_says_why() {
        for (text, what) in [
            ("", "is empty"),
            ("write/io+", "is empty"),
            ("wirte/io", "'wirte' in the fault 'wirte/io' is no operation"),
            ("write", "does not say what happens"),
            ("write/", "'' is nothing that can happen"),
            ("write/io/zone", "zone= is not possible"),
            ("write/io/zones=3", "'zones=3' in the fault"),
            ("write/io/p=1.5", "p=1.5"),
            ("write/io/p=0", "p=0 is not possible"),
            ("write/io/p=0.0000001", "p=0.0000001"),
            ("write/torn=100", "torn=100"),
            ("write/delay=5", "delay=5"),
            ("read/busy=-1", "'busy=-1'"),
            ("read/io/count=-1", "count=-1"),
            ("seed=x", "seed=x"),
        ] {
            let e = text.parse::<FaultPlan>().expect_err(text);
            assert!(e.to_string().contains(what), "{text}: {e}");
            assert!(e.what_to_try().is_some());
        }
    }

    #[test]
    fn every_kind_of_fault_has_a_text() {
        let text = "any/gone/skip=9+writes/torn+append/torn=4096+read/short=512+zeroes/partial+reset/io/zone=1+\
            manage/busy/count=3+flush/delay=5ms/p=0.01+write/lost/from=4K/to=8K/count=all+write/readonly+read/offline+any/cut";
        let plan: FaultPlan = text.parse().unwrap();
        assert_eq!(plan.rules.len(), 12);
        assert_eq!(plan.rules[7].ppm, 10_000);
        assert_eq!(plan.rules[7].count, None);
        assert_eq!(plan.rules[8].sectors, Some(FaultSectors { from: 8, to: 16 }));
        assert_eq!(plan.to_string().parse::<FaultPlan>().unwrap(), plan);
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_a_panic(text in "\\PC*", more in "(write|any)/(io|torn|busy)(/[a-z]{0,4}=?[0-9.]{0,4}){0,3}") {
            let _ = text.parse::<FaultPlan>();
            if let Ok(plan) = more.parse::<FaultPlan>() {
                prop_assert_eq!(plan.to_string().parse::<FaultPlan>().unwrap(), plan);
            }
        }
    }
}
