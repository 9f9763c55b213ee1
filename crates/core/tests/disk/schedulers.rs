//! Schedulers on a disk (C1-C5): which request waits where, which one is next, and that no order breaks a zone.

use crate::common::*;
use std::sync::{Arc, Mutex};
use zoneplug_core::disk::{DiskConfig, Mode};
use zoneplug_core::sched::{Balance, DeadlineConfig, Scheduler};
use zoneplug_core::{Commands, ErrorKind, Flags, Nanos, Op, Queue, Random, Status};
use zoneplug_devices::emu::EmuDisk;

/// What a device was sent, in order: operation, sector, length; and how many were there at a time.
#[derive(Default)]
struct Log {
    sent: Vec<(Op, u64, u32)>,
    flying: u32,
    most: u32,
}

struct LoggedQueue(Box<dyn Queue>, Arc<Mutex<Log>>);

impl Queue for LoggedQueue {
    fn submit(&mut self, now: Nanos, commands: &mut Commands) {
        let mut log = self.1.lock().unwrap();
        for c in commands.iter().filter(|c| !c.bios.is_empty()) {
            log.sent.push((c.op, c.sector.0, c.len_sectors));
            log.flying += 1;
            log.most = log.most.max(log.flying);
        }
        self.0.submit(now, commands);
        assert!(commands.is_empty());
    }
    fn poll(&mut self, now: Nanos, done: &mut Commands) {
        let before = done.len();
        self.0.poll(now, done);
        let n = done.iter().skip(before).filter(|c| !c.bios.is_empty()).count();
        self.1.lock().unwrap().flying -= n as u32;
    }
    fn next_deadline(&self) -> Option<Nanos> {
        self.0.next_deadline()
    }
    fn arm(&mut self) {
        self.0.arm();
    }
}

/// 8 zones of 512 sectors, `mq-deadline`, and a log. A command takes 100 ns.
fn rig(config: impl FnOnce(&mut DiskConfig), queues: &[(u32, u16)]) -> (Rig, Arc<Mutex<Log>>) {
    let m = make(8, 512, 512).config(|c| c.scheduler = Scheduler::MqDeadline).config(config);
    let dev = EmuDisk::new(m.emu).unwrap();
    let log = Arc::new(Mutex::new(Log::default()));
    let shared = log.clone();
    let device = wrapped(dev.clone(), move |q| Box::new(LoggedQueue(q, shared.clone())));
    let disk = open(device, m.config);
    let queues = queues.iter().map(|&(d, t)| disk.open_polled_queue(d, t).unwrap()).collect();
    log.lock().unwrap().sent.clear();
    (Rig { dev, disk, queues, now: Nanos(0), done: Vec::new() }, log)
}

fn sectors(log: &Arc<Mutex<Log>>) -> Vec<u64> {
    log.lock().unwrap().sent.iter().map(|s| s.1).collect()
}

#[test]
fn requests_of_all_clients_are_sorted_together() {
    let (mut r, log) = rig(|c| c.queue_depth = 1, &[(64, 4), (64, 4)]);
    r.submit(0, [read(0, 8), read(3000, 8), read(1000, 8)]);
    r.submit(1, [read(2000, 8), read(500, 8), read(3500, 8)]);
    assert_eq!(r.disk.scheduled(), 5);
    assert!(r.finish().iter().all(|b| b.status.is_ok()));
    assert_eq!(sectors(&log), [0, 500, 1000, 2000, 3000, 3500]);
    assert_eq!(log.lock().unwrap().most, 1, "the depth of the disk, whatever tags there are");
}

/// A write that would be the only one to choose from is sent at once; one that comes while others wait is sorted among them, and
/// one that comes while the disk has its depth waits.
#[test]
fn a_write_passes_a_scheduler_in_which_nothing_waits() {
    let (mut r, log) = rig(|c| c.queue_depth = 2, &[(64, 1), (64, 4), (64, 4)]);
    r.submit(1, [write(512, 8)]);
    assert_eq!((r.disk.scheduled(), r.disk.counters().plugs.parked), (0, 0));
    r.finish();
    // The first queue has one tag, so its second read waits while the disk has room for one more request.
    r.submit(0, [read(0, 8), read(1000, 8)]);
    assert_eq!(r.disk.scheduled(), 1);
    r.submit(1, [write(520, 8)]);
    assert_eq!((r.disk.scheduled(), r.disk.counters().plugs.parked), (1, 1));
    r.submit(2, [write(1024, 8)]);
    assert_eq!(r.disk.scheduled(), 2, "two requests are at the device");
    assert!(r.finish().iter().all(|b| b.status.is_ok()));
    assert_eq!(sectors(&log), [512, 0, 1000, 520, 1024]);
    assert_eq!(log.lock().unwrap().most, 2);
}

