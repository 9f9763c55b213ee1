//! The last step of the way up: BIOs get their status and go to their owners, in `done` or in the mailbox of another
//! queue.

use crate::bio::{Bio, Bios, Command, MIXED, NO_PARENT, Op, Status};
use crate::disk::queue_state::QueueState;
use crate::disk::shared::Shared;
use crate::disk::snapshot::Layout;
use crate::sync::lock;

impl QueueState {
    /// Gives all BIOs of a command its status. After an error an append reports no sector.
    pub(crate) fn give_status(&mut self, layout: &Layout, cmd: &mut Command) {
        if cmd.status.is_ok() {
            return;
        }
        for bio in &mut cmd.bios {
            bio.status = cmd.status;
            Self::forget_sector(layout, bio);
        }
    }

    fn forget_sector(layout: &Layout, bio: &mut Bio) {
        if bio.op == Op::ZoneAppend {
            bio.sector = layout.geometry.zone_start(layout.geometry.zone_of(bio.sector).0);
        }
    }

    /// Completes the BIOs in the abort list.
    #[cold]
    pub(crate) fn abort_waiting(
        &mut self,
        shared: &Shared,
        layout: &Layout,
        status: Status,
        done: &mut Bios,
    ) {
        let mut bios = std::mem::take(&mut self.aborted);
        for bio in &mut bios {
            if bio.status.is_ok() {
                // A BIO that was sent and has failed keeps its own status.
                bio.status = status;
            }
            Self::forget_sector(layout, bio);
        }
        if layout.single_writer && !bios.is_empty() {
            Self::unlist_aborted(shared);
        }
        self.sort_out(shared, &mut bios, done);
        self.aborted = bios;
    }

    /// Delivers the BIOs of a command. The command keeps its empty list.
    #[inline(always)]
    pub(crate) fn deliver(&mut self, shared: &Shared, cmd: &mut Command, done: &mut Bios) {
        // A single BIO of this queue is the common case and costs no call.
        if cmd.owner == self.id
            && cmd.bios.len() == 1
            && let Some(bio) = cmd.bios.pop()
        {
            return self.give_back(bio, done);
        }
        self.deliver_all(shared, cmd, done);
    }

    /// Delivers any number of BIOs of any owners.
    #[inline(never)]
    fn deliver_all(&mut self, shared: &Shared, cmd: &mut Command, done: &mut Bios) {
        if cmd.owner == self.id {
            return self.deliver_own(&mut cmd.bios, done);
        }
        let owners = std::mem::take(&mut cmd.owners);
        let mut bios = std::mem::take(&mut cmd.bios);
        self.hand_over(shared, cmd.owner, &owners, &mut bios, done);
        cmd.bios = bios;
        cmd.owners = owners;
    }

    #[inline]
    pub(crate) fn hand_over(
        &mut self,
        shared: &Shared,
        owner: u32,
        owners: &[(u32, u32)],
        bios: &mut Vec<Box<Bio>>,
        done: &mut Bios,
    ) {
        if owner == self.id {
            self.deliver_own(bios, done);
        } else if owner != MIXED {
            self.deliver_to(shared, owner, bios.drain(..));
        } else {
            self.hand_over_mixed(shared, owners, bios, done);
        }
    }

    fn hand_over_mixed(
        &mut self,
        shared: &Shared,
        owners: &[(u32, u32)],
        bios: &mut Vec<Box<Bio>>,
        done: &mut Bios,
    ) {
        if owners.iter().map(|&(_, n)| n as usize).sum::<usize>() != bios.len() {
            // A faulty device has added or kept BIOs.
            return self.sort_out(shared, bios, done);
        }
        let mut all = bios.drain(..);
        for &(owner, n) in owners {
            let run = all.by_ref().take(n as usize);
            if owner == self.id {
                for bio in run {
                    self.give_back(bio, done);
                }
            } else {
                self.deliver_to(shared, owner, run);
            }
        }
        debug_assert!(all.next().is_none(), "the owners of a command cover its BIOs");
    }

    /// Delivers BIOs of any queues.
    #[cold]
    pub(crate) fn sort_out(&mut self, shared: &Shared, bios: &mut Vec<Box<Bio>>, done: &mut Bios) {
        for bio in bios.drain(..) {
            if bio.queue == self.id {
                self.give_back(bio, done);
            } else {
                self.deliver_to(shared, bio.queue, std::iter::once(bio));
            }
        }
    }

    fn deliver_to(&mut self, shared: &Shared, queue: u32, bios: impl Iterator<Item = Box<Bio>>) {
        let mut rest = match self.peers.get(queue as usize).and_then(Option::as_ref) {
            Some(peer) => match peer.push(bios) {
                Ok(()) => return,
                Err(rest) => rest,
            },
            None => bios.collect(),
        };
        // The owner may be a queue that was opened after this queue last updated `peers`. The list is not updated
        // here: until the next call, `return_tags` uses it to return the tags of commands that this call has delivered.
        // Such a command does not keep its own queue open, so another queue may have the id by now.
        let peer = lock(&shared.queues).get(queue as usize).cloned().flatten();
        if let Some(peer) = peer {
            match peer.push(rest.drain(..)) {
                Ok(()) => return,
                Err(still) => rest = still,
            }
        }
        // A queue stays open until its last BIO has come back. So no BIO is left here, unless a device returned BIOs
        // that the queue had not submitted. These are dropped in flight, and so count as lost.
        drop(rest);
    }

    #[inline]
    pub(crate) fn deliver_own(&mut self, bios: &mut Vec<Box<Bio>>, done: &mut Bios) {
        for bio in bios.drain(..) {
            self.give_back(bio, done);
        }
    }

    #[inline]
    pub(crate) fn give_back(&mut self, mut bio: Box<Bio>, done: &mut Bios) {
        bio.in_flight = false;
        if bio.parent == NO_PARENT {
            done.push_back(bio);
        } else {
            self.part_done(bio, done);
        }
    }
}
