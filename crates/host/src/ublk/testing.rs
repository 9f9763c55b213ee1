//! For tests, fuzzing and counting instructions: requests as the driver passes them, a fake of the kernel's side of a
//! queue, and the journal of a killed server. No program uses this.

use super::abi::{IO_DESC_LEN, IoDesc, Params};
use super::driver::{Driver, DriverEvent, Polled};
use super::leave::{Leave, LeaveStep};
use super::params;
use super::queue::{Queue, UblkShared};
use super::request;
use super::sys::CopyDirection;
use crate::recovery::bases::DiskState;
use crate::recovery::journal::{self, About, FoundZone};
use crate::runtime::hosted::HostedDisk;
use crate::served::latency::LatencyLog;
use crate::served::timing::{Timed, Timing, Untimed};
use crate::served::{Counters, ServedCounters};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::os::fd::RawFd;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use zoneplug_buf::AlignedBuf;
use zoneplug_core::zone::Geometry;
use zoneplug_core::{Flags, Nanos, Op, Sector, Status, ZoneNo};
use zoneplug_recovery::DiskRecovery;

/// A request of the kernel.
#[derive(Debug, Clone, Copy)]
pub struct Request(request::Request);

impl Request {
    /// Reads a descriptor. The error is the number that the kernel gets.
    pub fn of(descriptor: &[u8; IO_DESC_LEN], zone_sectors: u32) -> Result<Request, i32> {
        let params = Params { zone_sectors, ..Params::default() };
        request::Request::of(IoDesc::decode(descriptor), &params).map(Request)
    }

    /// The operation.
    pub fn op(&self) -> Op {
        self.0.op
    }

    /// The first sector and the length in sectors.
    pub fn range(&self) -> (Sector, u32) {
        (self.0.sector, self.0.len_sectors)
    }

    /// The flags.
    pub fn flags(&self) -> Flags {
        self.0.flags
    }

    /// Bytes of data.
    pub fn bytes(&self) -> u32 {
        self.0.bytes
    }

    /// The answer to the kernel for a status.
    pub fn result(&self, status: Status) -> i32 {
        self.0.result(status)
    }
}

/// The shape of the device that a journal is for.
#[derive(Debug, Clone)]
pub struct Shape {
    /// The zones.
    pub geometry: Geometry,
    /// Number of queues.
    pub queues: u16,
    /// Requests that a queue takes at a time.
    pub depth: u16,
}

impl Shape {
    fn about(&self) -> About {
        let Shape { geometry, queues, depth } = self.clone();
        let disks = DiskState { place: 4, opened: 5, paths: "/a".to_owned() };
        let shown = 0..geometry.nr_zones();
        About {
            dev_id: 0,
            instance: 1,
            boot: 2,
            identity: 3,
            geometry,
            shown,
            queues,
            depth,
            disks,
        }
    }
}

/// A journal of acknowledged appends.
pub struct Journal(journal::Journal);

impl std::fmt::Debug for Journal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Journal")
    }
}

fn found(zones: &[u32]) -> Vec<FoundZone> {
    zones.iter().map(|&written| FoundZone { written, empty: written == 0 }).collect()
}

impl Journal {
    /// Creates a journal that `me` keeps. `hidden` has the offset of each zone from which on it may be searched.
    pub fn create(path: &Path, shape: &Shape, me: u64, hidden: &[u32]) -> io::Result<Journal> {
        journal::Journal::create(path, shape.about(), me, hidden.iter().copied()).map(Journal)
    }

    /// Opens the journal at `path`, which `me` takes over from `last`. `written` has the written sectors of each
    /// zone. The error says why the journal cannot be believed.
    pub fn open(
        path: &Path,
        shape: &Shape,
        last: u64,
        me: u64,
        written: &[u32],
    ) -> Result<Journal, String> {
        journal::Journal::open(path, shape.about(), last, me, &found(written)).map(Journal)
    }

    /// The paths that the server `last` noted in its journal at `path`.
    pub fn paths(path: &Path, last: u64) -> Option<String> {
        journal::noted(path, 0, 1, 2, last).map(|noted| noted.paths)
    }

    /// A request is about to be sent.
    pub fn begin(&self, r: &Request) {
        self.0.begin(&r.0.change());
    }

    /// A request has come back.
    pub fn end(&self, r: &Request, succeeded: bool) {
        self.0.end(&r.0.change(), succeeded);
    }

    /// An append of `queue` is about to be acknowledged.
    pub fn record(&self, queue: u16, sector: Sector, len_sectors: u32) {
        self.0.record(queue, sector, len_sectors);
    }

    /// Whether a zone has had nothing but appends.
    pub fn only_appends(&self, zone: ZoneNo) -> bool {
        self.0.only_appends(zone)
    }

    /// The space that no client was told of. `written` has the written sectors of each zone.
    pub fn unacked(&self, written: &[u32]) -> Vec<(ZoneNo, Vec<Range<u32>>)> {
        self.0.unacked(&found(written))
    }
}

