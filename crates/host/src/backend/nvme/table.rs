//! Tests of one command, without a drive: each event, and every field of the command that follows it.

use super::command::{Blocks, report_bytes};
use super::exec::Nvme;
use super::sys::{URING_CMD_IO, URING_CMD_IO_VEC};
use crate::backend::drive::testing::{
    CAPACITY, Case, Show, ZONE, bytes, geometry, limits, long, node_path, pieces, ring, word,
};
use crate::backend::drive::{DriveEvent, Node, Rules};
use crate::backend::ring::Reply;
use io_uring::squeue;
use std::fs::File;
use std::sync::atomic::{AtomicBool, Ordering};
use zoneplug_core::{Flags, Op, Sector, Status};

const FUA: Flags = Flags::FUA;
const BOTH: Flags = Flags(Flags::FUA.0 | Flags::PREFLUSH.0);
/// Zones of a report in these tests.
const ZONES: u32 = 2;

impl Show for Nvme {
    fn show(entry: &squeue::Entry128, at: &dyn Fn(u64) -> String) -> String {
        let b = bytes(entry);
        // IORING_OP_URING_CMD on the registered file. (`cmd_op` lies where an offset would be.)
        assert_eq!((b[0], b[1], word(&b, 4)), (46, 1, 0));
        assert!(b[12..48].iter().all(|&x| x == 0), "{b:?}");
        let c = &b[48..];
        let (addr, len) = (long(c, 24), word(c, 36));
        let data = match word(&b, 8) {
            _ if len == 0 => {
                assert_eq!((word(&b, 8), addr), (URING_CMD_IO, 0), "no data");
                String::new()
            }
            URING_CMD_IO => format!(" [{}:{len}]", at(addr)),
            URING_CMD_IO_VEC => format!(" [{}]", pieces(addr, len, at)),
            op => panic!("operation {op:#x}"),
        };
        // Flags, cdw2, cdw3, metadata, cdw14, cdw15 and the timeout are not used.
        assert!(c[1..4].iter().chain(&c[8..24]).all(|&x| x == 0), "{c:?}");
        assert!(c[32..36].iter().chain(&c[56..]).all(|&x| x == 0), "{c:?}");
        assert_eq!(word(c, 4), 7, "the namespace");
        let (lba, cdw12, cdw13) = (long(c, 40), word(c, 48), word(c, 52));
        let moves = |what: &str| {
            assert_eq!((cdw12 & !(0xffff | 1 << 30), cdw13), (0, 0));
            let fua = if cdw12 & 1 << 30 != 0 { " fua" } else { "" };
            format!("{what} {lba}+{}{fua}{data}", (cdw12 & 0xffff) + 1)
        };
        match c[0] {
            0x00 => {
                assert_eq!((lba, cdw12, cdw13), (0, 0, 0));
                "flush".to_owned()
            }
            0x01 => moves("write"),
            0x02 => moves("read"),
            0x08 => moves("zeroes"),
            0x7d => moves("append"),
            0x79 => {
                assert_eq!(cdw12, 0);
                format!("manage {lba} {cdw13:#x}")
            }
            0x7a => format!("report {lba} {} dwords {cdw13:#x}{data}", cdw12 + 1),
            op => panic!("opcode {op:#x}"),
        }
    }
}

/// A drive whose blocks have `block` sectors.
fn drive(block: u32, write_cache: bool) -> Nvme {
    Nvme {
        file: File::open("/dev/null").unwrap(),
        sibling: None,
        node: Node::of_test(node_path(true)),
        blocks: Blocks { nsid: 7, shift: block.trailing_zeros() },
        geometry: geometry(false),
        limits: limits(block, write_cache),
        rules: Rules { address_mask: 3, length_mask: 511, boundary_mask: 0, pages: 256 },
        zero_command: true,
        report_bytes: report_bytes(ZONES),
        gone: AtomicBool::new(false),
    }
}

fn gone() -> Nvme {
    Nvme { node: Node::of_test(node_path(false)), ..drive(8, true) }
}

/// An answer with a result, as an append has.
fn landed(extra: u64) -> DriveEvent {
    DriveEvent::Reply(Reply::Ring { result: 0, extra })
}

