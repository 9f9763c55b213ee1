//! Hosted disks: a client whose context sent another's write blocks, sleeps, panics, forgets or drops its queue, and
//! all others finish.

use std::sync::mpsc;
use std::sync::{Arc, Barrier, Mutex};
use std::time::{Duration, Instant};
use zoneplug_buf::{AlignedBuf, IoBuf};
use zoneplug_core::{Bio, Bios, Op, Sector, Status, ZoneNo, lost_bios};
use zoneplug_host::{BlockingDisk, Client, HostedDisk};

const LONG: Duration = Duration::from_secs(20);

static BLOCK: [u8; 4096] = [0; 4096];

fn append(buf: IoBuf) -> Box<Bio> {
    Bio::with_buf(Op::ZoneAppend, Sector(0), 8, buf)
}

/// Submits `n` appends to zone 0 and waits for all of them, by polling or by sleeping.
fn append_all(disk: &HostedDisk, client: &mut Client, n: usize, sleep: bool) -> Vec<u64> {
    let (mut list, mut done) = (Bios::new(), Bios::new());
    let (mut sent, mut sectors) = (0, Vec::new());
    let end = Instant::now() + LONG;
    while sectors.len() < n {
        while sent < n && list.len() < 4 {
            list.push_back(append(IoBuf::from_static(&BLOCK)));
            sent += 1;
        }
        client.submit(&mut list);
        if sleep {
            client.wait(&mut done, 1, Some(Duration::from_secs(5)));
        } else {
            client.poll(&mut done);
        }
        for bio in done.drain(..) {
            assert!(bio.status.is_ok(), "{}", bio.status);
            sectors.push(bio.sector.0);
        }
        if Instant::now() > end {
            let mut plugs = String::new();
            disk.disk().zone_wplugs(&mut plugs).unwrap();
            panic!("{} of {n} appends after {LONG:?}: {client:#?} {plugs}", sectors.len());
        }
    }
    sectors
}

/// What the client does that has others' writes on its lane.
#[derive(Clone, Copy, Debug)]
enum Misdeed {
    Blocks,
    Sleeps,
    Panics,
    Forgets,
    Drops,
}

/// The bad client keeps sending appends until it has surely sent some of others, then meets its fate without ever
/// polling again. The others must finish, whether they poll or sleep.
fn others_finish(misdeed: Misdeed, spec: &str, sleep: bool) {
    let disk = HostedDisk::open_spec(spec).unwrap();
    let start = Arc::new(Barrier::new(3));
    let (block, blocked) = (Arc::new(Mutex::new(())), Arc::new(Barrier::new(2)));
    let held = block.lock().unwrap();
    let bad = {
        let (disk, start) = (disk.clone(), start.clone());
        let (block, blocked) = (block.clone(), blocked.clone());
        std::thread::spawn(move || {
            let mut client = disk.open_client(64, 1).unwrap();
            let (mut list, mut done) = (Bios::new(), Bios::new());
            start.wait();
            for _ in 0..200 {
                list.extend((0..8).map(|_| append(IoBuf::from_static(&BLOCK))));
                client.submit(&mut list);
                client.poll(&mut done);
            }
            client.submit(&mut list);
            match misdeed {
                Misdeed::Blocks => {
                    blocked.wait();
                    drop(block.lock());
                }
                Misdeed::Sleeps => std::thread::sleep(Duration::from_secs(1)),
                Misdeed::Panics => panic!("the client panics on purpose"),
                Misdeed::Forgets => std::mem::forget(client),
                Misdeed::Drops => drop(client),
            }
        })
    };
    let good: Vec<_> = (0..2)
        .map(|_| {
            let (disk, start) = (disk.clone(), start.clone());
            std::thread::spawn(move || {
                let mut client = disk.open_client(16, 4).unwrap();
                start.wait();
                append_all(&disk, &mut client, 2000, sleep)
            })
        })
        .collect();
    if let Misdeed::Blocks = misdeed {
        blocked.wait();
    }
    let mut sectors: Vec<u64> =
        good.into_iter().flat_map(|t| t.join().expect("a good client finishes")).collect();
    drop(held);
    assert_eq!(bad.join().is_err(), matches!(misdeed, Misdeed::Panics));
    sectors.sort_unstable();
    sectors.dedup();
    assert_eq!(sectors.len(), 4000, "no two appends landed at one place");
    assert_eq!(lost_bios(), 0);
}

const PLAIN: &str = "null,zones=2,zone-size=1G";
const SLOW: &str = "null,zones=2,zone-size=1G,latency=20us";
const MIXED: &str = "null,zones=2,zone-size=1G,reorder=3";