/// The answer of a queue to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// The tag of the request.
    pub tag: u16,
    /// Bytes moved, 0, or a negative error number.
    pub result: i32,
    /// The sector at which a zone append landed, else 0.
    pub append: u64,
}

/// A program that uses a block device, without the kernel between them.
pub trait BlockClient {
    /// The next descriptor for `tag`. Fills `data` if the request sends some. `None`: there are no more requests.
    fn next(&mut self, tag: u16, data: &mut [u8]) -> Option<[u8; IO_DESC_LEN]>;

    /// The answer to the request of a tag, and its data.
    fn answered(&mut self, answer: Answer, data: &[u8]);

    /// Whether the device is left to another server now. Requests that were not begun are then not answered.
    fn is_left(&self) -> bool {
        false
    }

    /// Whether the device stays after all, once everything that was begun is answered.
    fn is_kept(&self) -> bool {
        false
    }
}

/// Serves `disk` to `client`, which has `depth` requests in flight. Copies the first `bytes` of the data of each.
/// Runs the code of a queue's thread in this thread until no request is left. Returns the number of calls that would
/// have been system calls: waits, submissions and copies.
pub fn serve(
    disk: &HostedDisk,
    depth: u16,
    bytes: usize,
    client: &mut dyn BlockClient,
) -> io::Result<u64> {
    serve_as::<Untimed>(disk, depth, bytes, client, Vec::new()).map(|(calls, _)| calls)
}

/// Like [`serve`], for a device that shows these zones of the disk.
pub fn serve_part(
    disk: &HostedDisk,
    shown: Range<u32>,
    bytes: usize,
    client: &mut dyn BlockClient,
) -> io::Result<()> {
    let left = LeftState::default();
    serve_all::<Untimed>(disk, shown, 1, bytes, client, Vec::new(), left).map(drop)
}

/// Like [`serve`], and times about one operation of each kind in `interval`. Returns the counters.
pub fn serve_timed(
    disk: &HostedDisk,
    depth: u16,
    bytes: usize,
    client: &mut dyn BlockClient,
    interval: Nanos,
) -> io::Result<ServedCounters> {
    let log = Arc::new(LatencyLog::new(disk.geometry().zone_sectors(), interval));
    let served = serve_as::<Timed>(disk, depth, bytes, client, vec![log]);
    served.map(|(_, counters)| counters)
}

fn serve_as<T: Timing>(
    disk: &HostedDisk,
    depth: u16,
    bytes: usize,
    client: &mut dyn BlockClient,
    latencies: Vec<Arc<LatencyLog>>,
) -> io::Result<(u64, ServedCounters)> {
    serve_all::<T>(disk, whole(disk), depth, bytes, client, latencies, LeftState::default())
}

/// Like [`serve`], with the state that the last server of the device has left, and the order in which the queue
/// leaves it.
#[cfg(test)]
pub(super) fn serve_from(
    disk: &HostedDisk,
    depth: u16,
    bytes: usize,
    client: &mut dyn BlockClient,
    left: LeftState,
) -> io::Result<()> {
    serve_all::<Untimed>(disk, whole(disk), depth, bytes, client, Vec::new(), left).map(drop)
}

/// All zones of a disk that a device can show.
fn whole(disk: &HostedDisk) -> Range<u32> {
    0..params::whole_zones(&disk.disk().geometry())
}

/// The state that the last server of a device has left, and the order to its queues to leave it.
#[derive(Default)]
pub(super) struct LeftState {
    pub(super) replay: Option<DiskRecovery>,
    pub(super) journal: Option<journal::Journal>,
    pub(super) leave: Leave,
}

fn serve_all<T: Timing>(
    disk: &HostedDisk,
    shown: Range<u32>,
    depth: u16,
    bytes: usize,
    client: &mut dyn BlockClient,
    latencies: Vec<Arc<LatencyLog>>,
    left: LeftState,
) -> io::Result<(u64, ServedCounters)> {
    let LeftState { replay, journal, leave } = left;
    let (g, limits) = (disk.disk().geometry(), disk.disk().limits());
    let append = limits.visible_append_sectors(g.zone_sectors());
    let params = params::of(&g, shown.clone(), &limits, append).map_err(io::Error::other)?;
    let calls = Cell::new(0);
    let shared = Arc::new(UblkShared {
        disk: disk.clone(),
        params,
        slice: super::slice(&g, shown),
        depth,
        tags: depth,
        counters: vec![Counters::default()],
        latencies,
        failure: Mutex::default(),
        replay,
        journal,
        leave,
        client: 1,
    });
    let fake = FakeDriver {
        shared: shared.clone(),
        client,
        free: (0..depth).collect(),
        data: RefCell::new(vec![vec![0; bytes]; usize::from(depth)]),
        requests: vec![None; usize::from(depth)],
        events: VecDeque::with_capacity(usize::from(depth) + 2),
        polled: Vec::new(),
        calls: &calls,
        empty: false,
        left_at: None,
    };
    let mut queue = Queue::<_, T>::new(shared.clone(), 0, fake).map_err(io::Error::other)?;
    queue.run()?;
    let logs: Vec<&LatencyLog> = shared.latencies.iter().map(|log| &**log).collect();
    Ok((calls.get(), Counters::sum(shared.counters.iter(), &logs)))
}

