//! The zone write plug.
//!
//! A plug owns the write pointer of its sequential zone and the writes that wait for it. A plug is a plain `&mut`
//! state machine without a lock, a device or a clock; `disk` calls it under the lock of the [`Shard`] that holds it.
//! Two steps need no lock: a write that finds its zone idle and healthy, and its end while no other write has come
//! (`word.rs`). Plugs are permanent, one for each zone in a flat array. So the engine looks up no plug, counts no
//! references and frees none.
//!
//! The rules, in the order in which a write meets them:
//!
//! * [`Plug::admit`] reserves: the write pointer is the offset after the last *reserved* write (I3). A write
//!   that is refused changes nothing (W9).
//! * The first write of an idle plug is issued; later ones park, in order (I2). The bit `PLUGGED` says that a write
//!   is in flight or about to be sent (I1, I4).
//! * `PlugChange::complete` says what follows the end of a write: nothing, the next parked writes as one command
//!   (`Shard::fill`), or, after an error, that all parked writes are aborted (E1).
//! * `pipelined.rs` allows several writes in flight on devices that keep the order of writes.
//! * `appends.rs` keeps account of native appends, which go past the plug.
//! * `recovery.rs` lets the layer find the write pointer by itself after an error.
//! * `window.rs` holds writes that have come before their place, on disks with an order window. `change.rs` has them
//!   looked at after each change for which they wait.

mod appends;
mod change;
mod pipelined;
mod plug_lock;
mod recovery;
mod shard;
mod slots;
mod track;
mod window;
mod word;

pub(crate) use pipelined::SentWrites;
pub(crate) use recovery::RecoveryReport;
pub(crate) use shard::{AfterWrite, Merge, PlugChange};
pub use shard::{Counters, Rejections, Shard, ZoneCounters};
pub(crate) use track::QueueStep;
pub use window::WindowCounters;
pub(crate) use window::{AdmittedEarly, EarlyWrite, OrderWindow};
pub(crate) use word::{LockFreeAdmission, PlugPlace, Words};

use crate::bio::{Bio, Flags, Op, Status};
use crate::zone::{Condition, ZoneInfo};

/// State bits of a plug.
pub(crate) mod state {
    /// A write is in flight or about to be issued, so a new write parks. The only bit of a healthy zone.
    pub(crate) const PLUGGED: u8 = 1;
    /// The write pointer is unknown (Linux: `NEED_WP_UPDATE`).
    pub(crate) const NEED_WP: u8 = 2;
    /// The device says read-only.
    pub(crate) const READONLY: u8 = 4;
    /// The device says offline.
    pub(crate) const OFFLINE: u8 = 8;
    /// The zone is conventional, so it is not plugged.
    pub(crate) const CONVENTIONAL: u8 = 16;
    /// A resync is in flight, and no write has been admitted since it was sent.
    pub(crate) const RESYNC: u8 = 32;
    /// A reset or finish in strict mode is in flight. It must not abort writes, so new writes fail with *zone busy*
    /// (M5).
    pub(crate) const MANAGED: u8 = 64;
    /// Early writes of the zone are held (`window.rs`). [`Plug::admit`](super::Plug::admit) refuses every write then.
    /// Such a plug stays under the lock: in its word this is the bit that says so.
    pub(crate) const EARLY: u8 = 128;
}
use state::{CONVENTIONAL, EARLY, MANAGED, NEED_WP, OFFLINE, PLUGGED, READONLY, RESYNC};

/// No slot.
pub(crate) const NONE: u32 = u32::MAX;

/// The fate of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admit {
    /// The plug was idle: the caller sends it.
    Issue,
    /// The caller parks it.
    Park,
    /// The write fails; nothing changed.
    Reject(Status),
}

/// The layer's own way to a write pointer that a failure has made unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Recovery {
    /// The layer does not look for it: the zone is healthy, or stale until the client acts.
    None,
    /// Several writes were in flight. The failed writes are held, and are sent again where that is safe.
    Held,
    /// One write was in flight, and its client has been told of the error. The layer reports the zone, and the zone
    /// goes on from the answer.
    Asked,
}

