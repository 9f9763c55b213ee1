//! A device whose queue panics, under threads: what it had ends with *no device*, wherever that happens and
//! whichever thread was polling; the reactor lives, other queues go on, and memory that the device may still use stays.

use crate::common::{Bad, PanicPlace, until, within};
use std::sync::Arc;
use std::time::Duration;
use zoneplug_buf::{AlignedBuf, IoBuf};
use zoneplug_core::disk::DiskConfig;
use zoneplug_core::{Bio, Bios, Flags, Op, Sector, Status, ZoneNo, lost_bios};
use zoneplug_host::{AsyncDisk, BlockingDisk, HostedDisk};

const ZONE: u64 = 2048;
/// Slow enough that what is to be in flight is.
const SPEC: &str = "mem,zones=8,zone-size=1M,latency=200ms";

fn rig(spec: &str) -> (Arc<Bad>, HostedDisk) {
    let dev = Bad::new(spec);
    let disk = HostedDisk::open(dev.clone(), DiskConfig::default()).unwrap();
    (dev, disk)
}

fn append(zone: u64, token: u64) -> Box<Bio> {
    let mut bio = Bio::with_buf(Op::ZoneAppend, Sector(zone * ZONE), 8, IoBuf::leaked(4096));
    bio.set_token(token);
    bio.flags = Flags::NOMERGE;
    bio
}

/// In the client's own call: it is told, its buffer is withheld, a new client works and recovers the zone.
#[test]
fn a_blocking_client_is_told_and_a_new_one_goes_on() {
    for place in [PanicPlace::Submit, PanicPlace::Taken, PanicPlace::Poll] {
        within("blocking", move || {
            let (dev, disk) = rig("mem,zones=8,zone-size=1M");
            let mut io = BlockingDisk::new(&disk).unwrap();
            io.append(Sector(0), AlignedBuf::zeroed(4096)).unwrap();
            dev.plan.panic_at(place);
            let e = io.append(Sector(0), AlignedBuf::zeroed(8192)).map(|a| a.0);
            if place == PanicPlace::Poll {
                // It came back in the very call that panicked: it has ended as it says.
                assert_eq!(e.unwrap(), Sector(8));
            } else {
                assert_eq!(e.unwrap_err().status, Status::NoDevice, "{place:?}");
            }
            let withheld = if place == PanicPlace::Taken { 8192 } else { 0 };
            assert_eq!(disk.withheld().bytes, withheld, "{place:?}");
            assert_eq!(io.flush().unwrap_err().status, Status::NoDevice, "for good");
            let mut io = BlockingDisk::new(&disk).unwrap();
            let wp = io.zone(ZoneNo(0)).unwrap().wp;
            assert_eq!(io.append(Sector(0), AlignedBuf::zeroed(4096)).unwrap().0, wp);
            assert_eq!((disk.disk().counters().dead_queues, lost_bios()), (1, 0));
        });
    }
}

/// While all clients sleep the reactor meets the panic. It lives, and wakes the clients that sleep now and later.
#[test]
fn the_reactor_outlives_a_panic() {
    for place in [PanicPlace::Poll, PanicPlace::Deadline] {
        within("the reactor", move || {
            let (dev, disk) = rig(SPEC);
            let mut a = disk.open_client(8, 4).unwrap();
            let mut b = disk.open_client(8, 4).unwrap();
            a.submit(&mut Bios::from([append(0, 0)]));
            b.submit(&mut Bios::from([append(0, 1), append(1, 2)]));
            let sleeper = std::thread::spawn(move || {
                let mut done = Bios::new();
                b.wait(&mut done, 2, None);
                (done, b)
            });
            // Asleep by then, and the commands are not due yet.
            std::thread::sleep(Duration::from_millis(10));
            dev.plan.panic_at(place);
            let mut done = Bios::new();
            a.wait(&mut done, 1, None);
            let (theirs, mut b) = sleeper.join().unwrap();
            let mut all: Vec<_> = done.into_iter().chain(theirs).collect();
            all.sort_by_key(|bio| bio.token());
            // Whichever queue it was, and whatever it had at that moment.
            assert_eq!(all.iter().map(|bio| bio.token()).collect::<Vec<_>>(), [0, 1, 2]);
            for bio in &all {
                assert!(matches!(
                    bio.status,
                    Status::Ok | Status::NoDevice | Status::AbortedBehind
                ));
                // One that was sent to a queue that had just died never reached the device.
                assert!(!a.is_late(bio) || bio.status == Status::NoDevice);
            }
            // Both sleep again and again: in the end one is dead, and the other is not.
            let mut last = Vec::new();
            until("a queue dies and the other goes on", || {
                last.clear();
                for client in [&mut a, &mut b] {
                    let mut done = Bios::new();
                    client.submit(&mut Bios::from([Bio::new(Op::Flush, Sector(0), 0)]));
                    client.wait(&mut done, 1, None);
                    last.push(done[0].status);
                }
                last.sort();
                last == [Status::Ok, Status::NoDevice]
            });
            assert_eq!(disk.disk().counters().dead_queues, 1);
            assert_eq!(lost_bios(), 0);
        });
    }
}

/// Arming is a call into the device too.
#[test]
fn a_panic_in_arm_wakes_the_sleeper() {
    within("arm", || {
        let (dev, disk) = rig(SPEC);
        let mut a = disk.open_client(8, 4).unwrap();
        a.submit(&mut Bios::from([append(0, 0)]));
        dev.plan.panic_at(PanicPlace::Arm);
        let mut done = Bios::new();
        a.wait(&mut done, 1, None);
        assert_eq!(done[0].status, Status::NoDevice);
    });
}