/// C2: whatever the scheduler does, a zone is written in order, one write at a time, and BIOs merge while they wait.
#[test]
fn c2_no_order_of_a_scheduler_breaks_a_zone() {
    let schedulers = [Scheduler::MqDeadline, Scheduler::Shuffle(1), Scheduler::Shuffle(2)];
    for (n, scheduler) in schedulers.into_iter().enumerate() {
        for single_writer in [false, true] {
            let set = |c: &mut DiskConfig| {
                (c.scheduler, c.zoned_qd1_writes) = (scheduler, Some(single_writer));
                c.queue_depth = 2 * n as u32;
            };
            let (mut r, log) = rig(set, &[(64, 2), (64, 1), (64, 3)]);
            let mut rng = Random::new(n as u64);
            let mut wp = [0; 8];
            for _ in 0..400 {
                let (q, z) = (rng.below(3) as usize, rng.below(8) as usize);
                if r.queues[q].room() > 0 && rng.one_in(4) {
                    r.submit(q, [read(u64::from(rng.below(4000)), 8)]);
                } else if r.queues[q].room() > 0 && wp[z] < 512 {
                    r.submit(q, [write(z as u64 * 512 + wp[z], 4)]);
                    wp[z] += 4;
                } else {
                    r.step();
                }
            }
            r.drain();
            assert!(r.done.iter().all(|b| b.status.is_ok()), "{scheduler}");
            let stats = r.dev.stats();
            assert_eq!((stats.overlaps, stats.failed(Status::UnalignedWrite)), (0, 0), "I1, I2");
            let merged = r.disk.counters().plugs.merged;
            assert!(merged > 0, "{scheduler}: writes that wait here merge in their plugs");
            for z in 0..8u64 {
                let n = wp[z as usize];
                let expected: Vec<u64> = (z * 512..z * 512 + n).collect();
                assert_eq!(r.medium(z * 512, n as u32), expected);
            }
            assert_eq!(r.disk.scheduled(), 0);
            assert!(log.lock().unwrap().sent.len() > 10);
        }
    }
}

/// C3, R37: a write that waits in a plug holds no place in the scheduler either.
#[test]
fn c3_reads_pass_writes_that_wait_under_a_scheduler() {
    let (mut r, _) = rig(|_| {}, &[(1100, 32)]);
    r.submit(0, (0..100).map(|i| flags(write(i * 4, 4), Flags::NOMERGE)));
    r.submit(0, (0..20).map(|i| token(read(2048 + i * 8, 8), 1)));
    for _ in 0..4 {
        r.step();
    }
    assert_eq!(r.done.iter().filter(|b| b.token() == 1).count(), 20);
    assert!(r.finish().iter().all(|b| b.status.is_ok()));
}

/// C1: in `lock` mode the same scheduler has zone locks, requests hold tags, and neighbours merge.
#[test]
fn c1_zone_write_locking_is_the_scheduler_with_a_lock() {
    let (mut r, log) = rig(|c| c.mode = Mode::Lock, &[(64, 8), (64, 8)]);
    assert_eq!(r.disk.attribute("scheduler").as_deref(), Some("mq-deadline"));
    for i in 0..6 {
        r.submit(0, [write(i * 4, 4)]);
        r.submit(1, [write(512 + i * 4, 4)]);
    }
    assert!(r.finish().iter().all(|b| b.status.is_ok()));
    let mut sent = log.lock().unwrap().sent.clone();
    sent.sort_by_key(|s| s.1);
    let w = Op::Write;
    assert_eq!(sent, [(w, 0, 4), (w, 4, 20), (w, 512, 4), (w, 516, 20)]);
    assert_eq!(r.dev.stats().overlaps, 0);
    let e = r.disk.set_attribute("scheduler", "none").unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Invalid, "C1: locks are a scheduler's");
}

