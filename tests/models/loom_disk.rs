//! Every interleaving, up to a bound, of two or three threads in one disk: `scripts/loom`. The models are in
//! `model/cases.rs` and `model/turns.rs`; this says how far each is searched. Each number is the most often that a
//! thread is interrupted while it could go on (loom's preemption bound); waiting and ending are not counted, so a
//! search with a bound is complete for all schedules with so many interruptions, whatever their length.

#![cfg(loom)]
#![allow(clippy::unwrap_used, clippy::disallowed_methods, clippy::disallowed_macros)]

mod model;

use model::{cases, turns};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// No bound: every schedule.
const ALL: usize = usize::MAX;

/// `ZONEPLUG_BOUND=n` replaces the bounds of this file, `ZONEPLUG_BOUND=+n` adds to them.
fn bound(own: usize) -> Option<usize> {
    let bound = match std::env::var("ZONEPLUG_BOUND") {
        Err(_) => own,
        Ok(n) => match n.strip_prefix('+') {
            Some(more) => own.saturating_add(more.parse().unwrap()),
            None => n.parse().unwrap(),
        },
    };
    (bound != ALL).then_some(bound)
}

fn check(name: &str, interruptions: usize, case: fn()) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = bound(interruptions);
    builder.max_branches = 20_000;
    let bound = builder.preemption_bound.map_or("none".to_owned(), |n| n.to_string());
    let runs = Arc::new(AtomicU64::new(0));
    let counter = runs.clone();
    builder.check(move || {
        counter.fetch_add(1, Ordering::Relaxed);
        case();
    });
    eprintln!("{name}: {} interleavings, bound {bound}", runs.load(Ordering::Relaxed));
}

// With no bound at all `hand_over` is 160 thousand, and was searched by hand.
#[test]
fn loom_two_writers() {
    check("two_writers", 5, cases::two_writers);
}

/// R6.
#[test]
fn loom_hand_over() {
    check("hand_over", 6, cases::hand_over);
}

#[test]
fn loom_hand_over_one_by_one() {
    check("hand_over_one_by_one", 5, cases::hand_over_one_by_one);
}

#[test]
fn loom_tag_shortage() {
    check("tag_shortage", 5, cases::tag_shortage);
}

#[test]
fn loom_hand_over_of_an_abort() {
    check("hand_over_of_an_abort", 5, cases::hand_over_of_an_abort);
}

/// H3, H5.
#[test]
fn loom_early_write_against_its_gap() {
    check("early_write_against_its_gap", 4, cases::early_write_against_its_gap);
}

/// R40.
#[test]
fn loom_dropped_queue() {
    check("dropped_queue", ALL, cases::dropped_queue);
}

/// R6.
#[test]
fn loom_two_pollers_of_an_orphan() {
    check("two_pollers_of_an_orphan", 3, cases::two_pollers_of_an_orphan);
}

/// R40.
#[test]
fn loom_a_poller_that_turns_away() {
    check("a_poller_that_turns_away", 4, cases::a_poller_that_turns_away);
}

#[test]
fn loom_a_second_orphan() {
    check("a_second_orphan", 5, cases::a_second_orphan);
}

/// P16.
#[test]
fn loom_spanning_writes() {
    check("spanning_writes", 5, cases::spanning_writes);
}

/// M5.
#[test]
fn loom_strict_reset_against_a_write() {
    check("strict_reset_against_a_write", 5, cases::strict_reset_against_a_write);
}

/// W13.
#[test]
fn loom_freeze_against_a_submit() {
    check("freeze_against_a_submit", 4, cases::freeze_against_a_submit);
}

/// W13.
#[test]
fn loom_freeze_against_polls() {
    check("freeze_against_polls", 2, cases::freeze_against_polls);
}

#[test]
fn loom_revalidate_against_a_submit() {
    check("revalidate_against_a_submit", 4, cases::revalidate_against_a_submit);
}

