//! What each layer is *for*, by its specification. The conformance suite says only that a stack of layers is still a
//! disk: a layer that does nothing at all passes it. Here each layer, and `fault=`, must have had its effect.

use std::path::PathBuf;
use std::sync::Arc;
use std::task::Waker;
use zoneplug_core::unit::SECTOR_SIZE;
use zoneplug_core::{Bio, Command, Commands, Device, IoBuf, Nanos, Op, Queue, Sector, Status};
use zoneplug_host::{DiskSpec, open_device};

const MS: u64 = 1_000_000;

fn queue(device: &Arc<dyn Device>) -> Box<dyn Queue> {
    device.open_queue(64, Waker::noop().clone()).unwrap()
}

/// Sends the commands together at `now`, and follows the deadlines. When each came back, in the order of `commands`.
fn run(queue: &mut dyn Queue, now: u64, commands: Vec<Box<Command>>) -> Vec<(Box<Command>, u64)> {
    let keys: Vec<_> = commands.iter().map(|c| (c.op, c.sector)).collect();
    let mut list: Commands = commands.into_iter().collect();
    let (mut now, mut done) = (Nanos(now), Vec::new());
    while done.len() < keys.len() {
        queue.submit(now, &mut list);
        let mut back = Commands::new();
        queue.poll(now, &mut back);
        done.extend(back.drain(..).map(|c| (c, now.0)));
        now = queue.next_deadline().unwrap_or(now).max(now);
    }
    done.sort_by_key(|(c, _)| keys.iter().position(|k| *k == (c.op, c.sector)));
    done
}

fn data(op: Op, at: u64, fill: u8) -> Box<Command> {
    let mut buf = IoBuf::leaked(8 * SECTOR_SIZE);
    buf.copy_from(0, &[fill; 8 * SECTOR_SIZE as usize]);
    Command::of(Bio::with_buf(op, Sector(at), 8, buf))
}

fn write(at: u64) -> Box<Command> {
    data(Op::Write, at, 0x5a)
}

fn ok(queue: &mut dyn Queue, c: Box<Command>) -> Box<Command> {
    let c = run(queue, 1, vec![c]).remove(0).0;
    assert_eq!(c.status, Status::Ok, "{c:?}");
    c
}

/// The first block there.
fn read(queue: &mut dyn Queue, at: u64) -> Vec<u8> {
    let c = ok(queue, data(Op::Read, at, 0));
    let mut block = vec![0; 8 * SECTOR_SIZE as usize];
    c.bios[0].data().copy_to(0, &mut block);
    block
}

fn temp(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("zoneplug-purpose-{}-{name}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    path
}

/// What a trace says of commands on their way down: letters and sector.
fn traced(path: &PathBuf) -> Vec<(String, u64)> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let _ = std::fs::remove_file(path);
    let down = text.lines().map(|l| l.split_whitespace().collect::<Vec<_>>());
    down.filter(|w| w[5] == "D").map(|w| (w[6].to_owned(), w[7].parse().unwrap())).collect()
}

/// Zones of 640 KiB are shown as zones of 1 MiB, and each write lands at its place in the zones of 640 KiB.
fn po2() {
    let path = temp("po2");
    let below = format!("trace,file={}@mem,zones=5,zone-size=640K", path.display());
    let disk = open_device(&format!("po2@{below}")).unwrap();
    let g = disk.geometry();
    assert_eq!((g.zone_sectors(), g.zone_capacity_sectors(), g.nr_zones()), (2048, 1280, 5));
    let mut q = queue(&disk);
    (0..5).for_each(|z| drop(ok(&mut *q, write(z * 2048))));
    ok(&mut *q, write(4 * 2048 + 8));
    let want = [0, 1280, 2560, 3840, 5120, 5128].map(|s| ("W".to_owned(), s));
    assert_eq!(traced(&path), want);
    let refused = run(&mut *q, 1, vec![write(2048 + 1280)]).remove(0).0;
    assert!(!refused.status.is_ok(), "there is nothing behind the capacity");
}

