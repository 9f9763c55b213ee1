//! Random schedules of more threads than loom can search: `scripts/shuttle`. Three clients in two zones, freezes,
//! revalidations, attributes that change, resets, errors and queues that are dropped in flight. Each case runs under
//! two schedulers, one that picks any thread at each step and one that finds bugs of few interruptions soon (PCT).
//!
//! A failure prints its schedule; `SHUTTLE_RANDOM_SEED` repeats a whole run, and `ZONEPLUG_SCHEDULES` says how many.

#![cfg(shuttle)]
#![allow(clippy::unwrap_used, clippy::disallowed_methods, clippy::disallowed_macros)]

mod model;

use model::client::{Answer, Client, append, read, reset, zeroes};
use model::{B, Floor, World, cases, hold, turns};
use shuttle::rand::{Rng, thread_rng};
use shuttle::thread::{self, JoinHandle};
use std::sync::Arc;
use zoneplug_core::disk::{Disk, DiskConfig, Mode, ZoneRecovery};
use zoneplug_core::sched::{Balance, Policy, Scheduler};
use zoneplug_core::{Nanos, Status};

/// Blocks of a zone, and the sector where the second begins.
const ZONE: u32 = 32;
const SECOND: u64 = ZONE as u64 * B;

fn check(name: &str, case: fn()) {
    let schedules = std::env::var("ZONEPLUG_SCHEDULES").map_or(500, |n| n.parse().unwrap());
    shuttle::check_random(case, schedules);
    shuttle::check_pct(case, schedules, 3);
    eprintln!("{name}: {schedules} random schedules, {schedules} of PCT");
}

#[test]
fn shuttle_two_writers() {
    check("two_writers", cases::two_writers);
}

#[test]
fn shuttle_hand_over() {
    check("hand_over", cases::hand_over);
}

#[test]
fn shuttle_hand_over_one_by_one() {
    check("hand_over_one_by_one", cases::hand_over_one_by_one);
}

#[test]
fn shuttle_tag_shortage() {
    check("tag_shortage", cases::tag_shortage);
}

#[test]
fn shuttle_hand_over_of_an_abort() {
    check("hand_over_of_an_abort", cases::hand_over_of_an_abort);
}

#[test]
fn shuttle_early_write_against_its_gap() {
    check("early_write_against_its_gap", cases::early_write_against_its_gap);
}

#[test]
fn shuttle_dropped_queue() {
    check("dropped_queue", cases::dropped_queue);
}

#[test]
fn shuttle_two_pollers_of_an_orphan() {
    check("two_pollers_of_an_orphan", cases::two_pollers_of_an_orphan);
}

#[test]
fn shuttle_a_poller_that_turns_away() {
    check("a_poller_that_turns_away", cases::a_poller_that_turns_away);
}

#[test]
fn shuttle_a_second_orphan() {
    check("a_second_orphan", cases::a_second_orphan);
}

#[test]
fn shuttle_spanning_writes() {
    check("spanning_writes", cases::spanning_writes);
}

#[test]
fn shuttle_freeze_against_a_submit() {
    check("freeze_against_a_submit", cases::freeze_against_a_submit);
}

#[test]
fn shuttle_freeze_against_polls() {
    check("freeze_against_polls", cases::freeze_against_polls);
}

#[test]
fn shuttle_revalidate_against_a_submit() {
    check("revalidate_against_a_submit", cases::revalidate_against_a_submit);
}

#[test]
fn shuttle_strict_reset_against_a_write() {
    check("strict_reset_against_a_write", cases::strict_reset_against_a_write);
}

#[test]
fn shuttle_two_zones_one_writer() {
    check("two_zones_one_writer", turns::two_zones_one_writer);
}

#[test]
fn shuttle_a_turn_is_handed_over() {
    check("a_turn_is_handed_over", turns::a_turn_is_handed_over);
}

