//! A process that writes to a durable disk is killed (`SIGKILL`) at random moments: everything that it said is
//! acknowledged is there.
//!
//!     ZONEPLUG_KILLS=500 cargo test --release -p zoneplug-host --test file_kill -- --nocapture
//!
//! The child is this very program, run again with `ZONEPLUG_KILL_CHILD` set. It writes through a hosted disk, with
//! several threads, and prints one line for each acknowledgement after it has it.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command as Process, Stdio};
use std::time::{Duration, Instant};
use zoneplug_buf::AlignedBuf;
use zoneplug_core::disk::DiskConfig;
use zoneplug_core::zone::Condition;
use zoneplug_core::{Bio, Bios, Flags, IoBuf, Op, Random, Sector, ZoneNo};
use zoneplug_host::HostedDisk;
use zoneplug_host::file::{Access, CreateOptions, FileDisk, Io, create};

const CHILD: &str = "ZONEPLUG_KILL_CHILD";
/// Sectors of a block.
const BLOCK: u32 = 8;
/// Zones of each thread.
const ZONES: u32 = 3;
const THREADS: u32 = 2;

/// What a block holds: zone, generation, block number in the zone.
fn stamp(zone: u32, generation: u32, block: u32) -> Vec<u8> {
    let mut v = Vec::with_capacity(4096);
    for i in 0..256u32 {
        for n in [zone + 1, generation, block, i] {
            v.extend(n.to_le_bytes());
        }
    }
    v
}

fn open(path: &Path, way: &str) -> std::sync::Arc<FileDisk> {
    let io = if way == "threads" { Io::Threads } else { Io::Auto };
    FileDisk::open_with(path, Access::ReadWrite, io, true).unwrap()
}

/// One thread of the child: writes its zones for ever, resets and finishes them, and says what was acknowledged.
/// One that is alone also resets all of them in one command.
fn writer(disk: &HostedDisk, first: u32, seed: u64, generations: &[u32], wps: &[u32]) {
    let alone = generations.len() as u32 == THREADS * ZONES;
    let g = disk.disk().geometry();
    let mut random = Random::new(seed);
    let depth = 16;
    let mut client = disk.open_client(depth, 8).unwrap();
    let mut bufs: Vec<_> = (0..depth).map(|_| IoBuf::leaked(4096)).collect();
    // Generation and next block of each zone.
    let mut zones: Vec<(u32, u32)> = generations.iter().copied().zip(wps.iter().copied()).collect();
    let mut out = String::new();
    loop {
        let i = random.draw() as usize % zones.len();
        let zone = first + i as u32;
        let (start, len) = (g.zone_start(ZoneNo(zone)), g.zone_len_sectors(ZoneNo(zone)));
        let blocks = g.capacity_of(ZoneNo(zone)) / BLOCK;
        let (mut list, mut done) = (Bios::new(), Bios::new());
        if alone && random.draw().is_multiple_of(60) {
            let say = |what: &str, zones: &[(u32, u32)]| {
                for (i, (generation, next)) in (0..).zip(zones) {
                    println!("{what} {} {generation} {next}", first + i);
                }
            };
            say("R", &zones);
            list.push_back(Bio::new(Op::ZoneResetAll, Sector(0), 0));
            client.submit(&mut list);
            client.wait(&mut done, 1, None);
            assert!(done[0].status.is_ok(), "{:?}", done[0]);
            say("r", &zones);
            zones.iter_mut().for_each(|z| *z = (z.0 + 1, 0));
            continue;
        }
        let (generation, next) = &mut zones[i];
        if *next >= blocks || random.draw().is_multiple_of(40) {
            let finish = random.draw().is_multiple_of(3) && *next < blocks;
            // Intent first: from here on the zone may be either.
            println!("{} {zone} {generation} {next}", if finish { "F" } else { "R" });
            let op = if finish { Op::ZoneFinish } else { Op::ZoneReset };
            list.push_back(Bio::new(op, start, len));
            client.submit(&mut list);
            client.wait(&mut done, 1, None);
            assert!(done[0].status.is_ok(), "{:?}", done[0]);
            println!("{} {zone} {generation} {next}", if finish { "f" } else { "r" });
            if finish {
                *next = blocks;
            } else {
                (*generation, *next) = (*generation + 1, 0);
            }
            continue;
        }
        let n = (1 + random.draw() as u32 % depth).min(blocks - *next);
        for j in 0..n {
            let mut buf = bufs.pop().unwrap();
            buf.copy_from(0, &stamp(zone, *generation, *next + j));
            let sector = start.plus(u64::from((*next + j) * BLOCK));
            let mut bio = Bio::with_buf(Op::Write, sector, BLOCK, buf);
            bio.set_token(u64::from(*next + j));
            if random.draw().is_multiple_of(50) {
                bio.flags = Flags::FUA;
            }
            list.push_back(bio);
        }
        client.submit(&mut list);
        let mut left = n;
        while left > 0 {
            client.wait(&mut done, 1, None);
            out.clear();
            for mut bio in done.drain(..) {
                assert!(bio.status.is_ok(), "{bio:?}");
                bufs.push(bio.take_buf());
                out += &format!("w {zone} {generation} {}\n", bio.token());
                left -= 1;
            }
            print!("{out}");
            std::io::stdout().flush().unwrap();
        }
        *next += n;
    }
}

