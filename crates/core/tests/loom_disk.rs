//! Every interleaving, up to a bound, of two or three threads in one disk: `scripts/loom`. The models are in
//! `model/cases.rs`; this says how far each is searched. Each number is the most often that a thread is interrupted
//! while it could go on (loom's preemption bound); waiting and ending are not counted, so a search with a bound is
//! complete for all schedules with so many interruptions, whatever their length.

#![cfg(loom)]
#![allow(clippy::unwrap_used, clippy::disallowed_methods, clippy::disallowed_macros)]

mod model;

use model::cases;
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
    zoneplug_core::planted::plant_from_env();
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

#[test]
fn loom_dropped_queue() {
    check("dropped_queue", ALL, cases::dropped_queue);
}

#[test]
fn loom_two_pollers_of_an_orphan() {
    check("two_pollers_of_an_orphan", 3, cases::two_pollers_of_an_orphan);
}

#[test]
fn loom_a_poller_that_turns_away() {
    check("a_poller_that_turns_away", 4, cases::a_poller_that_turns_away);
}

#[test]
fn loom_a_second_orphan() {
    check("a_second_orphan", 5, cases::a_second_orphan);
}

#[test]
fn loom_spanning_writes() {
    check("spanning_writes", 5, cases::spanning_writes);
}

#[test]
fn loom_strict_reset_against_a_write() {
    check("strict_reset_against_a_write", 5, cases::strict_reset_against_a_write);
}

#[test]
fn loom_freeze_against_a_submit() {
    check("freeze_against_a_submit", 4, cases::freeze_against_a_submit);
}

#[test]
fn loom_freeze_against_polls() {
    check("freeze_against_polls", 2, cases::freeze_against_polls);
}

#[test]
fn loom_revalidate_against_a_submit() {
    check("revalidate_against_a_submit", 4, cases::revalidate_against_a_submit);
}
