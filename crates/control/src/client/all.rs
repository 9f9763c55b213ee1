//! Asks all servers of this machine at once. A server that does not answer is reported, and does not hide the answers
//! of the others.

use super::{ANSWER_LIMIT, DIRECTORY, Request, Server, Shown, sockets_in};
use crate::error::{ControlError, Forbidden};
use crate::failure::Failure;
use serde_json::Value;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a server may take to list its disks, which does not wait for any disk.
pub const LIST_LIMIT: Duration = Duration::from_secs(5);

/// A server that did not answer, or the directory of servers that this user may not see.
#[derive(Debug)]
pub struct Silent {
    /// The socket of the server, or the directory.
    pub socket: PathBuf,
    /// Its process, if the kernel or the name of the socket tells it.
    pub pid: Option<i32>,
    /// Why there is no answer.
    pub failure: Failure,
}

/// The answers of servers.
#[derive(Debug)]
pub struct Asked<T> {
    /// Servers in the order of their sockets' names. Further requests have the usual time limit.
    pub answered: Vec<(Server, T)>,
    pub silent: Vec<Silent>,
}

impl Silent {
    /// The failure's message, in one line.
    pub fn what(&self) -> &str {
        self.failure.parts().what
    }

    /// The failure of a command that needs all answers. `None`: all servers answered.
    pub fn failure(all: Vec<Silent>) -> Option<Failure> {
        let mut all = all.into_iter().map(|s| s.failure);
        let first = all.next()?;
        let more = all.map(|f| format!("; {}", f.parts().what)).collect::<String>();
        let what = format!("{}{more}", first.parts().what);
        Some(first.worded(what))
    }
}

/// Asks all servers, or the named one, at once. An answer may be a refusal. Each server has `patience` to answer. If
/// this user may not see which servers run, their directory counts as a server that does not answer.
pub fn ask_all(
    named: Option<&Path>,
    request: &Request,
    patience: Duration,
) -> Asked<Result<Value, Failure>> {
    if let Some(path) = named {
        return ask_at(&[path.to_owned()], true, request, patience);
    }
    let (sockets, unseen) = match sockets_in(Path::new(DIRECTORY)) {
        Ok(all) => (all, None),
        Err(e) => (Vec::new(), unseen(&e)),
    };
    let mut asked = ask_at(&sockets, false, request, patience);
    asked.silent.extend(unseen);
    asked
}

/// The servers in the directory of sockets, which could not be listed for this reason. `None`: there are none.
fn unseen(e: &io::Error) -> Option<Silent> {
    (e.kind() == io::ErrorKind::PermissionDenied).then(|| {
        let what = Forbidden::Directory { path: DIRECTORY.to_owned() };
        let failure = ControlError::NotPermitted { what }.into();
        Silent { socket: DIRECTORY.into(), pid: None, failure }
    })
}

/// The disks of all servers, or of the named one.
pub fn disks_of_all(named: Option<&Path>, patience: Duration) -> Asked<Vec<Shown>> {
    with_disks(ask_all(named, &Request::Status {}, patience))
}

/// Reads the lists of disks. A refusal counts as no answer.
fn with_disks(asked: Asked<Result<Value, Failure>>) -> Asked<Vec<Shown>> {
    let Asked { answered, mut silent } = asked;
    let mut with_disks = Vec::new();
    for (server, answer) in answered {
        match answer.and_then(|value| Ok(serde_json::from_value(value)?)) {
            Ok(disks) => with_disks.push((server, disks)),
            Err(failure) => {
                let pid = server.pid().map(|pid| pid.as_raw_nonzero().get());
                silent.push(Silent { socket: server.path.clone(), pid, failure });
            }
        }
    }
    Asked { answered: with_disks, silent }
}

/// Asks the servers at these sockets. `named`: also report a socket without a server.
pub fn ask_at(
    sockets: &[PathBuf],
    named: bool,
    request: &Request,
    patience: Duration,
) -> Asked<Result<Value, Failure>> {
    let ask = |path: &Path| ask_one(path, named, request, patience);
    let outcomes = std::thread::scope(|scope| {
        let spawn = |path| std::thread::Builder::new().spawn_scoped(scope, move || ask(path));
        let started: Vec<_> = sockets.iter().map(|path| (path, spawn(path))).collect();
        let outcome = |(path, thread): (&PathBuf, io::Result<_>)| match thread {
            Ok(thread) => std::thread::ScopedJoinHandle::join(thread)
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            // The system refuses a further thread, so this server is asked in this thread.
            Err(_) => ask(path),
        };
        started.into_iter().map(outcome).collect::<Vec<_>>()
    });
    let mut asked = Asked { answered: Vec::new(), silent: Vec::new() };
    for outcome in outcomes {
        match outcome {
            Outcome::Answered(mut server, answer) => {
                server.patience = ANSWER_LIMIT;
                asked.answered.push((server, answer));
            }
            Outcome::Silent(silent) => asked.silent.push(silent),
            Outcome::Gone => {}
        }
    }
    asked
}

