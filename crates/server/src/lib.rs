//! A server of zoned disks: `zoneplug serve` without its flags and words.
//!
//! A [`Server`] serves disks through its doors. A [`Door`] is a protocol: block devices of Linux ([`doors::ublk`]),
//! namespaces ([`doors::nvme_tcp`]) or SCSI units ([`doors::iscsi`]) over the network. The server opens the disks, answers at the control socket,
//! serves metrics, logs events of the disks, hands them over to the next server, and ends.
//!
//! | file | what it owns |
//! | --- | --- |
//! | `server.rs`, `config.rs` | a server from its start to its end; what holds for all of its doors |
//! | `door.rs`, `doors/` | what a server asks of a protocol; the protocols |
//! | `open_disks.rs`, `opening.rs`, `once.rs`, `served.rs` | open disks; how they are opened, each once; what is known of a served one |
//! | `answer.rs` | the answers at the control socket, which the crate `zoneplug-control` has |
//! | `handover.rs`, `leave.rs`, `end.rs` | a server that leaves its disks to the next one, or ends |
//! | `predecessors.rs`, `running.rs`, `compare.rs`, `prove.rs`, `inherited.rs` | a server that takes over |
//! | `error.rs` | why a server does not start, go on, or leave its disks, as an enum |
//! | `confine.rs`, `notify.rs` | rights that a server gives up; what systemd is told |
//! | `logs.rs`, `disk_events.rs` | the log |
//! | `measure.rs`, `metrics.rs`, `metrics/` | what the socket and the metrics show of a disk |

#![forbid(unsafe_code)]

mod answer;
mod compare;
mod config;
mod confine;
mod disk_events;
mod door;
pub mod doors;
mod end;
mod error;
mod handover;
mod inherited;
mod leave;
#[cfg(test)]
mod log_pages;
pub mod logs;
mod measure;
mod metrics;
mod notify;
mod once;
mod open_disks;
mod opening;
mod predecessors;
mod prove;
mod running;
mod served;
mod server;
#[cfg(test)]
mod socket_tests;

pub use answer::Serving;
pub use compare::{CompareClients, WantedDisk, WantedDoor};
pub use config::{Config, OpenSpec, Takeover};
pub use confine::drop_rights;
pub use door::{Door, Doors, leave_disks_and_flush, listen_at};
pub use end::Stopper;
pub use error::{Difference, ServeError};
pub use handover::HandOver;
pub use inherited::Inherited;
pub use notify::refused;
pub use once::{FileOrder, NamedAddress, addresses as check_addresses};
pub use open_disks::{NamedDisk, OpenDisks};
pub use prove::raise_open_files;
pub use served::{AddClients, DoorAttributes, Network, OpenDisk, Origin, PassedDisk, Served};
pub use server::{Announcement, Ended, Server, check};
pub use zoneplug_control::{
    Access, Attempt, ControlError, Failure, Forbidden, Kind, check_socket, client, said,
};