#[test]
fn shuttle_a_turn_of_a_closing_queue() {
    check("a_turn_of_a_closing_queue", turns::a_turn_of_a_closing_queue);
}

#[test]
fn shuttle_a_turn_of_an_orphan() {
    check("a_turn_of_an_orphan", turns::a_turn_of_an_orphan);
}

#[test]
fn shuttle_a_wait_that_another_ends() {
    check("a_wait_that_another_ends", turns::a_wait_that_another_ends);
}

#[test]
fn shuttle_one_writer_for_each_spindle() {
    check("one_writer_for_each_spindle", turns::one_writer_for_each_spindle);
}

#[test]
fn shuttle_two_turns_of_a_closing_queue() {
    check("two_turns_of_a_closing_queue", turns::two_turns_of_a_closing_queue);
}

#[test]
fn shuttle_a_turn_that_fails() {
    check("a_turn_that_fails", turns::a_turn_that_fails);
}

#[test]
fn shuttle_an_abort_against_a_turn() {
    check("an_abort_against_a_turn", turns::an_abort_against_a_turn);
}

#[test]
fn shuttle_a_writer_is_switched_on() {
    check("a_writer_is_switched_on", turns::a_writer_is_switched_on);
}

#[test]
fn shuttle_a_scheduler_is_switched_on() {
    check("a_scheduler_is_switched_on", turns::a_scheduler_is_switched_on);
}

#[test]
fn shuttle_one_place_at_the_device() {
    check("one_place_at_the_device", turns::one_place_at_the_device);
}

#[test]
fn shuttle_one_place_and_a_closing_queue() {
    check("one_place_and_a_closing_queue", turns::one_place_and_a_closing_queue);
}

#[test]
fn shuttle_a_turn_in_the_scheduler() {
    check("a_turn_in_the_scheduler", turns::a_turn_in_the_scheduler);
}

#[test]
fn shuttle_a_locked_zone() {
    check("a_locked_zone", turns::a_locked_zone);
}

#[test]
fn shuttle_a_tag_comes_back_from_another() {
    check("a_tag_comes_back_from_another", turns::a_tag_comes_back_from_another);
}

#[test]
fn shuttle_a_dead_queue_leaves_its_turn() {
    check("a_dead_queue_leaves_its_turn", turns::a_dead_queue_leaves_its_turn);
}

#[test]
fn shuttle_a_dead_queue_leaves_its_place() {
    check("a_dead_queue_leaves_its_place", turns::a_dead_queue_leaves_its_place);
}

#[test]
fn shuttle_a_dead_queue_against_a_freeze() {
    check("a_dead_queue_against_a_freeze", turns::a_dead_queue_against_a_freeze);
}

#[test]
fn shuttle_an_orphan_that_the_device_tells_of() {
    check("an_orphan_that_the_device_tells_of", turns::an_orphan_that_the_device_tells_of);
}

#[test]
fn shuttle_three_clients_and_freezes() {
    check("three_clients_and_freezes", three_clients_and_freezes);
}

/// R30.
#[test]
fn shuttle_revalidations_and_a_dropped_queue() {
    check("revalidations_and_a_dropped_queue", revalidations_and_a_dropped_queue);
}

#[test]
fn shuttle_resets_and_errors() {
    check("resets_and_errors", resets_and_errors);
}

/// R34.
#[test]
fn shuttle_who_goes_first() {
    check("who_goes_first", who_goes_first);
}

#[test]
fn shuttle_zone_locks() {
    check("zone_locks", zone_locks);
}

/// R34.
#[test]
fn shuttle_turns_resets_and_errors() {
    check("turns_resets_and_errors", turns_resets_and_errors);
}

#[test]
fn shuttle_queues_that_come_and_go() {
    check("queues_that_come_and_go", queues_that_come_and_go);
}

