//! The control socket's protocol, and the side of other commands, which find servers and ask them.
//!
//! A server listens on a Unix socket in `/run/zoneplug`, or at the path of `--socket`. A client sends one line of
//! JSON and gets one back; it may send further lines.

pub mod all;
mod io_shown;
mod measured;
mod timed;
pub mod zones;

use crate::descriptors;
use crate::error::ControlError;
use crate::failure::{Failure, Kind};
use crate::names::{is_name, name_of};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;
use zoneplug_core::disk::Attribute;

pub use all::{Asked, LIST_LIMIT, Silent, ask_at, disks_of_all};
pub use io_shown::IoShown;
pub use measured::{LatencyShown, OperationShown, ZoneSlow, ZoneWaiting};
pub use timed::Timed;

/// Where servers have their sockets.
pub const DIRECTORY: &str = "/run/zoneplug";
/// How long a server may take to answer: it may drain a disk to change an attribute.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);
/// Longest line: room for the plugs of a large disk.
const MAX_LINE: u64 = 64 << 20;

/// A request of a client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "cmd", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// Show the disks with their counters.
    Status {},
    /// Show the attributes of a disk.
    Attributes { disk: String },
    /// Set an attribute.
    Set { disk: String, name: String, value: String },
    /// Show the plugs of a disk.
    ZoneWplugs { disk: String },
    /// Show `count` zones of a disk from `first` on, or all from there on, in at most `cells` cells.
    Zones {
        disk: String,
        #[serde(default)]
        first: u32,
        count: Option<u32>,
        cells: Option<u32>,
    },
    /// Make acknowledged data durable, then hold back the I/O of a disk, until `resume` or the end of this connection, but at most
    /// this many milliseconds.
    Pause { disk: String, most_ms: u64 },
    /// Release the disk that this connection has paused.
    Resume {},
    /// Show the state that a next server would take over.
    State {},
    /// Pass on the open files of a disk, or without a disk the sockets at which the server listens for I/O and
    /// metrics. They are sent before the answer. The answer lists, in order, how many of the files belong to each disk below the
    /// served one.
    Pass { disk: Option<String> },
    /// Leave all disks to the server that asks. The answer says that they are left. If the connection then ends
    /// without `served`, the server takes them back.
    HandOver {},
    /// Report that all disks are served: the server that left them ends.
    Served {},
}

impl Request {
    /// Whether only the server's user and root may send it, because it ends or replaces the server, or gives data
    /// away.
    pub fn is_of_owner(&self) -> bool {
        matches!(self, Request::Pass { .. } | Request::HandOver {} | Request::Served {})
    }
}

/// The state that a next server would take over. A server of another version may send only `state` and `version`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateShown {
    /// The version of the format of this state (`STATE_VERSION` of `zoneplug-host`).
    pub state: u64,
    /// The version of zoneplug.
    pub version: String,
    pub disks: Vec<StateOfDisk>,
    /// Whether the server passes on its open files. Earlier versions do not.
    #[serde(default)]
    pub passes_on: bool,
    /// Number of open descriptors.
    #[serde(default)]
    pub descriptors: u64,
    /// The NVMe subsystem, if the server has one.
    #[serde(default)]
    pub subsystem: Option<StateOfSubsystem>,
    /// The initiators without secrets for which the server reserves connections.
    #[serde(default)]
    pub known_initiators: Vec<KnownHostShown>,
    /// The process to which the server is handing its disks over.
    #[serde(default)]
    pub handed_over_to: Option<u32>,
}

/// The NVMe subsystem of a server, as hosts know it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateOfSubsystem {
    pub nqn: String,
    /// The addresses with their ANA states.
    pub paths: Vec<PathShown>,
    /// ZASL, the size limit of appends.
    pub append_limit: u8,
    pub namespaces: Vec<StateOfNamespace>,
    /// The connected hosts.
    pub hosts: Vec<HostShown>,
    /// For each host with a key, a check value. A next server that computes another one would refuse the host's present
    /// authentication.
    #[serde(default)]
    pub key_checks: BTreeMap<String, String>,
    /// The hosts without keys for which the server reserves connections.
    #[serde(default)]
    pub known_hosts: Vec<KnownHostShown>,
}

/// A host, or an initiator, for which a server reserves connections.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownHostShown {
    /// The NQN, or the name of the initiator.
    pub nqn: String,
    pub address: String,
}

