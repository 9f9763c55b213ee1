//! A server of disks from start to end, with its doors, its socket and its metrics.

use crate::answer::Serving;
use crate::config::{Config, Takeover};
use crate::confine;
use crate::disk_events::{DiskEvents, Watched};
use crate::door::{Door, Doors, Starting};
use crate::end::{self, End, Stopper};
use crate::error::ServeError;
use crate::handover::HandOver;
use crate::inherited::Inherited;
use crate::leave;
use crate::measure;
use crate::metrics::{self, Metrics};
use crate::notify;
use crate::open_disks::OpenDisks;
use crate::opening;
use crate::prove;
use crate::running::DISAPPEAR_TIMEOUT;
use crate::served::Served;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use zoneplug_control::Socket;
use zoneplug_control::place;
use zoneplug_control::{Attempt, Failure, FailureParts};
use zoneplug_core::{Hint, plain};
use zoneplug_host::signals::{EndRequest, SignalEvent, Signals};

/// How long a server that takes over waits for the disks before it looks again for the server that has them.
const STARTS: Duration = Duration::from_millis(100);

/// A server of disks. After a failed hand-over it serves its disks again.
pub struct Server {
    config: Config,
    doors: Doors,
    signals: Signals,
    stopper: Stopper,
    /// State that outlasts a failed hand-over. `None`: this process has not served yet.
    kept: Option<KeptAcrossHandOver>,
}

/// State that is made once, because the filter of system calls denies to make it again.
struct KeptAcrossHandOver {
    /// `None`: there is no place for a socket, so clients cannot ask this server.
    socket: Option<Socket<Serving>>,
}

/// A server's message to its caller, once its disks are served.
#[derive(Debug, Default)]
pub struct Announcement {
    /// Lines for standard output: each disk, and how clients reach it and the metrics.
    pub lines: Vec<String>,
    /// The addresses at which hosts reach disks over the network. Port 0 is replaced by the port that the system chose.
    pub addresses: Vec<SocketAddr>,
}

/// The way in which a server has ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Ended {
    /// A signal or [`Stopper::stop`] has ended it.
    Stopped,
    /// Another server has the disks, or must find them. The caller must exit without waiting for any thread.
    Left,
}

/// The end of a period of serving.
enum ServingEnd {
    /// A signal has ended it.
    Stopped,
    /// Its disks are closed. The next server has what it needs to serve them, and so has this one.
    Left(leave::NextServer, Box<Inherited>),
}

impl Server {
    /// A server that has opened nothing yet.
    pub fn new(config: Config, doors: Doors, signals: Signals) -> Server {
        let stopper = Stopper::new(signals.notifier());
        Server { config, doors, signals, stopper, kept: None }
    }

    /// A handle to end this server from another thread.
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// Opens the disks or takes them over, and serves them until the end. Calls `on_served` once they are served.
    pub fn run(mut self, on_served: &dyn Fn(Announcement)) -> Result<Ended, Failure> {
        measure::begin();
        if self.doors.iter().all(|door| door.specs().is_empty()) {
            return Err(ServeError::NoDisk.into());
        }
        let mut inherited = self.find()?;
        loop {
            match self.serve(inherited, on_served)? {
                ServingEnd::Stopped => return Ok(Ended::Stopped),
                ServingEnd::Left(next, back) => {
                    let outcome = next.serves(&self.signals, &back.states[0]);
                    if outcome != leave::LeftOutcome::Returned {
                        if outcome == leave::LeftOutcome::Served {
                            log::info!(event = "handed-over"; "another server has taken the disks over");
                        }
                        // Dropping the socket removes it from its place.
                        drop(self.kept.take());
                        return Ok(Ended::Left);
                    }
                    inherited = *back;
                }
            }
        }
    }

    /// Finds the servers of the disks, if this one takes over, and checks that it can serve. A server that has just been
    /// started has its disks before it answers at its socket, so this waits for an answer.
    fn find(&mut self) -> Result<Inherited, Failure> {
        let mut end = None;
        loop {
            let inherited = prove::find(&self.config, &mut self.doors)?;
            opening::check(&self.doors, &inherited)?;
            let is_alone = inherited.has_left();
            let end = *end.get_or_insert_with(|| Instant::now() + DISAPPEAR_TIMEOUT / 2);
            let may_start =
                self.config.takeover == Takeover::Any && is_alone && Instant::now() < end;
            let patience = if may_start { STARTS } else { DISAPPEAR_TIMEOUT };
            let unused = opening::check_unused(&self.doors, &inherited, patience);
            let unused = unused.map_err(|f| self.or_elsewhere(f, is_alone)).and_then(|()| {
                self.doors.iter_mut().try_for_each(|door| door.claim_name(&inherited, patience))
            });
            match unused {
                Err(_) if may_start => {}
                unused => return unused.map(|()| inherited),
            }
        }
    }

