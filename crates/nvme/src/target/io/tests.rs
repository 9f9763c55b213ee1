//! I/O commands against a disk that is a list of zones.

use super::*;
use crate::spec::zone::{PARTIAL_REPORT, SELECT_ALL, ZoneAction, ZoneDescriptor, ZoneReportHeader};
use crate::spec::{Sgl, SglKind};
use crate::target::testing::{NQN, mixed, nqn, target, with_data, without_data};
use proptest::prelude::*;
use std::sync::Arc;
use zoneplug_core::zone::{Condition, ZONE_RECORD_LEN, ZoneInfo, ZoneType};

const DNR: u16 = status::DNR;
const OK: IoResult = IoResult { status: Status::Ok, sector: Sector(0), zones: 0 };

/// Namespace 1 is zoned; 2 and 3 are a disk with two conventional zones.
fn namespaces() -> Arc<Namespaces> {
    let mut t = target();
    t.add_namespaces(&nqn(NQN), mixed(1)).unwrap();
    t.namespaces(&nqn(NQN)).unwrap()
}

/// A command for `nsid` that moves `bytes`.
fn command(opcode: u8, nsid: u32, bytes: u32) -> Command {
    let c = Command::new(opcode).with_nsid(nsid).with_cid(3);
    if bytes == 0 { without_data(c) } else { with_data(c, bytes) }
}

/// A command of `blocks` blocks from `lba` on, with its data.
fn transfer(opcode: u8, nsid: u32, lba: u64, blocks: u32) -> Command {
    command(opcode, nsid, blocks * 4096).with_cdw_pair(10, lba).with_cdw(12, blocks - 1)
}

fn manage(nsid: u32, lba: u64, cdw13: u32) -> Command {
    command(opcode::ZONE_MANAGEMENT_SEND, nsid, 0).with_cdw_pair(10, lba).with_cdw(13, cdw13)
}

fn report(nsid: u32, lba: u64, bytes: u32, cdw13: u32) -> Command {
    let c = command(opcode::ZONE_MANAGEMENT_RECEIVE, nsid, bytes);
    c.with_cdw_pair(10, lba).with_cdw(12, bytes / 4 - 1).with_cdw(13, cdw13)
}

fn submitted(c: &Command) -> (Task, IoRequest) {
    match Task::begin(c, &namespaces(), None) {
        (task, CommandStep::Submit(r)) => (task, r),
        (_, step) => panic!("{step:?}"),
    }
}

fn answered(step: CommandStep) -> (u16, u64, u32) {
    match step {
        CommandStep::Answer(c, send) => {
            assert_eq!(c.cid, 3);
            (c.status, c.result, send)
        }
        step => panic!("{step:?}"),
    }
}

fn refused(c: &Command) -> u16 {
    let (status, result, send) = answered(Task::begin(c, &namespaces(), None).1);
    assert_eq!((result, send), (0, 0));
    status
}

/// J2: a command becomes a BIO in the sectors of its disk.
#[test]
fn reads_and_writes_go_where_the_namespace_lies() {
    let (mut task, r) = submitted(&transfer(opcode::READ, 1, 31, 2));
    assert_eq!(
        (r.disk, r.op, r.sector, r.len_sectors, r.memory),
        (0, Op::Read, Sector(248), 16, (0, 8192))
    );
    assert_eq!(
        (task.buffer_bytes(), answered(task.next(OK, None))),
        (8192, (0, 0, 8192)),
        "across zones"
    );
    let fua = transfer(opcode::WRITE, 3, 32, 1);
    let (mut task, r) = submitted(&fua.with_cdw(12, FUA));
    assert_eq!((r.disk, r.op, r.sector, r.flags), (1, Op::Write, Sector(512 + 256), Flags::FUA));
    assert_eq!((task.buffer_bytes(), answered(task.next(OK, None))), (4096, (0, 0, 0)));
    let (_, r) = submitted(&transfer(opcode::READ, 1, 0, 1).with_cdw(12, FUA));
    assert_eq!(r.flags, Flags::NONE);
    let (_, r) = submitted(&transfer(opcode::WRITE, 2, 31, 2));
    assert_eq!((r.sector, r.len_sectors), (Sector(248), 16), "conventional zones have no boundary");
    let zeroes = command(opcode::WRITE_ZEROES, 1, 0).with_cdw_pair(10, 32).with_cdw(12, 31 | FUA);
    let (task, r) = submitted(&zeroes);
    assert_eq!(
        (r.op, r.sector, r.len_sectors, r.flags),
        (Op::WriteZeroes, Sector(256), 256, Flags::FUA)
    );
    assert_eq!((r.memory, task.buffer_bytes()), ((0, 0), 0));
    let (_, r) = submitted(&command(opcode::FLUSH, 1, 0));
    assert_eq!((r.op, r.len_sectors), (Op::Flush, 0));
}