/// A namespace as hosts know it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateOfNamespace {
    pub nsid: u32,
    /// The name of its disk.
    pub disk: String,
    pub block_bytes: u32,
    pub blocks: u64,
    pub zone_blocks: Option<u64>,
    /// A digest of all other properties that hosts read of it: `ShownNamespace` of `zoneplug-host`.
    pub digest: u64,
}

/// A disk that a next server would take over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateOfDisk {
    /// The name of the disk: `ublkb0`; `tcp4420n1` for namespace 1 at port 4420.
    pub name: String,
    pub spec: String,
    /// The name of its door. Earlier versions do not send it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub door: Option<String>,
    /// A hash of the disks at the bottom (this and the next two are `DiskMark` of `zoneplug-host`).
    pub disks: u64,
    /// A hash of the layers above them.
    pub layers: u64,
    /// A hash of the place where they are.
    pub place: u64,
    /// Whether the disk outlives the server.
    pub outlives: bool,
    /// Its address, if it is served over the network.
    pub address: Option<String>,
    /// The UUID from which those of its namespaces are made, in hexadecimal.
    #[serde(default)]
    pub uuid: Option<String>,
    /// Whether hosts see the disk.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// Attributes that were set over the control socket while the disk was served.
    #[serde(default)]
    pub set: BTreeMap<String, String>,
}

impl StateOfDisk {
    /// The name of its door.
    pub fn door(&self) -> &str {
        // Earlier versions have only these two doors.
        let usual = if self.address.is_some() { "nvme-tcp" } else { "ublk" };
        self.door.as_deref().unwrap_or(usual)
    }

    /// The UUID from which those of its namespaces are made.
    pub fn uuid(&self) -> Option<[u8; 16]> {
        let text = self.uuid.as_deref()?;
        u128::from_str_radix(text, 16).ok().filter(|_| text.len() == 32).map(u128::to_be_bytes)
    }

    /// The text form of a UUID.
    pub fn uuid_text(uuid: &[u8; 16]) -> String {
        format!("{:032x}", u128::from_be_bytes(*uuid))
    }
}

/// The answer to a request.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    Ok(Value),
    Error(FailureShown),
}

impl Answer {
    /// Reads an answer: a value, or the failure of the server. The outer error: the line is no answer.
    fn read(line: &[u8]) -> serde_json::Result<Result<Value, Failure>> {
        Ok(match serde_json::from_slice(line)? {
            Answer::Ok(value) => Ok(value),
            Answer::Error(w) => {
                let kind = Kind::from_code(w.code).error();
                Err(ControlError::Refused { kind, what: w.what, hint: w.hint }.into())
            }
        })
    }
}

/// A failure on its way from the server to the client's stderr.
#[derive(Debug, Serialize, Deserialize)]
pub struct FailureShown {
    pub code: u8,
    pub what: String,
    #[serde(rename = "try")]
    pub hint: String,
}

/// A served disk, as `zoneplug status` shows it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shown {
    /// The name of the disk: `ublkb0`; `tcp4420n1` for namespace 1 at port 4420.
    pub name: String,
    pub spec: String,
    pub capacity_bytes: u64,
    pub zones: u32,
    pub zone_bytes: u64,
    pub pid: u32,
    /// Whether its block device was taken over from a server that handed it over, ended or died. Always false for a disk that is
    /// served over the network.
    pub recovered: bool,
    /// Whether it was taken over from a server that handed it over.
    #[serde(default)]
    pub handed_over: bool,
    pub reads: u64,
    pub read_bytes: u64,
    pub writes: u64,
    pub written_bytes: u64,
    pub others: u64,
    pub errors: u64,
    pub replayed: u64,
    /// BIOs that wait in plugs.
    pub waiting: u64,
    pub live_plugs: u32,
    /// Writes that the order window holds now. Earlier versions do not send this and the next two.
    #[serde(default)]
    pub held: u64,
    /// Writes that the order window has held in total.
    #[serde(default)]
    pub held_total: u64,
    /// Writes that the order window has refused, because it had held them for too long.
    #[serde(default)]
    pub held_expired: u64,
    /// The address, the NVMe name and the connected hosts, if it is served over the network.
    #[serde(default)]
    pub address: Option<String>,
    #[serde(default)]
    pub nqn: Option<String>,
    #[serde(default)]
    pub hosts: Option<Vec<HostShown>>,
    /// Number of failed authentications of hosts.
    #[serde(default)]
    pub failed_authentications: u64,
    /// The data path of each file and drive below it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub io: Vec<IoShown>,
    /// The change that another program made to a file below it, so that its I/O fails.
    #[serde(default)]
    pub file_changed: Option<String>,
    /// Whether hosts see the disk.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// The addresses with their ANA states, if there are several addresses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<PathShown>,
    /// Measurements of the server. Another version may send fewer.
    #[serde(flatten)]
    pub measured: Measured,
}

