//! Events of a disk, and the descriptor that announces them.

use crate::boundary::{Failure, Uncancelled, call};
use crate::disk::{disk, zp_disk};
use libc::c_int;
use std::os::fd::{AsFd, AsRawFd};
use std::task::{Wake, Waker};
use zoneplug_core::disk::Event;
use zoneplug_core::poison::lock;
use zoneplug_host::WakeFd;

/// A command failed at the device, with `status`: an error of the medium, a limit of open zones, a command that did not
/// end in time, a device that is gone. The library may still make up for it, where it sends writes again.
pub const ZP_EVENT_FAILED: u8 = 1;
/// The write pointer of the zone is unknown. Its writes are refused until a report, a reset or a finish.
pub const ZP_EVENT_STALE: u8 = 2;
/// The write pointer of a zone is known again, after a failure.
pub const ZP_EVENT_RECOVERED: u8 = 3;
/// The device reports less data in the zone than it has acknowledged. The zone is stale.
pub const ZP_EVENT_DATA_MISSING: u8 = 4;
/// A command that was given up has come back. Its memory is free again.
pub const ZP_EVENT_LATE_BACK: u8 = 5;
/// A queue of the device has panicked, and is not used any more.
pub const ZP_EVENT_QUEUE_DIED: u8 = 6;
/// The layout and the zones were read from the device again.
pub const ZP_EVENT_REVALIDATED: u8 = 7;

/// `zone` of an event that is not of one zone.
pub const ZP_NO_ZONE: u32 = 4294967295;
/// `op` of an event that is not of a command.
pub const ZP_NO_OP: u8 = 255;

/// Something that happened to a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct zp_event {
    /// Counts up from 1 without gaps.
    pub sequence: u64,
    /// Where the command began; else the start of the zone.
    pub sector: u64,
    /// The number of the zone, or `ZP_NO_ZONE`.
    pub zone: u32,
    /// How many events of this kind, zone, operation and status came one after the other before they were read. `sector`
    /// is that of the first.
    pub count: u32,
    /// Operations that waited behind the failed writes and were aborted.
    pub aborted: u32,
    /// `ZP_EVENT_*`. Later versions may have more.
    pub kind: u8,
    /// `ZP_OP_*`, or `ZP_NO_OP`.
    pub op: u8,
    /// `ZP_STATUS_*`.
    pub status: u8,
    /// Zero.
    pub reserved: u8,
    /// Zero.
    pub reserved2: [u64; 4],
}

impl From<Event> for zp_event {
    fn from(e: Event) -> zp_event {
        zp_event {
            sequence: e.sequence,
            sector: e.sector.0,
            zone: e.zone.map_or(ZP_NO_ZONE, |z| z.0),
            count: e.count,
            aborted: e.aborted,
            kind: e.kind as u8,
            op: e.op.map_or(ZP_NO_OP, |op| op as u8),
            status: e.status as u8,
            reserved: 0,
            reserved2: [0; 4],
        }
    }
}

/// Stores up to `max` events with numbers above `after`, the oldest first, and returns how many; 0 for `after` begins with
/// the oldest that the disk has. It keeps the last 256: if the first number is above `after + 1`, those in between are
/// lost. Never waits.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zp_events(
    disk: *mut zp_disk,
    after: u64,
    events: *mut zp_event,
    max: u32,
) -> c_int {
    call(|| {
        // SAFETY: an open disk, says the header.
        let disk = unsafe { self::disk(disk)? };
        let hosted = disk.hosted()?;
        if events.is_null() && max > 0 {
            return Err(Failure::invalid("the array of events is NULL", "an array of zp_event"));
        }
        let _whole = Uncancelled::begin();
        let bell = lock(&disk.bell);
        if let Some(bell) = &*bell {
            bell.clear();
            // Later events make the descriptor readable; earlier ones are read below.
            hosted.wake_at_event(&Waker::from(bell.clone()));
        }
        let found = hosted.events(after, max as usize);
        for (i, event) in found.iter().enumerate() {
            // SAFETY: the array has `max` elements, says the header, and no more were found.
            unsafe { events.add(i).write((*event).into()) };
        }
        if let Some(bell) = bell.as_ref().filter(|_| found.len() == max as usize) {
            // The array is full, so there may be more events.
            bell.wake_by_ref();
        }
        // The disk keeps at most so many events.
        Ok(found.len() as c_int)
    })
}

/// A descriptor that becomes readable when `zp_events` should be called, for poll(2), epoll(7) and event loops; at first it
/// is readable. The library reads it; the program only waits for it, does not close it, and takes it out of its epoll set
/// before `zp_close`. A call of `zp_events` that fills its array leaves it readable. The first call makes the descriptor.
/// -EMFILE: too many files.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zp_events_fd(disk: *mut zp_disk) -> c_int {
    call(|| {
        // SAFETY: an open disk, says the header.
        let disk = unsafe { self::disk(disk)? };
        disk.hosted()?;
        let mut place = lock(&disk.bell);
        let bell = match &*place {
            Some(bell) => bell,
            None => {
                let bell = WakeFd::new().map_err(|e| Failure::no_descriptor(&e))?;
                bell.wake_by_ref();
                place.insert(bell)
            }
        };
        Ok(bell.as_fd().as_raw_fd())
    })
}
