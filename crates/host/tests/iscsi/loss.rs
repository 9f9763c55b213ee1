//! Initiators that lose their connection or their server, and send again what was not answered.

use crate::initiator::{Initiator, WRITE, cdb, options, serve_disks};
use crate::lost_writes::lose_writes;
use std::time::{Duration, Instant};
use zoneplug_host::HostedDisk;
use zoneplug_host::file::{CreateOptions, create};
use zoneplug_host::iscsi::{Disk, Iscsi, IscsiOptions};

const INITIATOR: &str = "iqn.2026-11.test:1";
const OTHER: &str = "iqn.2026-11.test:2";
const UNALIGNED: (u8, Option<(u8, u8, u8)>) = (2, Some((5, 0x21, 4)));
const GOOD: (u8, Option<(u8, u8, u8)>) = (0, None);
/// WRITE SAME (10).
const WRITE_SAME: u8 = 0x41;
/// The first block of the second zone.
const ZONE: u32 = 256;

fn pattern(blocks: usize, seed: u8) -> Vec<u8> {
    (0..blocks * 4096).map(|i| (i / 7) as u8 ^ seed).collect()
}

fn replayed(server: &Iscsi) -> u64 {
    server.counters(0).replayed
}

impl Initiator {
    /// Sends a write, and cuts the connection when the server has it.
    fn lose(mut self, server: &Iscsi, lba: u32, data: &[u8]) {
        let before = server.counters(0).writes;
        self.begin(0, &cdb(WRITE, lba, (data.len() / 4096) as u16), data.len() as u32, data);
        // There is no such unit: what the server answers next came behind the write.
        assert_eq!(self.command(7, &[0; 6], 0, &[]).unwrap().0, 2);
        assert_eq!(server.counters(0).writes, before, "the disk is slow");
    }
}

/// S7, S13. A connection is cut while a write is at the disk. The initiator logs in again and sends it again: it is on the
/// disk once. Another initiator is refused.
#[test]
fn s13_a_write_is_on_the_disk_once_although_its_connection_was_cut() {
    let slow = "delay,write=300ms@mem,zones=8,zone-size=1M";
    for threads in [1, 3] {
        let options = IscsiOptions { threads, ..options() };
        let server = serve_disks(&options, &[slow]);
        Initiator::logged_in(&server, INITIATOR).lose(&server, 0, &pattern(2, 1));
        let mut next = Initiator::logged_in(&server, INITIATOR);
        assert_eq!(next.write(0, &pattern(2, 9)), UNALIGNED, "other data");
        assert_eq!(next.write(0, &pattern(2, 1)), GOOD);
        assert_eq!((next.write(2, &pattern(1, 2)), replayed(&server)), (GOOD, 1));
        assert!(next.read(0, 3) == [pattern(2, 1), pattern(1, 2)].concat());
        let mut other = Initiator::logged_in(&server, OTHER);
        assert_eq!(other.write(0, &pattern(2, 1)), UNALIGNED, "another initiator");
    }
}

/// S7, S13. A connection that hangs is replaced by a new login (session reinstatement) while its write is at the disk.
#[test]
fn s13_a_write_is_on_the_disk_once_although_its_session_was_replaced() {
    let server = serve_disks(&options(), &["delay,write=300ms@mem,zones=8,zone-size=1M"]);
    let mut first = Initiator::logged_in(&server, INITIATOR);
    first.begin(0, &cdb(WRITE, 0, 2), 8192, &pattern(2, 1));
    // The server has it before the second login comes by another connection.
    std::thread::sleep(Duration::from_millis(100));
    let mut next = Initiator::logged_in(&server, INITIATOR);
    assert_eq!((next.write(0, &pattern(2, 1)), replayed(&server)), (GOOD, 1));
    assert!(first.receive().is_none(), "the old connection is closed");
}

/// S13. What the last server has carried out is recognised, for initiators that come back. A disk in memory has no last
/// server.
#[test]
fn s13_a_write_that_the_last_server_carried_out_is_recognised() {
    let hosted = HostedDisk::open_spec("mem,zones=8,zone-size=1M").unwrap();
    let serve = |spec: &str| {
        let disk = Disk { disk: hosted.clone(), spec: spec.parse().unwrap(), tags: None };
        Iscsi::start(&options(), vec![disk], || ()).unwrap()
    };
    let server = serve("/disk.zbd");
    let mut i = Initiator::logged_in(&server, INITIATOR);
    assert_eq!([0, 2].map(|lba| i.write(lba, &pattern(2, lba as u8))), [GOOD; 2]);
    drop(server);
    let server = serve("/disk.zbd");
    let mut i = Initiator::logged_in(&server, INITIATOR);
    assert_eq!(i.write(2, &pattern(2, 2)), GOOD);
    assert_eq!(i.write(2, &[pattern(2, 2), pattern(2, 4)].concat()), GOOD, "half of it is there");
    assert_eq!((replayed(&server), i.write(2, &pattern(2, 9))), (2, UNALIGNED));
    assert_eq!(i.write(4, &pattern(2, 4)), UNALIGNED, "this server has answered it");
    drop(server);
    let server = serve("mem");
    assert_eq!(Initiator::logged_in(&server, INITIATOR).write(0, &pattern(2, 0)), UNALIGNED);
}