/// Y5: the result is the block in the namespace where the data landed.
#[test]
fn an_append_says_where_its_data_landed() {
    let (mut task, r) = submitted(&transfer(opcode::ZONE_APPEND, 3, 64, 8));
    assert_eq!((r.op, r.sector, r.len_sectors), (Op::ZoneAppend, Sector(512 + 512), 64));
    let landed = IoResult { sector: Sector(512 + 512 + 40), ..OK };
    assert_eq!(answered(task.next(landed, None)), (0, 69, 0));
}

/// J2: each wrong field and the status that it gets. The disk gets no request.
#[test]
fn a_command_that_is_wrong_says_what_is() {
    let flags = |f: u8| {
        let mut c = transfer(opcode::READ, 1, 0, 1);
        c.0[1] = f;
        c
    };
    let read = |lba, blocks| transfer(opcode::READ, 1, lba, blocks);
    let write = |lba, blocks| transfer(opcode::WRITE, 1, lba, blocks);
    let append = |lba, blocks| transfer(opcode::ZONE_APPEND, 1, lba, blocks);
    let dsm = command(opcode::DATASET_MANAGEMENT, 1, 16);
    let table = [
        (command(0x04, 1, 0), status::INVALID_OPCODE),
        (command(0x05, 1, 4096), status::INVALID_OPCODE),
        (Command::property_get(0, 8).with_cid(3), status::INVALID_OPCODE),
        (flags(0x41), status::INVALID_FIELD),
        (flags(0x42), status::INVALID_FIELD),
        (flags(0x00), status::INVALID_FIELD),
        (flags(0xc0), status::INVALID_FIELD),
        (transfer(opcode::READ, 0, 0, 1), status::INVALID_NAMESPACE),
        (transfer(opcode::READ, 4, 0, 1), status::INVALID_NAMESPACE),
        (transfer(opcode::READ, u32::MAX, 0, 1), status::INVALID_NAMESPACE),
        (command(opcode::FLUSH, u32::MAX, 0), status::INVALID_NAMESPACE),
        (command(opcode::FLUSH, 1, 4), status::SGL_LENGTH),
        (read(256, 1), status::LBA_RANGE),
        (read(255, 2), status::LBA_RANGE),
        (read(u64::MAX, 2), status::LBA_RANGE),
        (read(1 << 61, 1), status::LBA_RANGE),
        (with_data(read(0, 2), 4096), status::SGL_LENGTH),
        (with_data(read(0, 2), 8196), status::SGL_LENGTH),
        // 1 MiB is the longest.
        (read(0, 256).with_cdw(12, 256), status::LBA_RANGE),
        (write(31, 2), status::ZONE_BOUNDARY),
        (with_data(write(0, 1), 512), status::SGL_LENGTH),
        (append(1, 1), status::INVALID_FIELD),
        (append(32, 9), status::INVALID_FIELD),
        (append(256, 1), status::LBA_RANGE),
        (transfer(opcode::ZONE_APPEND, 2, 0, 1), status::INVALID_OPCODE),
        (command(opcode::WRITE_ZEROES, 1, 4096), status::SGL_LENGTH),
        (command(opcode::WRITE_ZEROES, 1, 0).with_cdw_pair(10, 256), status::LBA_RANGE),
        (command(opcode::WRITE_ZEROES, 1, 0).with_cdw(12, 32), status::ZONE_BOUNDARY),
        // The list of ranges did not arrive.
        (dsm, status::SGL_LENGTH),
        (manage(2, 0, ZoneAction::Reset as u32), status::INVALID_OPCODE),
        (manage(1, 256, ZoneAction::Reset as u32), status::LBA_RANGE),
        (manage(1, u64::MAX, ZoneAction::Reset as u32), status::LBA_RANGE),
        (manage(1, 33, ZoneAction::Reset as u32), status::INVALID_FIELD),
        (manage(1, 0, 0), status::INVALID_FIELD),
        (manage(1, 0, ZoneAction::Offline as u32), status::ZONE_TRANSITION),
        (manage(1, 0, 0x10), status::INVALID_FIELD),
        (manage(1, 0, ZoneAction::Open as u32 | 1 << 9), status::INVALID_FIELD),
        (with_data(manage(1, 0, 4), 64), status::SGL_LENGTH),
        (report(2, 0, 4096, 0), status::INVALID_OPCODE),
        (report(1, 256, 4096, 0), status::LBA_RANGE),
        (report(1, 0, 4096, 1), status::INVALID_FIELD),
        (report(1, 0, 4096, 2), status::INVALID_FIELD),
        (report(1, 0, 4096, 8 << 8), status::INVALID_FIELD),
        (report(1, 0, 60, 0), status::INVALID_FIELD),
        (report(1, 0, (1 << 20) + 4, 0), status::INVALID_FIELD),
        (with_data(report(1, 0, 4096, 0), 4092), status::SGL_LENGTH),
        (with_data(report(1, 0, 4096, 0), 0).with_cdw(12, u32::MAX), status::SGL_LENGTH),
    ];
    for (i, (c, status)) in table.iter().enumerate() {
        assert_eq!(refused(c), status | DNR, "{i}: {c:?}");
    }
    // A namespace that is longer than the longest transfer.
    let g = zoneplug_core::zone::Geometry::new(8, 0x8000, 0x8000).unwrap();
    let mut t = target();
    let long = Namespace::of(2, [0; 16], &g, &zoneplug_core::zone::Limits::default()).unwrap();
    t.add_namespaces(&nqn(NQN), long).unwrap();
    let all = t.namespaces(&nqn(NQN)).unwrap();
    let status = |blocks| match Task::begin(&transfer(opcode::READ, 2, 0, blocks), &all, None).1 {
        CommandStep::Answer(c, _) => c.status,
        CommandStep::Submit(_) => 0,
    };
    assert_eq!((status(256), status(257)), (0, status::INVALID_FIELD | DNR));
}

