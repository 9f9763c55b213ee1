//! Decides which client does the work. Clients queue requests, and a client that is polled works
//! for all.
//!
//! The log owns a future that works on one group of requests. A polled client polls this future. If
//! a client is dropped in the middle, the next one continues. All sleeping clients are woken when
//! the I/O of the group makes progress, so a client that is dropped or no longer polled delays no
//! other. Requests that arrive meanwhile form the next group: one write, one flush.

use super::io::Io;
use super::shared::{Ask, Outcome, Shared};
use super::{lock, writer};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, TryLockError};
use std::task::{Context, Poll, Waker};

/// The handles of a log. Dropping the last one drops work in progress: no client waits for it.
pub(super) struct Handle<I>(pub(super) Arc<Shared<I>>);

impl<I> Drop for Handle<I> {
    fn drop(&mut self) {
        let work = lock(&self.0.work).take();
        drop(work);
    }
}

impl<I: Io> Shared<I> {
    /// Works until nothing is left to do, `id` has its answer, or the work has to wait.
    fn run(self: &Arc<Self>, id: u64) {
        let waker = Waker::from(self.sleepers.clone());
        let mut cx = Context::from_waker(&waker);
        let mut work = lock(&self.work);
        while !self.is_answered(id) {
            // Taken out while it is polled: if it panics, it is not polled again.
            let mut now = match work.take() {
                Some(now) => now,
                None => match self.take_group() {
                    Some((group, requests)) => Box::pin(writer::run(self.clone(), group, requests)),
                    None => return,
                },
            };
            if now.as_mut().poll(&mut cx).is_pending() {
                *work = Some(now);
                return;
            }
        }
    }

    /// Wakes the clients of requests that no work has taken, because the client that could have
    /// begun it has its own answer.
    fn hand_on(&self) {
        // A client at work hands on itself.
        let idle = match self.work.try_lock() {
            Ok(work) => work.is_none(),
            Err(TryLockError::Poisoned(work)) => work.into_inner().is_none(),
            Err(TryLockError::WouldBlock) => false,
        };
        if idle && !lock(&self.requests).list.is_empty() {
            self.sleepers.wake_all();
        }
    }
}

/// A request in progress.
pub(super) struct Waiting<I: Io> {
    handle: Arc<Handle<I>>,
    id: u64,
}

impl<I: Io> Waiting<I> {
    /// Queues `ask` behind earlier requests.
    pub(super) fn new(handle: &Arc<Handle<I>>, ask: Ask) -> Waiting<I> {
        let mut requests = lock(&handle.0.requests);
        let id = requests.next;
        requests.next += 1;
        requests.answers.insert(id, None);
        requests.list.push_back((id, ask));
        Waiting { handle: handle.clone(), id }
    }
}

impl<I: Io> Future for Waiting<I> {
    type Output = Outcome;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Outcome> {
        let shared = &self.handle.0;
        // Registered first, so that an answer that comes from now on wakes this task.
        shared.sleepers.insert(self.id, cx.waker());
        shared.run(self.id);
        let answer = lock(&shared.requests).answers.get_mut(&self.id).and_then(Option::take);
        match answer {
            Some(outcome) => {
                shared.hand_on();
                Poll::Ready(outcome)
            }
            None => Poll::Pending,
        }
    }
}

impl<I: Io> Drop for Waiting<I> {
    fn drop(&mut self) {
        let shared = &self.handle.0;
        let mut requests = lock(&shared.requests);
        requests.answers.remove(&self.id);
        requests.list.retain(|(id, _)| *id != self.id);
        drop(requests);
        shared.sleepers.remove(self.id);
    }
}
