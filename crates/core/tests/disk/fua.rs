//! FUA on devices that have none: a write, and a flush behind it (X6).

use std::sync::{Arc, Mutex};
use zoneplug_core::disk::{Disk, DiskConfig, DiskQueue};
use zoneplug_core::zone::{Geometry, Limits};
use zoneplug_core::{Bio, Bios, Flags, IoBuf, Nanos, Op, Sector, Status};
use zoneplug_devices::emu::{EmuConfig, EmuDisk, EmuKind, Fault};
use zoneplug_devices::stack::TapDisk;

static BLOCK: [u8; 4096] = [0; 4096];

/// A crossing of the seam: an operation with its flags on the way down, or its status on the way up.
type Seen = Arc<Mutex<Vec<(Op, Flags, Option<Status>)>>>;

struct Rig {
    emu: Arc<EmuDisk>,
    disk: Disk,
    queue: DiskQueue,
    seen: Seen,
    now: Nanos,
}

fn rig(limits: Limits, config: DiskConfig) -> Rig {
    let g = Geometry::new(4, 256, 256).unwrap();
    let latency = Nanos(1000);
    let emu = EmuDisk::new(EmuConfig { limits, latency, ..EmuConfig::new(EmuKind::Null, g) });
    let emu = emu.unwrap();
    let seen = Seen::default();
    let heard = seen.clone();
    let tap = TapDisk::new(
        emu.clone(),
        Arc::new(move |e| heard.lock().unwrap().push((e.op, e.flags, e.status))),
    );
    let mut now = Nanos(0);
    let disk = Disk::open(tap, config, &mut |due| {
        now = due.unwrap_or(now).max(now);
        now
    })
    .unwrap();
    let queue = disk.open_polled_queue(16, 4).unwrap();
    seen.lock().unwrap().clear();
    Rig { emu, disk, queue, seen, now }
}

fn no_fua() -> Limits {
    Limits { write_cache: true, fua: false, ..Limits::default() }
}

fn bio(op: Op, at: u64, flags: Flags) -> Box<Bio> {
    let mut bio = Bio::new(op, Sector(at), 8);
    if op.has_data() {
        bio.set(op, Sector(at), 8, IoBuf::from_static(&BLOCK));
    }
    bio.flags = flags;
    bio
}

impl Rig {
    fn submit(&mut self, bios: impl IntoIterator<Item = Box<Bio>>) {
        let mut list: Bios = bios.into_iter().collect();
        self.queue.submit(self.now, &mut list);
        assert!(list.is_empty());
    }

    /// Goes on until all has ended. Returns the statuses.
    fn finish(&mut self) -> Vec<Status> {
        let mut done = Bios::new();
        while self.queue.outstanding() > 0 {
            self.queue.poll(self.now, &mut done);
            self.now = self.queue.next_deadline().unwrap_or(self.now).max(self.now);
        }
        done.iter().map(|b| b.status).collect()
    }

    fn seen(&self) -> Vec<(Op, Flags, Option<Status>)> {
        std::mem::take(&mut self.seen.lock().unwrap())
    }
}

const NONE: Flags = Flags::NONE;
const OK: Option<Status> = Some(Status::Ok);

/// X6: the device is never asked for FUA. The write ends when the flush behind it has.
#[test]
fn a_flush_follows_the_write() {
    for op in [Op::Write, Op::ZoneAppend, Op::WriteZeroes] {
        for timeout in [None, Some(Nanos(1_000_000_000))] {
            let limits = Limits { zone_append_max_sectors: 64, ..no_fua() };
            let mut r = rig(limits, DiskConfig { timeout, ..DiskConfig::default() });
            r.submit([bio(op, 0, Flags::FUA)]);
            assert_eq!(r.finish(), [Status::Ok]);
            assert_eq!(
                r.seen(),
                [(op, NONE, None), (op, NONE, OK), (Op::Flush, NONE, None), (Op::Flush, NONE, OK)],
                "{op:?}"
            );
            // A preflush goes with the write; a write without FUA is followed by nothing.
            r.submit([bio(op, 256, Flags::FUA.with(Flags::PREFLUSH))]);
            r.submit([bio(op, 512, NONE)]);
            assert_eq!(r.finish(), [Status::Ok; 2]);
            let down: Vec<_> = r.seen().into_iter().filter(|s| s.2.is_none()).collect();
            let flush = (Op::Flush, NONE, None);
            assert_eq!(down, [(op, Flags::PREFLUSH, None), (op, NONE, None), flush]);
        }
    }
}

