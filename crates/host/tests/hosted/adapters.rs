//! What the author of a database asks of the adapters: a failed operation gives its buffer back, bytes go in as slices,
//! many operations are under way without a future, and the blocking and the asynchronous adapter can do the same.

use crate::common::block_on;
use std::io::IoSlice;
use std::os::fd::{AsFd, AsRawFd};
use std::task::Waker;
use std::time::{Duration, Instant};
use zoneplug_buf::AlignedBuf;
use zoneplug_core::zone::Condition;
use zoneplug_core::{Op, Sector, Status, ZoneNo};
use zoneplug_host::{AsyncDisk, Batch, BlockingDisk, HostedDisk, IoError, WakeFd};

const ZONE: u64 = 2048;

fn open(more: &str) -> HostedDisk {
    HostedDisk::open_spec(&format!("mem,zones=4,zone-size=1M{more}")).unwrap()
}

fn block(byte: u8) -> AlignedBuf {
    AlignedBuf::from_slice(&[byte; 4096])
}

/// The buffer of an error is the one that went in, not one like it.
#[track_caller]
fn given_back(e: IoError, status: Status, byte: u8, at: *const u8) {
    assert_eq!(e.status, status);
    let buf = e.into_buf().unwrap();
    assert_eq!((buf.as_slice(), buf.as_slice().as_ptr()), (&[byte; 4096][..], at));
}

#[test]
fn a_failed_operation_gives_its_buffer_back() {
    let disk = open("");
    let mut io = BlockingDisk::new(&disk).unwrap();
    let other = AsyncDisk::new(&disk, 4).unwrap();
    let mut batch = Batch::new(&disk, 4).unwrap();
    let wrong = Sector(800);
    for byte in 1..4 {
        let buf = block(byte);
        let at = buf.as_slice().as_ptr();
        given_back(io.write(wrong, buf).unwrap_err(), Status::NotAtWritePointer, byte, at);
        let buf = block(byte);
        let at = buf.as_slice().as_ptr();
        let e = block_on(other.append(wrong, buf)).unwrap_err();
        given_back(e, Status::NotZoneStart, byte, at);
        let buf = block(byte);
        let at = buf.as_slice().as_ptr();
        let id = batch.write(wrong, buf);
        let one = batch.wait_any(None).unwrap();
        assert_eq!((one.id, one.op), (id, Op::Write));
        given_back(one.result.unwrap_err(), Status::NotAtWritePointer, byte, at);
    }
    // Refused before anything was sent.
    let e = io.append(Sector(0), AlignedBuf::from_slice(b"no block")).unwrap_err();
    assert_eq!(e.into_buf().unwrap().as_slice(), b"no block");
    let e = block_on(other.append(Sector(0), AlignedBuf::from_slice(b"no block"))).unwrap_err();
    assert_eq!(e.into_buf().unwrap().as_slice(), b"no block");
}

#[test]
fn a_buffer_that_the_device_may_still_use_is_not_given_back() {
    let disk = open(",timeout=20ms,fault=write/lost");
    let mut io = BlockingDisk::new(&disk).unwrap();
    let e = io.write(Sector(0), block(1)).unwrap_err();
    assert_eq!(e.status, Status::Timeout);
    assert!(e.into_buf().is_none());
    assert_eq!((disk.withheld().buffers, disk.withheld().bytes), (1, 4096));

    // The adapter's own timeout: the command is at the device.
    let disk = open(",fault=write/delay=300ms");
    let mut io = BlockingDisk::new(&disk).unwrap();
    io.set_timeout(Some(Duration::from_millis(10)));
    let e = io.write(Sector(0), block(1)).unwrap_err();
    assert_eq!(e.status, Status::Timeout);
    assert!(e.into_buf().is_none());

    // Not even sent: a frozen disk has not seen the buffer.
    let disk = open("");
    let mut io = BlockingDisk::new(&disk).unwrap();
    io.set_timeout(Some(Duration::from_millis(10)));
    let frozen = disk.freeze().unwrap();
    given_back_after(io.write(Sector(0), block(9)).unwrap_err());
    drop(frozen);
    io.set_timeout(None);
    io.write(Sector(0), block(9)).unwrap();
}

fn given_back_after(e: IoError) {
    assert_eq!(e.status, Status::Timeout);
    assert_eq!(e.into_buf().unwrap().as_slice(), [9; 4096]);
}

