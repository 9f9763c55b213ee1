//! Tests of one command, without a device: each event, and every field of the operation that follows it.

use super::exec::Blk;
use crate::backend::drive::testing::{
    CAPACITY, Case, Show, ZONE, bytes, geometry, limits, long, node_path, pieces, ring, word,
    worked,
};
use crate::backend::drive::{Drive, Node, Rules};
use crate::backend::ring::{Job, Mailbox, Worker};
use io_uring::squeue;
use std::collections::VecDeque;
use std::fs::File;
use std::os::fd::FromRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;
use zoneplug_core::{Flags, Op, Status};

const FUA: Flags = Flags::FUA;
const BOTH: Flags = Flags(Flags::FUA.0 | Flags::PREFLUSH.0);
const DSYNC: u32 = libc::RWF_DSYNC as u32;
/// Errnos after which no thread reads a report of the zone for any command, and their statuses.
const SAID: [(i32, Status); 4] = [
    (libc::EAGAIN, Status::Busy),
    (libc::EINTR, Status::Busy),
    (libc::ECANCELED, Status::Busy),
    (libc::ENOMEM, Status::Busy),
];

impl Show for Blk {
    fn show(entry: &squeue::Entry, at: &dyn Fn(u64) -> String) -> String {
        let b = bytes(entry);
        // The registered file, and no other flag; no group, priority, personality or splice.
        assert_eq!((b[1], word(&b, 4)), (1, 0), "IOSQE_FIXED_FILE of file 0");
        assert_eq!((b[2], b[3]), (0, 0));
        assert!(b[40..].iter().all(|&x| x == 0), "{b:?}");
        let (offset, addr, len, flags) = (long(&b, 8), long(&b, 16), word(&b, 24), word(&b, 28));
        let one = || format!("{}:{len}", at(addr));
        // IORING_OP_FSYNC, with IORING_FSYNC_DATASYNC.
        if b[0] == 3 {
            assert_eq!((offset, addr, len, flags), (0, 0, 0, 1));
            return "fdatasync".to_owned();
        }
        let dsync = match flags {
            0 => "",
            DSYNC => " dsync",
            _ => panic!("flags {flags:#x}"),
        };
        match b[0] {
            22 => format!("read at {offset} [{}]{dsync}", one()),
            23 => format!("write at {offset} [{}]{dsync}", one()),
            1 => format!("read at {offset} [{}]{dsync}", pieces(addr, len, at)),
            2 => format!("write at {offset} [{}]{dsync}", pieces(addr, len, at)),
            op => panic!("operation {op}"),
        }
    }
}

/// A file in memory with the length of a device. It is empty for a device that has gone.
fn file(len: u64) -> File {
    // SAFETY: a name that ends with a zero; the descriptor is new.
    let file = unsafe { File::from_raw_fd(libc::memfd_create(c"blk".as_ptr(), libc::MFD_CLOEXEC)) };
    file.set_len(len).unwrap();
    file
}

/// A drive whose blocks have `block` sectors.
fn drive(block: u32, write_cache: bool) -> Blk {
    Blk {
        file: file(4 * ZONE * 512),
        node: Node::of_test(node_path(true)),
        geometry: geometry(true),
        limits: limits(block, write_cache),
        rules: Rules { address_mask: 511, length_mask: 511, boundary_mask: 0, pages: 256 },
        zero_command: true,
        gone: AtomicBool::new(false),
    }
}

/// The entry that moves the two blocks of a command with one BIO at `sector`, as text.
fn moves(what: &str, sector: u64, block: u32, dsync: &str) -> String {
    format!("{what} at {} [m+0:{}]{dsync}", sector * 512, block * 1024)
}

/// A9, U6, T2: the offset of each transfer, its flags, and the flush before it.
#[test]
fn data_goes_where_it_belongs_with_the_flags_it_has() {
    for block in [1, 8] {
        let at = ZONE + u64::from(block) * 3;
        let len = 1024 * block as i32;
        for (cache, op, flags, flush, dsync) in [
            (true, Op::Read, Flags::NONE, false, ""),
            (true, Op::Read, BOTH, false, ""),
            (true, Op::Write, Flags::NONE, false, ""),
            (true, Op::Write, FUA, false, " dsync"),
            (true, Op::Write, Flags::PREFLUSH, true, ""),
            (true, Op::Write, BOTH, true, " dsync"),
            (false, Op::Write, BOTH, false, ""),
            (false, Op::Read, BOTH, false, ""),
        ] {
            let d = drive(block, cache);
            let mut c = Case::new(&d, op, flags, at, &[2 * block]);
            let mut step = c.begin();
            if flush {
                assert_eq!(step, "fdatasync", "{op:?} {flags:?}");
                step = c.then(ring(0));
            }
            let what = if op == Op::Read { "read" } else { "write" };
            assert_eq!(step, moves(what, at, block, dsync), "{op:?} {flags:?} cache {cache}");
            assert_eq!(c.then(ring(len)), "done Ok");
        }
    }
}

