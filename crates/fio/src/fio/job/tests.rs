//! A job with fake units of fio, and a fake fio that only counts calls.

use super::super::device::{Device, FileName};
use super::*;
use std::cell::Cell;

thread_local! {
    /// Counts of calls of the fake fio's functions: units queued, and sizes of batches.
    static TOLD: Cell<(u32, u32)> = const { Cell::new((0, 0)) };
}

unsafe extern "C" fn zoned_trim(_: *mut c_void, _: *mut c_void) -> c_int {
    0
}
unsafe extern "C" fn gettime(now: *mut libc::timespec, _: *mut c_void) {
    // SAFETY: the engine passes a time of its own.
    unsafe { now.write(libc::timespec { tv_sec: 7, tv_nsec: 9 }) };
}
unsafe extern "C" fn io_u_queued(_: *mut c_void, _: *mut c_void) {
    TOLD.set((TOLD.get().0 + 1, TOLD.get().1));
}
unsafe extern "C" fn mark_submit(_: *mut c_void, n: u32) {
    TOLD.set((TOLD.get().0, TOLD.get().1 + n));
}

static FIO: Program = Program { zoned_trim, gettime, io_u_queued, mark_submit };
const TD: *mut c_void = core::ptr::null_mut();
const FILE: *mut c_void = 0x10_0000 as *mut c_void;

fn abi() -> &'static Abi {
    &abi::TABLE[0].2
}

/// A unit of fio and its buffer of 4 KiB.
struct FakeUnit {
    fields: Box<[u64; 32]>,
    data: Vec<u8>,
}

impl FakeUnit {
    fn new(index: u32, ddir: c_int, offset: u64) -> FakeUnit {
        let mut u = FakeUnit { fields: Box::new([0; 32]), data: vec![index as u8; 4096] };
        let (data, o) = (u.data.as_mut_ptr(), &abi().io_u);
        u.set(o.file, FILE);
        u.set(o.ddir, ddir);
        u.set(o.index, index);
        u.set(o.offset, offset);
        u.set(o.buflen, 4096u64);
        u.set(o.xfer_buflen, 4096u64);
        u.set(o.buf, data);
        u.set(o.xfer_buf, data);
        u
    }

    fn set<T>(&mut self, at: abi::Off, value: T) {
        assert!(at as usize + size_of::<T>() <= size_of_val(&*self.fields));
        // SAFETY: within the fields.
        unsafe { self.ptr().byte_add(at as usize).cast::<T>().write_unaligned(value) };
    }

    fn ptr(&mut self) -> *mut c_void {
        self.fields.as_mut_ptr().cast()
    }

    fn unit(&mut self) -> IoU<'static> {
        // SAFETY: it has the fields of that release.
        unsafe { IoU::new(abi(), self.ptr()) }
    }

    /// The time of submission that fio would find in the unit.
    fn issued(&mut self) -> i64 {
        // SAFETY: a field of this unit.
        unsafe { (*self.unit().issue_time()).tv_sec }
    }
}

impl Job {
    /// The work of `commit`.
    fn commit(&mut self) {
        if self.queued {
            self.submit(self.abi, TD);
        }
    }

    /// The work of `getevents`.
    fn get(&mut self, min: u32, max: u32, t: Option<&libc::timespec>) -> usize {
        if self.offer(max as usize) {
            return max as usize;
        }
        let wait = t.map(|t| Duration::new(t.tv_sec as u64, t.tv_nsec as u32));
        self.reap(TD, min as usize, max as usize, wait)
    }

    fn offered(&self) -> Vec<*mut c_void> {
        (0..self.offered.len()).filter_map(|n| self.event(n)).collect()
    }

    /// The work of `queue`.
    fn take(&mut self, u: &mut FakeUnit) -> c_int {
        let unit = u.unit();
        if self.queue_transfer(u.ptr(), unit).is_ok() {
            return abi::FIO_Q_QUEUED;
        }
        match self.queue(TD, u.ptr(), unit) {
            Ok(answer) => answer,
            Err(Refused::Failed(no)) => -no,
            Err(Refused::Broken) => -1000,
        }
    }
}