/// The plug of one zone: 36 bytes.
#[derive(Debug)]
#[repr(C)]
pub struct Plug {
    /// Offset after the last reserved write, in sectors. At or past `capacity`, the zone is full.
    wp: u32,
    /// Writable sectors.
    capacity: u32,
    /// First parked write.
    head: u32,
    /// Last parked write.
    tail: u32,
    /// The number of parked writes.
    parked: u32,
    /// Counts resets and finishes, modulo 2^24. A failed write undoes its reservation only if none came since it was
    /// sent (M4).
    generation: u32,
    /// The disk's error epoch at the last of these events: the write pointer was lost, the device said that the zone
    /// cannot be written, or a resync was sent (E6).
    error_epoch: u32,
    /// Bits of [`state`].
    state: u8,
    /// Whether the plug's word is locked (`plug_lock.rs`). If not, `wp` and `state` may be out of date here.
    locked: bool,
    /// The single writer's ticket. The bit [`LISTED`] says that the zone is in the list of the single writer, or that a queue
    /// is about to list it; nothing of the zone is in flight then (Q7). The rest counts the aborts of such zones.
    ticket: u16,
    /// While `PLUGGED`: the zone waits for a tag in the line of some queue. With one write in flight, nothing of the
    /// zone is at the device then. The writes that it waits with may have been aborted meanwhile.
    in_line: bool,
    /// Whether a write has failed and the layer reports the zone by itself (`recovery.rs`). Nothing of the zone is
    /// sent meanwhile.
    recovery: Recovery,
    /// How many writes are in flight, on disks where several may be. Elsewhere 0.
    in_flight: u16,
}

const _: () = assert!(size_of::<Plug>() == 36);

/// The bit of a ticket that says that its zone is listed.
const LISTED: u16 = 1 << 15;

impl Plug {
    /// Makes the plug of a zone as a report describes it, so the write pointer is known from the start (P4, A6).
    pub fn new(zone: &ZoneInfo) -> Plug {
        let mut plug = Plug {
            wp: 0,
            capacity: zone.capacity_sectors as u32,
            head: NONE,
            tail: NONE,
            parked: 0,
            generation: 0,
            error_epoch: 0,
            state: 0,
            locked: true,
            ticket: 0,
            in_line: false,
            recovery: Recovery::None,
            in_flight: 0,
        };
        plug.set_from(zone);
        plug
    }

    fn set_from(&mut self, zone: &ZoneInfo) {
        self.state &= PLUGGED | MANAGED | EARLY;
        match zone.cond {
            Condition::NotWp => self.state |= CONVENTIONAL,
            Condition::ReadOnly => self.state |= READONLY,
            Condition::Offline => self.state |= OFFLINE,
            Condition::Empty => self.wp = 0,
            Condition::Full => self.wp = zone.len_sectors as u32,
            _ => self.wp = zone.wp.0.saturating_sub(zone.start.0) as u32,
        }
    }

    /// Returns the offset of the next write in sectors, reserved ones included.
    #[inline]
    pub fn write_pointer(&self) -> u32 {
        self.wp
    }

    /// Returns the writable sectors.
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Returns how many writes are parked.
    #[inline]
    pub fn parked(&self) -> u32 {
        self.parked
    }

    /// Returns whether a write is in flight, or about to be.
    #[inline]
    pub fn is_plugged(&self) -> bool {
        self.state & PLUGGED != 0
    }

    /// Returns whether a write is at the device or waits. Neither is the case in a zone that is in line for a tag and
    /// whose writes were all aborted.
    fn has_writes(&self) -> bool {
        let sent = !self.in_line;
        // While the layer asks for the write pointer after a single failed write, no write of the zone is at the
        // device.
        let sent = sent && self.recovery != Recovery::Asked;
        let several = self.in_flight > 0 || self.recovery == Recovery::Held;
        several || self.is_plugged() && (sent || self.parked != 0)
    }

    /// Returns how many writes are in flight, or about to be.
    pub(crate) fn nr_in_flight(&self) -> u32 {
        u32::from(self.in_flight).max(u32::from(self.has_writes()))
    }

    /// Notes that the zone waits for a tag in the line of a queue.
    #[inline]
    pub(crate) fn get_in_line(&mut self) {
        debug_assert!(self.is_plugged(), "I4");
        self.in_line = true;
    }

    /// Returns the ticket with which the zone goes into the single writer's list. The zone has a waiting write, and nothing in
    /// flight.
    #[inline]
    pub(crate) fn get_listed(&mut self) -> u16 {
        debug_assert!(self.is_plugged(), "I4");
        self.ticket |= LISTED;
        self.ticket
    }

