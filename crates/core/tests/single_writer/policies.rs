//! Which zone is next, for how long, and none too late: policies, anticipation, the deadline (R35, R36).

use super::*;
use zoneplug_core::sched::Policy;
use zoneplug_core::sched::policy::OwnPolicy;

/// Writes each time that one is done, so that its zone never has nothing to write, until the zone is full.
fn keep_writing(r: &mut Rig, q: usize, zone: u64, wp: &mut u64, ahead: u64, done: u64) {
    while *wp < 64 && *wp - done < ahead {
        r.submit(q, [write(at(zone, *wp), 4)]);
        *wp += 4;
    }
}

/// When zone 2 was first written, while another client writes zone 1 without end.
fn second_zone_after(deadline: u64) -> (u64, u64) {
    let (mut r, log) = rig(|c| c.zone_deadline = Nanos(deadline), &[(64, 8), (64, 8)]);
    let mut wp = 0;
    keep_writing(&mut r, 0, 1, &mut wp, 8, 0);
    r.submit(1, [write(at(2, 0), 4)]);
    loop {
        r.step();
        let writes = r.done.iter().filter(|b| b.sector.0 < at(2, 0)).count() as u64;
        if log.lock().unwrap().writes.iter().any(|w| w.0 == 2) {
            return (r.now.0, writes * 4);
        }
        keep_writing(&mut r, 0, 1, &mut wp, 8, writes * 4);
        assert!(r.now.0 < 100_000, "{writes}");
    }
}

/// Q4: as published, a writer that never stops keeps the others waiting until its zone is full; with a deadline, until
/// that has passed and what it had when its turn began is written.
#[test]
fn r35_nobody_waits_longer_than_the_deadline_and_one_service() {
    let (_, sectors) = second_zone_after(0);
    assert_eq!(sectors, 64, "the whole zone");
    let (when, _) = second_zone_after(400);
    // A command takes 100: the deadline passes in the fourth, and the turn's own work was two commands.
    assert!((400..=600).contains(&when), "{when}");
    let (when, sectors) = second_zone_after(1);
    assert!(
        sectors >= 4 && when <= 300,
        "what waited when the turn began is written first: {when}"
    );
}

/// R35: each policy, with a deadline, against writers that never stop: no zone waits for ever, and a zone that is
/// past the deadline is next, oldest first.
#[test]
fn r35_with_a_deadline_no_policy_starves_a_zone() {
    for policy in Policy::ALL {
        let set = |c: &mut DiskConfig| {
            c.zoned_qd1_policy = policy;
            c.zone_deadline = Nanos(1000);
        };
        let (mut r, log) = rig(set, &[(64, 8); 2]);
        let mut wp = [0u64; 3];
        r.submit(1, [token(write(at(7, 0), 1), 99)]);
        for round in 0.. {
            for (z, wp) in wp.iter_mut().enumerate() {
                if *wp < 64 && r.queues[0].room() > 0 {
                    r.submit(0, [write(at(z as u64, *wp), 4)]);
                    *wp += 4;
                } else if *wp == 64 && r.queues[0].room() > 1 {
                    r.submit(0, [op(Op::ZoneReset, at(z as u64, 0), 64)]);
                    r.drain();
                    *wp = 0;
                }
            }
            let before = r.disk.single_writer();
            r.step();
            let after = r.disk.single_writer();
            if let Some(first) = before.listed.first()
                && before.counters.turns != after.counters.turns
                && r.now.0.saturating_sub(first.since.0) > 1100
            {
                let waits =
                    after.listed.iter().any(|c| c.zone == first.zone && c.since == first.since);
                assert!(!waits, "{policy}: {first:?} was passed over: {after:?}");
            }
            if r.done.iter().any(|b| b.token() == 99) {
                break;
            }
            assert!(round < 200 && r.now.0 < 10_000, "{policy}: zone 7 starves");
        }
        assert_eq!(log.lock().unwrap().most, 1);
    }
}

