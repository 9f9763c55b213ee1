//! Notifies systemd (sd_notify(3)) when the disks are there, and when they are removed. Does nothing without
//! `NOTIFY_SOCKET`.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// How long a supervisor that stalls is waited for.
const MOST: Duration = Duration::from_secs(1);

fn tell(text: &str) {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let bytes = path.as_encoded_bytes();
    let address = match bytes.strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(&path),
    };
    // An error is ignored: a supervisor that does not listen, or stalls, gets no notice.
    if let (Ok(address), Ok(socket)) = (address, UnixDatagram::unbound()) {
        let _ = socket.set_write_timeout(Some(MOST));
        let _ = socket.send_to_addr(text.as_bytes(), &address);
    }
}

/// All devices are there.
pub(super) fn ready() {
    tell("READY=1\n");
}

/// This process is the main one of its unit from now on (`NotifyAccess=all`).
pub(super) fn main_process() {
    tell(&format!("MAINPID={}\n", std::process::id()));
}

/// A signal has come.
pub(super) fn stopping() {
    tell("STOPPING=1\n");
}
