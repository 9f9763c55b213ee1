//! Errors of questions to servers, and of their answers.

use rustix::io::Errno;
use std::fmt;
use std::io;
use std::time::Duration;
use zoneplug_core::{ErrorDetail, ErrorKind, Hint, plain};
use zoneplug_host::{Attempt, os_error};

/// The reason why a question at a control socket is not answered, or why there is no socket.
/// [`Error::detail`](zoneplug_core::Error::detail) returns it.
///
/// ```
/// use std::path::Path;
/// use zoneplug_control::{ControlError, client};
/// use zoneplug_core::Error;
/// let Err(failure) = client::find("ublkb0", Some(Path::new("/nowhere/socket"))) else { panic!() };
/// let e = Error::from(failure);
/// assert!(matches!(e.detail(), Some(ControlError::NotListening { path, .. }) if path == "/nowhere/socket"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ControlError {
    /// The line is not a question.
    NotAQuestion {
        /// The error of the parser.
        because: String,
    },
    /// This user may not ask.
    NotPermitted {
        /// The thing that is another user's.
        what: Forbidden,
    },
    /// The process serves no disk of its own, so it has none to leave.
    NoTakeover,
    /// Another server has asked for the disks, so nothing of them changes any more.
    BeingLeft {
        /// The process of that server, if it is known.
        to: Option<u32>,
    },
    /// The server answers as many clients as it can.
    TooManyClients,
    /// The system gives the server no thread for another client.
    NoThread,
    /// The connection has no pause that it could end.
    NoPause,
    /// The pause would be too long.
    PauseTooLong {
        /// The longest pause.
        longest: Duration,
    },
    /// The disk is not paused, because it cannot make its data durable.
    NotFlushed {
        /// The error of the flush.
        because: String,
    },
    /// There is no control socket at a path, and none can be made.
    NoSocket {
        /// The path.
        path: String,
        /// The kind of the system's error.
        kind: io::ErrorKind,
        /// The number of the system's error, if it has one.
        errno: Option<i32>,
        /// The system's error.
        because: String,
    },
    /// The server has answered that it does not do what it was asked to.
    Refused {
        /// The kind of the server's error.
        kind: ErrorKind,
        /// The server's text.
        what: String,
        /// The hint, in the server's words.
        hint: String,
    },
    /// No server listens on a socket.
    NotListening {
        /// The socket.
        path: String,
        /// The system's error.
        because: String,
    },
    /// A server has not answered in time.
    Late {
        /// The socket of the server.
        path: String,
        /// The process of the server, if it is known.
        process: Option<u32>,
        /// The time that it had.
        patience: Duration,
    },
    /// A connection to a server has ended without an answer.
    NoAnswer {
        /// The socket of the server.
        path: String,
        /// The process of the server, if it is known.
        process: Option<u32>,
        /// The error of the connection.
        because: String,
    },
    /// The answer of a server is not one that this version knows.
    BadAnswer {
        /// The error of the parser.
        because: String,
    },
    /// A server has not passed its open files on.
    NoFiles {
        /// The error of the connection.
        because: String,
    },
    /// No server of this machine has the disk.
    NoServer {
        /// The name of the disk.
        disk: String,
    },
}

/// Something that is another user's.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Forbidden {
    /// The server.
    Server,
    /// A question that ends or replaces the server, or gives its data away.
    Question,
    /// The socket of a server.
    Socket {
        /// The socket.
        path: String,
        /// The system's error.
        because: String,
    },
    /// The directory with the sockets of servers.
    Directory {
        /// The directory.
        path: String,
    },
}

/// The subject of a sentence about a process.
fn named(process: Option<u32>) -> String {
    process.map_or_else(|| "the server".to_owned(), |process| format!("process {process}"))
}

/// Whether the number of an error says that too many files are open.
fn is_of_files(errno: i32) -> bool {
    matches!(Errno::from_raw_os_error(errno), Errno::MFILE | Errno::NFILE)
}

impl fmt::Display for Forbidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Forbidden::Server => write!(f, "this server is another user's"),
            Forbidden::Question => write!(f, "only the user of this server and root may ask that"),
            Forbidden::Socket { path, because } => write!(f, "{path} may not be asked: {because}"),
            Forbidden::Directory { path } => {
                write!(f, "this user may not see the servers in {path}")
            }
        }
    }
}

impl fmt::Display for ControlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ControlError::NotAQuestion { because } => write!(f, "not a question: {because}"),
            ControlError::NotPermitted { what } => what.fmt(f),
            ControlError::NoTakeover => {
                write!(f, "this process serves no disk that another could take over")
            }
            ControlError::BeingLeft { to: None } => {
                write!(f, "the disks are being left to another server")
            }
            ControlError::BeingLeft { to: Some(process) } => {
                write!(f, "the disks are being left to process {process}")
            }
            ControlError::TooManyClients | ControlError::NoThread => {
                write!(f, "the server has no place for another question")
            }
            ControlError::NoPause => {
                write!(f, "this connection has no pause, or its time is over")
            }
            ControlError::PauseTooLong { longest } => {
                write!(f, "a pause is no longer than {longest:?}")
            }
            ControlError::NotFlushed { because } => {
                write!(f, "the disk cannot be flushed: {because}")
            }
            ControlError::NoSocket { path, because, .. } => {
                write!(f, "no socket at {}: {because}", plain(path))
            }
            ControlError::Refused { what, .. } => f.write_str(what),
            ControlError::NotListening { path, because } => {
                write!(f, "no server listens on {path}: {because}")
            }
            ControlError::Late { path, process, patience } => {
                let (which, path, s) = (named(*process), plain(path), patience.as_secs_f64());
                write!(f, "{which} does not answer at {path} in {s} s")
            }
            ControlError::NoAnswer { path, process, because } => {
                write!(f, "{} does not answer at {}: {because}", named(*process), plain(path))
            }
            ControlError::BadAnswer { because } => {
                write!(f, "the server's answer cannot be read: {because}")
            }
            ControlError::NoFiles { because } => {
                write!(f, "the server passes no files on: {because}")
            }
            ControlError::NoServer { disk } => write!(f, "no server has {disk}"),
        }
    }
}

