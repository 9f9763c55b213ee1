//! A queue with an [`AddressMap`] between its owner and the device below.

use super::address_map::AddressMap;
use super::queue::{ClosedQueue, Queue};
use crate::bio::{Command, Commands};
use crate::unit::Nanos;

/// The code of a layer for commands that its [`AddressMap`] cannot translate.
///
/// A layer implements this beside its map. The methods that send or take back commands get the queue of the device
/// below, which belongs to the [`MappedQueue`]. As in a [`Queue`], no method blocks or reads a clock.
pub trait MapFallback: Send {
    /// Like [`Queue::submit`]. Called for a list with a command that the map cannot translate, and for all lists
    /// while the fallback is not [idle](MapFallback::is_idle).
    fn submit(&mut self, below: &mut dyn Queue, now: Nanos, commands: &mut Commands);

    /// Like [`Queue::poll`]. Called while the fallback is not idle. Also undoes the translation of commands that the
    /// map had sent before.
    fn poll(&mut self, below: &mut dyn Queue, now: Nanos, done: &mut Commands);

    /// Returns whether all commands may bypass the fallback: it holds none, and need not see the next one. Asked
    /// before the first list and after each poll.
    fn is_idle(&self) -> bool;

    /// Returns the time at which a command ended in the fallback, if one waits to be polled.
    fn next_deadline(&self) -> Option<Nanos>;

    /// Asks for a wake-up when the next command ends in the fallback. If one has ended already, wakes the queue's
    /// waker at once and returns true.
    fn arm(&mut self) -> bool;
}

/// The way that commands take through a [`MappedQueue`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MapMode {
    /// There is no map.
    Direct,
    /// The map translates commands.
    Map,
    /// The fallback has commands, so all others pass through it.
    Fallback,
}

/// A queue of a layered device: the queue of the device below, and the map to its sectors.
///
/// Its owner holds it by value. So a command that the map translates costs no call between the owner and the device
/// below. Without a map this is a [`Queue`] in a box, at the cost of one comparison for each call and command.
pub struct MappedQueue {
    below: Box<dyn Queue>,
    /// [`AddressMap::NONE`] unless `mode` is [`MapMode::Map`]. So one comparison tests for both.
    map: AddressMap,
    mode: MapMode,
    layer: Option<Layer>,
}

struct Layer {
    map: AddressMap,
    fallback: Box<dyn MapFallback>,
}

impl std::fmt::Debug for MappedQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let map = self.layer.as_ref().map(|l| l.map);
        f.debug_struct("MappedQueue")
            .field("map", &map)
            .field("mode", &self.mode)
            .finish_non_exhaustive()
    }
}

impl From<Box<dyn Queue>> for MappedQueue {
    /// A queue without a map.
    fn from(queue: Box<dyn Queue>) -> MappedQueue {
        MappedQueue { below: queue, map: AddressMap::NONE, mode: MapMode::Direct, layer: None }
    }
}

impl MappedQueue {
    /// A queue that translates by `map` for `below`. Commands that the map cannot translate go to `fallback`.
    pub fn new(
        below: Box<dyn Queue>,
        map: AddressMap,
        fallback: Box<dyn MapFallback>,
    ) -> MappedQueue {
        let layer = Some(Layer { map, fallback });
        let mut queue =
            MappedQueue { below, map: AddressMap::NONE, mode: MapMode::Fallback, layer };
        queue.choose_way();
        queue
    }

    /// Returns whether the map is in use. If not, there is no map, or the fallback has commands.
    pub fn is_mapping(&self) -> bool {
        self.mode == MapMode::Map
    }

    /// Returns the queue for a caller that does not know maps. Without a map this is the queue below itself.
    pub fn boxed(self) -> Box<dyn Queue> {
        if self.mode == MapMode::Direct { self.below } else { Box::new(self) }
    }

    /// A queue that takes nothing, for the place of one that is closed.
    pub(crate) fn closed() -> MappedQueue {
        MappedQueue::from(Box::new(ClosedQueue) as Box<dyn Queue>)
    }