enum Outcome {
    Answered(Server, Result<Value, Failure>),
    Silent(Silent),
    /// The server has ended; its socket may still exist.
    Gone,
}

fn ask_one(path: &Path, named: bool, request: &Request, patience: Duration) -> Outcome {
    let mut server = match Server::connect_for(path, patience) {
        Ok(server) => server,
        Err(e) if !named && is_gone(&e) => return Outcome::Gone,
        Err(e) => return Outcome::Silent(not_connected(path, &e, patience)),
    };
    match server.try_ask(request) {
        Ok(answer) => Outcome::Answered(server, answer),
        Err(_) if !named && Server::connect_for(path, patience).is_err_and(|e| is_gone(&e)) => {
            Outcome::Gone
        }
        Err(e) => {
            let pid = server.pid().map(|pid| pid.as_raw_nonzero().get());
            let failure = no_answer(path, pid, &e, patience).into();
            Outcome::Silent(Silent { socket: path.to_owned(), pid, failure })
        }
    }
}

/// Whether the error is that of a socket that a killed server left behind.
fn is_gone(e: &io::Error) -> bool {
    matches!(e.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound)
}

fn not_connected(path: &Path, e: &io::Error, patience: Duration) -> Silent {
    let (shown, because) = (path.display().to_string(), e.to_string());
    let pid = path.file_stem().and_then(|name| name.to_str()?.parse().ok());
    let error = match e.kind() {
        io::ErrorKind::PermissionDenied => {
            ControlError::NotPermitted { what: Forbidden::Socket { path: shown, because } }
        }
        _ if is_late(e) => no_answer(path, pid, e, patience),
        _ => ControlError::NotListening { path: shown, because },
    };
    Silent { socket: path.to_owned(), pid, failure: error.into() }
}

