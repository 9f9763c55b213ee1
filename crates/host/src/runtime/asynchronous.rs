//! The async adapter: any number of operations at a time as futures, buffers by value.
//!
//! It needs no particular executor: std's wakers are all it knows. The futures of an [`AsyncDisk`] share one
//! [`Client`]. The one that is polled does the work for all (*pumps*): it submits the operations that wait, takes
//! completions, wakes their futures and arms the client again. A completion outside a poll wakes the futures of the
//! operations in flight, not those of the operations that wait for room.
//!
//! Two locks, never one inside the other's callbacks: the state, held while the client works, and the wakers, held for
//! a look-up only. The client's waker may be called by a thread that has the state locked, so it takes the second one
//! only.

use crate::callback::contain_panic;
use crate::runtime::batch::{read_buf, whole_sectors};
use crate::runtime::blocking::{ZONES_PER_REPORT, decode_zones, gather};
use crate::runtime::client::Client;
use crate::runtime::deferred_wake::wake_all;
use crate::runtime::hosted::HostedDisk;
use crate::runtime::io_error::IoError;
use crate::runtime::latency::{Begun, Recorder};
use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::io::IoSlice;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use zoneplug_buf::{AlignedBuf, IoBuf, Lent};
use zoneplug_core::poison::lock;
use zoneplug_core::zone::{Geometry, ZONE_RECORD_LEN, ZoneInfo};
use zoneplug_core::{Bio, BioPool, Bios, Error, Flags, Op, Sector, Status, ZoneNo};

/// A client whose operations are futures. Clones share it. Addresses and lengths are in sectors of 512 bytes; those of data are
/// multiples of the disk's block. A buffer comes back from an operation, also from one that fails: [`IoError::into_buf`].
///
/// An operation is accepted with the call, not with the first poll: calls in a row are in that order, which is what
/// writes to one zone want. A future that was polled must be polled on when it is woken, or dropped. One that is
/// dropped gives its operation up without an answer; the buffer is kept until the device is done with it, whatever
/// happens to the adapter meanwhile. So is that of an operation that ends before the device is done (a command's deadline,
/// a device that panics): see [`HostedDisk::withheld`].
///
/// ```
/// use zoneplug_host::{AsyncDisk, HostedDisk};
/// use zoneplug_buf::AlignedBuf;
/// use zoneplug_core::Sector;
///
/// async fn hello(disk: &HostedDisk) -> Vec<u8> {
///     let io = AsyncDisk::new(disk, 16).unwrap();
///     let mut buf = AlignedBuf::zeroed(4096);
///     buf.write(0, b"hello");
///     let (first, second) = (io.append(Sector(0), buf), io.append(Sector(0), AlignedBuf::zeroed(4096)));
///     let (at, _buf) = first.await.unwrap();
///     assert_eq!(second.await.unwrap().0, at.plus(8));
///     io.read(at, 8).await.unwrap().to_vec()
/// }
/// let disk = HostedDisk::open_spec("mem,zones=4,zone-size=1M").unwrap();
/// # use std::{future::Future, pin::pin, task::{Context, Waker}};
/// # let mut future = pin!(hello(&disk));
/// # let data = loop {
/// #     if let std::task::Poll::Ready(d) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) { break d }
/// # };
/// assert_eq!(&data[..5], b"hello");
/// ```
#[derive(Debug, Clone)]
pub struct AsyncDisk {
    inner: Arc<Inner>,
}

impl AsyncDisk {
    /// A new client of `disk` with up to `depth` operations at the device; more wait in order.
    pub fn new(disk: &HostedDisk, depth: u16) -> Result<AsyncDisk, Error> {
        let client = disk.open_client(u32::from(depth), depth)?;
        let state = State {
            client,
            list: Bios::new(),
            done: Bios::new(),
            pool: BioPool::default(),
            slots: HashMap::new(),
            pending: 0,
            next_token: 0,
            recorder: Recorder::default(),
        };
        let signal = Arc::new(Signal {
            kicked: AtomicBool::new(false),
            depth: usize::from(depth),
            wakers: Mutex::default(),
        });
        let waker = Waker::from(signal.clone());
        Ok(AsyncDisk { inner: Arc::new(Inner { state: Mutex::new(state), signal, waker }) })
    }