    /// Returns whether an entry of the single writer's list with this ticket is valid. If not, an abort has taken the writes
    /// that it stood for.
    #[inline]
    pub(crate) fn is_listed_by(&self, ticket: u16) -> bool {
        self.ticket == ticket
    }

    /// Notes that the zone is no longer listed, because its turn begins. Returns false, and changes nothing, if the entry
    /// with this ticket is not valid.
    #[inline]
    pub(crate) fn leave_list(&mut self, ticket: u16) -> bool {
        let valid = self.is_listed_by(ticket);
        if valid {
            self.ticket &= !LISTED;
        }
        valid
    }

    /// Takes an aborted zone out of the list: its entry is not valid from now on. Returns whether it was listed.
    fn abort_listing(&mut self) -> bool {
        let listed = self.ticket & LISTED != 0;
        if listed {
            self.ticket = self.ticket.wrapping_add(1) & !LISTED;
        }
        listed
    }

    /// Returns whether the write pointer is unknown. It still is while the layer asks the device for it.
    pub fn is_stale(&self) -> bool {
        self.state & NEED_WP != 0 || self.recovery == Recovery::Asked
    }

    /// Returns how often the zone was reset or finished through the layer, modulo 2^24.
    #[inline]
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// The condition as far as the layer knows it: an open zone and a closed one are both active (M10).
    pub fn condition(&self) -> Condition {
        if self.state & CONVENTIONAL != 0 {
            Condition::NotWp
        } else if self.state & READONLY != 0 {
            Condition::ReadOnly
        } else if self.state & OFFLINE != 0 {
            Condition::Offline
        } else if self.wp >= self.capacity {
            Condition::Full
        } else if self.wp == 0 && !self.is_stale() {
            Condition::Empty
        } else {
            Condition::Active
        }
    }

    /// Returns whether the zone takes no write until a report, a reset or a finish says that it does.
    pub(crate) fn awaits_report(&self) -> bool {
        self.is_stale() || self.state & (READONLY | OFFLINE) != 0
    }

    /// Returns whether a write of `len` sectors at `offset` would be admitted. The error is the status with which it
    /// would be refused.
    pub fn check(&self, offset: u32, len: u32) -> Result<(), Status> {
        if self.fits(offset, len) && self.state & !(PLUGGED | RESYNC | EARLY) == 0 {
            Ok(())
        } else {
            Err(self.refusal(offset))
        }
    }

    #[inline]
    fn fits(&self, offset: u32, len: u32) -> bool {
        // The write pointer of a finished zone is past the capacity, so a subtraction could overflow.
        offset == self.wp && u64::from(offset) + u64::from(len) <= u64::from(self.capacity)
    }

    /// Reserves `len` sectors at `offset`, or says why not (W8). Nothing changes unless it is admitted. An emulated append
    /// is admitted at [`Plug::write_pointer`] (A3).
    #[inline]
    pub fn admit(&mut self, offset: u32, len: u32) -> Admit {
        if self.state & !(PLUGGED | RESYNC) == 0 && self.fits(offset, len) {
            self.wp += len;
            // The answer to a resync that was sent before this write no longer says where the write pointer is (E6).
            let was = self.state;
            self.state = PLUGGED;
            if was & PLUGGED == 0 { Admit::Issue } else { Admit::Park }
        } else {
            Admit::Reject(self.refusal(offset))
        }
    }

    #[cold]
    fn refusal(&self, offset: u32) -> Status {
        if self.state & CONVENTIONAL != 0 {
            Status::ConventionalZone
        } else if self.state & READONLY != 0 {
            Status::ZoneReadOnly
        } else if self.state & OFFLINE != 0 {
            Status::ZoneOffline
        } else if self.state & MANAGED != 0 {
            Status::ZoneBusy
        } else if self.state & NEED_WP != 0 {
            Status::StaleWritePointer
        } else if self.wp >= self.capacity {
            Status::ZoneFull
        } else if offset != self.wp {
            Status::NotAtWritePointer
        } else {
            Status::PastCapacity
        }
    }