/// C1: in `lock` mode a request has one zone, and so does its lock: neighbours merge up to the end of a zone, and a
/// write that spans zones is a request for each.
#[test]
fn c1_lock_mode_never_merges_across_a_zone() {
    let sent = |bios: Vec<Box<zoneplug_core::Bio>>| {
        let set = |c: &mut DiskConfig| (c.mode, c.queue_depth) = (Mode::Lock, 1);
        let (mut r, log) = rig(set, &[(64, 16)]);
        assert_eq!(r.run(0, [write(0, 500), write(512, 500)]), [Status::Ok; 2]);
        log.lock().unwrap().sent.clear();
        // Something to be busy with.
        r.submit(0, [read(4000, 8)]);
        r.submit(0, bios);
        assert!(r.finish().iter().all(|b| b.status.is_ok()), "{:?}", log.lock().unwrap().sent);
        let mut sent = log.lock().unwrap().sent.clone();
        sent.retain(|s| s.0 == Op::Write);
        sent.sort_by_key(|s| s.1);
        sent.iter().map(|s| (s.1, s.2)).collect::<Vec<_>>()
    };
    let list = vec![write(500, 6), write(506, 6), write(1012, 12), write(1024, 4), write(1028, 4)];
    assert_eq!(sent(list), [(500, 12), (1012, 12), (1024, 8)]);
    let spanning = vec![write(1012, 16), write(1028, 4)];
    assert_eq!(sent(spanning), [(1012, 12), (1024, 8)]);
}

/// W19.
#[test]
fn classes_pass_each_other_but_not_within_a_zone() {
    let (mut r, log) = rig(|c| c.queue_depth = 1, &[(64, 8)]);
    r.submit(0, [read(4000, 8)]);
    r.submit(0, [flags(read(8, 8), Flags::IDLE), read(16, 8), flags(read(24, 8), Flags::RT)]);
    r.drain();
    assert_eq!(sectors(&log), [4000, 24, 16, 8]);
    log.lock().unwrap().sent.clear();
    // W19: first in, first out, and here in one command or two.
    r.submit(0, [flags(write(0, 4), Flags::IDLE), flags(write(4, 4), Flags::RT)]);
    assert!(r.finish().iter().all(|b| b.status.is_ok()));
}

#[test]
fn attributes_of_schedulers() {
    let (r, _) = rig(|_| {}, &[]);
    for (name, value) in [
        ("read_expire", "500"),
        ("write_expire", "5000"),
        ("fifo_batch", "16"),
        ("writes_starved", "2"),
        ("prio_aging_expire", "10000"),
        ("queue_depth", "0"),
        ("read_write_balance", "0"),
    ] {
        assert_eq!(r.disk.attribute(name).as_deref(), Some(value), "{name}: Linux's value");
        r.disk.set_attribute(name, if name.contains("balance") { "100/50" } else { "7" }).unwrap();
    }
    let c = r.disk.config();
    assert_eq!(c.deadline.read_expire, Nanos(7_000_000));
    let balance = Balance { write: Nanos(100_000_000), read: Nanos(50_000_000) };
    assert_eq!(c.read_write_balance, Some(balance));
    for (name, value) in [("fifo_batch", "0"), ("read_write_balance", "7"), ("scheduler", "bfq")] {
        assert_eq!(r.disk.set_attribute(name, value).unwrap_err().kind(), ErrorKind::Invalid);
    }
    r.disk.set_attribute("scheduler", "none").unwrap();
    assert_eq!(r.disk.attribute("fifo_batch"), None, "an attribute of a scheduler that is off");
    assert_eq!(r.disk.attribute("queue_depth"), None);
}

/// Q9's way for schedulers: switched with requests waiting, again and again.
#[test]
fn schedulers_are_switched_under_load() {
    let (mut r, _) = rig(|c| c.queue_depth = 2, &[(16, 4), (16, 1)]);
    let mut rng = Random::new(7);
    let mut wp = [0u64; 8];
    for n in 0..300 {
        for q in 0..2 {
            for _ in 0..rng.range(1, 6) {
                let z = rng.below(8) as usize;
                if r.queues[q].room() == 0 {
                    break;
                } else if wp[z] < 512 {
                    r.submit(q, [write(z as u64 * 512 + wp[z], 4)]);
                    wp[z] += 4;
                } else {
                    r.submit(q, [read(z as u64 * 512, 8)]);
                }
            }
        }
        let name = Scheduler::NAMES[n % 3];
        let mut change = r.disk.change_attribute("scheduler", name).unwrap();
        let mut rounds = 0;
        while !change.poll() {
            r.step();
            rounds += 1;
            assert!(rounds < 1000, "hang: {:?}", r.queues);
        }
        assert_eq!(r.disk.scheduled(), 0);
        assert_eq!(r.disk.attribute("scheduler").as_deref(), Some(name));
    }
    r.drain();
    assert!(r.done.iter().all(|b| b.status.is_ok()));
}

