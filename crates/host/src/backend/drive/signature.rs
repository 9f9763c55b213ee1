//! Finds file systems, partition tables and volumes on a drive by their signatures. Only reads; the caller decides
//! whether to refuse the drive.
//!
//! Offsets and magic numbers are from the documentation of each format. `blkid` knows more formats; these are the
//! ones that a zoned drive may hold, or a drive that is mistaken for one.

/// Bytes of one read.
pub(crate) const BLOCK: u32 = 4096;

/// The name of a format, the offset of its magic number, and the magic number.
struct Magic(&'static str, u64, &'static [u8]);

const KIB: u64 = 1024;

/// In the order of the checks. Boot sectors are checked after these, because several formats have one.
const TABLE: &[Magic] = &[
    Magic("a btrfs file system", 64 * KIB + 64, b"_BHRfS_M"),
    // In the super block log of a zoned disk (`sb_zone_number`): at the start of the first zones.
    Magic("a btrfs file system", 64, b"_BHRfS_M"),
    Magic("an XFS file system", 0, b"XFSB"),
    Magic("an ext2, ext3 or ext4 file system", KIB + 56, &[0x53, 0xef]),
    Magic("an F2FS file system", KIB, &[0x10, 0x20, 0xf5, 0xf2]),
    Magic("a zonefs file system", 0, b"SFOZ"),
    Magic("a dm-zoned volume", 0, b"DBZD"),
    Magic("a LUKS volume", 0, b"LUKS\xba\xbe"),
    Magic("a dm-integrity volume", 0, b"integrt\0"),
    Magic("an LVM volume", 24, b"LVM2 001"),
    Magic("an LVM volume", 512 + 24, b"LVM2 001"),
    Magic("an LVM volume", KIB + 24, b"LVM2 001"),
    Magic("an LVM volume", 1536 + 24, b"LVM2 001"),
    Magic("a RAID member", 0, &[0xfc, 0x4e, 0x2b, 0xa9]),
    Magic("a RAID member", 4 * KIB, &[0xfc, 0x4e, 0x2b, 0xa9]),
    Magic("swap space", 4 * KIB - 10, b"SWAPSPACE2"),
    Magic(
        "a bcache or bcachefs volume",
        4 * KIB + 24,
        &[0xc6, 0x85, 0x73, 0xf6, 0x4e, 0x1a, 0x45, 0xca],
    ),
    Magic("an NTFS file system", 3, b"NTFS    "),
    Magic("a FAT file system", 54, b"FAT1"),
    Magic("a FAT file system", 82, b"FAT32"),
    Magic("a GPT partition table", 512, b"EFI PART"),
    Magic("a GPT partition table", 4 * KIB, b"EFI PART"),
];

/// The first known format found on a drive of `size` bytes with zones of `zone` bytes. `read` returns [`BLOCK`] bytes
/// at an offset.
pub(crate) fn find<E>(
    size: u64,
    zone: u64,
    read: &mut dyn FnMut(u64) -> Result<Vec<u8>, E>,
) -> Result<Option<&'static str>, E> {
    let block = u64::from(BLOCK);
    let at = |bytes: &[u8], offset: u64, magic: &[u8]| {
        let from = offset as usize;
        bytes.get(from..from + magic.len()) == Some(magic)
    };
    for start in [0, block, 64 * KIB] {
        if start + block > size {
            continue;
        }
        let bytes = read(start)?;
        for Magic(name, offset, magic) in TABLE {
            if *offset >= start && at(&bytes, offset - start, magic) {
                return Ok(Some(name));
            }
        }
        if start == 0 && is_boot_sector(&bytes) {
            return Ok(Some("a partition table"));
        }
    }
    // The second zone of btrfs's log of super blocks. The first zone is empty while the second is in use.
    if zone + block <= size && at(&read(zone)?, 64, b"_BHRfS_M") {
        return Ok(Some("a btrfs file system"));
    }
    // The copy of a GPT is in the last block.
    if size >= 2 * block {
        let bytes = read(size / block * block - block)?;
        if [block - 512, 0].iter().any(|&o| at(&bytes, o, b"EFI PART")) {
            return Ok(Some("a GPT partition table"));
        }
    }
    Ok(None)
}

/// Whether this is an MBR with at least one partition: it ends with 55 AA, and the status of each of its four entries
/// is 0 or 80h.
fn is_boot_sector(bytes: &[u8]) -> bool {
    let entries = || bytes[446..510].chunks_exact(16);
    bytes.len() >= 512
        && bytes[510..512] == [0x55, 0xaa]
        && entries().all(|e| e[0] & 0x7f == 0)
        && entries().any(|e| e[4] != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    fn signature_of(size: u64, zone: u64, put: &[(u64, &[u8])]) -> Option<&'static str> {
        let mut disk = vec![0u8; size as usize];
        for (at, bytes) in put {
            disk[*at as usize..][..bytes.len()].copy_from_slice(bytes);
        }
        let mut read = |at: u64| {
            assert!(at.is_multiple_of(u64::from(BLOCK)));
            Ok::<_, Infallible>(disk[at as usize..][..BLOCK as usize].to_vec())
        };
        find(size, zone, &mut read).unwrap()
    }

    #[test]
    fn every_signature_is_found_where_it_is() {
        for Magic(name, offset, magic) in TABLE {
            assert_eq!(
                signature_of(1 << 20, 256 << 10, &[(*offset, magic)]),
                Some(*name),
                "{name}"
            );
        }
        assert_eq!(signature_of(1 << 20, 256 << 10, &[]), None);
    }

    #[test]
    fn a_log_of_super_blocks_that_moved_on_and_a_copy_at_the_end() {
        let zone = 256 << 10;
        assert_eq!(
            signature_of(1 << 20, zone, &[(zone + 64, b"_BHRfS_M")]),
            Some("a btrfs file system")
        );
        let end = (1 << 20) - 512;
        assert_eq!(
            signature_of(1 << 20, zone, &[(end, b"EFI PART")]),
            Some("a GPT partition table")
        );
        assert_eq!(
            signature_of(1 << 20, zone, &[(end - 3584, b"EFI PART")]),
            Some("a GPT partition table")
        );
    }

    #[test]
    fn a_boot_sector_has_a_partition() {
        let mut mbr = vec![0u8; 512];
        mbr[510..].copy_from_slice(&[0x55, 0xaa]);
        assert_eq!(signature_of(1 << 20, 1 << 19, &[(0, &mbr)]), None);
        mbr[450] = 0x83;
        assert_eq!(signature_of(1 << 20, 1 << 19, &[(0, &mbr)]), Some("a partition table"));
        mbr[446] = 0x41;
        assert_eq!(signature_of(1 << 20, 1 << 19, &[(0, &mbr)]), None, "code, not a table");
    }

    #[test]
    fn a_small_disk_is_read_inside_its_size() {
        assert_eq!(signature_of(4096, 4096, &[(0, b"XFSB")]), Some("an XFS file system"));
        assert_eq!(signature_of(8192, 4096, &[]), None);
    }
}
