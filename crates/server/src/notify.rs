//! Notifies systemd (sd_notify(3)) of the start and the end of serving. Does nothing without `NOTIFY_SOCKET`.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use zoneplug_control::{Failure, FailureParts};
use zoneplug_core::plain;

/// How long to wait for a supervisor that stalls.
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

/// Whether this process has served.
static HAS_SERVED: AtomicBool = AtomicBool::new(false);

/// All disks are served. Clears the status of an earlier reload.
pub(crate) fn ready() {
    HAS_SERVED.store(true, Ordering::Relaxed);
    tell("READY=1\nSTATUS=\n");
}

/// Reports in `systemctl status` why a takeover failed. Does nothing in a process that has served.
pub fn refused(why: &Failure) {
    if !HAS_SERVED.load(Ordering::Relaxed) {
        let FailureParts { what, hint, .. } = why.parts();
        let line = format!("reload refused: {what}; try: {hint}");
        let line = line.split_whitespace().collect::<Vec<_>>().join(" ");
        tell(&format!("STATUS={}\n", plain(&line)));
    }
}

/// Makes this process the main one of its unit (`NotifyAccess=all`).
pub(crate) fn main_process() {
    tell(&format!("MAINPID={}\n", std::process::id()));
}

/// Reports that the server is ending.
pub(crate) fn stopping() {
    tell("STOPPING=1\n");
}
