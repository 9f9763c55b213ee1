//! Shared code of the tests of this crate: buffers with stamped sectors, and a small disk that is driven in
//! virtual time.

#![allow(dead_code)] // each test file uses a part
#![allow(clippy::vec_box)] // a BIO moves by its box

use std::cell::RefCell;
use std::sync::{Arc, Mutex};
use std::task::Waker;
use zoneplug_buf::Arena;
use zoneplug_core::disk::{Disk, DiskConfig, DiskQueue, Mode, ZoneRecovery};
use zoneplug_core::zone::{Condition, Geometry, Limits, ZONE_RECORD_LEN, ZoneInfo};
use zoneplug_core::{
    Bio, Bios, Command, Commands, Device, Error, Flags, IoBuf, Nanos, Op, Queue, Sector, Status,
    ZoneNo,
};
use zoneplug_devices::emu::{EmuConfig, EmuDisk, EmuKind, Fault};

thread_local! {
    /// Memory that is never freed but used again by the next world of the same thread.
    static MEMORY: RefCell<Arena> = const { RefCell::new(Arena::new(1 << 20)) };
}

/// All buffers of the last world are free again.
pub(crate) fn recycle_buffers() {
    // SAFETY: the last world of this thread is over: its disks, queues and BIOs are dropped, or leaked and never run
    // again.
    MEMORY.with_borrow_mut(|m| unsafe { m.reset() });
}

/// A buffer of `sectors`, its content undefined.
pub(crate) fn buf(sectors: u32) -> IoBuf {
    MEMORY.with_borrow_mut(|m| m.take(sectors << 9))
}

/// A buffer whose sector `i` says `stamp + i` in its first and in its last 8 bytes.
pub(crate) fn stamped(sectors: u32, stamp: u64) -> IoBuf {
    let mut b = buf(sectors);
    for i in 0..sectors {
        let s = (stamp + u64::from(i)).to_le_bytes();
        b.copy_from(i << 9, &s);
        b.copy_from((i << 9) + 504, &s);
    }
    b
}

/// The stamp of each sector of a buffer.
pub(crate) fn stamps(b: &IoBuf) -> Vec<u64> {
    (0..b.len() >> 9)
        .map(|i| {
            let (mut head, mut tail) = ([0; 8], [0; 8]);
            b.copy_to(i << 9, &mut head);
            b.copy_to((i << 9) + 504, &mut tail);
            assert_eq!(head, tail, "sector {i} is torn");
            u64::from_le_bytes(head)
        })
        .collect()
}

/// The records of a report that has come back.
pub(crate) fn records(bio: &Bio) -> Vec<ZoneInfo> {
    (0..bio.result)
        .map(|i| {
            let mut r = [0; ZONE_RECORD_LEN];
            bio.data().copy_to(i * ZONE_RECORD_LEN as u32, &mut r);
            ZoneInfo::decode(&r).expect("a record that the layer wrote")
        })
        .collect()
}

/// What is stamped on `sectors` of the device from `from`, read past the layer. Faults that still
/// wait are used up.
pub(crate) fn on_medium(dev: &EmuDisk, from: Sector, sectors: u32) -> Vec<u64> {
    let max = dev.limits().transfer_sectors();
    let mut all = Vec::new();
    while (all.len() as u32) < sectors {
        let at = from.plus(all.len() as u64);
        let (zone, offset) = dev.geometry().zone_of(at);
        let zone_left = dev.geometry().zone_len_sectors(zone) - offset;
        all.extend(read_medium(dev, at, max.min(zone_left).min(sectors - all.len() as u32)));
    }
    all
}

fn read_medium(dev: &EmuDisk, from: Sector, sectors: u32) -> Vec<u64> {
    let mut queue = dev.open_queue(1, Waker::noop().clone()).expect("a queue");
    let mut now = Nanos(0);
    for _ in 0..100 {
        let read = Bio::with_buf(Op::Read, from, sectors, buf(sectors));
        let mut list = Commands::from([Command::of(read)]);
        let mut done = Commands::new();
        while done.is_empty() {
            queue.submit(now, &mut list);
            now = queue.next_deadline().unwrap_or(now).max(now);
            queue.poll(now, &mut done);
        }
        if done[0].status == Status::Ok {
            return stamps(done[0].bios[0].data());
        }
    }
    panic!("{from}+{sectors} cannot be read");
}

