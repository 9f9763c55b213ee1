//! The async adapter under a tiny executor: many futures at a time, futures that are dropped in mid-flight, freezes,
//! errors. Nothing hangs, no buffer is freed under the device.

use crate::common::{LONG, block_on};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};
use zoneplug_buf::AlignedBuf;
use zoneplug_core::zone::Condition;
use zoneplug_core::{Op, Sector, Status, lost_bios};
use zoneplug_host::IoError;
use zoneplug_host::{AsyncDisk, BlockingDisk, HostedDisk};

type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// All of them at a time.
fn all<T>(mut futures: Vec<Boxed<T>>) -> impl Future<Output = Vec<T>> {
    let mut out: Vec<Option<T>> = futures.iter().map(|_| None).collect();
    poll_fn(move |cx| {
        for (f, o) in futures.iter_mut().zip(&mut out) {
            if o.is_none()
                && let Poll::Ready(x) = f.as_mut().poll(cx)
            {
                *o = Some(x);
            }
        }
        if out.iter().any(Option::is_none) {
            return Poll::Pending;
        }
        Poll::Ready(out.iter_mut().filter_map(Option::take).collect())
    })
}

fn filled(len: u32, tag: u64) -> AlignedBuf {
    let mut buf = AlignedBuf::zeroed(len);
    buf.write(0, &tag.to_le_bytes());
    buf
}

fn tag(buf: &AlignedBuf) -> u64 {
    let mut b = [0; 8];
    buf.read(0, &mut b);
    u64::from_le_bytes(b)
}

#[test]
fn writes_accepted_in_a_row_are_in_that_order_though_polled_backwards() {
    let disk = HostedDisk::open_spec("mem,zones=4,zone-size=1M,latency=200us,reorder=3").unwrap();
    let io = AsyncDisk::new(&disk, 8).unwrap();
    let mut futures: Vec<Boxed<Result<AlignedBuf, IoError>>> = (0..64u64)
        .map(|i| Box::pin(io.write(Sector(i * 8), filled(4096, i))) as Boxed<_>)
        .collect();
    futures.reverse();
    for r in block_on(all(futures)) {
        r.unwrap();
    }
    for i in 0..64 {
        assert_eq!(tag(&block_on(io.read(Sector(i * 8), 8)).unwrap()), i);
    }
    assert_eq!(io.outstanding(), 0);
}

#[test]
fn a_thousand_appends_from_four_threads_land_once_each() {
    let disk = HostedDisk::open_spec("mem,zones=4,zone-size=8M,latency=100us,reorder=1").unwrap();
    let shared = AsyncDisk::new(&disk, 16).unwrap();
    let threads: Vec<_> = (0..4u64)
        .map(|t| {
            // Two share an adapter, two have their own.
            let io = if t < 2 { shared.clone() } else { AsyncDisk::new(&disk, 4).unwrap() };
            std::thread::spawn(move || {
                let futures = (0..250).map(|i| {
                    let op = io.append(Sector(0), filled(4096, t * 1000 + i));
                    Box::pin(async move { op.await.unwrap().0 }) as Boxed<_>
                });
                let at: Vec<Sector> = block_on(all(futures.collect()));
                at.into_iter().enumerate().map(|(i, s)| (s.0, t * 1000 + i as u64)).collect()
            })
        })
        .collect();
    let mut landed: Vec<(u64, u64)> = Vec::new();
    for t in threads {
        landed.extend::<Vec<_>>(t.join().unwrap());
    }
    landed.sort_unstable();
    for (i, (sector, want)) in landed.iter().enumerate() {
        assert_eq!(*sector, i as u64 * 8, "no gap, nothing twice");
        assert_eq!(tag(&block_on(shared.read(Sector(*sector), 8)).unwrap()), *want);
    }
    assert_eq!(landed.len(), 1000);
}