    /// Adds a hint to the failure of a disk that another process has: that process may be a server with its socket elsewhere.
    /// `is_alone`: no server was found.
    fn or_elsewhere(&self, failure: Failure, is_alone: bool) -> Failure {
        if self.config.takeover == Takeover::No || !is_alone {
            return failure;
        }
        let hint = Hint::from("").option_with("socket", "PATH");
        failure.and_try(hint.text(" as the server has it that is to hand over"))
    }

    /// Serves until the end: all disks or none, because a restart starts all of them. Errors of a disk show before
    /// any disk is served.
    fn serve(
        &mut self,
        mut inherited: Inherited,
        on_served: &dyn Fn(Announcement),
    ) -> Result<ServingEnd, Failure> {
        let mut disks = OpenDisks::default();
        opening::open(&mut disks, &self.doors, &inherited, self.config.open)?;
        let sockets = &mut inherited.sockets;
        self.doors.iter_mut().try_for_each(|door| door.listen(sockets))?;
        let metrics_at =
            self.config.metrics_at.map(|at| metrics::listen(at, sockets)).transpose()?;
        if !inherited.has_left() {
            prove::enough(&inherited)?;
            inherited.make_servers_leave(&self.signals)?;
            opening::open(&mut disks, &self.doors, &inherited, self.config.open)?;
        }
        // Closes sockets at addresses that this server does not use.
        inherited.sockets.clear();
        // Values that are declared below this line are dropped before the guard undoes the doors.
        let mut doors = Starting::new(std::mem::take(&mut self.doors));
        let notifier = self.signals.notifier();
        doors.start(&disks, &inherited, &notifier)?;
        let metrics =
            metrics_at.as_ref().map(|at| Metrics::open(at, served(&doors))).transpose()?;
        let events = DiskEvents::start(Watched::of(&served(&doors)))?;
        let hand_over = HandOver::new(move || notifier.notify());
        let sockets = doors.iter().flat_map(|door| door.sockets()).chain(&metrics_at);
        let sockets: std::io::Result<Vec<_>> =
            sockets.map(|s| s.try_clone().map(Arc::new)).collect();
        let sockets = sockets
            .map_err(|e| Failure::of_system(Attempt::Descriptor, "no further descriptor", e))?;
        let of_clients = doors.iter().filter_map(|door| door.of_clients()).collect();
        let mut serving = Serving::new(served(&doors), of_clients, sockets, hand_over.clone());
        serving.stays = !self.config.own_process;
        let goes_on = self.kept.is_some();
        inherited.set_again(&serving, goes_on)?;
        let needs_root = doors.iter().any(|door| door.needs_root());
        self.answer(serving, needs_root, &inherited.replaced)?;
        self.doors = doors.keep();
        inherited.serves();
        for door in &mut self.doors {
            if let Err(f) = door.serves() {
                log::error!(event = "hand-over-failed"; "{}", plain(f.parts().what));
            }
        }
        if !goes_on {
            let lines = self.doors.iter().flat_map(|door| door.lines());
            let lines = lines.chain(metrics.iter().flat_map(Metrics::lines)).collect();
            let addresses = self.doors.iter().flat_map(|door| door.addresses()).collect();
            on_served(Announcement { lines, addresses });
        }
        self.doors.iter().for_each(|door| door.log_start());
        if goes_on {
            // The next server may have made itself the main process.
            notify::main_process();
        } else if self.config.own_process {
            notify::ready();
        }
        let ended = loop {
            let ended = end::wait(&self.signals, &self.doors, &hand_over, &self.stopper);
            let Ok(End::Asked(by)) = ended else { break ended };
            let (Some(next), Some(serving)) = (leave::NextServer::of(by), self.serving()) else {
                hand_over.refused();
                continue;
            };
            if let Err(f) = leave::drain(&serving, &self.doors) {
                next.refuse(&f);
                hand_over.refused();
                continue;
            }
            let back = Inherited::of_own(&serving);
            drop((serving, metrics, events));
            return Ok(self.leave_disks(next, back, disks));
        };
        self.stop(ended, metrics, events)
    }