/// Q8.
#[test]
fn loom_two_zones_one_writer() {
    check("two_zones_one_writer", 4, turns::two_zones_one_writer);
}

/// Q8.
#[test]
fn loom_a_turn_is_handed_over() {
    check("a_turn_is_handed_over", 4, turns::a_turn_is_handed_over);
}

/// Q11.
#[test]
fn loom_a_turn_of_a_closing_queue() {
    check("a_turn_of_a_closing_queue", ALL, turns::a_turn_of_a_closing_queue);
}

/// Q8.
#[test]
fn loom_a_turn_of_an_orphan() {
    check("a_turn_of_an_orphan", 2, turns::a_turn_of_an_orphan);
}

#[test]
fn loom_a_wait_that_another_ends() {
    check("a_wait_that_another_ends", 3, turns::a_wait_that_another_ends);
}

/// Q1.
#[test]
fn loom_one_writer_for_each_spindle() {
    check("one_writer_for_each_spindle", 4, turns::one_writer_for_each_spindle);
}

/// Q1.
#[test]
fn loom_two_turns_of_a_closing_queue() {
    check("two_turns_of_a_closing_queue", ALL, turns::two_turns_of_a_closing_queue);
}

/// Q6.
#[test]
fn loom_a_turn_that_fails() {
    check("a_turn_that_fails", 5, turns::a_turn_that_fails);
}

/// Q7.
#[test]
fn loom_an_abort_against_a_turn() {
    check("an_abort_against_a_turn", 3, turns::an_abort_against_a_turn);
}

/// Q9.
#[test]
fn loom_a_writer_is_switched_on() {
    check("a_writer_is_switched_on", 2, turns::a_writer_is_switched_on);
}

/// Q9.
#[test]
fn loom_a_scheduler_is_switched_on() {
    check("a_scheduler_is_switched_on", 2, turns::a_scheduler_is_switched_on);
}

#[test]
fn loom_one_place_at_the_device() {
    check("one_place_at_the_device", 4, turns::one_place_at_the_device);
}

#[test]
fn loom_one_place_and_a_closing_queue() {
    check("one_place_and_a_closing_queue", ALL, turns::one_place_and_a_closing_queue);
}

#[test]
fn loom_a_turn_in_the_scheduler() {
    check("a_turn_in_the_scheduler", 4, turns::a_turn_in_the_scheduler);
}

/// C1.
#[test]
fn loom_a_locked_zone() {
    check("a_locked_zone", 5, turns::a_locked_zone);
}

/// C1.
#[test]
fn loom_a_tag_comes_back_from_another() {
    check("a_tag_comes_back_from_another", 4, turns::a_tag_comes_back_from_another);
}

#[test]
fn loom_a_dead_queue_leaves_its_turn() {
    check("a_dead_queue_leaves_its_turn", 3, turns::a_dead_queue_leaves_its_turn);
}

#[test]
fn loom_a_dead_queue_leaves_its_place() {
    check("a_dead_queue_leaves_its_place", 3, turns::a_dead_queue_leaves_its_place);
}

#[test]
fn loom_a_dead_queue_against_a_freeze() {
    check("a_dead_queue_against_a_freeze", 2, turns::a_dead_queue_against_a_freeze);
}

#[test]
fn loom_an_orphan_that_the_device_tells_of() {
    check("an_orphan_that_the_device_tells_of", ALL, turns::an_orphan_that_the_device_tells_of);
}

#[test]
fn loom_recovery_against_a_submit() {
    check("recovery_against_a_submit", 4, cases::recovery_against_a_submit);
}

#[test]
fn loom_recovery_against_a_freeze() {
    check("recovery_against_a_freeze", 4, cases::recovery_against_a_freeze);
}

#[test]
fn loom_recovery_of_a_dropped_queue() {
    check("recovery_of_a_dropped_queue", 4, cases::recovery_of_a_dropped_queue);
}

#[test]
fn loom_recovery_against_a_reset() {
    check("recovery_against_a_reset", 4, cases::recovery_against_a_reset);
}