/// Writes the first block of every zone, and says which zones of which part saw a write, in order.
fn mapped(layer: &str, parts: [u64; 3]) -> [Vec<u64>; 3] {
    let paths = [0, 1, 2].map(|i| temp(&format!("{}-{i}", &layer[..2])));
    let part =
        |i: usize| format!("trace,file={}@mem,zones={},zone-size=1M", paths[i].display(), parts[i]);
    let text = format!("{layer}@{}%{}%{}", part(0), part(1), part(2));
    let disk = open_device(&text).unwrap();
    let mut q = queue(&disk);
    (0..disk.geometry().nr_zones()).for_each(|z| drop(ok(&mut *q, write(u64::from(z) * 2048))));
    paths.map(|path| traced(&path).iter().map(|(_, sector)| sector / 2048).collect())
}

/// Zones of one device after those of the other; and a slice is the zones that it names.
fn linear() {
    assert_eq!(mapped("linear", [2, 4, 3]), [vec![0, 1], vec![0, 1, 2, 3], vec![0, 1, 2]]);
    let path = temp("slice");
    let below = format!("trace,file={}@mem,zones=9,zone-size=1M", path.display());
    let disk = open_device(&format!("linear,first=3,zones=2@{below}")).unwrap();
    assert_eq!(disk.geometry().nr_zones(), 2);
    let mut q = queue(&disk);
    ok(&mut *q, write(0));
    ok(&mut *q, write(2048));
    let sectors: Vec<_> = traced(&path).iter().map(|t| t.1).collect();
    assert_eq!(sectors, [3 * 2048, 4 * 2048]);
}

/// Zone `z` is on device `z % 3`: six zones in a row are two on each.
fn stripe() {
    assert_eq!(mapped("stripe", [2, 4, 3]), [[0, 1], [0, 1], [0, 1]].map(Vec::from));
    let path = temp("turn");
    let traced_part = format!("trace,file={}@mem,zones=3,zone-size=1M", path.display());
    let disk = open_device(&format!("stripe@mem,zones=3,zone-size=1M%{traced_part}")).unwrap();
    let mut q = queue(&disk);
    let before = [0, 1, 0, 1, 0, 1];
    for (zone, on) in before.into_iter().enumerate() {
        ok(&mut *q, write(zone as u64 * 2048));
        let seen = std::fs::read_to_string(&path).unwrap_or_default().lines().count();
        assert_eq!(seen / 2, before[..zone].iter().sum::<usize>() + on, "zone {zone}");
    }
    let _ = std::fs::remove_file(path);
}

/// What is below is not what was written; each sector is another although all had the same contents; with the key it is
/// back.
fn crypt() {
    use zoneplug_host::file::{self, CreateOptions};
    let (key, disk) = (temp("key"), temp("crypt.zbd"));
    std::fs::write(&key, (0..64).collect::<Vec<u8>>()).unwrap();
    let options =
        CreateOptions { zones: Some(4), zone_size: Some(1 << 20), ..CreateOptions::default() };
    file::create(&disk, &options, false).unwrap();
    let text = format!("crypt,key-file={}@{}", key.display(), disk.display());
    let zoned = DiskSpec::parse(&text).unwrap().device;
    {
        let mut io = zoneplug_host::BlockingDisk::new(
            &zoneplug_host::HostedDisk::open(zoned, <_>::default()).unwrap(),
        )
        .unwrap();
        let mut buf = zoneplug_buf::AlignedBuf::zeroed(4096);
        buf.write(0, &[0x5a; 4096]);
        io.write(Sector(0), buf).unwrap();
        assert!(io.read(Sector(0), 8).unwrap().to_vec().iter().all(|b| *b == 0x5a));
    }
    let plain = open_device(&disk.display().to_string()).unwrap();
    let hosted = zoneplug_host::HostedDisk::open(plain, <_>::default()).unwrap();
    let mut io = zoneplug_host::BlockingDisk::new(&hosted).unwrap();
    let below = io.read(Sector(0), 8).unwrap().to_vec();
    let same = below.iter().filter(|b| **b == 0x5a).count();
    assert!(same < 100, "{same} of 4096 bytes are as they were written; chance is 16");
    let sectors: std::collections::BTreeSet<_> = below.chunks(512).collect();
    assert_eq!(sectors.len(), 8, "equal sectors are not equal below");
    drop((io, hosted));
    [key, disk].iter().for_each(|p| std::fs::remove_file(p).unwrap());
}

