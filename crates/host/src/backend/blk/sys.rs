//! The ioctls of zoned block devices (linux/blkzoned.h), and `fallocate` for zeroes. The only `unsafe` code is the
//! calls. They block until the drive has answered, so only threads that may wait call them.

use crate::backend::ring::check;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use zoneplug_core::zone::{Condition, ZONE_RECORD_LEN, ZoneInfo, ZoneType};
use zoneplug_core::{Op, Sector};

/// `struct blk_zone_range`.
#[repr(C)]
pub(super) struct Range {
    sector: u64,
    nr_sectors: u64,
}

/// `struct blk_zone_report`, before its zones.
#[repr(C)]
pub(super) struct ReportHeader {
    sector: u64,
    nr_zones: u32,
    flags: u32,
}

/// `BLK_ZONE_REP_CAPACITY`: the records contain the zone capacity.
const REP_CAPACITY: u32 = 1;
/// Bytes of [`ReportHeader`].
const HEADER: usize = size_of::<ReportHeader>();

const BLKREPORTZONE: libc::Ioctl = libc::_IOWR::<ReportHeader>(0x12, 130);
const BLKRESETZONE: libc::Ioctl = libc::_IOW::<Range>(0x12, 131);
const BLKOPENZONE: libc::Ioctl = libc::_IOW::<Range>(0x12, 134);
const BLKCLOSEZONE: libc::Ioctl = libc::_IOW::<Range>(0x12, 135);
const BLKFINISHZONE: libc::Ioctl = libc::_IOW::<Range>(0x12, 136);
const BLKDISCARD: libc::Ioctl = libc::_IO(0x12, 119);

/// Bytes of the device: 0 once it is being removed.
pub(super) fn size(file: &File) -> u64 {
    // SAFETY: a call without pointers; no code uses the file's position.
    let end = unsafe { libc::lseek(file.as_raw_fd(), 0, libc::SEEK_END) };
    u64::try_from(end).unwrap_or(0)
}

/// Resets, opens, closes or finishes the zones of a range.
pub(super) fn manage(file: &File, op: Op, sector: Sector, nr_sectors: u64) -> io::Result<()> {
    let request = match op {
        Op::ZoneOpen => BLKOPENZONE,
        Op::ZoneClose => BLKCLOSEZONE,
        Op::ZoneFinish => BLKFINISHZONE,
        _ => BLKRESETZONE,
    };
    let range = Range { sector: sector.0, nr_sectors };
    // SAFETY: the request reads one `Range`, which lives across the call.
    check(unsafe { libc::ioctl(file.as_raw_fd(), request, &range) }).map(|_| ())
}

/// Discards the data of a range.
pub(super) fn discard(file: &File, sector: Sector, nr_sectors: u64) -> io::Result<()> {
    let range = [sector.0 << 9, nr_sectors << 9];
    // SAFETY: the request reads two numbers of 64 bits, which live across the call.
    check(unsafe { libc::ioctl(file.as_raw_fd(), BLKDISCARD, &range) }).map(|_| ())
}

/// Writes zeroes with the drive's own command.
pub(super) fn zero(file: &File, sector: Sector, nr_sectors: u64) -> io::Result<()> {
    let (mode, at) = (libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE, sector.0 << 9);
    let len = nr_sectors << 9;
    // SAFETY: a call without pointers.
    check(unsafe { libc::fallocate(file.as_raw_fd(), mode, at as i64, len as i64) }).map(|_| ())
}

/// Reports up to `max` zones from the one that holds `sector`. `BLKREPORTZONEV2` (Linux 6.19) is not used: it only adds
/// reports from the kernel's own plugs, which do not distinguish open zones from closed ones (M10, M12).
pub(super) fn report(file: &File, sector: Sector, max: u32) -> io::Result<Vec<ZoneInfo>> {
    let mut buf = vec![0u64; (HEADER + max as usize * ZONE_RECORD_LEN) / 8];
    buf[0] = sector.0;
    // The second word is `nr_zones` and `flags`.
    let header = u64::from_ne_bytes(pair(max, 0));
    buf[1] = header;
    // SAFETY: the request reads the header and writes as many records as it says, for which there is room.
    check(unsafe { libc::ioctl(file.as_raw_fd(), BLKREPORTZONE, buf.as_mut_ptr()) })?;
    let bytes = buf[1].to_ne_bytes();
    let word = |i: usize| u32::from_ne_bytes([bytes[i], bytes[i + 1], bytes[i + 2], bytes[i + 3]]);
    let (nr, flags) = (word(0).min(max), word(4));
    let zone = |n: usize| decode(&buf[HEADER / 8 + n * ZONE_RECORD_LEN / 8..], flags);
    (0..nr as usize).map(zone).collect()
}