impl std::error::Error for ControlError {}

impl ErrorDetail for ControlError {
    fn kind(&self) -> ErrorKind {
        match self {
            ControlError::NotAQuestion { .. }
            | ControlError::NoPause
            | ControlError::PauseTooLong { .. } => ErrorKind::Invalid,
            ControlError::NoTakeover | ControlError::NotPermitted { .. } => ErrorKind::NotSupported,
            ControlError::NotFlushed { .. } | ControlError::BadAnswer { .. } => ErrorKind::Io,
            ControlError::NoSocket { kind, .. } => match kind {
                // The path is unusable for later starts too.
                io::ErrorKind::AlreadyExists
                | io::ErrorKind::InvalidInput
                | io::ErrorKind::NotADirectory => ErrorKind::Invalid,
                io::ErrorKind::PermissionDenied => ErrorKind::NotSupported,
                io::ErrorKind::NotFound => ErrorKind::NotFound,
                _ => ErrorKind::Busy,
            },
            ControlError::Refused { kind, .. } => *kind,
            ControlError::NotListening { .. } | ControlError::NoServer { .. } => {
                ErrorKind::NotFound
            }
            ControlError::BeingLeft { .. }
            | ControlError::TooManyClients
            | ControlError::NoThread
            | ControlError::Late { .. }
            | ControlError::NoAnswer { .. }
            | ControlError::NoFiles { .. } => ErrorKind::Busy,
        }
    }

    fn hint(&self) -> Option<Hint> {
        Some(match self {
            ControlError::NotAQuestion { .. } => r#"a line such as {"cmd":"status"}"#.into(),
            ControlError::NotPermitted { what } => match what {
                Forbidden::Server | Forbidden::Question => "as its user, or as root".into(),
                Forbidden::Socket { .. } => "as root".into(),
                Forbidden::Directory { .. } => {
                    "as root, or as a member of the group zoneplug".into()
                }
            },
            ControlError::NoTakeover => "zoneplug status shows what is served".into(),
            ControlError::BeingLeft { to } => {
                let again = "again, when it serves them (zoneplug status)";
                match to {
                    None => again.into(),
                    Some(pid) => format!(
                        "{again}; if it stands still: kill -9 {pid}, and this server goes on"
                    )
                    .into(),
                }
            }
            ControlError::TooManyClients => "again, when the others are answered".into(),
            ControlError::NoThread => "more threads for the server (ulimit -u, TasksMax=)".into(),
            ControlError::NoPause => {
                r#"{"cmd":"pause","disk":"ublkb0","most_ms":1000} begins one"#.into()
            }
            ControlError::PauseTooLong { .. } => "a shorter one".into(),
            ControlError::NotFlushed { .. } => "zoneplug status".into(),
            ControlError::NoSocket { errno: Some(errno), .. } if is_of_files(*errno) => {
                let e = io::Error::from_raw_os_error(*errno);
                return os_error(Attempt::Descriptor, "", e).remedy().cloned();
            }
            ControlError::NoSocket { kind, .. } => {
                Hint::from("").option_with("socket", "PATH").text(match kind {
                    io::ErrorKind::AddrInUse => " of its own: another process answers at this one",
                    io::ErrorKind::AlreadyExists => " where nothing is yet, or another socket",
                    _ => ", in an existing directory where this user may make a socket",
                })
            }
            ControlError::Refused { hint, .. } => hint.clone().into(),
            ControlError::NotListening { .. } => {
                Hint::from("the ").option("socket").text(" that zoneplug serve was given")
            }
            ControlError::Late { process: Some(pid), .. } => {
                format!("kill -CONT {pid}, if it is stopped; its log, if its disk hangs").into()
            }
            ControlError::Late { process: None, .. } => "its log".into(),
            ControlError::NoAnswer { .. } | ControlError::NoFiles { .. } => {
                "zoneplug status; the server may have ended".into()
            }
            ControlError::BadAnswer { .. } => "the version of zoneplug that serves the disk".into(),
            ControlError::NoServer { .. } => Hint::from("zoneplug status shows what is served; ")
                .option_with("socket", "PATH")
                .text(" asks a server that has its socket elsewhere"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zoneplug_core::Error;

    /// A missing directory is *not found*, and too many open files are not blamed on the path.
    #[test]
    fn the_reason_for_no_socket_is_told() {
        let of = |errno: Errno| {
            let e = io::Error::from(errno);
            let (path, because) = ("/run/s".to_owned(), e.to_string());
            let (kind, errno) = (e.kind(), e.raw_os_error());
            let e = Error::from(ControlError::NoSocket { path, kind, errno, because });
            (e.kind(), e.what_to_try().unwrap_or_default().to_owned())
        };
        let (kind, hint) = of(Errno::NOENT);
        assert_eq!(kind, ErrorKind::NotFound);
        assert!(hint.ends_with("in an existing directory where this user may make a socket"));
        let process = "more open files (ulimit -n, LimitNOFILE= in a unit)";
        assert_eq!(of(Errno::MFILE), (ErrorKind::Busy, process.to_owned()));
        assert_eq!(of(Errno::NFILE), (ErrorKind::Busy, "a higher sysctl fs.file-max".to_owned()));
    }
}
