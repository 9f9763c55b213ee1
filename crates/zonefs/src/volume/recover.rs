//! Recovery from I/O errors: compares a file with its zone, and restricts the file or the volume as
//! `errors=` demands.

use super::state::{Access, State, ZoneFile};
use super::{Volume, VolumeEvent, errno};
use crate::layout::written_sectors;
use crate::options::OnError;
use rustix::io::Errno;
use std::sync::atomic::Ordering;
use zoneplug_core::Status;
use zoneplug_core::zone::{Condition, ZoneInfo};
use zoneplug_host::IoError;

impl Volume {
    /// Checks the zone of a file after a failed operation of the disk, and returns the errno.
    pub(super) fn after_error(
        &self,
        f: &ZoneFile,
        s: &mut State,
        write: bool,
        e: &IoError,
    ) -> Errno {
        // A limit, or a disk that takes no more commands now, leaves the file as it was.
        let changes_nothing =
            [Status::OpenLimit, Status::ActiveLimit, Status::WouldBlock, Status::Busy];
        if !changes_nothing.contains(&e.status) {
            self.warn(format!("zone {}: {e}", f.zone));
            self.compare_with_zone(f, s, write);
        }
        errno(e)
    }

    /// Checks the zone after an append that landed elsewhere than at the end of the file.
    pub(super) fn after_misplaced_append(&self, f: &ZoneFile, s: &mut State) -> Errno {
        self.compare_with_zone(f, s, true);
        Errno::IO
    }

    /// Compares a file with its zone, and applies `errors=`.
    fn compare_with_zone(&self, f: &ZoneFile, s: &mut State, write: bool) {
        let zones = self.zones_of(f);
        let reported = match self.io(|io| io.resync(f.start, zones)) {
            Ok(reported) if reported.len() == zones as usize => reported,
            _ => {
                self.warn(format!("zone {}: its condition is not known", f.zone));
                return self.restrict_volume();
            }
        };
        let (access, holds) = found(&reported, s.written);
        let size = s.size();
        if access == Access::Full && !write && holds == s.written {
            return;
        }
        if holds != s.written {
            self.warn(format!(
                "zone {}: the file has {} bytes, and the zone {holds}",
                f.zone, s.written
            ));
        }
        let on_error = self.options.on_error;
        let mut becomes = holds;
        if access == Access::Offline || on_error == OnError::ZoneOffline {
            self.warn(format!("zone {}: the file can be neither read nor written now", f.zone));
            s.restrict(Access::Offline);
            becomes = 0;
        } else if access == Access::ReadOnly || on_error == OnError::ZoneReadOnly {
            self.warn(format!("zone {}: the file can only be read now", f.zone));
            s.restrict(Access::ReadOnly);
            becomes = s.written;
        } else if on_error == OnError::RemountReadOnly && holds > s.written {
            // Data that no write of this volume has acknowledged are not shown.
            becomes = s.written;
        }
        if s.access != Access::Full {
            s.zone_open = false;
        }
        if becomes != s.written || s.access != Access::Full {
            s.tail.clear();
        }
        if f.is_sequential() || s.access == Access::Offline {
            s.written = becomes;
        }
        if s.size() != size {
            s.touch();
        }
        self.restrict_volume();
    }

    /// Makes the volume read-only if `errors=` says so.
    fn restrict_volume(&self) {
        let ends = self.options.on_error == OnError::RemountReadOnly;
        if ends && !self.read_only.swap(true, Ordering::Relaxed) {
            self.warn("the volume can only be read now".to_owned());
            (self.observer)(VolumeEvent::ReadOnly);
        }
    }

    /// The number of zones of a file.
    fn zones_of(&self, f: &ZoneFile) -> u32 {
        let g = self.disk.geometry();
        let zone = u64::from(g.zone_sectors()) << 9;
        if f.is_sequential() { 1 } else { f.capacity.div_ceil(zone) as u32 }
    }
}

/// The access that the zones of a file allow, and the bytes that they hold. `written` are the bytes
/// of the file.
fn found(zones: &[ZoneInfo], written: u64) -> (Access, u64) {
    let any = |cond| zones.iter().any(|z| z.cond == cond);
    let access = match (any(Condition::Offline), any(Condition::ReadOnly)) {
        (true, _) => Access::Offline,
        (_, true) => Access::ReadOnly,
        _ => Access::Full,
    };
    let holds = zones.iter().map(|z| written_sectors(z, written >> 9)).sum::<u64>() << 9;
    (access, holds)
}
