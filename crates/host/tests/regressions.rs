//! What reviews and stress tests broke once: each failed before it was mended.

#![allow(clippy::unwrap_used)]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Wake, Waker};
use std::time::{Duration, Instant};
use zoneplug_buf::{AlignedBuf, IoBuf};
use zoneplug_core::zone::Condition;
use zoneplug_core::{Bio, Bios, Nanos, Op, Sector, Status, ZoneNo};
use zoneplug_host::{BlockingDisk, Client, HostedDisk};

fn within<T: Send + 'static>(secs: u64, what: &str, f: impl FnOnce() -> T + Send + 'static) -> T {
    let (tx, rx) = mpsc::channel();
    std::thread::spawn(move || {
        let _ = tx.send(f());
    });
    rx.recv_timeout(Duration::from_secs(secs)).unwrap_or_else(|_| panic!("hang: {what}"))
}

/// A client that has helped once holds the lane of a client that has gone; no client acknowledges for that lane.
#[test]
fn freeze_hangs_on_a_buried_lane() {
    let disk = HostedDisk::open_spec("null,zones=4,zone-size=1M").unwrap();
    let mut a = disk.open_client(4, 2).unwrap();
    let b = disk.open_client(4, 2).unwrap();
    let mut done = Bios::new();
    for _ in 0..64 {
        a.poll(&mut done); // in vain: help() caches b's lane
    }
    drop(b); // idle: buried
    within(5, "freeze", move || drop(disk.freeze().unwrap()));
    drop(a);
}

#[test]
fn blocking_read_of_more_than_4g_is_cut() {
    let disk = HostedDisk::open_spec("null,zones=16,zone-size=1G").unwrap();
    let mut io = BlockingDisk::new(&disk).unwrap();
    let r = io.read(Sector(0), (1 << 23) + 8);
    if let Ok(b) = r {
        assert_eq!(u64::from(b.len()), ((1u64 << 23) + 8) << 9, "a short read that is Ok");
    }
}

#[test]
fn a_timeout_of_duration_max() {
    let disk = HostedDisk::open_spec("null,zones=4,zone-size=1M").unwrap();
    let mut io = BlockingDisk::new(&disk).unwrap();
    io.set_timeout(Some(Duration::MAX));
    io.flush().unwrap();
}

struct Panics;
impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic!("a client's waker");
    }
}

/// A waker that panics kills the reactor: every client that sleeps hangs.
#[test]
fn a_waker_that_panics_kills_the_reactor() {
    let disk = HostedDisk::open_spec("null,zones=4,zone-size=1M,latency=20ms").unwrap();
    let mut a = disk.open_client(4, 2).unwrap();
    let mut list = Bios::from([Bio::new(Op::WriteZeroes, Sector(0), 8)]);
    a.submit(&mut list);
    assert!(a.arm(&Waker::from(Arc::new(Panics))));
    std::thread::sleep(Duration::from_millis(100));
    let mut b = disk.open_client(4, 2).unwrap();
    within(5, "a sleeper after the reactor died", move || {
        let mut list = Bios::from([Bio::new(Op::WriteZeroes, Sector(2048), 8)]);
        b.submit(&mut list);
        let mut done = Bios::new();
        b.wait(&mut done, 1, None);
        assert_eq!(done.len(), 1);
    });
}

/// A waker that panics inside another's poll: the command that follows is lost, the zone hangs.
#[test]
fn a_waker_that_panics_in_a_peers_poll_hangs_the_zone() {
    let disk = HostedDisk::open_spec("null,zones=4,zone-size=1M,latency=20ms").unwrap();
    let mut a = disk.open_client(4, 2).unwrap();
    let mut b = disk.open_client(4, 2).unwrap();
    let mut c = disk.open_client(4, 2).unwrap();
    let ap = |nomerge: bool| {
        let mut x = Bio::with_buf(Op::ZoneAppend, Sector(0), 8, IoBuf::leaked(4096));
        if nomerge {
            x.flags = zoneplug_core::Flags::NOMERGE;
        }
        x
    };
    // b's write first (in flight on b's lane), then a's parked, then c's parked
    b.submit(&mut Bios::from([ap(true)]));
    a.submit(&mut Bios::from([ap(true)]));
    c.submit(&mut Bios::from([ap(true)]));
    let armed = disk.disk().clone();
    let _ = armed;
    // a armed with a panicking waker, without the reactor: through the core API of its lane it is the same
    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        a.arm(&Waker::from(Arc::new(Panics)));
        let mut done = Bios::new();
        let end = Instant::now() + Duration::from_millis(200);
        while Instant::now() < end {
            b.poll(&mut done);
        }
    }));
    within(5, "c's write", move || {
        let mut done = Bios::new();
        c.wait(&mut done, 1, Some(Duration::from_secs(3)));
        assert_eq!(done.len(), 1, "c's write never came back");
    });
    drop((a, b));
}

