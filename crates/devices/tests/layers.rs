//! Layers under trouble: devices that panic, that have no deadlines, that are full.

#![allow(clippy::unwrap_used, clippy::vec_box)]

#[path = "../../core/tests/common/bomb.rs"]
mod bomb;

use bomb::{Bomb, Fuse, POLL, open_survivor};
use std::sync::Arc;
use std::task::Waker;
use zoneplug_core::disk::{Disk, DiskConfig};
use zoneplug_core::zone::{ZONE_RECORD_LEN, ZoneInfo};
use zoneplug_core::{
    Bio, Bios, Command, Commands, Device, IoBuf, Nanos, Op, Queue, Sector, Status,
};
use zoneplug_devices::emu::{EmuConfig, EmuDisk};
use zoneplug_devices::stack::{JoinDisk, Po2Disk};

fn emu(spec: &str) -> Arc<EmuDisk> {
    EmuDisk::new(spec.parse::<EmuConfig>().unwrap()).unwrap()
}

fn bombed(spec: &str) -> (Disk, Fuse) {
    let (bomb, fuse) = Bomb::new(emu(spec));
    (open_survivor(Po2Disk::new(bomb).unwrap()), fuse)
}
/// One BIO, with the panic in the very poll in which the device gives it back.
fn through(spec: &str, mut bio: Box<Bio>) -> Vec<Box<Bio>> {
    let (disk, fuse) = bombed(spec);
    let mut q = disk.open_polled_queue(8, 4).unwrap();
    bio.set_token(77);
    q.submit(Nanos(10), &mut Bios::from([bio]));
    fuse.light(POLL);
    let mut done = Bios::new();
    for i in 0..10 {
        q.poll(Nanos(11 + i), &mut done);
    }
    done.into_iter().collect()
}
const NATIVE: &str = "mem,zones=6,zone-size=96K,append=native";

#[test]
fn what_a_device_gave_back_before_it_panicked_has_our_addresses() {
    let done = through(NATIVE, Bio::with_buf(Op::ZoneAppend, Sector(256), 8, IoBuf::leaked(4096)));
    assert_eq!(done.len(), 1);
    // (an honest NoDevice would be right too)
    assert!(
        !done[0].status.is_ok() || done[0].sector == Sector(256),
        "{:?} at {}",
        done[0].status,
        done[0].sector
    );
}
#[test]
fn a_crossing_read_comes_back_once_from_a_device_that_panics() {
    let done = through(NATIVE, Bio::with_buf(Op::Read, Sector(256 + 184), 16, IoBuf::leaked(8192)));
    let seen: Vec<_> = done.iter().map(|b| (b.token(), b.status, b.len_sectors)).collect();
    assert_eq!(seen, [(77, Status::Ok, 16)], "one BIO went in, and was back before the panic");
}
#[test]
fn a_report_before_a_panic_is_of_our_zones() {
    let done = through(NATIVE, Bio::with_buf(Op::ReportZones, Sector(256), 8, IoBuf::leaked(4096)));
    assert_eq!(done.len(), 1);
    if done[0].status.is_ok() {
        let mut r = [0; ZONE_RECORD_LEN];
        done[0].data().copy_to(0, &mut r);
        let z = ZoneInfo::decode(&r).unwrap();
        assert_eq!((z.start, z.len_sectors), (Sector(256), 256));
    }
}

/// Commands one by one in virtual time, as tests/join.rs drives a queue.
fn drive(q: &mut dyn Queue, list: &mut Commands, n: usize) -> Commands {
    let (mut done, mut now, mut turns) = (Commands::new(), Nanos(1), 0);
    while done.len() < n {
        q.submit(now, list);
        q.poll(now, &mut done);
        now = q.next_deadline().unwrap_or(now).max(now);
        turns += 1;
        assert!(
            turns < 100_000,
            "livelock: time stands still at {now:?}, {} of {n} back",
            done.len()
        );
    }
    done
}
fn w(at: u64) -> Box<Command> {
    Command::of(Bio::with_buf(Op::Write, Sector(at), 8, IoBuf::leaked(4096)))
}

#[test]
fn time_goes_on_while_more_waits_than_the_device_takes() {
    let disk = JoinDisk::cut(emu("mem,zones=8,zone-size=64K,latency=1ms"), 1..7).unwrap();
    let mut q = disk.open_queue(2, Waker::noop().clone()).unwrap();
    for z in 0..6 {
        drive(&mut *q, &mut Commands::from([w(z * 128)]), 1);
    }
    let all = Command::without_data(Op::ZoneResetAll, Sector(0), 0);
    drive(&mut *q, &mut Commands::from([all]), 1);
}
#[test]
fn a_reset_all_of_a_cut_with_one_tag_ends() {
    let cut = JoinDisk::cut(emu("mem,zones=8,zone-size=64K,latency=1ms"), 1..7).unwrap();
    let mut now = Nanos(0);
    let disk = Disk::open(cut, DiskConfig::default(), &mut |d| {
        now = d.unwrap_or(now).max(now);
        now
    })
    .unwrap();
    let mut q = disk.open_polled_queue(16, 1).unwrap();
    let mut done = Bios::new();
    let mut run = |bio: Box<Bio>| {
        q.submit(now, &mut Bios::from([bio]));
        let mut turns = 0;
        while q.outstanding() > 0 {
            q.poll(now, &mut done);
            now = q.next_deadline().unwrap_or(now).max(now);
            turns += 1;
            assert!(turns < 100_000, "livelock: time stands still at {now:?}");
        }
    };
    for z in 0..6 {
        run(Bio::with_buf(Op::Write, Sector(z * 128), 8, IoBuf::leaked(4096)));
    }
    run(Bio::new(Op::ZoneResetAll, Sector(0), 6 * 128));
}
#[test]
fn a_report_waits_for_a_full_device() {
    let disk = Po2Disk::new(emu("mem,zones=8,zone-size=96K,latency=1ms")).unwrap();
    let mut q = disk.open_queue(1, Waker::noop().clone()).unwrap();
    let mut r = Command::without_data(Op::ReportZones, Sector(0), 0);
    r.report_max = 1;
    drive(&mut *q, &mut Commands::from([w(0), r]), 2);
}
#[test]
fn a_full_device_has_the_deadline() {
    let disk = Po2Disk::new(emu("mem,zones=8,zone-size=96K,latency=1ms")).unwrap();
    let mut q = disk.open_queue(1, Waker::noop().clone()).unwrap();
    let mut r = Command::without_data(Op::ReportZones, Sector(0), 0);
    r.report_max = 1;
    q.submit(Nanos(0), &mut Commands::from([w(0)]));
    q.submit(Nanos(0), &mut Commands::from([r]));
    assert_eq!(q.next_deadline(), Some(Nanos(1_000_000)));
}