/// Futures are dropped before they are polled, after one poll, or awaited; depth 4 makes many of them wait for room.
#[test]
fn futures_dropped_in_mid_flight_hold_nobody_up() {
    let disk = HostedDisk::open_spec("mem,zones=8,zone-size=1M,latency=300us,reorder=9").unwrap();
    let io = AsyncDisk::new(&disk, 4).unwrap();
    let lost = lost_bios();
    for round in 0..20u64 {
        let kept: Vec<Boxed<Result<(Sector, AlignedBuf), IoError>>> = (0..30u64)
            .filter_map(|i| {
                let mut op = Box::pin(io.append(Sector(2048 * (i % 8)), filled(4096, i)));
                match (i + round) % 3 {
                    0 => None,
                    1 => {
                        let _ = op.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                        None
                    }
                    _ => Some(op as Boxed<_>),
                }
            })
            .collect();
        for r in block_on(all(kept)) {
            r.unwrap();
        }
    }
    block_on(io.flush()).unwrap();
    let end = Instant::now() + LONG;
    while io.outstanding() > 0 {
        block_on(io.read(Sector(0), 8)).unwrap();
        assert!(Instant::now() < end, "what was given up never ends");
    }
    assert_eq!(lost_bios(), lost);
}

#[test]
fn an_adapter_dropped_in_mid_flight_leaves_its_buffers_to_the_disk() {
    let disk = HostedDisk::open_spec("mem,zones=4,zone-size=1M,latency=100ms").unwrap();
    let lost = lost_bios();
    for z in 0..4u64 {
        let io = AsyncDisk::new(&disk, 2).unwrap();
        let start = Instant::now();
        let mut op = Box::pin(io.write(Sector(2048 * z), filled(4096, 70 + z)));
        assert!(op.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        let waiting = io.write(Sector(2048 * z + 8), filled(4096, 80 + z));
        let never_sent = io.write(Sector(2048 * z + 16), filled(4096, 90 + z));
        drop((io, op, waiting, never_sent));
        assert!(start.elapsed() < Duration::from_millis(80), "dropping waits for nothing");
    }
    let io = AsyncDisk::new(&disk, 8).unwrap();
    let end = Instant::now() + LONG;
    for z in 0..4u64 {
        while tag(&block_on(io.read(Sector(2048 * z + 8), 8)).unwrap()) != 80 + z {
            assert!(Instant::now() < end, "the write was lost");
        }
        assert_eq!(tag(&block_on(io.read(Sector(2048 * z), 8)).unwrap()), 70 + z);
        assert_eq!(tag(&block_on(io.read(Sector(2048 * z + 16), 8)).unwrap()), 0);
    }
    assert_eq!(lost_bios(), lost);
}

#[test]
fn a_frozen_disk_holds_operations_back_and_wakes_them_when_it_thaws() {
    let disk = HostedDisk::open_spec("mem,zones=4,zone-size=1M").unwrap();
    let io = AsyncDisk::new(&disk, 4).unwrap();
    for _ in 0..20 {
        let frozen = disk.freeze().unwrap();
        let op = io.append(Sector(0), filled(4096, 1));
        let waiter = std::thread::spawn(move || block_on(op).map(|_| ()));
        std::thread::sleep(Duration::from_millis(2));
        assert!(!waiter.is_finished());
        drop(frozen);
        waiter.join().unwrap().unwrap();
    }
}

#[test]
fn errors_management_and_reports_come_through() {
    let disk = HostedDisk::open_spec("mem,zones=3000,zone-size=8K,conv=1").unwrap();
    let io = AsyncDisk::new(&disk, 4).unwrap();
    block_on(async {
        let e = io.write(Sector(24), filled(4096, 0)).await.unwrap_err();
        assert_eq!((e.op, e.sector, e.status), (Op::Write, Sector(24), Status::NotAtWritePointer));
        let e = io.manage(Op::Read, Sector(0), 8).await.unwrap_err();
        assert_eq!(e.status, Status::NotSupported);
        let e = io.append(Sector(0), filled(4096, 0)).await.unwrap_err();
        assert_eq!(e.status, Status::ConventionalZone);
        let e = io.read(Sector(0), u64::from(u32::MAX)).await.unwrap_err();
        assert_eq!(e.status, Status::OutOfRange);
        io.write_fua(Sector(16), filled(4096, 5)).await.unwrap();
        io.manage(Op::ZoneFinish, Sector(32), 16).await.unwrap();
        let zones = io.report(Sector(0), u32::MAX).await.unwrap();
        assert_eq!(zones.len(), 3000);
        assert_eq!((zones[1].wp, zones[2].cond), (Sector(24), Condition::Full));
        io.manage(Op::ZoneReset, Sector(16), 32).await.unwrap();
        assert_eq!(io.report(Sector(16), 1).await.unwrap()[0].cond, Condition::Empty);
        io.write_zeroes(Sector(16), 8).await.unwrap();
        assert_eq!(io.append_fua(Sector(16), filled(4096, 6)).await.unwrap().0, Sector(24));
        assert_eq!(io.read(Sector(16), 16).await.unwrap().as_slice()[4095..4097], [0, 6]);
        io.discard(Sector(0), 16).await.unwrap();
    });
}

struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic!("a waker that panics");
    }
}

