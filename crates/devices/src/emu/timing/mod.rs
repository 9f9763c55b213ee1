//! The timing of real drives: how long a command takes on an SMR hard disk or on a ZNS SSD, in virtual time.
//!
//! This room has the models, and the profiles that fill them with numbers. `docs/models.md` has the equations, their
//! sources, and how far they agree with published results. A disk with a timing is an [`EmuDisk`](super::EmuDisk)
//! like any other: `exec.rs` carries a command out, or refuses it, when it arrives. Only then does a model say when
//! it completes. A model never looks at zone states or data, and never reads a clock: it advances when it is polled.
//!
//! Time is in whole nanoseconds. Places on the platter are `f64`, computed with `+ - * /` and `sqrt` only. IEEE 754
//! rounds these five exactly, so a run is the same on every machine.
//!
//! | file | what |
//! | --- | --- |
//! | `profile.rs`, `keys.rs` | the numbers of a drive, from a data file, and their keys |
//! | `platter.rs` | radius, rate, angle and seeks of a disk |
//! | `cached.rs` | the writes in a disk's write cache, and which of them is nearest |
//! | `smr.rs` | the disk |
//! | `zns.rs` | the SSD |
//! | `queue.rs` | one queue of either |

mod cached;
mod keys;
mod platter;
mod profile;
mod queue;
mod smr;
mod zns;

pub use keys::{PROFILE_KEYS, SMR_KEYS, ZNS_KEYS};
pub use profile::{Destage, Model, Profile, SmrParams, ZnsParams};
pub(super) use queue::TimedQueue;

use std::sync::{Mutex, MutexGuard};
use zoneplug_core::bio::{Command, Commands};
use zoneplug_core::unit::Nanos;

/// A command at the drive, and the queue that sent it.
#[derive(Debug)]
struct CommandAtDrive {
    command: Box<Command>,
    queue: u32,
}

/// Finished commands, for each queue until it polls.
#[derive(Debug, Default)]
struct Outbox(Vec<Slot>);

#[derive(Debug, Default)]
struct Slot {
    done: Commands,
    /// Commands of the queue at the drive, including finished ones.
    held: u32,
    closed: bool,
}

impl Outbox {
    fn finish(&mut self, held: CommandAtDrive) {
        let slot = &mut self.0[held.queue as usize];
        if slot.closed {
            slot.held -= 1;
        } else {
            slot.done.push_back(held.command);
        }
    }
}

/// Counts of a drive's work, by its model.
///
/// ```
/// use zoneplug_devices::emu::{EmuDisk, EmuKind, timing::Profile};
/// let disk = EmuDisk::timed(&Profile::builtin("smr30").unwrap(), EmuKind::Null).unwrap();
/// assert_eq!(disk.drive_stats().map(|s| s.moves), Some(0));
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DriveStats {
    /// Accesses for which the head had to seek or to wait for the platter. An SSD has none.
    pub moves: u64,
    /// The time that these seeks and waits took.
    pub positioning: Nanos,
    /// The time for which the medium was busy, including positioning: the head of a disk, or the data path of an SSD.
    pub busy: Nanos,
}

impl DriveStats {
    /// Returns the work since `before` was taken.
    #[must_use]
    pub fn since(self, before: DriveStats) -> DriveStats {
        let less = |a: Nanos, b: Nanos| Nanos(a.0.saturating_sub(b.0));
        DriveStats {
            moves: self.moves.saturating_sub(before.moves),
            positioning: less(self.positioning, before.positioning),
            busy: less(self.busy, before.busy),
        }
    }

    fn access(&mut self, positioning: Nanos, whole: Nanos) {
        self.moves += u64::from(positioning.0 > 0);
        self.positioning = self.positioning.plus(positioning);
        self.busy = self.busy.plus(whole);
    }
}

/// The drive as its queues use it.
#[derive(Debug)]
struct State {
    model: ModelState,
    out: Outbox,
}

#[derive(Debug)]
enum ModelState {
    Smr(Box<smr::Smr>),
    Zns(zns::Zns),
}

impl State {
    /// Advances the model to `now`.
    fn advance(&mut self, now: Nanos) {
        match &mut self.model {
            ModelState::Smr(m) => m.advance(now, &mut self.out),
            ModelState::Zns(m) => m.advance(now, &mut self.out),
        }
    }

    /// Takes a command that the zones have accepted.
    fn take(&mut self, now: Nanos, zone: u32, offset: u32, held: CommandAtDrive) {
        match &mut self.model {
            ModelState::Smr(m) => m.take(now, zone, offset, held),
            ModelState::Zns(m) => m.take(now, zone, held),
        }
    }

    /// Returns a time before which no command completes.
    fn next(&self) -> Option<Nanos> {
        match &self.model {
            ModelState::Smr(m) => m.next(),
            ModelState::Zns(m) => m.next(),
        }
    }
}

/// A drive.
#[derive(Debug)]
pub(super) struct Drive(Mutex<State>);

impl Drive {
    pub(super) fn new(profile: &Profile) -> Drive {
        let model = match &profile.model {
            Model::Smr(p) => ModelState::Smr(Box::new(smr::Smr::new(profile, p))),
            Model::Zns(p) => ModelState::Zns(zns::Zns::new(profile, p)),
        };
        Drive(Mutex::new(State { model, out: Outbox::default() }))
    }

    pub(super) fn stats(&self) -> DriveStats {
        match &self.lock().model {
            ModelState::Smr(m) => m.stats(),
            ModelState::Zns(m) => m.stats(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        zoneplug_core::poison::lock(&self.0)
    }
}

/// Returns how long the transfer of `bytes` takes at a rate.
fn span(bytes: u64, bytes_per_s: u64) -> Nanos {
    Nanos((bytes * 1_000_000_000 + bytes_per_s / 2) / bytes_per_s)
}
