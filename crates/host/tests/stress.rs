//! Threads on one disk: writes that span zones and the transfer limit, appends to shared zones, reads, resets, clients
//! that come and go, freezes, revalidations and attribute changes, all at a time, on a disk that reorders. Then every
//! sector is compared.

#![allow(clippy::unwrap_used)]

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use zoneplug_buf::{IoBuf, Parts};
use zoneplug_core::{Bio, Bios, Op, Random, Sector, Status, lost_bios};
use zoneplug_host::{Client, HostedDisk};

/// 256 KiB.
const ZONE: u64 = 512;
/// Zones that each thread has to itself.
const OWN: u64 = 6;
const THREADS: u64 = 3;
/// Zones that all append to, behind the own ones.
const SHARED: u64 = 4;
const DEPTH: usize = 24;
const SPEC: &str = "mem,zones=24,zone-size=256K,max-transfer=24K,max-bios=9,paranoid=1";

/// Fills `buf` so that each 512 bytes say what they are.
fn stamp(buf: &mut IoBuf, sectors: u32, what: u64) {
    for s in 0..sectors {
        buf.copy_from(s * 512, &(what + u64::from(s)).to_le_bytes());
    }
}

fn stamps(buf: &IoBuf, sectors: u32) -> Vec<u64> {
    (0..sectors)
        .map(|s| {
            let mut b = [0; 8];
            buf.copy_to(s * 512, &mut b);
            u64::from_le_bytes(b)
        })
        .collect()
}

struct Worker {
    disk: HostedDisk,
    client: Client,
    id: u64,
    rng: Random,
    bufs: Vec<IoBuf>,
    /// Of those that BIOs have.
    lent: Vec<Option<Parts>>,
    /// Indexes of `bufs` that no BIO has.
    free: Vec<usize>,
    /// What the append with that buffer is stamped with.
    what: Vec<u64>,
    /// For reads.
    back: IoBuf,
    done: Bios,
    /// (sector, stamp) of every append that was acknowledged.
    landed: Vec<(u64, u64)>,
}

impl Worker {
    fn new(disk: &HostedDisk, id: u64) -> Worker {
        Worker {
            client: disk.open_client(DEPTH as u32, 5).unwrap(),
            disk: disk.clone(),
            id,
            rng: Random::new(id),
            bufs: (0..DEPTH).map(|_| IoBuf::leaked(128 * 512)).collect(),
            lent: (0..DEPTH).map(|_| None).collect(),
            free: (0..DEPTH).collect(),
            what: vec![0; DEPTH],
            back: IoBuf::leaked(128 * 512),
            done: Bios::new(),
            landed: Vec::new(),
        }
    }

    fn random(&mut self, n: u64) -> u64 {
        self.rng.draw() % n
    }

    fn reap(&mut self) {
        self.client.wait(&mut self.done, 1, Some(Duration::from_secs(20)));
        if self.done.is_empty() {
            // Frozen: the BIOs are still in the list.
            assert_eq!(self.client.outstanding(), 0, "nothing in 20 seconds: {:?}", self.client);
            std::thread::yield_now();
        }
    }

