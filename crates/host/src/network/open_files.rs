//! The limit of open files (RLIMIT_NOFILE), and the connections of a server that it allows.

use std::io;
use zoneplug_core::{Error, ErrorKind};

/// Files that a server opens besides connections: clients of its socket and of its metrics, snapshots.
const SPARE: u64 = 64;
/// Files of a server with a few disks before it has connections.
const OWN: u64 = 64;
/// The fewest connections of a server: an admin queue and an I/O queue of a host, for each of two paths.
const FEWEST: usize = 4;

/// The files that a process has open and may open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenFiles {
    /// How many are open.
    pub open: u64,
    /// How many may be open: the soft limit.
    pub limit: u64,
    /// How high the process may set the limit: the hard limit.
    pub maximum: u64,
}

impl OpenFiles {
    /// How a user raises the limit.
    pub const WAY: &str = "ulimit -n, LimitNOFILE= in the unit";

    /// Asks the system about this process.
    ///
    /// # Errors
    ///
    /// The system does not tell.
    pub fn of_this_process() -> io::Result<OpenFiles> {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: the kernel writes to `limit`, which outlives the call.
        if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let open = std::fs::read_dir("/proc/self/fd").map_or(0, |all| all.count() as u64);
        Ok(OpenFiles { open, limit: limit.rlim_cur, maximum: limit.rlim_max })
    }

    /// The limit that a server with a few disks needs for so many connections.
    pub fn needed_for(connections: usize) -> u64 {
        connections as u64 + OWN + SPARE
    }
}

/// The number of connections that a server may have, at most `wanted`.
///
/// # Errors
///
/// There is no room for the connections of one host.
pub(crate) fn connections(wanted: usize) -> Result<usize, Error> {
    let files = OpenFiles::of_this_process();
    let files = files.unwrap_or(OpenFiles { open: 0, limit: u64::MAX, maximum: u64::MAX });
    allowed(wanted, files.limit, files.open)
}

fn allowed(wanted: usize, limit: u64, open: u64) -> Result<usize, Error> {
    let room = usize::try_from(limit.saturating_sub(open + SPARE)).unwrap_or(usize::MAX);
    if room < FEWEST.min(wanted) {
        let what = format!(
            "this process may open {limit} files and has {open} open: too few are left for connections of hosts"
        );
        return Err(Error::new(ErrorKind::NotSupported, what).hint(OpenFiles::WAY));
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
        // The limit that is said to be needed is enough, and one less is not.
        let needed = OpenFiles::needed_for(4096);
        assert_eq!(allowed(4096, needed, OWN).unwrap(), 4096);
        assert_eq!(allowed(4096, needed - 1, OWN).unwrap(), 4095);
    }
}