fn world(strict: bool, fails_at: u64) -> (Disk, Arc<Floor>) {
    let nomerges = thread_rng().gen_bool(0.5);
    let by_itself = thread_rng().gen_bool(0.5);
    let zone_recovery = Some(if by_itself { ZoneRecovery::Auto } else { ZoneRecovery::Client });
    let config = DiskConfig { shards: 2, nomerges, zone_recovery, ..DiskConfig::default() };
    World { zones: 2, zone_blocks: ZONE, fails_at, strict, config, ..World::default() }.open()
}

/// A client with `n` appends and reads in both zones.
fn appender(disk: &Disk, n: u64, base: u64) -> Client {
    let mut rng = thread_rng();
    let client = Client::of_tags(disk, rng.gen_range(1..3));
    client.with((0..n).map(|i| {
        let zone = rng.gen_range(0..2u64) * SECOND;
        if rng.gen_bool(0.2) { read(zone, 1000 + base + i) } else { append(zone, base + i) }
    }))
}

/// `n` threads, each with an [`appender`] of four BIOs.
fn appenders(disk: &Disk, n: u64) -> Vec<JoinHandle<Vec<Answer>>> {
    let start = |n| {
        let client = appender(disk, 4, 10 * n);
        thread::spawn(move || client.finish())
    };
    (0..n).map(start).collect()
}

/// What came back to clients that have left.
fn join_all(clients: Vec<JoinHandle<Vec<Answer>>>) -> Vec<Answer> {
    clients.into_iter().flat_map(|c| c.join().unwrap()).collect()
}

/// A thread that submits three BIOs and drops its queue. Other queues finish what it submitted.
fn leaver(disk: &Disk) -> JoinHandle<()> {
    let mut leaves = appender(disk, 3, 500);
    thread::spawn(move || {
        leaves.submit();
        if thread_rng().gen_bool(0.5) {
            leaves.poll();
        }
    })
}

/// Every append has a sector of its own, and together they are what is written: exactly once (I2, I7, A4).
fn check_appends(floor: &Floor, answers: &[Answer]) {
    let mut at: Vec<_> = answers
        .iter()
        .filter(|a| a.token < 1000)
        .map(|a| {
            assert_eq!(a.status, Status::Ok, "{a:?}");
            a.sector.0
        })
        .collect();
    at.sort_unstable();
    let written = (0..2).flat_map(|z| (0..floor.written(z)).map(move |b| (z, b)));
    let expected: Vec<_> = written.map(|(z, b)| u64::from(z) * SECOND + u64::from(b) * B).collect();
    assert_eq!(at, expected, "A4: sectors of appends and the medium");
}

/// Three clients append to two zones and read, while the disk is frozen again and again (W13, W22).
fn three_clients_and_freezes() {
    let (disk, floor) = world(true, 0);
    let clients = appenders(&disk, 3);
    for _ in 0..3 {
        let first = disk.begin_freeze();
        if thread_rng().gen_bool(0.3) {
            drop(disk.begin_freeze());
        }
        hold(first, &floor, 4);
    }
    let answers = join_all(clients);
    assert_eq!(answers.len(), 12, "I7: each BIO completes once");
    check_appends(&floor, &answers);
    floor.check_rest(&disk);
}

/// Two clients, a queue that is dropped in flight, one that revalidates and changes an attribute (R30, R40, V5).
fn revalidations_and_a_dropped_queue() {
    let (disk, floor) = world(true, 0);
    let clients = appenders(&disk, 2);
    let leaver = leaver(&disk);
    let mut c = Client::new(&disk);
    cases::revalidate(&disk, &mut c);
    let value = if thread_rng().gen_bool(0.5) { "1" } else { "0" };
    disk.set_attribute("nomerges", value).unwrap();
    cases::revalidate(&disk, &mut c);
    leaver.join().unwrap();
    let answers = join_all(clients);
    assert_eq!(answers.len(), 8, "I7: each BIO completes once");
    // Only this queue is left to poll the orphans.
    c.drain_orphans();
    drop(c);
    floor.check_rest(&disk);
}