fn job(name: &str, units: usize) -> Job {
    let mut job = Job::new(abi(), &FIO);
    let FileName { disk, appends } = FileName::parse(name).unwrap();
    job.units = units;
    job.lanes.push(Lane::new(Arc::new(Device::open(&disk).unwrap()), units, appends).unwrap());
    job.files.push((FILE, 0));
    TOLD.set((0, 0));
    job
}

/// `init` drops an older job that has the address of the new one, and `cleanup` drops its own. Either way, no device
/// uses fio's memory afterwards.
#[test]
fn a_job_that_is_dropped_waits_for_what_is_in_flight() {
    let mut u = FakeUnit::new(0, abi::DDIR_READ, 0);
    let mut job = job("mem,zones=4,zone-size=1M,latency=100ms", 4);
    assert_eq!(job.take(&mut u), abi::FIO_Q_QUEUED);
    job.commit();
    let start = Instant::now();
    drop(job);
    assert!(start.elapsed() >= Duration::from_millis(90), "the read is still in flight");
}

#[test]
fn units_come_back_as_many_as_asked_for_and_can_be_used_again() {
    let mut units: Vec<_> =
        (0..3).map(|n| FakeUnit::new(n, abi::DDIR_WRITE, u64::from(n) * 4096)).collect();
    let mut job = job("mem,zones=4,zone-size=1M", 3);
    for u in &mut units {
        assert_eq!(job.take(u), abi::FIO_Q_QUEUED);
    }
    assert_eq!((units[2].issued(), TOLD.get()), (0, (0, 0)), "nothing is submitted yet");
    job.commit();
    job.commit();
    assert_eq!((units[2].issued(), TOLD.get()), (7, (3, 3)));
    let mut seen = Vec::new();
    for (min, max, want) in [(1, 1, 1), (1, 1, 1), (1, 5, 1), (1, 5, 0)] {
        assert_eq!(job.get(min, max, None), want, "{min} to {max}");
        assert_eq!((job.offered().len(), job.event(want)), (want, None));
        seen.append(&mut job.offered());
    }
    let all: Vec<_> = units.iter_mut().map(FakeUnit::ptr).collect();
    assert_eq!(seen, all);
    assert_eq!(job.event(0), None, "fio was offered no unit last");
    let mut back = FakeUnit::new(1, abi::DDIR_READ, 8192);
    assert_eq!(job.take(&mut back), abi::FIO_Q_QUEUED);
    // `get` commits first.
    assert_eq!(job.get(1, 1, None), 1);
    assert_eq!((job.offered(), back.data[0]), (vec![back.ptr()], 2));
    assert_eq!((back.unit().error(), back.unit().resid()), (0, 0));
}

/// As a rule, fio makes its units before it opens a file, so a batch has room for all of them. It may also make them
/// later.
#[test]
fn a_batch_grows_with_the_units() {
    let mut job = job("mem,zones=4,zone-size=1M", 1);
    let room = job.lanes[0].room();
    let mut units: Vec<_> =
        (0..=room as u32).map(|n| FakeUnit::new(n, abi::DDIR_WRITE, u64::from(n) * 4096)).collect();
    job.lanes[0].grow(units.len());
    for u in &mut units {
        assert_eq!(job.take(u), abi::FIO_Q_QUEUED);
    }
    assert_eq!(job.get(units.len() as u32, units.len() as u32, None), units.len());
    assert!(units.iter_mut().all(|u| u.unit().error() == 0));
}

#[test]
fn a_wait_ends_with_its_time() {
    let mut u = FakeUnit::new(0, abi::DDIR_READ, 0);
    let mut job = job("mem,zones=4,zone-size=1M,latency=100ms", 1);
    assert_eq!(job.take(&mut u), abi::FIO_Q_QUEUED);
    let start = Instant::now();
    let none = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    assert_eq!(job.get(1, 1, Some(&none)), 0);
    let short = libc::timespec { tv_sec: 0, tv_nsec: 10_000_000 };
    assert_eq!(job.get(1, 1, Some(&short)), 0);
    assert!(start.elapsed() < Duration::from_millis(90), "{:?}", start.elapsed());
    assert_eq!(job.get(1, 1, None), 1);
}

