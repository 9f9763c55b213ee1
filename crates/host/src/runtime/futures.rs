//! The futures of an [`AsyncDisk`](crate::AsyncDisk), and the client that they share.
//!
//! The future that is polled *pumps* for all: it submits waiting operations, takes completions, wakes their futures
//! and arms the client again. A completion outside a poll wakes the futures of operations in flight, not those of
//! operations that wait for room.
//!
//! There are two locks. The state is locked while the client works. The wakers are locked for look-ups only, also
//! while the state is locked. No waker is called under either (I8): after unlocking the state, the thread calls the
//! deferred wakers, including the client's own.

use crate::callback::contain_panic;
use crate::runtime::client::Client;
use crate::runtime::deferred_wake::{DeferredWakes, wake_all};
use crate::runtime::latency::{Begun, Recorder};
use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Wake, Waker};
use zoneplug_buf::{AlignedBuf, IoBuf, Lent};
use zoneplug_core::poison::lock;
use zoneplug_core::{Bio, BioPool, Bios, Flags, Op, Sector, Status};

/// The result of an operation.
#[derive(Debug)]
pub(super) struct OpEnd {
    pub(super) status: Status,
    pub(super) sector: Sector,
    pub(super) result: u32,
    pub(super) buf: Option<AlignedBuf>,
}

/// An operation that was accepted.
#[derive(Debug, Default)]
struct AsyncSlot {
    /// The memory that the device uses until `end` is set.
    lent: Option<Lent>,
    /// The result, until the future takes it.
    end: Option<OpEnd>,
    /// The future was dropped: the result is discarded.
    given_up: bool,
    begun: Begun,
}

/// The state under the state lock.
#[derive(Debug)]
pub(super) struct AsyncState {
    pub(super) client: Client,
    /// Accepted, waiting for room.
    list: Bios,
    done: Bios,
    pool: BioPool,
    slots: HashMap<u64, AsyncSlot>,
    /// Slots without an end.
    pub(super) pending: usize,
    next_token: u64,
    pub(super) recorder: Recorder,
}

/// The client's waker: wakes the futures of an adapter.
#[derive(Debug)]
struct AsyncSignal {
    /// Something has finished since the last pump.
    kicked: AtomicBool,
    depth: usize,
    /// The wakers of futures, by token. Operations are sent in the order of their tokens, so the first ones are in
    /// flight.
    wakers: Mutex<BTreeMap<u64, Waker>>,
}

impl Wake for AsyncSignal {
    fn wake(self: Arc<Self>) {
        self.kicked.store(true, Ordering::Release);
        let first: Vec<Waker> = {
            let wakers = lock(&self.wakers);
            let first = wakers.values().take(self.depth);
            first.filter_map(|w| contain_panic(|| w.clone())).collect()
        };
        wake_all(first);
    }
}

#[derive(Debug)]
pub(super) struct AsyncShared {
    state: Mutex<AsyncState>,
    signal: Arc<AsyncSignal>,
    /// `signal` as a waker for the client.
    waker: Waker,
    /// The wakers that the engine has woken. They are called without a lock.
    deferred_wakes: Arc<DeferredWakes>,
}

impl AsyncShared {
    /// For a client with up to `depth` operations at the device.
    pub(super) fn new(mut client: Client, depth: u16) -> Arc<AsyncShared> {
        let deferred_wakes = client.defer_wakes();
        let state = AsyncState {
            client,
            list: Bios::new(),
            done: Bios::new(),
            pool: BioPool::default(),
            slots: HashMap::new(),
            pending: 0,
            next_token: 0,
            recorder: Recorder::default(),
        };
        let signal = Arc::new(AsyncSignal {
            kicked: AtomicBool::new(false),
            depth: usize::from(depth),
            wakers: Mutex::default(),
        });
        let waker = Waker::from(signal.clone());
        Arc::new(AsyncShared { state: Mutex::new(state), signal, waker, deferred_wakes })
    }