/// J4. Only statuses after which a retry may succeed lack *do not retry*.
#[test]
fn a_status_says_whether_it_is_of_use_to_try_again() {
    let (mut task, _) = submitted(&transfer(opcode::WRITE, 1, 0, 1));
    let of = |task: &mut Task, status| answered(task.next(IoResult { status, ..OK }, None)).0;
    assert_eq!(of(&mut task, Status::NotAtWritePointer), 0x1bc | DNR);
    assert_eq!(of(&mut task, Status::OpenLimit), 0x1be | DNR);
    assert_eq!(of(&mut task, Status::Medium), 0x280 | DNR);
    assert_eq!(of(&mut task, Status::ShortTransfer), 0x004 | DNR);
    assert_eq!(of(&mut task, Status::NoDevice), status::NOT_READY | DNR);
    assert_eq!(of(&mut task, Status::Busy), status::NOT_READY);
    let (mut task, _) = submitted(&transfer(opcode::READ, 1, 0, 1));
    assert_eq!(of(&mut task, Status::Medium), 0x281 | DNR);
    assert_eq!(of(&mut task, Status::ShortTransfer), 0x004);
    for s in Status::all() {
        assert_eq!(code(Op::Write, s) == 0, s.is_ok());
        let again = matches!(s, Status::Ok | Status::Busy | Status::WouldBlock);
        assert_eq!(code(Op::Write, s) & DNR == 0, again, "{s:?}");
    }
}