/// Measurements of a disk, besides the counters in every version.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Measured {
    /// The server's version, and its start in seconds since 1970.
    pub version: String,
    pub started_unix_s: u64,
    /// Operations by kind, without kinds that have not occurred.
    pub operations: Vec<OperationShown>,
    /// Write commands sent by plugs; BIOs that waited in a plug; BIOs that another BIO's command carried; waiting
    /// BIOs that were aborted.
    pub issued: u64,
    pub parked: u64,
    pub merged: u64,
    pub aborted: u64,
    /// Commands that timed out, and those of them that the device has not returned.
    pub timeouts: u64,
    pub late: u64,
    /// Events by kind since the disk was opened.
    pub events: BTreeMap<String, u64>,
    /// Zones by condition, as the layer knows it. A zone with an unknown write pointer counts as `stale`.
    pub conditions: BTreeMap<String, u64>,
    /// The zones with the most waiting BIOs, and those with the slowest operations of the last minute: at most eight
    /// each.
    pub waiting_zones: Vec<ZoneWaiting>,
    pub slow_zones: Vec<ZoneSlow>,
}

fn yes() -> bool {
    true
}

/// One of several addresses of a disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathShown {
    pub address: String,
    pub ana_state: String,
}

/// A connected host of an NVMe/TCP server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostShown {
    pub nqn: String,
    /// Number of I/O queues.
    pub queues: u32,
    /// Whether it authenticated with a key.
    #[serde(default)]
    pub authenticated: bool,
}

/// An attribute of a disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttributeShown {
    pub name: String,
    pub value: String,
    pub writable: bool,
}

impl AttributeShown {
    pub fn of(a: &Attribute) -> AttributeShown {
        AttributeShown { name: a.name.to_owned(), value: a.value.clone(), writable: a.writable }
    }
}