/// W5: the BIOs of a command become pieces of one operation, in order; a piece that the kernel would split goes
/// through a copy.
#[test]
fn the_bios_of_a_command_are_pieces_of_one_operation() {
    for block in [1, 8] {
        let d = drive(block, true);
        let bytes = block * 512;
        let mut c = Case::new(&d, Op::Write, FUA, ZONE, &[block, 2 * block, block]);
        let second = (block.next_multiple_of(8) + 8) * 512;
        let third = second + ((2 * block).next_multiple_of(8) + 8) * 512;
        let want = format!(
            "write at {} [m+0:{bytes} m+{second}:{} m+{third}:{bytes}] dsync",
            ZONE * 512,
            bytes * 2
        );
        assert_eq!(c.begin(), want);
        assert_eq!(c.then(ring(4 * bytes as i32)), "done Ok");
    }
    let mut d = drive(1, true);
    d.rules.boundary_mask = 4095;
    let mut c = Case::new(&d, Op::Read, Flags::NONE, ZONE, &[1, 2]);
    assert_eq!(c.begin(), format!("read at {} [own:1536]", ZONE * 512));
    let copy = c.slot.memory.segments().as_slice()[0];
    // SAFETY: the copy that the entry names, which has room for that.
    unsafe { std::ptr::write_bytes(copy.ptr, 7, 1536) };
    assert_eq!(c.then(ring(1536)), "done Ok");
    assert!(!c.is_zero(0, 512) && c.is_zero(512, 512) && !c.is_zero(8192, 1024));
}

/// A short transfer never counts as complete, and its rest is not sent again. A device that has gone
/// is reported as such.
#[test]
fn a_short_transfer_ends_the_command() {
    for block in [1, 8] {
        for op in [Op::Read, Op::Write] {
            let d = drive(block, true);
            for short in [0, 512, 1024 * block as i32 - 512] {
                let mut c = Case::new(&d, op, Flags::NONE, ZONE, &[2 * block]);
                c.begin();
                assert_eq!(c.then(ring(short)), "done ShortTransfer", "{op:?} {short}");
            }
            let d = Blk { file: file(0), ..drive(block, true) };
            let mut c = Case::new(&d, op, Flags::NONE, ZONE, &[2 * block]);
            c.begin();
            assert_eq!(c.then(ring(0)), "done NoDevice");
            assert!(d.gone.load(Ordering::Relaxed));
            let mut c = Case::new(&d, op, Flags::NONE, ZONE, &[2 * block]);
            assert_eq!(c.begin(), "done NoDevice", "nothing is sent any more");
        }
    }
}

/// E4, E8: a thread reads a report of the zone after every write that failed, but after a read only if the errno is
/// EIO.
#[test]
fn errors_of_data() {
    let why = |op: &str, errno| {
        format!("thread Why {{ op: {op}, sector: Sector(4096), len: 16, errno: {errno} }}")
    };
    let failed = |d: &Blk, op, errno: i32| {
        let mut c = Case::new(d, op, Flags::NONE, ZONE, &[16]);
        c.begin();
        c.then(ring(-errno))
    };
    let d = drive(8, true);
    for op in [Op::Read, Op::Write] {
        for (errno, status) in SAID {
            assert_eq!(failed(&d, op, errno), format!("done {status:?}"), "{op:?} {errno}");
        }
        assert_eq!(failed(&d, op, libc::EIO), why(&format!("{op:?}"), libc::EIO));
        assert_eq!(failed(&d, op, libc::EREMOTEIO), why(&format!("{op:?}"), libc::EREMOTEIO));
    }
    for (errno, status) in [
        (libc::ENODATA, Status::Medium),
        (libc::EILSEQ, Status::Medium),
        (libc::ETIMEDOUT, Status::Timeout),
        (libc::EOPNOTSUPP, Status::NotSupported),
        (libc::EINVAL, Status::InvalidField),
        (libc::ENOLINK, Status::NoDevice),
    ] {
        assert_eq!(failed(&d, Op::Read, errno), format!("done {status:?}"));
        assert_eq!(failed(&d, Op::Write, errno), why("Write", errno));
    }
    for errno in [libc::ENOSPC, libc::ETOOMANYREFS, libc::EOVERFLOW] {
        assert_eq!(failed(&d, Op::Write, errno), why("Write", errno));
    }
    let gone = Blk { node: Node::of_test(node_path(false)), ..drive(8, true) };
    for errno in [libc::EIO, libc::ENOSPC, libc::EINVAL] {
        gone.gone.store(false, Ordering::Relaxed);
        assert_eq!(failed(&gone, Op::Write, errno), "done NoDevice");
    }
}