/// A disk under test: 8 zones of 64 sectors unless said otherwise, blocks of one sector.
pub(crate) struct Rig {
    pub dev: Arc<EmuDisk>,
    pub disk: Disk,
    pub queues: Vec<DiskQueue>,
    pub now: Nanos,
    pub done: Vec<Box<Bio>>,
}

/// How a [`Rig`] is made.
pub(crate) struct Make {
    pub emu: EmuConfig,
    pub config: DiskConfig,
    /// Depth and tags of each queue.
    pub queues: Vec<(u32, u16)>,
}

/// Limits without any limit, and blocks of one sector.
pub(crate) fn limits() -> Limits {
    Limits { logical_block_sectors: 1, write_granularity_sectors: 1, ..Limits::default() }
}

/// `zones` zones of `size` sectors, of which `cap` can be written, on a disk with memory.
pub(crate) fn make(zones: u64, size: u32, cap: u32) -> Make {
    let geometry = Geometry::new(zones, size, cap).expect("a layout");
    let mut emu = EmuConfig::new(EmuKind::Mem, geometry);
    emu.limits = limits();
    emu.paranoid = true;
    emu.latency = Nanos(100);
    // Most tests say themselves when a zone is reported; `recovery.rs` has those of zones that recover by themselves.
    let config = DiskConfig { zone_recovery: Some(ZoneRecovery::Client), ..DiskConfig::default() };
    Make { emu, config, queues: vec![(64, 8)] }
}

impl Make {
    pub(crate) fn queues(mut self, queues: &[(u32, u16)]) -> Make {
        self.queues = queues.to_vec();
        self
    }

    pub(crate) fn mode(mut self, mode: Mode) -> Make {
        self.config.mode = mode;
        self
    }

    pub(crate) fn limits(mut self, f: impl FnOnce(&mut Limits)) -> Make {
        f(&mut self.emu.limits);
        self
    }

    pub(crate) fn config(mut self, f: impl FnOnce(&mut DiskConfig)) -> Make {
        f(&mut self.config);
        self
    }

    pub(crate) fn conventional(mut self, zones: &[u32]) -> Make {
        let g = self.emu.geometry;
        self.emu.geometry = g.with_conventional(zones.iter().map(|&z| ZoneNo(z))).expect("zones");
        self
    }

    pub(crate) fn last_zone(mut self, size: u32, cap: u32) -> Make {
        self.emu.geometry = self.emu.geometry.with_last_zone(size, cap).expect("a zone");
        self
    }

    pub(crate) fn rig(self) -> Rig {
        let dev = EmuDisk::new(self.emu).expect("a device");
        let disk = open(dev.clone(), self.config);
        let queues = self
            .queues
            .iter()
            .map(|&(depth, tags)| disk.open_polled_queue(depth, tags).expect("a queue"))
            .collect();
        Rig { dev, disk, queues, now: Nanos(0), done: Vec::new() }
    }
}

/// Opens a disk in virtual time.
pub(crate) fn open(dev: Arc<dyn Device>, config: DiskConfig) -> Disk {
    try_open(dev, config).expect("the disk opens")
}

/// Opens a disk in virtual time.
pub(crate) fn try_open(dev: Arc<dyn Device>, config: DiskConfig) -> Result<Disk, Error> {
    let mut now = Nanos(0);
    Disk::open(dev, config, &mut |due| {
        now = due.unwrap_or(now).max(now);
        now
    })
}

impl Rig {
    /// Hands BIOs to queue `q`, which must take them all.
    pub(crate) fn submit(&mut self, q: usize, bios: impl IntoIterator<Item = Box<Bio>>) {
        let mut list: Bios = bios.into_iter().collect();
        let n = list.len();
        assert_eq!(self.queues[q].submit(self.now, &mut list), n, "the queue takes all");
    }

    /// One poll of queue `q`; what finished is in `done`.
    pub(crate) fn poll(&mut self, q: usize) {
        let mut done = Bios::new();
        self.queues[q].poll(self.now, &mut done);
        self.done.extend(done);
    }

