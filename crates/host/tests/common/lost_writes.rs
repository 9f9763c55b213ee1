//! A disk whose last writer got an error from the medium before it ended.

use std::os::unix::fs::FileExt;
use std::path::Path;

/// Leaves the session that a writer leaves that was told EIO by a sync (docs/disk-format.md), as versions of zoneplug
/// did that knew no debts.
pub(crate) fn lose_writes(path: &Path) {
    let file = std::fs::File::options().read(true).write(true).open(path).unwrap();
    let mut session = [0; 512];
    file.read_exact_at(&mut session, 4096).unwrap();
    assert_eq!(&session[..4], b"ZPSS");
    session[16..20].fill(0);
    session[20..24].copy_from_slice(&5_u32.to_le_bytes());
    session[24..40].fill(0);
    session[48..].fill(0);
    let crc = crc32c::crc32c(&session[8..]);
    session[4..8].copy_from_slice(&crc.to_le_bytes());
    file.write_all_at(&session, 4096).unwrap();
}
