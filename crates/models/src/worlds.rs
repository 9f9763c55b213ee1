//! Worlds by seed: a disk of random shape with faults below it and clients above it, each in virtual time, until one
//! breaks a promise of the layer.

use crate::status_key::status_key;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use zoneplug_sim::{Class, Failure, Outcome, Steps, Tally, run};

/// Plain data of many worlds.
#[derive(Debug, Clone, Serialize)]
pub struct Summary {
    /// The end was asked for before the last seed.
    pub partial: bool,
    /// One seed is one world.
    pub worlds: u64,
    /// Seconds of real time.
    pub elapsed_s: f64,
    /// Worlds in a minute of real time.
    pub worlds_per_minute: u64,
    /// BIOs of all worlds.
    pub bios: u64,
    /// BIOs in a second of real time.
    pub bios_per_s: u64,
    /// Mean number of BIOs.
    pub bios_per_world: u64,
    /// Mean number of faults and other disturbances, to one digit.
    pub faults_per_world: f64,
    /// Of the worlds: those in which a BIO waited in a plug.
    pub parked_percent: u64,
    /// Those in which writes were merged.
    pub merged_percent: u64,
    /// Those in which a BIO was split.
    pub split_percent: u64,
    /// Those in which a write failed.
    pub failed_percent: u64,
    /// Those in which a zone recovered from a failed write.
    pub recovered_percent: u64,
    /// Worlds that exercised each class.
    pub classes: BTreeMap<String, u64>,
    /// The first seed whose world broke a promise.
    pub failed_seed: Option<u64>,
}

/// What came of worlds.
#[derive(Debug, Clone)]
pub struct Worlds {
    /// The sum of those that broke no promise.
    pub tally: Tally,
    /// Those that broke one, in the order of the seeds.
    pub broken: Vec<Failure>,
    /// Real time.
    pub elapsed: Duration,
}

impl Worlds {
    /// Runs the worlds of `seeds`, until a promise is broken if it is to `stop_at_first`, and as long as `goes_on`, which
    /// is asked before each world.
    ///
    /// ```
    /// use zoneplug_models::Worlds;
    /// let worlds = Worlds::run(1..=20, true, |_| true);
    /// assert!(worlds.broken.is_empty());
    /// assert_eq!(worlds.summary(false).worlds, 20);
    /// ```
    pub fn run(
        seeds: impl IntoIterator<Item = u64>,
        stop_at_first: bool,
        goes_on: impl FnMut(&Tally) -> bool,
    ) -> Worlds {
        Self::run_with(seeds, stop_at_first, goes_on, |seed| run(seed, &Steps::All, false))
    }

    fn run_with(
        seeds: impl IntoIterator<Item = u64>,
        stop_at_first: bool,
        mut goes_on: impl FnMut(&Tally) -> bool,
        mut world: impl FnMut(u64) -> Result<Outcome, Failure>,
    ) -> Worlds {
        let start = Instant::now();
        let (mut tally, mut broken) = (Tally::default(), Vec::new());
        for seed in seeds {
            if !goes_on(&tally) {
                break;
            }
            match world(seed) {
                Ok(outcome) => tally.add(&outcome),
                Err(failure) => {
                    broken.push(failure);
                    if stop_at_first {
                        break;
                    }
                }
            }
        }
        Worlds { tally, broken, elapsed: start.elapsed() }
    }

    /// As plain data. `partial`: the end was asked for before the last seed.
    pub fn summary(&self, partial: bool) -> Summary {
        let t = &self.tally;
        let seconds = self.elapsed.as_secs_f64().max(1e-9);
        let worlds = t.worlds.max(1);
        let share = |n: u64| n * 100 / worlds;
        Summary {
            partial,
            worlds: t.worlds,
            elapsed_s: seconds,
            worlds_per_minute: (t.worlds as f64 * 60.0 / seconds) as u64,
            bios: t.bios,
            bios_per_s: (t.bios as f64 / seconds) as u64,
            bios_per_world: t.bios / worlds,
            faults_per_world: (t.faults * 10 / worlds) as f64 / 10.0,
            parked_percent: share(t.parked),
            merged_percent: share(t.merged),
            split_percent: share(t.split),
            failed_percent: share(t.failed),
            recovered_percent: share(t.recovered),
            classes: Class::ALL.iter().map(|&c| (status_key(c.name()), t.coverage.of(c))).collect(),
            failed_seed: self.broken.first().map(|f| f.seed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A simulation whose worlds of seeds 3 and 5 break a promise.
    fn worlds(stop_at_first: bool, most: u64) -> Worlds {
        let world = |seed| match seed {
            3 | 5 => Err(Failure { seed, what: format!("no {seed}"), trace: Vec::new() }),
            _ => Ok(Outcome { bios: 10, ..Outcome::default() }),
        };
        Worlds::run_with(1..=9, stop_at_first, |t| t.worlds < most, world)
    }

    #[test]
    fn a_broken_promise_ends_the_worlds_or_is_noted_beside_the_others() {
        let seeds = |w: &Worlds| w.broken.iter().map(|f| f.seed).collect::<Vec<_>>();
        let first = worlds(true, 100);
        assert_eq!((seeds(&first), first.tally.worlds), (vec![3], 2));
        let all = worlds(false, 100);
        assert_eq!((seeds(&all), all.tally.worlds, all.tally.bios), (vec![3, 5], 7, 70));
        assert_eq!(all.summary(false).failed_seed, Some(3));
        let some = worlds(false, 1);
        assert_eq!((seeds(&some), some.tally.worlds), (vec![], 1));
    }
}
