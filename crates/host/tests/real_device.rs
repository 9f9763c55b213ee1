//! Real drives behind the device seam: the conformance suite on the drive that `ZONEPLUG_TEST_DEVICE` names as a
//! specification (`/dev/nullb0`, `/dev/ng0n1,force=1`), changes behind its back, and taking it away. Its data are
//! destroyed. Without the variables there is nothing to do: the guests of `tests/vm` set them.

#![allow(clippy::unwrap_used)]

use std::env::var;
use std::time::Instant;
use zoneplug_buf::{AlignedBuf, IoBuf};
use zoneplug_core::disk::{Disk, DiskQueue, QueueConfig};
use zoneplug_core::zone::Condition;
use zoneplug_core::{Bio, Bios, Nanos, Op, Sector, Status, ZoneNo, lost_bios};
use zoneplug_devices::conformance::{Target, checks, run_one};
use zoneplug_host::{BlockingDisk, DiskSpec, HostedDisk, open_device};

#[test]
fn a_drive_conforms() {
    let Ok(spec) = var("ZONEPLUG_TEST_DEVICE") else { return };
    let device = open_device(&spec).unwrap();
    println!("{spec}: {:?}", device.limits());
    let keeps_data = var("ZONEPLUG_TEST_FORGETS").is_err();
    let only = var("ZONEPLUG_TEST_CHECK").ok();
    let mut make = || device.clone();
    let mut target = Target::new(&mut make, keeps_data).of_a_drive();
    let mut failed = Vec::new();
    for &(name, check) in checks() {
        if only.as_ref().is_some_and(|o| o != name) {
            continue;
        }
        let begin = Instant::now();
        let run = std::panic::AssertUnwindSafe(|| run_one(&mut target, name, check));
        let passed = std::panic::catch_unwind(run).is_ok();
        println!(
            "{} {name} ({} ms)",
            if passed { "ok  " } else { "FAIL" },
            begin.elapsed().as_millis()
        );
        if !passed {
            failed.push(name);
        }
    }
    assert!(failed.is_empty(), "{spec}: {failed:?}");
}

/// Runs a shell command of the guest's script.
fn sh(command: &str) {
    let status = std::process::Command::new("sh").args(["-ec", command]).status().unwrap();
    assert!(status.success(), "{command}: {status}");
}

fn block(disk: &HostedDisk) -> u32 {
    disk.disk().limits().write_granularity_sectors
}

fn first_zone(disk: &HostedDisk) -> (Sector, u32) {
    let g = disk.disk().geometry();
    let zone = (0..g.nr_zones()).map(ZoneNo).find(|&z| !g.is_conventional(z)).unwrap();
    (g.zone_start(zone), g.zone_len_sectors(zone))
}

/// E10, R43: `ZONEPLUG_TEST_RESET` resets the first sequential zone behind our back, `ZONEPLUG_TEST_SPOIL` writes into
/// it where it must not.
/// E4.
#[test]
fn what_another_program_did_is_found_and_resynced() {
    let (Ok(spec), Ok(reset)) = (var("ZONEPLUG_TEST_DEVICE"), var("ZONEPLUG_TEST_RESET")) else {
        return;
    };
    let spec = DiskSpec::parse(&spec).unwrap();
    let disk = HostedDisk::open(spec.device, spec.config).unwrap();
    // What the client does about it is seen here, not what the layer does by itself.
    disk.set_attribute("zone_recovery", "client").unwrap();
    let mut io = BlockingDisk::new(&disk).unwrap();
    let (start, len) = first_zone(&disk);
    let unit = block(&disk);
    let write = |io: &mut BlockingDisk, i: u32| {
        let at = start.plus(u64::from(i * unit));
        io.write(at, AlignedBuf::zeroed(unit << 9)).map(|_| ()).map_err(|e| e.status)
    };
    io.manage(Op::ZoneReset, start, u64::from(len)).unwrap();
    for i in 0..4 {
        write(&mut io, i).unwrap();
    }
    // E4: another's write in the wrong place costs a kernel with plugs its write pointer; ours gets it back.
    if let Ok(spoil) = var("ZONEPLUG_TEST_SPOIL") {
        sh(&spoil);
        write(&mut io, 4).unwrap();
        io.manage(Op::ZoneReset, start, u64::from(len)).unwrap();
        for i in 0..4 {
            write(&mut io, i).unwrap();
        }
    }
    sh(&reset);
    assert_eq!(
        write(&mut io, 4),
        Err(Status::UnalignedWrite),
        "the drive has another write pointer"
    );
    assert_eq!(write(&mut io, 5), Err(Status::StaleWritePointer), "and ours is named");
    assert_eq!(write(&mut io, 0), Err(Status::StaleWritePointer));
    let found = io.resync(start, 1).unwrap();
    assert_eq!((found[0].cond, found[0].wp), (Condition::Empty, start));
    for i in 0..4 {
        write(&mut io, i).unwrap();
    }
    // A reset through us, when the other was first, is nothing special.
    sh(&reset);
    io.manage(Op::ZoneReset, start, u64::from(len)).unwrap();
    write(&mut io, 0).unwrap();
}

