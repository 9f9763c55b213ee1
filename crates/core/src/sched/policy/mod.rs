//! Policies: which zone the single writer writes next, and how long it waits for more from the zone of its turn. A
//! policy is two plain functions of a [`View`], without state, clock or lock. A new policy is a file here and a line
//! in the table below, or an [`OwnPolicy`] of the program.

mod view;

pub use view::{Candidate, Turn, View};
#[cfg(test)]
pub(crate) use view::{candidates, view};

use std::fmt;
use std::hash::{Hash, Hasher};

/// Returns the index in `listed` of the next zone.
pub type Pick = fn(&View<'_>) -> usize;

/// Returns whether to wait for more from the zone of the turn, which has nothing to write just now, while other zones
/// wait. Called only if waiting is allowed at all (`anticipation_us`) and no listed zone is past its deadline.
pub type Stay = fn(&View<'_>) -> bool;

/// A policy of the program's own, for experiments. It has no name that an attribute takes.
///
/// ```
/// use zoneplug_core::sched::Policy;
/// use zoneplug_core::sched::policy::OwnPolicy;
/// static LAST: OwnPolicy = OwnPolicy {
///     name: "last",
///     pick: |view| view.listed.len() - 1,
///     stay: |_| true,
///     wants_bytes: false,
/// };
/// assert_eq!(Policy::Own(&LAST).to_string(), "last");
/// assert_eq!(Policy::from_name("last"), None);
/// ```
#[derive(Debug)]
pub struct OwnPolicy {
    /// The name that is shown with a disk's state.
    pub name: &'static str,
    /// Chooses the next zone. For a wrong index the writer takes the zone that was listed last.
    pub pick: Pick,
    /// Decides whether to wait for more.
    pub stay: Stay,
    /// Whether the policy looks at [`Candidate::bytes`] and [`Candidate::sector`].
    pub wants_bytes: bool,
}

/// Two own policies are equal if they are one record: functions have no identity.
impl PartialEq for OwnPolicy {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for OwnPolicy {}

impl Hash for OwnPolicy {
    fn hash<H: Hasher>(&self, state: &mut H) {
        std::ptr::hash(self, state);
    }
}

/// Defines [`Policy`]. Each line has the variant, the file, the function that decides on waits, whether the policy
/// looks at bytes, and whether it is designed around waits.
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
            /// A policy of the program's own.
            Own(&'static OwnPolicy),
        }

        impl Policy {
            /// All policies that have a name.
            pub const ALL: [Policy; [$(Policy::$variant),*].len()] = [$(Policy::$variant),*];
            /// Their names.
            pub const NAMES: [&str; Policy::ALL.len()] = [$(stringify!($file)),*];

            /// The name, which is that of the policy's file.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Policy::$variant => stringify!($file),)*
                    Policy::Own(own) => own.name,
                }
            }

            /// The function that chooses the next zone.
            pub const fn pick(self) -> Pick {
                match self {
                    $(Policy::$variant => $file::pick,)*
                    Policy::Own(own) => own.pick,
                }
            }

            /// The function that decides whether to wait for more.
            pub const fn stay(self) -> Stay {
                match self {
                    $(Policy::$variant => $stay,)*
                    Policy::Own(own) => own.stay,
                }
            }

            /// Returns whether the policy is designed around waits (`anticipation_us`). Without waits it only chooses
            /// the order of zones.
            pub const fn is_about_waiting(self) -> bool {
                match self {
                    $(Policy::$variant => $waits,)*
                    Policy::Own(_) => false,
                }
            }

            /// A note on a policy that is designed around waits, for a disk on which no wait is allowed. `None` for other
            /// policies.
            pub fn never_waits(self) -> Option<String> {
                let left = match self {
                    Policy::Brief => "it is fifo",
                    _ => "its order is left",
                };
                let text = format!("{self} without +300us (anticipation_us) never waits: {left}");
                self.is_about_waiting().then_some(text)
            }

            /// Returns whether the policy looks at the waiting bytes of each zone, and their place. The writer then
            /// asks each plug first.
            pub const fn wants_bytes(self) -> bool {
                match self {
                    $(Policy::$variant => $bytes,)*
                    Policy::Own(own) => own.wants_bytes,
                }
            }
        }
    };
}

policies! {
    /// In the order in which zones got their first waiting write, as published (Q3).
    #[default]
    Fifo: fifo, always, bytes: false, waits: false;
    /// The next zone upward, and after the last one the first: each zone once in a sweep.
    Clook: clook, always, bytes: false, waits: false;
    /// The zone with the most bytes for the time that it takes to get there and write them.
    Score: score, always, bytes: true, waits: false;
    /// First in, first out; waits for more only at the beginning of a turn.
    Brief: brief, brief::stay, bytes: false, waits: true;
    /// Waits for more as long as that gains more than it costs the other zones.
    Steady: steady, steady::stay, bytes: true, waits: true;
}

/// Waits whenever the zone has nothing to write.
fn always(_: &View<'_>) -> bool {
    true
}

impl Policy {
    /// The policy with this name.
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

    /// A policy is one small file, and one line in another file names it.
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

    /// Every policy returns an index into the list, and a wrong index does not panic.
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
