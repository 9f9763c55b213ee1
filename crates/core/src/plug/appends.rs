//! Native appends of a zone: an account of them, from which the layer knows the write pointer when they have ended.
//!
//! A native append does not go through the plug, and the device chooses its place. While one is on its way, the write
//! pointer is unknown (A7). The account begins when an append is submitted to a zone whose write pointer is known. It
//! holds the length of all appends since, and the end of the one that landed last in the zone. When no append and no
//! write of the zone is on its way any more, the write pointer is known again if all of this holds:
//!
//! * Nothing else has made it unknown since the account began: no append or write ended with an unknown outcome, and no
//!   reset, finish or report has counted.
//! * The device cannot carry out a command that was given up, nor a reset or finish.
//! * The sum agrees with the device: the end of the last append is the old write pointer plus all lengths. If the two
//!   differ, a write of the zone has not landed, or something else has written to the zone.
//!
//! Otherwise the zone is stale until a report, a reset or a finish. So the order in which appends land or come back does
//! not matter.

use super::Recovery;
use super::shard::{PlugChange, Shard};
use super::state::NEED_WP;
use super::track::Appends;
use crate::bio::{Bio, Command, WritePointer};
use crate::unit::Sector;

impl Shard {
    /// Returns whether a native append of zone `i` is on its way.
    pub(super) fn has_appends(&self, i: usize) -> bool {
        self.tracks.get(i).is_some_and(|t| t.appends.any())
    }

    /// Begins a reset or finish of zone `i` in strict mode. Returns false if writes or native appends of the zone wait or
    /// are in flight, or another reset or finish is.
    pub(crate) fn begin_management(&mut self, i: usize) -> bool {
        !self.has_appends(i) && self.plugs[i].begin_management()
    }

    /// Brings the account of the appends of zone `i` up to date after a change that it accounts for.
    fn note_appends(&mut self, i: usize) {
        self.tracks[i].appends.note(&self.plugs[i]);
    }
}

impl PlugChange<'_> {
    /// Prepares for a native append of `len_sectors` to the zone, which begins at `start`, before it is sent at error
    /// epoch `epoch`. Aborts the writes that wait in the zone.
    pub(crate) fn begin_append(
        &mut self,
        start: Sector,
        len_sectors: u32,
        epoch: u32,
        aborted: &mut Vec<Box<Bio>>,
    ) {
        let (shard, i) = (&mut *self.shard, self.i);
        shard.need_tracks();
        let waiting = shard.extent(i, start);
        let (plug, appends) = (&mut shard.plugs[i], &mut shard.tracks[i].appends);
        let known = plug.state & NEED_WP == 0 && plug.recovery == Recovery::None;
        if known && !appends.any() {
            if let Some(waiting) = waiting {
                // The reservations of the writes that are aborted are undone.
                plug.wp = (waiting.start.0 - start.0) as u32;
            }
            *appends = Appends { is_valid: true, ..Appends::default() };
        } else {
            appends.is_valid = appends.explains(plug);
        }
        appends.in_flight += 1;
        match appends.len_sectors.checked_add(len_sectors) {
            Some(sum) => appends.len_sectors = sum,
            None => appends.is_valid = false,
        }
        self.forget_write_pointer(epoch, aborted);
        self.note_appends(i);
    }

    /// Notes the end of a native append of the zone, at error epoch `epoch`. A report that the device carried out
    /// meanwhile may not include the append (E6), so the write pointer stays unknown until
    /// [`PlugChange::learn_wp_from_appends`] or a report that is sent from now on.
    pub(crate) fn end_append(
        &mut self,
        start: Sector,
        cmd: &Command,
        epoch: u32,
        aborted: &mut Vec<Box<Bio>>,
    ) {
        let (shard, i) = (&mut *self.shard, self.i);
        shard.need_tracks();
        let (plug, appends) = (&mut shard.plugs[i], &mut shard.tracks[i].appends);
        appends.is_valid = appends.explains(plug);
        appends.in_flight = appends.in_flight.saturating_sub(1);
        // A faulty device may have changed sector and length. The sum then differs.
        let offset = cmd.sector.0.wrapping_sub(start.0) as u32;
        match cmd.write_pointer() {
            WritePointer::Advanced => {
                appends.end = appends.end.max(offset.saturating_add(cmd.len_sectors));
            }
            WritePointer::Kept => {
                appends.len_sectors = appends.len_sectors.wrapping_sub(cmd.len_sectors);
            }
            WritePointer::Unknown => appends.is_valid = false,
        }
        plug.refused_for_good(cmd.status, epoch);
        self.forget_write_pointer(epoch, aborted);
        self.note_appends(i);
    }

    /// Notes that a write succeeded whose zone awaits a report, on a disk with one write in flight. A report that was sent
    /// before the error epoch `epoch` may not include the write (E6).
    pub(crate) fn written_before_report(&mut self, epoch: u32) {
        let (shard, i) = (&mut *self.shard, self.i);
        match shard.tracks.get_mut(i) {
            Some(track) => track.appends.write_ended(&mut shard.plugs[i], true, epoch),
            None => shard.plugs[i].error_epoch = epoch,
        }
    }

    /// Called when a write or native append of the zone has ended. Takes the write pointer from the account of the
    /// appends if it is known now. `under_way` says whether a command that was given up under this ticket (0: none),
    /// or a reset or finish, may still be carried out.
    pub(crate) fn learn_wp_from_appends(&mut self, under_way: impl FnOnce(u32) -> bool) {
        let (shard, i) = (&mut *self.shard, self.i);
        let Some(track) = shard.tracks.get_mut(i) else { return };
        let (plug, appends) = (&mut shard.plugs[i], &mut track.appends);
        if appends.any() || plug.has_writes() || !appends.explains(plug) {
            return;
        }
        let sum = plug.wp.checked_add(appends.len_sectors);
        let last = if appends.end == 0 { plug.wp } else { appends.end };
        if sum != Some(last) || under_way(track.late) {
            return;
        }
        appends.is_valid = false;
        plug.wp = last;
        plug.state &= !NEED_WP;
    }
}
