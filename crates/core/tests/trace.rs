//! T3: what a subscriber sees of the plugs.
#![cfg(feature = "trace")]
#![allow(clippy::unwrap_used)]

use std::fmt::Write;
use std::sync::{Arc, Mutex};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};
use zoneplug_core::disk::{Disk, DiskConfig, DiskQueue};
use zoneplug_core::{Bio, Bios, IoBuf, Nanos, Op, Sector};
use zoneplug_devices::emu::EmuDisk;

/// Collects events as lines of text.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

struct Line(String, String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        match field.name() {
            "message" => self.0 = format!("{value:?}"),
            name => write!(self.1, " {name}={value:?}").unwrap(),
        }
    }
}

impl Subscriber for Lines {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        assert_eq!(event.metadata().target(), "zoneplug");
        let mut line = Line(String::new(), String::new());
        event.record(&mut line);
        self.0.lock().unwrap().push(line.0 + &line.1);
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

fn drive(queue: &mut DiskQueue, mut list: Bios) {
    let mut done = Bios::new();
    for now in 0.. {
        queue.submit(Nanos(now), &mut list);
        queue.poll(Nanos(now), &mut done);
        if list.is_empty() && queue.outstanding() == 0 {
            break;
        }
    }
    assert!(done.iter().all(|b| b.status.is_ok()), "{done:?}");
}

/// The events of what `list` makes of a disk.
fn events(spec: &str, list: Bios) -> Vec<String> {
    events_with(spec, DiskConfig::default(), list)
}

fn events_with(spec: &str, config: DiskConfig, list: Bios) -> Vec<String> {
    let device = EmuDisk::new(spec.parse().unwrap()).unwrap();
    let disk = Disk::open(device, config, &mut |_| Nanos(0)).unwrap();
    let mut queue = disk.open_polled_queue(16, 4).unwrap();
    let lines = Lines::default();
    tracing::subscriber::with_default(lines.clone(), || drive(&mut queue, list));
    std::mem::take(&mut *lines.0.lock().unwrap())
}

fn bio(op: Op, sector: u64, len: u32) -> Box<Bio> {
    Bio::with_buf(op, Sector(sector), len, IoBuf::leaked(len << 9))
}

/// T3.
#[test]
fn a_write_that_waits_is_seen_to_enter_its_plug_and_to_leave_it() {
    // The reads keep the writes from being one run.
    let list = [(Op::Write, 0), (Op::Read, 0), (Op::Write, 8), (Op::Read, 0), (Op::Write, 16)];
    let got = events("mem,zones=4,zone-size=64K", list.map(|(op, s)| bio(op, s, 8)).into());
    assert_eq!(
        got,
        [
            "add-to-plug zone=0 sector=8 count=8 bios=1",
            "add-to-plug zone=0 sector=16 count=8 bios=1",
            "issue-from-plug zone=0 sector=8 count=16 bios=2",
        ]
    );
}

/// T3.
#[test]
fn management_shows_its_whole_range_and_appends_where_they_landed() {
    let manage = |op, sector, len| Bio::new(op, Sector(sector), len);
    let list = [
        manage(Op::ZoneOpen, 128, 256),
        bio(Op::ZoneAppend, 128, 8),
        manage(Op::ZoneResetAll, 0, 0),
    ];
    let mut got = events("mem,zones=4,zone-size=64K", list.into());
    got.sort_unstable();
    assert_eq!(
        got,
        [
            "append-position zone=1 sector=128 count=8",
            "zone-management op=\"zone_open\" sector=128 count=256",
            "zone-management op=\"zone_reset_all\" sector=0 count=512",
        ]
    );
    let list = [bio(Op::ZoneAppend, 128, 8), bio(Op::ZoneAppend, 128, 16)];
    let mut got = events("mem,zones=4,zone-size=64K,append=native", list.into());
    got.sort_unstable();
    assert_eq!(
        got,
        ["append-position zone=1 sector=128 count=8", "append-position zone=1 sector=136 count=16"]
    );
}

/// T3.
#[test]
fn a_write_that_spans_zones_is_seen_zone_by_zone() {
    let got = events("mem,zones=4,zone-size=64K", [bio(Op::Write, 0, 256)].into());
    assert_eq!(
        got,
        [
            "add-to-plug zone=0 sector=0 count=128 bios=1",
            "add-to-plug zone=1 sector=128 count=128 bios=1",
            "issue-from-plug zone=0 sector=0 count=128 bios=1",
            "issue-from-plug zone=1 sector=128 count=128 bios=1",
        ]
    );
}

/// T3, H12.
#[test]
fn a_held_write_is_seen_to_come_and_to_enter_its_plug_or_to_expire() {
    let config = DiskConfig { order_window: Nanos(1000), ..DiskConfig::default() };
    let list = [16, 8, 0].map(|at| bio(Op::Write, at, 8));
    let got = events_with("mem,zones=4,zone-size=64K", config.clone(), list.into());
    assert_eq!(
        got,
        [
            "hold-write zone=0 sector=16 count=8",
            "hold-write zone=0 sector=8 count=8",
            "add-to-plug zone=0 sector=0 count=8 bios=1",
            "add-to-plug zone=0 sector=8 count=16 bios=2",
            "issue-from-plug zone=0 sector=0 count=24 bios=3",
        ]
    );
    let device = EmuDisk::new("mem,zones=4,zone-size=64K".parse().unwrap()).unwrap();
    let disk = Disk::open(device, config, &mut |_| Nanos(0)).unwrap();
    let mut queue = disk.open_polled_queue(16, 4).unwrap();
    let lines = Lines::default();
    tracing::subscriber::with_default(lines.clone(), || {
        queue.submit(Nanos(0), &mut [bio(Op::Write, 136, 8)].into());
        queue.poll(Nanos(1000), &mut Bios::new());
    });
    let got = std::mem::take(&mut *lines.0.lock().unwrap());
    assert_eq!(
        got,
        ["hold-write zone=1 sector=136 count=8", "expire-write zone=1 sector=136 count=8"]
    );
}
