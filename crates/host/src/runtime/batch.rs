//! Many operations at a time for a program without futures: it submits them, then waits for the next that ends.

use crate::runtime::client::Client;
use crate::runtime::hosted::HostedDisk;
use crate::runtime::io_error::IoError;
use crate::runtime::latency::{Begun, Recorder};
use std::collections::{HashMap, VecDeque};
use std::task::Waker;
use std::time::{Duration, Instant};
use zoneplug_buf::{AlignedBuf, IoBuf, Lent};
use zoneplug_core::{Bio, BioPool, Bios, Error, Flags, Op, Sector, Status};

/// The longest wait for an operation while the disk does not take all of them. A frozen disk with none in flight wakes the
/// batch itself.
const RECHECK_INTERVAL: Duration = Duration::from_millis(100);

/// How often a batch that waits for one operation asks the caller whether to give up.
const ASK: Duration = Duration::from_millis(50);

/// Identifies an operation of a [`Batch`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpId(u64);

/// An operation of a [`Batch`] has ended.
#[derive(Debug)]
#[non_exhaustive]
pub struct Completion {
    /// The id that the submitting call returned.
    pub id: OpId,
    /// The operation.
    pub op: Op,
    /// The outcome, or the error.
    pub result: Result<Done, IoError>,
}

/// The outcome of an operation.
#[derive(Debug)]
#[non_exhaustive]
pub struct Done {
    /// The sector of 512 bytes at which the operation began, or where an append landed.
    pub sector: Sector,
    /// The buffer that was written or read; operations that move no data have none.
    pub buf: Option<AlignedBuf>,
    /// The number of zones of a report.
    pub(crate) count: u32,
}

/// A client that has many operations at the disk at a time. Each call submits one and returns at once;
/// [`Batch::wait_any`] waits for the next one to end, in any order. The disk takes operations in the order of the
/// calls, as writes to one zone need.
///
/// Buffers go in by value and come back with the completion. The batch may be dropped at any time: operations in
/// flight continue, and a buffer is freed when the device is done with it.
///
/// ```
/// use zoneplug_host::{Batch, HostedDisk};
/// use zoneplug_buf::AlignedBuf;
/// use zoneplug_core::Sector;
///
/// let disk = HostedDisk::open_spec("mem,zones=4,zone-size=1M").unwrap();
/// let mut batch = Batch::new(&disk, 32).unwrap();
/// for n in 0..100 {
///     batch.append(Sector(0), AlignedBuf::from_slice(&[n; 4096]));
/// }
/// let mut landed = Vec::new();
/// while let Some(one) = batch.wait_any(None) {
///     let done = one.result.unwrap();
///     landed.push((done.sector, done.buf.unwrap().as_slice()[0]));
/// }
/// landed.sort();
/// assert_eq!((landed[0], landed[99]), ((Sector(0), 0), (Sector(99 * 8), 99)));
/// ```
#[derive(Debug)]
pub struct Batch {
    client: Client,
    pool: BioPool,
    /// Accepted, waiting for room, in order.
    list: Bios,
    done: Bios,
    /// The id that was given out last.
    last_id: u64,
    /// Operations that have not ended, at the device or in `list`.
    accepted: HashMap<u64, OpenOp>,
    /// Operations in `accepted` that were not given up.
    open: usize,
    ended: VecDeque<Completion>,
    recorder: Recorder,
}

/// An operation that has not ended.
#[derive(Debug)]
struct OpenOp {
    op: Op,
    sector: Sector,
    /// The memory that the device may use.
    lent: Option<Lent>,
    /// The caller no longer waits for the operation.
    given_up: bool,
    begun: Begun,
}

impl Batch {
    /// A new client of `disk` with up to `depth` operations at the device; more wait in order. An error if the depth is
    /// 0 or above 4096, or the system refuses a thread.
    pub fn new(disk: &HostedDisk, depth: u16) -> Result<Batch, Error> {
        Ok(Batch {
            client: disk.open_client(u32::from(depth), depth)?,
            pool: BioPool::default(),
            list: Bios::new(),
            done: Bios::new(),
            last_id: 0,
            accepted: HashMap::new(),
            open: 0,
            ended: VecDeque::new(),
            recorder: Recorder::default(),
        })
    }

