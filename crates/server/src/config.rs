//! The settings of a server that do not depend on its doors.

use std::net::SocketAddr;
use std::path::PathBuf;
use zoneplug_control::Access;
use zoneplug_control::Failure;
use zoneplug_host::{DiskSpec, HeldDisks, Specification};

/// The settings of a server that do not depend on its doors.
#[derive(Debug, Clone)]
pub struct Config {
    /// The servers from which the disks are taken over.
    pub takeover: Takeover,
    /// The path of the socket. `None`: the usual place.
    pub socket: Option<PathBuf>,
    /// The users that may use the socket.
    pub access: Access,
    /// The address of the metrics, if they are served.
    pub metrics_at: Option<SocketAddr>,
    /// Whether devices that are in use are removed at the end.
    pub remove_on_exit: bool,
    /// Whether this process does nothing but serve. It then denies itself system calls that a server does not need,
    /// can hand its disks over to another server and end, notifies systemd, and ends at once at a second signal.
    pub own_process: bool,
    /// Opens the device of a specification. Disks of other servers are open already.
    pub open: OpenSpec,
    /// Prints notes for the user that are not failures.
    pub note: fn(&str),
}

/// The servers from which disks are taken over.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Takeover {
    /// None: the disks have no server yet.
    #[default]
    No,
    /// All that have one of the disks.
    Any,
    /// Only the server with this process id.
    Process(u32),
}

/// Opens the device of a specification, or takes it from the disks that another server has handed over.
pub type OpenSpec = fn(&Specification, &HeldDisks) -> Result<DiskSpec, Failure>;

impl Default for Config {
    fn default() -> Config {
        Config {
            takeover: Takeover::No,
            socket: None,
            access: Access::default(),
            metrics_at: None,
            remove_on_exit: false,
            own_process: false,
            open: |spec, given| Ok(spec.open_to_serve(given)?),
            // A plain line of the program's log, not an event: a server process has its notes on standard error.
            note: |text| log::log!(log::Level::Warn, "{text}"),
        }
    }
}
