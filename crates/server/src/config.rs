//! How a server serves, whatever its doors are.

use crate::access::Access;
use crate::failure::Failure;
use std::net::SocketAddr;
use std::path::PathBuf;
use zoneplug_host::{DiskSpec, HeldDisks, Specification};

/// How a server serves, whatever its doors are.
#[derive(Debug, Clone)]
pub struct Config {
    /// Take the disks over from the servers that have them, or only from the process with this number.
    pub takeover: Option<Option<u32>>,
    /// Where its socket is. `None`: in the usual place.
    pub socket: Option<PathBuf>,
    /// Who may use the socket.
    pub access: Access,
    /// Where the metrics are served, if they are.
    pub metrics_at: Option<SocketAddr>,
    /// Whether devices that are in use are removed at the end.
    pub remove_on_exit: bool,
    /// Whether this process does nothing but serve. It then denies itself the system calls that a server does not need, hands its
    /// disks over to another server and ends, tells systemd how it does, and ends at once at a second signal.
    pub own_process: bool,
    /// Opens what a specification names. Disks of other servers are open already.
    pub open: OpenSpec,
    /// Takes what the user should know, and what is no failure.
    pub note: fn(&str),
}

/// Opens what a specification names, or takes it from the disks that another server has handed over.
pub type OpenSpec = fn(&Specification, &HeldDisks) -> Result<DiskSpec, Failure>;

impl Default for Config {
    fn default() -> Config {
        Config {
            takeover: None,
            socket: None,
            access: Access::default(),
            metrics_at: None,
            remove_on_exit: false,
            own_process: false,
            open: |spec, given| Ok(spec.open_to_serve(given)?),
            // A line of the program's log. It is no event of a server, which has its notes on standard error.
            note: |text| log::log!(log::Level::Warn, "{text}"),
        }
    }
}