/// A write at the write pointer that failed without writing anything is sent again unchanged, once (E4).
#[test]
fn a_write_that_the_kernel_lost_the_pointer_of_is_sent_again_once() {
    for (flags, dsync) in [(Flags::NONE, ""), (BOTH, " dsync")] {
        let d = drive(8, true);
        for second in [Status::WouldBlock, Status::UnalignedWrite] {
            let mut c = Case::new(&d, Op::Write, flags, ZONE, &[16]);
            if c.begin() == "fdatasync" {
                c.then(ring(0));
            }
            let why = "thread Why { op: Write, sector: Sector(4096), len: 16, errno: 5 }";
            assert_eq!(c.then(ring(-libc::EIO)), why);
            assert_eq!(c.then(worked(Status::WouldBlock)), moves("write", ZONE, 8, dsync));
            assert_eq!(c.then(ring(-libc::EIO)), why);
            let end = if second == Status::WouldBlock { Status::Io } else { second };
            assert_eq!(c.then(worked(second)), format!("done {end:?}"));
        }
        let mut c = Case::new(&d, Op::Write, Flags::NONE, ZONE, &[16]);
        c.begin();
        c.then(ring(-libc::EIO));
        c.then(worked(Status::WouldBlock));
        assert_eq!(c.then(ring(8192)), "done Ok");
    }
}

/// A flush that fails ends the command: the write or the flush after it is not sent.
#[test]
fn flushes_and_their_errors() {
    let d = drive(8, true);
    let [flush, before, after] = [
        (Op::Flush, Flags::NONE, vec![]),
        (Op::Write, Flags::PREFLUSH, vec![16]),
        (Op::WriteZeroes, FUA, vec![16]),
    ]
    .map(|(op, flags, parts)| {
        move |d: &Blk, result| {
            let mut c = Case::new(d, op, flags, if op == Op::Flush { 0 } else { ZONE }, &parts);
            if op == Op::WriteZeroes {
                c.begin();
                assert_eq!(c.then(worked(Status::Ok)), "fdatasync");
            } else {
                assert_eq!(c.begin(), "fdatasync");
            }
            c.then(ring(result))
        }
    });
    for (errno, status) in [(libc::EIO, Status::Io), (libc::ENOSPC, Status::NoSpace)] {
        for flush in [&flush as &dyn Fn(&Blk, i32) -> String, &before, &after] {
            assert_eq!(flush(&d, -errno), format!("done {status:?}"));
        }
    }
    assert_eq!(flush(&d, 0), "done Ok");
    assert_eq!(after(&d, 0), "done Ok");
    assert_eq!(before(&d, 0), moves("write", ZONE, 8, ""));
    let gone = Blk { file: file(0), ..drive(8, true) };
    assert_eq!(flush(&gone, -libc::EIO), "done NoDevice");
    let without = drive(8, false);
    assert_eq!(Case::new(&without, Op::Flush, Flags::NONE, 0, &[]).begin(), "done Ok");
}

