//! Worlds by seed: each is a disk of random shape with faults below it and clients above it, in
//! virtual time. A world fails if the engine breaks one of its promises.

use crate::class::Class;
use crate::run::{Failure, Outcome, Steps, Tally, run};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use zoneplug_core::status_key;

/// The results of many worlds as plain data. Rates, means and percentages are computed from the
/// counts and `elapsed_s`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Summary {
    /// Whether the run was asked to end before the last seed.
    pub partial: bool,
    /// The number of worlds, one for each seed.
    pub worlds: u64,
    /// Seconds of real time.
    pub elapsed_s: f64,
    /// Worlds in a minute of real time.
    pub worlds_per_minute: u64,
    /// BIOs over all worlds.
    pub bios: u64,
    /// BIOs in a second of real time.
    pub bios_per_s: u64,
    /// The mean number of BIOs.
    pub bios_per_world: u64,
    /// Faults and other disturbances over all worlds.
    pub faults: u64,
    /// The mean number of faults and other disturbances, to one digit.
    pub faults_per_world: f64,
    /// Worlds in which a BIO waited in a plug.
    pub parked_worlds: u64,
    /// Worlds in which writes were merged.
    pub merged_worlds: u64,
    /// Worlds in which a BIO was split.
    pub split_worlds: u64,
    /// Worlds in which a write failed.
    pub failed_worlds: u64,
    /// Worlds in which a zone recovered from a failed write.
    pub recovered_worlds: u64,
    /// `parked_worlds` in percent of all worlds.
    pub parked_percent: u64,
    /// `merged_worlds` in percent of all worlds.
    pub merged_percent: u64,
    /// `split_worlds` in percent of all worlds.
    pub split_percent: u64,
    /// `failed_worlds` in percent of all worlds.
    pub failed_percent: u64,
    /// `recovered_worlds` in percent of all worlds.
    pub recovered_percent: u64,
    /// The number of worlds that exercised each regression class, by the class's name.
    pub classes: BTreeMap<String, u64>,
    /// The first seed whose world broke a promise.
    pub failed_seed: Option<u64>,
}

/// The results of a run of worlds.
#[derive(Debug, Clone)]
pub struct Worlds {
    /// The sum of the worlds that broke no promise.
    pub tally: Tally,
    /// The worlds that broke one, in the order of the seeds.
    pub broken: Vec<Failure>,
    /// Real time.
    pub elapsed: Duration,
}

impl Worlds {
    /// Runs the worlds of `seeds` while `goes_on`, called before each world, returns true. With
    /// `stop_at_first`, also stops at the first broken promise.
    ///
    /// ```
    /// use zoneplug_sim::Worlds;
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

    /// Converts the results to plain data. `partial`: the run was asked to end before the last
    /// seed.
    pub fn summary(&self, partial: bool) -> Summary {
        let failed_seed = self.broken.first().map(|f| f.seed);
        Summary::new(&self.tally, self.elapsed.as_secs_f64(), partial, failed_seed)
    }
}

impl Summary {
    /// Computes the figures of the worlds in a tally, which ran for `seconds` of real time.
    pub fn new(t: &Tally, seconds: f64, partial: bool, failed_seed: Option<u64>) -> Summary {
        let seconds = seconds.max(1e-9);
        let worlds = t.worlds.max(1);
        let share = |n: u64| (u128::from(n) * 100 / u128::from(worlds)) as u64;
        Summary {
            partial,
            worlds: t.worlds,
            elapsed_s: seconds,
            worlds_per_minute: (t.worlds as f64 * 60.0 / seconds) as u64,
            bios: t.bios,
            bios_per_s: (t.bios as f64 / seconds) as u64,
            bios_per_world: t.bios / worlds,
            faults: t.faults,
            faults_per_world: (u128::from(t.faults) * 10 / u128::from(worlds)) as f64 / 10.0,
            parked_worlds: t.parked,
            merged_worlds: t.merged,
            split_worlds: t.split,
            failed_worlds: t.failed,
            recovered_worlds: t.recovered,
            parked_percent: share(t.parked),
            merged_percent: share(t.merged),
            split_percent: share(t.split),
            failed_percent: share(t.failed),
            recovered_percent: share(t.recovered),
            classes: Class::ALL.iter().map(|&c| (status_key(c.name()), t.coverage.of(c))).collect(),
            failed_seed,
        }
    }

    /// Adds the counts to a tally. `None` if the classes differ or a count overflows; the tally
    /// must then not be used.
    pub fn add_to(&self, t: &mut Tally) -> Option<()> {
        let add = |sum: &mut u64, n: u64| sum.checked_add(n).map(|s| *sum = s);
        add(&mut t.worlds, self.worlds)?;
        add(&mut t.bios, self.bios)?;
        add(&mut t.faults, self.faults)?;
        add(&mut t.parked, self.parked_worlds)?;
        add(&mut t.merged, self.merged_worlds)?;
        add(&mut t.split, self.split_worlds)?;
        add(&mut t.failed, self.failed_worlds)?;
        add(&mut t.recovered, self.recovered_worlds)?;
        for &class in Class::ALL {
            let n = self.classes.get(&status_key(class.name()))?;
            add(&mut t.coverage.0[class as usize], *n)?;
        }
        (self.classes.len() == Class::ALL.len()).then_some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A simulation in which the worlds of seeds 3 and 5 break a promise.
    fn worlds(stop_at_first: bool, most: u64) -> Worlds {
        let world = |seed| match seed {
            3 | 5 => Err(Failure { seed, what: format!("no {seed}"), trace: Vec::new() }),
            _ => Ok(Outcome { bios: 10, ..Outcome::default() }),
        };
        Worlds::run_with(1..=9, stop_at_first, |t| t.worlds < most, world)
    }

    #[test]
    fn a_run_ends_at_the_first_broken_promise_or_collects_them_all() {
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
