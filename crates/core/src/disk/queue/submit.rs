//! A client's queue, on the way down: checks BIOs and makes commands of them. `write.rs` has the writes that plugs
//! order, `split.rs` the BIOs that become several commands, and `manage.rs` the rare operations.

use super::handle::DiskQueue;
use crate::bio::{Bio, Bios, Command, Flags, Op, Status};
use crate::disk::queue_state::{QueueState, call_duties};
use crate::disk::shared::Shared;
use crate::disk::snapshot::Layout;
use crate::sync::Ordering;
use crate::unit::{Nanos, ZoneNo};

impl DiskQueue {
    /// Takes BIOs from the front of `bios`, as many as the depth allows, and returns how many. Does not look at the
    /// rest: the queue is full, or the disk is frozen.
    ///
    /// Every BIO that was taken comes back through [`DiskQueue::poll`] exactly once, also if it was refused.
    pub fn submit(&mut self, now: Nanos, bios: &mut Bios) -> usize {
        if self.shared.state.0.load(Ordering::Acquire) != self.state.seen && !self.catch_up(now) {
            self.state.intake.turn_away(!bios.is_empty());
            return 0;
        }
        let DiskQueue { shared, layout, state } = self;
        let before = state.intake.outstanding();
        state.call_bios = bios.len();
        if layout.plugs && layout.words.are_many() && bios.len() > 1 {
            warm(shared, layout, bios);
        }
        while state.intake.has_room() {
            let Some(mut bio) = bios.pop_front() else { break };
            state.take(&mut bio);
            match bio.op {
                Op::Read => state.read(layout, bio),
                Op::Write | Op::WriteZeroes if layout.plugs => {
                    state.write(shared, layout, bio, bios);
                }
                Op::ZoneAppend if layout.plugs && !layout.native_append => {
                    state.write(shared, layout, bio, bios);
                }
                Op::Write | Op::WriteZeroes => state.write_unordered(layout, bio),
                _ => state.submit_rare(shared, layout, bio),
            }
        }
        if state.duties != 0 {
            if state.duties & call_duties::SET_DUE != 0 {
                state.set_due(shared, layout, now);
            }
            if state.duties & call_duties::ARBITRATED != 0 {
                state.dispatch(shared, layout, now);
            }
        }
        state.lower.submit(now, &mut state.out);
        (self.state.intake.outstanding() - before) as usize
    }
}

/// Most BIOs of a list whose words are fetched ahead.
const AHEAD: usize = 32;

/// Reads the words of the zones of the first BIOs, so that the processor fetches them at the same time, and not one
/// after the other as they are admitted.
#[inline(never)]
fn warm(shared: &Shared, layout: &Layout, bios: &Bios) {
    for bio in bios.iter().take(AHEAD) {
        let (zone, _) = layout.geometry.zone_of(bio.sector);
        layout.words.warm(shared.place(zone));
    }
}

impl QueueState {
    /// Refuses a BIO to a plugged zone, and counts that in the zone.
    #[cold]
    pub(crate) fn refuse(&mut self, shared: &Shared, bio: Box<Bio>, zone: ZoneNo, status: Status) {
        let (mut shard, i) = shared.shard(zone);
        shard.rejected(i, status);
        drop(shard);
        self.reject(bio, status);
    }

    #[inline]
    fn read(&mut self, layout: &Layout, bio: Box<Bio>) {
        if let Err(status) = layout.check_read(&bio) {
            return self.reject(bio, status);
        }
        self.send_unordered(layout, bio, layout.max_transfer);
    }

    /// A write or write-zeroes of a disk without plugs.
    #[inline]
    fn write_unordered(&mut self, layout: &Layout, bio: Box<Bio>) {
        if let Err(status) = layout.check_write(&bio) {
            return self.reject(bio, status);
        }
        let max = layout.max_of(bio.op);
        self.send_unordered(layout, bio, max);
    }

    /// Sends a valid BIO that no plug orders. Splits it if it spans zones or is longer than `max` sectors.
    #[inline(always)]
    pub(crate) fn send_unordered(&mut self, layout: &Layout, bio: Box<Bio>, max: u32) {
        let (zone, offset) = layout.geometry.zone_of(bio.sector);
        // The last zone may be shorter, but a BIO that passed the check does not cross its end.
        let fits = u64::from(offset) + u64::from(bio.len_sectors)
            <= u64::from(layout.geometry.zone_sectors());
        if !fits || bio.len_sectors > max {
            return self.split_unordered(layout, bio);
        }
        let Some(mut cmd) = self.tags.take() else { return self.wait_for_tag(bio) };
        // Does the work of `launch`, for operations whose `prepare` needs the zone only.
        cmd.set(bio.op, bio.sector, bio.len_sectors, bio.flags);
        cmd.begin_owners(self.id);
        cmd.zone = zone.0;
        cmd.bios.push(bio);
        self.send(cmd);
    }

    /// Sends a BIO that no plug orders, or puts it in the backlog until a tag is free.
    #[inline(always)]
    pub(crate) fn submit_unplugged(&mut self, layout: &Layout, bio: Box<Bio>) {
        match self.tags.take() {
            Some(cmd) => self.launch(layout, bio, cmd),
            None => self.wait_for_tag(bio),
        }
    }

    /// Puts a BIO that no plug orders in the backlog. Refuses it if it may not wait.
    #[inline(never)]
    fn wait_for_tag(&mut self, bio: Box<Bio>) {
        // Without a free tag the BIO would have to wait (W11). Nothing has been reserved.
        if bio.flags.contains(Flags::NOWAIT)
            && !bio.op.is_zone_management()
            && self.idle_tags() == 0
        {
            return self.reject(bio, Status::WouldBlock);
        }
        self.backlog.push_bio(bio);
    }

    /// Makes the command of one BIO and puts it on the way to the device.
    #[inline]
    pub(crate) fn launch(&mut self, layout: &Layout, bio: Box<Bio>, mut cmd: Box<Command>) {
        cmd.set(bio.op, bio.sector, bio.len_sectors, bio.flags);
        cmd.begin_owners(self.id);
        if bio.op != Op::Read {
            Self::prepare(layout, &bio, &mut cmd);
        }
        cmd.bios.push(bio);
        self.send(cmd);
    }
}
