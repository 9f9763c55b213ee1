//! A running server, from the point of view of the one that takes over from it.

use crate::error::ServeError;
use crate::handover::process_id;
use crate::{logs, notify};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde_json::Value;
use std::sync::mpsc;
use std::time::Duration;
use zoneplug_control::client::{Request, Server, StateShown};
use zoneplug_control::{Attempt, Failure, Kind};
use zoneplug_host::signals::{SignalEvent, Signals};

/// How long the running server may take to leave its disks: longer than it waits for its begun requests.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(45);
/// How long the running server may take to end, after a hand-over or if it could not close its disks.
const END_TIMEOUT: Timespec = Timespec { tv_sec: 30, tv_nsec: 0 };

/// How long the devices and addresses of a server that was killed or has handed over may take to become free.
pub(crate) const DISAPPEAR_TIMEOUT: Duration = Duration::from_secs(2);

/// How long the process of a server may take to end after its connection has ended. The kernel closes the files of a
/// dying process one after another.
const CLOSE_TIMEOUT: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// A server that will hand its disks over.
pub(crate) struct Running {
    server: Server,
    process: OwnedFd,
    pid: Pid,
}

impl Running {
    /// The server whose process is `pid`. `None`: the process has ended since the server answered.
    pub(crate) fn new(server: Server, pid: Pid) -> Result<Option<Running>, Failure> {
        match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(process) => Ok(Some(Running { server, process, pid })),
            Err(Errno::SRCH) => Ok(None),
            Err(e) => Err(Failure::new(Kind::Device, format!("process {pid}: {e}"))
                .hint("try again; zoneplug status shows the servers")),
        }
    }

    /// The connection to the server.
    pub(crate) fn connection(&mut self) -> &mut Server {
        &mut self.server
    }

    /// Makes the server leave its disks, and waits for that. Returns its final record, in which settings may differ from
    /// those of the first record. `None`: the server died, or sent no record that this version can read.
    pub(crate) fn make_leave_disks(
        &mut self,
        signals: &Signals,
    ) -> Result<Option<StateShown>, Failure> {
        self.server.set_patience(LEAVE_TIMEOUT);
        let mut left = match self.ask_to_leave(signals) {
            Err(_) if self.has_died() => {
                log_death(self.pid);
                return Ok(None);
            }
            answer => answer?,
        };
        let state = serde_json::from_value(left["state"].take()).ok();
        if left["ends"].as_bool() != Some(true) {
            return Ok(state);
        }
        // That server could not close its disks: its I/O may be in flight until its process has ended.
        notify::main_process();
        if !ends_within(&self.process, END_TIMEOUT) {
            return Err(ServeError::DoesNotEnd { process: process_id(self.pid) }.into());
        }
        Ok(state)
    }

    /// Waits up to [`CLOSE_TIMEOUT`] for the end of the process, and returns whether it has ended. The next server can
    /// then serve the disks, although that server has not said that it leaves them.
    pub(crate) fn has_died(&self) -> bool {
        ends_within(&self.process, CLOSE_TIMEOUT)
    }

    /// Asks the server to leave. A signal that comes meanwhile ends this process, and that server then goes on.
    fn ask_to_leave(&mut self, signals: &Signals) -> Result<Value, Failure> {
        let (server, notifier) = (&mut self.server, signals.notifier());
        let (tell, told) = mpsc::channel();
        let ask = move || {
            let _ = tell.send(server.ask(&Request::HandOver {}));
            notifier.notify();
        };
        let pid = self.pid;
        let no_thread =
            |e| Failure::of_system(Attempt::Thread, "no thread to ask for the disks", e);
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().name("zoneplug-asks".to_owned());
            thread.spawn_scoped(scope, ask).map_err(no_thread)?;
            loop {
                if let Ok(SignalEvent::Signal(signal)) = signals.wait() {
                    log::info!(event = "stop"; "a signal has come: process {pid} keeps its disks");
                    logs::finish();
                    std::process::exit(128 + signal);
                }
                if let Ok(answer) = told.try_recv() {
                    return answer;
                }
            }
        })
    }

    /// Reports to the server that the calling process serves the disks, so that the server ends. It may have ended
    /// already.
    pub(crate) fn report_served(&mut self) {
        // systemd must know the next main process of a unit before the last one ends.
        notify::main_process();
        let _ = self.server.ask(&Request::Served {});
        ends_within(&self.process, END_TIMEOUT);
    }
}

/// Logs that a server has died while its disks were being taken over.
pub(crate) fn log_death(pid: Pid) {
    log::warn!(
        event = "died-before-it-left";
        "process {pid} ended before it had handed its disks over: this server starts as after a crash of that one"
    );
}

/// Whether a process ends in time.
pub(crate) fn ends_within(process: &OwnedFd, most: Timespec) -> bool {
    let mut fds = [PollFd::new(process, PollFlags::IN)];
    poll(&mut fds, Some(&most)).is_ok_and(|n| n > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::net::UnixListener;
    use std::process::Command;
    use zoneplug_control::answer_line;

    /// A server that could not close its disks may write to them until its process has ended.
    #[test]
    fn u9_a_server_that_keeps_its_disks_open_is_waited_for() {
        let name = format!("zoneplug-keeps-{}.sock", std::process::id());
        let path = std::env::temp_dir().join(name);
        let listener = UnixListener::bind(&path).unwrap();
        let mut child = Command::new("sleep").arg("0.5").spawn().unwrap();
        let server = Server::connect(&path).unwrap();
        let mut running = Running::new(server, Pid::from_child(&child)).unwrap().unwrap();
        let answers = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            BufReader::new(&stream).read_line(&mut String::new()).unwrap();
            stream.write_all(&answer_line(json!({"ends": true}))).unwrap();
        });
        assert!(running.make_leave_disks(&Signals::none().unwrap()).unwrap().is_none());
        assert!(child.try_wait().unwrap().is_some(), "its process has not ended");
        answers.join().unwrap();
        std::fs::remove_file(&path).unwrap();
    }

    /// A server may end between its answer and the next step of the server that takes over.
    #[test]
    fn u9_a_server_that_has_ended_is_none() {
        let name = format!("zoneplug-ended-{}.sock", std::process::id());
        let path = std::env::temp_dir().join(name);
        let listener = UnixListener::bind(&path).unwrap();
        let connect = || Server::connect(&path).unwrap();
        let mut child = Command::new("true").spawn().unwrap();
        let pid = Pid::from_child(&child);
        assert!(
            Running::new(connect(), pid).unwrap().is_some(),
            "it is there until it is waited for"
        );
        child.wait().unwrap();
        assert!(Running::new(connect(), pid).unwrap().is_none());
        drop(listener);
        std::fs::remove_file(&path).unwrap();
    }
}