    /// Resets the own zones, then writes them through as one stream, while appending to shared ones.
    fn round(&mut self, round: u64) {
        let base = self.id * OWN * ZONE;
        let reset = Bio::new(Op::ZoneReset, Sector(base), (OWN * ZONE) as u32);
        self.one(reset);
        let (mut at, end) = (base, base + OWN * ZONE);
        let mut list = Bios::new();
        while at < end || self.free.len() < DEPTH {
            while let Some(i) = (at < end).then(|| self.free.pop()).flatten() {
                let mut parts = Parts::new(std::mem::take(&mut self.bufs[i]));
                let mut bio = if self.random(5) == 0 {
                    let what = (self.id << 40 | round << 32 | self.landed.len() as u64) << 8;
                    let mut buf = parts.take_front(4096);
                    stamp(&mut buf, 8, what);
                    self.what[i] = what;
                    let zone = THREADS * OWN + self.random(SHARED);
                    Bio::with_buf(Op::ZoneAppend, Sector(zone * ZONE), 8, buf)
                } else {
                    // Up to 64 KiB: often over the transfer limit, sometimes over a zone's end.
                    let n = (8 * (1 + self.random(16))).min(end - at) as u32;
                    let mut buf = parts.take_front(n * 512);
                    stamp(&mut buf, n, at << 12 | round << 8);
                    let bio = Bio::with_buf(Op::Write, Sector(at), n, buf);
                    at += u64::from(n);
                    bio
                };
                self.lent[i] = Some(parts);
                bio.set_token(i as u64);
                list.push_back(bio);
            }
            self.client.submit(&mut list);
            self.reap();
            for mut bio in std::mem::take(&mut self.done) {
                let i = bio.token() as usize;
                let mut parts = self.lent[i].take().expect("it was lent");
                parts.put_back(bio.take_buf()).expect("its own memory");
                self.bufs[i] = parts.join().expect("all of it");
                match (bio.op, bio.status) {
                    (Op::ZoneAppend, Status::Ok) => self.landed.push((bio.sector.0, self.what[i])),
                    (Op::ZoneAppend, Status::ZoneFull | Status::PastCapacity) | (_, Status::Ok) => {
                    }
                    (op, status) => panic!("{op:?} at {}: {status}", bio.sector),
                }
                self.free.push(i);
            }
        }
        self.check(base, round);
    }

    /// Reads the own zones, each read across a zone's end, and compares.
    fn check(&mut self, base: u64, round: u64) {
        let n = 128;
        for at in (base..base + OWN * ZONE - 64).step_by(96) {
            let n = n.min((base + OWN * ZONE - at) as u32);
            let found = self.read(at, n);
            for (s, found) in (at..).zip(found) {
                // A stamp is its BIO's first sector and round, plus the distance from there.
                let (sector, of, distance) = (found >> 12, found >> 8 & 15, found & 0xff);
                assert_eq!((sector + distance, of), (s, round), "sector {s} of round {round}");
            }
        }
    }

    /// What `n` sectors say.
    fn read(&mut self, at: u64, n: u32) -> Vec<u64> {
        let mut parts = Parts::new(std::mem::take(&mut self.back));
        let mut bio = self.one(Bio::with_buf(Op::Read, Sector(at), n, parts.take_front(n * 512)));
        parts.put_back(bio.take_buf()).expect("its own memory");
        self.back = parts.join().expect("all of it");
        stamps(&self.back, n)
    }

    fn one(&mut self, bio: Box<Bio>) -> Box<Bio> {
        let mut list = Bios::from([bio]);
        let mut done = Bios::new();
        while done.is_empty() {
            self.client.submit(&mut list);
            self.client.wait(&mut done, 1, Some(Duration::from_millis(50)));
        }
        assert!(done[0].status.is_ok(), "{:?}: {}", done[0].op, done[0].status);
        done.pop_front().expect("it is back")
    }
}

