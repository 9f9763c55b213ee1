//! Limits connections by the limit of open files (RLIMIT_NOFILE).

use zoneplug_core::{Error, ErrorKind};

/// Files that a server opens besides connections: clients of its socket and of its metrics, snapshots.
const SPARE: u64 = 64;
/// The fewest connections of a server: an admin queue and an I/O queue of a host, for each of two paths.
const FEWEST: usize = 4;

/// The number of connections that a server may have, at most `wanted`.
///
/// # Errors
///
/// There is no room for the connections of one host.
pub(crate) fn connections(wanted: usize) -> Result<usize, Error> {
    let own = std::fs::read_dir("/proc/self/fd").map_or(0, |all| all.count() as u64);
    allowed(wanted, soft_limit(), own)
}

/// The soft limit of this process.
fn soft_limit() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel writes to `limit`, which outlives the call.
    match unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } {
        0 => limit.rlim_cur,
        _ => u64::MAX,
    }
}

fn allowed(wanted: usize, limit: u64, own: u64) -> Result<usize, Error> {
    let room = usize::try_from(limit.saturating_sub(own + SPARE)).unwrap_or(usize::MAX);
    if room < FEWEST.min(wanted) {
        let what = format!("this process may open {limit} files: too few for connections of hosts");
        return Err(
            Error::new(ErrorKind::NotSupported, what).hint("ulimit -n, LimitNOFILE= in the unit")
        );
    }
    Ok(wanted.min(room))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// K3. The number of open files that this process may have limits connections.
    #[test]
    fn k3_connections_are_bounded_by_open_files() {
        assert_eq!(allowed(4096, 1 << 20, 40).unwrap(), 4096);
        assert_eq!(allowed(4096, 1024, 40).unwrap(), 1024 - 40 - 64);
        assert_eq!(allowed(4096, 108, 40).unwrap(), 4);
        let error = allowed(4096, 107, 40).unwrap_err();
        assert!(error.to_string().contains("may open 107 files"), "{error}");
        assert_eq!(allowed(2, 106, 40).unwrap(), 2);
        assert!(allowed(64, 16, 40).is_err());
    }
}
