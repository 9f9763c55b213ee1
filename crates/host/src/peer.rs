//! Asks the kernel about the process at the other end of a Unix socket.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// The supplementary groups of the process that has connected to `socket`, at the time of the connection.
///
/// ```
/// use std::os::unix::net::UnixStream;
/// let (socket, _other) = UnixStream::pair().unwrap();
/// assert!(zoneplug_host::peer_groups(&socket).is_ok());
/// ```
pub fn peer_groups(socket: impl AsFd) -> io::Result<Vec<u32>> {
    let fd = socket.as_fd().as_raw_fd();
    let mut groups: Vec<libc::gid_t> = vec![0; 64];
    loop {
        let mut len = size_of_val(&groups[..]) as libc::socklen_t;
        // SAFETY: the kernel writes at most `len` bytes into `groups`, which has as many, and the length of all.
        let r = unsafe {
            libc::getsockopt(
                fd,
                libc::SOL_SOCKET,
                libc::SO_PEERGROUPS,
                groups.as_mut_ptr().cast(),
                &raw mut len,
            )
        };
        let found = len as usize / size_of::<libc::gid_t>();
        if r == 0 {
            groups.truncate(found);
            return Ok(groups);
        }
        match io::Error::last_os_error() {
            // `len` has the length that is needed.
            e if e.raw_os_error() == Some(libc::ERANGE) && found > groups.len() => {
                groups.resize(found, 0);
            }
            e => return Err(e),
        }
    }
}
