//! The room for controllers, and which hosts have places in it (J11).

use super::Target;
use super::controller::{Controller, Keeps, Kind};

/// Most controllers of a subsystem, and of discovery. A controller serves one host.
pub(super) const MAX_CONTROLLERS: usize = 256;
/// Most controllers of hosts for which no place is kept.
const MAX_OTHERS: usize = MAX_CONTROLLERS / 2;
/// Most controllers of hosts without keys, where others have keys.
const MAX_KNOWN: usize = MAX_CONTROLLERS / 4 * 3;
/// The largest number of a controller (Base Specification, *Controller ID*).
pub(super) const LAST_CONTROLLER: u16 = 0xffef;

impl Target {
    /// Returns a number for a new controller: the next free one, so that a number is not reused soon. If all places
    /// are taken, the longest silent controller ends of those that may give way: discovery controllers, whose hosts
    /// can ask again at any time, and controllers whose hosts have yet to authenticate and may be strangers (J11).
    ///
    /// Returns `None` if no controller may give way, or if the share of hosts like this one is used up.
    pub(super) fn free_number(&mut self, kind: &Kind, kept: Keeps) -> Option<u16> {
        let all = || self.controllers.values().filter(|c| c.kind == *kind);
        let has_keys = match kind {
            Kind::Io(nqn) => {
                self.registry.find(nqn).is_some_and(|s| !s.config.keys.hosts.is_empty())
            }
            Kind::Discovery => false,
        };
        let known = if has_keys { MAX_KNOWN } else { MAX_CONTROLLERS };
        let most = [(Keeps::Nothing, MAX_OTHERS), (Keeps::Known, known)];
        let full =
            |(keeps, most)| kept <= keeps && all().filter(|c| c.kept <= keeps).count() >= most;
        if *kind != Kind::Discovery && most.into_iter().any(full) {
            return None;
        }
        if all().count() >= MAX_CONTROLLERS {
            let gives_way = |c: &&Controller| c.locked || *kind == Kind::Discovery;
            let silent = all().filter(gives_way).min_by_key(|c| c.heard_at)?;
            self.end(silent.id);
        }
        let (behind, before) = (self.last.saturating_add(1)..=LAST_CONTROLLER, 1..=self.last);
        behind.chain(before).find(|id| !self.controllers.contains_key(id))
    }
}
