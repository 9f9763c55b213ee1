//! Compares data with a disk, and makes it durable. Each call opens a client of the disk and waits for it.

use crate::BlockingDisk;
use crate::runtime::hosted::HostedDisk;
use zoneplug_buf::AlignedBuf;
use zoneplug_core::Sector;

/// Makes the content of `disk` durable.
pub(super) fn flushed(disk: &HostedDisk) -> bool {
    BlockingDisk::new(disk).is_ok_and(|mut io| io.flush().is_ok())
}

/// Whether `len` sectors at `sector` equal the start of `buf`, or are zeroes if there is no buffer.
pub(super) fn is_on(disk: &HostedDisk, sector: Sector, len: u32, buf: Option<&AlignedBuf>) -> bool {
    const PIECE: u32 = 2048;
    let Ok(mut io) = BlockingDisk::new(disk) else { return false };
    let mut at = 0;
    while at < len {
        let n = PIECE.min(len - at);
        let Ok(found) = io.read(sector.plus(u64::from(at)), u64::from(n)) else { return false };
        let found = found.to_vec();
        let mut wanted = vec![0; found.len()];
        if let Some(buf) = buf {
            buf.read(at << 9, &mut wanted);
        }
        if found != wanted {
            return false;
        }
        at += n;
    }
    true
}
