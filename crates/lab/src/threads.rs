//! Threads of clients that measure together. If the system refuses a thread, all fail; none panics or waits for it.

use crate::failure::{Attempt, Failure};
use std::sync::{Condvar, Mutex};

/// Holds threads back until all are started.
#[derive(Default)]
struct Gate {
    /// `true` lets the threads go on; `false` ends them.
    open: Mutex<Option<bool>>,
    changed: Condvar,
}

impl Gate {
    fn open(&self, go: bool) {
        *zoneplug_core::poison::lock(&self.open) = Some(go);
        self.changed.notify_all();
    }

    fn pass(&self) -> bool {
        let open = zoneplug_core::poison::lock(&self.open);
        let open = self.changed.wait_while(open, |open| open.is_none());
        zoneplug_core::poison::unpoisoned(open).unwrap_or(false)
    }
}

/// Runs each piece of work on a thread of its own, all from the same moment on. Returns the results in their order.
/// If a thread cannot be started, none of the work begins.
pub(crate) fn together<T: Send>(
    work: impl IntoIterator<Item = impl FnOnce() -> T + Send>,
) -> Result<Vec<T>, Failure> {
    let gate = Gate::default();
    std::thread::scope(|s| {
        let begun = work.into_iter().map(|w| {
            let body = || gate.pass().then(w);
            std::thread::Builder::new().name("zoneplug-job".to_owned()).spawn_scoped(s, body)
        });
        let begun = begun.collect::<Result<Vec<_>, _>>();
        gate.open(begun.is_ok());
        let ended = begun.map_err(|e| {
            let f = Failure::of_system(Attempt::Thread, "no thread for a client", e);
            let way = format!("fewer jobs, or {}", f.parts().hint);
            f.hint(way)
        })?;
        let panicked = || Failure::io("a client panicked").hint("this is a bug");
        ended.into_iter().map(|t| t.join().ok().flatten().ok_or_else(panicked)).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_order_and_a_panic_is_a_failure() {
        assert_eq!(together((0..8).map(|i| move || i * i)).unwrap()[7], 49);
        assert!(together(Vec::<fn() -> i32>::new()).unwrap().is_empty());
        let one = |i: i32| move || assert!(i != 1, "planned, in a test");
        assert!(together((0..3).map(one)).unwrap_err().to_string().contains("panicked"));
    }
}
