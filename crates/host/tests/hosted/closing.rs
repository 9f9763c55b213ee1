//! The end of a hosted disk: when the last handle has been dropped the device is closed, unless something is in flight.

use crate::common::{block_on, until, within};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Barrier, Mutex};
use std::task::{Wake, Waker};
use std::time::{Duration, Instant};
use zoneplug_buf::{AlignedBuf, IoBuf};
use zoneplug_core::disk::DiskConfig;
use zoneplug_core::{Bio, Bios, Device, Op, Sector};
use zoneplug_devices::emu::EmuDisk;
use zoneplug_host::file::{self, Access, CreateOptions, FileDisk, Io};
use zoneplug_host::{AsyncDisk, BlockingDisk, Client, HostedDisk};

fn emu(spec: &str) -> Arc<dyn Device> {
    EmuDisk::new(spec.parse().unwrap()).unwrap()
}

fn open(device: &Arc<dyn Device>) -> HostedDisk {
    HostedDisk::open(device.clone(), DiskConfig::default()).unwrap()
}

/// Whether the test has the only handle of the device.
fn is_closed(device: &Arc<dyn Device>) -> bool {
    Arc::strong_count(device) == 1
}

fn flush() -> Bios {
    Bios::from([Bio::new(Op::Flush, Sector(0), 0)])
}

/// Makes a client sleep, so that there is a reactor.
fn sleep_once(client: &mut Client) {
    let mut done = Bios::new();
    client.submit(&mut flush());
    assert_eq!(client.wait(&mut done, 1, None), 1);
}

/// The handles are dropped in several orders, with and without a freeze and a future.
#[test]
fn the_device_is_closed_when_the_last_handle_has_gone() {
    within("closing", || {
        for n in 0..40 {
            let device = emu("mem,zones=4,zone-size=1M,latency=2ms");
            let disk = open(&device);
            let mut client = disk.open_client(4, 2).unwrap();
            sleep_once(&mut client);
            let start = Instant::now();
            match n % 4 {
                0 => drop((client, disk)),
                1 => drop((disk, client)),
                2 => {
                    let frozen = disk.freeze().unwrap();
                    drop((client, disk, frozen));
                }
                _ => {
                    let io = AsyncDisk::new(&disk, 4).unwrap();
                    drop((disk, client, io));
                }
            }
            assert!(is_closed(&device), "round {n}");
            assert!(start.elapsed() < Duration::from_millis(500), "round {n}");
        }
    });
}

/// With something in flight a drop does not wait: the reactor closes the device when that is done.
#[test]
fn a_drop_does_not_wait_for_what_is_in_flight() {
    within("in flight", || {
        let device = emu("mem,zones=4,zone-size=1M,latency=400ms");
        let disk = open(&device);
        let mut client = disk.open_client(4, 2).unwrap();
        client.submit(&mut flush());
        let start = Instant::now();
        drop((client, disk));
        assert!(start.elapsed() < Duration::from_millis(300));
        assert!(!is_closed(&device), "its commands are at the device");
        until("closed", || is_closed(&device));
    });
}

/// A future that is dropped in flight, and the last handle with it.
#[test]
fn a_forgotten_client_keeps_the_disk_and_a_dropped_future_does_not() {
    within("a future", || {
        let device = emu("mem,zones=4,zone-size=1M,latency=50ms");
        let disk = open(&device);
        let io = AsyncDisk::new(&disk, 4).unwrap();
        drop(io.append(Sector(0), AlignedBuf::zeroed(4096)));
        drop((io, disk));
        until("closed", || is_closed(&device));
        let disk = open(&device);
        std::mem::forget(disk.open_client(4, 2).unwrap());
        drop(disk);
        assert!(!is_closed(&device));
    });
}

/// A waker may hold the last handle. Then the reactor drops the handle, and must not wait for itself.
#[test]
fn the_last_handle_may_be_dropped_by_the_reactor() {
    struct Last(Mutex<Option<HostedDisk>>, Barrier);
    impl Wake for Last {
        fn wake(self: Arc<Self>) {
            self.1.wait();
            drop(self.0.lock().unwrap().take());
        }
    }
    within("the reactor", || {
        let device = emu("mem,zones=4,zone-size=1M");
        let disk = open(&device);
        let last = Arc::new(Last(Mutex::new(Some(disk.clone())), Barrier::new(2)));
        let mut client = disk.open_client(4, 2).unwrap();
        assert!(client.arm(&Waker::from(last.clone())));
        // A thaw wakes every queue that is armed; this thread calls no wakers.
        drop(disk.disk().begin_freeze());
        drop((client, disk));
        assert!(!is_closed(&device));
        last.1.wait();
        let start = Instant::now();
        until("closed", || is_closed(&device));
        assert!(start.elapsed() < Duration::from_secs(1), "it has waited for itself");
    });
}

