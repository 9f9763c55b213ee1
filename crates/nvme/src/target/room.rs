//! Limits the number of controllers, and keeps places for hosts that are known or have a key (J11).

use super::Target;
use super::controller::{Controller, Keeps, Kind};

/// Most controllers of one subsystem, and of discovery. A controller serves one host.
pub(super) const MAX_CONTROLLERS: usize = 256;
/// Most controllers of hosts that have no key and are not known.
const MAX_UNKNOWN: usize = MAX_CONTROLLERS / 2;
/// Most controllers of hosts without a key, known or not, in a subsystem where other hosts have keys.
const MAX_KEYLESS: usize = MAX_CONTROLLERS / 4 * 3;
/// The largest number of a controller (Base Specification, *Controller ID*).
pub(super) const LAST_CONTROLLER: u16 = 0xffef;

impl Target {
    /// Returns an id for a new controller: the next free one, so that an id is not reused soon. If all places are taken,
    /// this ends a controller to make room: the one whose host has been silent for the longest, among those that may give
    /// way. Discovery controllers may, because their hosts can connect again at any time; so may controllers whose hosts
    /// have yet to authenticate, because these may be strangers (J11).
    ///
    /// Returns `None` if no controller may give way, or if the hosts whose claim to a place is no stronger than `kept` have filled
    /// their share.
    pub(super) fn make_place(&mut self, kind: &Kind, kept: Keeps) -> Option<u16> {
        let all = || self.controllers.values().filter(|c| c.kind == *kind);
        let has_keys = match kind {
            Kind::Io(nqn) => {
                self.registry.find(nqn).is_some_and(|s| !s.config.keys.hosts.is_empty())
            }
            Kind::Discovery => false,
        };
        let keyless = if has_keys { MAX_KEYLESS } else { MAX_CONTROLLERS };
        let most = [(Keeps::Nothing, MAX_UNKNOWN), (Keeps::Known, keyless)];
        let full =
            |(keeps, most)| kept <= keeps && all().filter(|c| c.kept <= keeps).count() >= most;
        if *kind != Kind::Discovery && most.into_iter().any(full) {
            return None;
        }
        if all().count() >= MAX_CONTROLLERS {
            let gives_way = |c: &&Controller| c.unauthenticated || *kind == Kind::Discovery;
            let silent = all().filter(gives_way).min_by_key(|c| c.heard_at)?;
            self.end(silent.id);
        }
        let (after, before) = (self.last.saturating_add(1)..=LAST_CONTROLLER, 1..=self.last);
        after.chain(before).find(|id| !self.controllers.contains_key(id))
    }
}
