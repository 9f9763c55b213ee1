//! How often the reactor looks at a queue that only another thread can get on with.

use crate::common;
use crate::common::{Bad, timeout, until};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Wake, Waker};
use std::time::{Duration, Instant};
use zoneplug_buf::IoBuf;
use zoneplug_core::{Bio, Bios, Op, Sector};
use zoneplug_host::HostedDisk;

struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// How often the reactor polls the device in a fifth of a second. A late test gives it more time: the result is for
/// each 50 ms that have passed, rounded up.
fn polls_in_50_ms(bad: &Bad) -> u64 {
    let (began, before) = (Instant::now(), bad.plan.polls.load(Ordering::SeqCst));
    std::thread::sleep(Duration::from_millis(200));
    let polls = bad.plan.polls.load(Ordering::SeqCst) - before;
    polls.div_ceil(began.elapsed().as_millis() as u64 / 50)
}

/// A client that was woken and does not come: what has finished waits for it, and the reactor cannot take it.
#[test]
fn the_reactor_sleeps_while_only_the_client_can_go_on() {
    let bad = Bad::new("mem,zones=4,zone-size=1M");
    let disk = HostedDisk::open(bad.clone(), timeout(60_000)).unwrap();
    let mut client = disk.open_client(4, 4).unwrap();
    let woken = Arc::new(Flag(AtomicBool::new(false)));
    assert!(client.arm(&Waker::from(woken.clone())));
    client.submit(&mut Bios::from([Bio::new(Op::Flush, Sector(0), 0)]));
    until("the client is woken", || woken.0.load(Ordering::SeqCst));
    let polls = polls_in_50_ms(&bad);
    assert!(polls <= 2, "{polls} polls in 50 ms");
    // The operation is not given up: the client comes after all, and so does its next operation.
    let mut done = Bios::new();
    client.poll(&mut done);
    assert_eq!(done.len(), 1);
    client.submit(&mut Bios::from([Bio::new(Op::Flush, Sector(0), 0)]));
    assert_eq!(client.wait(&mut done, 1, Some(common::LONG)), 1);
}

/// A moment that has passed, and at which nothing happened: the reactor waits at its tick and does not spin for it.
#[test]
fn the_reactor_does_not_spin_for_a_deadline_that_has_passed() {
    let bad = Bad::new("mem,zones=4,zone-size=1M");
    let disk = HostedDisk::open(bad.clone(), timeout(60_000)).unwrap();
    let mut client = disk.open_client(4, 4).unwrap();
    bad.plan.slow_reads(Duration::from_secs(50));
    bad.plan.overdue.store(true, Ordering::SeqCst);
    assert!(client.arm(Waker::noop()));
    client.submit(&mut Bios::from([Bio::with_buf(Op::Read, Sector(0), 8, IoBuf::leaked(4096))]));
    // The first rounds may be spent awake.
    std::thread::sleep(Duration::from_millis(20));
    // Where other threads have the processors, a thread that spins comes to few polls, too.
    for _ in 0..6 {
        let polls = polls_in_50_ms(&bad);
        assert!(polls <= 110, "{polls} polls in 50 ms, at a tick of 500 us");
    }
}

/// A freeze waits for a command that takes long: it sleeps between its looks.
#[test]
fn a_freeze_does_not_spin_for_the_device() {
    let bad = Bad::new("mem,zones=4,zone-size=1M");
    let disk = HostedDisk::open(bad.clone(), timeout(60_000)).unwrap();
    let mut client = disk.open_client(4, 4).unwrap();
    bad.plan.slow_reads(Duration::from_secs(1));
    client.submit(&mut Bios::from([Bio::with_buf(Op::Read, Sector(0), 8, IoBuf::leaked(4096))]));
    let freezes = std::thread::spawn(move || disk.freeze().map(drop));
    std::thread::sleep(Duration::from_millis(20));
    let polls = polls_in_50_ms(&bad);
    assert!(polls <= 110, "{polls} polls in 50 ms, at a look every 500 us");
    freezes.join().unwrap().unwrap();
}
