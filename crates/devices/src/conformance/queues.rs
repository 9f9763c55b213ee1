//! The checks of queues: depth, completion, time and wake-ups. They use reads, which no rule of zones refuses, so a
//! device may take them in any order.

use super::{Ctx, PATIENCE};
use std::sync::atomic::Ordering::SeqCst;
use std::task::Waker;
use zoneplug_core::bio::{Commands, Status};
use zoneplug_core::unit::Nanos;

/// Makes `n` reads of one block each.
fn reads(x: &mut Ctx, n: u64) -> Commands {
    let (b, start) = (x.limits().logical_block_sectors, x.zone().1);
    let len = u64::from(x.geometry().zone_len_sectors(x.zone().0) / b);
    (0..n).map(|i| x.data_in(start.plus(i % len * u64::from(b)), b)).collect()
}

pub(super) fn the_depth_is_respected_in_order(x: &mut Ctx) {
    x.queue = x.device.open_queue(3, Waker::noop().clone()).expect("a queue opens");
    let mut list = reads(x, 8);
    let order: Vec<_> = list.iter().map(|c| c.sector).collect();
    let (mut taken, mut back) = (0, Commands::new());
    while back.len() < 8 {
        let before = list.len();
        x.queue.submit(x.now, &mut list);
        taken += before - list.len();
        assert!(taken - back.len() <= 3, "more commands than the queue is deep");
        assert!(list.iter().map(|c| c.sector).eq(order[taken..].iter().copied()), "order");
        assert!(taken > back.len(), "an idle queue takes commands");
        let more = x.wait_some();
        back.extend(more);
    }
    assert!(list.is_empty() && back.iter().all(|c| c.status.is_ok()));
}

pub(super) fn every_command_comes_back_once(x: &mut Ctx) {
    let mut list = reads(x, 16);
    for (i, c) in list.iter_mut().enumerate() {
        c.bios[0].set_token(i as u64);
    }
    for _ in 0..20 {
        x.submit_all(&mut list);
        assert!(list.is_empty());
        let mut done = x.wait(16);
        let mut tokens: Vec<_> = done.iter().map(|c| c.bios[0].token()).collect();
        tokens.sort_unstable();
        assert!(tokens.into_iter().eq(0..16));
        list.append(&mut done);
    }
}

pub(super) fn two_queues_get_their_own(x: &mut Ctx) {
    let mut other = x.device.open_queue(4, Waker::noop().clone()).expect("a queue opens");
    let (mut a, mut b) = (reads(x, 4), reads(x, 4));
    a.iter_mut().for_each(|c| c.bios[0].set_token(1));
    b.iter_mut().for_each(|c| c.bios[0].set_token(2));
    other.submit(x.now, &mut b);
    x.submit_all(&mut a);
    assert!(x.wait(4).iter().all(|c| c.bios[0].token() == 1));
    std::mem::swap(&mut x.queue, &mut other);
    assert!(x.wait(4).iter().all(|c| c.bios[0].token() == 2));
}

pub(super) fn an_idle_queue_has_nothing(x: &mut Ctx) {
    let mut done = Commands::new();
    for step in [0, 1, 1_000_000_000] {
        x.queue.poll(Nanos(x.now.0 + step), &mut done);
        x.queue.submit(Nanos(x.now.0 + step), &mut Commands::new());
        assert!(done.is_empty());
        assert_eq!(x.queue.next_deadline(), None, "an idle queue has no deadline");
    }
}

pub(super) fn deadlines_lead_to_completion(x: &mut Ctx) {
    let mut list = reads(x, 8);
    x.submit_all(&mut list);
    let (mut done, mut polls) = (Commands::new(), 0);
    while let Some(at) = x.queue.next_deadline() {
        let before = done.len();
        if at > x.now {
            x.queue.poll(Nanos(at.0 - 1), &mut done);
            assert_eq!(done.len(), before, "a command finished before its deadline");
            x.now = at;
        }
        x.queue.poll(x.now, &mut done);
        polls += 1;
        assert!(done.len() > before || polls < 100, "a deadline without work");
    }
    // A real device has no deadlines: the remaining commands end by themselves.
    let rest = 8 - done.len();
    if rest > 0 {
        x.wait(rest);
    }
}

pub(super) fn an_armed_queue_wakes_or_has_a_deadline(x: &mut Ctx) {
    // Writes data to read, because a device may know the content of unwritten sectors at once.
    let (start, unit) = (x.zone().1, x.unit());
    x.write(start, unit, 1, &[Status::Ok]);
    for arm_first in [false, true] {
        let mut list = reads(x, 1);
        let before = x.bell.0.load(SeqCst);
        if arm_first {
            x.queue.arm();
        }
        x.submit_all(&mut list);
        if !arm_first {
            x.queue.arm();
        }
        let mut turns = 0u64;
        while x.bell.0.load(SeqCst) == before && x.queue.next_deadline().is_none() {
            turns += 1;
            assert!(turns < PATIENCE, "neither a wake-up nor a deadline");
            std::thread::yield_now();
        }
        x.wait(1);
    }
}