struct Uses(Arc<Mutex<Option<Client>>>, AtomicBool, Arc<AtomicU64>);
impl Wake for Uses {
    fn wake(self: Arc<Self>) {
        self.2.fetch_add(1, Ordering::SeqCst);
        if !self.1.swap(true, Ordering::SeqCst)
            && let Some(c) = self.0.lock().unwrap().as_mut()
        {
            // what is done, and the next one: an inline executor
            let mut done = Bios::new();
            c.poll(&mut done);
            c.submit(&mut Bios::from([Bio::new(Op::WriteZeroes, Sector(8), 8)]));
        }
        self.2.fetch_add(1, Ordering::SeqCst);
    }
}

/// The reactor wakes with the lane's lock held: a waker that uses its client deadlocks the reactor (I8).
#[test]
fn a_waker_that_uses_the_client_deadlocks_the_reactor() {
    let disk = HostedDisk::open_spec("null,zones=4,zone-size=1M,latency=20ms").unwrap();
    let a = Arc::new(Mutex::new(Some(disk.open_client(4, 2).unwrap())));
    let n = Arc::new(AtomicU64::new(0));
    {
        let mut g = a.lock().unwrap();
        let c = g.as_mut().unwrap();
        c.submit(&mut Bios::from([Bio::new(Op::WriteZeroes, Sector(0), 8)]));
        assert!(c.arm(&Waker::from(Arc::new(Uses(a.clone(), AtomicBool::new(false), n.clone())))));
    }
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(n.load(Ordering::SeqCst), 2, "the waker was entered and never left");
}

/// A thaw between a refused submit and arm is not seen.
#[test]
fn a_thaw_before_arm_is_lost() {
    struct Flag(AtomicBool);
    impl Wake for Flag {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::SeqCst);
        }
    }
    let disk = HostedDisk::open_spec("null,zones=4,zone-size=1M").unwrap();
    let mut a = disk.open_client(4, 2).unwrap();
    let mut list = Bios::from([Bio::new(Op::WriteZeroes, Sector(0), 8)]);
    let f = disk.freeze().unwrap();
    assert_eq!(a.submit(&mut list), 0);
    drop(f);
    let flag = Arc::new(Flag(AtomicBool::new(false)));
    let mut done = Bios::new();
    if a.arm(&Waker::from(flag.clone())) {
        a.poll(&mut done);
        std::thread::sleep(Duration::from_millis(200));
        assert!(flag.0.load(Ordering::SeqCst), "asleep with a BIO in hand, and nobody wakes");
    }
}

/// A client that waits for a thaw burns its processor.
#[test]
fn blocking_spins_while_frozen() {
    fn cpu() -> f64 {
        let s = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        let f: Vec<_> = s.rsplit(')').next().unwrap().split_whitespace().collect();
        (f[11].parse::<f64>().unwrap() + f[12].parse::<f64>().unwrap()) / 100.0
    }
    let disk = HostedDisk::open_spec("null,zones=4,zone-size=1M").unwrap();
    let mut io = BlockingDisk::new(&disk).unwrap();
    io.set_timeout(Some(Duration::from_millis(500)));
    let _f = disk.freeze().unwrap();
    let before = cpu();
    let e = io.flush().unwrap_err();
    assert_eq!(e.status, Status::Timeout);
    assert!(cpu() - before < 0.1, "{} s of processor time in 0.5 s of waiting", cpu() - before);
}

/// Two revalidations that commit at the same time build one table between them.
#[test]
fn two_revalidations_at_once() {
    let disk = HostedDisk::open_spec("null,zones=20000,zone-size=1M").unwrap();
    let mut io = BlockingDisk::new(&disk).unwrap();
    io.finish(Sector(64 * 2048), 2048).unwrap();
    for round in 0..30 {
        let t: Vec<_> = (0..2)
            .map(|_| {
                let d = disk.clone();
                std::thread::spawn(move || d.revalidate().unwrap())
            })
            .collect();
        let panicked = t.into_iter().filter_map(|t| t.join().err()).count();
        assert_eq!(panicked, 0, "round {round}");
        for z in 0..20000 {
            let c = disk.disk().cached_zone(ZoneNo(z)).unwrap();
            let want = if z == 64 { Condition::Full } else { Condition::Empty };
            assert_eq!(c.cond, want, "round {round}: zone {z}");
        }
    }
}

const LEN: u32 = 1 << 20;