/// S13. WRITE SAME is written in pieces of 1 MiB. The connection is cut while the second is at the disk: the whole command comes again,
/// and all of it is recognised.
#[test]
fn s13_all_pieces_of_a_write_same_are_recognised() {
    const BLOCKS: u16 = 384;
    let server = serve_disks(&options(), &["delay,write=300ms@mem,zones=8,zone-size=4M"]);
    let (same, block) = (cdb(WRITE_SAME, 0, BLOCKS), pattern(1, 7));
    let mut first = Initiator::logged_in(&server, INITIATOR);
    first.begin(0, &same, 4096, &block);
    while server.counters(0).writes == 0 {
        std::thread::sleep(Duration::from_millis(5));
    }
    std::thread::sleep(Duration::from_millis(50));
    drop(first);
    let mut next = Initiator::logged_in(&server, INITIATOR);
    let told = next.command(0, &same, 4096, &block).unwrap();
    assert_eq!((told.0, replayed(&server)), (0, 2), "a request for each piece: {told:?}");
    assert!(next.read(0, BLOCKS) == block.repeat(usize::from(BLOCKS)));
}

/// S13. The deadline of the disk passes for a write whose connection is cut, and the device carries it out late. Its next
/// sending waits until the device has answered.
#[test]
fn s13_a_write_that_landed_after_its_deadline_is_recognised() {
    let spec = "mem,zones=8,zone-size=1M,io_timeout=1s,fault=write/delay=1500ms/zone=0/count=1";
    let server = serve_disks(&options(), &[spec]);
    let begun = Instant::now();
    let mut first = Initiator::logged_in(&server, INITIATOR);
    first.begin(0, &cdb(WRITE, 0, 2), 8192, &pattern(2, 1));
    std::thread::sleep(Duration::from_millis(100));
    drop(first);
    let mut next = Initiator::logged_in(&server, INITIATOR);
    assert_eq!((next.write(0, &pattern(2, 1)), replayed(&server)), (GOOD, 1));
    assert!(begun.elapsed() >= Duration::from_millis(1500), "the device may still write");
    assert_eq!(next.write(2, &pattern(1, 2)), GOOD);
}

/// U11. A server that lost writes which an earlier one acknowledged says so to each initiator, once: its next flush fails.
#[test]
fn u11_each_initiator_is_told_of_a_loss_by_the_next_server() {
    let path = std::env::temp_dir().join(format!("zoneplug-iscsi-owed-{}", std::process::id()));
    let size = CreateOptions { zones: Some(8), zone_size: Some(1 << 20), ..Default::default() };
    create(&path, &size, true).unwrap();
    drop(serve_disks(&options(), &[path.to_str().unwrap()]));
    lose_writes(&path);
    let flush = cdb(0x35, 0, 0);
    for round in 0..2 {
        let server = serve_disks(&options(), &[path.to_str().unwrap()]);
        for initiator in [INITIATOR, OTHER] {
            let mut i = Initiator::logged_in(&server, initiator);
            let told = i.command(0, &flush, 0, &[]).unwrap();
            assert_eq!(told.0, if round == 0 { 2 } else { 0 }, "{initiator}, {round}: {told:?}");
            assert_eq!(i.command(0, &flush, 0, &[]).unwrap().0, 0, "once");
        }
    }
    std::fs::remove_file(&path).unwrap();
}

/// S13. Many cuts at any moment: each write is sent until it is answered with success, and the disk holds each once.
#[test]
fn s13_no_cut_doubles_or_loses_a_write() {
    let server = serve_disks(&options(), &["delay,write=2ms@mem,zones=8,zone-size=1M"]);
    let (mut lba, mut all, mut x) = (ZONE, Vec::new(), 0x9e37_79b9_u64);
    let mut i = Initiator::logged_in(&server, INITIATOR);
    for n in 0..60u8 {
        let data = pattern(1 + usize::from(n % 3), n);
        x = x.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        if n % 2 == 0 {
            // Cuts the connection a random time after the write was sent.
            let blocks = (data.len() / 4096) as u16;
            i.begin(0, &cdb(WRITE, lba, blocks), data.len() as u32, &data);
            std::thread::sleep(Duration::from_micros((x >> 40) % 5000));
            drop(i);
            i = Initiator::logged_in(&server, INITIATOR);
        }
        assert_eq!(i.write(lba, &data), GOOD, "write {n}");
        lba += (data.len() / 4096) as u32;
        all.extend(data);
    }
    assert!(i.read(ZONE, (lba - ZONE) as u16) == all);
    assert!(replayed(&server) > 0, "no answer was lost");
}
