//! Which zone the single writer goes to next, and how long it waits for more from the one that it is at. A policy is two
//! plain functions over a [`View`]: no state, no clock, no lock. A new one is a file here and a line in the table below.

mod view;

pub use view::{Candidate, Turn, View};
#[cfg(test)]
pub(crate) use view::{candidates, view};

use std::fmt;

/// The index in `listed` of the zone that is next.
pub type Pick = fn(&View<'_>) -> usize;

/// Whether to wait for more from the zone of the turn, which has nothing to write just now, while those listed wait. Asked
/// only if waiting is allowed at all (`anticipation_us`), and no listed zone is past the deadline.
pub type Stay = fn(&View<'_>) -> bool;

/// Defines [`Policy`]: a line for each, with its variant, its file, its name, when it waits,
/// whether it looks at bytes, and whether it is designed around waits.
macro_rules! policies {
    ($($(#[$doc:meta])* $variant:ident: $file:ident, $stay:path, bytes: $bytes:literal, waits: $waits:literal;)*) => {
        $(mod $file;)*

        /// A policy by name.
        ///
        /// ```
        /// use zoneplug_core::sched::Policy;
        /// assert_eq!(Policy::from_name("clook"), Some(Policy::Clook));
        /// assert_eq!(Policy::default().name(), "fifo");
        /// ```
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
        pub enum Policy {
            $($(#[$doc])* $variant,)*
        }

        impl Policy {
            /// Every policy.
            pub const ALL: [Policy; [$(Policy::$variant),*].len()] = [$(Policy::$variant),*];
            /// The name of each.
            pub const NAMES: [&str; Policy::ALL.len()] = [$(stringify!($file)),*];

            /// Its name: that of its file.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Policy::$variant => stringify!($file),)*
                }
            }

            /// Which zone is next.
            pub const fn pick(self) -> Pick {
                match self {
                    $(Policy::$variant => $file::pick,)*
                }
            }

            /// How long a zone keeps its turn.
            pub const fn stay(self) -> Stay {
                match self {
                    $(Policy::$variant => $stay,)*
                }
            }

            /// Whether it is about when to wait (`anticipation_us`): without a wait only its order of zones is left.
            pub const fn is_about_waiting(self) -> bool {
                match self {
                    $(Policy::$variant => $waits,)*
                }
            }

            /// Whether it looks at what waits in each zone, and where: that is asked of each plug first.
            pub const fn wants_bytes(self) -> bool {
                match self {
                    $(Policy::$variant => $bytes,)*
                }
            }
        }
    };
}

policies! {
    /// In the order in which zones got their first waiting write: as published (Q3).
    #[default]
    Fifo: fifo, always, bytes: false, waits: false;
    /// The next zone upward, and from the last one back to the first: one visit of each zone a sweep.
    Clook: clook, always, bytes: false, waits: false;
    /// The most bytes for the time that it takes to get there and write them.
    Score: score, always, bytes: true, waits: false;
    /// First in, first out; waits for more only at the beginning of a turn.
    Brief: brief, brief::stay, bytes: false, waits: true;
    /// Waits for more as long as that is worth what it costs the others.
    Steady: steady, steady::stay, bytes: true, waits: true;
}

/// Waits whenever the zone has nothing to write.
fn always(_: &View<'_>) -> bool {
    true
}

impl Policy {
    /// The policy of that name.
    pub fn from_name(name: &str) -> Option<Policy> {
        Policy::ALL.into_iter().find(|p| p.name() == name)
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A policy is one small file, named in one line of one other.
    #[test]
    fn every_policy_is_one_file_of_less_than_150_lines() {
        let sources = [
            ("fifo", include_str!("fifo.rs")),
            ("clook", include_str!("clook.rs")),
            ("score", include_str!("score.rs")),
            ("brief", include_str!("brief.rs")),
            ("steady", include_str!("steady.rs")),
        ];
        assert_eq!(sources.map(|s| s.0), Policy::NAMES, "a policy without a file of its name");
        for (name, text) in sources {
            assert!(text.lines().count() < 150, "{name} has {} lines", text.lines().count());
        }
    }

    /// Whatever a policy answers is one of those listed, and a wrong answer is no panic.
    #[test]
    fn every_policy_picks_one_of_those_that_are_listed() {
        for policy in Policy::ALL {
            for n in 1..40u32 {
                let of: Vec<(u32, u64)> =
                    (0..n).map(|i| (i * 7 % 41, u64::from(i % 5) << 10)).collect();
                let listed = candidates(&of);
                for last in [None, Some(0), Some(20), Some(1023)] {
                    let v = view(&listed, last);
                    assert!(policy.pick()(&v) < listed.len(), "{policy} of {n}");
                    let _ = policy.stay()(&v);
                }
            }
        }
    }
}
