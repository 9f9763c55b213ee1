//! io_uring: one ring for each queue. Owns the ring; what is in flight belongs to the queue, which keeps memory and
//! segment lists until the kernel has answered.

use super::pool::Mailbox;
use super::state::lock;
use super::sys::{Epoll, MAX_SEGMENTS, Segments};
use crate::sleep::eventfd;
use io_uring::{IoUring, opcode, squeue, types::Fd};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::{Arc, Mutex, Weak};

/// A ring, and how many operations are on it.
pub(super) struct Ring {
    ring: IoUring,
    in_flight: u32,
    /// Entries that `enter` has not taken yet.
    unsent: bool,
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring").field("in_flight", &self.in_flight).finish_non_exhaustive()
    }
}

impl Ring {
    /// A ring for `depth` operations.
    pub(super) fn new(depth: u16) -> io::Result<Ring> {
        let ring = IoUring::builder().setup_clamp().build(u32::from(depth).next_power_of_two())?;
        Ok(Ring { ring, in_flight: 0, unsent: false })
    }

    /// Begins to move the memory of `s`, or its first [`MAX_SEGMENTS`] pieces, to or from `at`. The answer comes with
    /// `id`, and says how many bytes moved.
    ///
    /// # Safety
    ///
    /// Memory and list stay as they are until that answer.
    pub(super) unsafe fn transfer(
        &mut self,
        fd: RawFd,
        write: bool,
        at: u64,
        s: &Segments,
        id: u64,
    ) -> bool {
        let list = s.as_slice();
        let entry = match list {
            [one] if write => {
                opcode::Write::new(Fd(fd), one.ptr, one.len as u32).offset(at).build()
            }
            [one] => opcode::Read::new(Fd(fd), one.ptr, one.len as u32).offset(at).build(),
            _ => {
                let (ptr, n) = (list.as_ptr().cast(), list.len().min(MAX_SEGMENTS) as u32);
                if write {
                    opcode::Writev::new(Fd(fd), ptr, n).offset(at).build()
                } else {
                    opcode::Readv::new(Fd(fd), ptr, n).offset(at).build()
                }
            }
        };
        // SAFETY: our caller keeps what the entry points to.
        unsafe { self.push(&entry.user_data(id)) }
    }

    /// # Safety
    ///
    /// What the entry points to outlives the operation.
    unsafe fn push(&mut self, entry: &squeue::Entry) -> bool {
        for _ in 0..2 {
            // SAFETY: by our own contract.
            if unsafe { self.ring.submission().push(entry) }.is_ok() {
                self.in_flight += 1;
                self.unsent = true;
                return true;
            }
            self.send();
        }
        false
    }

    /// Hands what was begun to the kernel.
    pub(super) fn send(&mut self) {
        if self.unsent {
            // What the kernel did not take now stays in the ring for the next call.
            let sent = self.ring.submit();
            self.unsent = sent.is_err() || !self.ring.submission().is_empty();
        }
    }

    /// Whether the kernel has everything.
    pub(super) fn is_sent(&self) -> bool {
        !self.unsent
    }

    /// The next answer: id, and bytes or a negative errno.
    pub(super) fn answer(&mut self) -> Option<(u64, i32)> {
        let e = self.ring.completion().next()?;
        self.in_flight -= 1;
        Some((e.user_data(), e.result()))
    }

    pub(super) fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Waits for an answer.
    pub(super) fn wait(&mut self) {
        if self.in_flight > 0 {
            let _ = self.ring.submit_and_wait(1);
            self.unsent = !self.ring.submission().is_empty();
        }
    }

    pub(super) fn fd(&self) -> RawFd {
        self.ring.as_raw_fd()
    }
}

/// The thread that wakes queues whose rings have answers. It exists once a queue was armed.
#[derive(Debug)]
pub(super) struct Bell {
    epoll: Arc<Epoll>,
    queues: Arc<Mutex<BTreeMap<u64, Weak<Mailbox>>>>,
    /// Rung to end the thread.
    end: File,
    thread: Mutex<Option<std::thread::JoinHandle<()>>>,
}

/// The id of `end`.
const END: u64 = u64::MAX;

impl Bell {
    pub(super) fn new() -> io::Result<Bell> {
        let (epoll, end) = (Arc::new(Epoll::new()?), eventfd()?);
        epoll.once(end.as_raw_fd(), END, true)?;
        Ok(Bell { epoll, queues: Arc::default(), end, thread: Mutex::default() })
    }

    /// A number for a queue.
    pub(super) fn join(&self, mailbox: &Arc<Mailbox>, ring: RawFd) -> io::Result<u64> {
        let mut queues = lock(&self.queues);
        let id = queues.keys().next_back().map_or(0, |id| id + 1);
        queues.insert(id, Arc::downgrade(mailbox));
        drop(queues);
        self.epoll.once(ring, id, true)?;
        Ok(id)
    }

    pub(super) fn leave(&self, id: u64) {
        lock(&self.queues).remove(&id);
    }

    /// Wakes the queue once its ring has an answer.
    pub(super) fn arm(&self, ring: RawFd, id: u64) -> bool {
        let mut thread = lock(&self.thread);
        if thread.is_none() {
            let (epoll, queues) = (self.epoll.clone(), self.queues.clone());
            let run = move || {
                loop {
                    match epoll.wait() {
                        Some(END) => return,
                        Some(id) => {
                            let mailbox = lock(&queues).get(&id).and_then(Weak::upgrade);
                            if let Some(m) = mailbox {
                                m.ring();
                            }
                        }
                        None => {}
                    }
                }
            };
            *thread = std::thread::Builder::new().name("zoneplug-bell".to_owned()).spawn(run).ok();
        }
        let runs = thread.is_some();
        drop(thread);
        runs && self.epoll.once(ring, id, false).is_ok()
    }
}

impl Drop for Bell {
    fn drop(&mut self) {
        let _ = (&self.end).write(&1u64.to_ne_bytes());
        if let Some(t) = lock(&self.thread).take() {
            let _ = t.join();
        }
    }
}