fn attempt(kill: bool, pause: u64) -> bool {
    let disk = HostedDisk::open_spec("mem,zones=4,zone-size=4M,latency=400ms,reorder=1").unwrap();
    let mut io = BlockingDisk::new(&disk).unwrap();
    let mut pattern = AlignedBuf::zeroed(LEN);
    pattern.write(0, &vec![0xaa; LEN as usize]);
    drop(io.write(Sector(0), pattern).unwrap());
    if kill {
        let mut a = disk.open_client(4, 2).unwrap();
        a.submit(&mut Bios::from([Bio::new(Op::Flush, Sector(0), 0)]));
        a.arm(&Waker::from(Arc::new(Panics)));
        std::thread::sleep(Duration::from_millis(500));
    }
    // another thread inspects the plugs, or polls a queue of its own: all safe
    let core = disk.disk().clone();
    let mut q = core.open_polled_queue(1, 1).unwrap();
    io.set_timeout(Some(Duration::from_millis(1)));
    assert_eq!(io.read(Sector(0), u64::from(LEN >> 9)).unwrap_err().status, Status::Timeout);
    std::thread::sleep(Duration::from_millis(pause));
    drop(disk);
    drop(io);
    std::thread::sleep(Duration::from_millis(120)); // the reactor returns
    let victims: Vec<_> = (0..4).map(|_| AlignedBuf::zeroed(LEN)).collect();
    let mut done = Bios::new();
    for _ in 0..100 {
        q.poll(Nanos(u64::MAX / 2), &mut done);
    }
    victims.iter().any(|v| v.to_vec().iter().any(|&b| b != 0))
}

#[test]
fn memory_of_a_dropped_client_after_a_panicking_waker() {
    assert!(!attempt(true, 0), "a read landed in memory that somebody else owns");
}

/// The reactor may end only when no client has kicked it.
#[test]
fn memory_of_a_dropped_client_when_the_reactor_goes() {
    for pause in (60..140).step_by(20) {
        assert!(
            !attempt(false, pause),
            "a read landed in memory that somebody else owns (pause {pause})"
        );
    }
}

/// A client waits for more than it has outstanding. What it has comes back in the poll after arming, and nothing is
/// left that could wake it.
#[test]
fn a_wait_for_more_than_is_outstanding_ends() {
    use zoneplug_host::file::{CreateOptions, create};
    let path = std::env::temp_dir().join(format!("zoneplug-wait-{}.zbd", std::process::id()));
    let o = CreateOptions {
        zones: Some(4),
        zone_size: Some(1 << 20),
        conv: 1,
        ..CreateOptions::default()
    };
    create(&path, &o, true).unwrap();
    // Threads of its own: they answer some time after the client has looked.
    let disk = HostedDisk::open_spec(&format!("{},io=threads", path.display())).unwrap();
    let mut client = disk.open_client(4, 4).unwrap();
    within(60, "a wait for nine of one", move || {
        let mut buf = IoBuf::leaked(4096);
        let mut done = Bios::new();
        for n in 0..20_000u64 {
            let at = Sector(n % 100 * 8);
            client.submit(&mut Bios::from([Bio::with_buf(Op::Read, at, 8, buf)]));
            client.wait(&mut done, 9, None);
            assert_eq!(done.iter().map(|b| b.status).collect::<Vec<_>>(), [Status::Ok]);
            buf = done.pop_front().unwrap().take_buf();
        }
    });
    std::fs::remove_file(path).unwrap();
}

/// Two writes of the same blocks of a conventional zone are in flight, a long one and a short one. Linux cannot take
/// both past and through the page cache, and said *I/O error* to the next flush of a healthy disk: what was
/// acknowledged was given up.
#[test]
fn long_and_short_writes_of_a_conventional_zone_do_not_fail_a_flush() {
    use zoneplug_host::file::{CreateOptions, create};
    // Not in memory: where there is no direct I/O there is nothing to see.
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("long-and-short-{}.zbd", std::process::id()));
    let o = CreateOptions {
        zones: Some(4),
        zone_size: Some(1 << 20),
        conv: 2,
        ..CreateOptions::default()
    };
    create(&path, &o, true).unwrap();
    let disk = HostedDisk::open_spec(&path.display().to_string()).unwrap();
    let mut client = disk.open_client(8, 8).unwrap();
    let (long, short) = (|| IoBuf::leaked(256 << 10), || IoBuf::leaked(4096));
    for round in 0..4 {
        let mut list = Bios::from([
            Bio::with_buf(Op::Write, Sector(0), 512, long()),
            Bio::with_buf(Op::Write, Sector(64), 8, short()),
        ]);
        let mut done = Bios::new();
        while done.len() < 2 {
            client.submit(&mut list);
            client.wait(&mut done, 2, None);
        }
        list.push_back(Bio::new(Op::Flush, Sector(0), 0));
        client.submit(&mut list);
        client.wait(&mut done, 3, None);
        let statuses: Vec<_> = done.iter().map(|b| b.status).collect();
        assert_eq!(statuses, [Status::Ok; 3], "round {round}");
    }
    drop((client, disk));
    std::fs::remove_file(path).unwrap();
}