/// R35: earliest deadline first. A late zone waits for the command at the device, not for all that the zone of the
/// turn has. What that zone had keeps its own deadline.
#[test]
fn r35_who_is_late_waits_for_one_command_and_those_before_it() {
    let set = |c: &mut DiskConfig| {
        (c.zoned_qd1_policy, c.zone_deadline) = (Policy::Clook, Nanos(300));
    };
    let (mut r, log) = rig(set, &[(64, 8)]);
    r.submit(0, [write(at(4, 0), 8)]);
    r.now = Nanos(10);
    r.submit(0, [write(at(1, 0), 8), write(at(1, 8), 8)]);
    r.now = Nanos(20);
    r.submit(0, (0..6).map(|i| write(at(5, i * 8), 8)));
    r.now = Nanos(30);
    r.submit(0, [write(at(6, 0), 8)]);
    r.drain();
    // Zone 5 is next above 4, at 100. At 310 zone 1 is late, and has its turn when the third command ends. It is left
    // at 600; then 5 and 6 are late too, and 5 was listed first: it has what it had before 6 has anything.
    assert_eq!(zones(&log), [4, 5, 1, 5, 6]);
    let writes: Vec<u32> = log.lock().unwrap().writes.iter().map(|w| w.0).collect();
    assert_eq!(writes, [4, 5, 5, 5, 1, 1, 5, 5, 5, 6]);
    let counters = r.disk.single_writer().counters;
    assert_eq!(
        (counters.cut_off, counters.longest_wait),
        (1, Nanos(900 - 30)),
        "zone 6 waited for all"
    );
}

/// R35: the promise itself, with all zones late at the same time: a zone's turn begins after its deadline by at most
/// one command and the services of the zones that were listed before it.
#[test]
fn r35_a_late_zone_waits_only_for_those_listed_before_it() {
    for seed in 0..60 {
        let mut rng = Random::new(seed);
        let deadline = u64::from(rng.range(1, 1500));
        let set = |c: &mut DiskConfig| {
            c.zoned_qd1_policy = Policy::ALL[seed as usize % Policy::ALL.len()];
            c.zone_deadline = Nanos(deadline);
            c.anticipation = Nanos(if seed % 2 == 0 { 0 } else { 150 });
        };
        let (mut r, _) = rig(set, &[(256, 8); 2]);
        let mut wp = [0u64; 8];
        // Of each zone that is listed: since when, when its turn is due.
        let mut due: Vec<(u32, u64, u64)> = Vec::new();
        let mut late = 0;
        while wp.iter().any(|&w| w < 64) {
            let (z, q) = (rng.below(8) as usize, rng.below(2) as usize);
            let n = u64::from(rng.range(1, 4)).min((64 - wp[z]) / 4);
            if rng.one_in(3) && n > 0 && r.queues[q].room() > 4 {
                r.submit(q, (0..n).map(|i| write(at(z as u64, wp[z] + i * 4), 4)));
                wp[z] += n * 4;
            } else if r.queues.iter().any(|q| q.outstanding() > 0) {
                r.step();
            }
            let listed = r.disk.single_writer().listed;
            // A zone that is off the list has its turn by now.
            due.retain(|&(zone, since, by)| {
                let waits = listed.iter().any(|c| c.zone.0 == zone && c.since.0 == since);
                late += u32::from(waits && r.now.0 > since + deadline);
                assert!(
                    !waits || r.now.0 <= by,
                    "seed {seed}: zone {zone} since {since}, due {by}, now {}",
                    r.now.0
                );
                waits
            });
            for (i, c) in listed.iter().enumerate() {
                if !due.iter().any(|d| (d.0, d.1) == (c.zone.0, c.since.0)) {
                    // A zone has 64 sectors: 8 commands at most, and twice that with cuts; the turn of one is over.
                    let before = (i as u64 + 1) * 16 * 100;
                    due.push((c.zone.0, c.since.0, c.since.0 + deadline + 100 + before));
                }
            }
        }
        r.drain();
        assert!(r.done.iter().all(|b| b.status.is_ok()));
        assert!(late > 0 || deadline > 300, "seed {seed}: nobody was late");
    }
}

/// A wait for more ends when another zone is late.
#[test]
fn r35_anticipation_ends_at_a_deadline() {
    let set = |c: &mut DiskConfig| (c.anticipation, c.zone_deadline) = (Nanos(5000), Nanos(300));
    let (mut r, log) = rig(set, &[(64, 8), (64, 8)]);
    r.submit(0, [write(at(1, 0), 4)]);
    r.now = Nanos(50);
    r.submit(1, [write(at(2, 0), 4)]);
    r.now = Nanos(100);
    r.poll(0);
    assert_eq!(r.queues[0].next_deadline(), Some(Nanos(350)));
    r.drain();
    assert_eq!(
        (zones(&log), r.disk.single_writer().counters.longest_wait),
        (vec![1, 2], Nanos(300))
    );
}