/// Whether the error is that of a time limit.
fn is_late(e: &io::Error) -> bool {
    matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

/// The error of a running server that does not answer, or whose answer cannot be read.
pub(super) fn no_answer(
    path: &Path,
    pid: Option<i32>,
    e: &io::Error,
    patience: Duration,
) -> ControlError {
    let (path, because) = (path.to_string_lossy().into_owned(), e.to_string());
    let process = pid.map(i32::unsigned_abs);
    match e.kind() {
        io::ErrorKind::InvalidData => ControlError::BadAnswer { because },
        _ if is_late(e) => ControlError::Late { path, process, patience },
        _ => ControlError::NoAnswer { path, process, because },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::net::UnixListener;
    use std::time::Instant;

    /// Test servers in a directory of their own.
    struct Servers(PathBuf);

    impl Servers {
        fn new(name: &str) -> Servers {
            let dir = format!("zoneplug-all-{name}-{}", std::process::id());
            let dir = std::env::temp_dir().join(dir);
            let _ = std::fs::remove_dir_all(&dir);
            std::fs::create_dir_all(&dir).unwrap();
            Servers(dir)
        }

        fn path(&self, name: &str) -> PathBuf {
            self.0.join(name)
        }

        /// A server that accepts no connection, like a stopped process.
        fn stopped(&self, name: &str) -> UnixListener {
            UnixListener::bind(self.path(name)).unwrap()
        }

        /// A server that answers one request.
        fn answers(&self, name: &str, answer: &str) {
            let (listener, answer) = (self.stopped(name), format!("{answer}\n"));
            std::thread::spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                let _ = BufReader::new(&stream).read_line(&mut String::new());
                let _ = stream.write_all(answer.as_bytes());
            });
        }

        fn ask(&self, names: &[&str], patience: Duration) -> Asked<Vec<Shown>> {
            let paths: Vec<PathBuf> = names.iter().map(|n| self.path(n)).collect();
            with_disks(ask_at(&paths, false, &Request::Status {}, patience))
        }
    }

    impl Drop for Servers {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn disk(name: &str) -> String {
        let shown = Shown { name: name.to_owned(), ..Shown::default() };
        format!("{{\"ok\":[{}]}}", serde_json::to_string(&shown).unwrap())
    }

    /// T7: if several servers do not answer, the command waits only once.
    #[test]
    fn t7_servers_that_do_not_answer_are_named_and_hide_no_other() {
        let servers = Servers::new("stopped");
        let _stopped = ["1.sock", "3.sock", "4.sock"].map(|name| servers.stopped(name));
        servers.answers("2.sock", &disk("ublkb0"));
        servers.answers("5.sock", &disk("ublkb1"));
        servers.answers(
            "6.sock",
            "{\"error\":{\"code\":3,\"what\":\"another user's\",\"try\":\"x\"}}",
        );
        drop(servers.stopped("7.sock"));
        let names: Vec<String> = (1..=8).map(|n| format!("{n}.sock")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let start = Instant::now();
        let asked = servers.ask(&names, Duration::from_secs(2));
        assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());
        let disks: Vec<&str> =
            asked.answered.iter().flat_map(|(_, d)| d).map(|d| &*d.name).collect();
        assert_eq!(disks, ["ublkb0", "ublkb1"]);
        // A server that answered has more time for further requests.
        assert!(asked.answered.iter().all(|(server, _)| server.patience == ANSWER_LIMIT));
        assert_eq!(asked.silent.len(), 4, "the killed and the missing ones are none: {asked:?}");
        let me = std::process::id();
        let first = servers.path("1.sock");
        let line = format!("process {me} does not answer at {} in 2 s", first.display());
        assert_eq!(asked.silent[0].what(), line);
        assert_eq!(asked.silent[0].pid, Some(me as i32));
        assert_eq!(asked.silent[3].what(), "another user's");
        let failure = Silent::failure(asked.silent).unwrap().to_string();
        assert_eq!(failure.lines().count(), 2, "{failure}");
        assert!(failure.contains("4.sock") && failure.contains(&format!("kill -CONT {me}")));
        assert!(Silent::failure(Vec::new()).is_none());
    }

    /// T7: if a server's queue of connections is full too, only the name of its socket identifies it.
    #[test]
    fn t7_a_server_that_takes_no_connection_is_known_by_its_socket() {
        let servers = Servers::new("full");
        let path = servers.path("4711.sock");
        let listener = servers.stopped("4711.sock");
        rustix::net::listen(&listener, 0).unwrap();
        let _waits = Server::connect_for(&path, LIST_LIMIT).unwrap();
        let asked = servers.ask(&["4711.sock"], Duration::from_millis(200));
        let line = format!("process 4711 does not answer at {} in 0.2 s", path.display());
        assert_eq!(asked.silent[0].what(), line);
    }

    #[test]
    fn a_server_that_was_named_is_told_whatever_is_wrong_with_it() {
        let servers = Servers::new("named");
        let path = servers.path("none");
        let asked = ask_all(Some(&path), &Request::Status {}, LIST_LIMIT);
        assert!(asked.silent[0].what().starts_with("no server listens on "), "{asked:?}");
    }

    /// A line that is no answer is told apart from a connection that ended.
    #[test]
    fn a_line_that_is_no_answer_is_told() {
        let servers = Servers::new("garbage");
        for (name, line) in [("text", "hello"), ("json", "[1]"), ("empty", "")] {
            servers.answers(name, line);
            let asked = ask_all(Some(&servers.path(name)), &Request::Status {}, LIST_LIMIT);
            let [silent] = &asked.silent[..] else { panic!("{asked:?}") };
            let is_bad = matches!(silent.failure.detail(), Some(ControlError::BadAnswer { .. }));
            assert!(is_bad, "{name}: {silent:?}");
            servers.answers(&format!("{name} 2"), line);
            let mut server = Server::connect(&servers.path(&format!("{name} 2"))).unwrap();
            let e = server.ask(&Request::Status {}).unwrap_err();
            assert!(e.to_string().contains("the server's answer cannot be read"), "{e}");
        }
        let listener = servers.stopped("ends");
        let ends = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = BufReader::new(&stream).read_line(&mut String::new());
            let _ = stream.write_all(b"{\"ok\":");
        });
        let asked = ask_all(Some(&servers.path("ends")), &Request::Status {}, LIST_LIMIT);
        ends.join().unwrap();
        let e = asked.silent[0].failure.detail();
        assert!(matches!(e, Some(ControlError::NoAnswer { .. })), "{asked:?}");
    }
}
