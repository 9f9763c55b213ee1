//! The super block of zonefs, as mkzonefs(8) writes it and Linux reads it: the first 4096 bytes of the first zone.

use std::fmt;

/// The length of a super block in bytes.
pub const SUPER_BLOCK_LEN: usize = 4096;

/// `ZONEFS_MAGIC`.
const MAGIC: u32 = 0x5a4f_4653;
const LABEL_LEN: usize = 64;
/// The offset of the reserved bytes, which are zero.
const RESERVED: usize = 108;

const F_AGGREGATE: u64 = 1 << 0;
const F_UID: u64 = 1 << 1;
const F_GID: u64 = 1 << 2;
const F_PERM: u64 = 1 << 3;

/// The content of a super block.
///
/// ```
/// use zoneplug_zonefs::SuperBlock;
/// let sb = SuperBlock { aggregate_conventional: true, uid: 1000, ..SuperBlock::default() };
/// let read = SuperBlock::decode(&sb.encode()).unwrap();
/// assert_eq!(read, sb);
/// assert_eq!((read.gid, read.mode), (0, 0o640));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SuperBlock {
    /// The name of the volume, at most 63 bytes.
    pub label: String,
    /// The identity of the volume.
    pub uuid: [u8; 16],
    /// Whether adjacent conventional zones form one file.
    pub aggregate_conventional: bool,
    /// The owner of the files.
    pub uid: u32,
    /// The group of the files.
    pub gid: u32,
    /// The permissions of the files: the low nine bits of a mode.
    pub mode: u32,
}

impl Default for SuperBlock {
    fn default() -> SuperBlock {
        SuperBlock {
            label: String::new(),
            uuid: [0; 16],
            aggregate_conventional: false,
            uid: 0,
            gid: 0,
            mode: 0o640,
        }
    }
}

/// The reason why a block is no super block that this program can mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoSuperBlock {
    /// The block does not begin with the magic number.
    Absent,
    /// The checksum is wrong.
    Checksum,
    /// The block has features that this program does not know.
    Features(u64),
    /// A field has an invalid value.
    Field(&'static str),
}

impl fmt::Display for NoSuperBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoSuperBlock::Absent => f.write_str("holds no zonefs"),
            NoSuperBlock::Checksum => f.write_str("its zonefs super block is damaged"),
            NoSuperBlock::Features(bits) => {
                write!(f, "its zonefs has features that are not known: {bits:#x}")
            }
            NoSuperBlock::Field(name) => {
                write!(f, "its zonefs super block has an impossible {name}")
            }
        }
    }
}

fn le32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// The checksum of a block, computed with zeroes in the checksum field. Linux does not invert the
/// result.
fn checksum(block: &[u8; SUPER_BLOCK_LEN]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&block[..4]);
    hasher.update(&[0; 4]);
    hasher.update(&block[8..]);
    !hasher.finalize()
}

impl SuperBlock {
    /// Encodes the block on the disk. Cuts a label that is too long.
    pub fn encode(&self) -> [u8; SUPER_BLOCK_LEN] {
        let mut block = [0; SUPER_BLOCK_LEN];
        let mut features = F_PERM;
        let set = [
            (self.aggregate_conventional, F_AGGREGATE),
            (self.uid != 0, F_UID),
            (self.gid != 0, F_GID),
        ];
        for (_, bit) in set.into_iter().filter(|(on, _)| *on) {
            features |= bit;
        }
        block[..4].copy_from_slice(&MAGIC.to_le_bytes());
        let label = &self.label.as_bytes()[..self.label.len().min(LABEL_LEN - 1)];
        block[8..8 + label.len()].copy_from_slice(label);
        block[72..88].copy_from_slice(&self.uuid);
        block[88..96].copy_from_slice(&features.to_le_bytes());
        block[96..100].copy_from_slice(&self.uid.to_le_bytes());
        block[100..104].copy_from_slice(&self.gid.to_le_bytes());
        block[104..RESERVED].copy_from_slice(&self.mode.to_le_bytes());
        let sum = checksum(&block);
        block[4..8].copy_from_slice(&sum.to_le_bytes());
        block
    }