/// Appends with a reset and a failing write among them: everything comes back once, with a status that says why (M4,
/// E1). With strict management (M5) the layer knows the write pointer all the time; without, a reset among writes in
/// flight leaves it anywhere, and is recovered from.
fn resets_and_errors() {
    let strict = thread_rng().gen_bool(0.5);
    let (disk, floor) = world(strict, thread_rng().gen_range(0..4u64) * B);
    disk.set_attribute("strict_management", if strict { "1" } else { "0" }).unwrap();
    let clients = appenders(&disk, 2);
    let spans = zeroes(0, ZONE + 1, 900);
    let resets = Client::new(&disk).with([spans, reset(0, ZONE, 901), append(0, 902)]);
    let mut answers = resets.finish();
    answers.extend(join_all(clients));
    assert_eq!(answers.len(), 11, "I7: each BIO completes once");
    for a in &answers {
        let known = match a.status {
            Status::Ok
            | Status::Medium
            | Status::AbortedBehind
            | Status::StaleWritePointer
            | Status::NotAtWritePointer
            | Status::ZoneFull
            | Status::PastCapacity => true,
            Status::ZoneBusy => strict,
            Status::UnalignedWrite | Status::AbortedByManagement => !strict,
            _ => false,
        };
        assert!(known, "{a:?}");
    }
    if strict {
        floor.check_rest(&disk);
    } else {
        floor.check_idle(&disk);
    }
    // E3: whatever happened, a reset recovers the zone.
    assert_eq!(Client::new(&disk).with([reset(0, ZONE, 1)]).finish()[0].status, Status::Ok);
    let again = Client::new(&disk).with([append(0, 2)]).finish();
    assert_eq!(again[0].sector.0, 0);
    floor.check_rest(&disk);
}

/// Draws what decides which write goes first.
fn draw_config(c: &mut DiskConfig) {
    let mut rng = thread_rng();
    c.zoned_qd1_writes = Some(rng.gen_bool(0.6));
    c.zoned_qd1_policy = Policy::ALL[rng.gen_range(0..Policy::ALL.len())];
    c.anticipation = Nanos(rng.gen_range(0..2u64) * 5);
    c.zone_deadline = Nanos(rng.gen_range(0..2u64) * 3);
    c.scheduler = [Scheduler::None, Scheduler::MqDeadline, Scheduler::Shuffle(rng.gen_range(0..9))]
        [rng.gen_range(0..3usize)];
    c.queue_depth = rng.gen_range(0..4);
    c.nomerges = rng.gen_bool(0.3);
    c.read_write_balance = rng.gen_bool(0.3).then_some(Balance { write: Nanos(4), read: Nanos(2) });
}

/// Two clients append and read, a third leaves with work in flight, and single writer and scheduler are switched on and
/// off (Q1, Q8, Q9, Q11, R34, R40).
fn who_goes_first() {
    let mut config = DiskConfig { shards: 2, ..DiskConfig::default() };
    draw_config(&mut config);
    let world = World { zones: 2, zone_blocks: ZONE, config, ..World::default() };
    let (disk, floor) = world.open();
    let clients = appenders(&disk, 2);
    let leaver = leaver(&disk);
    let mut c = Client::new(&disk);
    for _ in 0..thread_rng().gen_range(0..3) {
        let (name, value) = [
            ("zoned_qd1_writes", "0"),
            ("zoned_qd1_writes", "1"),
            ("scheduler", "none"),
            ("scheduler", "mq-deadline"),
            ("scheduler", "shuffle"),
        ][thread_rng().gen_range(0..5usize)];
        turns::change(&disk, &floor, name, value, || c.poll());
    }
    leaver.join().unwrap();
    let answers = join_all(clients);
    assert_eq!(answers.len(), 8, "I7: each BIO completes once");
    // Only this queue is left to poll the orphans.
    c.drain_orphans();
    drop(c);
    floor.check_rest(&disk);
}