/// The child: runs until it is killed.
fn child(args: &str) {
    let mut args = args.split(' ');
    let path = PathBuf::from(args.next().unwrap());
    let (way, seed) = (args.next().unwrap(), args.next().unwrap().parse::<u64>().unwrap());
    let state: Vec<(u32, u32)> = args
        .map(|a| a.split_once(':').unwrap())
        .map(|(g, w)| (g.parse().unwrap(), w.parse().unwrap()))
        .collect();
    let disk = HostedDisk::open(open(&path, way), DiskConfig::default()).unwrap();
    println!("open");
    if seed.is_multiple_of(3) {
        let (generations, wps): (Vec<u32>, Vec<u32>) = state.iter().copied().unzip();
        return writer(&disk, 0, seed, &generations, &wps);
    }
    std::thread::scope(|s| {
        for t in 0..THREADS {
            let (disk, part) = (&disk, &state[(t * ZONES) as usize..((t + 1) * ZONES) as usize]);
            s.spawn(move || {
                let (generations, wps): (Vec<u32>, Vec<u32>) = part.iter().copied().unzip();
                writer(disk, t * ZONES, seed + u64::from(t) * 977, &generations, &wps);
            });
        }
    });
}

/// What the child said of a zone.
#[derive(Debug, Clone, Copy, Default)]
struct Said {
    generation: u32,
    /// Blocks that are there at least.
    blocks: u32,
    full: bool,
    /// A reset or finish had begun.
    reset: bool,
    finish: bool,
}

fn read(disk: &HostedDisk, sector: Sector, blocks: u32) -> Vec<u8> {
    let mut client = disk.open_client(1, 1).unwrap();
    let (lent, buf) = AlignedBuf::zeroed(blocks * 4096).lend();
    let mut list = Bios::from([Bio::with_buf(Op::Read, sector, blocks * BLOCK, buf)]);
    client.submit(&mut list);
    let mut done = Bios::new();
    client.wait(&mut done, 1, None);
    assert!(done[0].status.is_ok(), "{:?}", done[0]);
    lent.take_back(done[0].take_buf()).unwrap().to_vec()
}

/// Checks a disk against what was said, and says what is there now.
fn check(path: &Path, said: &[Said], turn: u64) -> Vec<Said> {
    let disk = HostedDisk::open(open(path, "auto"), DiskConfig::default()).unwrap();
    let report = {
        let mut blocking = Vec::new();
        for n in 0..THREADS * ZONES {
            blocking.push(zone_info(&disk, n));
        }
        blocking
    };
    let mut now = Vec::new();
    for (n, (said, (cond, wp))) in (0..).zip(said.iter().zip(report)) {
        let g = disk.disk().geometry();
        let capacity = g.capacity_of(ZoneNo(n)) / BLOCK;
        let data = read(&disk, g.zone_start(ZoneNo(n)), capacity);
        let block = |i: u32| &data[i as usize * 4096..][..4096];
        let mut fits = None;
        let mut seen = Vec::new();
        for generation in [said.generation, said.generation + 1] {
            let newer = generation > said.generation;
            if newer && !said.reset {
                continue;
            }
            let whole =
                (0..capacity).take_while(|i| *block(*i) == stamp(n, generation, *i)).count() as u32;
            let zeroes = (whole..capacity).all(|i| block(i).iter().all(|b| *b == 0));
            let full = cond == Condition::Full;
            seen.push((generation, whole, zeroes));
            let least = if newer { 0 } else { said.blocks };
            let wp = if full { whole } else { wp / BLOCK };
            let must = said.full && !newer;
            let may = must || whole == capacity || said.finish && !newer;
            if zeroes && whole == wp && wp >= least && (!full || may) && (full || !must) {
                // A zone that was finished is full, though fewer blocks hold data: the next turn has to know both.
                fits = Some(Said { generation, blocks: whole, full, ..Said::default() });
            }
        }
        let Some(found) = fits else {
            panic!(
                "kill {turn}: zone {n} of {capacity} blocks is {cond} at {}, but {said:?}; generation, blocks that are whole, rest zero: {seen:?}",
                wp / BLOCK
            );
        };
        assert!(
            !matches!(cond, Condition::ImpOpen | Condition::ExpOpen),
            "kill {turn}: {n} is open"
        );
        now.push(found);
    }
    now
}