    pub(super) fn state(&self) -> MutexGuard<'_, AsyncState> {
        lock(&self.state)
    }

    /// Accepts an operation, and submits it if there is room.
    pub(super) fn begin(
        self: &Arc<AsyncShared>,
        op: Op,
        sector: Sector,
        len_sectors: u32,
        flags: Flags,
        buf: Option<AlignedBuf>,
    ) -> Pending {
        let mut guard = self.state();
        let state = &mut *guard;
        let token = state.next_token;
        state.next_token += 1;
        let (lent, io) = match buf.map(AlignedBuf::lend) {
            Some((lent, io)) => (Some(lent), io),
            None => (None, IoBuf::empty()),
        };
        state.slots.insert(
            token,
            AsyncSlot { lent, begun: state.recorder.begin(), ..AsyncSlot::default() },
        );
        state.pending += 1;
        let mut bio = state.pool.get();
        bio.set(op, sector, len_sectors, io);
        bio.flags = flags;
        bio.set_token(token);
        state.list.push_back(bio);
        state.client.submit(&mut state.list);
        drop(guard);
        self.deferred_wakes.call();
        Pending { shared: self.clone(), token, ended: false }
    }

    /// Runs the client, and leaves it armed if operations are pending. Returns wakers that the caller calls after it
    /// has released the lock.
    fn pump(&self, state: &mut AsyncState) -> Vec<Waker> {
        let mut wake = Vec::new();
        loop {
            self.signal.kicked.store(false, Ordering::Release);
            self.work(state, &mut wake);
            if state.pending == 0 {
                // The reactor need not run this client's queue.
                state.client.disarm();
                return wake;
            }
            if !state.client.arm(&self.waker) {
                continue;
            }
            // After arming, work is done once more: this sees completions and a thaw from before; later ones wake.
            if !self.work(state, &mut wake) {
                return wake;
            }
        }
    }

    /// Submits and polls once. Returns whether that changed anything.
    fn work(&self, state: &mut AsyncState, wake: &mut Vec<Waker>) -> bool {
        let mut changed = state.client.submit(&mut state.list) > 0;
        state.client.poll(&mut state.done);
        while let Some(bio) = state.done.pop_front() {
            changed = true;
            self.ended(state, bio, wake);
        }
        changed
    }

    fn ended(&self, state: &mut AsyncState, mut bio: Box<Bio>, wake: &mut Vec<Waker>) {
        let token = bio.token();
        // If the operation has ended already, a faulty device has made up one of the two BIOs.
        if let Some(slot) = state.slots.get_mut(&token).filter(|s| s.end.is_none()) {
            let lent = slot.lent.take();
            let moves = lent.is_some();
            let buf = state.client.reclaim(&mut bio, lent);
            state.pending -= 1;
            let status = match bio.status {
                // A BIO without its memory did not succeed: the device made up the BIO, or kept the memory.
                Status::Ok if moves && buf.is_none() => Status::Io,
                status => status,
            };
            if status.is_ok() && !slot.given_up {
                state.recorder.end(bio.op, slot.begun);
            }
            slot.end = Some(OpEnd { status, sector: bio.sector, result: bio.result, buf });
            if slot.given_up {
                state.slots.remove(&token);
            }
        }
        state.pool.put(bio);
        wake.extend(lock(&self.signal.wakers).remove(&token));
    }
}

impl Drop for AsyncState {
    fn drop(&mut self) {
        // BIOs that were never sent have their memory too.
        let back = self.done.drain(..).chain(self.list.drain(..));
        for mut bio in back {
            let lent = self.slots.get_mut(&bio.token()).and_then(|s| s.lent.take());
            drop(self.client.reclaim(&mut bio, lent));
        }
        let lent = std::mem::take(&mut self.slots);
        self.client.keep_lent(lent.into_values().filter_map(|s| s.lent));
    }
}

/// The future of one operation.
#[derive(Debug)]
pub(super) struct Pending {
    shared: Arc<AsyncShared>,
    token: u64,
    ended: bool,
}

impl Future for Pending {
    type Output = OpEnd;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<OpEnd> {
        assert!(!self.ended, "a future was polled after it was ready");
        let shared = self.shared.clone();
        let token = self.token;
        let mut state = shared.state();
        let (mut first, mut old) = (false, None);
        if state.slots.get(&token).is_none_or(|s| s.end.is_none()) {
            let mine = cx.waker().clone();
            // A waker may hold the last reference to a task, and thus futures of this adapter, so none is dropped
            // under a lock.
            old = lock(&shared.signal.wakers).insert(token, mine);
            first = old.is_none();
        }
        let mut wake = Vec::new();
        if first || shared.signal.kicked.load(Ordering::Acquire) {
            wake = shared.pump(&mut state);
        }
        let end = state.slots.get_mut(&token).and_then(|s| s.end.take());
        if end.is_some() {
            state.slots.remove(&token);
        }
        drop(state);
        wake_all(wake);
        shared.deferred_wakes.call();
        contain_panic(|| drop(old));
        match end {
            Some(end) => {
                self.ended = true;
                Poll::Ready(end)
            }
            None => Poll::Pending,
        }
    }
}

impl Drop for Pending {
    /// Never blocks. The buffer stays in its slot until the device is done with it.
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        let old = lock(&self.shared.signal.wakers).remove(&self.token);
        let mut guard = self.shared.state();
        let state = &mut *guard;
        if let Some(i) = state.list.iter().position(|b| b.token() == self.token) {
            // The operation was never sent.
            let lent = state.slots.remove(&self.token).and_then(|s| s.lent);
            if let Some(mut bio) = state.list.remove(i) {
                drop(state.client.reclaim(&mut bio, lent));
                state.pool.put(bio);
            }
            state.pending -= 1;
        } else if let Some(slot) = state.slots.get_mut(&self.token) {
            if slot.end.is_some() {
                state.slots.remove(&self.token);
            } else {
                slot.given_up = true;
            }
        }
        // This future may have been the one that was woken. The others must not wait for its poll.
        let wake = self.shared.pump(state);
        drop(guard);
        wake_all(wake);
        self.shared.deferred_wakes.call();
        contain_panic(|| drop(old));
    }
}