/// Zone locks: each client writes a zone of its own in order, all read, and one queue is dropped in flight (C1, R40).
fn zone_locks() {
    let mut config = DiskConfig { shards: 1, ..DiskConfig::default() };
    draw_config(&mut config);
    config.mode = Mode::Lock;
    let (disk, floor) = World { zones: 3, zone_blocks: ZONE, config, ..World::default() }.open();
    let client = |n: u64| {
        let mut rng = thread_rng();
        let mut wp = n * SECOND;
        let bios: Vec<_> = (0..5)
            .map(|i| {
                if rng.gen_bool(0.3) {
                    return read(rng.gen_range(0..3u64) * SECOND, i);
                }
                wp += B;
                zeroes(wp - B, 1, i)
            })
            .collect();
        Client::of_tags(&disk, rng.gen_range(1..3)).with(bios)
    };
    let clients: Vec<_> = (0..2)
        .map(|n| {
            let client = client(n);
            thread::spawn(move || client.finish())
        })
        .collect();
    let mut leaves = client(2);
    let leaver = thread::spawn(move || leaves.submit());
    let mut c = Client::new(&disk);
    if thread_rng().gen_bool(0.5) {
        turns::change(&disk, &floor, "scheduler", "shuffle", || c.poll());
    }
    leaver.join().unwrap();
    let answers = join_all(clients);
    assert_eq!(answers.len(), 10, "I7: each BIO completes once");
    assert!(answers.iter().all(|a| a.status == Status::Ok), "{answers:?}");
    c.drain_orphans();
    drop(c);
    floor.check_idle(&disk);
}

/// Turns that end with an error, and zones that are reset while they are listed (Q6, Q7, M4).
fn turns_resets_and_errors() {
    let mut config = DiskConfig { shards: 2, ..DiskConfig::default() };
    draw_config(&mut config);
    config.zoned_qd1_writes = Some(true);
    let fails_at = thread_rng().gen_range(0..4u64) * B;
    let world = World { zones: 2, zone_blocks: ZONE, fails_at, strict: false, ..World::default() };
    let (disk, floor) = World { config, ..world }.open();
    let clients = appenders(&disk, 2);
    let zone = thread_rng().gen_range(0..2u64) * SECOND;
    let resets = Client::new(&disk).with([append(SECOND, 900), reset(zone, ZONE, 901)]);
    let mut answers = resets.finish();
    answers.extend(join_all(clients));
    assert_eq!(answers.len(), 10, "I7: each BIO completes once");
    floor.check_idle(&disk);
    // E3: whatever happened, a reset recovers a zone, and its next write is not forgotten.
    for start in [0, SECOND] {
        assert_eq!(Client::new(&disk).with([reset(start, ZONE, 1)]).finish()[0].status, Status::Ok);
        assert_eq!(Client::new(&disk).with([append(start, 2)]).finish()[0].sector.0, start);
    }
    floor.check_rest(&disk);
}

/// Queues that are opened, used and closed while others hand them BIOs and the disk is frozen.
fn queues_that_come_and_go() {
    let (disk, floor) = world(true, 0);
    let clients: Vec<_> = (0..2)
        .map(|n| {
            let disk = disk.clone();
            thread::spawn(move || {
                let first = appender(&disk, 2, 10 * n).finish();
                [first, appender(&disk, 2, 10 * n + 5).finish()].concat()
            })
        })
        .collect();
    let last = appender(&disk, 2, 50);
    hold(disk.begin_freeze(), &floor, 3);
    let mut answers = last.finish();
    answers.extend(join_all(clients));
    assert_eq!(answers.len(), 10, "I7: each BIO completes once");
    check_appends(&floor, &answers);
    floor.check_rest(&disk);
}
