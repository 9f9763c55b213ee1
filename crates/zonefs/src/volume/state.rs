//! What a file is at a moment: its size, its permissions, and whether it may still be read and written. What changes a file
//! has its lock until the disk has answered; what only looks at it takes what was published last, and does not wait.

use crate::layout::{Extent, Group};
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
    /// Neither can be read nor written.
    Offline,
}

/// What changes of a file.
#[derive(Debug)]
pub(super) struct State {
    /// What the zone holds, in bytes: the write pointer of a sequential zone.
    pub(super) written: u64,
    /// Bytes behind that which do not fill a block yet. Only with the option `buffered`.
    pub(super) tail: Vec<u8>,
    pub(super) access: Access,
    /// The permissions, nine bits.
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    /// Open files that may write.
    pub(super) writers: u32,
    /// The zone was opened for the writers, and is closed after the last of them.
    pub(super) zone_open: bool,
    pub(super) modified: SystemTime,
    pub(super) changed: SystemTime,
}

impl State {
    /// The size of the file in bytes.
    pub(super) fn size(&self) -> u64 {
        self.written + self.tail.len() as u64
    }

    /// The data are changed now.
    pub(super) fn touch(&mut self) {
        self.modified = SystemTime::now();
        self.changed = self.modified;
    }

    /// Takes away what the access does not allow.
    pub(super) fn restrict(&mut self, access: Access) {
        self.access = access;
        match access {
            Access::Full => {}
            Access::ReadOnly => self.mode &= !0o222,
            Access::Offline => self.mode = 0,
        }
    }
}

/// What can be seen of a file without waiting.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shown {
    pub(super) written: u64,
    /// The bytes of the tail.
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

/// The state of a file that is being changed. What has become of it is published when this is dropped.
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
    /// Odd while the zone is being reset.
    resets: AtomicU64,
}

impl ZoneFile {
    pub(super) fn new(of: &Extent, (uid, gid, mode): (u32, u32, u32), now: SystemTime) -> ZoneFile {
        let mut state = State {
            written: of.written_sectors << 9,
            tail: Vec::new(),
            access: Access::Full,
            mode,
            uid,
            gid,
            writers: 0,
            zone_open: false,
            modified: now,
            changed: now,
        };
        match of.cond {
            Condition::Offline => state.restrict(Access::Offline),
            // Where data of such a zone end is not known when it is mounted.
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

    /// Waits until nothing else changes the file.
    pub(super) fn lock(&self) -> Locked<'_> {
        Locked { state: lock(&self.state), shown: &self.shown }
    }

    /// What was published last.
    pub(super) fn shown(&self) -> Shown {
        *lock(&self.shown)
    }

    /// Notes that the zone is about to be reset, or has been. The caller has the lock.
    pub(super) fn note_reset(&self) {
        self.resets.fetch_add(1, Ordering::AcqRel);
    }

    /// The number of resets so far. Waits until one that has begun is over.
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