    /// Like [`Queue::submit`]. An empty list is not passed on.
    #[inline(always)]
    pub fn submit(&mut self, now: Nanos, commands: &mut Commands) {
        if self.mode == MapMode::Direct {
            if !commands.is_empty() {
                self.below.submit(now, commands);
            }
            return;
        }
        // A list of one command has code of its own, because finding the slices of a list costs as much as a
        // translation.
        if commands.len() != 1 || !self.map.lower(&mut commands[0]) {
            return self.submit_list(now, commands);
        }
        self.below.submit(now, commands);
        if !commands.is_empty() {
            AddressMap::raise_all(commands);
        }
    }

    #[inline(never)]
    fn submit_list(&mut self, now: Nanos, commands: &mut Commands) {
        if commands.is_empty() {
            return;
        }
        if !self.map.lower_all(commands) {
            return self.submit_to_fallback(now, commands);
        }
        self.below.submit(now, commands);
        if !commands.is_empty() {
            return AddressMap::raise_all(commands);
        }
        // After `clear` the next list begins at the start of its buffer, and so is one slice.
        commands.clear();
    }

    #[cold]
    #[inline(never)]
    fn submit_to_fallback(&mut self, now: Nanos, commands: &mut Commands) {
        let Some(layer) = &mut self.layer else { return };
        (self.mode, self.map) = (MapMode::Fallback, AddressMap::NONE);
        layer.fallback.submit(&mut *self.below, now, commands);
    }

    /// Like [`Queue::poll`], except that the caller takes the commands from `done` with [`MappedQueue::pop`], which
    /// undoes the translation of each. `done` must be empty before.
    #[inline(always)]
    pub fn poll_lowered(&mut self, now: Nanos, done: &mut Commands) {
        debug_assert!(done.is_empty(), "the list is of this queue only");
        if self.mode == MapMode::Fallback {
            return self.poll_fallback(now, done);
        }
        self.below.poll(now, done);
    }

    /// Takes the next command from a list that [`MappedQueue::poll_lowered`] has filled.
    #[inline(always)]
    pub fn pop(&self, done: &mut Commands) -> Option<Box<Command>> {
        let mut c = done.pop_front()?;
        if self.mode != MapMode::Direct {
            AddressMap::raise(&mut c);
        }
        Some(c)
    }

    #[cold]
    #[inline(never)]
    fn poll_fallback(&mut self, now: Nanos, done: &mut Commands) {
        let Some(layer) = &mut self.layer else { return self.below.poll(now, done) };
        layer.fallback.poll(&mut *self.below, now, done);
        self.choose_way();
    }

    /// Uses the map while the fallback is idle.
    fn choose_way(&mut self) {
        if let Some(layer) = &self.layer
            && layer.fallback.is_idle()
        {
            (self.mode, self.map) = (MapMode::Map, layer.map);
        }
    }

    /// Like [`Queue::next_deadline`].
    pub fn next_deadline(&self) -> Option<Nanos> {
        let ended = self.layer.as_ref().and_then(|l| l.fallback.next_deadline());
        ended.or_else(|| self.below.next_deadline())
    }

    /// Like [`Queue::arm`].
    pub fn arm(&mut self) {
        // The fallback may be idle now and get a command before the owner sleeps. It wakes the owner then.
        if let Some(layer) = &mut self.layer {
            layer.fallback.arm();
        }
        self.below.arm();
    }

    /// Like [`Queue::arm_fd`].
    pub fn arm_fd(&mut self) -> Option<i32> {
        if let Some(layer) = &mut self.layer
            && layer.fallback.arm()
        {
            self.below.arm();
            return None;
        }
        self.below.arm_fd()
    }
}

/// Serves layers and owners that do not know maps.
impl Queue for MappedQueue {
    #[inline]
    fn submit(&mut self, now: Nanos, commands: &mut Commands) {
        self.submit(now, commands);
    }

    #[inline]
    fn poll(&mut self, now: Nanos, done: &mut Commands) {
        // The fallback must see only commands that it appends itself.
        if self.mode == MapMode::Fallback || !done.is_empty() {
            return self.poll_fallback(now, done);
        }
        self.below.poll(now, done);
        if done.len() != 1 {
            return AddressMap::raise_all(done);
        }
        AddressMap::raise(&mut done[0]);
    }

    fn next_deadline(&self) -> Option<Nanos> {
        self.next_deadline()
    }

    fn arm(&mut self) {
        self.arm();
    }

    fn arm_fd(&mut self) -> Option<i32> {
        self.arm_fd()
    }
}
