//! The running server's side of a hand-over: it leaves its disks to the next server, and takes them back if that
//! server does not serve them.

use crate::answer::Serving;
use crate::door::Door;
use crate::error::ServeError;
use crate::handover::{peer, process_id};
use crate::open_disks::{NamedDisk, flush};
use crate::running::ends_within;
use rustix::event::Timespec;
use rustix::fd::OwnedFd;
use rustix::process::{PidfdFlags, Signal, getpid, kill_process, pidfd_open, pidfd_send_signal};
use serde_json::json;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Weak;
use std::sync::mpsc;
use std::time::{Duration, Instant};
use zoneplug_control::client::{Request, StateShown, Timed};
use zoneplug_control::{Attempt, Failure, answer_line, refusal};
use zoneplug_core::Device as Below;
use zoneplug_core::plain;
use zoneplug_host::signals::{EndRequest, SignalEvent, Signals};
use zoneplug_host::{Closing, Frozen};

/// How long a disk may take to become durable, and to complete the begun requests.
const DRAIN: Duration = Duration::from_secs(10);
/// How long threads may take to release a disk that is left.
const CLOSE: Duration = Duration::from_secs(2);
/// How long the next server may take to serve the disks, and then to end if it has given up.
const SERVE: Duration = Duration::from_secs(60);
const GIVE_UP: Timespec = Timespec { tv_sec: 10, tv_nsec: 0 };
/// How long the final check for a line from the next server takes.
const FINAL_READ: Duration = Duration::from_millis(100);
/// Longest line from the next server.
const MAX_LINE: u64 = 4096;

/// The next server, which waits for the disks.
pub(crate) struct NextServer {
    stream: UnixStream,
    process: OwnedFd,
    pid: u32,
}

/// The outcome for disks that were left.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum LeftOutcome {
    /// The next server serves them.
    Served,
    /// The next server has given up and has ended.
    Returned,
    /// The process ends before the outcome is known: a signal has come, or there is no thread to wait in.
    Unknown,
}

impl NextServer {
    /// The process at the other end of a connection. `None`: the process has gone.
    pub(crate) fn of(stream: UnixStream) -> Option<NextServer> {
        let pid = peer(&stream)?;
        let process = pidfd_open(pid, PidfdFlags::empty()).ok()?;
        let pid = process_id(pid);
        Some(NextServer { stream, process, pid })
    }

    /// Sends a line. Ignores errors: after one the next server does not answer, which is noticed.
    fn say(&mut self, line: &[u8]) {
        let stream = self.stream.try_clone();
        let _ = stream.and_then(|s| Timed::new(s, Duration::from_secs(1)).write_all(line));
    }

    /// Tells the next server why the disks stay.
    pub(crate) fn refuse(mut self, why: &Failure) {
        log::warn!(
            event = "hand-over-refused";
            "process {} has asked for the disks, and this server goes on: {}", self.pid, plain(why.parts().what)
        );
        self.say(&refusal(why));
    }

    /// Tells the next server that it may open the disks when this process has ended, with their record. Ends the
    /// process.
    pub(crate) fn end_for(mut self, state: &StateShown) -> ! {
        log::warn!(
            event = "left-unclosed";
            "a disk is not closed in time: this server ends, and process {} goes on as after its death", self.pid
        );
        self.say(&answer_line(json!({"ends": true, "state": state})));
        std::process::exit(0)
    }

