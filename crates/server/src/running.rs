//! A running server, from the point of view of the one that takes over from it.

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
const LEAVE: Duration = Duration::from_secs(45);
/// How long the running server may take to end, if it cannot close its disks before.
const END: Timespec = Timespec { tv_sec: 30, tv_nsec: 0 };

/// How long a server that was killed or has handed over may take to disappear.
pub(crate) const DIES: Duration = Duration::from_secs(2);

/// How long the process of a server may take to end after its connection has. The kernel closes the files of a process
/// that dies one after the other.
const GOES: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// A server that will hand its disks over.
pub(crate) struct Running {
    server: Server,
    process: OwnedFd,
    pid: Pid,
}

impl Running {
    /// The server of this process. `None`: the process has ended since the server answered.
    pub(crate) fn new(server: Server, pid: Pid) -> Result<Option<Running>, Failure> {
        match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(process) => Ok(Some(Running { server, process, pid })),
            Err(Errno::SRCH) => Ok(None),
            Err(e) => Err(Failure::new(Kind::Device, format!("process {pid}: {e}"))
                .hint("again; zoneplug status")),
        }
    }

    /// The connection to the server.
    pub(crate) fn server(&mut self) -> &mut Server {
        &mut self.server
    }

    /// Makes the server leave its disks, and waits for that. Returns its final record, because clients may have
    /// changed settings since the first request for it.
    pub(crate) fn make_leave_disks(
        &mut self,
        signals: &Signals,
    ) -> Result<Option<StateShown>, Failure> {
        self.server.set_patience(LEAVE);
        let mut left = match self.ask_to_leave(signals) {
            Err(_) if self.has_died() => {
                log_death(self.pid);
                return Ok(None);
            }
            answer => answer?,
        };
        let state = serde_json::from_value(left["state"].take()).ok();
        // I/O of that server may be in flight until its process has ended.
        if left["ends"].as_bool() != Some(true) {
            return Ok(state);
        }
        notify::main_process();
        if !ends_within(&self.process, END) {
            let what = format!("process {} does not end, and has the disks still", self.pid);
            let hint = format!("zoneplug status; kill {}, and start this again", self.pid);
            return Err(Failure::new(Kind::Device, what).hint(hint));
        }
        Ok(state)
    }

    /// Whether the process has ended, although it has not said that it leaves its disks. The next server can serve them then.
    pub(crate) fn has_died(&self) -> bool {
        ends_within(&self.process, GOES)
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

    /// Reports that this process serves the disks, so that the server ends. It may have ended already.
    pub(crate) fn serves(&mut self) {
        // systemd must know the next main process of a unit before the last one ends.
        notify::main_process();
        let _ = self.server.ask(&Request::Served {});
        ends_within(&self.process, END);
    }
}

/// Logs that a server has died while its disks were being taken over.
pub(crate) fn log_death(pid: Pid) {
    log::warn!(
        event = "died-before-it-left";
        "process {pid} has ended before it has left its disks: this server goes on as after its death"
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
    use std::os::unix::net::UnixListener;
    use std::process::Command;

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
