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