    /// Polls all queues, then lets time pass until something is due. Whether anything finished or is due.
    pub(crate) fn step(&mut self) -> bool {
        let before = self.done.len();
        for q in 0..self.queues.len() {
            self.poll(q);
        }
        let next = self.queues.iter().filter_map(DiskQueue::next_deadline).min();
        self.now = next.unwrap_or(self.now).max(self.now);
        self.done.len() > before || next.is_some()
    }

    /// Until nothing is outstanding.
    pub(crate) fn drain(&mut self) {
        let mut idle = 0;
        let mut rounds = 0;
        while self.queues.iter().any(|q| q.outstanding() > 0) {
            idle = if self.step() { 0 } else { idle + 1 };
            rounds += 1;
            assert!(idle < 4 && rounds < 100_000, "hang: {:?}", self.queues);
        }
    }

    /// Drains, and takes what finished in the order of tokens.
    pub(crate) fn finish(&mut self) -> Vec<Box<Bio>> {
        self.drain();
        let mut done = std::mem::take(&mut self.done);
        done.sort_by_key(|b| b.token());
        done
    }

    /// Submits BIOs to queue `q`, drains, and returns their statuses.
    pub(crate) fn run(
        &mut self,
        q: usize,
        bios: impl IntoIterator<Item = Box<Bio>>,
    ) -> Vec<Status> {
        let bios = bios.into_iter().enumerate().map(|(i, mut b)| {
            b.set_token(i as u64);
            b
        });
        let bios: Vec<_> = bios.collect();
        self.submit(q, bios);
        self.finish().iter().map(|b| b.status).collect()
    }

    /// Submits one BIO to queue 0, drains, and returns it.
    pub(crate) fn one(&mut self, bio: Box<Bio>) -> Box<Bio> {
        self.submit(0, [bio]);
        let mut done = self.finish();
        assert_eq!(done.len(), 1);
        done.remove(0)
    }

    /// The status of a write of one sector at `sector` through queue `q`, which is refused at once.
    pub(crate) fn status_of(&mut self, q: usize, sector: u64) -> Status {
        self.submit(q, [write(sector, 1)]);
        self.poll(q);
        self.done.pop().expect("it is refused").status
    }

    /// The status of one BIO.
    pub(crate) fn status(&mut self, bio: Box<Bio>) -> Status {
        self.one(bio).status
    }

    /// A report of `n` zones from `sector`.
    pub(crate) fn report(&mut self, sector: u64, n: u32) -> Vec<ZoneInfo> {
        let bio = self.one(report(sector, n));
        assert_eq!(bio.status, Status::Ok);
        records(&bio)
    }

    /// What the layer knows of a zone: condition and write pointer as an offset; `None` if it is stale.
    pub(crate) fn cached(&self, zone: u32) -> Option<(Condition, u64)> {
        let z = self.disk.cached_zone(ZoneNo(zone)).ok()?;
        Some((z.cond, z.wp.0.wrapping_sub(z.start.0)))
    }

    /// The write pointer that the layer knows, as an offset.
    pub(crate) fn wp(&self, zone: u32) -> u64 {
        self.cached(zone).expect("a known write pointer").1
    }

    /// The write pointer of the device, as an offset.
    pub(crate) fn device_wp(&self, zone: u32) -> u64 {
        let z = self.dev.zone_info(ZoneNo(zone));
        z.wp.0 - z.start.0
    }

    /// The next command of `op` fails.
    pub(crate) fn fail(&self, op: Op, status: Status) {
        self.dev.fail_next(Fault::next(op, status));
    }

    /// Stamps from `sector` on the medium.
    pub(crate) fn medium(&self, sector: u64, sectors: u32) -> Vec<u64> {
        on_medium(&self.dev, Sector(sector), sectors)
    }

    /// Commands of `op` that the device has seen.
    pub(crate) fn commands(&self, op: Op) -> u64 {
        self.dev.stats().commands(op)
    }
}

/// A write whose sectors are stamped with their own addresses.
pub(crate) fn write(sector: u64, sectors: u32) -> Box<Bio> {
    write_as(sector, sectors, sector)
}

/// A write with a stamp.
pub(crate) fn write_as(sector: u64, sectors: u32, stamp: u64) -> Box<Bio> {
    Bio::with_buf(Op::Write, Sector(sector), sectors, stamped(sectors, stamp))
}

/// An append to the zone at `sector`, with a stamp.
pub(crate) fn append(sector: u64, sectors: u32, stamp: u64) -> Box<Bio> {
    Bio::with_buf(Op::ZoneAppend, Sector(sector), sectors, stamped(sectors, stamp))
}

