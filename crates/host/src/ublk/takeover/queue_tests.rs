//! Tests of a queue of a device that was taken over, and of one that leaves its device to the next server.

use super::replay::{find, most_in_flight, recovery};
use crate::recovery::journal::Journal;
use crate::recovery::journal::tests::{JournalDir, about, request};
use crate::ublk::abi::{self, DevInfo};
use crate::ublk::leave::Leave;
use crate::ublk::testing::{Answer, BlockClient, LeftState, serve_from};
use crate::{BlockingDisk, HostedDisk};
use std::time::{Duration, Instant};
use zoneplug_buf::AlignedBuf;
use zoneplug_core::{Op, Sector};

const ZONES: u32 = 4;
const BLOCK: usize = 4096;

/// The data of a block. The second half differs from the first.
fn block(fill: u8) -> [u8; BLOCK] {
    std::array::from_fn(|i| if i < BLOCK / 2 { fill } else { !fill })
}

fn data(fill: u8) -> AlignedBuf {
    AlignedBuf::from_slice(&block(fill))
}

/// Requests of a block each, one after the other: the operation, a sector, and the byte that fills the data.
struct Blocks<'a> {
    left: &'a [(u8, u64, u8)],
    answers: Vec<(i32, u64)>,
    /// Whether the device is left after the last request.
    leaves: bool,
    /// Whether each request is durable when it is answered.
    fua: bool,
}

impl<'a> Blocks<'a> {
    fn new(left: &'a [(u8, u64, u8)]) -> Blocks<'a> {
        Blocks { left, answers: Vec::new(), leaves: false, fua: false }
    }
}

impl BlockClient for Blocks<'_> {
    fn next(&mut self, _: u16, data: &mut [u8]) -> Option<[u8; abi::IO_DESC_LEN]> {
        let ((op, sector, fill), left) = self.left.split_first()?;
        self.left = left;
        data.copy_from_slice(&block(*fill));
        let mut descriptor = [0; abi::IO_DESC_LEN];
        let flags = if self.fua { abi::IO_F_FUA } else { 0 };
        descriptor[..4].copy_from_slice(&(u32::from(*op) | flags).to_le_bytes());
        descriptor[4..8].copy_from_slice(&8u32.to_le_bytes());
        descriptor[8..16].copy_from_slice(&sector.to_le_bytes());
        Some(descriptor)
    }

    fn answered(&mut self, answer: Answer, _: &[u8]) {
        self.answers.push((answer.result, answer.append));
    }

    fn is_left(&self) -> bool {
        self.leaves && self.left.is_empty()
    }
}

/// The answers of the server `me`, which takes over from the server `last`.
fn serve(
    disk: &HostedDisk,
    place: &JournalDir,
    (last, me): (u64, u64),
    requests: &[(u8, u64, u8)],
) -> Vec<(i32, u64)> {
    serve_client(disk, place, (last, me), Blocks::new(requests))
}

fn serve_client(
    disk: &HostedDisk,
    place: &JournalDir,
    (last, me): (u64, u64),
    mut client: Blocks<'_>,
) -> Vec<(i32, u64)> {
    let found = find(disk, 0..ZONES).unwrap();
    let journal = Journal::open(&place.record(), about(ZONES, 1), last, me, &found).unwrap();
    let replay = recovery(disk, &found, Some(&journal), 8);
    let left = LeftState { replay: Some(replay), journal: Some(journal), ..LeftState::default() };
    serve_from(disk, 1, BLOCK, &mut client, left).unwrap();
    client.answers
}