/// Condition and write pointer in sectors of a zone.
fn zone_info(disk: &HostedDisk, zone: u32) -> (Condition, u32) {
    let g = disk.disk().geometry();
    let start = g.zone_start(ZoneNo(zone));
    let mut client = disk.open_client(1, 1).unwrap();
    let buf = IoBuf::leaked(64);
    let mut list = Bios::from([Bio::with_buf(Op::ReportZones, start, 0, buf)]);
    client.submit(&mut list);
    let mut done = Bios::new();
    client.wait(&mut done, 1, None);
    assert_eq!((done[0].status.is_ok(), done[0].result), (true, 1), "{:?}", done[0]);
    let mut record = [0; 64];
    done[0].data().copy_to(0, &mut record);
    let info = zoneplug_core::zone::ZoneInfo::decode(&record).unwrap();
    (info.cond, info.wp.0.wrapping_sub(start.0) as u32)
}

/// One disk, killed again and again.
fn kills(dir: &Path, way: &str, n: u64) {
    let dir = dir.join(format!("zoneplug-kill-{way}-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let path = dir.join("disk.zbd");
    let options = CreateOptions {
        zones: Some(u64::from(THREADS * ZONES) + 2),
        zone_size: Some(1000 << 10),
        zone_capacity: Some(900 << 10),
        ..CreateOptions::default()
    };
    create(&path, &options, false).unwrap();
    let capacity = (900 << 10) / (BLOCK << 9);
    let mut said = vec![Said::default(); (THREADS * ZONES) as usize];
    let seed = std::env::var("ZONEPLUG_SEED").ok().and_then(|s| s.parse().ok());
    let mut random = Random::new(seed.unwrap_or(42));
    let (mut acknowledged, begin) = (0u64, Instant::now());
    for turn in 0..n {
        let next = |s: &Said| if s.full { capacity } else { s.blocks };
        let list: Vec<String> =
            said.iter().map(|s| format!("{}:{}", s.generation, next(s))).collect();
        let args = format!("{} {way} {} {}", path.display(), random.draw(), list.join(" "));
        let mut process = Process::new(std::env::current_exe().unwrap())
            .args(["--exact", "killed_at_random", "--nocapture", "--test-threads=1"])
            .env(CHILD, args)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        // The test harness says things of its own first.
        while !lines.next().expect("the child opens").unwrap().ends_with("open") {}
        let life = Duration::from_micros(random.draw() % 30_000);
        let killer = std::thread::spawn(move || {
            std::thread::sleep(life);
            process.kill().unwrap();
            process.wait().unwrap();
        });
        let mut above: Vec<BTreeMap<u32, ()>> = vec![BTreeMap::new(); said.len()];
        for line in lines {
            let Ok(line) = line else { break };
            let words: Vec<&str> = line.split(' ').collect();
            let [what, zone, generation, block] = words[..] else { continue };
            let (Ok(zone), Ok(generation), Ok(block)) =
                (zone.parse::<usize>(), generation.parse::<u32>(), block.parse::<u32>())
            else {
                continue;
            };
            let s = &mut said[zone];
            match what {
                "w" => {
                    assert_eq!(s.generation, generation, "{line}");
                    acknowledged += 1;
                    above[zone].insert(block, ());
                    while above[zone].remove(&s.blocks).is_some() {
                        s.blocks += 1;
                    }
                }
                "R" => s.reset = true,
                "F" => s.finish = true,
                "r" => *s = Said { generation: generation + 1, ..Said::default() },
                "f" => s.full = true,
                _ => {}
            }
        }
        killer.join().unwrap();
        said = check(&path, &said, turn);
    }
    println!(
        "{way}: {n} kills survived, {acknowledged} acknowledged writes checked, {:.1} s",
        begin.elapsed().as_secs_f32()
    );
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn killed_at_random() {
    if let Ok(args) = std::env::var(CHILD) {
        child(&args);
        return;
    }
    let n: u64 = std::env::var("ZONEPLUG_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(30);
    let target = Path::new(env!("CARGO_TARGET_TMPDIR"));
    kills(target, "auto", n - 2 * (n / 4));
    kills(target, "threads", n / 4);
    let shm = Path::new("/dev/shm");
    kills(if shm.is_dir() { shm } else { target }, "auto", n / 4);
}