    /// Decodes a block.
    ///
    /// # Errors
    ///
    /// Fails where Linux refuses to mount: another magic number or checksum, unknown features,
    /// reserved bytes that are not zero.
    pub fn decode(block: &[u8; SUPER_BLOCK_LEN]) -> Result<SuperBlock, NoSuperBlock> {
        if le32(block, 0) != MAGIC {
            return Err(NoSuperBlock::Absent);
        }
        if le32(block, 4) != checksum(block) {
            return Err(NoSuperBlock::Checksum);
        }
        let features = u64::from(le32(block, 88)) | u64::from(le32(block, 92)) << 32;
        let unknown = features & !(F_AGGREGATE | F_UID | F_GID | F_PERM);
        if unknown != 0 {
            return Err(NoSuperBlock::Features(unknown));
        }
        if block[RESERVED..].iter().any(|b| *b != 0) {
            return Err(NoSuperBlock::Field("reserved field"));
        }
        let usual = SuperBlock::default();
        let given =
            |bit, at, otherwise| if features & bit != 0 { le32(block, at) } else { otherwise };
        let mode = given(F_PERM, 104, usual.mode);
        if mode & !0o777 != 0 {
            return Err(NoSuperBlock::Field("mode"));
        }
        let label = &block[8..8 + LABEL_LEN];
        let label = label.split(|b| *b == 0).next().unwrap_or_default();
        let mut uuid = [0; 16];
        uuid.copy_from_slice(&block[72..88]);
        Ok(SuperBlock {
            label: String::from_utf8_lossy(label).into_owned(),
            uuid,
            aggregate_conventional: features & F_AGGREGATE != 0,
            uid: given(F_UID, 96, usual.uid),
            gid: given(F_GID, 100, usual.gid),
            mode,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Linux's checksum is not inverted and excludes its own field. The number is Python's
    /// `zlib.crc32(block) ^ 0xffffffff`, for a block of the magic number and zeroes.
    #[test]
    fn the_checksum_is_that_of_linux() {
        let mut block = [0; SUPER_BLOCK_LEN];
        block[..4].copy_from_slice(&MAGIC.to_le_bytes());
        assert_eq!(checksum(&block), 0x59bf_ab05);
        block[4] = 1;
        assert_eq!(checksum(&block), 0x59bf_ab05);
    }

    #[test]
    fn what_linux_refuses_is_refused() {
        let good = SuperBlock { label: "a".into(), uid: 7, ..SuperBlock::default() }.encode();
        assert!(SuperBlock::decode(&good).is_ok());
        let with = |at: usize, byte: u8| {
            let mut block = good;
            block[at] = byte;
            let sum = checksum(&block);
            block[4..8].copy_from_slice(&sum.to_le_bytes());
            SuperBlock::decode(&block).err()
        };
        assert_eq!(with(0, 0), Some(NoSuperBlock::Absent));
        assert_eq!(with(88, 0x10), Some(NoSuperBlock::Features(0x10)));
        assert_eq!(with(95, 0x80), Some(NoSuperBlock::Features(0x80 << 56)));
        assert_eq!(with(4095, 1), Some(NoSuperBlock::Field("reserved field")));
        assert_eq!(with(105, 0x10), Some(NoSuperBlock::Field("mode")));
        let mut block = good;
        block[96] ^= 1;
        assert_eq!(SuperBlock::decode(&block), Err(NoSuperBlock::Checksum));
    }

    /// Each field comes back, whatever the others are.
    #[test]
    fn each_field_comes_back_whatever_the_others_are() {
        for set in 0..64 {
            let given = |bit, value| if set >> bit & 1 == 1 { value } else { 0 };
            let block = SuperBlock {
                label: if set & 1 == 1 { "logs".into() } else { String::new() },
                uuid: [given(1, 7) as u8; 16],
                aggregate_conventional: set >> 2 & 1 == 1,
                uid: given(3, 1000),
                gid: given(4, 100),
                mode: given(5, 0o640),
            };
            assert_eq!(SuperBlock::decode(&block.encode()), Ok(block));
        }
    }

    /// A field without its feature has the default value, whatever it holds.
    #[test]
    fn fields_count_only_with_their_features() {
        let mut block =
            SuperBlock { uid: 5, gid: 6, mode: 0o600, ..SuperBlock::default() }.encode();
        block[88] = 0;
        let sum = checksum(&block);
        block[4..8].copy_from_slice(&sum.to_le_bytes());
        assert_eq!(SuperBlock::decode(&block), Ok(SuperBlock::default()));
    }
}
