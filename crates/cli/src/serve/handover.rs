//! Handing the disks of a running server over to the next one (`--takeover`).
//!
//! | step | the next server | the running server |
//! | --- | --- | --- |
//! | 1 | asks what it would get, and compares that with what it is to serve | answers; nothing has changed yet |
//! | 2 | asks for the disks | answers the requests that it has begun, begins no others, and ends |
//! | 3 | waits for the end of that process, and goes on as after a server that has died | |
//!
//! What is refused is refused in step 1. In step 3 nothing of the last server is in flight, because its process has
//! ended.

use super::notify;
use crate::failure::{Failure, Kind};
use crate::plain::plain;
use crate::server_client::{self, Request, Server, StateOfDisk, StateShown};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use zoneplug_host::{DiskMark, STATE_VERSION};

/// How long the running server may take to end: longer than it waits for requests that it has begun.
const END: Timespec = Timespec { tv_sec: 30, tv_nsec: 0 };

/// In the running server: whether another one has asked for its disks.
#[derive(Clone)]
pub(crate) struct HandOver(Arc<Asked>);

struct Asked {
    asked: AtomicBool,
    tell: Box<dyn Fn() + Send + Sync>,
}

impl HandOver {
    /// `tell` wakes the thread that looks at [`HandOver::is_asked`].
    pub(crate) fn new(tell: impl Fn() + Send + Sync + 'static) -> HandOver {
        HandOver(Arc::new(Asked { asked: AtomicBool::new(false), tell: Box::new(tell) }))
    }

    pub(crate) fn ask(&self) {
        self.0.asked.store(true, Ordering::Release);
        (self.0.tell)();
    }

    pub(crate) fn is_asked(&self) -> bool {
        self.0.asked.load(Ordering::Acquire)
    }
}

/// What the next server is to serve.
pub(super) struct Wanted<'a> {
    pub(super) ublk: &'a [String],
    pub(super) over_network: &'a [String],
    /// Where those are served.
    pub(super) addresses: Vec<String>,
    /// Number of the first block device, if one is asked for.
    pub(super) id: Option<u32>,
    pub(super) moved: bool,
}

/// A server that will hand its disks over.
struct Running {
    server: Server,
    process: OwnedFd,
    pid: Pid,
}

/// The servers whose disks are to be taken over: none if none of them is served.
#[derive(Default)]
pub(super) struct Takeover(Vec<Running>);

impl Takeover {
    /// Finds the servers that have disks of `wanted`. The failure says why one cannot hand them over.
    pub(super) fn find(wanted: &Wanted<'_>, socket: Option<&Path>) -> Result<Takeover, Failure> {
        let mut found = Vec::new();
        for path in server_client::sockets(socket) {
            // One that does not answer has died.
            let Ok(mut server) = Server::connect(&path) else { continue };
            let Some(pid) = server.pid() else { continue };
            if is_wanted(&mut server, pid, wanted)? {
                let process = pidfd_open(pid, PidfdFlags::empty()).map_err(|e| {
                    Failure::new(Kind::Device, format!("process {pid}: {e}"))
                        .hint("again, if it has just ended; zoneplug status")
                })?;
                found.push(Running { server, process, pid });
            }
        }
        Ok(Takeover(found))
    }

    pub(super) fn is_none(&self) -> bool {
        self.0.is_empty()
    }

    /// Has the servers end, and waits for that. From then on their devices wait for this one.
    pub(super) fn take(self) -> Result<(), Failure> {
        if !self.is_none() {
            // Before the last main process of a unit ends, systemd must know of the next.
            notify::main_process();
        }
        for mut running in self.0 {
            let pid = running.pid;
            match running.server.ask(&Request::HandOver {}) {
                Ok(_) => {}
                // It may end before its answer is read.
                Err(_) if has_ended(&running.process) => {}
                Err(f) => return Err(f),
            }
            if !ends(&running.process) {
                let what = format!("process {pid} does not end, and has the disks still");
                return Err(Failure::new(Kind::Device, what)
                    .hint(format!("zoneplug status; kill {pid}, and start this again")));
            }
        }
        Ok(())
    }
}

