//! What the engine needs from the block layer: the seam where the host API is
//! to be wired in. All offsets and lengths are bytes, all errors are positive
//! error numbers.

use std::sync::Arc;
use std::time::Duration;

pub(crate) type Errno = i32;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Geometry {
    /// Size of the device; may end in a zone shorter than the others.
    pub bytes: u64,
    /// Smallest unit and alignment of reads and writes.
    pub block: u32,
    /// Distance of zone starts; 0 for a device without zones.
    pub zone: u64,
    /// 0 for no limit.
    pub max_open: u32,
    /// 0 for no limit.
    pub max_active: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(dead_code, reason = "the in-memory disk does not know them all")]
pub(crate) enum State {
    /// A conventional zone, without a write pointer.
    Conventional,
    Empty,
    ImplicitOpen,
    ExplicitOpen,
    Closed,
    Full,
    ReadOnly,
    Offline,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Zone {
    pub start: u64,
    pub len: u64,
    pub capacity: u64,
    /// Absolute; meaningless in the states without one.
    pub wp: u64,
    pub state: State,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Op {
    Read { offset: u64, buf: *mut u8, len: usize },
    Write { offset: u64, buf: *const u8, len: usize },
    Flush,
}

#[derive(Debug, Clone, Copy)]
#[allow(dead_code, reason = "the in-memory disk has no request done at once")]
pub(crate) enum Submit {
    /// Will be reported by `reap`.
    Queued,
    /// Was done at once and will not be reported.
    Done(Result<(), Errno>),
    /// Not taken for lack of room. Only while something is in flight.
    Busy,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Completion {
    /// As given to `submit`.
    pub tag: usize,
    pub result: Result<(), Errno>,
}

/// A device, shared by all jobs that name it.
pub(crate) trait Backend: Send + Sync {
    fn geometry(&self) -> Geometry;
    /// Up to `max` zones from the one `offset` lies in, in order.
    fn report(&self, offset: u64, max: usize) -> Result<Vec<Zone>, Errno>;
    /// Resets the zones of a range. Synchronous.
    fn reset(&self, offset: u64, len: u64) -> Result<(), Errno>;
    /// Finishes the zones of a range. Synchronous.
    fn finish(&self, offset: u64, len: u64) -> Result<(), Errno>;
    /// Writes and waits; `None` stands for zeroes.
    fn write_sync(&self, offset: u64, len: u64, data: Option<&[u8]>) -> Result<(), Errno>;
    /// Opens a queue for one job with up to `depth` requests.
    fn queue(self: Arc<Self>, depth: usize) -> Result<Box<dyn Queue>, Errno>;
}

/// A queue of one job, used by one thread at a time. Writes to one zone must
/// take effect in the order of their submission: fio sends the next one of a
/// zone without awaiting the one before.
pub(crate) trait Queue: Send {
    /// # Safety
    /// The buffer must stay valid until the request is reported.
    unsafe fn submit(&mut self, op: Op, tag: usize) -> Submit;
    /// Waits for at least `min` completions, up to `timeout` if given, and
    /// appends at most `max` to `out`.
    fn reap(
        &mut self,
        min: usize,
        max: usize,
        timeout: Option<Duration>,
        out: &mut Vec<Completion>,
    ) -> Result<(), Errno>;
}

/// Opens a device by its specification, fio's file name.
pub(crate) fn open(spec: &str) -> Result<Arc<dyn Backend>, String> {
    // To be wired to the host; until then an in-memory disk stands in.
    super::mem::open(spec)
}