/// R40: a queue that goes leaves requests in the scheduler; others send and complete them.
#[test]
fn r40_what_a_queue_left_in_the_scheduler_is_finished() {
    let (mut r, log) = rig(|c| c.queue_depth = 1, &[(64, 4), (64, 4)]);
    r.submit(0, [read(0, 8), read(8, 8), write(512, 4), write(516, 4)]);
    r.submit(1, [read(1024, 8)]);
    drop(r.queues.remove(0));
    r.drain();
    let freeze = r.disk.begin_freeze();
    for _ in 0..20 {
        r.step();
    }
    assert!(freeze.poll());
    assert_eq!(r.dev.stats().overlaps, 0);
    assert_eq!(log.lock().unwrap().sent.len(), 4, "two writes merged");
    assert_eq!(r.disk.scheduled(), 0);
}

/// Reads beside the single writer: never behind more than a write, and with a balance for no longer than its times.
#[test]
fn reads_beside_a_single_writer_keep_progressing() {
    for balance in [None, Some(Balance { write: Nanos(1000), read: Nanos(300) })] {
        let set = |c: &mut DiskConfig| {
            (c.zoned_qd1_writes, c.read_write_balance) = (Some(true), balance);
            c.nomerges = true;
            c.deadline = DeadlineConfig { fifo_batch: 1, ..DeadlineConfig::default() };
        };
        let (mut r, log) = rig(set, &[(256, 8), (64, 4)]);
        for z in 0..6 {
            r.submit(0, (0..16).map(|i| write(z * 512 + i * 4, 4)));
        }
        let (mut asked, mut waits) = (Nanos(0), Vec::new());
        r.submit(1, [token(read(4000, 8), 9)]);
        while r.queues[0].outstanding() > 0 {
            let before = r.done.len();
            r.step();
            if r.done[before..].iter().any(|b| b.token() == 9) {
                waits.push(r.now.0 - asked.0);
                asked = r.now;
                r.submit(1, [token(read(4000, 8), 9)]);
            }
        }
        r.drain();
        let most = *waits.iter().max().unwrap();
        // A command takes 100.
        let bound = balance.map_or(300, |b| b.write.0 + 300);
        assert!(waits.len() > 5 && most <= bound, "{balance:?}: {} reads, {waits:?}", waits.len());
        assert!(r.done.iter().all(|b| b.status.is_ok()));
        if balance.is_some() {
            let ops: Vec<Op> = log.lock().unwrap().sent.iter().map(|s| s.0).collect();
            let longest = ops.chunk_by(|a, b| a == b).map(<[Op]>::len).max().unwrap();
            assert!(longest >= 9, "writes have their time for themselves: {longest}");
        }
    }
}

/// Everything is there at once, and one command of 100 ns is at the device at a time: when each was done, by token.
fn served(
    config: DeadlineConfig,
    bios: impl IntoIterator<Item = Box<zoneplug_core::Bio>>,
) -> Vec<(u64, u64)> {
    let set = |c: &mut DiskConfig| (c.queue_depth, c.deadline) = (1, config);
    let (mut r, _) = rig(set, &[(256, 8)]);
    // Something to be busy with, so that the order is the scheduler's.
    r.submit(0, [token(read(4088, 8), u64::MAX)]);
    r.submit(0, bios);
    let mut times = Vec::new();
    while r.queues[0].outstanding() > 0 {
        let before = r.done.len();
        r.now = r.queues[0].next_deadline().unwrap();
        r.poll(0);
        times.extend(r.done[before..].iter().map(|b| (b.token(), r.now.0)));
    }
    assert!(r.done.iter().all(|b| b.status.is_ok()));
    times.split_off(1)
}

/// The mean of the times at which those of a token were done.
fn mean_of(times: &[(u64, u64)], token: u64) -> u64 {
    let of: Vec<u64> = times.iter().filter(|t| t.0 == token).map(|t| t.1).collect();
    of.iter().sum::<u64>() / of.len() as u64
}

/// C5: real-time requests are done first, idle ones last, and `prio_aging_expire` is the longest that a class waits for
/// those above it.
#[test]
fn c5_classes_have_their_latencies_and_age() {
    let bios = || {
        (0..30u64).map(|i| {
            let class = [Flags::IDLE, Flags::NONE, Flags::RT][i as usize % 3];
            token(flags(read(i * 8, 8), class), i % 3)
        })
    };
    let times = served(DeadlineConfig::default(), bios());
    let [idle, best_effort, rt] = [0, 1, 2].map(|t| mean_of(&times, t));
    // Ten each: 100 to 1000 after the first command, 1100 to 2000, 2100 to 3000.
    assert_eq!([rt, best_effort, idle], [650, 1650, 2650]);
    let aging = DeadlineConfig { prio_aging_expire: Nanos(500), ..DeadlineConfig::default() };
    let aged = served(aging, bios());
    let first = |t| aged.iter().find(|x| x.0 == t).unwrap().1;
    assert_eq!(first(2), 200, "real-time requests begin");
    assert!(first(0).min(first(1)) == 600, "until somebody has waited 500: {aged:?}");
    assert!(mean_of(&aged, 2) > rt, "and pay for that");
}

