//! What a file is at a moment: its size, its permissions, and whether it may still be read and written.

use crate::layout::{Extent, Group};
use std::sync::Mutex;
use std::time::SystemTime;
use zoneplug_core::Sector;
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

/// A file.
#[derive(Debug)]
pub(super) struct ZoneFile {
    pub(super) group: Group,
    /// The number of the first zone.
    pub(super) zone: u32,
    pub(super) start: Sector,
    pub(super) capacity: u64,
    pub(super) state: Mutex<State>,
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
            state: Mutex::new(state),
        }
    }

    pub(super) fn is_sequential(&self) -> bool {
        self.group == Group::Sequential
    }
}