fn ends_within(process: &OwnedFd, most: Timespec) -> bool {
    let mut fds = [PollFd::new(process, PollFlags::IN)];
    poll(&mut fds, Some(&most)).is_ok_and(|n| n > 0)
}

fn ends(process: &OwnedFd) -> bool {
    ends_within(process, END)
}

fn has_ended(process: &OwnedFd) -> bool {
    ends_within(process, Timespec { tv_sec: 1, tv_nsec: 0 })
}

/// Whether a server has disks of `wanted`. If so, checks that all of its disks may be handed over.
fn is_wanted(server: &mut Server, pid: Pid, wanted: &Wanted<'_>) -> Result<bool, Failure> {
    let refused = |what: String, hint: &str| Failure::new(Kind::Device, what).hint(hint);
    let value = match server.ask(&Request::State {}) {
        Ok(value) => value,
        Err(f) => {
            let specs: Vec<String> = server.disks()?.into_iter().map(|d| d.spec).collect();
            let all = || wanted.ublk.iter().chain(wanted.over_network);
            if !all().any(|spec| specs.contains(spec)) {
                return Ok(false);
            }
            let what = format!("process {pid} cannot hand its disks over: {}", f.parts().1);
            return Err(refused(
                what,
                "kill -9 that process: the next server goes on with its devices",
            ));
        }
    };
    // A server of another version may say more, or say it in another way.
    let state = value["state"].as_u64();
    let version = value["version"].as_str().unwrap_or("unknown").to_owned();
    if state != Some(STATE_VERSION) {
        let served = value["disks"].as_array().into_iter().flatten();
        let mut specs = served.filter_map(|d| d["spec"].as_str());
        let all = || wanted.ublk.iter().chain(wanted.over_network);
        if !specs.any(|spec| all().any(|s| s == spec)) {
            return Ok(false);
        }
        let what = format!(
            "process {pid} is of version {}, and what it would leave this version does not read",
            plain(&version)
        );
        return Err(refused(what, "unmount what is on its disks, and end it; then start this one"));
    }
    let state: StateShown = serde_json::from_value(value).map_err(|e| {
        refused(format!("process {pid} does not say what it serves: {e}"), "zoneplug status")
    })?;
    compare(&state.disks, wanted, pid)
}