/// A client that sleeps on its device's descriptor, without the reactor: the device panics in the poll between arming
/// and sleeping, and the descriptor will never tell.
#[test]
fn a_panic_between_arming_and_sleeping_is_seen() {
    use std::os::fd::AsRawFd;
    within("a descriptor", || {
        let (never, _writer) = std::io::pipe().unwrap();
        let (dev, disk) = rig("mem,zones=8,zone-size=1M");
        let mut a = disk.open_client(8, 4).unwrap();
        dev.plan.gate(never.as_raw_fd());
        a.submit(&mut Bios::from([append(0, 0), append(0, 1)]));
        let mut done = Bios::new();
        a.wait(&mut done, 2, None);
        assert_eq!([done[0].status, done[1].status], [Status::Ok, Status::NoDevice]);
    });
}

/// A client is dropped with I/O on a queue that then dies: nothing waits for the I/O, and the disk closes.
#[test]
fn a_dead_queue_of_a_client_that_has_gone_is_buried() {
    within("gone", || {
        let (dev, disk) = rig(SPEC);
        let mut a = disk.open_client(8, 4).unwrap();
        a.submit(&mut (0..4).map(|i| append(i, i)).collect());
        dev.plan.panic_at(PanicPlace::Poll);
        drop(a);
        until("it has met the panic", || disk.disk().counters().dead_queues == 1);
        drop(disk.freeze().unwrap());
        disk.revalidate().unwrap();
        drop(disk);
        until("the device is closed", || Arc::strong_count(&dev) == 1);
        assert_eq!(lost_bios(), 0);
    });
}

/// Futures over a queue that dies all end; their buffers stay with the disk.
#[test]
fn futures_over_a_queue_that_dies_end() {
    within("futures", || {
        let (dev, disk) = rig(SPEC);
        dev.plan.panic_at(PanicPlace::Poll);
        let io = AsyncDisk::new(&disk, 8).unwrap();
        let all: Vec<_> = (0..8)
            .map(|z| Box::pin(io.append(Sector(z * ZONE), AlignedBuf::zeroed(4096))))
            .collect();
        let mut statuses = Vec::new();
        for f in all {
            statuses.push(block_on(f).map_or_else(|e| e.status, |_| Status::Ok));
        }
        assert_eq!(statuses, [Status::NoDevice; 8]);
        assert_eq!(disk.withheld().buffers, 8);
        drop(io);
        BlockingDisk::new(&disk).unwrap().flush().unwrap();
    });
}

/// Again and again, under load from several threads that replace the clients that died.
#[test]
fn panics_under_load_stop_nobody() {
    within("load", || {
        let (dev, disk) = rig("mem,zones=8,zone-size=1M,latency=50us");
        let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let threads: Vec<_> = (0..3)
            .map(|id| {
                let (disk, stop) = (disk.clone(), stop.clone());
                std::thread::spawn(move || {
                    let mut io = BlockingDisk::new(&disk).unwrap();
                    let (start, mut ok) = (Sector(id % 2 * ZONE), 0u64);
                    while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                        let result = io.append(start, AlignedBuf::zeroed(4096));
                        match result.map_err(|e| e.status) {
                            Ok(_) => ok += 1,
                            Err(Status::NoDevice) => io = BlockingDisk::new(&disk).unwrap(),
                            Err(Status::PastCapacity | Status::ZoneFull) => {
                                let _ = io.reset(start, ZONE);
                            }
                            Err(_) => {
                                let _ = io.report(start, 1);
                            }
                        }
                    }
                    ok
                })
            })
            .collect();
        let places = [
            PanicPlace::Submit,
            PanicPlace::Taken,
            PanicPlace::Poll,
            PanicPlace::Deadline,
            PanicPlace::Arm,
        ];
        for round in 0..60 {
            dev.plan.panic_at(places[round % places.len()]);
            std::thread::sleep(Duration::from_millis(5));
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        let ok: u64 = threads.into_iter().map(|t| t.join().unwrap()).sum();
        let dead = disk.disk().counters().dead_queues;
        assert!(ok > 50 && dead > 2, "{ok} appends, {dead} queues died");
        dev.plan.panic_at(PanicPlace::Nowhere);
        let mut io = BlockingDisk::new(&disk).unwrap();
        io.append(Sector(4 * ZONE), AlignedBuf::zeroed(4096)).unwrap();
        drop((io, disk));
        until("the device is closed", || Arc::strong_count(&dev) == 1);
        assert_eq!(lost_bios(), 0);
    });
}

fn block_on<T>(f: impl Future<Output = T>) -> T {
    let mut f = std::pin::pin!(f);
    loop {
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        if let std::task::Poll::Ready(v) = f.as_mut().poll(&mut cx) {
            return v;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A device that says that its report has worked and reports no zone.
#[test]
fn a_zone_of_a_device_that_reports_none_is_an_error() {
    let device = Bad::new("mem,zones=4,zone-size=1M");
    let disk = HostedDisk::open(device.clone(), DiskConfig::default()).unwrap();
    let mut io = BlockingDisk::new(&disk).unwrap();
    assert_eq!(io.zone(ZoneNo(1)).unwrap().start, Sector(2048));
    device.plan.mute.store(true, std::sync::atomic::Ordering::SeqCst);
    let e = io.zone(ZoneNo(1)).unwrap_err();
    assert_eq!((e.op, e.sector, e.status), (Op::ReportZones, Sector(2048), Status::Io));
    assert!(io.report(Sector(0), 4).unwrap().is_empty());
}
