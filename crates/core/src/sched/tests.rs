//! The schedulers alone: the order in which they choose requests that a test makes up.

use super::elevator::{Elevator, NextRequest, Setup};
use super::table::{Dir, Request, RequestContent};
use super::{Balance, DeadlineConfig, Scheduler};
use crate::bio::{Bio, Op};
use crate::plug::{Kind, Merge};
use crate::random::Random;
use crate::unit::{Nanos, Sector, ZoneNo};

const MERGE: Merge = Merge { max_sectors: 24, max_zeroes_sectors: 24, max_bios: 3 };

/// A request of 8 sectors, of the middle class, without a BIO.
fn request(op: Op, sector: u64, since: u64) -> Request {
    Request {
        sector: Sector(sector),
        len_sectors: 8,
        dir: Dir::of(op),
        class: 1,
        since: Nanos(since),
        lock: None,
        owner: 0,
        op,
        kind: Kind::PLAIN,
        content: RequestContent::Bios,
    }
}

struct Rig(Elevator);

fn rig(scheduler: Scheduler, set: impl FnOnce(&mut Setup)) -> Rig {
    let mut setup = Setup { scheduler, ..Setup::default() };
    set(&mut setup);
    let mut e = Elevator::default();
    e.configure(setup);
    Rig(e)
}

impl Rig {
    fn put(&mut self, r: Request) {
        assert!(!self.0.insert(r, None, MERGE));
    }

    /// Takes the next request and returns its sector. The request stays at the device.
    fn next(&mut self, now: u64) -> Option<u64> {
        match self.0.next(Nanos(now), &mut Vec::new())? {
            NextRequest::Request(r) => Some(r.sector.0),
            NextRequest::Bio(_) => Some(u64::MAX),
        }
    }

    fn all(&mut self, now: u64) -> Vec<u64> {
        std::iter::from_fn(|| self.next(now)).collect()
    }
}

#[test]
fn requests_leave_in_the_order_of_sectors_from_where_the_last_one_ended() {
    let mut r = rig(Scheduler::MqDeadline, |_| {});
    for s in [500, 100, 900, 300] {
        r.put(request(Op::Write, s, 0));
    }
    assert_eq!(r.next(0), Some(100));
    r.put(request(Op::Write, 50, 0));
    r.put(request(Op::Write, 200, 0));
    assert_eq!(r.all(0), [200, 300, 500, 900, 50], "one sweep, and then back");
}

#[test]
fn a_batch_has_an_end_and_begins_with_who_is_too_late() {
    let mut r = rig(Scheduler::MqDeadline, |s| {
        s.deadline = DeadlineConfig { fifo_batch: 2, write_expire: Nanos(50), ..s.deadline }
    });
    r.put(request(Op::Write, 900, 0));
    for s in [100, 200, 300, 400] {
        r.put(request(Op::Write, s, 40));
    }
    // The first batch finds 900 in time; the second finds it late.
    assert_eq!([r.next(40), r.next(40)], [Some(100), Some(200)]);
    assert_eq!(r.next(60), Some(900));
    assert_eq!(r.all(60), [300, 400]);
}

#[test]
fn reads_go_first_but_do_not_starve_writes() {
    let mut r = rig(Scheduler::MqDeadline, |s| {
        s.deadline = DeadlineConfig { fifo_batch: 1, writes_starved: 2, ..s.deadline }
    });
    for s in 0..6 {
        r.put(request(Op::Read, s * 8, 0));
        r.put(request(Op::Write, 1000 + s * 8, 0));
    }
    let order: String = r.all(0).into_iter().map(|s| if s < 1000 { 'r' } else { 'w' }).collect();
    assert_eq!(order, "rrwrrwrrwwww");
}

#[test]
fn classes_are_served_in_turn_and_age() {
    let mut r = rig(Scheduler::MqDeadline, |s| {
        s.deadline = DeadlineConfig { prio_aging_expire: Nanos(100), ..s.deadline }
    });
    let class = |s, class, since| Request { class, ..request(Op::Read, s, since) };
    r.put(class(10, 2, 0));
    r.put(class(20, 1, 50));
    r.put(class(30, 0, 50));
    r.put(class(40, 0, 50));
    assert_eq!(r.next(60), Some(30));
    assert_eq!(r.next(100), Some(10), "it has waited long enough");
    assert_eq!(r.all(100), [40, 20]);
}

