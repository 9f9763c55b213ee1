//! The thread that wakes sleeping queues when their rings have answers, for owners that cannot sleep in poll(2)
//! themselves.

use super::sys::Epoll;
use crate::eventfd::eventfd;
use crate::threads::spawn;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::{Arc, Mutex, Weak};
use zoneplug_core::poison::lock;

/// A queue that may sleep.
pub(crate) trait Sleeper: Send + Sync {
    /// Wakes the queue's owner, if it is armed.
    fn ring(&self);
}

/// The thread that wakes queues when their rings have answers. The first queue that is armed starts it.
pub(crate) struct EpollWaker {
    epoll: Arc<Epoll>,
    queues: Arc<Mutex<BTreeMap<u64, Weak<dyn Sleeper>>>>,
    /// Raised to end the thread.
    end: File,
    thread: Mutex<Option<std::thread::JoinHandle<()>>>,
}

impl std::fmt::Debug for EpollWaker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EpollWaker").finish_non_exhaustive()
    }
}

/// The id of `end`.
const END: u64 = u64::MAX;

impl EpollWaker {
    pub(crate) fn new() -> io::Result<EpollWaker> {
        let (epoll, end) = (Arc::new(Epoll::new()?), eventfd()?);
        epoll.once(end.as_raw_fd(), END, true)?;
        Ok(EpollWaker { epoll, queues: Arc::default(), end, thread: Mutex::default() })
    }

    /// Watches `ring` for a queue, and returns an id for it.
    pub(crate) fn join<T: Sleeper + 'static>(
        &self,
        sleeper: &Arc<T>,
        ring: RawFd,
    ) -> io::Result<u64> {
        let mut queues = lock(&self.queues);
        let id = queues.keys().next_back().map_or(0, |id| id + 1);
        let sleeper: Weak<T> = Arc::downgrade(sleeper);
        queues.insert(id, sleeper);
        drop(queues);
        self.epoll.once(ring, id, true)?;
        Ok(id)
    }

    pub(crate) fn remove_queue(&self, id: u64) {
        lock(&self.queues).remove(&id);
    }

    /// Wakes the queue once its ring has an answer.
    pub(crate) fn arm(&self, ring: RawFd, id: u64) -> bool {
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
            // If the thread cannot be started, `arm` returns false, and the queue is polled instead.
            *thread = spawn("zoneplug-epoll", run).ok();
        }
        let runs = thread.is_some();
        drop(thread);
        runs && self.epoll.once(ring, id, false).is_ok()
    }
}

impl Drop for EpollWaker {
    fn drop(&mut self) {
        let _ = (&self.end).write(&1u64.to_ne_bytes());
        if let Some(t) = lock(&self.thread).take() {
            let _ = t.join();
        }
    }
}
