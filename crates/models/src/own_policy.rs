//! Policies of the caller with a state, for example functions of a script. The single writer calls plain functions, so
//! one plain function here passes each call on to the policy of the run on this thread.

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;
use zoneplug_core::sched::Policy;
use zoneplug_core::sched::policy::{OwnPolicy, View};

/// Chooses zones. Each run calls it in one thread, in virtual time. An implementation may itself start runs.
pub trait Choose: Send + Sync {
    /// Returns the index in `view.listed` of the next zone.
    fn pick(&self, view: &View<'_>) -> usize;

    /// Whether to wait for another write of the zone of the current turn.
    fn stay(&self, _view: &View<'_>) -> bool {
        true
    }

    /// Whether the policy decides not only the order of zones but also when to wait.
    fn decides_waits(&self) -> bool {
        false
    }
}

/// A policy of the caller, with its name.
///
/// ```
/// use std::sync::Arc;
/// use zoneplug_core::Nanos;
/// use zoneplug_core::sched::policy::View;
/// use zoneplug_models::measure::Workload;
/// use zoneplug_models::work::Rw;
/// use zoneplug_models::{Choose, Own, VirtualDisk, Workers, Writer, ways};
/// struct Last;
/// impl Choose for Last {
///     fn pick(&self, view: &View<'_>) -> usize {
///         view.listed.len() - 1
///     }
/// }
/// let disk = VirtualDisk::parse("sim-smr30").unwrap().unwrap();
/// let mut load = Workload::new(&disk, Rw::Randwrite);
/// load.last(Nanos(100_000_000));
/// let writer = Writer::Own(Own::new("last", Arc::new(Last)));
/// let way = ways(&disk.config, &[], &[], &[writer]).unwrap().remove(0);
/// let row = load.run(&disk, &way, &Workers::all(&|| false), None).unwrap();
/// assert_eq!(row.layer, "plug none qd1 last");
/// ```
#[derive(Clone)]
pub struct Own {
    pub(crate) name: Arc<str>,
    choose: Arc<dyn Choose>,
}

impl fmt::Debug for Own {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Own").field(&self.name).finish()
    }
}

impl PartialEq for Own {
    fn eq(&self, other: &Own) -> bool {
        Arc::ptr_eq(&self.choose, &other.choose)
    }
}

thread_local! {
    /// The policy of the run on this thread.
    static CURRENT: RefCell<Option<Own>> = const { RefCell::new(None) };
}

/// Returns the policy of the current run, if any. The cell is not left borrowed, because a policy
/// may start another run.
fn current() -> Option<Arc<dyn Choose>> {
    CURRENT.with_borrow(|own| own.as_ref().map(|own| Arc::clone(&own.choose)))
}

/// The policy that the single writer calls. Each function asks the policy of the run on this thread.
static CALLED: OwnPolicy = OwnPolicy {
    name: "own",
    pick: |view| current().map_or(0, |choose| choose.pick(view)),
    stay: |view| current().is_some_and(|choose| choose.stay(view)),
    wants_bytes: true,
};

/// Restores the policy of the outer run when the inner run ends.
struct Restore(Option<Own>);

impl Drop for Restore {
    fn drop(&mut self) {
        CURRENT.set(self.0.take());
    }
}

impl Own {
    /// A policy with this name.
    pub fn new(name: &str, choose: Arc<dyn Choose>) -> Own {
        Own { name: name.into(), choose }
    }

    /// Whether the policy decides when to wait.
    pub(crate) fn decides_waits(&self) -> bool {
        self.choose.decides_waits()
    }

    /// The policy that a disk is opened with.
    pub(crate) fn policy() -> Policy {
        Policy::Own(&CALLED)
    }

    /// Makes a run on this thread use this policy. Its disk must be opened with [`Own::policy`].
    pub(crate) fn during<T>(&self, run: impl FnOnce() -> T) -> T {
        let _restore = Restore(CURRENT.replace(Some(self.clone())));
        run()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zoneplug_core::sched::policy::Turn;
    use zoneplug_core::{Nanos, Sector};

    struct Always(usize);

    impl Choose for Always {
        fn pick(&self, _: &View<'_>) -> usize {
            self.0
        }
    }

    #[test]
    fn the_policy_of_the_inner_run_chooses_and_then_the_outer_one_again() {
        let view = View {
            now: Nanos(0),
            listed: &[],
            last: None,
            turn: Turn::default(),
            head: Sector(0),
            capacity: Sector(1),
        };
        let asked = || (Own::policy().pick()(&view), Own::policy().stay()(&view));
        let own = |n| Own::new("always", Arc::new(Always(n)));
        assert_eq!(asked(), (0, false), "outside of a run");
        own(3).during(|| {
            assert_eq!(asked(), (3, true));
            own(5).during(|| assert_eq!(asked(), (5, true)));
            let inner = std::panic::catch_unwind(|| own(7).during(|| panic!("a policy")));
            assert!(inner.is_err());
            assert_eq!(asked(), (3, true));
        });
        assert_eq!(asked(), (0, false));
    }
}