/// Freezes, revalidates, changes attributes, and drops clients with work in flight, until `stop`.
fn disturb(disk: &HostedDisk, stop: &AtomicBool) -> u32 {
    let mut n = 0;
    let ordered = disk.disk().limits().keeps_write_order;
    while !stop.load(Ordering::Relaxed) {
        n += 1;
        match n % 6 {
            0 => drop(disk.freeze().unwrap()),
            // Neither a single writer nor a scheduler goes with it; with one in flight a failure would be told.
            3 | 4 if ordered => {
                let depth = ["3", "8", "2", "16"][(n / 6 % 4) as usize];
                disk.set_attribute("zone_write_depth", depth).unwrap();
            }
            // Q9: under load, back and forth.
            3 => {
                let was = disk.disk().attribute("zoned_qd1_writes").unwrap();
                let value = if was == "1" { "0" } else { "1" };
                disk.set_attribute("zoned_qd1_writes", value).unwrap();
                assert_eq!(disk.disk().attribute("zoned_qd1_writes").unwrap(), value);
            }
            4 if n % 12 == 4 => {
                let names = ["none", "mq-deadline", "shuffle"];
                disk.set_attribute("scheduler", names[(n / 12 % 3) as usize]).unwrap();
            }
            4 => {
                let policy = ["fifo", "clook", "score"][(n / 6 % 3) as usize];
                disk.set_attribute("zoned_qd1_policy", policy).unwrap();
            }
            1 => disk.revalidate().unwrap(),
            2 => {
                disk.disk().set_attribute("nomerges", if n % 12 == 2 { "1" } else { "0" }).unwrap();
            }
            _ => {
                let mut client = disk.open_client(8, 2).unwrap();
                let shared = THREADS * OWN * ZONE;
                let mut reads: Bios = (0..8)
                    .map(|i| {
                        Bio::with_buf(
                            Op::Read,
                            Sector(shared - 40 + i * 8),
                            96,
                            IoBuf::leaked(96 * 512),
                        )
                    })
                    .collect();
                client.submit(&mut reads);
            }
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    n
}

fn run(spec: &str, length: Duration) {
    let disk = HostedDisk::open_spec(spec).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|s| {
        let disturber = s.spawn(|| disturb(&disk, &stop));
        let workers: Vec<_> = (0..THREADS)
            .map(|id| {
                let disk = &disk;
                s.spawn(move || {
                    let mut w = Worker::new(disk, id);
                    let end = Instant::now() + length;
                    let mut round = 0;
                    while Instant::now() < end {
                        w.round(round % 16);
                        round += 1;
                    }
                    (w, round)
                })
            })
            .collect();
        let workers: Vec<_> = workers.into_iter().map(|w| w.join()).collect();
        stop.store(true, Ordering::Relaxed);
        let workers: Vec<_> = workers.into_iter().map(|w| w.expect("a worker ends well")).collect();
        assert!(disturber.join().unwrap() > 4, "there was a disturbance");
        assert!(workers.iter().all(|(_, rounds)| *rounds > 0));
        // Every append is where its completion said, and no two are in one place.
        let mut places = std::collections::BTreeSet::new();
        for (mut w, _) in workers {
            for (at, what) in w.landed.clone() {
                assert!(places.insert(at), "two appends at sector {at}");
                assert_eq!(w.read(at, 8), (what..what + 8).collect::<Vec<_>>());
            }
            assert_eq!(w.disk.disk().counters().waiting, 0);
        }
    });
    assert_eq!(lost_bios(), 0);
}

/// R5.
#[test]
fn threads_split_append_and_reset_while_the_disk_is_frozen_and_revalidated() {
    run(SPEC, Duration::from_millis(1500));
    run(&format!("{SPEC},reorder=11"), Duration::from_millis(1500));
    run(&format!("{SPEC},reorder=12,latency=30us,tags=2"), Duration::from_millis(1500));
}

/// The same, with a single writer that waits for more and looks at deadlines: no wake-up is lost (Q8, R34).
#[test]
fn threads_share_a_single_writer_that_is_switched_on_and_off() {
    run(&format!("{SPEC},qd1=1"), Duration::from_millis(1500));
    let manners = "qd1=1,policy=clook,anticipation-us=40,zone-deadline-ms=1";
    run(&format!("{SPEC},{manners}"), Duration::from_millis(1500));
    run(&format!("{SPEC},{manners},reorder=13,latency=30us,tags=2"), Duration::from_millis(1500));
}

/// C2 and C3 with threads: what one client put into a scheduler is sent by another.
#[test]
fn threads_share_a_scheduler_that_is_switched() {
    run(&format!("{SPEC},scheduler=mq-deadline,queue-depth=3"), Duration::from_millis(1500));
    run(&format!("{SPEC},scheduler=shuffle,tags=2"), Duration::from_millis(1500));
    let both = "scheduler=mq-deadline,qd1=1,policy=score,anticipation-us=40,latency=30us";
    run(&format!("{SPEC},{both}"), Duration::from_millis(1500));
}

/// I1 with threads: several writes of a zone in flight on its home, with failures that zones recover from by
/// themselves.
#[test]
fn threads_share_zones_that_have_several_writes_in_flight() {
    let spec = format!("{SPEC},ordered=1,zone-write-depth=8");
    run(&spec, Duration::from_millis(1500));
    let faults = "fault=write/io/p=0.003+write/busy/p=0.003";
    run(&format!("{spec},{faults}"), Duration::from_millis(1500));
    run(&format!("{spec},{faults},reorder=14,latency=30us,tags=4"), Duration::from_millis(1500));
}