/// A policy says how long a turn goes on, too: two zones of which each always has more in time.
#[test]
fn a_policy_decides_how_long_a_turn_is() {
    let turns = |policy| {
        let set = |c: &mut DiskConfig| (c.zoned_qd1_policy, c.anticipation) = (policy, Nanos(50));
        let (mut r, log) = rig(set, &[(64, 8), (64, 8)]);
        let mut wp = [0u64; 2];
        for (q, wp) in wp.iter_mut().enumerate() {
            r.submit(q, [write(at(q as u64, 0), 4)]);
            *wp = 4;
        }
        while wp.iter().any(|&w| w < 64) {
            let before = r.done.len();
            // None: what one queue has completed waits for the other's poll.
            let next = r.queues.iter().filter_map(DiskQueue::next_deadline).min();
            r.now = next.unwrap_or(r.now).max(r.now);
            (0..2).for_each(|q| r.poll(q));
            for i in before..r.done.len() {
                // Whose write is done has the next one 10 ns later.
                let z = (r.done[i].sector.0 / 64) as usize;
                if wp[z] < 64 {
                    r.now.0 += 10;
                    r.submit(z, [write(at(z as u64, wp[z]), 4)]);
                    wp[z] += 4;
                }
            }
        }
        r.drain();
        let log = log.lock().unwrap();
        log.writes.chunk_by(|a, b| a.0 == b.0).map(<[_]>::len).collect::<Vec<_>>()
    };
    assert_eq!(turns(Policy::Fifo), [16, 16], "as long as it has more");
    // In the end one zone is full, and the other alone.
    let longest = |policy| turns(policy).into_iter().take(4).max().unwrap();
    assert_eq!(longest(Policy::Brief), 2, "one wait");
    assert_eq!(longest(Policy::Steady), 7, "six");
}

/// R36: two clients write two zones in small turns: how often the device is sent to another zone.
#[test]
fn r36_a_single_writer_seeks_less() {
    let mut seeks = Vec::new();
    for on in [false, true] {
        let (mut r, log) = rig(|c| c.zoned_qd1_writes = Some(on), &[(64, 8), (64, 8)]);
        for q in 0..2 {
            let bios = (0..16).map(|i| write(at(1 + q, i * 4), 4)).collect::<Vec<_>>();
            // One by one, so that they are commands of 4 to 8 sectors.
            for b in bios {
                r.submit(q as usize, [b]);
            }
        }
        r.drain();
        seeks.push(zones(&log).len());
    }
    assert!(seeks[0] >= 8, "per zone, two writes are there at a time and alternate: {seeks:?}");
    assert_eq!(seeks[1], 2, "one visit of each zone");
}

#[test]
fn the_policy_decides_who_is_next() {
    let order = |policy| {
        let (mut r, log) = rig(|c| c.zoned_qd1_policy = policy, &[(64, 8)]);
        r.submit(0, [write(at(4, 0), 4)]);
        r.submit(0, [write(at(6, 0), 4), write(at(1, 0), 4), write(at(5, 0), 4)]);
        for i in 0..6 {
            r.submit(0, [write(at(1, 4 + i * 8), 8)]);
        }
        r.drain();
        zones(&log)
    };
    assert_eq!(order(Policy::Fifo), [4, 6, 1, 5]);
    assert_eq!(order(Policy::Clook), [4, 5, 6, 1]);
    assert_eq!(order(Policy::Score), [4, 1, 5, 6], "much, then near");
    assert_eq!(order(Policy::Own(&MOST)), [4, 1, 6, 5], "the most bytes; of equals the first");
    assert_eq!(order(Policy::Own(&WRONG)), [4, 5, 1, 6], "a wrong index is the last listed");
}

/// Looks at bytes.
static MOST: OwnPolicy = OwnPolicy {
    name: "most",
    pick: |view| {
        let most = view.listed.iter().map(|c| c.bytes).max();
        view.listed.iter().position(|c| Some(c.bytes) == most).unwrap_or(0)
    },
    stay: |_| true,
    wants_bytes: true,
};