/// Zeroes are written with the drive's command, which has no FUA, or as data.
#[test]
fn zeroes() {
    for block in [1, 8] {
        let d = drive(block, true);
        let zero = format!("thread Zero {{ sector: Sector(4096), len: {} }}", 2 * block);
        let mut c = Case::new(&d, Op::WriteZeroes, Flags::NONE, ZONE, &[2 * block]);
        assert_eq!(c.begin(), zero);
        assert_eq!(c.then(worked(Status::Ok)), "done Ok");
        let mut c = Case::new(&d, Op::WriteZeroes, BOTH, ZONE, &[2 * block]);
        assert_eq!(c.begin(), "fdatasync");
        assert_eq!(c.then(ring(0)), zero);
        assert_eq!(c.then(worked(Status::Ok)), "fdatasync");
        assert_eq!(c.then(ring(0)), "done Ok");
        let mut c = Case::new(&d, Op::WriteZeroes, FUA, ZONE, &[2 * block]);
        c.begin();
        assert_eq!(c.then(worked(Status::ZoneFull)), "done ZoneFull", "no flush after an error");
        let d = drive(block, false);
        let mut c = Case::new(&d, Op::WriteZeroes, FUA, ZONE, &[2 * block]);
        assert_eq!(c.begin(), zero);
        assert_eq!(c.then(worked(Status::Ok)), "done Ok");
        // As data, zeroes have the FUA of a write.
        let d = Blk { zero_command: false, ..drive(block, true) };
        let mut c = Case::new(&d, Op::WriteZeroes, FUA, ZONE, &[2 * block]);
        assert_eq!(c.begin(), format!("write at {} [own:{}] dsync", ZONE * 512, block * 1024));
        assert_eq!(c.then(ring(1024 * block as i32)), "done Ok");
    }
}

/// The work that threads are given; M5: a reset of all zones covers the whole disk.
#[test]
fn what_threads_are_given() {
    let d = drive(8, true);
    let at = 2 * ZONE;
    for op in [Op::ZoneOpen, Op::ZoneClose, Op::ZoneFinish, Op::ZoneReset] {
        let mut c = Case::new(&d, op, Flags::NONE, at, &[ZONE as u32]);
        let want = format!("thread Manage {{ op: {op:?}, sector: Sector({at}), len: {ZONE} }}");
        assert_eq!(c.begin(), want);
        assert_eq!(c.then(worked(Status::Ok)), "done Ok");
    }
    let mut c = Case::new(&d, Op::ZoneResetAll, Flags::NONE, 0, &[]);
    let want =
        format!("thread Manage {{ op: ZoneResetAll, sector: Sector(0), len: {} }}", 4 * ZONE);
    assert_eq!(c.begin(), want);
    let mut c = Case::new(&d, Op::Discard, Flags::NONE, 8, &[16]);
    assert_eq!(c.begin(), "thread Discard { sector: Sector(8), len: 16 }");
    let mut c = Case::new(&d, Op::ReportZones, Flags::NONE, at + 8, &[]);
    c.slot.command().report_max = 3;
    assert_eq!(c.begin(), format!("thread Report {{ sector: Sector({}), max: 3 }}", at + 8));
    assert_eq!(c.then(worked(Status::Ok)), "done Ok");
}

/// A command that is refused here changes nothing and is not sent.
#[test]
fn what_is_refused() {
    let d = drive(8, true);
    for (op, sector, len, status) in [
        (Op::ZoneAppend, ZONE, 16, Status::NotSupported),
        (Op::Write, ZONE + 4, 16, Status::InvalidField),
        (Op::Write, ZONE, 12, Status::InvalidField),
        (Op::Write, ZONE + CAPACITY - 8, 16, Status::PastCapacity),
        (Op::Read, 4 * ZONE, 16, Status::InvalidField),
        (Op::Discard, ZONE, 16, Status::InvalidField),
        (Op::ZoneReset, ZONE, 16, Status::InvalidField),
    ] {
        let said = Case::new(&d, op, Flags::NONE, sector, &[len]).begin();
        assert_eq!(said, format!("done {status:?}"), "{op:?} at {sector}");
    }
}

/// A thread on a file that is not a zoned device reports the errno of its call.
#[test]
fn threads_answer_with_the_errno_of_their_call() {
    let d = drive(8, true);
    for (op, sector, parts) in [
        (Op::ZoneReset, ZONE, vec![ZONE as u32]),
        (Op::Discard, 8, vec![16]),
        (Op::ReportZones, ZONE, vec![]),
    ] {
        let mut c = Case::new(&d, op, Flags::NONE, sector, &parts);
        c.slot.command().report_max = 1;
        let crate::backend::drive::DriveStep::Work(work) =
            d.step(&mut c.slot, crate::backend::drive::DriveEvent::Begin)
        else {
            panic!("{op:?} is a thread's")
        };
        let mailbox = Mailbox::new(Waker::noop().clone());
        d.run(vec![Job { work, mailbox: mailbox.clone(), slot: 9 }]);
        let mut answers = VecDeque::new();
        mailbox.take(&mut answers);
        assert_eq!((answers[0].0, answers[0].1.status), (9, Status::NotSupported), "{op:?}");
    }
}