/// Whether a server has disks of `wanted`, and has no others.
fn compare(served: &[StateOfDisk], wanted: &Wanted<'_>, pid: Pid) -> Result<bool, Failure> {
    let marks = |specs: &[String]| specs.iter().map(|s| DiskMark::of(s)).collect::<Vec<_>>();
    let (ublk, over_network) = (marks(wanted.ublk), marks(wanted.over_network));
    let is_of = |all: &[DiskMark], d: &StateOfDisk| all.iter().any(|m| m.disks == d.disks);
    if !served.iter().any(|d| is_of(&ublk, d) || is_of(&over_network, d)) {
        return Ok(false);
    }
    for (nth, d) in served.iter().enumerate() {
        let (name, spec) = (plain(&d.name), plain(&d.spec));
        let fail = |what: String, hint: String| {
            Err(Failure::new(
                Kind::Device,
                format!("process {pid} serves {name} from {spec}, {what}"),
            )
            .hint(hint))
        };
        let all = if d.address.is_some() { &over_network } else { &ublk };
        let way = if d.address.is_some() { "--nvme-tcp" } else { "--ublk" };
        let Some(mark) = all.iter().find(|m| m.disks == d.disks) else {
            return fail(
                "which this one would not serve in that way".to_owned(),
                format!("{way} {spec} too: a server hands over all or nothing"),
            );
        };
        if !d.outlives {
            return fail(
                "which ends with it".to_owned(),
                "disks in files or drives, without --no-recovery; or end that server first"
                    .to_owned(),
            );
        }
        if mark.layers != d.layers {
            return fail("with other layers".to_owned(), format!("the same layers: {spec}"));
        }
        if mark.place != d.place && !wanted.moved {
            return fail(
                "from another file".to_owned(),
                format!("that file, not a copy of it: {spec}"),
            );
        }
        if let Some(address) = d.address.as_ref().filter(|a| !wanted.addresses.contains(a)) {
            return fail(
                format!("at {}, where this one would not listen", plain(address)),
                format!("--nvme-tcp {} {spec}", plain(address)),
            );
        }
        let ids = wanted.id.filter(|_| d.address.is_none());
        if let Some(id) = ids.filter(|id| d.name != format!("ublkb{}", id + nth as u32)) {
            return fail(format!("not as number {id}"), "without --id".to_owned());
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(name: &str, spec: &str) -> StateOfDisk {
        let DiskMark { disks, layers, place } = DiskMark::of(spec);
        let address = name.starts_with("tcp").then(|| "127.0.0.1:4420".to_owned());
        let (name, spec) = (name.to_owned(), spec.to_owned());
        StateOfDisk { name, spec, disks, layers, place, outlives: true, address }
    }

    fn wanted<'a>(ublk: &'a [String], over_network: &'a [String]) -> Wanted<'a> {
        let addresses = vec!["127.0.0.1:4420".to_owned()];
        Wanted { ublk, over_network, addresses, id: None, moved: false }
    }

    fn me() -> Pid {
        rustix::process::getpid()
    }

    /// U9.
    #[test]
    fn u9_all_or_nothing_in_the_way_in_which_it_was_served() {
        let [a, b] = ["/dev/none-a", "/dev/none-b,qd1=1"].map(str::to_owned);
        let both = [a.clone(), b.clone()];
        let running = [served("ublkb0", &a), served("ublkb1", "/dev/none-b")];
        let ask = |served: &[StateOfDisk], wanted: &Wanted<'_>| {
            compare(served, wanted, me()).map_err(|f| f.to_string())
        };
        assert_eq!(ask(&running, &wanted(&both, &[])), Ok(true), "attributes may differ");
        assert_eq!(ask(&running, &wanted(&["/dev/none-c".to_owned()], &[])), Ok(false));
        let e = ask(&running, &wanted(&both[..1], &[])).unwrap_err();
        assert!(e.contains("ublkb1") && e.contains("would not serve"), "{e}");
        let e = ask(&running, &wanted(&both[..1], &both[1..])).unwrap_err();
        assert!(e.contains("in that way"), "{e}");
        let layered = ["po2@/dev/none-a".to_owned(), b];
        assert!(ask(&running, &wanted(&layered, &[])).unwrap_err().contains("other layers"));
        let mut in_memory = running.clone();
        in_memory[1].outlives = false;
        assert!(ask(&in_memory, &wanted(&both, &[])).unwrap_err().contains("ends with it"));
        let mut copied = running.clone();
        copied[0].place ^= 1;
        assert!(ask(&copied, &wanted(&both, &[])).unwrap_err().contains("another file"));
        assert_eq!(ask(&copied, &Wanted { moved: true, ..wanted(&both, &[]) }), Ok(true));
        let numbered = Wanted { id: Some(0), ..wanted(&both, &[]) };
        assert_eq!(ask(&running, &numbered), Ok(true));
        let e = ask(&running, &Wanted { id: Some(1), ..numbered }).unwrap_err();
        assert!(e.contains("not as number 1"), "{e}");
        let network = [served("tcp4420n1", &a)];
        assert_eq!(ask(&network, &wanted(&[], &both)), Ok(true));
        let elsewhere = Wanted { addresses: Vec::new(), ..wanted(&[], &both) };
        assert!(ask(&network, &elsewhere).unwrap_err().contains("would not listen"));
    }
}