    /// Tells the next server that the disks are left, with their record. Waits until it serves them, has given up, or
    /// a signal comes. If the next server is stopped, a signal kills it; this server takes its disks back and then
    /// ends too.
    pub(crate) fn serves(mut self, signals: &Signals, state: &StateShown) -> LeftOutcome {
        self.say(&answer_line(json!({"ends": false, "state": state})));
        let (tell, told) = mpsc::channel();
        let (pid, notifier) = (self.pid, signals.notifier());
        let process = self.process.try_clone();
        let body = move || {
            let serves = self.waited();
            let _ = tell.send(if serves { LeftOutcome::Served } else { LeftOutcome::Returned });
            notifier.notify();
        };
        let thread = std::thread::Builder::new().name("zoneplug-next".to_owned());
        if let Err(e) = thread.spawn(body) {
            log::error!(event = "hand-over-failed"; "no thread to wait for process {pid}: {e}");
            return LeftOutcome::Unknown;
        }
        let mut end: Option<(i32, EndRequest)> = None;
        loop {
            match (signals.wait(), told.try_recv()) {
                (event, Ok(outcome)) => {
                    if let Ok(SignalEvent::Signal(signal)) = event {
                        end = Some((signal, EndRequest::begin()));
                    }
                    // Sends the signal again, for the loop that serves next.
                    if outcome == LeftOutcome::Returned {
                        end.and_then(|(signal, _)| Signal::from_named_raw(signal))
                            .map(|signal| kill_process(getpid(), signal));
                    }
                    return outcome;
                }
                (Ok(SignalEvent::Notified), Err(mpsc::TryRecvError::Empty)) => {}
                (Ok(SignalEvent::Signal(_)), Err(mpsc::TryRecvError::Empty))
                    if end.is_some_and(|(_, request)| !request.is_repeated()) => {}
                (Ok(SignalEvent::Signal(signal)), Err(mpsc::TryRecvError::Empty))
                    if end.is_none() && is_stopped(pid) =>
                {
                    log::error!(
                        event = "hand-over-failed";
                        "a signal has come, and process {pid}, which is to have the disks, is stopped: it is killed"
                    );
                    end = Some((signal, EndRequest::begin()));
                    let _ = process.as_ref().map(|p| pidfd_send_signal(p, Signal::KILL));
                }
                _ => {
                    log::warn!(
                        event = "ends-before-the-next";
                        "this server ends, and process {pid} goes on with the disks as after its death"
                    );
                    return LeftOutcome::Unknown;
                }
            }
        }
    }

    /// Waits until the next server serves the disks. False: it has given up, and has ended.
    fn waited(&mut self) -> bool {
        if self.reports_serving() {
            self.say(&answer_line(json!({})));
            return true;
        }
        if !ends_within(&self.process, GIVE_UP) {
            log::error!(
                event = "hand-over-failed";
                "process {} neither serves the disks nor ends: it is killed", self.pid
            );
            let _ = pidfd_send_signal(&self.process, Signal::KILL);
            ends_within(&self.process, GIVE_UP);
        }
        log::error!(
            event = "hand-over-failed";
            "process {} does not serve the disks: this server goes on with them", self.pid
        );
        false
    }

    /// Whether the next server reports in time that it serves.
    fn reports_serving(&mut self) -> bool {
        let Ok(stream) = self.stream.try_clone() else { return false };
        let mut line = Vec::new();
        let mut reader = BufReader::new(Timed::new(stream, SERVE)).take(MAX_LINE);
        let mut read = reader.read_until(b'\n', &mut line);
        if read.is_err() {
            // If this process was stopped meanwhile, the line may have arrived.
            reader.get_mut().get_mut().again(FINAL_READ);
            read = reader.read_until(b'\n', &mut line);
        }
        read.is_ok() && matches!(serde_json::from_slice(&line), Ok(Request::Served {}))
    }
}

/// Whether a process is stopped (proc_pid_stat(5)).
fn is_stopped(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name of a process may contain any character.
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
}