#[test]
fn no_more_than_the_depth_are_at_the_device() {
    for scheduler in [Scheduler::MqDeadline, Scheduler::Shuffle(3)] {
        let mut r = rig(scheduler, |s| s.depth = 2);
        for s in 0..4 {
            r.put(request(Op::Read, s * 8, 0));
        }
        assert_eq!(r.all(0).len(), 2);
        r.0.ended(Op::Read, None);
        assert_eq!(r.all(0).len(), 1);
    }
}

#[test]
fn flushes_and_management_are_ahead_of_all() {
    let mut r = rig(Scheduler::MqDeadline, |_| {});
    r.put(request(Op::Read, 0, 0));
    r.0.insert_first(Bio::new(Op::Flush, Sector(0), 0));
    assert_eq!(r.all(0), [u64::MAX, 0]);
}

/// C1: one write of a locked zone at a time, in the order in which they came, and the others pass it.
#[test]
fn c1_a_locked_zone_waits_and_others_pass() {
    for scheduler in [Scheduler::MqDeadline, Scheduler::Shuffle(1), Scheduler::Shuffle(2)] {
        let mut r = rig(scheduler, |s| s.locks = 100);
        let write = |zone: u32, s| Request {
            lock: Some(ZoneNo(zone)),
            owner: s as u32,
            ..request(Op::Write, u64::from(zone) * 1000 + s, 0)
        };
        for s in [8, 0, 16] {
            // The client's writes are out of order, and are sent in that order.
            r.put(write(70, s));
        }
        r.put(write(71, 0));
        r.put(write(2, 0));
        let mut first = r.all(0);
        first.sort_unstable();
        assert_eq!(first, [2000, 70_008, 71_000], "{scheduler:?}");
        r.0.ended(Op::Write, Some(ZoneNo(71)));
        assert_eq!(r.next(0), None);
        r.0.ended(Op::Write, Some(ZoneNo(70)));
        assert_eq!(r.all(0), [70_000]);
        r.0.ended(Op::Write, Some(ZoneNo(70)));
        assert_eq!(r.all(0), [70_016]);
    }
}

#[test]
fn writes_that_continue_a_waiting_one_become_part_of_it() {
    let mut r = rig(Scheduler::MqDeadline, |s| s.locks = 4);
    let write = |s: u64, kind: Kind, owner| {
        let bio = Bio::new(Op::Write, Sector(s), 8);
        let q = Request { lock: Some(ZoneNo(1)), kind, owner, ..request(Op::Write, s, 0) };
        (q, Some(bio))
    };
    let mut put = |s, kind, owner| {
        let (q, bio) = write(s, kind, owner);
        r.0.insert(q, bio, MERGE)
    };
    assert!(!put(64, Kind::PLAIN, 0));
    assert!(put(72, Kind::PLAIN, 0), "back to back");
    assert!(!put(88, Kind::PLAIN, 0), "not with a hole");
    assert!(!put(80, Kind::PLAIN, 1), "not of another queue");
    let mut bios = Vec::new();
    let Some(NextRequest::Request(q)) = r.0.next(Nanos(0), &mut bios) else { panic!("one waits") };
    assert_eq!((q.sector, q.len_sectors, bios.len()), (Sector(64), 16, 2));
    r.0.ended(Op::Write, q.lock);
    bios.clear();
    let Some(NextRequest::Request(q)) = r.0.next(Nanos(0), &mut bios) else { panic!("one waits") };
    assert_eq!(q.sector, Sector(88), "in the order of arrival");
}

/// The dial between reads and writes: each direction has its time while both wait.
#[test]
fn balance_gives_each_direction_its_time_while_both_wait() {
    let balance = Balance { write: Nanos(100), read: Nanos(50) };
    let mut r = rig(Scheduler::MqDeadline, |s| s.balance = Some(balance));
    for s in 0..4 {
        r.put(request(Op::Read, s * 8, 0));
        r.put(request(Op::Write, 1000 + s * 8, 0));
    }
    // Reads begin, and keep their time.
    assert_eq!([r.next(0), r.next(10)], [Some(0), Some(8)]);
    assert_eq!(r.next(60), Some(1000), "then writes");
    assert_eq!(r.next(100), Some(1008));
    assert_eq!(r.next(159), Some(1016));
    assert_eq!(r.next(160), Some(16), "and reads again");
    assert_eq!(r.next(170), Some(24));
    for _ in 0..4 {
        r.0.ended(Op::Read, None);
    }
    assert_eq!(r.next(171), Some(1024), "a direction without work does not use its time up");
}