/// R17: `ZONEPLUG_TEST_UNPLUG` takes the drive away under load. Every BIO comes back, nothing hangs, and what comes
/// later fails.
#[test]
fn a_drive_that_goes_away_ends_everything() {
    let (Ok(spec), Ok(unplug)) = (var("ZONEPLUG_TEST_DEVICE"), var("ZONEPLUG_TEST_UNPLUG")) else {
        return;
    };
    const DEPTH: u32 = 64;
    let spec = DiskSpec::parse(&spec).unwrap();
    let begin = Instant::now();
    let mut clock = |_| Nanos(begin.elapsed().as_nanos() as u64);
    let disk = Disk::open(spec.device, spec.config, &mut clock).unwrap();
    let (g, unit) = (disk.geometry(), disk.limits().write_granularity_sectors);
    let config = QueueConfig { depth: DEPTH, tags: 32, ..QueueConfig::default() };
    let mut queue = disk.open_queue(config).unwrap();
    let sequential: Vec<ZoneNo> =
        (0..g.nr_zones()).map(ZoneNo).filter(|&z| !g.is_conventional(z)).take(4).collect();
    let one = |queue: &mut DiskQueue, bio| {
        let (mut list, mut done) = (Bios::from([bio]), Bios::new());
        while done.is_empty() {
            queue.submit(Nanos(0), &mut list);
            queue.poll(Nanos(0), &mut done);
        }
        done[0].status
    };
    for &z in &sequential {
        let len = g.zone_len_sectors(z);
        assert_eq!(one(&mut queue, Bio::new(Op::ZoneReset, g.zone_start(z), len)), Status::Ok);
    }
    // Writes in four zones, sixteen parked or in flight in each, and reads between them.
    let mut at = vec![0u32; sequential.len()];
    let mut next = |slot: u64, n: u64, buf: IoBuf| {
        let z = slot as usize % sequential.len();
        let start = g.zone_start(sequential[z]);
        let mut bio = if slot.is_multiple_of(8) || at[z] + unit > g.capacity_of(sequential[z]) {
            Bio::with_buf(Op::Read, start.plus(n % 4 * u64::from(unit)), unit, buf)
        } else {
            at[z] += unit;
            Bio::with_buf(Op::Write, start.plus(u64::from(at[z] - unit)), unit, buf)
        };
        bio.set_token(slot);
        bio
    };
    let mut list: Bios =
        (0..u64::from(DEPTH)).map(|slot| next(slot, 0, IoBuf::leaked(unit << 9))).collect();
    let (mut out, mut good, mut bad, mut n) = (0, 0u64, std::collections::BTreeMap::new(), 0);
    let start = Instant::now();
    let mut pulled: Option<std::thread::JoinHandle<()>> = None;
    let mut last_word = None;
    loop {
        let before = list.len();
        queue.submit(Nanos(0), &mut list);
        out += before - list.len();
        let mut done = Bios::new();
        queue.poll(Nanos(0), &mut done);
        out -= done.len();
        for mut bio in done {
            n += 1;
            if bio.status.is_ok() {
                good += 1;
            } else {
                *bad.entry(bio.status).or_insert(0u64) += 1;
                last_word = Some(start.elapsed());
            }
            // Load goes on until there was an error, as an application would.
            if bad.is_empty() {
                list.push_back(next(bio.token(), n, bio.take_buf()));
            }
        }
        if pulled.is_none() && good > 500 {
            let unplug = unplug.clone();
            pulled = Some(std::thread::spawn(move || sh(&unplug)));
        }
        if out == 0 && list.is_empty() && !bad.is_empty() {
            break;
        }
        assert!(
            start.elapsed().as_secs() < 60,
            "{out} BIOs do not come back: {good} good, {bad:?}"
        );
        if !bad.is_empty() {
            list.clear();
            std::thread::yield_now();
        }
    }
    pulled.expect("it was pulled").join().unwrap();
    println!("{good} good, then {bad:?}, the last after {last_word:?}");
    // What comes now fails at once, whatever it is.
    let buf = IoBuf::leaked(unit << 9);
    let z = *sequential.last().unwrap();
    let (s, len) = (g.zone_start(z), g.zone_len_sectors(z));
    assert_eq!(one(&mut queue, Bio::with_buf(Op::Read, s, unit, buf)), Status::NoDevice);
    assert_eq!(one(&mut queue, Bio::new(Op::ZoneReset, s, len)), Status::NoDevice);
    let report = Bio::with_buf(Op::ReportZones, s, 0, IoBuf::leaked(64));
    assert_eq!(one(&mut queue, report), Status::NoDevice);
    drop(queue);
    assert_eq!(lost_bios(), 0);
}