/// A disk that models only the conditions of zones. Zones have 256 sectors; those before `first` are not in the
/// namespace.
struct Zones {
    first: u64,
    conds: Vec<Condition>,
    log: Vec<(Op, u64)>,
}

impl Zones {
    /// The zones of namespace 1 or 3.
    fn new(first: u64, conds: &[Condition]) -> Zones {
        Zones { first, conds: conds.to_vec(), log: Vec::new() }
    }

    fn info(&self, z: u64) -> ZoneInfo {
        let cond = self.conds[(z - self.first) as usize];
        let start = z * 256;
        ZoneInfo {
            start: Sector(start),
            len_sectors: 256,
            capacity_sectors: 192,
            wp: Sector(match cond {
                Condition::Empty => start,
                Condition::Full => start + 256,
                Condition::ReadOnly | Condition::Offline => u64::MAX,
                _ => start + 64,
            }),
            zone_type: ZoneType::SeqWriteRequired,
            cond,
        }
    }

    /// Runs a command to its end and returns its status, result and data.
    fn run(&mut self, c: &Command, all: &Namespaces) -> (u16, u64, Vec<u8>) {
        let (mut task, mut step) = Task::begin(c, all, None);
        let mut buffer = AlignedBuf::zeroed(task.buffer_bytes());
        buffer.write(0, &vec![0xee; buffer.len() as usize]);
        loop {
            match step {
                CommandStep::Answer(c, send) => {
                    return (c.status, c.result, buffer.to_vec()[..send as usize].to_vec());
                }
                CommandStep::Submit(r) => {
                    let zone = r.sector.0 / 256;
                    self.log.push((r.op, zone));
                    let mut result = OK;
                    if r.op == Op::ReportZones {
                        let (offset, bytes) = r.memory;
                        let room = u64::from(bytes) / ZONE_RECORD_LEN as u64;
                        assert!(room > 0 && offset + bytes <= task.buffer_bytes());
                        let end = (zone + room).min(self.first + self.conds.len() as u64);
                        for z in zone..end {
                            let at = offset + (z - zone) as u32 * 64;
                            buffer.write(at, &self.info(z).encode());
                        }
                        result.zones = (end - zone) as u32;
                    } else if r.op != Op::ZoneResetAll {
                        assert_eq!((r.sector.0 % 256, r.len_sectors), (0, 256));
                    }
                    step = task.next(result, Some(&mut buffer));
                }
            }
        }
    }
}

use Condition::{Closed, Empty, ExpOpen, Full, ImpOpen, Offline, ReadOnly};
const MIX: [Condition; 8] = [Empty, ImpOpen, ExpOpen, Closed, ReadOnly, Full, Offline, ImpOpen];

fn decode(report: &[u8]) -> (u64, Vec<ZoneDescriptor>) {
    let zones = report[64..].as_chunks().0.iter().map(ZoneDescriptor::decode);
    let header = ZoneReportHeader::read(report).unwrap();
    (header.nr_zones, zones.filter(|z| z.zt != 0).collect())
}

/// J7, Y3. A report contains all zones.
#[test]
fn a_report_has_all_zones() {
    let all = namespaces();
    let mut disk = Zones::new(0, &MIX);
    let (status, _, bytes) = disk.run(&report(1, 0, 4096, PARTIAL_REPORT), &all);
    let (nr, zones) = decode(&bytes);
    assert_eq!((status, nr, zones.len(), bytes.len()), (0, 8, 8, 4096));
    let states: Vec<u8> = zones.iter().map(|z| z.state()).collect();
    assert_eq!(states, [1, 2, 3, 4, 0xd, 0xe, 0xf, 2]);
    assert_eq!((zones[1].zslba, zones[1].zcap, zones[1].wp, zones[1].zone_type()), (32, 24, 40, 2));
    assert_eq!((zones[0].wp, zones[4].wp, zones[5].wp), (0, u64::MAX, u64::MAX));
    assert!(bytes[64 * 9..].iter().all(|b| *b == 0), "nothing of older data");
    // A namespace that begins behind conventional zones.
    let mut disk = Zones::new(2, &MIX[..6]);
    let (_, zones) = decode(&disk.run(&report(3, 0, 4096, 0), &all).2);
    assert_eq!((zones.len(), zones[1].zslba, zones[1].wp, disk.log[0].1), (6, 32, 40, 2));
}