    /// Reads `len_sectors` (of 512 bytes) at `sector`, into a buffer that the completion returns.
    pub fn read(&mut self, sector: Sector, len_sectors: u64) -> OpId {
        match self.client.check_read(sector, len_sectors) {
            Ok(len) => self.read_buf(sector, AlignedBuf::zeroed(len)),
            Err(e) => self.refuse(e),
        }
    }

    /// Fills `buf` with the data at `sector`. The completion returns it.
    pub fn read_buf(&mut self, sector: Sector, buf: AlignedBuf) -> OpId {
        self.move_data(Op::Read, sector, Flags::NONE, buf)
    }

    /// Writes `buf` at `sector`, which in a sequential zone must be its write pointer once the writes before it are
    /// done.
    pub fn write(&mut self, sector: Sector, buf: AlignedBuf) -> OpId {
        self.move_data(Op::Write, sector, Flags::NONE, buf)
    }

    /// Like [`Batch::write`]. The data is durable when the operation has ended.
    pub fn write_fua(&mut self, sector: Sector, buf: AlignedBuf) -> OpId {
        self.move_data(Op::Write, sector, Flags::FUA, buf)
    }

    /// Writes `buf` at the write pointer of the zone that starts at `zone_start`. The completion has the sector.
    pub fn append(&mut self, zone_start: Sector, buf: AlignedBuf) -> OpId {
        self.move_data(Op::ZoneAppend, zone_start, Flags::NONE, buf)
    }

    /// Like [`Batch::append`]. The data is durable when the operation has ended.
    pub fn append_fua(&mut self, zone_start: Sector, buf: AlignedBuf) -> OpId {
        self.move_data(Op::ZoneAppend, zone_start, Flags::FUA, buf)
    }

    /// Makes the writes durable that had ended when this was called.
    pub fn flush(&mut self) -> OpId {
        self.begin(Op::Flush, Sector(0), 0, Flags::NONE, None)
    }

    /// Forgets the data of a range of conventional zones.
    pub fn discard(&mut self, sector: Sector, len_sectors: u64) -> OpId {
        self.plain(Op::Discard, sector, len_sectors)
    }

    /// Writes zeroes in order, as [`Batch::write`] does, without a buffer.
    pub fn write_zeroes(&mut self, sector: Sector, len_sectors: u64) -> OpId {
        self.plain(Op::WriteZeroes, sector, len_sectors)
    }

    /// Management of the zones of a range: `op` is reset, finish, open or close. Any other operation ends with
    /// [`Status::NotSupported`].
    pub fn manage(&mut self, op: Op, sector: Sector, len_sectors: u64) -> OpId {
        match op.is_zone_management() {
            true => self.plain(op, sector, len_sectors),
            false => self.refuse(IoError::new(op, sector, Status::NotSupported)),
        }
    }

    /// Waits for the next operation to end, at most `timeout`. `None`: none has ended in this time, or none is
    /// outstanding.
    pub fn wait_any(&mut self, timeout: Option<Duration>) -> Option<Completion> {
        let begin = Instant::now();
        loop {
            if let Some(one) = self.ended.pop_front() {
                return Some(one);
            }
            let left = timeout.map(|t| t.saturating_sub(begin.elapsed()));
            if self.open == 0 {
                return None;
            }
            self.turn(left);
            if self.ended.is_empty() && left == Some(Duration::ZERO) {
                return None;
            }
        }
    }