/// Handles that go at the same time in several threads: the last one waits, whichever that is.
#[test]
fn handles_that_go_together() {
    within("together", || {
        for _ in 0..30 {
            let device = emu("mem,zones=4,zone-size=1M,latency=200us");
            let disk = open(&device);
            let threads: Vec<_> = (0..3)
                .map(|_| {
                    let disk = disk.clone();
                    std::thread::spawn(move || sleep_once(&mut disk.open_client(4, 2).unwrap()))
                })
                .collect();
            drop(disk);
            threads.into_iter().for_each(|t| t.join().unwrap());
            assert!(is_closed(&device));
        }
    });
}

/// Memory that a client lent is not touched after the device has been seen closed.
#[test]
fn nothing_is_in_flight_once_the_device_is_closed() {
    within("in flight", || {
        for pause in [0, 1, 5, 20] {
            let device = emu("mem,zones=4,zone-size=4M,latency=20ms,reorder=1");
            let disk = open(&device);
            let mut client = disk.open_client(8, 4).unwrap();
            let (mut data, mut buf) = (IoBuf::leaked(1 << 20), IoBuf::leaked(1 << 20));
            let (mut list, mut done) = (Bios::new(), Bios::new());
            data.copy_from(0, &vec![0xaa; 1 << 20]);
            list.push_back(Bio::with_buf(Op::Write, Sector(0), 2048, data));
            client.submit(&mut list);
            client.wait(&mut done, 1, None);
            // SAFETY: `buf` is used again only after the device is closed. The test shows that nothing else uses it then.
            let lent = unsafe { buf.alias() };
            list.push_back(Bio::with_buf(Op::Read, Sector(0), 2048, lent));
            client.submit(&mut list);
            std::thread::sleep(Duration::from_millis(pause));
            drop((client, disk));
            until("closed", || is_closed(&device));
            buf.fill_zero(0, 1 << 20);
            std::thread::sleep(Duration::from_millis(30));
            let mut back = vec![1; 1 << 20];
            buf.copy_to(0, &mut back);
            assert!(back.iter().all(|&b| b == 0), "pause {pause}");
        }
    });
}

struct Dir(PathBuf);

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// New directories: one in the directory for temporary files, and one on tmpfs where there is one.
fn dirs(what: &str) -> Vec<Dir> {
    let shm = Path::new("/dev/shm");
    let places = [std::env::temp_dir(), shm.to_owned()];
    let places = places.iter().filter(|p| p.is_dir());
    let made = places.map(|p| Dir(p.join(format!("zoneplug-{what}-{}", std::process::id()))));
    made.inspect(|d| std::fs::create_dir_all(&d.0).unwrap()).collect()
}

/// When a durable disk is dropped after writes, it is closed before the drop returns: the next open sees no notice and
/// does not wait for the lock.
#[test]
fn a_durable_disk_is_closed_before_the_next_open() {
    let mut rounds = 0u64;
    for dir in dirs("closing") {
        for io in [Io::Auto, Io::Threads] {
            let path = dir.0.join(format!("{io:?}.zbd"));
            let opts = CreateOptions {
                zones: Some(4),
                zone_size: Some(1 << 20),
                ..CreateOptions::default()
            };
            file::create(&path, &opts, false).unwrap();
            for n in 0..12u64 {
                let device = FileDisk::open_with(&path, Access::ReadWrite, io, true).unwrap();
                assert_eq!(device.notices(), [] as [String; 0], "round {n}");
                let disk = HostedDisk::open(device, DiskConfig::default()).unwrap();
                if n % 2 == 0 {
                    let mut io = BlockingDisk::new(&disk).unwrap();
                    let (at, _) = io.append(Sector(0), AlignedBuf::zeroed(4096)).unwrap();
                    assert_eq!(at, Sector(n * 8));
                    io.flush().unwrap();
                } else {
                    let io = AsyncDisk::new(&disk, 4).unwrap();
                    let f = io.append(Sector(0), AlignedBuf::zeroed(4096));
                    let g = io.flush();
                    block_on(f).unwrap();
                    block_on(g).unwrap();
                }
                let report = file::check(&path, false);
                let lines = report.map(|r| r.lines).unwrap_or_default();
                assert!(lines.iter().all(|l| l != "it was closed"), "open until here: {lines:?}");
                drop(disk);
                let lines = file::check(&path, false).unwrap().lines;
                assert!(lines.iter().any(|l| l == "it was closed"), "round {n}: {lines:?}");
                rounds += 1;
            }
        }
    }
    assert!(rounds >= 24);
}
