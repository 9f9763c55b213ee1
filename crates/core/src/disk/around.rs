//! The way around a layer that does no more for most commands than to add to their sectors (`stack/po2`): a queue of a disk
//! right above one adds it itself, and calls the layer's queue of the device. The layer is in between only while a command needs more:
//! a read of a gap, a report, zone management.
//!
//! Called at the end of each submit and poll of a queue that has such a layer, or a special layout; no other queue asks. Between two
//! calls what is on its way down (`Lane::out`) is as the engine made it, so nothing else of this room knows of the sums. Never
//! looks at what a command is for.

use crate::device::{Aside, Gone};
use crate::disk::queue::{DiskQueue, Lane};
use crate::unit::Nanos;
use crate::way::{Way, lower, lower_all, raise_all};

/// What is between a queue of a disk and the device's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Path {
    /// Nothing that matters here.
    Straight,
    /// A line: the layout is special.
    Special,
    /// A layer that steps aside whenever it can.
    Around,
}

impl DiskQueue {
    /// Whether a layer is aside, and what is on its way down: for tests of that.
    #[doc(hidden)]
    pub fn way_down(&self) -> (bool, Vec<(u64, i64)>) {
        (self.lane.layer.is_some(), self.lane.out.iter().map(|c| (c.sector.0, c.moved)).collect())
    }

    /// The end of a submit, by any path but the straight one.
    #[inline(always)]
    pub(crate) fn send_by_path(&mut self, now: Nanos) {
        if !self.lane.send_one_around(now) {
            let DiskQueue { shared, layout, lane } = self;
            if lane.path == Path::Special {
                lane.line_up(shared, layout, now);
            }
            if !lane.out.is_empty() {
                lane.send_out(now);
            }
        }
    }
}

impl Lane {
    /// Looks for such a layer. Nothing has been sent yet, so if there is one it steps aside.
    pub(crate) fn find_path(&mut self) {
        self.has_layer = self.step_aside();
        self.take_path(false);
    }

    /// The layout may have changed. The queue may have commands in flight.
    pub(crate) fn take_path(&mut self, special: bool) {
        self.tags.place(special);
        self.path = match (special, self.has_layer) {
            (true, _) => Path::Special,
            (false, true) => Path::Around,
            (false, false) => Path::Straight,
        };
        if special {
            // Its paths are long enough without a way of their own, and a scheduler looks into `out` between two calls.
            self.step_in();
        }
    }

    /// Sends what is in `out`, whatever it is and by any path.
    #[inline(never)]
    pub(crate) fn send_out(&mut self, now: Nanos) {
        if self.path == Path::Around {
            self.send_list_around(now);
        } else {
            self.lower.submit(now, &mut self.out);
        }
    }

    /// Sends what is in `out` around the layer, or through it if there is more to do than that.
    #[inline(always)]
    pub(crate) fn send_around(&mut self, now: Nanos) {
        if !self.send_one_around(now) {
            self.send_list_around(now);
        }
    }

    /// Sends the only command in `out`, if it is one that can go around the layer, and if the layer is aside: else no command can.
    /// A single one has a way of its own because finding the slices of a list costs as much as a translation.
    #[inline(always)]
    fn send_one_around(&mut self, now: Nanos) -> bool {
        if self.out.len() != 1 || !lower(&self.way, &mut self.out[0]) {
            return false;
        }
        self.lower.submit(now, &mut self.out);
        if !self.out.is_empty() {
            raise_all(&mut self.out);
        }
        true
    }

    #[inline(never)]
    fn send_list_around(&mut self, now: Nanos) {
        let aside = self.layer.is_some() || self.step_aside();
        if !aside || !lower_all(&self.way, &mut self.out) {
            self.step_in();
            return self.lower.submit(now, &mut self.out);
        }
        self.lower.submit(now, &mut self.out);
        if !self.out.is_empty() {
            return raise_all(&mut self.out);
        }
        // The next list begins where the buffer does, and so is one slice.
        self.out.clear();
    }

    /// Takes the layer out of the path, if there is one that can be.
    #[cold]
    fn step_aside(&mut self) -> bool {
        let Some(Aside { way, below }) = self.lower.step_aside() else { return false };
        self.way = way;
        self.layer = Some(std::mem::replace(&mut self.lower, below));
        true
    }

    /// Puts it back, if it is out.
    #[cold]
    fn step_in(&mut self) {
        let Some(mut layer) = self.layer.take() else { return };
        layer.step_in(std::mem::replace(&mut self.lower, Box::new(Gone)));
        self.lower = layer;
        self.way = Way::NONE;
    }

    /// [`Queue::arm`](crate::Queue::arm) of the device. The layer may be back before its owner is: what ends there wakes too.
    pub(crate) fn arm_lower(&mut self) {
        if let Some(layer) = &mut self.layer {
            layer.arm();
        }
        self.lower.arm();
    }

    /// [`Queue::arm_fd`](crate::Queue::arm_fd) of the device.
    pub(crate) fn arm_lower_fd(&mut self) -> Option<i32> {
        if let Some(layer) = &mut self.layer {
            layer.arm();
        }
        self.lower.arm_fd()
    }
}
