//! The buffers of a world, and stamps: the number that each written sector carries.

use std::cell::RefCell;
use zoneplug_buf::Arena;
use zoneplug_core::zone::{ZONE_RECORD_LEN, ZoneInfo};
use zoneplug_core::{Bio, IoBuf, Op, Sector};

/// Most bytes of a buffer, and bytes of a piece of memory.
const MOST: u32 = 1 << 20;

thread_local! {
    /// Memory that is never freed but used again by the next world of the same thread.
    static MEMORY: RefCell<Arena> = const { RefCell::new(Arena::new(MOST)) };
}

/// Makes all buffers of the last world free again.
#[allow(
    unsafe_code,
    reason = "worlds would leak their memory, or keep account of what devices lose"
)]
pub(crate) fn recycle() {
    // SAFETY: the last world of this thread has ended: its disks, queues and BIOs are dropped, or leaked and never
    // run again.
    MEMORY.with_borrow_mut(|m| unsafe { m.reset() });
}

/// Returns a buffer of `len` bytes with undefined content.
pub(crate) fn bytes(len: u32) -> IoBuf {
    assert!(len <= MOST, "worlds are small");
    MEMORY.with_borrow_mut(|m| m.take(len))
}

/// Returns a buffer of this many sectors with undefined content.
pub(crate) fn buf(sectors: u32) -> IoBuf {
    bytes(sectors << 9)
}

/// Returns a buffer whose sector `i` has the stamp `stamp + i` in its first and in its last 8 bytes.
pub(crate) fn stamped(sectors: u32, stamp: u64) -> IoBuf {
    let mut b = buf(sectors);
    for i in 0..sectors {
        let s = (stamp + u64::from(i)).to_le_bytes();
        b.copy_from(i << 9, &s);
        b.copy_from((i << 9) + 504, &s);
    }
    b
}

/// Returns the stamp of sector `i` of a buffer.
pub(crate) fn stamp_at(b: &IoBuf, i: u32) -> u64 {
    let (mut head, mut tail) = ([0; 8], [0; 8]);
    b.copy_to(i << 9, &mut head);
    b.copy_to((i << 9) + 504, &mut tail);
    assert_eq!(head, tail, "sector {i} is torn");
    u64::from_le_bytes(head)
}

/// Returns the stamp of each sector of a buffer.
pub(crate) fn stamps(b: &IoBuf) -> impl Iterator<Item = u64> + '_ {
    (0..b.len() >> 9).map(|i| stamp_at(b, i))
}

/// Returns stamped sectors as bytes, as [`stamped`] fills a buffer.
pub(crate) fn stamp_bytes(sectors: u32, stamp: u64) -> Vec<u8> {
    let mut all = vec![0; (sectors as usize) << 9];
    for (sector, stamp) in all.as_chunks_mut::<512>().0.iter_mut().zip(stamp..) {
        sector[..8].copy_from_slice(&stamp.to_le_bytes());
        sector[504..].copy_from_slice(&stamp.to_le_bytes());
    }
    all
}

/// Returns the stamp of each sector of these bytes.
pub(crate) fn stamps_of(bytes: &[u8]) -> impl Iterator<Item = u64> + '_ {
    bytes.as_chunks::<512>().0.iter().map(|sector| {
        let (head, tail) = (&sector[..8], &sector[504..]);
        assert_eq!(head, tail, "a sector is torn");
        u64::from_le_bytes([head[0], head[1], head[2], head[3], head[4], head[5], head[6], head[7]])
    })
}

/// Returns the first record of a report that has come back.
pub(crate) fn first_record(bio: &Bio) -> ZoneInfo {
    let mut r = [0; ZONE_RECORD_LEN];
    bio.data().copy_to(0, &mut r);
    ZoneInfo::decode(&r).expect("a record that the layer wrote")
}

/// Makes a write with a stamp.
pub(crate) fn write_as(sector: u64, sectors: u32, stamp: u64) -> Box<Bio> {
    Bio::with_buf(Op::Write, Sector(sector), sectors, stamped(sectors, stamp))
}

/// Makes an append to the zone at `sector`, with a stamp.
pub(crate) fn append(sector: u64, sectors: u32, stamp: u64) -> Box<Bio> {
    Bio::with_buf(Op::ZoneAppend, Sector(sector), sectors, stamped(sectors, stamp))
}

/// Makes a read.
pub(crate) fn read(sector: u64, sectors: u32) -> Box<Bio> {
    Bio::with_buf(Op::Read, Sector(sector), sectors, buf(sectors))
}

/// Makes an operation without data.
pub(crate) fn op(op: Op, sector: u64, sectors: u32) -> Box<Bio> {
    Bio::new(op, Sector(sector), sectors)
}