    /// Prepares for sleep, for a program that does not sleep in [`Batch::wait_any`]: `waker` is woken when an
    /// operation has ended. False: `wait_any` has something to return now, or nothing is outstanding. Arm again after
    /// each `wait_any` before the next sleep. With a [`WakeFd`](crate::WakeFd) the program sleeps in epoll.
    ///
    /// ```
    /// use std::{os::fd::AsFd, task::Waker, time::Duration};
    /// use zoneplug_core::Sector;
    /// use zoneplug_host::{Batch, HostedDisk, WakeFd};
    ///
    /// let disk = HostedDisk::open_spec("mem,zones=4,zone-size=1M").unwrap();
    /// let (mut batch, bell) = (Batch::new(&disk, 32).unwrap(), WakeFd::new().unwrap());
    /// batch.read(Sector(0), 8);
    /// if batch.arm(&Waker::from(bell.clone())) {
    ///     // Here the program sleeps until `bell.as_fd()` is readable.
    /// }
    /// bell.clear();
    /// assert!(batch.wait_any(None).is_some());
    /// assert!(!batch.arm(&Waker::from(bell)), "nothing is outstanding");
    /// ```
    pub fn arm(&mut self, waker: &Waker) -> bool {
        self.client.submit(&mut self.list);
        // No caller waits for operations that were given up.
        if self.open == 0 || !self.ended.is_empty() {
            self.client.disarm();
            return false;
        }
        let armed = self.client.arm(waker);
        // This poll sees operations that ended before the client was armed; later ones wake.
        self.client.poll(&mut self.done);
        while let Some(bio) = self.done.pop_front() {
            self.end(bio);
        }
        armed && self.ended.is_empty()
    }

    /// Checks the length of an operation, as [`HostedDisk::check_length`] does.
    pub fn check_length(&self, op: Op, sector: Sector, bytes: u64) -> Result<u32, IoError> {
        self.client.check_length(op, sector, bytes)
    }

    /// Operations whose completion has not been returned.
    pub fn outstanding(&self) -> usize {
        self.open + self.ended.len()
    }

    /// Starts or stops recording how long operations take. An operation is recorded if this was on when it was
    /// submitted.
    #[cfg(feature = "latency")]
    pub fn record_latency(&mut self, on: bool) {
        self.recorder.switch(on);
    }