/// Every command of the kind comes back by that time later than without the layer, the hundredth as the first, and
/// those that are in flight together at the same time. Others are as fast as they were.
fn delay() {
    // A command takes 1 ms below.
    let base = "mem,zones=64,zone-size=1M,latency=1ms";
    for (text, writes, reads) in [
        (format!("delay,write=2ms@{base}"), 3, 1),
        (format!("delay,read=5ms@{base}"), 1, 6),
        (format!("delay,read=5ms,any=2ms@{base}"), 3, 6),
        (format!("delay,any=2ms@delay,write=3ms@{base}"), 6, 3),
        // A delay that is shorter than the device itself is a delay too.
        (format!("delay,write=500us,read=500us@delay,any=500us@{base}"), 2, 2),
    ] {
        let mut q = queue(&open_device(&text).unwrap());
        let mut now = 1;
        for round in 0..100 {
            // Sixteen zones at once, and as many reads.
            let writes_now = (0..16).map(|z| write(z * 2048 + round * 8));
            let reads_now = (32..48).map(|z| data(Op::Read, z * 2048, 0));
            let done = run(&mut *q, now, writes_now.chain(reads_now).collect());
            for (c, at) in &done {
                let want = if c.op == Op::Write { writes } else { reads };
                assert_eq!(c.status, Status::Ok);
                assert_eq!(at - now, want * MS, "{text}: round {round}: {c:?}");
            }
            now = done.iter().map(|d| d.1).max().unwrap() + 7;
        }
    }
}

/// Two lines a command, with what it did and where; nothing is left out and nothing is added.
fn trace() {
    let path = temp("trace");
    let text = format!("trace,file={}@mem,zones=8,zone-size=1M", path.display());
    let mut q = queue(&open_device(&text).unwrap());
    let mut want = Vec::new();
    for zone in 0..8 {
        for i in 0..10 {
            ok(&mut *q, write(zone * 2048 + i * 8));
            want.push(("W".to_owned(), zone * 2048 + i * 8));
        }
        read(&mut *q, zone * 2048);
        want.push(("R".to_owned(), zone * 2048));
        ok(&mut *q, Command::without_data(Op::ZoneReset, Sector(zone * 2048), 2048));
        want.push(("ZR".to_owned(), zone * 2048));
    }
    let lines = std::fs::read_to_string(&path).unwrap();
    assert_eq!(lines.lines().count(), 2 * want.len());
    assert_eq!(traced(&path), want);
}

const LAYERS: [(&str, fn()); 6] = [
    ("po2", po2),
    ("linear", linear),
    ("stripe", stripe),
    ("crypt", crypt),
    ("delay", delay),
    ("trace", trace),
];

#[test]
fn every_layer_does_what_it_is_for() {
    LAYERS.iter().for_each(|(_, check)| check());
}

/// A layer that is added needs a check of what it is for.
#[test]
fn every_layer_has_a_check() {
    let names: Vec<_> = zoneplug_host::LAYERS.iter().map(|l| l.name).collect();
    let checked: Vec<_> = LAYERS.iter().map(|l| l.0).collect();
    assert_eq!(names, checked);
}

/// A fault hits as often as it says: all, so many, not the first ones, or as likely as it says.
#[test]
fn a_fault_hits_as_often_as_it_says() {
    for (which, least, most, first) in [
        ("count=all", 1000, 1000, 0),
        ("count=1", 1, 1, 0),
        ("count=7", 7, 7, 0),
        ("count=7/skip=5", 7, 7, 5),
        ("skip=990/count=all", 10, 10, 990),
        // Four deviations of 1000 draws.
        ("p=0.25", 195, 305, 0),
        ("p=0.25/count=50", 50, 50, 0),
    ] {
        let text = format!("mem,zones=8,zone-size=1M,fault=read/medium/{which}");
        let mut q = queue(&open_device(&text).unwrap());
        let mut hits = Vec::new();
        for i in 0..1000 {
            let c = run(&mut *q, 1, vec![data(Op::Read, i * 8, 0)]).remove(0).0;
            assert!(matches!(c.status, Status::Ok | Status::Medium));
            if !c.status.is_ok() {
                hits.push(i);
            }
        }
        assert!((least..=most).contains(&hits.len()), "{which}: {} of 1000", hits.len());
        assert!(hits[0] >= first, "{which}: {hits:?}");
        ok(&mut *q, write(0));
    }
}