#[test]
fn bytes_go_in_and_out_as_slices() {
    let disk = open("");
    let mut io = BlockingDisk::new(&disk).unwrap();
    let other = AsyncDisk::new(&disk, 4).unwrap();
    let zone = Sector(ZONE);
    assert_eq!(io.append_from(zone, &[1; 4096]).unwrap(), zone);
    assert_eq!(block_on(other.append_from(zone, &[2; 4096])).unwrap(), zone.plus(8));
    io.write_from(zone.plus(16), &[3; 4096]).unwrap();
    block_on(other.write_from(zone.plus(24), &[4; 4096])).unwrap();
    let (a, b) = ([5; 4000], [6; 96]);
    let pieces = [IoSlice::new(&a), IoSlice::new(&b)];
    assert_eq!(io.append_vectored(zone, &pieces).unwrap(), zone.plus(32));
    assert_eq!(block_on(other.append_vectored(zone, &pieces)).unwrap(), zone.plus(40));
    io.write_vectored(zone.plus(48), &pieces).unwrap();
    block_on(other.write_vectored(zone.plus(56), &pieces)).unwrap();

    let mut all = [0; 8 * 4096];
    io.read_into(zone, &mut all).unwrap();
    let mut same = [0; 8 * 4096];
    block_on(other.read_into(zone, &mut same)).unwrap();
    assert_eq!(all, same);
    for (i, block) in all.chunks(4096).enumerate() {
        match i {
            0..4 => assert_eq!(block, [i as u8 + 1; 4096]),
            _ => assert_eq!((&block[..4000], &block[4000..]), (&a[..], &b[..])),
        }
    }
    // What fails changes nothing.
    let mut bytes = [7; 4096];
    assert_eq!(io.read_into(Sector(4 * ZONE), &mut bytes).unwrap_err().status, Status::OutOfRange);
    assert_eq!(io.read_into(zone, &mut bytes[..100]).unwrap_err().status, Status::Unaligned);
    assert_eq!(bytes, [7; 4096]);
    assert_eq!(io.append_from(zone, b"no block").unwrap_err().status, Status::Unaligned);
}

#[test]
fn both_adapters_manage_and_report_zones() {
    let disk = open("");
    let mut io = BlockingDisk::new(&disk).unwrap();
    let other = AsyncDisk::new(&disk, 4).unwrap();
    let at = |n| Sector(n * ZONE);
    let cond = |io: &mut BlockingDisk, n| io.zone(ZoneNo(n)).unwrap().cond;

    io.open_zones(at(0), 2 * ZONE).unwrap();
    assert_eq!([cond(&mut io, 0), cond(&mut io, 1)], [Condition::ExpOpen; 2]);
    block_on(other.close_zones(at(0), ZONE)).unwrap();
    assert_eq!(cond(&mut io, 0), Condition::Empty, "closed without data");
    block_on(other.open_zones(at(2), ZONE)).unwrap();
    io.append_from(at(2), &[0; 4096]).unwrap();
    io.close_zones(at(2), ZONE).unwrap();
    assert_eq!(block_on(other.zone(ZoneNo(2))).unwrap().cond, Condition::Closed);
    block_on(other.finish(at(3), ZONE)).unwrap();
    io.finish(at(1), ZONE).unwrap();
    assert_eq!([cond(&mut io, 1), cond(&mut io, 3)], [Condition::Full; 2]);
    block_on(other.reset(at(1), ZONE)).unwrap();
    io.reset(at(3), ZONE).unwrap();
    assert_eq!([cond(&mut io, 1), cond(&mut io, 3)], [Condition::Empty; 2]);

    assert_eq!(io.report(at(0), 99).unwrap(), block_on(other.report(at(0), 99)).unwrap());
    assert_eq!(io.resync(at(1), 2).unwrap(), block_on(other.resync(at(1), 2)).unwrap());
    assert_eq!(io.zone(ZoneNo(4)).unwrap_err().status, Status::OutOfRange);
    assert_eq!(block_on(other.zone(ZoneNo(4))).unwrap_err().status, Status::OutOfRange);
    assert_eq!((io.geometry(), other.geometry()), (disk.geometry(), disk.geometry()));

    // A length that no command can have, as a length of a zone may be.
    let long = 1 << 40;
    assert_eq!(io.reset(at(0), long).unwrap_err().status, Status::OutOfRange);
    assert_eq!(block_on(other.read(at(0), long)).unwrap_err().status, Status::OutOfRange);
    assert_eq!(io.manage(Op::Read, at(0), 8).unwrap_err().status, Status::NotSupported);
}

#[test]
fn a_batch_returns_each_operation_once_in_any_order() {
    let disk = open(",fault=read/delay=30ms");
    let mut io = BlockingDisk::new(&disk).unwrap();
    io.append_from(Sector(0), &[1; 8192]).unwrap();

    let mut batch = Batch::new(&disk, 8).unwrap();
    assert!(batch.wait_any(None).is_none(), "nothing is outstanding");
    let slow = batch.read(Sector(0), 8);
    let flush = batch.flush();
    let full = batch.manage(Op::ZoneFinish, Sector(2 * ZONE), ZONE);
    let wrong = batch.manage(Op::Write, Sector(0), 8);
    assert_eq!(batch.outstanding(), 4);
    let mut ends = Vec::new();
    while let Some(one) = batch.wait_any(None) {
        ends.push((one.id, one.result.map(|d| d.buf.map(|b| b.to_vec())).map_err(|e| e.status)));
    }
    assert_eq!(ends.pop().unwrap(), (slow, Ok(Some(vec![1; 4096]))), "the device delays it");
    ends.sort_by_key(|(id, _)| *id);
    assert_eq!(ends, [(flush, Ok(None)), (full, Ok(None)), (wrong, Err(Status::NotSupported))]);
    assert_eq!(batch.outstanding(), 0);
}

