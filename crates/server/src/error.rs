//! Errors of servers.

use std::fmt;
use std::net::SocketAddr;
use zoneplug_control::Failure;
use zoneplug_control::client::DIRECTORY;
use zoneplug_core::{Error, ErrorDetail, ErrorKind, Hint, plain};
use zoneplug_host::OpenFiles;

/// The reason why a server does not start, does not go on, or does not take disks over or leave them.
/// [`Error::detail`](zoneplug_core::Error::detail) returns it. Failures of a disk have the enum of the disk's family, and
/// failures of system calls an [`std::io::Error`] as their source.
///
/// ```
/// use zoneplug_core::Error;
/// use zoneplug_server::{NamedAddress, ServeError, check_addresses};
/// let at = |key, text: &str| NamedAddress { key, address: text.parse().unwrap() };
/// let both = [at("nvme-tcp", "127.0.0.1:4420"), at("metrics", "0.0.0.0:4420")];
/// let (key, failure) = check_addresses(&both).unwrap_err();
/// let e = Error::from(failure);
/// assert_eq!(key, "metrics");
/// assert!(matches!(e.detail(), Some(ServeError::AddressTwice { other, .. }) if other.port() == 4420));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ServeError {
    /// No disk is named.
    NoDisk,
    /// A door would have a disk twice, or two doors would write to one.
    DiskTwice {
        /// The specification of the disk.
        disk: String,
        /// The other specification of the disk. It may be equal.
        other: String,
    },
    /// The server would listen twice at an address.
    AddressTwice {
        /// The address.
        address: SocketAddr,
        /// The other address: an equal one, or one that stands for all addresses of the machine.
        other: SocketAddr,
    },
    /// Two disks would write their traces to one file.
    TraceTwice {
        /// The file.
        path: String,
        /// The specification of a disk.
        disk: String,
        /// The specification of the other disk.
        other: String,
    },
    /// Another server of this machine has the name under which clients would know this one.
    NameTaken {
        /// The name.
        name: String,
        /// The option that sets the name.
        option: &'static str,
    },
    /// The system does not let the server give up rights that it does not need.
    NotConfined {
        /// The system call.
        call: &'static str,
        /// The error.
        because: String,
    },
    /// The device mapper does not join the devices of a disk.
    DeviceMapper {
        /// The arguments of `dmsetup`.
        command: String,
        /// The error.
        because: String,
    },
    /// A joined device stays when its server ends.
    NotRemoved {
        /// The device.
        path: String,
    },
    /// A door has ended by itself, and with it the server.
    DoorFailed {
        /// The address or the device of the door.
        at: String,
        /// The reason.
        because: String,
        /// The end of the hint: how clients go on, or where the system says more.
        then: &'static str,
    },
    /// The server has no such disk.
    NotServed {
        /// The name of the disk.
        disk: String,
        /// The names of the disks of the server.
        served: Vec<String>,
    },

    /// The disks are a program's, which leaves them to no other.
    OfProgram,
    /// The server does not leave a disk that would not outlast it.
    EndsWithServer {
        /// The name of the disk.
        disk: String,
        /// The specification of the disk.
        spec: String,
    },
    /// The server does not leave its disks while a client has paused one.
    Paused,
    /// The server does not leave a disk with requests that are not answered.
    Unanswered {
        /// The name of the disk.
        disk: String,
    },
    /// The server does not leave a disk that it cannot stop.
    NotStopped {
        /// The name of the disk.
        disk: String,
        /// The error.
        because: String,
        /// The hint: what to try.
        hint: Option<Hint>,
    },
    /// The server does not leave a disk whose data it cannot make durable.
    NotDurable {
        /// The name of the disk.
        disk: String,
        /// The error.
        because: String,
    },

    /// This server would not serve a disk of the running server as that one does.
    DiskDiffers {
        /// The process of the running server.
        process: u32,
        /// The name of the disk there.
        disk: String,
        /// The specification of the disk there.
        spec: String,
        /// The difference.
        difference: Difference,
    },
    /// Clients of an earlier server would find something changed.
    ClientsDiffer {
        /// The process of the running server, if it is not another one that has ended.
        process: Option<u32>,
        /// The difference.
        difference: Difference,
    },
    /// A disk has changed while it was compared.
    Changed {
        /// The specification of the disk, if it is known which one has.
        disk: Option<String>,
    },
    /// The server that is to be replaced is another one than the server of a disk.
    OtherServer {
        /// The process of the server that has the disk.
        process: u32,
    },
    /// The server that is to be replaced has none of the disks.
    OtherDisks {
        /// The process of the server.
        process: u32,
    },
    /// The server that is to be replaced cannot be asked.
    Unreachable {
        /// The process of the server.
        process: u32,
        /// The socket at which it was asked beside those in the usual directory.
        socket: Option<String>,
    },
    /// The running server does not hand its disks over.
    NotHandedOver {
        /// The process of the server.
        process: u32,
        /// The server's reason.
        because: String,
    },
    /// The running server is of another version, and the two do not understand each other.
    OtherVersion {
        /// The process of the server.
        process: u32,
        /// The version of the server.
        version: String,
        /// Whether its record can be read. It passes no open disks on then.
        is_readable: bool,
    },
    /// The running server does not say what it serves.
    NoRecord {
        /// The process of the server.
        process: u32,
        /// The error.
        because: String,
    },
    /// The running server leaves its disks to another one already.
    UnderWay {
        /// The process of the running server.
        process: u32,
        /// The process of the server that takes its disks over.
        next: u32,
    },
    /// A server that had to end to free its disks has not ended.
    DoesNotEnd {
        /// The process of the server.
        process: u32,
    },
    /// The file system of a disk has become read-only while a server had the disk open.
    ReadOnly,
    /// This server may not open as many files as the running one.
    TooFewFiles {
        /// The limit of open files.
        limit: u64,
        /// The files that it needs.
        needed: u64,
    },
}