/// Y4, A9: addresses and lengths are in blocks; the FUA bit of each write, and the flush before it.
#[test]
fn data_goes_where_it_belongs_with_the_flags_it_has() {
    for block in [1u32, 8] {
        let b = u64::from(block);
        for (cache, op, flags, flush, what, fua) in [
            (true, Op::Read, BOTH, false, "read", ""),
            (true, Op::Write, Flags::NONE, false, "write", ""),
            (true, Op::Write, FUA, false, "write", " fua"),
            (true, Op::Write, Flags::PREFLUSH, true, "write", ""),
            (true, Op::Write, BOTH, true, "write", " fua"),
            (false, Op::Write, BOTH, false, "write", ""),
            (true, Op::ZoneAppend, Flags::NONE, false, "append", ""),
            (true, Op::ZoneAppend, BOTH, true, "append", " fua"),
            (false, Op::ZoneAppend, BOTH, false, "append", ""),
        ] {
            let at = if op == Op::ZoneAppend { 2 * ZONE } else { ZONE + 3 * b };
            let d = drive(block, cache);
            let mut c = Case::new(&d, op, flags, at, &[3 * block]);
            let mut step = c.begin();
            if flush {
                assert_eq!(step, "flush", "{op:?} {flags:?}");
                step = c.then(ring(0));
            }
            let want = format!("{what} {}+3{fua} [m+0:{}]", at / b, 1536 * b);
            assert_eq!(step, want, "{op:?} {flags:?} cache {cache}");
            assert_eq!(c.then(ring(0)), "done Ok");
        }
    }
}

/// Y5: an append returns a block, which becomes a sector.
#[test]
fn an_append_is_where_the_drive_says() {
    for block in [1u32, 8] {
        let b = u64::from(block);
        let d = drive(block, true);
        for at in [ZONE, ZONE + 5 * b, ZONE + CAPACITY - b] {
            let mut c = Case::new(&d, Op::ZoneAppend, Flags::NONE, ZONE, &[block]);
            assert_eq!(c.begin(), format!("append {}+1 [m+0:{}]", ZONE / b, 512 * b));
            assert_eq!(c.then(landed(at / b)), "done Ok");
            assert_eq!(c.slot.command().sector, Sector(at));
        }
        // The result counts only for an append that succeeded: not for other commands, nor for an append that failed.
        let mut c = Case::new(&d, Op::Write, Flags::NONE, ZONE, &[block]);
        c.begin();
        assert_eq!(c.then(landed(99)), "done Ok");
        assert_eq!(c.slot.command().sector, Sector(ZONE));
        let mut c = Case::new(&d, Op::ZoneAppend, Flags::NONE, ZONE, &[block]);
        c.begin();
        assert_eq!(
            c.then(DriveEvent::Reply(Reply::Ring { result: 0x1b9, extra: 99 })),
            "done ZoneFull"
        );
        assert_eq!(c.slot.command().sector, Sector(ZONE));
    }
}

/// The BIOs of a command become pieces of one operation, in order; a piece that the kernel would split goes through a
/// copy.
#[test]
fn the_bios_of_a_command_are_pieces_of_one_operation() {
    for block in [1u32, 8] {
        let (d, bytes) = (drive(block, true), block * 512);
        let second = (block.next_multiple_of(8) + 8) * 512;
        let mut c = Case::new(&d, Op::Write, FUA, ZONE, &[block, 2 * block]);
        let want = format!(
            "write {}+3 fua [m+0:{bytes} m+{second}:{}]",
            ZONE / u64::from(block),
            bytes * 2
        );
        assert_eq!(c.begin(), want);
    }
    let mut d = drive(1, true);
    d.rules.boundary_mask = 4095;
    let mut c = Case::new(&d, Op::Read, Flags::NONE, ZONE, &[1, 2]);
    assert_eq!(c.begin(), format!("read {ZONE}+3 [own:1536]"));
    let copy = c.slot.memory.segments().as_slice()[0];
    // SAFETY: the copy that the entry names, which has room for that.
    unsafe { std::ptr::write_bytes(copy.ptr, 7, 1536) };
    assert_eq!(c.then(ring(0)), "done Ok");
    assert!(!c.is_zero(0, 512) && c.is_zero(512, 512) && !c.is_zero(8192, 1024));
}

