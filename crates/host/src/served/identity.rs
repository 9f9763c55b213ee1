//! The identifiers of disks that are served over the network.

use crate::DiskMark;
use std::hash::{BuildHasher, RandomState};
use zoneplug_core::{FNV_START, fnv1a};

/// The identifier of a disk: the same for the same disks below it with the same layers, whatever their paths. `name`: that of
/// the subsystem or target. `nth`
/// distinguishes copies.
pub(crate) fn uuid_of(name: &str, mark: DiskMark, nth: usize) -> [u8; 16] {
    let numbers = [mark.disks, mark.layers, nth as u64].into_iter().flat_map(u64::to_le_bytes);
    let bytes = name.bytes().chain([0]).chain(numbers);
    // Each half of the identifier has its own start value.
    uuid_from([FNV_START, FNV_START.rotate_left(32)].map(|start| fnv1a(start, bytes.clone())))
}

/// A new random identifier.
pub(crate) fn new_uuid() -> [u8; 16] {
    uuid_from([(); 2].map(|()| RandomState::new().hash_one(std::process::id())))
}

/// An identifier with these bits (RFC 9562, version 8).
fn uuid_from(halves: [u64; 2]) -> [u8; 16] {
    let mut uuid = [0; 16];
    uuid[..8].copy_from_slice(&halves[0].to_be_bytes());
    uuid[8..].copy_from_slice(&halves[1].to_be_bytes());
    uuid[6] = uuid[6] & 0x0f | 0x80;
    uuid[8] = uuid[8] & 0x3f | 0x80;
    uuid
}