/// J7: a report begins with the zone of the named block. The number of zones is that of the report if it is partial,
/// otherwise that of the matching zones.
#[test]
fn a_report_of_some_zones() {
    let all = namespaces();
    let numbers = |lba, bytes, cdw13| {
        let (status, _, report) = Zones::new(0, &MIX).run(&report(1, lba, bytes, cdw13), &all);
        assert_eq!((status, report.len() as u32), (0, bytes));
        let (nr, zones) = decode(&report);
        (nr, zones.iter().map(|z| z.zslba / 32).collect::<Vec<_>>())
    };
    assert_eq!(numbers(96 + 5, 64 + 2 * 64, PARTIAL_REPORT), (2, vec![3, 4]));
    assert_eq!(numbers(96 + 5, 64 + 2 * 64, 0), (5, vec![3, 4]));
    // A report of the header only, to learn the number of zones; and half a descriptor, which is not written.
    assert_eq!(numbers(0, 64, 0), (8, vec![]));
    assert_eq!(numbers(0, 64, PARTIAL_REPORT), (0, vec![]));
    assert_eq!(numbers(0, 64 + 100, 0), (8, vec![0]));
    let implicit = 2 << 8;
    assert_eq!(numbers(0, 4096, implicit), (2, vec![1, 7]));
    assert_eq!(numbers(0, 64 + 64, implicit), (2, vec![1]));
    assert_eq!(numbers(0, 64 + 64, implicit | PARTIAL_REPORT), (1, vec![1]));
    assert_eq!(numbers(0, 64, implicit), (2, vec![]));
    assert_eq!(numbers(32 * 2, 4096, implicit), (1, vec![7]));
    for (filter, zone) in [(1, 0), (3, 2), (4, 3), (5, 5), (6, 4), (7, 6)] {
        assert_eq!(numbers(0, 4096, filter << 8), (1, vec![zone]));
    }
}

/// A wrong report of a disk leads to an error, not to a wrong report for the host.
#[test]
fn a_report_that_is_none() {
    let (mut task, _) = submitted(&report(1, 0, 4096, 0));
    let mut buffer = AlignedBuf::zeroed(task.buffer_bytes());
    for zones in [0, 9, 8] {
        let r = IoResult { zones, ..OK };
        assert_eq!(answered(task.next(r, Some(&mut buffer))), (status::INTERNAL, 0, 0));
    }
    assert_eq!(answered(task.next(OK, None)).0, status::INTERNAL);
}

/// J8. *Select all* manages the zones whose state the action changes.
#[test]
fn all_zones_that_an_action_is_for() {
    let all = namespaces();
    let managed = |action: ZoneAction| {
        let mut disk = Zones::new(0, &MIX);
        let (status, ..) = disk.run(&manage(1, 99, action as u32 | SELECT_ALL), &all);
        assert_eq!(status, 0);
        disk.log.into_iter().filter(|(op, _)| *op != Op::ReportZones).collect::<Vec<_>>()
    };
    let each = |op, zones: &[u64]| zones.iter().map(|z| (op, *z)).collect::<Vec<_>>();
    assert_eq!(managed(ZoneAction::Close), each(Op::ZoneClose, &[1, 2, 7]));
    assert_eq!(managed(ZoneAction::Finish), each(Op::ZoneFinish, &[1, 2, 3, 7]));
    assert_eq!(managed(ZoneAction::Open), each(Op::ZoneOpen, &[3]));
    assert_eq!(managed(ZoneAction::Reset), [(Op::ZoneResetAll, 0)]);
    // One zone.
    let (_, r) = submitted(&manage(3, 32, ZoneAction::Finish as u32));
    assert_eq!((r.op, r.sector, r.len_sectors), (Op::ZoneFinish, Sector(768), 256));
}

