//! The data of a command and of a zone.

use std::hash::{DefaultHasher, Hasher};
use zoneplug_buf::AlignedBuf;
use zoneplug_core::zone::{Condition, ZoneInfo};

/// Returns the hash of the first `bytes` of a buffer.
pub fn data_hash(buf: &AlignedBuf, bytes: u32) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(&buf.as_slice()[..(bytes as usize).min(buf.len() as usize)]);
    hasher.finish()
}

/// Returns how many sectors of a zone hold data and must not be written again.
pub fn written_in(z: &ZoneInfo) -> u32 {
    let n = match z.cond {
        Condition::Full => z.capacity_sectors,
        Condition::NotWp | Condition::Empty | Condition::ReadOnly | Condition::Offline => 0,
        _ => z.wp.0.saturating_sub(z.start.0).min(z.capacity_sectors),
    };
    u32::try_from(n).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use zoneplug_core::Sector;
    use zoneplug_core::zone::ZoneType;

    /// The write pointer of a full zone has no meaning: NVMe says all ones, other drives the start or the end.
    #[test]
    fn a_full_zone_is_written_wherever_its_write_pointer_is() {
        let start = Sector(0x800);
        for (cond, wp, written) in [
            (Condition::Full, Sector(u64::MAX), 0x700),
            (Condition::Full, start, 0x700),
            (Condition::Full, Sector(0), 0x700),
            (Condition::Closed, start.plus(8), 8),
            (Condition::Empty, start, 0),
            (Condition::Offline, Sector(u64::MAX), 0),
        ] {
            let zone_type = ZoneType::SeqWriteRequired;
            let (len_sectors, capacity_sectors) = (0x800, 0x700);
            let zone = ZoneInfo { start, len_sectors, capacity_sectors, wp, zone_type, cond };
            assert_eq!(written_in(&zone), written, "{cond:?} with its write pointer at {wp:?}");
        }
    }
}