/// I8: a waker is a client's own code. Its panic is told to no other client, and leaves no other one asleep.
#[test]
fn a_waker_that_panics_leaves_no_other_future_asleep() {
    // Longer than a slow machine, or a build with a sanitizer, needs from one poll to the next.
    let disk = HostedDisk::open_spec("mem,zones=4,zone-size=1M,latency=50ms").unwrap();
    let panics = Waker::from(Arc::new(Panics));
    for round in 0..4u64 {
        let io = AsyncDisk::new(&disk, 8).unwrap();
        let zone = Sector(2048 * round);
        let mut bad = Box::pin(io.append(zone, filled(4096, 1)));
        assert!(bad.as_mut().poll(&mut Context::from_waker(&panics)).is_pending());
        // Woken by the reactor.
        block_on(io.append(zone, filled(4096, 2))).unwrap();
        let mut also_bad = Box::pin(io.append(zone, filled(4096, 3)));
        assert!(also_bad.as_mut().poll(&mut Context::from_waker(&panics)).is_pending());
        let good = io.append(zone, filled(4096, 4));
        let sleeper = std::thread::spawn(move || block_on(good).map(|_| ()));
        // The first future that is polled finds what has finished for all of them, and wakes them from its own context.
        std::thread::sleep(Duration::from_millis(2));
        let mut own = Box::pin(io.read(zone, 8));
        let end = Instant::now() + LONG;
        while own.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
            assert!(Instant::now() < end, "the read never ends");
        }
        sleeper.join().unwrap().unwrap();
        block_on(also_bad).unwrap();
        drop(bad);
    }
}

/// What is wrong with a range is said as it is: a part of a sector is not out of range, and half a zone begins with
/// one.
#[test]
fn a_range_that_does_not_fit_says_why() {
    let disk = HostedDisk::open_spec("mem,zones=4,zone-size=1M").unwrap();
    let mut io = BlockingDisk::new(&disk).unwrap();
    let other = AsyncDisk::new(&disk, 4).unwrap();
    for len in [100, 512, 700, 4100] {
        let buf = || AlignedBuf::zeroed(len);
        let e = io.append(Sector(0), buf()).unwrap_err();
        assert_eq!(e.to_string(), "zone_append at sector 0: unaligned", "{len}");
        assert_eq!(io.write(Sector(0), buf()).unwrap_err().status, Status::Unaligned, "{len}");
        assert_eq!(
            block_on(other.append(Sector(0), buf())).unwrap_err().to_string(),
            e.to_string()
        );
    }
    for (sector, len) in [(0, 8), (0, 2056), (8, 2048), (2048, 2047)] {
        let e = io.reset(Sector(sector), len).unwrap_err();
        assert_eq!(e.to_string(), format!("zone_reset at sector {sector}: not whole zones"));
        let f = block_on(other.manage(Op::ZoneReset, Sector(sector), len));
        assert_eq!(f.unwrap_err().to_string(), e.to_string());
    }
    let e = io.append(Sector(8), AlignedBuf::zeroed(4096)).unwrap_err();
    assert_eq!(e.to_string(), "zone_append at sector 8: not a zone start");
}
