//! Clients on a disk by the caller's clock. Here that clock is moved by the test, so that the times are exact.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::task::Waker;
use zoneplug_core::disk::DiskConfig;
use zoneplug_core::zone::Limits;
use zoneplug_core::{Device, Nanos};
use zoneplug_devices::emu::timing::Profile;
use zoneplug_devices::emu::{EmuDisk, EmuKind};
use zoneplug_sim::time::trace::{Events, Reader};
use zoneplug_sim::time::{Clock, Pace, Place, RealRun, Replayed, Run, TraceClient};

/// A clock that goes on in pauses.
struct Moved {
    now: Nanos,
    /// When the end is asked for.
    end: Nanos,
}

impl Clock for Moved {
    fn now(&mut self) -> Nanos {
        self.now
    }

    fn pause(&mut self, until: Nanos) {
        self.now = until.max(self.now.plus(Nanos(1)));
    }

    fn waker(&self) -> Waker {
        Waker::noop().clone()
    }

    fn is_asked(&mut self) -> bool {
        self.now >= self.end
    }
}

const FIO3: &str = include_str!("data/traces/fio-v3.log");

/// What came of a trace: the operations that ended, makespan, and how long anything was outstanding.
type Done = (Vec<Replayed>, Nanos, Nanos);

fn with(limits: &Limits, pace: Pace, go: impl FnOnce(&mut TraceClient<'_>)) -> Done {
    let mut trace = Reader::new(FIO3.as_bytes(), Events::Queued, None).unwrap();
    let mut all = Vec::new();
    let source = Box::new(move || trace.next_event());
    let seen = Box::new(|r: &Replayed| all.push(*r));
    let mut client = TraceClient::new(Place::Log, limits, pace, source, seen);
    go(&mut client);
    let (makespan, busy) = (client.makespan(), client.busy());
    drop(client);
    (all, makespan, busy)
}

fn drive(profile: &Profile) -> Arc<dyn Device> {
    EmuDisk::timed(profile, EmuKind::Null).unwrap()
}

fn real(profile: &Profile, pace: Pace, end: Nanos) -> Done {
    with(&profile.limits(), pace, |client| {
        let run = RealRun { device: drive(profile), config: DiskConfig::default(), tags: 32 };
        let mut clock = Moved { now: Nanos(0), end };
        run.go(&mut [client], &mut clock).unwrap();
    })
}

/// On a model whose clock is true, an operation takes as long as in virtual time, but for the work of the host.
#[test]
fn a_true_clock_gives_the_figures_of_virtual_time() {
    for (name, window) in [("zns1", Some(4)), ("zns1", None), ("smr30", Some(1)), ("smr30", None)] {
        let profile = Profile::builtin(name).unwrap();
        let pace = Pace { speed: Some(1.0), window };
        let (all, makespan, busy) = real(&profile, pace, Nanos(u64::MAX));
        let (modelled, long, _) = with(&profile.limits(), pace, |client| {
            let mut run = Run::new(profile.clone());
            (run.warm_up, run.length, run.work) = (Nanos(0), Nanos(u64::MAX >> 2), Nanos(0));
            run.go_with(&mut [client]).unwrap();
        });
        assert_eq!((all.len(), modelled.len()), (36, 36));
        assert!(all.iter().all(|r| r.status.is_ok()) && busy <= makespan);
        let times = |all: &[Replayed]| all.iter().map(|r| r.took.0).sum::<u64>() as f64;
        let (error, of) = (times(&all) / times(&modelled), makespan.0 as f64 / long.0 as f64);
        assert!(
            (0.99..1.01).contains(&error) && (0.99..1.01).contains(&of),
            "{name}: {error} {of}"
        );
    }
}

/// Once the end is asked for nothing more is sent, and what is at the disk comes back first.
#[test]
fn a_run_that_is_asked_ends_with_what_is_at_the_disk() {
    let profile = Profile::builtin("smr30").unwrap();
    let pace = Pace { speed: Some(1.0), window: None };
    let (all, makespan, busy) = real(&profile, pace, Nanos(27_000_000));
    assert!((1..36).contains(&all.len()), "{}", all.len());
    assert!(makespan > Nanos(0) && busy > Nanos(0) && busy <= makespan);
}