    /// Marks an idle zone for the resync of these epochs. The answers to earlier resyncs no longer count. Returns false if
    /// writes are in flight, or if something has happened to the zone since the resync got its epoch.
    pub(crate) fn begin_resync(&mut self, epochs: ReportEpochs) -> bool {
        if self.state & CONVENTIONAL != 0 || self.has_writes() {
            return self.state & CONVENTIONAL != 0;
        }
        if !epochs.are_since(self.error_epoch) {
            return false;
        }
        if self.state & NEED_WP == 0 {
            self.error_epoch = epochs.sent;
        }
        self.state |= RESYNC;
        true
    }

    /// Begins a reset or finish in strict mode. Returns false if the zone has writes in flight, or another reset or
    /// finish.
    fn begin_management(&mut self) -> bool {
        let busy = self.has_writes();
        let free = self.state & MANAGED == 0 && !busy;
        if free {
            self.state |= MANAGED;
        }
        free
    }

    /// Returns whether a reset or finish in strict mode is in flight.
    pub(crate) fn is_managed(&self) -> bool {
        self.state & MANAGED != 0
    }

    /// Ends a reset or finish in strict mode.
    pub(crate) fn end_management(&mut self) {
        self.state &= !MANAGED;
    }

    /// Takes the status of a command that the device ended at error epoch `epoch`. If it says *read-only* or
    /// *offline*, the zone refuses writes until a later report says otherwise, and this returns true.
    fn refused_for_good(&mut self, status: Status, epoch: u32) -> bool {
        match status {
            Status::ZoneReadOnly => self.state |= READONLY,
            Status::ZoneOffline => self.state |= OFFLINE,
            _ => return false,
        }
        // A report that was sent before does not take this back (E6).
        self.error_epoch = epoch;
        true
    }

    /// Clears the plug's state, because the only write of the zone has ended.
    fn unlock_zone(&mut self) {
        self.state &= !PLUGGED;
    }

    /// Returns Linux's flag bits for the plug dump (T2): 1 plugged, 2 needs a write pointer update.
    pub(crate) fn linux_flags(&self) -> u8 {
        let plugged = if self.nr_in_flight() > 0 { PLUGGED } else { 0 };
        plugged | if self.is_stale() { NEED_WP } else { 0 }
    }

    /// Returns whether Linux would have a plug for this zone: it is busy, stale, or partly written (P11).
    pub(crate) fn is_live(&self) -> bool {
        self.linux_flags() != 0 || self.condition() == Condition::Active
    }
}

/// The error epochs of a report: when it was sent, and now. Events get their epochs under the lock of their zone, so none is
/// newer than now, and the distances from now tell which of two is older, however often the epochs have wrapped.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReportEpochs {
    pub(crate) sent: u32,
    pub(crate) now: u32,
}

impl ReportEpochs {
    /// Returns whether the report was sent after the event of an epoch.
    pub(crate) fn are_since(self, event: u32) -> bool {
        self.now.wrapping_sub(event) >= self.now.wrapping_sub(self.sent)
    }
}

/// The kind of a write: writes of equal kind may merge. It is one byte, kept beside a parked write, so that merging
/// does not touch BIOs of another client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kind(u8);

impl Kind {
    /// Writes without flags.
    pub(crate) const PLAIN: Kind = Kind(0);
    const ZEROES: u8 = 0x10;
    const ALONE: u8 = 0x80;
    /// The flags that make a kind: two writes of one operation are of one kind if these are the same.
    pub(crate) const FLAGS: u8 = Flags::DEVICE | Flags::NOMERGE.0;

    /// Returns the kind of a write. Plain writes and emulated appends are one kind, write-zeroes another. `FUA` makes
    /// a further kind of each. A preflush goes alone.
    #[inline]
    pub(crate) fn of(bio: &Bio) -> Kind {
        let mut k = bio.flags.0 & Flags::DEVICE;
        if bio.op == Op::WriteZeroes {
            k |= Self::ZEROES;
        }
        if bio.flags.0 & (Flags::PREFLUSH.0 | Flags::NOMERGE.0) != 0 {
            k |= Self::ALONE;
        }
        Kind(k)
    }

    #[inline]
    pub(crate) fn op(self) -> Op {
        if self.0 & Self::ZEROES != 0 { Op::WriteZeroes } else { Op::Write }
    }

    #[inline]
    pub(crate) fn flags(self) -> Flags {
        Flags(self.0 & Flags::DEVICE)
    }

    #[inline]
    pub(crate) fn merges(self, other: Kind) -> bool {
        self.0 == other.0 && self.0 & Self::ALONE == 0
    }
}

#[cfg(test)]
mod tests;