fn pair(a: u32, b: u32) -> [u8; 8] {
    let (a, b) = (a.to_ne_bytes(), b.to_ne_bytes());
    [a[0], a[1], a[2], a[3], b[0], b[1], b[2], b[3]]
}

/// One `struct blk_zone`, in words of 64 bits.
fn decode(words: &[u64], flags: u32) -> io::Result<ZoneInfo> {
    let bytes = words[3].to_ne_bytes();
    let (start, len) = (words[0], words[1]);
    let end = start.checked_add(len).ok_or_else(|| {
        io::Error::other(format!("the drive reports a zone of {len} sectors at sector {start}"))
    })?;
    let zone_type = match bytes[0] {
        1 => ZoneType::Conventional,
        2 => ZoneType::SeqWriteRequired,
        t => {
            return Err(io::Error::other(format!(
                "the drive reports a zone of type {t} at sector {start}"
            )));
        }
    };
    let cond = Condition::from_u8(bytes[1]).ok_or_else(|| {
        let c = bytes[1];
        io::Error::other(format!("the drive reports zone condition {c} at sector {start}"))
    })?;
    let capacity = if flags & REP_CAPACITY != 0 { words[4] } else { len };
    Ok(ZoneInfo {
        start: Sector(start),
        len_sectors: len,
        capacity_sectors: capacity,
        // Drives differ in what they report for zones without a write pointer and for full zones (O6).
        wp: Sector(match cond {
            Condition::NotWp | Condition::ReadOnly | Condition::Offline => u64::MAX,
            Condition::Full => end,
            Condition::Empty => start,
            _ => words[2],
        }),
        zone_type,
        cond,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of a request contains the size of its structure (linux/blkzoned.h, linux/fs.h).
    #[test]
    fn structures_and_requests_are_the_kernels() {
        assert_eq!((size_of::<Range>(), size_of::<ReportHeader>(), ZONE_RECORD_LEN), (16, 16, 64));
        assert_eq!(
            [BLKREPORTZONE, BLKRESETZONE, BLKOPENZONE, BLKCLOSEZONE, BLKFINISHZONE, BLKDISCARD],
            [0xc010_1282, 0x4010_1283, 0x4010_1286, 0x4010_1287, 0x4010_1288, 0x1277]
        );
    }

    /// T4: the record is `struct blk_zone`, as `ZoneInfo::encode` writes it; without the flag there is no capacity.
    #[test]
    fn a_record_of_a_report() {
        let z = ZoneInfo {
            start: Sector(0x8000),
            len_sectors: 0x8000,
            capacity_sectors: 0x7000,
            wp: Sector(0x8008),
            zone_type: ZoneType::SeqWriteRequired,
            cond: Condition::ImpOpen,
        };
        let words = |z: &ZoneInfo| -> Vec<u64> {
            let r = z.encode();
            r.chunks_exact(8).map(|c| u64::from_ne_bytes(c.try_into().unwrap())).collect()
        };
        assert_eq!(decode(&words(&z), REP_CAPACITY).unwrap(), z);
        assert_eq!(decode(&words(&z), 0).unwrap().capacity_sectors, 0x8000);
        // For a full zone, null_blk reports start + capacity after writes and start + length after a finish. Other
        // drivers report all ones.
        for wp in [0xf000, 0x1_0000, u64::MAX] {
            let full = ZoneInfo { wp: Sector(wp), cond: Condition::Full, ..z };
            assert_eq!(decode(&words(&full), REP_CAPACITY).unwrap().wp, Sector(0x1_0000));
        }
        let mut preferred = words(&z);
        preferred[3] = u64::from_ne_bytes([3, 2, 0, 0, 0, 0, 0, 0]);
        assert!(decode(&preferred, 1).unwrap_err().to_string().contains("type 3"));
    }

    #[test]
    fn other_kinds_of_files_refuse_the_requests() {
        let file = File::open("/dev/null").unwrap();
        let errno = |e: io::Error| e.raw_os_error().unwrap();
        assert_eq!(errno(report(&file, Sector(0), 1).unwrap_err()), libc::ENOTTY);
        let e = manage(&file, Op::ZoneReset, Sector(0), 8).unwrap_err();
        assert_eq!(errno(e), libc::ENOTTY);
        assert!(discard(&file, Sector(0), 8).is_err() && zero(&file, Sector(0), 8).is_err());
    }
}
