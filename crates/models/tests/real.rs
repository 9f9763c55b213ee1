//! Clients on a disk by the caller's clock. Here that clock is moved by the test, so that the times are exact.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::task::Waker;
use zoneplug_core::disk::DiskConfig;
use zoneplug_core::zone::Limits;
use zoneplug_core::{Device, Nanos};
use zoneplug_devices::emu::timing::Profile;
use zoneplug_devices::emu::{EmuConfig, EmuDisk, EmuKind};
use zoneplug_devices::spec::Spec;
use zoneplug_models::time::trace::{Events, Fit, Reader, Survey};
use zoneplug_models::time::{Clock, Pace, Placement, RealRun, Replayed, Run, TraceClient};

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
    let mut client = TraceClient::new(Placement::Log, limits, pace, source, seen);
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

/// A drive reads whole blocks, and writes them in conventional zones: that an operation is shorter is no reason to refuse it. A
/// sequential zone has no place for a part of a block, so a trace that writes one is no trace of such a disk.
#[test]
fn parts_of_blocks_are_sent_as_whole_blocks() {
    let new = || {
        let mut spec = Spec::parse("mem,zones=8,zone-size=1M,conv=2,lba-size=4K").unwrap();
        EmuDisk::new(EmuConfig::from_spec(&mut spec).unwrap()).unwrap()
    };
    let fit = |text: &str| {
        let device = new();
        let mut fits = [Fit::new(device.geometry(), device.limits())];
        Survey::of(Reader::new(text.as_bytes(), Events::Queued, None).unwrap(), &mut fits).unwrap();
        let [fit] = fits;
        fit
    };
    let go = |text: &str, place: Placement| {
        let device = new();
        let mut trace = Reader::new(text.as_bytes(), Events::Queued, None).unwrap();
        let mut refused = Vec::new();
        let source = Box::new(move || trace.next_event());
        let seen = Box::new(|r: &Replayed| {
            refused.extend((!r.status.is_ok()).then_some((r.event.line, r.status)));
        });
        let pace = Pace { speed: None, window: Some(1) };
        let mut client = TraceClient::new(place, device.limits(), pace, source, seen);
        let run = RealRun { device: device.clone(), config: DiskConfig::default(), tags: 32 };
        run.go(&mut [&mut client], &mut Moved { now: Nanos(0), end: Nanos(u64::MAX) }).unwrap();
        let widened = client.adapted().widened;
        drop(client);
        (refused, widened)
    };
    let short = "fio version 3 iolog\n1 d read 1000 4096\n2 d read 3149823 1\n3 d write 512 512\n\
        4 d write 1044480 2048\n5 d write 2097152 4096\n6 d read 2097152 512\n";
    let f = fit(short);
    assert!(f.is_exact(), "{f:?}");
    for place in [Placement::Exact { begin: vec![] }, Placement::Log] {
        assert_eq!(go(short, place), (vec![], 5));
    }
    for (misplaced, append) in [
        (1, "8,0 0 1 0.000000001 7 Q ZA 6144 + 1 [x]\n"),
        (0, "8,0 0 1 0.000000001 7 Q ZA 6144 + 8 [x]\n"),
    ] {
        assert_eq!(fit(append).misplaced, misplaced, "{append}");
        assert_eq!(go(append, Placement::Log), (vec![], misplaced));
    }
    let write = "fio version 3 iolog\n1 d write 3145728 512\n";
    assert_eq!((fit(write).misplaced, go(write, Placement::Log)), (1, (vec![], 1)));
}
