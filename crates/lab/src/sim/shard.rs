//! Parts of a run, for several machines: `--shard I/N`. A part has consecutive seeds, because worlds with odd seeds
//! and those with even seeds take different times.

use crate::failure::Failure;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;
use zoneplug_core::Error;

/// Part `number` of `of`, counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Shard {
    pub(crate) number: u64,
    pub(crate) of: u64,
}

impl FromStr for Shard {
    type Err = Error;

    fn from_str(text: &str) -> Result<Shard, Error> {
        let parsed = text.split_once('/').and_then(|(number, of)| {
            Some(Shard { number: number.parse().ok()?, of: of.parse().ok()? })
        });
        parsed.filter(|s| (1..=s.of).contains(&s.number)).ok_or_else(|| {
            Error::invalid(format!("'{text}' is not a shard"))
                .hint("I/N, as in 3/100, with I from 1 to N")
        })
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "shard {} of {}", self.number, self.of)
    }
}

/// The number of seeds.
pub(crate) fn count(seeds: &RangeInclusive<u64>) -> u128 {
    u128::from(*seeds.end() - *seeds.start()) + 1
}

impl Shard {
    /// The consecutive seeds of this shard. The numbers of seeds of two shards differ by one at most.
    pub(crate) fn seeds(self, all: &RangeInclusive<u64>) -> Result<RangeInclusive<u64>, Failure> {
        let (seeds, of) = (count(all), u128::from(self.of));
        if seeds < of {
            return Err(Failure::usage(format!("{of} shards of {seeds} seeds"))
                .hint(format!("more seeds, or at most {seeds} shards")));
        }
        // The first `more` shards have one seed more than the others.
        let (each, more) = (seeds / of, seeds % of);
        let before = |number: u128| each * number + more.min(number);
        let number = u128::from(self.number);
        // The sum is one of the seeds, so it fits.
        let at = |n: u128| (u128::from(*all.start()) + n) as u64;
        Ok(at(before(number - 1))..=at(before(number) - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shards_are_all_seeds_once() {
        let ends =
            [(1, 1, 1), (1, 10, 3), (5, 11, 7), (0, u64::MAX, 3), (u64::MAX - 9, u64::MAX, 4)];
        for (first, last, of) in ends {
            let all = first..=last;
            let parts: Vec<_> =
                (1..=of).map(|number| Shard { number, of }.seeds(&all).unwrap()).collect();
            assert_eq!((*parts[0].start(), *parts[parts.len() - 1].end()), (first, last));
            assert!(parts.windows(2).all(|p| p[0].end() + 1 == *p[1].start()));
            let counts: Vec<u128> = parts.iter().map(count).collect();
            assert!(counts.iter().max().unwrap() - counts.iter().min().unwrap() <= 1);
        }
        let all = Shard { number: u64::MAX, of: u64::MAX }.seeds(&(0..=u64::MAX)).unwrap();
        assert_eq!(all, u64::MAX..=u64::MAX);
        assert!(Shard { number: 1, of: 4 }.seeds(&(1..=3)).is_err());
    }

    #[test]
    fn a_shard_is_written_as_one_of_many() {
        assert_eq!("3/100".parse::<Shard>().unwrap(), Shard { number: 3, of: 100 });
        for text in ["", "3", "0/4", "5/4", "1/0", "-1/4", "1/4/2", "a/b", "1/99999999999999999999"]
        {
            assert!(text.parse::<Shard>().is_err(), "{text}");
        }
    }
}