/// Y4: zeroes, flushes and zone management each become one command.
#[test]
fn zeroes_flushes_and_management() {
    for block in [1u32, 8] {
        let (d, b) = (drive(block, true), u64::from(block));
        let mut c = Case::new(&d, Op::WriteZeroes, BOTH, ZONE, &[4 * block]);
        assert_eq!(c.begin(), "flush");
        assert_eq!(c.then(ring(0)), format!("zeroes {}+4 fua", ZONE / b));
        assert_eq!(c.then(ring(0)), "done Ok");
        let d = Nvme { zero_command: false, ..drive(block, true) };
        let mut c = Case::new(&d, Op::WriteZeroes, FUA, ZONE, &[4 * block]);
        assert_eq!(c.begin(), format!("write {}+4 fua [own:{}]", ZONE / b, 2048 * b));
        let zone = 3 * ZONE;
        for (op, action) in
            [(Op::ZoneClose, 1), (Op::ZoneFinish, 2), (Op::ZoneOpen, 3), (Op::ZoneReset, 4)]
        {
            let mut c = Case::new(&d, op, Flags::NONE, zone, &[ZONE as u32]);
            assert_eq!(c.begin(), format!("manage {} {action:#x}", zone / b));
            assert_eq!(c.then(ring(0)), "done Ok");
        }
        assert_eq!(Case::new(&d, Op::ZoneResetAll, Flags::NONE, 0, &[]).begin(), "manage 0 0x104");
        let mut c = Case::new(&d, Op::Flush, Flags::NONE, 0, &[]);
        assert_eq!(c.begin(), "flush");
        assert_eq!(c.then(ring(0)), "done Ok");
    }
    let without = drive(8, false);
    assert_eq!(Case::new(&without, Op::Flush, Flags::NONE, 0, &[]).begin(), "done Ok");
}

/// Y6: the status of each answer. A negative answer is the kernel's; a command that it cancelled may have been
/// carried out.
#[test]
fn errors() {
    let failed = |d: &Nvme, op, flags, result| {
        let mut c = Case::new(d, op, flags, if op == Op::Flush { 0 } else { ZONE }, &[8]);
        c.begin();
        c.then(ring(result))
    };
    for (result, status, without) in [
        (-libc::EINTR, Status::Timeout, Status::NoDevice),
        (-libc::ENODEV, Status::Timeout, Status::NoDevice),
        (-libc::ENXIO, Status::Timeout, Status::NoDevice),
        (-libc::EIO, Status::Io, Status::NoDevice),
        (-libc::EAGAIN, Status::Busy, Status::Busy),
        (-libc::ENOMEM, Status::Busy, Status::Busy),
        (-libc::ECANCELED, Status::Busy, Status::Busy),
        (-libc::EINVAL, Status::InvalidField, Status::InvalidField),
        (-libc::EACCES, Status::ReadOnlyDisk, Status::ReadOnlyDisk),
        (-libc::EOPNOTSUPP, Status::NotSupported, Status::NotSupported),
        (-libc::ETIMEDOUT, Status::Timeout, Status::Timeout),
        (0x1b9, Status::ZoneFull, Status::ZoneFull),
        (0x41b9, Status::ZoneFull, Status::ZoneFull),
        (0x1bc, Status::UnalignedWrite, Status::UnalignedWrite),
        (0x1bd, Status::ActiveLimit, Status::ActiveLimit),
        (0x1be, Status::OpenLimit, Status::OpenLimit),
        (0x281, Status::Medium, Status::Medium),
        // A path error; whether the device is gone depends on the node.
        (0x371, Status::Timeout, Status::NoDevice),
    ] {
        for op in [Op::Write, Op::ZoneAppend, Op::Read, Op::Flush] {
            let said = failed(&drive(8, true), op, Flags::NONE, result);
            assert_eq!(said, format!("done {status:?}"), "{op:?} {result}");
            let said = failed(&gone(), op, Flags::NONE, result);
            assert_eq!(said, format!("done {without:?}"), "{op:?} {result}, gone");
        }
        // The flush before it has failed: nothing is written.
        let said = failed(&drive(8, true), Op::Write, Flags::PREFLUSH, result);
        assert_eq!(said, format!("done {status:?}"), "preflush {result}");
    }
    let d = gone();
    failed(&d, Op::Read, Flags::NONE, -libc::EIO);
    assert!(d.gone.load(Ordering::Relaxed));
    let said = Case::new(&d, Op::Write, Flags::NONE, ZONE, &[8]).begin();
    assert_eq!(said, "done NoDevice", "nothing is sent any more");
}

#[test]
fn what_is_refused() {
    let d = drive(8, true);
    for (op, sector, len, status) in [
        (Op::Write, ZONE + 4, 16, Status::InvalidField),
        (Op::Write, ZONE, 12, Status::InvalidField),
        (Op::Write, ZONE + CAPACITY - 8, 16, Status::PastCapacity),
        (Op::ZoneAppend, ZONE + 8, 16, Status::InvalidField),
        (Op::ZoneAppend, ZONE, 264, Status::InvalidField),
        (Op::Discard, 0, 16, Status::InvalidField),
        (Op::ZoneReset, ZONE, 16, Status::InvalidField),
    ] {
        let said = Case::new(&d, op, Flags::NONE, sector, &[len]).begin();
        assert_eq!(said, format!("done {status:?}"), "{op:?} at {sector}");
    }
}