/// A fake of the kernel's side of a queue. Like the kernel, it delivers requests only when it is called.
struct FakeDriver<'a> {
    shared: Arc<UblkShared>,
    client: &'a mut dyn BlockClient,
    /// Tags without a request, the next one first.
    free: VecDeque<u16>,
    data: RefCell<Vec<Vec<u8>>>,
    /// Requests that were delivered and are not answered.
    requests: Vec<Option<IoDesc>>,
    events: VecDeque<DriverEvent>,
    polled: Vec<(RawFd, Polled)>,
    calls: &'a Cell<u64>,
    /// The client has no more requests.
    empty: bool,
    /// When the queue got the order to leave.
    left_at: Option<Instant>,
}

impl FakeDriver<'_> {
    fn count_call(&self) {
        self.calls.set(self.calls.get() + 1);
    }

    /// Makes the client fill the free tags.
    fn fill(&mut self) {
        while !self.empty
            && let Some(tag) = self.free.pop_front()
        {
            let at = usize::from(tag);
            match self.client.next(tag, &mut self.data.get_mut()[at]) {
                Some(descriptor) => {
                    self.requests[at] = Some(IoDesc::decode(&descriptor));
                    self.events.push_back(DriverEvent::Request(tag));
                }
                None => {
                    self.free.push_front(tag);
                    self.empty = true;
                }
            }
        }
        let leave = &self.shared.leave;
        let is_over = |since: Instant| leave.step() == LeaveStep::Drain && leave.is_over(since);
        if self.client.is_left() && self.left_at.is_none() {
            self.shared.leave.tell(LeaveStep::Drain);
            self.left_at = Some(Instant::now());
        } else if self.left_at.is_some_and(is_over) {
            let kept = self.client.is_kept();
            self.shared.leave.tell(if kept { LeaveStep::Serve } else { LeaveStep::End });
        } else if self.empty && self.free.len() == self.requests.len() {
            // A hand-over must wait for a queue that serves again, so such a queue must not count as drained.
            assert!(
                !self.client.is_kept() || !leave.is_drained(),
                "it serves, and counts as drained"
            );
            self.events.push_back(DriverEvent::Ended);
        }
    }
}

impl Driver for FakeDriver<'_> {
    fn event(&mut self) -> io::Result<Option<DriverEvent>> {
        Ok(self.events.pop_front())
    }

    fn has_events(&mut self) -> bool {
        !self.events.is_empty()
    }

    fn request(&self, tag: u16) -> IoDesc {
        self.requests[usize::from(tag)].expect("the descriptor of a request")
    }

    fn copy(
        &self,
        direction: CopyDirection,
        tag: u16,
        buf: &mut AlignedBuf,
        len: u32,
    ) -> io::Result<()> {
        self.count_call();
        let data = &mut self.data.borrow_mut()[usize::from(tag)];
        let len = data.len().min(len as usize);
        match direction {
            CopyDirection::Fetch => buf.write(0, &data[..len]),
            CopyDirection::Store => buf.read(0, &mut data[..len]),
        }
        Ok(())
    }

    fn has_room(&mut self) -> bool {
        true
    }

    fn answer(&mut self, tag: u16, result: i32, append: u64) -> io::Result<()> {
        let at = usize::from(tag);
        assert!(self.requests[at].take().is_some(), "an answer to a request");
        self.client.answered(Answer { tag, result, append }, &self.data.get_mut()[at]);
        self.free.push_back(tag);
        Ok(())
    }

    fn poll(&mut self, fd: RawFd, polled: Polled) -> io::Result<()> {
        self.polled.push((fd, polled));
        Ok(())
    }

    fn submit(&mut self) -> io::Result<()> {
        self.count_call();
        self.fill();
        Ok(())
    }

    fn wait(&mut self, most: Option<Duration>) -> io::Result<()> {
        self.count_call();
        self.fill();
        // The kernel checks requests and descriptors. If there are requests, the check of descriptors finds nothing
        // and is left out, because it would be counted.
        if !self.events.is_empty() && self.shared.leave.step() == LeaveStep::Serve {
            return Ok(());
        }
        let most = if self.events.is_empty() { most } else { Some(Duration::ZERO) };
        let ready = super::sys::wait_readable(self.polled.iter().map(|(fd, _)| *fd), most)?;
        self.polled.retain(|&(fd, polled)| {
            let is = ready.contains(&fd);
            if is {
                self.events.push_back(DriverEvent::Readable(polled));
            }
            !is
        });
        Ok(())
    }
}