/// W25.
#[test]
fn a_client_that_blocks_delays_only_itself() {
    for sleep in [false, true] {
        others_finish(Misdeed::Blocks, PLAIN, sleep);
        others_finish(Misdeed::Blocks, SLOW, sleep);
        others_finish(Misdeed::Blocks, MIXED, sleep);
    }
}

#[test]
fn a_client_that_sleeps_delays_only_itself() {
    others_finish(Misdeed::Sleeps, PLAIN, true);
    others_finish(Misdeed::Sleeps, SLOW, false);
}

#[test]
fn a_client_that_panics_delays_only_itself() {
    for sleep in [false, true] {
        others_finish(Misdeed::Panics, PLAIN, sleep);
        others_finish(Misdeed::Panics, MIXED, sleep);
    }
}

#[test]
fn a_client_that_forgets_its_queue_delays_only_itself() {
    for sleep in [false, true] {
        others_finish(Misdeed::Forgets, PLAIN, sleep);
        others_finish(Misdeed::Forgets, SLOW, sleep);
    }
}

#[test]
fn a_client_that_drops_its_queue_delays_only_itself() {
    for sleep in [false, true] {
        others_finish(Misdeed::Drops, PLAIN, sleep);
        others_finish(Misdeed::Drops, SLOW, sleep);
    }
}

/// A client that only polls runs the lanes of others: its append waits behind a write on the lane of a client that
/// never polls. No client sleeps, so the reactor does nothing.
#[test]
fn a_client_that_only_polls_runs_the_lanes_of_others() {
    for spec in [PLAIN, SLOW, MIXED] {
        let disk = HostedDisk::open_spec(spec).unwrap();
        let mut idle = disk.open_client(4, 1).unwrap();
        let mut client = disk.open_client(4, 4).unwrap();
        let buf = IoBuf::leaked(4096);
        assert_eq!(idle.submit(&mut Bios::from([append(buf)])), 1);
        assert_eq!(append_all(&disk, &mut client, 20, false).len(), 20);
        let mut done = Bios::new();
        idle.poll(&mut done);
        assert_eq!(done.len(), 1, "what was finished for it is there");
        assert!(done[0].status.is_ok());
    }
}

