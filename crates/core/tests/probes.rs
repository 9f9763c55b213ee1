//! T3: what a program that watches the probes sees of the plugs.
#![allow(clippy::unwrap_used)]

use zoneplug_core::disk::{Disk, DiskConfig, DiskQueue};
use zoneplug_core::{Bio, Bios, IoBuf, Nanos, Op, Sector};
use zoneplug_devices::emu::EmuDisk;
use zoneplug_probe::recorded::{self, Fired};

/// The probes of plugs, appends and zone management, as lines of text. The others show commands at the device.
fn lines(fired: Vec<Fired>) -> Vec<String> {
    let of_device = ["issue", "complete", "error", "zone_event"];
    let all = fired.into_iter().filter(|(name, _)| !of_device.contains(name));
    let line = |(name, arguments): Fired| {
        let words = arguments.iter().map(|argument| format!(" {argument}"));
        name.to_owned() + &words.collect::<String>()
    };
    all.map(line).collect()
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

/// Runs `list` on a disk, and returns what the probes tell.
fn probes(spec: &str, list: Bios) -> Vec<String> {
    probes_with(spec, DiskConfig::default(), list)
}

fn probes_with(spec: &str, config: DiskConfig, list: Bios) -> Vec<String> {
    let device = EmuDisk::new(spec.parse().unwrap()).unwrap();
    let disk = Disk::open(device, config, &mut |_| Nanos(0)).unwrap();
    let mut queue = disk.open_polled_queue(16, 4).unwrap();
    lines(recorded::during(|| drive(&mut queue, list)))
}

fn bio(op: Op, sector: u64, len: u32) -> Box<Bio> {
    Bio::with_buf(op, Sector(sector), len, IoBuf::leaked(len << 9))
}

/// T3.
#[test]
fn a_write_that_waits_is_seen_to_enter_its_plug_and_to_leave_it() {
    // The reads keep the writes from being one run.
    let list = [(Op::Write, 0), (Op::Read, 0), (Op::Write, 8), (Op::Read, 0), (Op::Write, 16)];
    let got = probes("mem,zones=4,zone-size=64K", list.map(|(op, s)| bio(op, s, 8)).into());
    assert_eq!(got, ["add_to_plug 0 8 8 1", "add_to_plug 0 16 8 1", "issue_from_plug 0 8 16 2",]);
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
    let mut got = probes("mem,zones=4,zone-size=64K", list.into());
    let mut expected = [
        "append_position 1 128 8".to_owned(),
        format!("zone_management {} 128 256", Op::ZoneOpen as u8),
        format!("zone_management {} 0 512", Op::ZoneResetAll as u8),
    ];
    got.sort_unstable();
    expected.sort_unstable();
    assert_eq!(got, expected);
    let list = [bio(Op::ZoneAppend, 128, 8), bio(Op::ZoneAppend, 128, 16)];
    let mut got = probes("mem,zones=4,zone-size=64K,append=native", list.into());
    got.sort_unstable();
    assert_eq!(got, ["append_position 1 128 8", "append_position 1 136 16"]);
}

/// T3.
#[test]
fn a_write_that_spans_zones_is_seen_zone_by_zone() {
    let got = probes("mem,zones=4,zone-size=64K", [bio(Op::Write, 0, 256)].into());
    assert_eq!(
        got,
        [
            "add_to_plug 0 0 128 1",
            "add_to_plug 1 128 128 1",
            "issue_from_plug 0 0 128 1",
            "issue_from_plug 1 128 128 1",
        ]
    );
}

/// T3, H12.
#[test]
fn a_held_write_is_seen_to_come_and_to_enter_its_plug_or_to_expire() {
    let config = DiskConfig { order_window: Nanos(1000), ..DiskConfig::default() };
    let list = [16, 8, 0].map(|at| bio(Op::Write, at, 8));
    let got = probes_with("mem,zones=4,zone-size=64K", config.clone(), list.into());
    assert_eq!(
        got,
        [
            "hold_write 0 16 8",
            "hold_write 0 8 8",
            "add_to_plug 0 0 8 1",
            "add_to_plug 0 8 16 2",
            "issue_from_plug 0 0 24 3",
        ]
    );
    let device = EmuDisk::new("mem,zones=4,zone-size=64K".parse().unwrap()).unwrap();
    let disk = Disk::open(device, config, &mut |_| Nanos(0)).unwrap();
    let mut queue = disk.open_polled_queue(16, 4).unwrap();
    let got = lines(recorded::during(|| {
        queue.submit(Nanos(0), &mut [bio(Op::Write, 136, 8)].into());
        queue.poll(Nanos(1000), &mut Bios::new());
    }));
    assert_eq!(got, ["hold_write 1 136 8", "expire_write 1 136 8"]);
}

/// T3. Each command that goes to the device comes back, under the same number.
#[test]
fn commands_are_seen_to_go_and_to_come_back() {
    let device = EmuDisk::new("mem,zones=4,zone-size=64K".parse().unwrap()).unwrap();
    let disk = Disk::open(device, DiskConfig::default(), &mut |_| Nanos(0)).unwrap();
    let mut queue = disk.open_polled_queue(16, 4).unwrap();
    let list = [(Op::Write, 0), (Op::Read, 0)].map(|(op, at)| bio(op, at, 8));
    let fired = recorded::during(|| drive(&mut queue, list.into()));
    let of = |name: &str, last: u64| {
        let all = fired.iter().filter(|(n, _)| *n == name);
        let all = all.map(|(_, a)| (a[0], a[1..].to_vec())).collect::<Vec<_>>();
        for op in [Op::Write, Op::Read] {
            assert!(
                all.iter().any(|(_, a)| *a == [op as u64, 0, 8, last]),
                "{name} {op:?}: {all:?}"
            );
        }
        all.iter().map(|(number, _)| *number).collect::<Vec<_>>()
    };
    // The last argument is the number of BIOs, and the status.
    let (mut issued, mut done) = (of("issue", 1), of("complete", 0));
    issued.sort_unstable();
    done.sort_unstable();
    assert_eq!(issued, done);
}