    /// Begins or ends to record how long operations take. An operation is recorded if this was on when it was submitted.
    #[cfg(feature = "latency")]
    pub fn record_latency(&self, on: bool) {
        lock(&self.inner.state).recorder.switch(on);
    }

    /// How long operations took while [`record_latency`](AsyncDisk::record_latency) was on.
    #[cfg(feature = "latency")]
    pub fn latencies(&self) -> crate::Latencies {
        lock(&self.inner.state).recorder.latencies.clone()
    }

    /// The layout of zones, as it is now.
    pub fn geometry(&self) -> Geometry {
        lock(&self.inner.state).client.geometry()
    }

    /// Reads `len_sectors` at `sector` into a new buffer.
    pub fn read(
        &self,
        sector: Sector,
        len_sectors: u64,
    ) -> impl Future<Output = Result<AlignedBuf, IoError>> + Send + use<> {
        let begun = read_buf(len_sectors)
            .map_err(|status| IoError::new(Op::Read, sector, status))
            .map(|buf| self.with_buf(Op::Read, sector, Flags::NONE, buf));
        async move { begun?.await.map(|(_, buf)| buf) }
    }

    /// Fills `bytes` with what is at `sector`. They are as they were if it fails, or the future is dropped.
    pub fn read_into<'a>(
        &self,
        sector: Sector,
        bytes: &'a mut [u8],
    ) -> impl Future<Output = Result<(), IoError>> + Send + use<'a> {
        let begun = u32::try_from(bytes.len())
            .map_err(|_| IoError::new(Op::Read, sector, Status::OutOfRange))
            .map(|len| self.with_buf(Op::Read, sector, Flags::NONE, AlignedBuf::zeroed(len)));
        async move {
            let (_, buf) = begun?.await?;
            bytes.copy_from_slice(buf.as_slice());
            Ok(())
        }
    }

    /// Writes `buf` at `sector`, which must be the write pointer of a sequential zone once the writes accepted before
    /// are done. The buffer comes back.
    pub fn write(
        &self,
        sector: Sector,
        buf: AlignedBuf,
    ) -> impl Future<Output = Result<AlignedBuf, IoError>> + Send + use<> {
        let op = self.with_buf(Op::Write, sector, Flags::NONE, buf);
        async { op.await.map(|(_, buf)| buf) }
    }

    /// As [`AsyncDisk::write`], with a copy of `bytes` that is made now.
    pub fn write_from(
        &self,
        sector: Sector,
        bytes: &[u8],
    ) -> impl Future<Output = Result<(), IoError>> + Send + use<> {
        self.write_vectored(sector, &[IoSlice::new(bytes)])
    }

    /// As [`AsyncDisk::write`], with a copy of several pieces one behind the other that is made now. Together they are whole
    /// blocks; each may have any length.
    pub fn write_vectored(
        &self,
        sector: Sector,
        pieces: &[IoSlice<'_>],
    ) -> impl Future<Output = Result<(), IoError>> + Send + use<> {
        let begun = gather(Op::Write, sector, pieces).map(|buf| self.write(sector, buf));
        async move { begun?.await.map(drop) }
    }

    /// As [`AsyncDisk::write`], and durable when it is ready.
    pub fn write_fua(
        &self,
        sector: Sector,
        buf: AlignedBuf,
    ) -> impl Future<Output = Result<AlignedBuf, IoError>> + Send + use<> {
        let op = self.with_buf(Op::Write, sector, Flags::FUA, buf);
        async { op.await.map(|(_, buf)| buf) }
    }

    /// Writes `buf` wherever the write pointer of the zone that starts at `zone_start` is, and says where that was.
    pub fn append(
        &self,
        zone_start: Sector,
        buf: AlignedBuf,
    ) -> impl Future<Output = Result<(Sector, AlignedBuf), IoError>> + Send + use<> {
        self.with_buf(Op::ZoneAppend, zone_start, Flags::NONE, buf)
    }

    /// As [`AsyncDisk::append`], with a copy of `bytes` that is made now.
    pub fn append_from(
        &self,
        zone_start: Sector,
        bytes: &[u8],
    ) -> impl Future<Output = Result<Sector, IoError>> + Send + use<> {
        self.append_vectored(zone_start, &[IoSlice::new(bytes)])
    }

    /// As [`AsyncDisk::append`], with a copy of several pieces one behind the other that is made now.
    pub fn append_vectored(
        &self,
        zone_start: Sector,
        pieces: &[IoSlice<'_>],
    ) -> impl Future<Output = Result<Sector, IoError>> + Send + use<> {
        let begun =
            gather(Op::ZoneAppend, zone_start, pieces).map(|buf| self.append(zone_start, buf));
        async move { begun?.await.map(|(at, _)| at) }
    }

    /// Makes durable what was acknowledged.
    pub fn flush(&self) -> impl Future<Output = Result<(), IoError>> + Send + use<> {
        self.plain(Op::Flush, Sector(0), 0)
    }

    /// Forgets the data of a range of conventional zones.
    pub fn discard(
        &self,
        sector: Sector,
        len_sectors: u64,
    ) -> impl Future<Output = Result<(), IoError>> + Send + use<> {
        self.plain(Op::Discard, sector, len_sectors)
    }

    /// Management of the zones of a range: `op` is reset, reset of all zones, finish, open or close.
    pub fn manage(
        &self,
        op: Op,
        sector: Sector,
        len_sectors: u64,
    ) -> impl Future<Output = Result<(), IoError>> + Send + use<> {
        let begun = match op.is_zone_management() {
            true => Ok(self.plain(op, sector, len_sectors)),
            false => Err(IoError::new(op, sector, Status::NotSupported)),
        };
        async move { begun?.await }
    }

    /// Empties the zones of a range.
    pub fn reset(
        &self,
        sector: Sector,
        len_sectors: u64,
    ) -> impl Future<Output = Result<(), IoError>> + Send + use<> {
        self.plain(Op::ZoneReset, sector, len_sectors)
    }

    /// Makes the zones of a range full.
    pub fn finish(
        &self,
        sector: Sector,
        len_sectors: u64,
    ) -> impl Future<Output = Result<(), IoError>> + Send + use<> {
        self.plain(Op::ZoneFinish, sector, len_sectors)
    }

    /// Opens the zones of a range, which count against the limit of open zones until they are closed or full.
    pub fn open_zones(
        &self,
        sector: Sector,
        len_sectors: u64,
    ) -> impl Future<Output = Result<(), IoError>> + Send + use<> {
        self.plain(Op::ZoneOpen, sector, len_sectors)
    }

    /// Closes the open zones of a range.
    pub fn close_zones(
        &self,
        sector: Sector,
        len_sectors: u64,
    ) -> impl Future<Output = Result<(), IoError>> + Send + use<> {
        self.plain(Op::ZoneClose, sector, len_sectors)
    }

    /// Up to `nr` zones from the one that holds `sector`, as the device reports them.
    pub fn report(
        &self,
        sector: Sector,
        nr: u32,
    ) -> impl Future<Output = Result<Vec<ZoneInfo>, IoError>> + Send + use<> {
        report(self.clone(), sector, nr, Flags::NONE)
    }

    /// A report that also corrects what the layer knows of idle zones, after something else has changed them.
    pub fn resync(
        &self,
        sector: Sector,
        nr: u32,
    ) -> impl Future<Output = Result<Vec<ZoneInfo>, IoError>> + Send + use<> {
        report(self.clone(), sector, nr, Flags::RESYNC)
    }

    /// One zone, as the device reports it. A device that reports none is an error.
    pub fn zone(
        &self,
        zone: ZoneNo,
    ) -> impl Future<Output = Result<ZoneInfo, IoError>> + Send + use<> {
        let sector = self.geometry().zone_start(zone);
        let zones = self.report(sector, 1);
        let none = IoError::new(Op::ReportZones, sector, Status::Io);
        async move { zones.await?.first().copied().ok_or(none) }
    }

    /// Operations that were accepted and have not ended, those that were given up among them.
    pub fn outstanding(&self) -> usize {
        lock(&self.inner.state).pending
    }

    fn with_buf(
        &self,
        op: Op,
        sector: Sector,
        flags: Flags,
        buf: AlignedBuf,
    ) -> impl Future<Output = Result<(Sector, AlignedBuf), IoError>> + Send + use<> {
        let begun = match whole_sectors(&buf) {
            Ok(len) => Ok(self.inner.begin(op, sector, len, flags, Some(buf))),
            Err(status) => Err(IoError::new(op, sector, status).with_buf(Some(buf))),
        };
        async move {
            let end = begun?.await;
            match end.buf {
                Some(buf) if end.status.is_ok() => Ok((end.sector, buf)),
                // Done, but without what was lent.
                None if end.status.is_ok() => Err(IoError::new(op, sector, Status::Io)),
                buf => Err(IoError::new(op, sector, end.status).with_buf(buf)),
            }
        }
    }

    fn plain(
        &self,
        op: Op,
        sector: Sector,
        len_sectors: u64,
    ) -> impl Future<Output = Result<(), IoError>> + Send + use<> {
        let begun = u32::try_from(len_sectors)
            .map_err(|_| IoError::new(op, sector, Status::OutOfRange))
            .map(|len| self.inner.begin(op, sector, len, Flags::NONE, None));
        async move {
            match begun?.await.status {
                Status::Ok => Ok(()),
                status => Err(IoError::new(op, sector, status)),
            }
        }
    }
}

async fn report(
    disk: AsyncDisk,
    mut sector: Sector,
    nr: u32,
    flags: Flags,
) -> Result<Vec<ZoneInfo>, IoError> {
    let op = Op::ReportZones;
    let mut zones: Vec<ZoneInfo> = Vec::new();
    while (zones.len() as u32) < nr {
        let ask = (nr - zones.len() as u32).min(ZONES_PER_REPORT);
        let buf = AlignedBuf::zeroed(ask * ZONE_RECORD_LEN as u32);
        let end = disk.inner.begin(op, sector, 0, flags, Some(buf)).await;
        let next = match end.status {
            Status::Ok => decode_zones(end.buf, end.result, ask, &mut zones),
            // The end of the disk.
            Status::OutOfRange if !zones.is_empty() => break,
            status => Err(status),
        };
        match next.map_err(|status| IoError::new(op, sector, status))? {
            Some(next) => sector = next,
            None => break,
        }
    }
    Ok(zones)
}

/// How an operation ended.
#[derive(Debug)]
struct End {
    status: Status,
    sector: Sector,
    result: u32,
    buf: Option<AlignedBuf>,
}

/// An operation that was accepted.
#[derive(Debug, Default)]
struct Slot {
    /// The memory that the device uses until `end` is there.
    lent: Option<Lent>,
    /// It has ended, and its future has not looked yet.
    end: Option<End>,
    /// Its future was dropped: its result is discarded.
    given_up: bool,
    begun: Begun,
}

/// What is used under the state lock.
#[derive(Debug)]
struct State {
    client: Client,
    /// Accepted, waiting for room.
    list: Bios,
    done: Bios,
    pool: BioPool,
    slots: HashMap<u64, Slot>,
    /// Slots without an end.
    pending: usize,
    next_token: u64,
    recorder: Recorder,
}

/// What the client's waker reaches.
#[derive(Debug)]
struct Signal {
    /// Something has finished since the last pump.
    kicked: AtomicBool,
    depth: usize,
    /// By token. Operations are sent in the order of their tokens, so the first ones are those in flight.
    wakers: Mutex<BTreeMap<u64, Waker>>,
}

impl Wake for Signal {
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
struct Inner {
    state: Mutex<State>,
    signal: Arc<Signal>,
    /// `signal`, as the client wants it.
    waker: Waker,
}

impl Inner {
    fn begin(
        self: &Arc<Inner>,
        op: Op,
        sector: Sector,
        len_sectors: u32,
        flags: Flags,
        buf: Option<AlignedBuf>,
    ) -> Pending {
        let mut state = lock(&self.state);
        let state = &mut *state;
        let token = state.next_token;
        state.next_token += 1;
        let (lent, io) = match buf.map(AlignedBuf::lend) {
            Some((lent, io)) => (Some(lent), io),
            None => (None, IoBuf::empty()),
        };
        state.slots.insert(token, Slot { lent, begun: state.recorder.begin(), ..Slot::default() });
        state.pending += 1;
        let mut bio = state.pool.get();
        bio.set(op, sector, len_sectors, io);
        bio.flags = flags;
        bio.set_token(token);
        state.list.push_back(bio);
        state.client.submit(&mut state.list);
        Pending { inner: self.clone(), token, ended: false }
    }

    /// Does what there is to do, and leaves the client armed if something is pending. Returns the wakers that the
    /// caller calls after it has released the lock.
    fn pump(&self, state: &mut State) -> Vec<Waker> {
        let mut wake = Vec::new();
        loop {
            self.signal.kicked.store(false, Ordering::Release);
            self.work(state, &mut wake);
            if state.pending == 0 {
                // The reactor need not look after this client.
                state.client.disarm();
                return wake;
            }
            if !state.client.arm(&self.waker) {
                continue;
            }
            // Once more, after arming: what finished before is seen here, what finishes later wakes. So for a thaw.
            if !self.work(state, &mut wake) {
                return wake;
            }
        }
    }

    /// Submits and polls once. Returns whether that changed anything.
    fn work(&self, state: &mut State, wake: &mut Vec<Waker>) -> bool {
        let mut changed = state.client.submit(&mut state.list) > 0;
        state.client.poll(&mut state.done);
        while let Some(bio) = state.done.pop_front() {
            changed = true;
            self.ended(state, bio, wake);
        }
        changed
    }

    fn ended(&self, state: &mut State, mut bio: Box<Bio>, wake: &mut Vec<Waker>) {
        let token = bio.token();
        // One that has ended already did so by a BIO that a faulty device made up.
        if let Some(slot) = state.slots.get_mut(&token).filter(|s| s.end.is_none()) {
            let lent = slot.lent.take();
            let moves = lent.is_some();
            let buf = state.client.reclaim(&mut bio, lent);
            state.pending -= 1;
            let status = match bio.status {
                // Without its memory it is not that operation: the device made up the BIO, or kept the memory.
                Status::Ok if moves && buf.is_none() => Status::Io,
                status => status,
            };
            if status.is_ok() && !slot.given_up {
                state.recorder.end(bio.op, slot.begun);
            }
            slot.end = Some(End { status, sector: bio.sector, result: bio.result, buf });
            if slot.given_up {
                state.slots.remove(&token);
            }
        }
        state.pool.put(bio);
        wake.extend(lock(&self.signal.wakers).remove(&token));
    }
}

impl Drop for State {
    fn drop(&mut self) {
        // What was never sent is back too.
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
struct Pending {
    inner: Arc<Inner>,
    token: u64,
    ended: bool,
}

impl Future for Pending {
    type Output = End;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<End> {
        assert!(!self.ended, "a future was polled after it was ready");
        let inner = self.inner.clone();
        let token = self.token;
        let mut state = lock(&inner.state);
        let (mut first, mut old) = (false, None);
        if state.slots.get(&token).is_none_or(|s| s.end.is_none()) {
            let mine = cx.waker().clone();
            // A waker may be the last thing that holds a task, and with it futures of this adapter: none is dropped
            // under a lock.
            old = lock(&inner.signal.wakers).insert(token, mine);
            first = old.is_none();
        }
        let mut wake = Vec::new();
        if first || inner.signal.kicked.load(Ordering::Acquire) {
            wake = inner.pump(&mut state);
        }
        let end = state.slots.get_mut(&token).and_then(|s| s.end.take());
        if end.is_some() {
            state.slots.remove(&token);
        }
        drop(state);
        wake_all(wake);
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
        let old = lock(&self.inner.signal.wakers).remove(&self.token);
        let mut guard = lock(&self.inner.state);
        let state = &mut *guard;
        if let Some(i) = state.list.iter().position(|b| b.token() == self.token) {
            // Never sent.
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
        // This future may have been the one that was woken: the others must not wait for it.
        let wake = self.inner.pump(state);
        drop(guard);
        wake_all(wake);
        contain_panic(|| drop(old));
    }
}