/// No client polls: the reactor alone finishes what a dropped client left.
/// R40.
#[test]
fn what_a_dropped_client_left_is_finished() {
    let disk = HostedDisk::open_spec("mem,zones=2,zone-size=1M,latency=2ms").unwrap();
    let mut client = disk.open_client(16, 4).unwrap();
    let mut list: Bios = (0..16).map(|_| append(IoBuf::leaked(4096))).collect();
    assert_eq!(client.submit(&mut list), 16);
    drop(client);
    let mut io = BlockingDisk::new(&disk).unwrap();
    let end = Instant::now() + LONG;
    while io.zone(ZoneNo(0)).unwrap().wp != Sector(128) {
        assert!(Instant::now() < end, "the appends of the dropped client are not on the disk");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Freeze and thaw under load: no BIO is lost, no client hangs.
#[test]
fn freezing_under_load_drains_and_goes_on() {
    let disk = HostedDisk::open_spec("null,zones=2,zone-size=1G,reorder=5").unwrap();
    let threads: Vec<_> = [false, true]
        .map(|sleep| {
            let disk = disk.clone();
            std::thread::spawn(move || {
                let mut client = disk.open_client(16, 4).unwrap();
                append_all(&disk, &mut client, 20_000, sleep)
            })
        })
        .into();
    for _ in 0..50 {
        let frozen = disk.freeze().unwrap();
        assert_eq!(disk.disk().counters().waiting, 0);
        drop(frozen);
        std::thread::sleep(Duration::from_micros(300));
    }
    for _ in 0..20 {
        disk.revalidate().unwrap();
    }
    for t in threads {
        t.join().expect("a client finishes");
    }
}

#[test]
fn a_timeout_gives_up_and_the_buffer_outlives_it() {
    let disk = HostedDisk::open_spec("mem,zones=2,zone-size=1M,latency=300ms").unwrap();
    let mut io = BlockingDisk::new(&disk).unwrap();
    io.set_timeout(Some(Duration::from_millis(10)));
    let e = io.append(Sector(0), AlignedBuf::zeroed(4096)).unwrap_err();
    assert_eq!(e.status, Status::Timeout);
    drop(io);
    let mut io = BlockingDisk::new(&disk).unwrap();
    std::thread::sleep(Duration::from_millis(400));
    assert_eq!(io.zone(ZoneNo(0)).unwrap().wp, Sector(8));
}

#[test]
fn a_waker_is_called_without_polling() {
    struct Tell(Mutex<mpsc::Sender<()>>);
    impl std::task::Wake for Tell {
        fn wake(self: Arc<Self>) {
            let _ = self.0.lock().unwrap().send(());
        }
    }
    for spec in [PLAIN, SLOW, MIXED] {
        let disk = HostedDisk::open_spec(spec).unwrap();
        let mut client = disk.open_client(4, 4).unwrap();
        let (tx, rx) = mpsc::channel();
        let waker = std::task::Waker::from(Arc::new(Tell(Mutex::new(tx))));
        for _ in 0..200 {
            client.submit(&mut Bios::from([append(IoBuf::leaked(4096))]));
            let mut done = Bios::new();
            while done.is_empty() {
                if client.arm(&waker) {
                    rx.recv_timeout(LONG).expect("the waker is called");
                }
                client.poll(&mut done);
            }
        }
    }
}

/// The single writer remembers when it last wrote: time must not fall back when no device needs it any more.
#[test]
fn a_single_writer_goes_on_when_it_need_not_look_at_the_time_any_more() {
    let disk = HostedDisk::open_spec("null,zones=8,zone-size=1M,qd1=1,anticipation-us=40").unwrap();
    let mut client = disk.open_client(4, 4).unwrap();
    let mut done = Bios::new();
    for zone in [1, 2] {
        let mut list = Bios::from([Bio::new(Op::WriteZeroes, Sector(zone * 2048), 8)]);
        client.submit(&mut list);
        client.wait(&mut done, 1, Some(Duration::from_secs(10)));
        disk.set_attribute("anticipation_us", "0").unwrap();
    }
    assert_eq!(done.len(), 2);
}

/// H10: the held writes of a client that goes away go with it, and the last handle of the disk does not wait for their
/// time.
#[test]
fn a_dropped_client_takes_its_held_writes_with_it() {
    let disk = HostedDisk::open_spec("mem,zones=2,zone-size=1M,order-window=1h").unwrap();
    let mut client = disk.open_client(16, 4).unwrap();
    let early = Bio::with_buf(Op::Write, Sector(8), 8, IoBuf::from_static(&BLOCK));
    client.submit(&mut [early].into());
    let window = || disk.disk().counters().window;
    assert_eq!((window().writes, client.outstanding()), (1, 1));
    drop(client);
    assert_eq!((window().writes, window().dropped), (0, 1));
    let began = Instant::now();
    drop(disk);
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
}

/// H5: the reactor refuses the held write of a client that sleeps.
#[test]
fn a_client_that_sleeps_is_told_when_its_held_write_expires() {
    let disk = HostedDisk::open_spec("mem,zones=2,zone-size=1M,order-window=20ms").unwrap();
    let mut client = disk.open_client(16, 4).unwrap();
    let early = Bio::with_buf(Op::Write, Sector(8), 8, IoBuf::from_static(&BLOCK));
    let (mut done, began) = (Bios::new(), Instant::now());
    client.submit(&mut [early].into());
    assert_eq!(client.wait(&mut done, 1, Some(LONG)), 1);
    assert_eq!(done[0].status, Status::NotAtWritePointer);
    assert!(began.elapsed() >= Duration::from_millis(20), "{:?}", began.elapsed());
}

/// The device places an append by itself. A write at the end that the append returned is taken, and so is the next
/// append behind that write.
/// A7.
#[test]
fn a_write_follows_a_native_append() {
    for recovery in ["client", "auto"] {
        let spec = format!("mem,zones=4,zone-size=1M,append=native,zone_recovery={recovery}");
        let disk = HostedDisk::open_spec(&spec).unwrap();
        assert_ne!(disk.disk().limits().zone_append_max_sectors, 0, "it is native");
        let mut io = BlockingDisk::new(&disk).unwrap();
        let zone = Sector(2 * 2048);
        let at = io.append_from(zone, &[1; 4096]).unwrap();
        assert_eq!(at, zone);
        io.write_from(at.plus(8), &[2; 4096]).unwrap();
        assert_eq!(io.append_from(zone, &[3; 4096]).unwrap(), zone.plus(16));
        io.write_from(zone.plus(24), &[4; 4096]).unwrap();
        let data = io.read(zone, 32).unwrap();
        let firsts: Vec<u8> = data.as_slice().chunks(4096).map(|block| block[0]).collect();
        assert_eq!(firsts, [1, 2, 3, 4], "{recovery}");
    }
}
