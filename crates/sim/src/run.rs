//! Runs worlds by seed.

use crate::class::{Class, Coverage};
use crate::network::NetworkWorld;
use crate::world::{World, trace};
use std::cell::RefCell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::str::FromStr;
use std::sync::Once;
use zoneplug_core::{Random, Status, lost_bios};

/// The steps of a world to run.
///
/// ```
/// use zoneplug_sim::Steps;
/// let steps: Steps = "3,5-7".parse().unwrap();
/// assert!(steps.has(6) && !steps.has(4));
/// assert_eq!(steps.to_string(), "3,5-7");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Steps {
    /// All steps.
    #[default]
    All,
    /// These, in ascending order.
    Only(Vec<u32>),
}

impl Steps {
    /// Returns whether step `n` is run.
    pub fn has(&self, n: u32) -> bool {
        match self {
            Steps::All => true,
            Steps::Only(list) => list.binary_search(&n).is_ok(),
        }
    }
}

impl fmt::Display for Steps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Steps::Only(list) = self else { return f.write_str("all") };
        let mut i = 0;
        while i < list.len() {
            let first = i;
            while i + 1 < list.len() && list[i + 1] == list[i] + 1 {
                i += 1;
            }
            let comma = if first > 0 { "," } else { "" };
            match list[first] == list[i] {
                true => write!(f, "{comma}{}", list[first])?,
                false => write!(f, "{comma}{}-{}", list[first], list[i])?,
            }
            i += 1;
        }
        Ok(())
    }
}

/// Limit for the numbers in a list of steps. No world has that many.
const MOST_STEPS: u64 = 1 << 16;

impl FromStr for Steps {
    type Err = String;

    fn from_str(text: &str) -> Result<Steps, String> {
        if text == "all" {
            return Ok(Steps::All);
        }
        let number = |t: &str| t.parse::<u32>().map_err(|_| format!("'{t}' is no step"));
        let mut list = Vec::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (number(first)?, number(last)?);
            if last < first {
                return Err(format!("'{part}' is no range of steps"));
            }
            if u64::from(last - first) + list.len() as u64 >= MOST_STEPS {
                return Err(format!("'{part}': more than {MOST_STEPS} steps"));
            }
            list.extend(first..=last);
        }
        list.sort_unstable();
        list.dedup();
        Ok(Steps::Only(list))
    }
}

/// The result of one world.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// BIOs that its clients submitted.
    pub bios: u64,
    /// Faults and other disturbances.
    pub faults: u64,
    /// Number of steps, run or not.
    pub steps: u32,
    /// Whether writes waited in plugs.
    pub parked: bool,
    /// Whether writes were merged.
    pub merged: bool,
    /// Whether BIOs were split.
    pub split: bool,
    /// Whether writes failed.
    pub failed: bool,
    /// Whether zones recovered from a failed write.
    pub recovered: bool,
    /// The number of times that each regression class was exercised.
    pub coverage: Coverage,
}

/// A world that broke a promise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Its seed.
    pub seed: u64,
    /// The broken promise, and the place of the oracle.
    pub what: String,
    /// The trace, if one was requested.
    pub trace: Vec<String>,
}

/// The sum of many worlds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    /// Number of worlds.
    pub worlds: u64,
    /// Number of BIOs.
    pub bios: u64,
    /// Number of faults and other disturbances.
    pub faults: u64,
    /// Worlds in which writes waited in plugs.
    pub parked: u64,
    /// Worlds in which writes were merged.
    pub merged: u64,
    /// Worlds in which BIOs were split.
    pub split: u64,
    /// Worlds in which writes failed.
    pub failed: u64,
    /// Worlds in which zones recovered from a failed write.
    pub recovered: u64,
    /// The number of times that each regression class was exercised.
    pub coverage: Coverage,
}

impl Tally {
    /// Adds the result of a world.
    pub fn add(&mut self, o: &Outcome) {
        self.worlds += 1;
        self.bios += o.bios;
        self.faults += o.faults;
        self.parked += u64::from(o.parked);
        self.merged += u64::from(o.merged);
        self.split += u64::from(o.split);
        self.failed += u64::from(o.failed);
        self.recovered += u64::from(o.recovered);
        self.coverage.add(&o.coverage);
    }
}

thread_local! {
    /// The message of the last panic of this thread while a world runs.
    static SAID: RefCell<Option<String>> = const { RefCell::new(None) };
    static QUIET: RefCell<bool> = const { RefCell::new(false) };
}