/// J8: a shorter last zone is neither shown nor reset. The disk has more zones than are reported at a time.
#[test]
fn a_reset_of_all_zones_leaves_one_that_is_not_shown() {
    const FULL: [u64; 6] = [0, 63, 64, 127, 128, 148];
    let g =
        zoneplug_core::zone::Geometry::new(150, 256, 192).unwrap().with_last_zone(8, 8).unwrap();
    let mut t = target();
    let n = Namespace::of(4, [4; 16], &g, &zoneplug_core::zone::Limits::default()).unwrap();
    t.add_namespaces(&nqn(NQN), n).unwrap();
    let all = t.namespaces(&nqn(NQN)).unwrap();
    let conds: Vec<_> = (0..149).map(|z| if FULL.contains(&z) { Full } else { Empty }).collect();
    let mut disk = Zones::new(0, &conds);
    let reset = manage(2, 0, ZoneAction::Reset as u32 | SELECT_ALL);
    assert_eq!(disk.run(&reset, &all).0, 0);
    let resets: Vec<_> =
        disk.log.iter().filter(|(op, _)| *op == Op::ZoneReset).map(|l| l.1).collect();
    assert_eq!(resets, FULL);
    assert_eq!(disk.log.len(), FULL.len() + 3);
}

fn ranges(list: &[(u64, u32)]) -> AlignedBuf {
    let mut data = AlignedBuf::zeroed(4096);
    for (i, (lba, blocks)) in list.iter().enumerate() {
        data.write(i as u32 * 16 + 4, &blocks.to_le_bytes());
        data.write(i as u32 * 16 + 8, &lba.to_le_bytes());
    }
    data
}

/// J10. Deallocation discards blocks of conventional zones.
#[test]
fn deallocation_discards_conventional_blocks() {
    let all = namespaces();
    let deallocate = |nsid, list: &[(u64, u32)], cdw11: u32| {
        let c = command(opcode::DATASET_MANAGEMENT, nsid, 4096);
        let c = c.with_cdw(10, list.len() as u32 - 1).with_cdw(11, cdw11);
        let mut data = ranges(list);
        let (mut task, mut step) = Task::begin(&c, &all, Some(&data));
        let mut log = Vec::new();
        while let CommandStep::Submit(r) = step {
            assert_eq!((r.op, r.disk), (Op::Discard, 1));
            log.push((r.sector.0, r.len_sectors));
            // A disk need not support discard: deallocation is a hint.
            let status = if log.len() == 1 { Status::NotSupported } else { Status::Ok };
            step = task.next(IoResult { status, ..OK }, Some(&mut data));
        }
        (answered(step).0, log)
    };
    let list = [(0, 4), (8, 0), (63, 1)];
    assert_eq!(deallocate(2, &list, 4), (0, vec![(0, 32), (504, 8)]));
    assert_eq!(deallocate(2, &list, 0), (0, vec![]), "another attribute");
    assert_eq!(deallocate(3, &[(0, 4)], 4), (0, vec![]), "sequential zones");
    assert_eq!(deallocate(2, &[(0, 4), (63, 2)], 4), (status::LBA_RANGE | DNR, vec![]));
    assert_eq!(deallocate(2, &[(u64::MAX, 2)], 4), (status::LBA_RANGE | DNR, vec![]));
    // The list is shorter than the command says.
    let c = command(opcode::DATASET_MANAGEMENT, 2, 16).with_cdw(10, 1).with_cdw(11, 4);
    assert_eq!(
        answered(Task::begin(&c, &all, Some(&ranges(&[(0, 1)]))).1).0,
        status::SGL_LENGTH | DNR
    );
}