    /// How long operations took while [`record_latency`](Batch::record_latency) was on.
    #[cfg(feature = "latency")]
    pub fn latencies(&self) -> &crate::Latencies {
        &self.recorder.latencies
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Accepts an operation with a buffer.
    pub(crate) fn move_data(
        &mut self,
        op: Op,
        sector: Sector,
        flags: Flags,
        buf: AlignedBuf,
    ) -> OpId {
        match whole_sectors(&buf) {
            Ok(len) => self.begin(op, sector, len, flags, Some(buf)),
            Err(status) => self.refuse(IoError::new(op, sector, status).with_buf(Some(buf))),
        }
    }

    /// Accepts an operation without a buffer.
    fn plain(&mut self, op: Op, sector: Sector, len_sectors: u64) -> OpId {
        match u32::try_from(len_sectors) {
            Ok(len) => self.begin(op, sector, len, Flags::NONE, None),
            Err(_) => self.refuse(IoError::new(op, sector, Status::OutOfRange)),
        }
    }

    /// Ends an operation that was not submitted.
    fn refuse(&mut self, e: IoError) -> OpId {
        let id = self.next_id();
        self.ended.push_back(Completion { id, op: e.op, result: Err(e) });
        id
    }

    fn next_id(&mut self) -> OpId {
        self.last_id += 1;
        OpId(self.last_id)
    }

    /// Accepts an operation, and sends as many as there is room for.
    pub(crate) fn begin(
        &mut self,
        op: Op,
        sector: Sector,
        len_sectors: u32,
        flags: Flags,
        buf: Option<AlignedBuf>,
    ) -> OpId {
        let id = self.next_id();
        let begun = self.recorder.begin();
        let (lent, io) = match buf.map(AlignedBuf::lend) {
            Some((lent, io)) => (Some(lent), io),
            None => (None, IoBuf::empty()),
        };
        self.accepted.insert(id.0, OpenOp { op, sector, lent, given_up: false, begun });
        self.open += 1;
        let mut bio = self.pool.get();
        bio.set(op, sector, len_sectors, io);
        bio.flags = flags;
        bio.set_token(id.0);
        self.list.push_back(bio);
        self.client.submit(&mut self.list);
        id
    }

    /// Sends as many operations as there is room for, waits until one has ended or `timeout` has passed, and takes
    /// those that have ended.
    fn turn(&mut self, timeout: Option<Duration>) {
        self.client.submit(&mut self.list);
        let short = Some(timeout.map_or(RECHECK_INTERVAL, |t| t.min(RECHECK_INTERVAL)));
        if self.list.is_empty() {
            self.client.wait(&mut self.done, 1, timeout);
        } else if self.client.outstanding() > 0 {
            // The disk is full, perhaps with operations that were given up.
            self.client.wait(&mut self.done, 1, short);
        } else {
            // The disk is frozen.
            self.client.wait_thaw(timeout);
        }
        while let Some(bio) = self.done.pop_front() {
            self.end(bio);
        }
    }

    /// Takes an operation that has come back.
    fn end(&mut self, mut bio: Box<Bio>) {
        let id = OpId(bio.token());
        if let Some(sent) = self.accepted.remove(&id.0) {
            let moves = sent.lent.is_some();
            let buf = self.client.reclaim(&mut bio, sent.lent);
            let status = match bio.status {
                // A BIO without its memory did not succeed: a faulty device made up the BIO, or kept the memory.
                Status::Ok if moves && buf.is_none() => Status::Io,
                status => status,
            };
            let result = if status.is_ok() {
                if !sent.given_up {
                    self.recorder.end(sent.op, sent.begun);
                }
                Ok(Done { sector: bio.sector, buf, count: bio.result })
            } else {
                Err(IoError::new(sent.op, sent.sector, status).with_buf(buf))
            };
            if !sent.given_up {
                self.open -= 1;
                self.ended.push_back(Completion { id, op: sent.op, result });
            }
        }
        self.pool.put(bio);
    }

    /// Waits for one operation. After `timeout`, or if `give_up` returns true, gives the operation up; the error then
    /// has the buffer only if the operation was not sent. `wait_any` returns other operations that have ended
    /// meanwhile.
    pub(crate) fn wait_for(
        &mut self,
        id: OpId,
        timeout: Option<Duration>,
        give_up: Option<fn() -> bool>,
    ) -> Result<Done, IoError> {
        let (begin, mut turned) = (Instant::now(), false);
        loop {
            if let Some(i) = self.ended.iter().position(|c| c.id == id)
                && let Some(one) = self.ended.remove(i)
            {
                return one.result;
            }
            if turned
                && (timeout.is_some_and(|t| begin.elapsed() >= t)
                    || give_up.is_some_and(|ask| ask()))
            {
                return Err(self.give_up(id));
            }
            let left = timeout.map(|t| t.saturating_sub(begin.elapsed()));
            self.turn(match give_up {
                Some(_) => Some(left.map_or(ASK, |left| left.min(ASK))),
                None => left,
            });
            turned = true;
        }
    }

    fn give_up(&mut self, id: OpId) -> IoError {
        self.open -= 1;
        if let Some(i) = self.list.iter().position(|bio| bio.token() == id.0) {
            // The client has not taken it: the disk is frozen, or full of operations that were given up.
            if let (Some(mut bio), Some(sent)) = (self.list.remove(i), self.accepted.remove(&id.0))
            {
                let buf = self.client.reclaim(&mut bio, sent.lent);
                self.pool.put(bio);
                return IoError::new(sent.op, sent.sector, Status::Timeout).with_buf(buf);
            }
        }
        match self.accepted.get_mut(&id.0) {
            Some(sent) => {
                sent.given_up = true;
                IoError::new(sent.op, sent.sector, Status::Timeout)
            }
            None => IoError::new(Op::Flush, Sector(0), Status::Aborted),
        }
    }
}

impl Drop for Batch {
    /// Never waits. Operations that were not sent are dropped. The disk keeps the buffers of the others until the
    /// device is done with them.
    fn drop(&mut self) {
        while let Some(bio) = self.done.pop_front() {
            self.end(bio);
        }
        while let Some(mut bio) = self.list.pop_front() {
            let lent = self.accepted.remove(&bio.token()).and_then(|s| s.lent);
            drop(self.client.reclaim(&mut bio, lent));
        }
        let sent = std::mem::take(&mut self.accepted);
        self.client.keep_lent(sent.into_values().filter_map(|s| s.lent));
    }
}

/// The number of sectors of a buffer. A sector is read or written as a whole.
pub(crate) fn whole_sectors(buf: &AlignedBuf) -> Result<u32, Status> {
    if buf.len().is_multiple_of(512) { Ok(buf.len() >> 9) } else { Err(Status::Unaligned) }
}