/// Keeps the messages of panics: while a world runs, a panic is the message of an oracle and is not printed.
fn listen() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !QUIET.with_borrow(|q| *q) {
                return before(info);
            }
            let said = info
                .payload()
                .downcast_ref::<String>()
                .map(String::as_str)
                .or_else(|| info.payload().downcast_ref::<&str>().copied())
                .unwrap_or("a panic");
            let place = info.location().map(|l| format!("{}:{}", l.file(), l.line()));
            let line = format!("{} ({})", said, place.unwrap_or_default());
            // The first panic is the cause.
            SAID.with_borrow_mut(|s| s.get_or_insert(line).len());
        }));
    });
}

/// The kind of a world, and its number among its kind.
#[derive(Debug, Clone, Copy)]
enum Kind {
    /// Its clients submit BIOs.
    Plain(u64),
    /// Its clients are hosts that reach the disk over NVMe/TCP.
    Network(u64),
}

impl Kind {
    /// Returns the kind of the world with this seed. Half of the worlds are of each kind.
    fn of(seed: u64) -> Kind {
        if seed.is_multiple_of(2) { Kind::Network(seed / 2) } else { Kind::Plain(seed / 2 + 1) }
    }
}

/// Runs the world of `seed`, or only some of its steps. Fails if the world broke a promise.
pub fn run(seed: u64, steps: &Steps, tracing: bool) -> Result<Outcome, Failure> {
    listen();
    let lost_before = lost_bios();
    let mut trace = Vec::new();
    QUIET.with_borrow_mut(|q| *q = true);
    let result = catch_unwind(AssertUnwindSafe(|| match Kind::of(seed) {
        Kind::Plain(number) => {
            let mut world = World::new(number, tracing);
            let result = catch_unwind(AssertUnwindSafe(|| world.live(steps)));
            trace = std::mem::take(&mut world.trace);
            if result.is_err() {
                // A disk with broken state may panic again when it is dropped.
                std::mem::forget(world);
            }
            result
        }
        Kind::Network(number) => {
            let mut world = NetworkWorld::new(number, tracing);
            let result = catch_unwind(AssertUnwindSafe(|| world.live(steps)));
            trace = std::mem::take(&mut world.trace);
            if result.is_err() {
                std::mem::forget(world);
            }
            result
        }
    }));
    QUIET.with_borrow_mut(|q| *q = false);
    let said = SAID.with_borrow_mut(Option::take);
    match result {
        Ok(Ok(outcome)) => {
            let lost = lost_bios() - lost_before;
            if lost == 0 {
                return Ok(outcome);
            }
            let what = format!("{lost} BIOs were dropped in flight");
            Err(Failure { seed, what, trace })
        }
        _ => Err(Failure { seed, what: said.unwrap_or_default(), trace }),
    }
}

impl World {
    /// Fewest and most steps of a world.
    pub(crate) const STEPS: (u32, u32) = (750, 2100);

    fn live(&mut self, steps: &Steps) -> Outcome {
        let nr = self.rng.range(Self::STEPS.0, Self::STEPS.1);
        let end = self.rng.one_in(24).then(|| nr.saturating_sub(self.rng.below(20)));
        for n in 0..nr {
            if !steps.has(n) {
                continue;
            }
            // Each step draws from its own sequence.
            self.rng =
                Random::new(self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(n) << 40);
            trace!(self, "step {n}");
            if end == Some(n) {
                self.vanish();
            } else if self.rng.one_in(3) {
                self.poll_round();
            } else {
                self.act();
            }
        }
        trace!(self, "the end");
        self.drain();
        self.check_at_rest();
        if self.has_faults {
            self.hit(Class::R44);
        }
        let (merged, ..) = self.seam.merged();
        let outcome = Outcome {
            bios: self.submitted,
            faults: self.troubles,
            steps: nr,
            parked: self.parked > 0,
            merged,
            split: self.split,
            failed: self.seen.iter().any(|s| *s >= Status::OpenLimit),
            recovered: self.recovered > 0,
            coverage: self.cover.clone(),
        };
        self.let_go();
        outcome
    }
}

impl NetworkWorld {
    fn live(&mut self, steps: &Steps) -> Outcome {
        let nr = self.draw_steps();
        (0..nr).filter(|&n| steps.has(n)).for_each(|n| self.step(n));
        trace!(self, "the end");
        self.come_to_rest();
        let [parked, merged, recovered] = self.what_happened();
        Outcome {
            bios: self.submitted,
            faults: self.troubles,
            steps: nr,
            parked,
            merged,
            split: false,
            failed: self.failed,
            recovered,
            coverage: self.cover.clone(),
        }
    }
}