/// Calls `f` for each disk in a thread of its own, and waits for all. A disk that hangs blocks only its own thread.
fn in_time<T: Send + 'static>(
    disks: impl Iterator<Item = NamedDisk>,
    f: impl Fn(&NamedDisk) -> Result<T, ServeError> + Clone + Send + 'static,
) -> Result<Vec<T>, Failure> {
    let (tell, told) = mpsc::channel();
    let mut names = Vec::new();
    for disk in disks {
        let (tell, f, n) = (tell.clone(), f.clone(), names.len());
        names.push(disk.name.clone());
        let body = move || {
            let _ = tell.send((n, f(&disk)));
        };
        std::thread::Builder::new()
            .name("zoneplug-leave".to_owned())
            .spawn(body)
            .map_err(|e| Failure::of_system(Attempt::Thread, "no thread to leave a disk", e))?;
    }
    let end = Instant::now() + DRAIN;
    let (mut done, mut missing) = (Vec::new(), vec![true; names.len()]);
    while missing.contains(&true) {
        let left = end.saturating_duration_since(Instant::now());
        let Ok((n, result)) = told.recv_timeout(left) else { break };
        done.push(result?);
        missing[n] = false;
    }
    match missing.iter().position(|m| *m) {
        None => Ok(done),
        Some(n) => Err(ServeError::Unanswered { disk: names.swap_remove(n) }.into()),
    }
}

/// Stops a disk until the result is dropped.
fn freeze(NamedDisk { name, disk }: &NamedDisk) -> Result<Frozen, ServeError> {
    disk.freeze().map_err(|e| ServeError::NotStopped {
        disk: name.clone(),
        because: e.what().to_owned(),
        hint: e.remedy().cloned(),
    })
}

/// Waits for all requests that disks and doors have begun, and makes acknowledged data durable. A failure changes
/// nothing.
pub(crate) fn drain(serving: &Serving, doors: &[Box<dyn Door>]) -> Result<(), Failure> {
    let disks = serving.disks.iter().map(|d| NamedDisk::new(&d.name, &d.disk));
    in_time(disks, |disk| {
        // Fails for a disk with a lost command: it could not be closed either, and hosts would be without a server
        // until then.
        drop(freeze(disk)?);
        flush(&disk.disk).map_err(|f| ServeError::NotDurable {
            disk: disk.name.clone(),
            because: f.parts().what.to_owned(),
        })
    })?;
    doors.iter().for_each(|door| door.ask_to_leave());
    let end = Instant::now() + DRAIN;
    doors.iter().try_for_each(|door| door.drains_until(end)).map_err(|disk| {
        doors.iter().for_each(|door| door.stay());
        ServeError::Unanswered { disk }.into()
    })
}

