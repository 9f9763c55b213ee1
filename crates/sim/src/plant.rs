//! Planted bugs: in how many worlds each is caught, and how early.

use crate::run::{Steps, run};
use zoneplug_core::planted::{Bug, plant};

/// The result of one planted bug.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caught {
    /// Its name.
    pub name: String,
    /// Worlds that ran with the bug, and those that caught it.
    pub seeds: u64,
    /// See `seeds`.
    pub caught: u64,
    /// The first seed that caught it, and the message of the oracle.
    pub first: Option<(u64, String)>,
}

/// The names of all bugs.
pub fn bugs() -> Vec<String> {
    Bug::ALL.iter().map(|b| b.name()).collect()
}

/// Plants the bug of that name and runs the worlds of `seeds`. `None`: there is no such bug, or this build
/// has no planted bugs.
pub fn hunt(name: &str, seeds: std::ops::RangeInclusive<u64>) -> Option<Caught> {
    let bug = Bug::from_name(name)?;
    if !plant(Some(bug)) {
        return None;
    }
    let mut c = Caught { name: bug.name(), seeds: 0, caught: 0, first: None };
    for seed in seeds {
        c.seeds += 1;
        if let Err(f) = run(seed, &Steps::All, false) {
            c.caught += 1;
            c.first.get_or_insert((seed, f.what));
        }
    }
    plant(None);
    Some(c)
}