/// U6. An append that a takeover has found belongs to its client, like one that was appended: the next takeover gives
/// its space to no other append.
#[test]
fn u6_what_a_takeover_has_found_is_no_space_for_the_next_one() {
    let (disk, place) =
        (HostedDisk::open_spec("mem,zones=4,zone-size=1M").unwrap(), JournalDir::new());
    let zones = [0; ZONES as usize];
    Journal::create(&place.record(), about(ZONES, 1), 1, zones.into_iter()).unwrap();
    let mut io = BlockingDisk::new(&disk).unwrap();
    // The first server has appended these, and is killed before it answers.
    for fill in [1, 2, 3] {
        io.append(Sector(0), data(fill)).unwrap();
    }
    let append = |fill| (abi::OP_ZONE_APPEND, 0, fill);
    // The second finds one and appends another. It is killed too.
    let answers = serve(&disk, &place, (1, 2), &[append(2), append(2)]);
    assert_eq!(answers, [(0, 8), (0, 24)]);
    // Appends that no client was told of are still found; those that a client was told of are not.
    let answers = serve(&disk, &place, (2, 3), &[append(2), append(3), append(3), append(1)]);
    assert_eq!(answers, [(0, 32), (0, 16), (0, 40), (0, 0)]);
    let answers = serve(&disk, &place, (3, 4), &[append(1), append(2), append(3)]);
    assert_eq!(answers, [(0, 48), (0, 56), (0, 64)]);
}

/// U6. A reset that failed is over: appends behind it that no client was told of are found.
#[test]
fn u6_appends_behind_a_failed_reset_are_found() {
    let spec = "mem,zones=4,zone-size=1M,fault=reset/io";
    let (disk, place) = (HostedDisk::open_spec(spec).unwrap(), JournalDir::new());
    let zones = [0; ZONES as usize];
    drop(Journal::create(&place.record(), about(ZONES, 1), 1, zones.into_iter()).unwrap());
    let append = |fill| (abi::OP_ZONE_APPEND, 0, fill);
    let requests = [append(1), (abi::OP_ZONE_RESET, 0, 0), append(2)];
    let answers = serve(&disk, &place, (1, 2), &requests);
    assert_eq!(answers, [(0, 0), (-libc::EIO, 0), (0, 8)]);
    // The server appends once more, and is killed before it answers.
    BlockingDisk::new(&disk).unwrap().append(Sector(0), data(3)).unwrap();
    let answers = serve(&disk, &place, (2, 3), &[append(3), append(3)]);
    assert_eq!(answers, [(0, 16), (0, 24)]);
}

/// U6. If a write has reached the disk in part when its server died, the next server writes the rest of the data.
#[test]
fn u6_the_rest_of_a_write_that_was_cut_has_the_rest_of_its_data() {
    let spec = "mem,zones=4,zone-size=1M,lba-size=512";
    let (disk, place) = (HostedDisk::open_spec(spec).unwrap(), JournalDir::new());
    let zones = [0; ZONES as usize];
    let journal = Journal::create(&place.record(), about(ZONES, 1), 1, zones.into_iter()).unwrap();
    journal.begin(&request(Op::Write, 0, 8));
    let mut io = BlockingDisk::new(&disk).unwrap();
    io.write(Sector(0), AlignedBuf::from_slice(&block(7)[..BLOCK / 2])).unwrap();
    let answers = serve(&disk, &place, (1, 2), &[(abi::OP_WRITE, 0, 7)]);
    assert_eq!(answers, [(BLOCK as i32, 0)]);
    let read = io.read(Sector(0), 8).unwrap();
    assert_eq!(read.as_slice()[..], block(7));
}

/// U6. The rest of a write with FUA is durable when the write is answered. The disk has no FUA, so the engine flushes, which fails.
#[test]
fn u6_the_rest_of_a_durable_write_is_durable() {
    let spec = "mem,zones=4,zone-size=1M,lba-size=512,write-cache=1,fua=0,fault=flush/io/count=all";
    for (fua, result) in [(false, BLOCK as i32), (true, -libc::EIO)] {
        let (disk, place) = (HostedDisk::open_spec(spec).unwrap(), JournalDir::new());
        let zones = [0; ZONES as usize].into_iter();
        let journal = Journal::create(&place.record(), about(ZONES, 1), 1, zones).unwrap();
        journal.begin(&request(Op::Write, 0, 8));
        let mut io = BlockingDisk::new(&disk).unwrap();
        io.write(Sector(0), AlignedBuf::from_slice(&block(7)[..BLOCK / 2])).unwrap();
        let client = Blocks { fua, ..Blocks::new(&[(abi::OP_WRITE, 0, 7)]) };
        assert_eq!(serve_client(&disk, &place, (1, 2), client), [(result, 0)], "fua {fua}");
    }
}

