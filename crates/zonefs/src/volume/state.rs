//! The state of a file: its size, its permissions, and whether it may still be read and written. An
//! operation that changes a file holds its lock until the disk has answered. A reader uses the
//! state published last and does not wait.

use crate::layout::{Extent, Group};
use crate::super_block::SuperBlock;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::SystemTime;
use zoneplug_core::Sector;
use zoneplug_core::poison::lock;
use zoneplug_core::zone::Condition;

/// Whether a file can be read and written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    Full,
    ReadOnly,
    /// The file can be neither read nor written.
    Offline,
}

/// The changing part of a file.
#[derive(Debug)]
pub(super) struct State {
    /// Bytes in the zone: the write pointer of a sequential zone.
    pub(super) written: u64,
    /// The tail: bytes behind `written` that do not fill a block yet. Only with the option `buffered`.
    pub(super) tail: Vec<u8>,
    pub(super) access: Access,
    /// The permissions, nine bits.
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    /// The number of open files that may write.
    pub(super) writers: u32,
    /// Whether the zone was opened for the writers; it is closed after the last of them.
    pub(super) zone_open: bool,
    pub(super) modified: SystemTime,
    pub(super) changed: SystemTime,
}

impl State {
    /// The size of the file in bytes.
    pub(super) fn size(&self) -> u64 {
        self.written + self.tail.len() as u64
    }

    /// Notes that the data change now.
    pub(super) fn touch(&mut self) {
        self.modified = SystemTime::now();
        self.changed = self.modified;
    }

    /// Restricts the file to this access, and removes the permissions that exceed it.
    pub(super) fn restrict(&mut self, access: Access) {
        self.access = access;
        match access {
            Access::Full => {}
            Access::ReadOnly => self.mode &= !0o222,
            Access::Offline => self.mode = 0,
        }
    }
}

/// The published state of a file, read without waiting.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shown {
    pub(super) written: u64,
    /// The number of bytes of the tail.
    pub(super) tail: u64,
    pub(super) access: Access,
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) zone_open: bool,
    pub(super) modified: SystemTime,
    pub(super) changed: SystemTime,
}

impl Shown {
    fn of(s: &State) -> Shown {
        Shown {
            written: s.written,
            tail: s.tail.len() as u64,
            access: s.access,
            mode: s.mode,
            uid: s.uid,
            gid: s.gid,
            zone_open: s.zone_open,
            modified: s.modified,
            changed: s.changed,
        }
    }

    /// The size of the file in bytes.
    pub(super) fn size(&self) -> u64 {
        self.written + self.tail
    }
}

/// The state of a file that is being changed. Dropping this publishes it.
pub(super) struct Locked<'a> {
    state: MutexGuard<'a, State>,
    shown: &'a Mutex<Shown>,
}

impl Deref for Locked<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        &self.state
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.state
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        *lock(self.shown) = Shown::of(&self.state);
    }
}

/// A file.
#[derive(Debug)]
pub(super) struct ZoneFile {
    pub(super) group: Group,
    /// The number of the first zone.
    pub(super) zone: u32,
    pub(super) start: Sector,
    pub(super) capacity: u64,
    state: Mutex<State>,
    shown: Mutex<Shown>,
    /// Incremented before and after each reset, so odd while the zone is being reset.
    resets: AtomicU64,
}

impl ZoneFile {
    pub(super) fn new(of: &Extent, super_block: &SuperBlock, now: SystemTime) -> ZoneFile {
        let mut state = State {
            written: of.written_sectors << 9,
            tail: Vec::new(),
            access: Access::Full,
            mode: super_block.mode,
            uid: super_block.uid,
            gid: super_block.gid,
            writers: 0,
            zone_open: false,
            modified: now,
            changed: now,
        };
        match of.cond {
            Condition::Offline => state.restrict(Access::Offline),
            // The write pointer of a read-only zone is not valid, so the end of its data is unknown
            // at mount.
            Condition::ReadOnly => {
                state.restrict(Access::ReadOnly);
                state.mode = 0;
            }
            _ => {}
        }
        ZoneFile {
            group: of.group,
            zone: of.zone,
            start: of.start,
            capacity: of.capacity_sectors << 9,
            shown: Mutex::new(Shown::of(&state)),
            state: Mutex::new(state),
            resets: AtomicU64::new(0),
        }
    }

    /// Locks the file for a change.
    pub(super) fn lock(&self) -> Locked<'_> {
        Locked { state: lock(&self.state), shown: &self.shown }
    }

    /// The state published last.
    pub(super) fn shown(&self) -> Shown {
        *lock(&self.shown)
    }

    /// Notes that the zone is about to be reset, or has been. The caller holds the lock.
    pub(super) fn note_reset(&self) {
        self.resets.fetch_add(1, Ordering::AcqRel);
    }

    /// Returns the count of reset notes, which is even. Waits for a reset in progress.
    pub(super) fn resets(&self) -> u64 {
        loop {
            let n = self.resets.load(Ordering::Acquire);
            if n.is_multiple_of(2) {
                return n;
            }
            drop(lock(&self.state));
        }
    }

    pub(super) fn is_sequential(&self) -> bool {
        self.group == Group::Sequential
    }
}
