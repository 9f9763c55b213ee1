//! A queue's view of its commands that may come late.

use super::inflight::Losses;
use super::late::LateTable;
use crate::sync::Ordering;
use std::sync::Arc;
use zoneplug_buf::{IoBuf, Parts};

/// A queue's view of its commands that may come late. There are none on a disk without a timeout, unless it has to
/// survive a device that panics.
#[derive(Debug, Default)]
pub(crate) struct LateCommands {
    losses: Option<Arc<Losses>>,
    /// How many commands the device takes at a time.
    places: u32,
    /// The disk's tickets.
    tickets: Arc<LateTable>,
}

impl LateCommands {
    pub(crate) fn new(
        losses: Option<Arc<Losses>>,
        places: u32,
        tickets: Arc<LateTable>,
    ) -> LateCommands {
        LateCommands { losses, places, tickets }
    }

    /// Returns whether commands may come late at all.
    #[inline]
    pub(crate) fn is_watched(&self) -> bool {
        self.losses.is_some()
    }

    /// Returns how many commands were given up and are not back.
    pub(crate) fn nr_late(&self) -> u32 {
        self.losses.as_ref().map_or(0, |losses| losses.late.load(Ordering::Acquire))
    }

    /// Returns whether the device takes nothing any more: its queue has died, or late commands have all its places.
    pub(crate) fn is_down(&self) -> bool {
        self.losses.as_ref().is_some_and(|losses| {
            losses.dead.load(Ordering::Acquire)
                || losses.late.load(Ordering::Acquire) >= self.places
        })
    }

    /// Gives the late commands up, because the device's queue is closed.
    pub(crate) fn abandon(&self) {
        if let Some(losses) = &self.losses {
            losses.late.store(0, Ordering::Release);
        }
    }

    /// Returns a ticket that is open while one of the two is. 0 is none.
    pub(crate) fn join(&self, whole: u32, part: u32) -> u32 {
        self.tickets.join(whole, part)
    }

    /// Keeps the memory of a split BIO that completes while parts of it are late. Returns the whole memory if these
    /// parts have come back by now.
    pub(crate) fn expect(&self, parts: Parts) -> Option<IoBuf> {
        self.tickets.expect(parts)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn a_queue_is_down_when_it_is_dead_or_full_of_late_commands() {
        let losses = Arc::new(Losses::default());
        let of = |losses: &Arc<Losses>| LateCommands::new(Some(losses.clone()), 2, Arc::default());
        let late_commands = of(&losses);
        assert!(late_commands.is_watched() && !late_commands.is_down());
        losses.late.store(1, Ordering::Relaxed);
        assert_eq!(
            (late_commands.nr_late(), late_commands.is_down()),
            (1, false),
            "one place is left"
        );
        losses.late.store(2, Ordering::Relaxed);
        assert!(late_commands.is_down());
        late_commands.abandon();
        assert_eq!((late_commands.nr_late(), late_commands.is_down()), (0, false));
        losses.dead.store(true, Ordering::Relaxed);
        assert!(late_commands.is_down());
        let none = LateCommands::default();
        assert!(!none.is_watched() && !none.is_down() && none.nr_late() == 0);
    }
}