/// U6. The dead server may have had a request for each tag of each queue. All of their appends are looked for, even
/// if they are in one zone.
#[test]
fn u6_appends_of_all_queues_are_looked_for() {
    let info = DevInfo { nr_hw_queues: 3, queue_depth: 2, ..DevInfo::default() };
    let (disk, place) = (
        HostedDisk::open_spec("mem,zones=4,zone-size=1M,append-max=4K").unwrap(),
        JournalDir::new(),
    );
    let zones = [0; ZONES as usize];
    let journal = Journal::create(&place.record(), about(ZONES, 3), 1, zones.into_iter()).unwrap();
    let mut io = BlockingDisk::new(&disk).unwrap();
    for fill in 1..=6 {
        io.append(Sector(0), data(fill)).unwrap();
    }
    let found = find(&disk, 0..ZONES).unwrap();
    let replay = recovery(&disk, &found, Some(&journal), most_in_flight(&info));
    let appends: Vec<_> = (1..=6).rev().map(|fill| (abi::OP_ZONE_APPEND, 0, fill)).collect();
    let mut client = Blocks::new(&appends);
    let left = LeftState { replay: Some(replay), journal: Some(journal), ..LeftState::default() };
    serve_from(&disk, 1, BLOCK, &mut client, left).unwrap();
    let places: Vec<u64> = client.answers.iter().map(|(_, at)| *at).collect();
    assert_eq!(places, [40, 32, 24, 16, 8, 0]);
}

/// U6. A queue answers its other requests while a write is compared with a disk that does not answer.
#[test]
fn u6_a_queue_does_not_wait_for_a_comparison() {
    let spec = "mem,zones=4,zone-size=1M,fault=read/lost/zone=0";
    let disk = HostedDisk::open_spec(spec).unwrap();
    BlockingDisk::new(&disk).unwrap().write(Sector(0), data(1)).unwrap();
    let found = find(&disk, 0..ZONES).unwrap();
    let replay = recovery(&disk, &found, None, 8);
    const REQUESTS: [(u8, u64, u8); 3] =
        [(abi::OP_WRITE, 0, 1), (abi::OP_WRITE, 0x800, 1), (abi::OP_ZONE_APPEND, 0x1000, 1)];
    let (sent, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut client = Blocks { leaves: true, ..Blocks::new(&REQUESTS) };
        let leave = Leave::within(Duration::from_millis(50));
        let left = LeftState { replay: Some(replay), journal: None, leave };
        let served = serve_from(&disk, 3, BLOCK, &mut client, left);
        sent.send((served, client.answers)).unwrap();
    });
    let (served, answers) =
        ended.recv_timeout(Duration::from_secs(30)).expect("the queue waits for the disk");
    served.unwrap();
    assert_eq!(answers, [(BLOCK as i32, 0), (0, 0x1000)]);
}

/// U9. A queue that leaves its device does not wait for ever for a disk that does not answer. It answers the requests
/// that the disk has answered; the other requests that it has begun go to the next server.
#[test]
fn u9_a_disk_that_does_not_answer_does_not_keep_a_queue() {
    let spec = "mem,zones=4,zone-size=1M,fault=write/lost/zone=1";
    let disk = HostedDisk::open_spec(spec).unwrap();
    const REQUESTS: [(u8, u64, u8); 3] =
        [(abi::OP_WRITE, 0, 1), (abi::OP_WRITE, 0x800, 1), (abi::OP_WRITE, 0x1000, 1)];
    let patience = Duration::from_millis(50);
    let ((sent, ended), begun) = (std::sync::mpsc::channel(), Instant::now());
    std::thread::spawn(move || {
        let mut client = Blocks { leaves: true, ..Blocks::new(&REQUESTS) };
        let left = LeftState { leave: Leave::within(patience), ..LeftState::default() };
        let served = serve_from(&disk, 3, BLOCK, &mut client, left);
        sent.send((served, client.answers)).unwrap();
    });
    let (served, answers) =
        ended.recv_timeout(Duration::from_secs(30)).expect("the queue waits for the disk");
    served.unwrap();
    assert!(begun.elapsed() >= patience, "it gave up at once");
    assert_eq!(answers, [(BLOCK as i32, 0); 2]);
}