#[test]
fn a_batch_holds_more_than_its_depth_and_keeps_their_order() {
    let disk = open("");
    let mut batch = Batch::new(&disk, 4).unwrap();
    for n in 0..200u64 {
        batch.write(Sector(n * 8), block(n as u8));
    }
    let mut nr = 0;
    while let Some(one) = batch.wait_any(Some(Duration::from_secs(10))) {
        let done = one.result.unwrap();
        assert_eq!(done.buf.unwrap().as_slice()[0], (done.sector.0 / 8) as u8);
        nr += 1;
    }
    assert_eq!((nr, batch.outstanding()), (200, 0));
}

#[test]
fn a_batch_waits_no_longer_than_it_may_and_goes_on() {
    let disk = open(",fault=read/delay=200ms");
    let mut batch = Batch::new(&disk, 4).unwrap();
    batch.read(Sector(0), 8);
    let begin = Instant::now();
    assert!(batch.wait_any(Some(Duration::from_millis(10))).is_none());
    assert!(batch.wait_any(Some(Duration::ZERO)).is_none());
    assert!(begin.elapsed() < Duration::from_millis(190), "{:?}", begin.elapsed());
    assert_eq!(batch.outstanding(), 1);
    assert!(batch.wait_any(None).unwrap().result.is_ok());

    let frozen = disk.freeze().unwrap();
    batch.append(Sector(0), block(1));
    assert!(batch.wait_any(Some(Duration::from_millis(10))).is_none());
    drop(frozen);
    assert_eq!(batch.wait_any(None).unwrap().result.unwrap().sector, Sector(0));
}

/// A program that sleeps on a descriptor leaves no operation behind, also more of them than the batch has at the device.
#[test]
fn a_batch_wakes_a_program_that_sleeps_on_a_descriptor() {
    for more in ["", ",fault=any/delay=2ms/count=all"] {
        let disk = open(more);
        let mut batch = Batch::new(&disk, 4).unwrap();
        let bell = WakeFd::new().unwrap();
        let waker = Waker::from(bell.clone());
        assert!(!batch.arm(&waker), "nothing is outstanding");
        for n in 0..30 {
            batch.append(Sector(0), block(n));
        }
        let mut ended = 0;
        while batch.outstanding() > 0 {
            if batch.arm(&waker) {
                let mut fd =
                    libc::pollfd { fd: bell.as_fd().as_raw_fd(), events: libc::POLLIN, revents: 0 };
                // SAFETY: one element, which lives across the call.
                let woken = unsafe { libc::poll(&raw mut fd, 1, 10_000) };
                assert_eq!(woken, 1, "asleep with {ended} of 30 ended");
            }
            bell.clear();
            while let Some(one) = batch.wait_any(Some(Duration::ZERO)) {
                one.result.unwrap();
                ended += 1;
            }
        }
        assert_eq!(ended, 30);
    }
}

#[test]
fn a_batch_may_go_with_operations_in_flight() {
    let disk = open(",fault=write/delay=50ms");
    let mut batch = Batch::new(&disk, 2).unwrap();
    for _ in 0..10 {
        batch.append(Sector(0), block(3));
    }
    drop(batch);
    // What was sent goes on; what was not is gone.
    let mut io = BlockingDisk::new(&disk).unwrap();
    let end = Instant::now() + Duration::from_secs(10);
    while disk.counters().waiting > 0 || io.zone(ZoneNo(0)).unwrap().wp == Sector(0) {
        assert!(Instant::now() < end);
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(zoneplug_host::leaked_buffers(), 0);
}

/// `main` prints the debug form of the error that it returns.
#[test]
fn an_error_that_main_returns_can_be_read() {
    fn run() -> Result<(), zoneplug_core::Error> {
        let disk = HostedDisk::open_spec("mem,zones=4,zone-size=1M")?;
        BlockingDisk::new(&disk)?.append_from(Sector(8), &[0; 4096])?;
        Ok(())
    }
    let e = run().unwrap_err();
    let said = "zone_append at sector 8: not a zone start; try: the first sector of a zone, as a report has it";
    assert_eq!(format!("{e:?}"), said);
    assert_eq!(
        format!("{:?}", HostedDisk::open_spec("mem,zone=4").unwrap_err()).lines().count(),
        1
    );
}
