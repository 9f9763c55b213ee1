//! Carries out the steps of a request that Linux sends again, with a client of the disk of its own.

use super::replay::{NO_TIME, begin};
use crate::BlockingDisk;
use crate::runtime::hosted::HostedDisk;
use crate::ublk::abi::{IoDesc, Params};
use crate::ublk::request::Request;
use zoneplug_buf::AlignedBuf;
use zoneplug_core::{IoResult, Op, Sector, Status};
use zoneplug_recovery::{DiskRecovery, ResendStep};

/// A request of a device with zones of 1M.
pub(super) fn request(op: u8, sector: u64, len: u32) -> Request {
    let params = Params { zone_sectors: 0x800, ..Params::default() };
    Request::of(IoDesc { op, fua: false, len, sector }, &params).unwrap()
}

/// The step with which the search for a request ends: it is carried out, its rest is, or it is answered.
pub(super) fn decide(
    recovery: &DiskRecovery,
    r: &Request,
    buf: Option<&AlignedBuf>,
    disk: &HostedDisk,
) -> ResendStep {
    let is_before = recovery.is_before_first(r.op, r.sector);
    let Some(mut search) = is_before.then(|| begin(recovery, r, buf)).flatten() else {
        return ResendStep::CarryOut;
    };
    let mut io = BlockingDisk::new(disk).unwrap();
    loop {
        let ResendStep::Ask(asked) = search.step else { return search.step };
        let found = match asked.op {
            Op::Read => io.read(asked.sector, u64::from(asked.len_sectors)).map(Some),
            Op::Flush => io.flush().map(|()| None),
            op => panic!("{op:?}"),
        };
        let status = if found.is_ok() { Status::Ok } else { Status::Io };
        let found = found.ok().flatten();
        let result = IoResult { status, sector: asked.sector, zones: 0 };
        let outcome = asked.outcome(result, found.as_ref(), buf);
        search = recovery.next(search.resend, outcome, NO_TIME);
    }
}

/// The sector of an append that is on the disk already.
pub(super) fn append_before(
    recovery: &DiskRecovery,
    r: &Request,
    buf: &AlignedBuf,
    disk: &HostedDisk,
) -> Option<Sector> {
    match decide(recovery, r, Some(buf), disk) {
        ResendStep::Done(at) => Some(at),
        _ => None,
    }
}

/// The number of sectors of a request that are on the disk already.
pub(super) fn done_before(
    recovery: &DiskRecovery,
    r: &Request,
    buf: Option<&AlignedBuf>,
    disk: &HostedDisk,
) -> u32 {
    match decide(recovery, r, buf, disk) {
        ResendStep::Done(_) => r.len_sectors,
        ResendStep::WriteRest(done) => done,
        _ => 0,
    }
}