/// A descriptor of a zone (ZNS Command Set Specification), in blocks.
fn descriptor(cond: u8, start: u64, wp: u64, capacity: u64) -> Vec<u8> {
    let mut d = vec![0; 64];
    (d[0], d[1]) = (2, cond << 4);
    d[8..16].copy_from_slice(&capacity.to_le_bytes());
    d[16..24].copy_from_slice(&start.to_le_bytes());
    d[24..32].copy_from_slice(&wp.to_le_bytes());
    d
}

/// Copies a report of these zones into the command's memory.
fn report(c: &mut Case<Nvme>, zones: &[Vec<u8>]) {
    let mut bytes = vec![0; 64];
    bytes[..8].copy_from_slice(&(zones.len() as u64).to_le_bytes());
    zones.iter().for_each(|z| bytes.extend(z));
    let to = c.slot.memory.segments().as_slice()[0];
    assert!(bytes.len() <= to.len);
    // SAFETY: the memory that the entry names, which is as long as that.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to.ptr, bytes.len()) };
}

/// T4, Y3: a report is read in as many parts as needed, from the start of the zone that the command names.
#[test]
fn a_report_comes_in_parts() {
    for block in [1u32, 8] {
        let (d, b) = (drive(block, true), u64::from(block));
        let (zone, cap) = (ZONE / b, CAPACITY / b);
        let mut c = Case::new(&d, Op::ReportZones, Flags::NONE, ZONE + 8, &[]);
        c.slot.command().report_max = 9;
        assert_eq!(c.begin(), format!("report {zone} 48 dwords 0x10000 [own:192]"));
        report(&mut c, &[descriptor(2, zone, zone + 3, cap), descriptor(1, 2 * zone, 0, cap)]);
        // One zone of the disk is left, and room for more than one in the answer.
        assert_eq!(c.then(ring(0)), format!("report {} 48 dwords 0x10000 [own:192]", 3 * zone));
        report(&mut c, &[descriptor(0xe, 3 * zone, u64::MAX, cap)]);
        assert_eq!(c.then(ring(0)), "done Ok");
        let zones = &c.slot.command().report;
        let said: Vec<_> = zones.iter().map(|z| (z.start.0, z.wp.0, z.capacity_sectors)).collect();
        assert_eq!(
            said,
            [
                (ZONE, ZONE + 3 * b, CAPACITY),
                (2 * ZONE, 2 * ZONE, CAPACITY),
                (3 * ZONE, 4 * ZONE, CAPACITY)
            ]
        );
        // No more zones are returned than `report_max`.
        let mut c = Case::new(&d, Op::ReportZones, Flags::NONE, 0, &[]);
        c.slot.command().report_max = 1;
        assert_eq!(c.begin(), "report 0 32 dwords 0x10000 [own:128]");
        report(&mut c, &[descriptor(1, 0, 0, cap)]);
        assert_eq!(c.then(ring(0)), "done Ok");
        let mut c = Case::new(&d, Op::ReportZones, Flags::NONE, 0, &[]);
        assert_eq!(c.begin(), "done Ok", "none");
    }
}

/// A malformed report is an error, whatever it contains.
#[test]
fn a_report_that_is_none() {
    let (zone, cap) = (ZONE / 8, CAPACITY / 8);
    let good = descriptor(2, zone, zone + 3, cap);
    for (what, zones) in [
        ("no zones", vec![]),
        ("another zone", vec![descriptor(2, 2 * zone, 2 * zone + 3, cap)]),
        ("the same zone twice", vec![good.clone(), good]),
        ("a start between zones", vec![descriptor(2, zone + 1, zone + 3, cap)]),
        ("a write pointer before the zone", vec![descriptor(2, zone, zone - 1, cap)]),
        ("a write pointer behind the zone", vec![descriptor(4, zone, 2 * zone + 1, cap)]),
        ("a capacity beyond the zone", vec![descriptor(1, zone, zone, zone + 1)]),
        ("a capacity of 2^64 sectors", vec![descriptor(1, zone, zone, 1 << 61)]),
        ("no such condition", vec![descriptor(5, zone, zone, cap)]),
    ] {
        let d = drive(8, true);
        let mut c = Case::new(&d, Op::ReportZones, Flags::NONE, ZONE, &[]);
        c.slot.command().report_max = 2;
        c.begin();
        report(&mut c, &zones);
        assert_eq!(c.then(ring(0)), "done Io", "{what}");
    }
}
