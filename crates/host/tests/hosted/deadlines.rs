//! Command deadlines of hosted disks: a client that waits gets an error, awake or asleep. Memory stays while the device
//! may use it. A late completion changes nothing.

use crate::common::{Bad, LONG, timeout, until, within};
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};
use zoneplug_buf::{AlignedBuf, IoBuf};
use zoneplug_core::{Bio, Bios, Flags, Op, Random, Sector, Status, ZoneNo, lost_bios};
use zoneplug_host::IoError;
use zoneplug_host::{AsyncDisk, BlockingDisk, Client, DiskSpec, HostedDisk, leaked_buffers};

const ZONE: u64 = 2048;

fn open(rest: &str) -> HostedDisk {
    HostedDisk::open_spec(&format!("mem,zones=8,zone-size=1M,{rest}")).unwrap()
}

fn block_on<T>(f: impl Future<Output = T>) -> T {
    struct Unpark(std::thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut f = pin!(f);
    let end = Instant::now() + LONG;
    loop {
        if let Poll::Ready(v) = f.as_mut().poll(&mut Context::from_waker(&waker)) {
            return v;
        }
        std::thread::park_timeout(LONG);
        assert!(Instant::now() < end, "hang");
    }
}

fn append(nomerge: bool, token: u64) -> Box<Bio> {
    let mut bio = Bio::with_buf(Op::ZoneAppend, Sector(0), 8, IoBuf::leaked(4096));
    bio.set_token(token);
    if nomerge {
        bio.flags = Flags::NOMERGE;
    }
    bio
}

#[test]
fn a_timeout_key_is_a_time_above_zero() {
    assert_eq!(
        DiskSpec::parse("null,timeout=2s").unwrap().config.timeout.unwrap().0,
        2_000_000_000
    );
    // Under Linux's name, in Linux's unit.
    assert_eq!(
        DiskSpec::parse("null,io_timeout=30000").unwrap().config,
        DiskSpec::parse("null,timeout=30s").unwrap().config
    );
    assert_eq!(DiskSpec::parse("null").unwrap().config.timeout, None);
    for bad in ["0", "0s", "86400001", "soon"] {
        let e = DiskSpec::parse(&format!("null,timeout={bad}")).unwrap_err();
        assert_eq!(e.what(), format!("timeout={bad} is not possible"));
        assert!(e.what_to_try().unwrap().contains("a time above 0, such as 500ms"));
    }
}

/// The blocking adapter: *timeout*, the buffer withheld, the zone recovers.
#[test]
fn a_lost_completion_times_out_and_the_zone_recovers() {
    within("blocking", || {
        let disk = open("timeout=40ms,fault=write/lost");
        let mut io = BlockingDisk::new(&disk).unwrap();
        let start = Instant::now();
        let e = io.write(Sector(0), AlignedBuf::zeroed(8192)).unwrap_err();
        assert_eq!((e.op, e.status), (Op::Write, Status::Timeout));
        assert!(start.elapsed() >= Duration::from_millis(40));
        assert!(disk.disk().cached_zone(ZoneNo(0)).is_err(), "the write pointer is unknown");
        let e = io.write(Sector(16), AlignedBuf::zeroed(4096)).unwrap_err();
        assert_eq!(e.status, Status::StaleWritePointer);
        assert_eq!(io.zone(ZoneNo(0)).unwrap().wp, Sector(16), "it was carried out after all");
        io.write(Sector(16), AlignedBuf::zeroed(4096)).unwrap();
        let withheld = disk.withheld();
        assert_eq!((withheld.buffers, withheld.bytes), (1, 8192));
        let counters = disk.disk().counters();
        assert_eq!((counters.timeouts, counters.late), (1, 1));
    });
}

/// A client that sleeps without a timeout of its own is woken for the deadline, though nothing completes.
#[test]
fn a_sleeper_is_woken_for_its_deadline() {
    within("a sleeper", || {
        let disk = open("timeout=100ms,fault=any/lost/count=all/skip=1");
        let mut client = disk.open_client(8, 4).unwrap();
        let flush = || Bio::new(Op::Flush, Sector(0), 0);
        client.submit(&mut Bios::from([flush(), flush()]));
        let mut done = Bios::new();
        assert_eq!(client.wait(&mut done, 2, None), 2);
        assert!(done.iter().all(|b| b.status == Status::Timeout && client.is_late(b)));
    });
}

/// What a sleeper waits for is on the lane of a client that never polls: the reactor keeps that lane's deadlines.
#[test]
fn a_deadline_on_another_clients_lane_wakes_who_waits_behind() {
    within("a sleeper behind another", || {
        let disk = open("timeout=100ms,fault=write/lost");
        let mut bad = disk.open_client(8, 4).unwrap();
        bad.submit(&mut Bios::from([append(true, 0)]));
        let mut good = disk.open_client(8, 4).unwrap();
        good.submit(&mut Bios::from([append(true, 1)]));
        let mut done = Bios::new();
        good.wait(&mut done, 1, None);
        assert_eq!((done[0].status, done[0].late()), (Status::AbortedBehind, None));
        bad.wait(&mut done, 1, None);
        assert_eq!(done[1].status, Status::Timeout);
        assert!(bad.is_late(&done[1]));
    });
}

/// The ticket is of the disk: the write of one client may be late on the lane of another, which sleeps or has gone.
#[test]
fn memory_is_in_use_while_another_clients_lane_has_the_command() {
    within("late elsewhere", || {
        let device =
            DiskSpec::parse("mem,zones=8,zone-size=1M,latency=5ms,fault=write/delay=2s/skip=1");
        let disk = HostedDisk::open(device.unwrap().device, timeout(100)).unwrap();
        let mut a = disk.open_client(8, 4).unwrap();
        let mut b = disk.open_client(8, 4).unwrap();
        a.submit(&mut Bios::from([append(true, 0)]));
        b.submit(&mut Bios::from([append(true, 1)]));
        let mut done = Bios::new();
        assert_eq!(a.wait(&mut done, 1, None), 1); // and sends b's
        drop(a);
        assert_eq!(b.wait(&mut done, 1, None), 1);
        assert_eq!((done[0].status, done[1].status), (Status::Ok, Status::Timeout));
        assert!(!b.is_late(&done[0]) && b.is_late(&done[1]));
        // No client polls any more; the reactor does.
        until("the late command is back", || !b.is_late(&done[1]));
        assert_eq!(disk.disk().counters().late, 0);
        drop(disk.freeze().unwrap());
        assert_eq!(lost_bios(), 0);
    });
}

/// A client polled and never slept, so that there was no reactor: after that the reactor polls.
#[test]
fn the_reactor_looks_for_what_is_late() {
    within("looking", || {
        let disk = open("timeout=20ms,fault=flush/delay=200ms");
        let mut client = disk.open_client(8, 4).unwrap();
        client.submit(&mut Bios::from([Bio::new(Op::Flush, Sector(0), 0)]));
        let mut done = Bios::new();
        until("it is over", || {
            client.poll(&mut done);
            !done.is_empty()
        });
        assert_eq!(done[0].status, Status::Timeout);
        assert!(client.is_late(&done[0]));
        until("it is back", || !client.is_late(&done[0]));
    });
}

/// A device that writes into memory long after the operation has ended with *timeout*: the memory still belongs to
/// the buffer, whatever was dropped meanwhile, and it is freed in the end.
#[test]
fn a_late_read_lands_in_no_one_elses_memory() {
    const LEN: u32 = 1 << 20;
    for gone in [false, true] {
        within("a late read", move || {
            let dev = Bad::new("mem,zones=4,zone-size=4M");
            let disk = HostedDisk::open(dev.clone(), timeout(30)).unwrap();
            let mut io = BlockingDisk::new(&disk).unwrap();
            let mut pattern = AlignedBuf::zeroed(LEN);
            pattern.write(0, &vec![0xaa; LEN as usize]);
            drop(io.write(Sector(0), pattern).unwrap());
            dev.plan.slow_reads(Duration::from_millis(200));
            let e = io.read(Sector(0), u64::from(LEN >> 9)).unwrap_err();
            assert_eq!(e.status, Status::Timeout);
            let other = AsyncDisk::new(&disk, 4).unwrap();
            let e = block_on(other.read(Sector(0), u64::from(LEN >> 9))).unwrap_err();
            assert_eq!(e.status, Status::Timeout);
            assert_eq!(disk.withheld().buffers, 2);
            let victims: Vec<_> = (0..4).map(|_| AlignedBuf::zeroed(LEN)).collect();
            let disk = if gone {
                drop((io, other, disk));
                None
            } else {
                Some((disk, io, other))
            };
            std::thread::sleep(Duration::from_millis(300));
            assert!(victims.iter().all(|v| v.to_vec().iter().all(|&b| b == 0)));
            match disk {
                Some((disk, ..)) => until("freed", || disk.withheld().buffers == 0),
                None => until("closed", || Arc::strong_count(&dev) == 1),
            }
        });
    }
}

/// Futures: those that are lost end with *timeout*, the others are as if nothing had happened; also those whose futures
/// were dropped.
#[test]
fn futures_end_with_their_deadlines() {
    within("futures", || {
        let disk = open("timeout=60ms,fault=read/lost/count=3+read/delay=150ms/count=3");
        let io = AsyncDisk::new(&disk, 16).unwrap();
        block_on(io.append(Sector(0), AlignedBuf::zeroed(65536))).unwrap();
        let mut reads: Vec<_> = (0..10).map(|i| Box::pin(io.read(Sector(i * 8), 8))).collect();
        drop(reads.remove(0));
        let results: Vec<Result<AlignedBuf, IoError>> = reads.into_iter().map(block_on).collect();
        let timeouts =
            results.iter().filter(|r| matches!(r, Err(e) if e.status == Status::Timeout));
        assert_eq!(timeouts.count(), 5, "one of the six had its future dropped");
        assert_eq!(results.iter().filter(|r| r.is_ok()).count(), 4);
        until("the delayed ones are back", || disk.withheld().buffers == 3);
        assert_eq!(disk.disk().counters().late, 3);
        // The adapter goes; the disk goes on.
        drop(io);
        BlockingDisk::new(&disk).unwrap().read(Sector(0), 8).unwrap();
    });
}

/// When every place at the device is taken by what does not come back, a client is told so at once; others are not.
#[test]
fn a_client_whose_every_command_is_lost_is_offline() {
    within("offline", || {
        let disk = open("timeout=30ms,tags=2,fault=read/lost/count=3");
        let mut client = disk.open_client(16, 2).unwrap();
        let read = || Bio::with_buf(Op::Read, Sector(0), 8, IoBuf::leaked(4096));
        let mut list: Bios = (0..8).map(|_| read()).collect();
        client.submit(&mut list);
        let mut done = Bios::new();
        assert_eq!(client.wait(&mut done, 8, None), 8);
        let count = |s: Status| done.iter().filter(|b| b.status == s).count();
        assert_eq!((count(Status::Timeout), count(Status::NoDevice)), (3, 5));
        assert!(done.iter().all(|b| client.is_late(b) == (b.status == Status::Timeout)));
        BlockingDisk::new(&disk).unwrap().read(Sector(0), 8).unwrap();
    });
}

/// A freeze and a revalidation do not wait for late commands, and a report that is lost leaves the disk as it was.
#[test]
fn freezing_and_revalidating_with_late_commands() {
    within("freeze", || {
        let disk = open("timeout=30ms,fault=read/lost/count=2+report/lost/skip=1");
        let mut io = BlockingDisk::new(&disk).unwrap();
        io.append(Sector(ZONE), AlignedBuf::zeroed(4096)).unwrap();
        assert_eq!(io.read(Sector(0), 8).unwrap_err().status, Status::Timeout);
        drop(disk.freeze().unwrap());
        let e = disk.revalidate().unwrap_err().to_string();
        assert!(e.contains("report zones failed: timeout"), "{e}");
        assert_eq!(disk.disk().counters().late, 2);
        assert_eq!(io.append(Sector(ZONE), AlignedBuf::zeroed(4096)).unwrap().0, Sector(ZONE + 8));
        disk.revalidate().unwrap();
        drop(disk.freeze().unwrap());
    });
}

/// Without deadlines a lost command keeps the disk from draining. A caller that waits for that gets an error, and the
/// disk goes on.
#[test]
fn draining_with_a_lost_command_ends_without_deadlines_too() {
    within("draining", || {
        let disk = open("fault=read/lost/count=1");
        disk.disk().set_drain_limit(zoneplug_core::Nanos(50_000_000));
        let mut client = disk.open_client(4, 4).unwrap();
        let read = Bio::with_buf(Op::Read, Sector(0), 8, IoBuf::leaked(4096));
        client.submit(&mut Bios::from([read]));
        let waits: [&dyn Fn() -> Result<(), zoneplug_core::Error>; 3] = [
            &|| disk.freeze().map(drop),
            &|| disk.set_attribute("scheduler", "mq-deadline"),
            &|| disk.revalidate(),
        ];
        for wait in waits {
            let e = wait().unwrap_err();
            assert_eq!(e.kind(), zoneplug_core::ErrorKind::Busy);
            assert!(e.to_string().contains("does not drain"), "{e}");
        }
        assert_eq!(disk.disk().attribute("scheduler").unwrap(), "none");
        let mut io = BlockingDisk::new(&disk).unwrap();
        io.append(Sector(ZONE), AlignedBuf::zeroed(4096)).unwrap();
    });
}

/// The last handle of the disk has gone, and a command was lost: the reactor waits as long again, then closes the
/// device. The buffer is leaked, and counted.
#[test]
fn a_disk_with_a_lost_command_is_closed_in_the_end() {
    within("closing", || {
        let before = leaked_buffers();
        let spec = DiskSpec::parse("mem,zones=4,zone-size=1M,fault=read/lost").unwrap();
        let device = spec.device;
        let disk = HostedDisk::open(device.clone(), timeout(30)).unwrap();
        let mut io = BlockingDisk::new(&disk).unwrap();
        assert_eq!(io.read(Sector(0), 8).unwrap_err().status, Status::Timeout);
        drop(disk);
        let start = Instant::now();
        drop(io);
        assert!(start.elapsed() < Duration::from_millis(90), "a drop waits for nothing in flight");
        until("the device is closed", || Arc::strong_count(&device) == 1);
        until("the buffer is counted", || leaked_buffers() > before);
    });
}

/// A client that goes with an operation in flight: its buffer stays until the late completion, then it is freed.
#[test]
fn a_buffer_of_a_client_that_has_gone_outlives_its_deadline() {
    within("gone", || {
        let dev = Bad::new("mem,zones=4,zone-size=4M");
        let disk = HostedDisk::open(dev.clone(), timeout(60)).unwrap();
        let mut io = BlockingDisk::new(&disk).unwrap();
        dev.plan.slow_reads(Duration::from_millis(900));
        io.set_timeout(Some(Duration::from_millis(5)));
        assert_eq!(io.read(Sector(0), 8).unwrap_err().status, Status::Timeout);
        assert_eq!(disk.disk().counters().timeouts, 0, "the adapter's patience was shorter");
        drop(io);
        until("its command is late", || disk.disk().counters().late == 1);
        until("its buffer is with the disk", || disk.withheld().buffers == 1);
        until("its buffer is free", || disk.withheld().buffers == 0);
        assert_eq!((disk.disk().counters().late, lost_bios()), (0, 0));
    });
}

/// Appends, reads and resets of a zone of one's own; a client that went offline is replaced.
fn work(disk: &HostedDisk, id: u64, ops: u64) -> [u64; 2] {
    let mut rng = Random::new(id);
    let mut io = BlockingDisk::new(disk).unwrap();
    let start = Sector(id * ZONE);
    let (mut ok, mut failed) = (0, 0);
    let mut landed: Vec<(Sector, u8)> = Vec::new();
    for n in 0..ops {
        let result = match rng.below(8) {
            0 => io.reset(start, ZONE).map(|()| landed.clear()),
            1 => io.report(start, 1).map(drop),
            2..5 => {
                let stamp = n as u8 | 1;
                let mut buf = AlignedBuf::zeroed(4096);
                buf.write(0, &[stamp; 4096]);
                io.append(start, buf).map(|(at, _)| landed.push((at, stamp)))
            }
            _ if landed.is_empty() => continue,
            _ => {
                let (at, stamp) = rng.pick(&landed);
                io.read(at, 8).map(|b| assert!(b.to_vec().iter().all(|&x| x == stamp)))
            }
        };
        let Err(e) = result else {
            ok += 1;
            continue;
        };
        failed += 1;
        match e.status {
            Status::Timeout | Status::NoDevice => {
                // A reset may have happened.
                if e.op == Op::ZoneReset {
                    landed.clear();
                }
                if e.status == Status::NoDevice {
                    io = BlockingDisk::new(disk).unwrap();
                }
                let _ = io.report(start, 1);
            }
            Status::StaleWritePointer => {
                let _ = io.report(start, 1);
            }
            Status::ZoneFull | Status::PastCapacity => {
                if io.reset(start, ZONE).is_ok() {
                    landed.clear();
                }
            }
            s => panic!("{e}: {s:?}"),
        }
    }
    [ok, failed]
}

/// Several threads, blocking and asleep, over a device that loses and delays: nothing hangs, acknowledged data is
/// there.
#[test]
fn threads_over_a_device_that_loses_and_delays() {
    within("threads", || {
        let faults = "any/lost/p=0.01/count=all/skip=1+any/delay=25ms/p=0.01/count=all+read/delay=2ms/p=0.1/count=all";
        let disk = open(&format!("timeout=15ms,fault={faults}"));
        let threads: Vec<_> = (0..4)
            .map(|id| {
                let disk = disk.clone();
                std::thread::spawn(move || work(&disk, id, 1500))
            })
            .collect();
        let io = AsyncDisk::new(&disk, 8).unwrap();
        let mut ended = 0;
        for _ in 0..60 {
            let writes: Vec<_> =
                (0..6).map(|_| io.append(Sector(5 * ZONE), AlignedBuf::zeroed(4096))).collect();
            ended += writes.into_iter().map(block_on).count();
            let _ = block_on(io.report(Sector(5 * ZONE), 1));
        }
        assert_eq!(ended, 360);
        let all: Vec<_> = threads.into_iter().map(|t| t.join().unwrap()).collect();
        let (ok, failed) =
            (all.iter().map(|a| a[0]).sum::<u64>(), all.iter().map(|a| a[1]).sum::<u64>());
        assert!(ok > 3000 && failed > 50, "{ok} worked, {failed} failed");
        let counters = disk.disk().counters();
        assert!(counters.timeouts > 50 && counters.late < counters.timeouts, "{counters:?}");
        assert_eq!(lost_bios(), 0);
    });
}

fn assert_send<T: Send>(_: &T) {}

/// A disk with deadlines moves between threads as any other.
#[test]
fn a_client_with_deadlines_is_send() {
    let disk = open("timeout=1s");
    let client: Client = disk.open_client(1, 1).unwrap();
    assert_send(&client);
    assert_send(&BlockingDisk::new(&disk).unwrap());
}
