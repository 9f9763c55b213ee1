//! Shared by the tables of events of `blk` and `nvme`: commands, and ring entries as text, with all of their fields.

use super::{Drive, DriveEvent, DriveSlot, DriveStep, Outcome};
use crate::backend::ring::Reply;
use std::path::Path;
use zoneplug_buf::Segment;
use zoneplug_core::zone::{Geometry, Limits};
use zoneplug_core::{Bio, Command, Flags, IoBuf, Op, Sector, Status, ZoneNo};

/// Sectors of a zone, and how many of them can be written.
pub(crate) const ZONE: u64 = 4096;
pub(crate) const CAPACITY: u64 = 2048;
/// A page, in sectors.
pub(crate) const PAGE: u32 = 8;

/// Four zones, of which the first may be conventional.
pub(crate) fn geometry(conventional: bool) -> Geometry {
    let g = Geometry::new(4, ZONE as u32, CAPACITY as u32).unwrap();
    if conventional { g.with_conventional([ZoneNo(0)]).unwrap() } else { g }
}

/// The limits of a drive whose blocks have `block` sectors.
pub(crate) fn limits(block: u32, write_cache: bool) -> Limits {
    Limits {
        logical_block_sectors: block,
        write_granularity_sectors: block,
        max_transfer_sectors: 256,
        max_write_zeroes_sectors: 1024,
        zone_append_max_sectors: 256,
        max_bios: 16,
        discard: true,
        write_cache,
        ..Limits::default()
    }
}

/// A path that exists, or one that does not.
pub(crate) fn node_path(alive: bool) -> &'static Path {
    Path::new(if alive { "/" } else { "/no such path" })
}

/// A step as text.
pub(crate) trait Show: Drive {
    /// The ring's entry; `at` names an address.
    fn show(entry: &Self::Sqe, at: &dyn Fn(u64) -> String) -> String;
}

/// The bytes of an entry of the submission queue.
pub(crate) fn bytes<S>(entry: &S) -> Vec<u8> {
    let ptr = std::ptr::from_ref(entry).cast::<u8>();
    // SAFETY: entries are plain numbers without gaps (`struct io_uring_sqe`), made from zeroes.
    unsafe { std::slice::from_raw_parts(ptr, size_of::<S>()) }.to_vec()
}

pub(crate) fn word(b: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(b[at..at + 4].try_into().unwrap())
}

pub(crate) fn long(b: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(b[at..at + 8].try_into().unwrap())
}

/// The list of `nr` pieces at an address.
pub(crate) fn pieces(addr: u64, nr: u32, at: &dyn Fn(u64) -> String) -> String {
    // SAFETY: the list of an entry that is still waiting for its answer: its slot holds it.
    let list = unsafe { std::slice::from_raw_parts(addr as *const Segment, nr as usize) };
    let text = |s: &Segment| format!("{}:{}", at(s.ptr as u64), s.len);
    list.iter().map(text).collect::<Vec<_>>().join(" ")
}

/// A command, and the drive that it is given to step by step.
pub(crate) struct Case<'a, D: Show> {
    drive: &'a D,
    pub(crate) slot: DriveSlot<D::State>,
    /// The address and length of its memory.
    memory: (u64, u64),
    /// The parts of the memory that no BIO has.
    gaps: Vec<IoBuf>,
}

/// An answer of the ring.
pub(crate) fn ring(result: i32) -> DriveEvent {
    DriveEvent::Reply(Reply::Ring { result, extra: 0 })
}

/// An answer of a thread.
pub(crate) fn worked(status: Status) -> DriveEvent {
    DriveEvent::Reply(Reply::Worked(Outcome::from(status)))
}

impl<'a, D: Show> Case<'a, D> {
    /// A command for `drive`. If it has data: one BIO for each of `parts`, of so many sectors, a page apart in
    /// memory.
    pub(crate) fn new(drive: &'a D, op: Op, flags: Flags, sector: u64, parts: &[u32]) -> Self {
        let len: u32 = parts.iter().sum();
        let room = |n: u32| n.next_multiple_of(PAGE) + PAGE;
        let mut rest = IoBuf::leaked(parts.iter().map(|n| room(*n)).sum::<u32>() << 9);
        // SAFETY: nothing is done with the address.
        let first = unsafe { rest.segments(0, rest.len()) }.next().map_or(0, |s| s.ptr as u64);
        let (memory, mut gaps) = ((first, u64::from(rest.len())), Vec::new());
        let mut c = if op == Op::WriteZeroes {
            Command::of(Bio::new(op, Sector(sector), len))
        } else {
            Command::without_data(op, Sector(sector), len)
        };
        if matches!(op, Op::Read | Op::Write | Op::ZoneAppend) {
            let mut s = sector;
            for &n in parts {
                c.bios.push(Bio::with_buf(op, Sector(s), n, rest.split_to(n << 9)));
                gaps.push(rest.split_to((room(n) - n) << 9));
                s += u64::from(n);
            }
        }
        c.flags = flags;
        Case { drive, slot: DriveSlot::of_test(c), memory, gaps }
    }

    /// Gives the command to the drive. Returns its first step.
    pub(crate) fn begin(&mut self) -> String {
        self.then(DriveEvent::Begin)
    }

    /// Reports `event` to the drive. Returns the next step.
    pub(crate) fn then(&mut self, event: DriveEvent) -> String {
        match self.drive.step(&mut self.slot, event) {
            DriveStep::Done(status) => format!("done {status:?}"),
            DriveStep::Work(work) => format!("thread {work:?}"),
            DriveStep::Ring(entry) => {
                let (first, len) = self.memory;
                D::show(&entry, &|at| match at.checked_sub(first) {
                    Some(offset) if offset < len => format!("m+{offset}"),
                    _ => "own".to_owned(),
                })
            }
        }
    }

    /// Whether memory of the command is all zeroes.
    pub(crate) fn is_zero(&mut self, from: u32, len: u32) -> bool {
        let (first, _) = self.memory;
        let c = self.slot.command();
        c.bios.iter().map(|bio| bio.data()).chain(&self.gaps).any(|buf| {
            // SAFETY: nothing is done with the address.
            let at = unsafe { buf.segments(0, buf.len()) }.next().map_or(0, |s| s.ptr as u64);
            let Some(skip) = (first + u64::from(from)).checked_sub(at) else { return false };
            if skip + u64::from(len) > u64::from(buf.len()) {
                return false;
            }
            let mut v = vec![1; len as usize];
            buf.copy_to(skip as u32, &mut v);
            v.iter().all(|&b| b == 0)
        })
    }
}