/// Returns no index.
static WRONG: OwnPolicy =
    OwnPolicy { name: "wrong", pick: |_| usize::MAX, stay: |_| false, wants_bytes: false };

#[test]
fn a_policy_of_the_program_is_shown_by_its_name_and_can_be_changed() {
    let (mut r, _) = rig(|c| c.zoned_qd1_policy = Policy::Own(&MOST), &[(64, 8)]);
    let shown = |r: &Rig| {
        let all = r.disk.attributes();
        all.iter().find(|a| a.name == "zoned_qd1_policy").unwrap().value.clone()
    };
    assert_eq!(shown(&r), "most");
    r.disk.set_attribute("zoned_qd1_policy", "clook").unwrap();
    r.poll(0);
    assert_eq!(shown(&r), "clook");
}

/// Its `stay` decides whether an allowed wait begins.
#[test]
fn a_policy_of_the_program_decides_on_waits() {
    let waits = |own: &'static OwnPolicy| {
        let set = |c: &mut DiskConfig| {
            (c.zoned_qd1_policy, c.anticipation) = (Policy::Own(own), Nanos(50));
        };
        let (mut r, _) = rig(set, &[(64, 8), (64, 8)]);
        r.submit(0, [write(at(1, 0), 4)]);
        r.submit(1, [write(at(2, 0), 4)]);
        r.now = Nanos(100);
        r.poll(0);
        r.queues[0].next_deadline() == Some(Nanos(150))
    };
    assert!(waits(&MOST) && !waits(&WRONG));
}

/// Anticipation: the writer waits a moment for the zone that it has just written.
#[test]
fn anticipation_waits_for_more_and_no_longer() {
    let ask = |pause: u64| {
        let (mut r, log) = rig(|c| c.anticipation = Nanos(50), &[(64, 8), (64, 8)]);
        r.submit(0, [write(at(1, 0), 4)]);
        r.submit(1, [write(at(2, 0), 4)]);
        r.now = Nanos(100);
        r.poll(0);
        assert_eq!(r.done.len(), 1);
        assert_eq!(r.queues[0].next_deadline(), Some(Nanos(150)), "the wait has an end");
        r.now = Nanos(100 + pause);
        if pause >= 50 {
            r.poll(0);
        }
        r.submit(0, [write(at(1, 4), 4)]);
        r.drain();
        (zones(&log), r.disk.single_writer().counters.anticipated)
    };
    assert_eq!(ask(20), (vec![1, 2], 1), "zone 1 went on");
    assert_eq!(ask(60), (vec![1, 2, 1], 0), "too late");
}

#[test]
fn anticipation_goes_on_with_whichever_queue_the_write_comes_from() {
    let (mut r, log) = rig(|c| c.anticipation = Nanos(50), &[(64, 8), (64, 8)]);
    r.submit(0, [write(at(1, 0), 4)]);
    r.submit(1, [write(at(2, 0), 4)]);
    r.now = Nanos(100);
    r.poll(0);
    r.submit(1, [write(at(1, 4), 4)]);
    assert_eq!(log.lock().unwrap().writes, [(1, 4), (1, 4)]);
    // Queue 0 finds that no single writer waits with it any more.
    r.poll(0);
    assert!(!r.queues[0].is_busy());
    r.drain();
    assert_eq!(zones(&log), [1, 2]);
}

/// Q9.
#[test]
fn anticipation_does_not_wait_when_the_disk_is_frozen() {
    let (mut r, log) = rig(|c| c.anticipation = Nanos(1_000_000_000), &[(64, 8), (64, 8)]);
    r.submit(0, [write(at(1, 0), 4)]);
    r.submit(1, [write(at(2, 0), 4)]);
    r.now = Nanos(100);
    r.poll(0);
    let freeze = r.disk.begin_freeze();
    for _ in 0..20 {
        for q in 0..2 {
            r.poll(q);
        }
        r.now = Nanos(r.now.0 + 100);
        if freeze.poll() {
            break;
        }
    }
    assert!(freeze.poll(), "Q9: a freeze drains the list");
    assert_eq!(zones(&log), [1, 2]);
}
