//! Which client writes: clients put requests into a list, and any of them that is polled works for all.
//!
//! One group of requests is worked on at a time, as a future that the log owns. A client that is polled works on it; one
//! that goes away in the middle leaves it to the next. When its I/O gets on, all clients that sleep are woken: a client that
//! is dropped, or not polled any more, delays no other. Requests that come in meanwhile are the next group: one write, one
//! flush.

use super::io::Io;
use super::table::Table;
use super::{LogAddress, LogError, lock, writer};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, TryLockError};
use std::task::{Context, Poll, Wake, Waker};
use zoneplug_core::ZoneNo;

/// What a client asks for.
#[derive(Debug)]
pub(super) enum Ask {
    /// Records to append. `sync`: durable when it is answered.
    Append {
        records: Vec<Vec<u8>>,
        sync: bool,
    },
    Sync,
    /// Zones with older records only are reset.
    Trim(LogAddress),
    ResetOldest,
}

/// What it gets.
#[derive(Debug)]
pub(super) enum Answer {
    Addresses(Vec<LogAddress>),
    Zones(Vec<ZoneNo>),
}

/// A request and its number.
pub(super) type Request = (u64, Ask);
type Outcome = Result<Answer, LogError>;
type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

#[derive(Debug, Default)]
struct Requests {
    next: u64,
    list: VecDeque<Request>,
    /// Of those whose clients are still there.
    answers: HashMap<u64, Option<Outcome>>,
}

/// The clients that sleep.
#[derive(Debug, Default)]
struct Sleepers(Mutex<BTreeMap<u64, Waker>>);

impl Sleepers {
    fn wake_one(&self, id: u64) {
        let waker = lock(&self.0).get(&id).cloned();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn wake_all(&self) {
        let wakers: Vec<Waker> = lock(&self.0).values().cloned().collect();
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl Wake for Sleepers {
    fn wake(self: Arc<Self>) {
        self.wake_all();
    }
}

/// What the handles of a log share.
pub(super) struct Shared<I> {
    pub(super) io: I,
    pub(super) table: Mutex<Table>,
    requests: Mutex<Requests>,
    sleepers: Arc<Sleepers>,
    work: Mutex<Option<Work>>,
}

/// The handles of a log. When the last one goes, so does work in the middle: no client waits for it.
pub(super) struct Handle<I>(pub(super) Arc<Shared<I>>);

impl<I> Drop for Handle<I> {
    fn drop(&mut self) {
        let work = lock(&self.0.work).take();
        drop(work);
    }
}

/// The requests of a group. Those that have no answer when it goes are aborted.
pub(super) struct Group<I: Io> {
    shared: Arc<Shared<I>>,
    open: Vec<u64>,
}

impl<I: Io> Group<I> {
    pub(super) fn answer(&mut self, id: u64, outcome: Outcome) {
        self.open.retain(|i| *i != id);
        if let Some(place) = lock(&self.shared.requests).answers.get_mut(&id) {
            *place = Some(outcome);
        }
        self.shared.sleepers.wake_one(id);
    }
}

impl<I: Io> Drop for Group<I> {
    fn drop(&mut self) {
        for id in std::mem::take(&mut self.open) {
            // What was on its way may have been written.
            lock(&self.shared.table).suspect = true;
            self.answer(id, Err(LogError::Aborted));
        }
    }
}

impl<I: Io> Shared<I> {
    pub(super) fn new(io: I, table: Table) -> Shared<I> {
        Shared {
            io,
            table: Mutex::new(table),
            requests: Mutex::default(),
            sleepers: Arc::default(),
            work: Mutex::default(),
        }
    }

    /// The next group: appends and syncs that stand together, or one request of another kind.
    fn take_group(self: &Arc<Self>) -> Option<(Group<I>, Vec<Request>)> {
        let mut requests = lock(&self.requests);
        let mut taken = Vec::new();
        let mut bytes = 0;
        while let Some((_, ask)) = requests.list.front() {
            let len = match ask {
                Ask::Append { records, .. } => records.iter().map(Vec::len).sum(),
                Ask::Sync => 0,
                _ if taken.is_empty() => usize::MAX,
                _ => break,
            };
            if !taken.is_empty() && bytes + len > writer::BATCH {
                break;
            }
            bytes = len.saturating_add(bytes);
            taken.extend(requests.list.pop_front());
            if len == usize::MAX {
                break;
            }
        }
        drop(requests);
        let open = taken.iter().map(|(id, _)| *id).collect();
        (!taken.is_empty()).then(|| (Group { shared: self.clone(), open }, taken))
    }

    /// Works until nothing is left to do, `id` has its answer, or it has to wait.
    fn run(self: &Arc<Self>, id: u64) {
        let waker = Waker::from(self.sleepers.clone());
        let mut cx = Context::from_waker(&waker);
        let mut work = lock(&self.work);
        while !self.is_answered(id) {
            // Out of its place while it is polled: if it panics, it is not polled again.
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

    /// Wakes the clients of requests that no work has taken: the one that could have begun it has its own answer.
    fn hand_on(&self) {
        // A client that is at work hands on itself.
        let idle = match self.work.try_lock() {
            Ok(work) => work.is_none(),
            Err(TryLockError::Poisoned(work)) => work.into_inner().is_none(),
            Err(TryLockError::WouldBlock) => false,
        };
        if idle && !lock(&self.requests).list.is_empty() {
            self.sleepers.wake_all();
        }
    }

    fn is_answered(&self, id: u64) -> bool {
        lock(&self.requests).answers.get(&id).is_some_and(Option::is_some)
    }
}

/// A request that is on its way.
pub(super) struct Waiting<I: Io> {
    handle: Arc<Handle<I>>,
    id: u64,
}

impl<I: Io> Waiting<I> {
    /// Puts `ask` into the list, behind what is there.
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
        // First: an answer that comes from now on wakes this task.
        let old = lock(&shared.sleepers.0).insert(self.id, cx.waker().clone());
        drop(old);
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
        let old = lock(&shared.sleepers.0).remove(&self.id);
        drop(old);
    }
}