/// A difference that clients would find.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The difference.
    pub what: String,
    /// The hint: what to try.
    pub hint: String,
}

impl Difference {
    /// A difference with a hint.
    pub fn new(what: impl Into<String>, hint: impl Into<String>) -> Difference {
        Difference { what: what.into(), hint: hint.into() }
    }
}

impl fmt::Display for ServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServeError::NoDisk => write!(f, "no disk is to be served"),
            ServeError::DiskTwice { disk, other } if disk == other => {
                write!(f, "{} is named twice", plain(disk))
            }
            ServeError::DiskTwice { disk, other } => {
                write!(f, "{} and {} are one disk", plain(other), plain(disk))
            }
            ServeError::AddressTwice { address, other } if address == other => {
                write!(f, "{address} is given twice")
            }
            ServeError::AddressTwice { address, other } => {
                write!(f, "{address} is also {other}: one of all addresses of this machine")
            }
            ServeError::TraceTwice { disk, other, .. } => {
                write!(f, "{} and {} trace into one file", plain(other), plain(disk))
            }
            ServeError::NameTaken { name, .. } => {
                write!(f, "another server of this machine serves {}", plain(name))
            }
            ServeError::NotConfined { call, because } => {
                write!(f, "the server cannot give up its rights: {call}: {because}")
            }
            ServeError::DeviceMapper { command, because } => {
                write!(f, "dmsetup {command}: {because}")
            }
            ServeError::NotRemoved { path } => write!(f, "{path} is not removed"),
            ServeError::DoorFailed { at, because, .. } => write!(f, "{at}: {because}"),
            ServeError::NotServed { disk, .. } => write!(f, "{disk} is not served here"),
            ServeError::OfProgram => write!(f, "a program has these disks for itself"),
            ServeError::EndsWithServer { disk, spec } => {
                write!(f, "{disk} goes with its server: {}", plain(spec))
            }
            ServeError::Paused => write!(f, "a client has paused a disk, to copy it"),
            ServeError::Unanswered { disk } => {
                write!(f, "{} does not answer what was begun", plain(disk))
            }
            ServeError::NotStopped { disk, because, .. } => {
                write!(f, "{}: {because}", plain(disk))
            }
            ServeError::NotDurable { disk, because } => {
                let disk = plain(disk);
                write!(f, "{disk}: what was written cannot be made durable: {because}")
            }
            ServeError::DiskDiffers { process, disk, spec, difference } => {
                let (disk, spec, what) = (plain(disk), plain(spec), &difference.what);
                write!(f, "process {process} serves {disk} from {spec}, {what}")
            }
            ServeError::ClientsDiffer { process: Some(process), difference } => {
                write!(f, "process {process} serves {}", difference.what)
            }
            ServeError::ClientsDiffer { process: None, difference } => {
                f.write_str(&difference.what)
            }
            ServeError::Changed { disk: None } => {
                write!(f, "the file or the key of a disk has changed while it was compared")
            }
            ServeError::Changed { disk: Some(disk) } => {
                write!(f, "{} is not what it was when it was compared", plain(disk))
            }
            ServeError::OtherServer { process } => write!(
                f,
                "process {process} has one of the disks, and is another server than the one that reloads"
            ),
            ServeError::OtherDisks { process } => write!(
                f,
                "process {process} serves none of these disks: a server of other disks would be started beside it"
            ),
            ServeError::Unreachable { process, socket: None } => {
                write!(f, "process {process} answers at no socket in {DIRECTORY}")
            }
            ServeError::Unreachable { process, socket: Some(path) } => write!(
                f,
                "process {process} answers at no socket: neither {path} nor one in {DIRECTORY}"
            ),
            ServeError::NotHandedOver { process, because } => {
                write!(f, "process {process} cannot hand its disks over: {because}")
            }
            ServeError::OtherVersion { process, version, is_readable: true } => write!(
                f,
                "process {process} is of version {}, which passes no open disks on",
                plain(version)
            ),
            ServeError::OtherVersion { process, version, is_readable: false } => write!(
                f,
                "process {process} is of version {}, and what it would leave this version does not read",
                plain(version)
            ),
            ServeError::NoRecord { process, because } => {
                write!(f, "process {process} does not say what it serves: {because}")
            }
            ServeError::UnderWay { process, next } => write!(
                f,
                "another hand-over is under way: process {next} takes over from process {process}"
            ),
            ServeError::DoesNotEnd { process } => {
                write!(f, "process {process} does not end, and still has the disks")
            }
            ServeError::ReadOnly => write!(f, "the file system of a disk is read-only now"),
            ServeError::TooFewFiles { limit, needed } => {
                write!(f, "this server may open {limit} files, and needs {needed}")
            }
        }
    }
}