#[test]
fn a_request_that_fails_is_reported_with_its_error() {
    let mut u = FakeUnit::new(0, abi::DDIR_WRITE, 4096);
    let mut job = job("mem,zones=4,zone-size=1M", 1);
    assert_eq!(job.take(&mut u), abi::FIO_Q_QUEUED, "not at the write pointer");
    assert_eq!(job.get(1, 1, None), 1);
    assert_eq!((u.unit().error(), u.unit().resid()), (libc::EIO, 4096));
    u.set(abi().io_u.resid, 0u64);
    u.set(abi().io_u.error, 0u32);
    u.set(abi().io_u.offset, 100u64);
    assert_eq!(job.take(&mut u), -libc::EINVAL, "not aligned");
    assert!(!job.broken);
}

#[test]
fn a_unit_that_cannot_be_one_of_fio_ends_the_job() {
    let spec = "mem,zones=4,zone-size=1M,latency=5ms";
    let read = |index| FakeUnit::new(index, abi::DDIR_READ, 0);
    let mut in_flight = job(spec, 2);
    let (mut first, mut second, mut other) = (read(0), read(0), read(1));
    assert_eq!(in_flight.take(&mut first), abi::FIO_Q_QUEUED);
    assert_eq!(in_flight.take(&mut second), -1000, "its number is in flight");
    assert_eq!(in_flight.take(&mut other), -1000, "the job is broken");

    let mut of_none = read(2);
    assert_eq!(job(spec, 2).take(&mut of_none), -1000);
    let mut elsewhere = read(0);
    elsewhere.set(abi().io_u.file, 0x20_0000usize);
    assert_eq!(job(spec, 2).take(&mut elsewhere), -1000);
    elsewhere.set(abi().io_u.file, 0usize);
    assert_eq!(job(spec, 2).take(&mut elsewhere), -1000);
    let mut long = read(0);
    long.set(abi().io_u.offset, 4u64 << 20);
    assert_eq!(job(spec, 2).take(&mut long), -1000, "past the end");
    let mut strange = read(0);
    strange.set(abi().io_u.ddir, 17u32);
    assert_eq!(job(spec, 2).take(&mut strange), -1000);
}

#[test]
fn a_job_with_two_disks_reaps_both() {
    let mut job = job("mem,zones=4,zone-size=1M", 2);
    let slow = Device::open(&"mem,zones=4,zone-size=1M,latency=5ms".parse().unwrap()).unwrap();
    job.lanes.push(Lane::new(Arc::new(slow), 2, false).unwrap());
    let other = FILE.wrapping_byte_add(64);
    job.files.push((other, 1));
    let (mut a, mut b) =
        (FakeUnit::new(0, abi::DDIR_WRITE, 0), FakeUnit::new(1, abi::DDIR_WRITE, 0));
    b.set(abi().io_u.file, other);
    assert_eq!((job.take(&mut b), job.take(&mut a)), (abi::FIO_Q_QUEUED, abi::FIO_Q_QUEUED));
    assert_eq!(job.get(2, 2, None), 2);
    assert_eq!(job.offered(), [a.ptr(), b.ptr()]);
    assert_eq!(job.get(1, 2, None), 0, "nothing is in flight");
}

/// Appends one block by each of `units`, reads each back by the offset that fio named, and returns the first bytes.
fn append_and_read_back(job: &mut Job, units: u32, first: u64) -> Vec<u8> {
    let at = |n: u32| first + u64::from(n) * 4096;
    let mut all: Vec<_> = (0..units).map(|n| FakeUnit::new(n, abi::DDIR_WRITE, at(n))).collect();
    for u in &mut all {
        assert_eq!(job.take(u), abi::FIO_Q_QUEUED);
    }
    assert_eq!(job.get(units, units, None), units as usize);
    let mut back: Vec<_> = (0..units).map(|n| FakeUnit::new(n, abi::DDIR_READ, at(n))).collect();
    for u in &mut back {
        u.data.fill(0xee);
        assert_eq!(job.take(u), abi::FIO_Q_QUEUED);
    }
    assert_eq!(job.get(units, units, None), units as usize);
    assert!(all.iter_mut().chain(&mut back).all(|u| u.unit().error() == 0));
    back.iter().map(|u| u.data[0]).collect()
}