    /// Answers at the socket from now on, and gives up rights that a server does not need.
    fn answer(
        &mut self,
        serving: Serving,
        needs_root: bool,
        replaced: &[place::Id],
    ) -> Result<(), Failure> {
        if let Some(kept) = &mut self.kept {
            if let Some(socket) = &mut kept.socket {
                socket.put(serving);
                if let Err(f) = socket.restore() {
                    let what = f.parts().what;
                    log::error!(event = "hand-over-failed"; "this server serves, and cannot be asked: {what}");
                }
            }
            return Ok(());
        }
        let Config { socket: path, access, .. } = &self.config;
        let socket = match Socket::open_replacing(path.as_deref(), *access, serving, replaced) {
            Ok(socket) => Some(socket),
            // Without `--socket`, only root has a place for it.
            Err(f) if !needs_root && path.is_none() => {
                let FailureParts { what, hint, .. } = f.parts();
                (self.config.note)(&format!(
                    "{what}; zoneplug status does not show this server without {hint}"
                ));
                None
            }
            Err(f) => return Err(f),
        };
        if self.config.own_process {
            confine::filter_calls()?;
        }
        self.kept = Some(KeptAcrossHandOver { socket });
        Ok(())
    }

    fn serving(&self) -> Option<Arc<Serving>> {
        self.kept.as_ref()?.socket.as_ref()?.serving()
    }

    /// Leaves the disks to the next server. Their begun requests are complete.
    fn leave_disks(
        &mut self,
        next: leave::NextServer,
        back: Inherited,
        disks: OpenDisks,
    ) -> ServingEnd {
        let sockets = self.kept.iter().flat_map(|s| &s.socket);
        sockets.for_each(|socket| socket.withdraw(Some(back.states[0].clone())));
        log::info!(event = "handing-over"; "another server takes the disks over");
        self.doors.iter_mut().rev().for_each(|door| door.leave_disks());
        let (all, below) = (disks.handles(), disks.devices());
        drop(disks);
        if !leave::close(all, &below) {
            next.end_for(&back.states[0]);
        }
        ServingEnd::Left(next, Box::new(back))
    }

    /// Ends the process at a further signal, unless that comes with the first one. Linux then keeps or removes the
    /// devices, as `--no-recovery` says.
    fn end_at_a_second_signal(&self) {
        let request = EndRequest::begin();
        let impatient = std::thread::Builder::new().name("zoneplug-signals".to_owned());
        if let Ok(signals) = self.signals.try_clone() {
            let _ = impatient.spawn(move || {
                loop {
                    if let Ok(SignalEvent::Signal(signal)) = signals.wait()
                        && request.is_repeated()
                    {
                        std::process::exit(128 + signal);
                    }
                }
            });
        }
    }

    /// Stops the doors and ends the server.
    fn stop(
        &mut self,
        ended: Result<End, Failure>,
        metrics: Option<Metrics>,
        events: DiskEvents,
    ) -> Result<ServingEnd, Failure> {
        let why = if ended.is_ok() { "a signal has come" } else { "it failed" };
        log::info!(event = "stop"; "the server ends: {why}");
        if self.config.own_process {
            notify::stopping();
            self.end_at_a_second_signal();
        }
        drop((self.kept.take(), metrics));
        // A failure that ended the server takes precedence over failures of its stop.
        let remove = self.config.remove_on_exit;
        let stopped = self.doors.iter_mut().rev().map(|door| door.stop(remove));
        let stopped = stopped.fold(Ok(()), Result::and);
        drop(events);
        ended.and(stopped).map(|()| ServingEnd::Stopped)
    }
}

/// Checks whether these disks could be served, and whether a running server would refuse to hand over or hosts would
/// find changes. Opens nothing for writing, and only queries running servers.
pub fn check(config: &Config, doors: &mut Doors) -> Result<(), Failure> {
    let inherited = prove::find(config, doors)?;
    opening::check(doors, &inherited)?;
    if config.takeover != Takeover::No {
        opening::check_unused(doors, &inherited, DISAPPEAR_TIMEOUT)?;
        prove::enough(&inherited)?;
        return doors.iter().try_for_each(|door| door.check_name(&inherited));
    }
    if let Err(f) = opening::check_unused(doors, &inherited, Duration::ZERO) {
        // The check may run beside the server that is to be replaced.
        (config.note)(&format!("{} now: a start fails until that has ended", f.parts().what));
    }
    Ok(())
}

/// The disks of all doors.
fn served(doors: &[Box<dyn Door>]) -> Vec<Served> {
    doors.iter().flat_map(|door| door.served()).collect()
}
