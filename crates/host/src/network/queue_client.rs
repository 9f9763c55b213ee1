//! A client of a hosted disk for the commands of a connection, and the sleep of a thread that waits for several clients.

use super::sys;
use crate::runtime::client::Client;
use crate::served::timing::Timing;
use std::os::fd::RawFd;
use std::task::Waker;
use zoneplug_buf::{AlignedBuf, Lent};
use zoneplug_core::{Bio, Bios, DiskClient, Op, Sector};

/// A client of a disk.
pub(crate) struct QueueClient<T> {
    client: Client,
    /// Times the client's operations.
    timing: T,
    /// The descriptor of the device, while epoll watches it.
    watched: Option<RawFd>,
}

impl<T: Timing> DiskClient for QueueClient<T> {
    #[inline(always)]
    fn token(&mut self, slot: u16, op: Op) -> u64 {
        self.timing.token(slot, op)
    }

    #[inline(always)]
    fn ended(&mut self, token: u64, op: Op, sector: Sector) {
        self.timing.ended(token, op, sector);
    }

    fn submit(&mut self, bios: &mut Bios) -> usize {
        self.client.submit(bios)
    }

    fn poll(&mut self, done: &mut Bios) {
        self.client.poll(done);
    }

    fn outstanding(&self) -> u32 {
        self.client.outstanding()
    }

    fn reclaim(&mut self, bio: &mut Bio, lent: Lent) -> Option<AlignedBuf> {
        self.client.reclaim(bio, Some(lent))
    }

    fn refuse_held(&mut self) {
        self.client.refuse_held();
    }

    fn keep_lent(&mut self, lent: impl Iterator<Item = Lent>) {
        self.client.keep_lent(lent);
    }
}

/// Prepares for sleep: `waker` is woken when a client has something to do. False: run again instead. Sets `watched`
/// if a descriptor is watched; the sleep must then be short.
pub(crate) fn arm<'a, T: Timing>(
    mut busy: impl Iterator<Item = &'a mut QueueClient<T>>,
    waker: &Waker,
    epoll: &sys::Epoll,
    key: u64,
    watched: &mut bool,
) -> bool {
    busy.all(|c| c.arm(waker, epoll, key, watched))
}

impl<T: Timing> QueueClient<T> {
    pub(crate) fn new(client: Client, timing: T) -> QueueClient<T> {
        QueueClient { client, timing, watched: None }
    }

    fn arm(&mut self, waker: &Waker, epoll: &sys::Epoll, key: u64, watched: &mut bool) -> bool {
        match self.client.arm_fd(waker) {
            None => return false,
            Some(None) => {}
            Some(Some(fd)) => {
                if self.watched != Some(fd) {
                    // If the descriptor cannot be watched, the short sleep is enough.
                    let _ = epoll.add(fd, sys::READ, key);
                    self.watched = Some(fd);
                }
                *watched = true;
            }
        }
        true
    }

    /// Ends the preparation for sleep: the thread is awake.
    pub(crate) fn disarm(&self) {
        self.client.disarm();
    }

    /// Ends the use of the client.
    pub(crate) fn close(self, epoll: &sys::Epoll) {
        self.watched.into_iter().for_each(|fd| epoll.remove(fd));
    }
}