/// C5: longer batches mean fewer changes of direction, and longer waits for the other one.
#[test]
fn c5_fifo_batch_is_the_length_of_a_batch() {
    let bios = || {
        let reads = (0..24).map(|i| token(read(i * 8, 8), 0));
        reads.chain((0..8).map(|z| token(write(z * 512, 4), 1))).collect::<Vec<_>>()
    };
    let run = |fifo_batch| {
        let config = DeadlineConfig { fifo_batch, writes_starved: 1, ..DeadlineConfig::default() };
        let times = served(config, bios());
        let turns = times.chunk_by(|a, b| a.0 == b.0).map(<[_]>::len).collect::<Vec<_>>();
        let first_write = times.iter().find(|t| t.0 == 1).unwrap().1;
        (turns, first_write)
    };
    let (turns, first) = run(1);
    assert!(turns[..16].iter().all(|&n| n == 1), "read, write, read, write: {turns:?}");
    assert_eq!(first, 300, "after the command at the device and one read");
    let (turns, first) = run(4);
    assert_eq!(turns, [4, 4, 4, 4, 16]);
    assert_eq!(first, 600);
}

/// C5: `writes_starved` is the number of batches of reads that may pass writes that wait.
#[test]
fn c5_writes_starved_is_how_often_reads_pass() {
    for writes_starved in 0..5 {
        let config = DeadlineConfig { fifo_batch: 2, writes_starved, ..DeadlineConfig::default() };
        let reads = (0..24).map(|i| token(read(i * 8, 8), 0));
        let times = served(config, reads.chain((0..2).map(|z| token(write(z * 512, 4), 1))));
        let passed = times.iter().position(|t| t.0 == 1).unwrap();
        assert_eq!(passed as u32, 2 * writes_starved);
    }
}

/// C5: a request that has waited past `read_expire` or `write_expire` begins the next batch, wherever it is.
#[test]
fn c5_an_expired_request_begins_the_next_batch() {
    for (read_expire, place) in [(Nanos(350), 3), (Nanos(1_000_000), 11)] {
        let config = DeadlineConfig { read_expire, fifo_batch: 4, ..DeadlineConfig::default() };
        // The last by sector was the first to come; the others came later, which the limit does not tell apart here.
        let set = |c: &mut DiskConfig| (c.queue_depth, c.deadline) = (1, config);
        let (mut r, log) = rig(set, &[(256, 8)]);
        r.submit(0, [read(0, 8), token(read(4000, 8), 7)]);
        r.now = Nanos(100);
        r.submit(0, (1..12).map(|i| read(i * 8, 8)));
        r.drain();
        let order = sectors(&log);
        let at = order.iter().position(|&s| s == 4000).unwrap();
        assert_eq!(at - 1, place, "{order:?}");
    }
}

/// While both wait, time is shared as `read_write_balance` says.
#[test]
fn c5_read_write_balance_shares_time() {
    for (write_ns, read_ns) in [(1000, 500), (500, 1000)] {
        let balance = Balance { write: Nanos(write_ns), read: Nanos(read_ns) };
        let set = |c: &mut DiskConfig| {
            (c.queue_depth, c.read_write_balance, c.nomerges) = (1, Some(balance), true);
        };
        let (mut r, _) = rig(set, &[(256, 8), (256, 8)]);
        let mut wp = [0u64; 8];
        let mut done = [0u64; 2];
        while r.now.0 < 30_000 {
            // Both always have something waiting.
            while r.queues[1].outstanding() < 4 {
                r.submit(1, [token(read(4000, 8), 0)]);
            }
            for z in 0..8 {
                if r.queues[0].outstanding() < 8 && wp[z as usize] < 512 {
                    r.submit(0, [token(write(z * 512 + wp[z as usize], 4), 1)]);
                    wp[z as usize] += 4;
                }
            }
            let before = r.done.len();
            r.step();
            r.done[before..].iter().for_each(|b| done[b.token() as usize] += 1);
        }
        let share = done[1] as f64 / (done[0] + done[1]) as f64;
        let wanted = write_ns as f64 / (write_ns + read_ns) as f64;
        assert!((share - wanted).abs() < 0.1, "writes {write_ns}, reads {read_ns}: {done:?}");
    }
}