/// A namespace of more than 2^32 sectors is discarded in parts.
#[test]
fn a_range_longer_than_a_bio() {
    let g = zoneplug_core::zone::Geometry::new(100, 1 << 28, 1 << 28).unwrap();
    let g = g.with_conventional((0..50).map(zoneplug_core::ZoneNo)).unwrap();
    let mut t = target();
    let n = Namespace::of(4, [4; 16], &g, &zoneplug_core::zone::Limits::default()).unwrap();
    t.add_namespaces(&nqn(NQN), n).unwrap();
    let all = t.namespaces(&nqn(NQN)).unwrap();
    let c = command(opcode::DATASET_MANAGEMENT, 2, 16).with_cdw(11, 4);
    let mut data = ranges(&[(1, 0x3fff_ffff)]);
    let (mut task, mut step) = Task::begin(&c, &all, Some(&data));
    let mut log = Vec::new();
    while let CommandStep::Submit(r) = step {
        log.push((r.sector.0, u64::from(r.len_sectors)));
        step = task.next(OK, Some(&mut data));
    }
    let total: u64 = log.iter().map(|l| l.1).sum();
    assert_eq!((log[0].0, log[1].0, total), (8, 8 + log[0].1, 8 * 0x3fff_ffff));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// J2: for any command, requests stay within its namespace and their memory within the buffer; and every command
    /// ends.
    #[test]
    fn any_command_ends(
        opcode in prop::sample::select(vec![0u8, 1, 2, 8, 9, 0x79, 0x7a, 0x7d, 0x7f, 0x55]),
        nsid in 0u32..5,
        lba in prop_oneof![0u64..300, any::<u64>()],
        cdw12 in prop_oneof![0u32..200, any::<u32>()],
        cdw13 in prop_oneof![0u32..0x200, any::<u32>()],
        length in prop_oneof![0u32..9000, any::<u32>()],
        right_length: bool,
        results in prop::collection::vec((0u8..4, 0u32..70, any::<u64>()), 20),
    ) {
        let all = namespaces();
        let length = match opcode {
            _ if !right_length => length,
            0x7a => (cdw12.wrapping_add(1)).wrapping_mul(4),
            1 | 2 | 0x7d => ((cdw12 & 0xffff) + 1).wrapping_mul(4096),
            _ => 0,
        };
        let sgl = Sgl { address: 0, length, kind: SglKind::Transport };
        let c = Command::new(opcode).with_cid(3).with_nsid(nsid).with_sgl(sgl);
        let c = c.with_cdw_pair(10, lba).with_cdw(12, cdw12).with_cdw(13, cdw13);
        let (mut task, mut step) = Task::begin(&c, &all, None);
        prop_assert!(task.buffer_bytes() <= all.max_data() + 8192);
        let mut buffer = AlignedBuf::zeroed(task.buffer_bytes());
        for (status, zones, sector) in results {
            match step {
                CommandStep::Answer(c, send) => {
                    prop_assert!(send <= task.buffer_bytes() && c.cid == 3);
                    prop_assert!(c.status == 0 || send == 0);
                    prop_assert!(send == 0 || send == length);
                    break;
                }
                CommandStep::Submit(r) => {
                    let n = all.get(nsid).unwrap();
                    let (from, to) = (n.start().0, n.start().0 + n.blocks() * 8);
                    if !matches!(r.op, Op::Flush | Op::ZoneResetAll) {
                        prop_assert!(from <= r.sector.0 && r.sector.0 + u64::from(r.len_sectors) <= to);
                    }
                    prop_assert!(u64::from(r.memory.0) + u64::from(r.memory.1) <= u64::from(task.buffer_bytes()));
                    let status = [Status::Ok, Status::Ok, Status::Io, Status::NotSupported][usize::from(status)];
                    step = task.next(IoResult { status, sector: Sector(sector), zones }, Some(&mut buffer));
                }
            }
        }
        prop_assert!(matches!(step, CommandStep::Answer(..)));
    }
}
