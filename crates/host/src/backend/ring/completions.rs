//! Collects the answers of one queue, and lets the queue's owner sleep until there is one. Answers come from the queue's
//! ring, if it has one, and from its mailbox, into which threads put theirs. The queues of drives and of durable files
//! use this.

use super::{EpollWaker, Mailbox, Ring, RingCqe};
use io_uring::{cqueue, squeue};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;
use std::time::Duration;

/// How long a waiting thread sleeps before it looks for answers of threads again.
const MOMENT: Duration = Duration::from_micros(50);

/// The answer to an operation.
#[derive(Debug)]
pub(crate) enum Reply<A> {
    /// The ring has answered. `result` is a number of bytes, a status or a negative errno; only large entries have
    /// `extra`.
    Ring { result: i32, extra: u64 },
    /// A thread has answered.
    Worked(A),
}

/// The answers of one queue, from its ring and from threads.
#[derive(Debug)]
pub(crate) struct Completions<A, S = squeue::Entry, C = cqueue::Entry>
where
    A: Send + 'static,
    S: squeue::EntryMarker,
    C: RingCqe,
{
    ring: Option<Ring<S, C>>,
    /// The thread that watches the ring while the owner sleeps, and this queue's id there.
    epoll_waker: Option<(Arc<EpollWaker>, u64)>,
    mailbox: Arc<Mailbox<A>>,
    /// Answers that were taken from the mailbox, for the next calls of `next`.
    answers: VecDeque<(u32, A)>,
    /// A thread has panicked while it had a job of this queue. The job is never answered.
    broken: bool,
}

impl<A: Send + 'static, S: squeue::EntryMarker, C: RingCqe> Completions<A, S, C> {
    /// A queue with a mailbox alone.
    pub(crate) fn new(waker: Waker) -> Completions<A, S, C> {
        Completions {
            ring: None,
            epoll_waker: None,
            mailbox: Mailbox::new(waker),
            answers: VecDeque::new(),
            broken: false,
        }
    }

    /// Adds a ring, which `epoll_waker` watches.
    pub(crate) fn with_ring(
        mut self,
        ring: Ring<S, C>,
        epoll_waker: &Arc<EpollWaker>,
    ) -> io::Result<Self> {
        self.epoll_waker = Some((epoll_waker.clone(), epoll_waker.join(&self.mailbox, ring.fd())?));
        self.ring = Some(ring);
        Ok(self)
    }

    pub(crate) fn ring(&mut self) -> Option<&mut Ring<S, C>> {
        self.ring.as_mut()
    }

    pub(crate) fn mailbox(&self) -> &Arc<Mailbox<A>> {
        &self.mailbox
    }

    /// Submits the operations that were begun to the kernel.
    pub(crate) fn send(&mut self) {
        if let Some(ring) = &mut self.ring {
            ring.send();
        }
    }

    /// Returns the next answer that has come, and the slot of its operation.
    pub(crate) fn next(&mut self) -> Option<(u32, Reply<A>)> {
        if let Some(a) = self.ring.as_mut().and_then(Ring::answer) {
            return Some((a.id as u32, Reply::Ring { result: a.result, extra: a.extra }));
        }
        if self.answers.is_empty() && self.mailbox.take(&mut self.answers) {
            self.broken |= self.mailbox.is_broken();
        }
        self.answers.pop_front().map(|(i, answer)| (i, Reply::Worked(answer)))
    }

    /// Whether a job of this queue is never answered, because its thread has panicked.
    pub(crate) fn is_broken(&self) -> bool {
        self.broken
    }

    /// Whether a thread has answered.
    pub(crate) fn is_full(&self) -> bool {
        self.mailbox.is_full()
    }

    /// Whether the owner sleeps until the next answer.
    pub(crate) fn is_armed(&self) -> bool {
        self.mailbox.is_armed()
    }

    /// Lets the next answer wake the owner. Wakes the owner at once if `ready`, if an answer has come, or if the ring cannot
    /// be watched.
    pub(crate) fn arm(&mut self, mut ready: bool) {
        if let (Some(ring), Some((epoll_waker, id))) = (&mut self.ring, &self.epoll_waker) {
            ring.send();
            // The mailbox is armed before the ring is watched: an answer of the ring wakes the owner only through an armed
            // mailbox.
            self.mailbox.arm(false);
            ready |= ring.in_flight() > 0 && !epoll_waker.arm(ring.fd(), *id);
        }
        self.mailbox.arm(ready);
    }

    /// Returns the ring's descriptor, on which the owner can sleep if all of its `in_flight` operations are on the ring.
    pub(crate) fn arm_fd(&mut self, in_flight: usize) -> Option<i32> {
        let ring = self.ring.as_mut()?;
        if self.mailbox.is_full() || in_flight == 0 || ring.in_flight() as usize != in_flight {
            return None;
        }
        ring.send();
        // An entry that the kernel has not taken will have no completion, so the descriptor would not report it.
        ring.is_sent().then(|| ring.fd())
    }

    /// Waits for an answer of the ring. Without a ring, waits a moment for an answer of a thread.
    pub(crate) fn wait(&mut self) {
        match &mut self.ring {
            Some(ring) if ring.in_flight() > 0 => ring.wait(),
            _ => std::thread::sleep(MOMENT),
        }
    }
}

impl<A: Send + 'static, S: squeue::EntryMarker, C: RingCqe> Drop for Completions<A, S, C> {
    /// Waits for the threads that have a job of this queue, because they use its memory. (The ring's drop waits for the
    /// kernel.) Such threads exist only if a panic has cut the queue's own drop short.
    fn drop(&mut self) {
        if let Some((epoll_waker, id)) = &self.epoll_waker {
            epoll_waker.remove_queue(*id);
        }
        // Each job refers to the mailbox.
        while Arc::strong_count(&self.mailbox) > 1 {
            std::thread::sleep(MOMENT);
        }
        std::sync::atomic::fence(Ordering::Acquire);
    }
}