/// A connection to a server, over its control socket.
pub struct Server {
    stream: BufReader<Timed>,
    path: PathBuf,
    /// Time for a request and its answer.
    patience: Duration,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Server {
    /// Connects. The server must answer each request within a minute.
    pub fn connect(path: &Path) -> io::Result<Server> {
        Self::connect_for(path, ANSWER_LIMIT)
    }

    /// Connects. The server must answer each request within `patience`.
    pub fn connect_for(path: &Path, patience: Duration) -> io::Result<Server> {
        let socket =
            socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        // The limit also holds for connect(2), which waits while the server accepts no connection.
        set_socket_timeout(&socket, Timeout::Send, Some(patience))?;
        net::connect(&socket, &SocketAddrUnix::new(path)?)?;
        let stream = BufReader::new(Timed::new(socket.into(), patience));
        Ok(Server { stream, path: path.to_owned(), patience })
    }

    /// Sets the time limit of further requests.
    pub fn with_patience(self, patience: Duration) -> Server {
        Server { patience, ..self }
    }

    /// Sets the time limit of further requests.
    pub fn set_patience(&mut self, patience: Duration) {
        self.patience = patience;
    }

    /// Sends a request and waits for the answer.
    pub fn ask(&mut self, request: &Request) -> Result<Value, Failure> {
        self.try_ask(request).unwrap_or_else(|e| {
            let pid = self.pid().map(|pid| pid.as_raw_nonzero().get());
            Err(all::no_answer(&self.path, pid, &e, self.patience).into())
        })
    }

    /// Like [`Server::ask`]. The outer error means that no answer came; it is of kind `InvalidData` if a line came that is none.
    fn try_ask(&mut self, request: &Request) -> io::Result<Result<Value, Failure>> {
        let mut line = serde_json::to_vec(request)?;
        line.push(b'\n');
        self.stream.get_mut().again(self.patience);
        // A server that refuses the connection may have closed it already; its answer can still be read.
        let sent = self.stream.get_mut().write_all(&line);
        let mut line = String::new();
        let read = (&mut self.stream).take(MAX_LINE).read_line(&mut line);
        if line.is_empty() || !line.ends_with('\n') {
            sent.and(read)?;
        }
        Answer::read(line.as_bytes()).map_err(|e| match line.ends_with('\n') {
            true => io::Error::new(io::ErrorKind::InvalidData, e),
            false => io::ErrorKind::UnexpectedEof.into(),
        })
    }

    /// Sends a request for open files, and waits for them and the answer. Bypasses the buffer, because a read that
    /// does not receive the files loses them.
    pub fn ask_for_files(&mut self, request: &Request) -> Result<(Value, Vec<OwnedFd>), Failure> {
        let gone = |e: io::Error| ControlError::NoFiles { because: e.to_string() };
        let mut line = serde_json::to_vec(request)?;
        line.push(b'\n');
        let timed = self.stream.get_mut();
        timed.again(self.patience);
        timed.write_all(&line).map_err(gone)?;
        let (mut files, mut text) = (Vec::new(), Vec::new());
        while !text.ends_with(b"\n") {
            let mut bytes = [0; 4096];
            timed.limit_read().map_err(gone)?;
            let got = descriptors::receive(timed.stream(), &mut bytes, &mut files).map_err(gone)?;
            text.extend_from_slice(&bytes[..got]);
            if got == 0 || text.len() as u64 > MAX_LINE {
                return Err(gone(io::ErrorKind::UnexpectedEof.into()).into());
            }
        }
        let answer = Answer::read(&text).map_err(|_| gone(io::ErrorKind::InvalidData.into()))?;
        Ok((answer?, files))
    }

    /// The path of the server's socket.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The server's process, if the kernel tells it.
    pub fn pid(&self) -> Option<rustix::process::Pid> {
        let socket = self.stream.get_ref().stream();
        rustix::net::sockopt::socket_peercred(socket).ok().map(|peer| peer.pid)
    }

    /// The disks that the server serves.
    pub fn disks(&mut self) -> Result<Vec<Shown>, Failure> {
        Ok(serde_json::from_value(self.ask(&Request::Status {})?)?)
    }
}

/// The paths of all servers' sockets in the usual directory. Empty if this user may not list it.
pub fn sockets() -> Vec<PathBuf> {
    sockets_in(Path::new(DIRECTORY)).unwrap_or_default()
}

/// The paths of the sockets in a directory.
fn sockets_in(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(directory)?.flatten();
    let mut all: Vec<PathBuf> = entries.map(|e| e.path()).collect();
    all.retain(|p| p.extension().is_some_and(|e| e == "sock"));
    all.sort();
    Ok(all)
}

/// Finds the server of a disk, if `disk` names a served one: `/dev/ublkb0`, `ublkb0`; if `socket` is given, any name of
/// a disk that is served there. `None`: `disk` is a specification to open.
pub fn find(disk: &str, socket: Option<&Path>) -> Result<Option<Server>, Failure> {
    if !is_name(disk) && socket.is_none() {
        return Ok(None);
    }
    let Asked { answered, silent } = disks_of_all(socket, LIST_LIMIT);
    for (server, disks) in answered {
        if disks.iter().any(|d| d.name == name_of(disk)) {
            return Ok(Some(server));
        }
    }
    // A server that does not answer may have the disk.
    if let Some(failure) = Silent::failure(silent) {
        return Err(failure);
    }
    if !is_name(disk) {
        return Ok(None);
    }
    if socket.is_none() && Path::new("/dev").join(name_of(disk)).exists() {
        // A block device of another program is opened like any other.
        return Ok(None);
    }
    Err(not_served(disk))
}

/// The failure if no server has a disk.
pub fn not_served(disk: &str) -> Failure {
    ControlError::NoServer { disk: name_of(disk).to_owned() }.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_lines_that_a_person_can_write() {
        let of = |s: &str| serde_json::from_str::<Request>(s);
        assert_eq!(of(r#"{"cmd":"status"}"#).ok(), Some(Request::Status {}));
        let set = of(r#"{"cmd":"set","disk":"ublkb0","name":"nomerges","value":"1"}"#).ok();
        let (disk, name, value) = ("ublkb0".into(), "nomerges".into(), "1".into());
        assert_eq!(set, Some(Request::Set { disk, name, value }));
        assert!(of(r#"{"cmd":"stop"}"#).is_err());
        assert!(of(r#"{"cmd":"status","disk":"x"}"#).is_err());
    }
}