pub(crate) fn read(sector: u64, sectors: u32) -> Box<Bio> {
    Bio::with_buf(Op::Read, Sector(sector), sectors, buf(sectors))
}

pub(crate) fn report(sector: u64, zones: u32) -> Box<Bio> {
    Bio::with_buf(Op::ReportZones, Sector(sector), 0, IoBuf::leaked(zones * 64))
}

/// An operation without data.
pub(crate) fn op(op: Op, sector: u64, sectors: u32) -> Box<Bio> {
    Bio::new(op, Sector(sector), sectors)
}

pub(crate) fn flags(mut bio: Box<Bio>, flags: Flags) -> Box<Bio> {
    bio.flags = flags;
    bio
}

pub(crate) fn token(mut bio: Box<Bio>, token: u64) -> Box<Bio> {
    bio.set_token(token);
    bio
}

/// An emulated disk with other queues.
struct Wrapped<F> {
    dev: Arc<EmuDisk>,
    wrap: F,
}

impl<F> Device for Wrapped<F>
where
    F: Fn(Box<dyn Queue>) -> Box<dyn Queue> + Send + Sync,
{
    fn geometry(&self) -> &Geometry {
        self.dev.geometry()
    }

    fn limits(&self) -> &Limits {
        self.dev.limits()
    }

    fn open_queue(&self, depth: u16, waker: Waker) -> Result<Box<dyn Queue>, Error> {
        Ok((self.wrap)(self.dev.open_queue(depth, waker)?))
    }
}

/// The device `dev`, whose queues are what `wrap` makes of its own.
pub(crate) fn wrapped(
    dev: Arc<EmuDisk>,
    wrap: impl Fn(Box<dyn Queue>) -> Box<dyn Queue> + Send + Sync + 'static,
) -> Arc<dyn Device> {
    Arc::new(Wrapped { dev, wrap })
}

/// Changes the answer of a report before the layer sees it.
pub(crate) type Edit = Box<dyn FnMut(&mut Vec<ZoneInfo>) + Send>;

/// An emulated disk whose reports, layout and limits are what a test says.
pub(crate) struct Liar {
    pub(crate) dev: Arc<EmuDisk>,
    pub(crate) edit: Arc<Mutex<Edit>>,
    /// The layout to show from the n-th question on.
    pub(crate) geometry: Mutex<Vec<Geometry>>,
    pub(crate) limits: Limits,
}

impl Liar {
    pub(crate) fn new(
        dev: Arc<EmuDisk>,
        edit: impl FnMut(&mut Vec<ZoneInfo>) + Send + 'static,
    ) -> Liar {
        let limits = dev.limits().clone();
        let edit: Arc<Mutex<Edit>> = Arc::new(Mutex::new(Box::new(edit)));
        Liar { dev, edit, geometry: Mutex::default(), limits }
    }
}

impl Device for Liar {
    fn geometry(&self) -> &Geometry {
        let mut list = self.geometry.lock().expect("one thread");
        match list.len() {
            0 => self.dev.geometry(),
            1 => Box::leak(Box::new(list[0])),
            _ => Box::leak(Box::new(list.remove(0))),
        }
    }

    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn open_queue(&self, depth: u16, waker: Waker) -> Result<Box<dyn Queue>, Error> {
        let queue = self.dev.open_queue(depth, waker)?;
        Ok(Box::new(LiarQueue { queue, edit: self.edit.clone() }))
    }
}

struct LiarQueue {
    queue: Box<dyn Queue>,
    edit: Arc<Mutex<Edit>>,
}

impl Queue for LiarQueue {
    fn submit(&mut self, now: Nanos, commands: &mut Commands) {
        self.queue.submit(now, commands);
    }

    fn poll(&mut self, now: Nanos, done: &mut Commands) {
        let before = done.len();
        self.queue.poll(now, done);
        for c in done.iter_mut().skip(before).filter(|c| c.op == Op::ReportZones) {
            (self.edit.lock().expect("one thread"))(&mut c.report);
        }
    }

    fn next_deadline(&self) -> Option<Nanos> {
        self.queue.next_deadline()
    }

    fn arm(&mut self) {
        self.queue.arm();
    }
}