#[test]
fn balance_is_of_no_concern_while_only_one_direction_waits() {
    let balance = Balance { write: Nanos(1), read: Nanos(1_000_000) };
    for scheduler in [Scheduler::MqDeadline, Scheduler::Shuffle(9)] {
        let mut r = rig(scheduler, |s| s.balance = Some(balance));
        for s in 0..4 {
            r.put(request(Op::Write, s * 8, 0));
        }
        assert_eq!(r.all(0).len(), 4);
    }
}

/// No request waits for ever: after random requests and random completions, all requests have been sent.
#[test]
fn every_request_leaves() {
    let mut rng = crate::Random::new(5);
    for round in 0..300u64 {
        let scheduler =
            if round % 2 == 0 { Scheduler::MqDeadline } else { Scheduler::Shuffle(round) };
        let mut r = rig(scheduler, |s| {
            s.depth = rng.below(4);
            s.locks = 8;
            s.balance = rng.one_in(2).then(|| Balance {
                write: Nanos(u64::from(rng.below(30))),
                read: Nanos(u64::from(rng.below(30))),
            });
        });
        let (mut now, mut put, mut left) = (0, 0, 0);
        let mut flying: Vec<Request> = Vec::new();
        for step in 0.. {
            now += u64::from(rng.below(10));
            if put < 40 && rng.one_in(2) {
                let op = if rng.one_in(2) { Op::Read } else { Op::Write };
                let zone = rng.below(8);
                let sector = u64::from(zone * 64 + rng.below(56));
                let lock = (op == Op::Write).then_some(ZoneNo(zone));
                let class = if lock.is_some() { 1 } else { rng.below(3) as u8 };
                // No two requests have the same owner, so nothing merges.
                r.put(Request { lock, class, owner: put, ..request(op, sector, now) });
                put += 1;
            }
            while let Some(t) = r.0.next(Nanos(now), &mut Vec::new()) {
                let NextRequest::Request(q) = t else { panic!("nothing of the kind was put in") };
                flying.push(q);
                left += 1;
            }
            assert!(!flying.is_empty() || r.0.waiting() == 0, "{scheduler:?}: all wait for nobody");
            if !flying.is_empty() && rng.one_in(2) {
                let q = flying.swap_remove(rng.below(flying.len() as u32) as usize);
                r.0.ended(q.op, q.lock);
            }
            if left == 40 {
                break;
            }
            assert!(step < 10_000);
        }
    }
}

/// A request that passes leaves the scheduler as one that was inserted and chosen: what comes later has the same order.
#[test]
fn a_request_that_passes_is_as_one_that_was_chosen() {
    let mut rng = Random::new(1);
    let deadline = |s: &mut Setup| s.deadline.fifo_batch = 3;
    let mut rigs = [rig(Scheduler::MqDeadline, deadline), rig(Scheduler::MqDeadline, deadline)];
    for n in 0..20_000u64 {
        let now = n * 1_000_000;
        if rng.one_in(2) && rigs.iter().all(|r| r.0.may_pass()) {
            let request = Request {
                class: rng.below(3) as u8,
                ..request(Op::Write, 8 * u64::from(rng.below(64)), now)
            };
            rigs[0].0.sent_at_once(&request);
            rigs[1].put(request);
            assert_eq!(rigs[1].next(now), Some(request.sector.0));
        } else if rng.one_in(2) {
            let op = rng.pick(&[Op::Read, Op::Write, Op::Write]);
            let request = Request {
                class: rng.below(3) as u8,
                ..request(op, 8 * u64::from(rng.below(64)), now)
            };
            rigs.iter_mut().for_each(|r| r.put(request));
        } else {
            let [a, b] = rigs.each_mut().map(|r| r.next(now));
            assert_eq!(a, b, "step {n}");
        }
    }
}