/// The disk places appends itself, in another order than they were queued.
const APPENDS: &str = "mem,zones=4,zone-size=1M,conv=1,append=native,reorder=7,zone_append=1";

#[test]
fn data_of_appends_are_read_where_the_disk_put_them() {
    let mut job = job(APPENDS, 8);
    let own: Vec<u8> = (0..8).collect();
    assert_eq!(append_and_read_back(&mut job, 8, 1 << 20), own);
    let device = job.lanes[0].device.clone();
    let places = device.places_of(1 << 20, 8 * 4096);
    assert!(places.len() > 1, "the disk kept the order, so the test shows nothing: {places:?}");

    // One read of all: its parts are no neighbours on the disk.
    let mut whole = FakeUnit::new(0, abi::DDIR_READ, 1 << 20);
    whole.data = vec![0xee; 8 * 4096];
    let data = whole.data.as_mut_ptr();
    for at in [abi().io_u.buf, abi().io_u.xfer_buf] {
        whole.set(at, data);
    }
    for at in [abi().io_u.buflen, abi().io_u.xfer_buflen] {
        whole.set(at, 8u64 * 4096);
    }
    assert_eq!(job.take(&mut whole), abi::FIO_Q_COMPLETED);
    assert_eq!(whole.data.iter().step_by(4096).copied().collect::<Vec<_>>(), own);

    // After a reset fio's offsets have no data, wherever earlier appends were.
    device.manage(Op::ZoneReset, 1 << 20, 1 << 20).unwrap();
    assert_eq!(device.places_of(1 << 20, 8 * 4096).len(), 1);
    assert_eq!(append_and_read_back(&mut job, 8, 1 << 20), own, "the places of the last appends");
}

#[test]
fn a_conventional_zone_is_written_where_fio_says() {
    let mut job = job(APPENDS, 4);
    assert_eq!(append_and_read_back(&mut job, 4, 64 << 10), [0, 1, 2, 3]);
    assert_eq!(job.lanes[0].device.places_of(0, 1 << 20).len(), 1);
}

#[test]
fn an_append_that_fails_is_reported_and_its_unit_can_be_used_again() {
    let mut job = job("mem,zones=4,zone-size=8K,append=native,zone_append=1", 4);
    let mut units: Vec<_> =
        (0..3).map(|n| FakeUnit::new(n, abi::DDIR_WRITE, 8192 + u64::from(n % 2) * 4096)).collect();
    for u in &mut units {
        assert_eq!(job.take(u), abi::FIO_Q_QUEUED);
    }
    assert_eq!(job.get(3, 3, None), 3);
    let errors: Vec<_> = units.iter_mut().map(|u| u.unit().error()).collect();
    assert_eq!(
        errors.iter().filter(|e| **e == 0).count(),
        2,
        "a zone has room for two: {errors:?}"
    );
    let mut back = FakeUnit::new(2, abi::DDIR_READ, 0);
    assert_eq!((job.take(&mut back), job.get(1, 1, None)), (abi::FIO_Q_QUEUED, 1));
}

#[test]
fn a_job_that_ends_with_appends_in_flight_waits_for_them() {
    let mut job = job(&format!("{APPENDS},latency=50ms"), 2);
    let mut sent = FakeUnit::new(0, abi::DDIR_WRITE, 1 << 20);
    let mut queued = FakeUnit::new(1, abi::DDIR_WRITE, 1 << 20);
    assert_eq!(job.take(&mut sent), abi::FIO_Q_QUEUED);
    job.commit();
    assert_eq!(job.take(&mut queued), abi::FIO_Q_QUEUED);
    let start = Instant::now();
    drop(job);
    assert!(start.elapsed() >= Duration::from_millis(40), "the append is still in flight");
}