/// Writes that end while a flush is at the device share the next one.
#[test]
fn writes_share_a_flush() {
    let mut r = rig(no_fua(), DiskConfig::default());
    r.submit([bio(Op::Write, 0, Flags::FUA), bio(Op::Write, 256, Flags::FUA)]);
    r.submit([bio(Op::Write, 512, Flags::FUA)]);
    assert_eq!(r.finish(), [Status::Ok; 3]);
    let flushes = r.seen().iter().filter(|s| **s == (Op::Flush, NONE, None)).count();
    assert!((1..=2).contains(&flushes), "{flushes} flushes");
}

/// A device without a cache is asked for neither; one with FUA carries it out itself.
#[test]
fn a_device_without_a_cache_needs_no_flush() {
    let mut r = rig(Limits { write_cache: false, ..no_fua() }, DiskConfig::default());
    r.submit([bio(Op::Write, 0, Flags::FUA)]);
    assert_eq!(r.finish(), [Status::Ok]);
    assert_eq!(r.seen(), [(Op::Write, NONE, None), (Op::Write, NONE, OK)]);
    assert_eq!(r.disk.attribute("fua").unwrap(), "0");

    let mut r = rig(Limits { fua: true, ..no_fua() }, DiskConfig::default());
    r.submit([bio(Op::Write, 0, Flags::FUA)]);
    assert_eq!(r.finish(), [Status::Ok]);
    assert_eq!(r.seen(), [(Op::Write, Flags::FUA, None), (Op::Write, Flags::FUA, OK)]);
    assert_eq!(r.disk.attribute("fua").unwrap(), "1");
}

/// A flush that fails fails the write. The data are at the device, so the place of the write is not free again, whatever the
/// status of the flush says of a write.
#[test]
fn a_flush_that_fails_fails_the_write() {
    for status in [Status::Medium, Status::Io, Status::NotSupported, Status::InvalidField] {
        let mut r = rig(no_fua(), DiskConfig::default());
        r.emu.fail_next(Fault::next(Op::Flush, status));
        r.submit([bio(Op::Write, 0, Flags::FUA)]);
        let expected = if status == Status::Medium { Status::Medium } else { Status::Io };
        assert_eq!(r.finish(), [expected]);
        // The disk finds the write pointer behind the data.
        r.submit([bio(Op::ReportZones, 0, Flags::RESYNC)]);
        r.finish();
        r.submit([bio(Op::Write, 8, Flags::FUA)]);
        assert_eq!(r.finish(), [Status::Ok], "{status:?}");
    }
    // A write that fails has no flush behind it.
    let mut r = rig(no_fua(), DiskConfig::default());
    r.emu.fail_next(Fault::next(Op::Write, Status::Medium));
    r.submit([bio(Op::Write, 0, Flags::FUA)]);
    assert_eq!(r.finish(), [Status::Medium]);
    assert!(r.seen().iter().all(|s| s.0 != Op::Flush));
}

/// The emulated disk refuses what it does not have, as a drive does.
#[test]
fn the_disk_refuses_fua_that_it_has_not() {
    use std::task::Waker;
    use zoneplug_core::{Command, Commands, Device};
    let g = Geometry::new(4, 256, 256).unwrap();
    let emu = EmuDisk::new(EmuConfig { limits: no_fua(), ..EmuConfig::new(EmuKind::Null, g) });
    let mut queue = emu.unwrap().open_queue(4, Waker::noop().clone()).unwrap();
    let mut c = Command::without_data(Op::WriteZeroes, Sector(0), 8);
    c.flags = Flags::FUA;
    let mut list = Commands::from([c]);
    queue.submit(Nanos(0), &mut list);
    queue.poll(Nanos(0), &mut list);
    assert_eq!(list[0].status, Status::InvalidField);
}