impl std::error::Error for ServeError {}

impl ErrorDetail for ServeError {
    fn kind(&self) -> ErrorKind {
        match self {
            ServeError::NoDisk
            | ServeError::DiskTwice { .. }
            | ServeError::AddressTwice { .. }
            | ServeError::TraceTwice { .. } => ErrorKind::Invalid,
            ServeError::NotServed { .. } => ErrorKind::NotFound,
            ServeError::NotConfined { .. } | ServeError::OfProgram => ErrorKind::NotSupported,
            ServeError::DoorFailed { .. }
            | ServeError::NotStopped { .. }
            | ServeError::NotDurable { .. } => ErrorKind::Io,
            _ => ErrorKind::Busy,
        }
    }

    fn hint(&self) -> Option<Hint> {
        /// Ends a server that cannot hand over.
        const KILL: &str = "kill -9 that process: the next server goes on with its devices";
        Some(match self {
            ServeError::NoDisk => "a disk for one of the doors".into(),
            ServeError::DiskTwice { disk, other } if disk == other => "each disk once".into(),
            ServeError::DiskTwice { .. } => "each disk once, by whichever of its names".into(),
            ServeError::AddressTwice { .. } => {
                "each address once; metrics have a port of their own".into()
            }
            ServeError::TraceTwice { path, .. } => {
                format!("a file for each, not {}", plain(path)).into()
            }
            ServeError::NameTaken { option, .. } => Hint::from("")
                .option_with(option, "NAME")
                .text(" of its own; ")
                .option("takeover")
                .text(" with all disks of that server, and ")
                .option("socket")
                .text(" as it has it; zoneplug status"),
            ServeError::NotConfined { .. } => {
                "zoneplug needs a kernel with CONFIG_SECCOMP_FILTER; a container manager may also forbid prctl(2)"
                    .into()
            }
            ServeError::DeviceMapper { .. } => {
                Hint::from("the package dmsetup, and modprobe dm_mod; or without ")
                    .option("join")
                    .text(", and the table that is printed then")
            }
            ServeError::NotRemoved { .. } => "dmsetup remove, and its name".into(),
            ServeError::DoorFailed { then, .. } => format!("start it again; {then}").into(),
            ServeError::NotServed { served, .. } => {
                format!("served: {}", served.join(", ")).into()
            }
            ServeError::OfProgram => "end that program first".into(),
            ServeError::EndsWithServer { .. } => Hint::from("disks in files, and no ")
                .option("no-recovery")
                .text("; or end that server first"),
            ServeError::Paused => {
                "again, when that has ended: a pause takes a minute at most".into()
            }
            ServeError::Unanswered { .. } => "zoneplug status; again, when it answers".into(),
            ServeError::NotStopped { hint, .. } => return hint.clone(),
            ServeError::NotDurable { .. } => {
                "its clients are told at their next flush; mend what is below, end this server and start it again"
                    .into()
            }
            ServeError::DiskDiffers { difference, .. }
            | ServeError::ClientsDiffer { difference, .. } => difference.hint.clone().into(),
            ServeError::Changed { .. } => "again".into(),
            ServeError::OtherServer { .. } => {
                "without the disks of that server (zoneplug status names them), or end it first"
                    .into()
            }
            ServeError::OtherDisks { .. } => {
                "the disks that it serves, and further ones; to serve others in their place: systemctl restart"
                    .into()
            }
            ServeError::Unreachable { .. } => Hint::from("").option("socket").text(
                " (socket in the file) as that server has it; zoneplug status; or systemctl restart",
            ),
            ServeError::NotHandedOver { .. }
            | ServeError::OtherVersion { is_readable: true, .. } => KILL.into(),
            ServeError::OtherVersion { is_readable: false, .. } => {
                "unmount what is on its disks, and end it; then start this one".into()
            }
            ServeError::NoRecord { .. } => "zoneplug status".into(),
            ServeError::UnderWay { process, next } => format!(
                "again, when process {next} serves (zoneplug status); if it stands still: kill -9 {next}, and process {process} goes on"
            )
            .into(),
            ServeError::DoesNotEnd { process } => format!(
                "kill {process} (zoneplug status shows what it serves), and start this again"
            )
            .into(),
            ServeError::ReadOnly => "mount -o remount,rw; dmesg says why".into(),
            ServeError::TooFewFiles { .. } => OpenFiles::WAY.into(),
        })
    }
}

impl From<ServeError> for Failure {
    fn from(e: ServeError) -> Failure {
        Failure::from(Error::from(e))
    }
}
