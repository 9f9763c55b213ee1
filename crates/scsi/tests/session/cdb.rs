//! Commands of 16 bytes.

pub(crate) fn read_cdb(lba: u64, blocks: u32) -> [u8; 16] {
    cdb(0x88, lba, blocks)
}

pub(crate) fn write_cdb(lba: u64, blocks: u32) -> [u8; 16] {
    cdb(0x8a, lba, blocks)
}

fn cdb(code: u8, lba: u64, blocks: u32) -> [u8; 16] {
    let mut cdb = [0; 16];
    cdb[0] = code;
    cdb[2..10].copy_from_slice(&lba.to_be_bytes());
    cdb[10..14].copy_from_slice(&blocks.to_be_bytes());
    cdb
}