/// Stops all I/O on the disks, and closes them. False: a disk is not closed in time, and only the end of this process
/// stops its I/O.
pub(crate) fn close(disks: Vec<NamedDisk>, devices: &[Weak<dyn Below>]) -> bool {
    let closing: Vec<Closing> = disks.iter().map(|d| d.disk.closing()).collect();
    let frozen = in_time(disks.into_iter(), freeze);
    // Frozen until the last handle goes, so that no I/O begins before the disk is closed.
    let is_still = frozen.is_ok();
    drop(frozen);
    let end = Instant::now() + CLOSE;
    // The thread that has dropped the last handle of a device may still be writing to its file. The next server must not open
    // the file before that ends: this write would overwrite its own.
    let is_open =
        || devices.iter().any(|d| d.strong_count() > 0) || !closing.iter().all(Closing::is_over);
    while is_open() {
        if Instant::now() >= end {
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    is_still
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::door::testing::StubDoor;
    use std::sync::Arc;
    use std::sync::atomic::Ordering::Relaxed;
    use zoneplug_buf::IoBuf;
    use zoneplug_core::{Bio, Bios, Nanos, Op, Sector};
    use zoneplug_host::HostedDisk;
    use zoneplug_host::file::{CreateOptions, create};

    /// U11: a server does not leave data that it cannot make durable.
    #[test]
    fn u11_a_server_whose_disk_cannot_be_flushed_stays() {
        let serving = Serving::of_spec("mem,zones=4,zone-size=1M,fault=flush/io");
        let e = drain(&serving, &[]).unwrap_err().to_string();
        assert!(e.contains("ublkb0: what was written cannot be made durable"), "{e}");
        assert!(drain(&serving, &[]).is_ok(), "the next flush succeeds");
    }

    /// U9: the requests of no door wait for ever if the disk of one door does not answer.
    #[test]
    fn u9_all_doors_go_on_if_one_of_them_does_not_drain() {
        let serving = Serving::of_spec("mem,zones=4,zone-size=1M");
        let counts = |door: &StubDoor| (door.asked.load(Relaxed), door.stays.load(Relaxed));
        let (drains, hangs) = (StubDoor::default(), StubDoor::default());
        let hangs = StubDoor { hangs: Some("ublkb7".to_owned()), ..hangs };
        let both = [drains, hangs].map(Arc::new);
        let doors = both.clone().map(|door| Box::new(door) as Box<dyn Door>);
        assert!(drain(&serving, &doors[..1]).is_ok());
        assert_eq!(counts(&both[0]), (1, 0), "its disks are left");
        let e = drain(&serving, &doors).unwrap_err().to_string();
        assert!(e.contains("ublkb7 does not answer"), "{e}");
        assert_eq!(both.map(|door| counts(&door)), [(2, 1), (1, 1)]);
    }

    /// U9: a disk with a lost command cannot be closed, so its server stays.
    #[test]
    fn u9_a_server_whose_disk_does_not_answer_stays() {
        let serving = Serving::of_spec("mem,zones=4,zone-size=1M,fault=write/lost/zone=0");
        let disk = serving.disks[0].disk.clone();
        disk.disk().set_drain_limit(Nanos(100_000_000));
        let mut client = disk.open_client(2, 1).unwrap();
        let write = Bio::with_buf(Op::Write, Sector(0), 8, IoBuf::leaked(4096));
        client.submit(&mut std::iter::once(write).collect::<Bios>());
        let e = drain(&serving, &[]).unwrap_err().to_string();
        assert!(e.contains("ublkb0: "), "{e}");
    }

    /// U16: closing a disk writes to its file, perhaps in another thread than the one that waits for it.
    #[test]
    fn u16_a_disk_is_closed_when_it_is_left() {
        let path = std::env::temp_dir().join(format!("zoneplug-leave-{}.zbd", std::process::id()));
        let options =
            CreateOptions { zones: Some(4), zone_size: Some(1 << 20), ..CreateOptions::default() };
        for turn in 0..30 {
            create(&path, &options, turn > 0).unwrap();
            let spec = format!("{},io=threads", path.display());
            let named = zoneplug_host::DiskSpec::parse(&spec).unwrap();
            let below = std::sync::Arc::downgrade(&named.device);
            let disk = HostedDisk::open_named(named).unwrap();
            let mut io = zoneplug_host::BlockingDisk::new(&disk).unwrap();
            io.write_from(Sector(0), &vec![7; 1 << 20]).unwrap();
            drop(io);
            assert!(close(vec![NamedDisk { name: "a".to_owned(), disk }], &[below]));
            let said = zoneplug_host::file::check(&path, false).unwrap().to_string();
            assert!(said.contains("it was closed"), "time {turn}: {said}");
        }
        std::fs::remove_file(&path).unwrap();
    }

    /// U16: an existing handle of a disk may still write.
    #[test]
    fn u16_a_disk_is_left_when_its_last_handle_has_gone() {
        let named = zoneplug_host::DiskSpec::parse("mem,zones=4,zone-size=1M").unwrap();
        let below = std::sync::Arc::downgrade(&named.device);
        let disk = HostedDisk::open_named(named).unwrap();
        let other = disk.clone();
        assert!(!close(
            vec![NamedDisk { name: "a".to_owned(), disk }],
            std::slice::from_ref(&below)
        ));
        assert!(close(vec![NamedDisk { name: "a".to_owned(), disk: other }], &[below]));
    }
}
