//! Answers the requests at the control socket from the server's state. Reads no socket and no clock.

use crate::error::ServeError;
use crate::handover::HandOver;
use crate::measure::measure;
use crate::served::Origin;
use crate::served::{AddClients, Served};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use zoneplug_control::client::{AttributeShown, Request, Shown, StateOfDisk, StateShown};
use zoneplug_control::names::name_of;
use zoneplug_control::{Answers, ControlError, Pause, zone_table};
use zoneplug_control::{Attempt, Failure};
use zoneplug_core::poison::lock;
use zoneplug_core::{Error, ErrorKind, Sector};
use zoneplug_host::{DiskMark, HeldDisk, STATE_VERSION};

/// The state from which a server answers.
pub struct Serving {
    /// The served disks.
    pub disks: Vec<Served>,
    hand_over: HandOver,
    /// For each door, a function that adds what its clients know to the state for the next server.
    of_clients: Vec<AddClients>,
    /// The sockets at which this process listens for I/O and metrics.
    pub(crate) sockets: Vec<Arc<TcpListener>>,
    /// Attributes that clients have set, by disk.
    set: Mutex<BTreeMap<String, BTreeMap<String, String>>>,
    /// Each paused disk holds a reference to this value, so disks are paused while there is more than one reference.
    pauses: Arc<()>,
    /// Whether no server can take over from this process, because it also uses the disks itself.
    pub(crate) stays: bool,
}

impl Served {
    /// The disk's properties and counters, for `zoneplug status`.
    pub(crate) fn shown(&self) -> Shown {
        let (g, c, k) =
            (self.disk.disk().geometry(), (self.counters)(), self.disk.disk().counters());
        Shown {
            name: self.name.clone(),
            spec: self.spec.clone(),
            capacity_bytes: g.capacity_bytes().0,
            zones: g.nr_zones(),
            zone_bytes: Sector(u64::from(g.zone_sectors())).to_bytes().0,
            pid: std::process::id(),
            recovered: self.recovered,
            handed_over: self.passed.origin == Origin::HandedOver,
            reads: c.reads,
            read_bytes: c.read_bytes,
            writes: c.writes,
            written_bytes: c.written_bytes,
            others: c.others,
            errors: c.errors,
            replayed: c.replayed,
            waiting: k.waiting,
            live_plugs: k.live_plugs,
            held: k.window.writes,
            held_total: k.window.held,
            held_expired: k.window.expired,
            address: self.network.as_ref().map(|n| n.address.clone()),
            nqn: self.network.as_ref().map(|n| n.nqn.clone()),
            hosts: self.network.as_ref().map(|n| (n.hosts)()),
            failed_authentications: self
                .network
                .as_ref()
                .map_or(0, |n| (n.failed_authentications)()),
            paths: self.network.as_ref().map_or_else(Vec::new, |n| n.attributes.paths()),
            io: self.passed.io.clone(),
            file_changed: self.disk.changed_file().map(|e| e.what().to_owned()),
            enabled: self.network.as_ref().is_none_or(|n| n.attributes.is_enabled()),
            measured: measure(self, &c),
        }
    }
}

impl Served {
    /// The failure to set an attribute. If the disk has no such attribute, the hint also lists those of the door.
    fn no_attribute(&self, e: Error) -> Failure {
        let hint = match (&self.network, e.what_to_try()) {
            (Some(n), Some(hint)) if e.kind() == ErrorKind::NotFound => {
                let of_door = n.attributes.shown().into_iter().map(|a| a.name);
                let all = std::iter::once(hint.to_owned()).chain(of_door);
                Some(all.collect::<Vec<_>>().join(", "))
            }
            _ => None,
        };
        let failure = Failure::from(e);
        hint.into_iter().fold(failure, Failure::hint)
    }
}

impl Serving {
    /// The state of a server of these disks. `sockets` are passed on to a server that takes over.
    pub fn new(
        disks: Vec<Served>,
        of_clients: Vec<AddClients>,
        sockets: Vec<Arc<TcpListener>>,
        hand_over: HandOver,
    ) -> Serving {
        let (set, pauses) = (Mutex::default(), Arc::default());
        Serving { disks, hand_over, of_clients, sockets, set, pauses, stays: false }
    }

    /// The state of this server for the next one, which compares it with its own and continues from it.
    pub(crate) fn state(&self) -> StateShown {
        let set = lock(&self.set);
        let of = |d: &Served| {
            let DiskMark { disks, layers, place, .. } = d.passed.mark;
            let uuid = d.network.as_ref().and_then(|n| n.uuid);
            StateOfDisk {
                name: d.name.clone(),
                spec: d.spec.clone(),
                door: Some(d.door.to_owned()),
                disks,
                layers,
                place,
                outlives: d.outlives,
                address: d.network.as_ref().map(|n| n.address.clone()),
                uuid: uuid.map(|uuid| StateOfDisk::uuid_text(&uuid)),
                enabled: d.network.as_ref().is_none_or(|n| n.attributes.is_enabled()),
                set: set.get(&d.name).cloned().unwrap_or_default(),
            }
        };
        let mut state = StateShown {
            state: STATE_VERSION,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            disks: self.disks.iter().map(of).collect(),
            passes_on: true,
            descriptors: std::fs::read_dir("/proc/self/fd").map_or(0, |all| all.count() as u64),
            subsystem: None,
            known_initiators: Vec::new(),
            handed_over_to: self.hand_over.asked_by(),
        };
        self.of_clients.iter().for_each(|add| add(&mut state));
        state
    }

    /// Whether clients have paused a disk.
    fn is_paused(&self) -> bool {
        Arc::strong_count(&self.pauses) > 1
    }

    /// Counts a pause that is to begin, until the value is dropped. Refused once another server has asked for the disks: it
    /// may ask only while none is counted.
    fn count_pause(&self) -> Result<Arc<()>, Failure> {
        let _set = lock(&self.set);
        if self.hand_over.is_asked() {
            return Err(self.being_left());
        }
        Ok(self.pauses.clone())
    }

    /// The failure of a request that comes after the record for the next server.
    fn being_left(&self) -> Failure {
        ControlError::BeingLeft { to: self.hand_over.asked_by() }.into()
    }

    /// Whether a disk has an attribute at present.
    pub(crate) fn has(&self, disk: &str, name: &str) -> bool {
        named(&self.disks, disk).is_ok_and(|d| d.disk.disk().attribute(name).is_some())
    }

    /// Sets an attribute of a disk, and returns the previous value. The next server sets it too, after a hand-over.
    pub(crate) fn set(&self, disk: &str, name: &str, value: &str) -> Result<String, Failure> {
        let disk = named(&self.disks, disk)?;
        // `set` stays locked until the attribute is set, so the state for the next server cannot be read in between: it
        // includes the attribute, or the hand-over has begun and the request is refused.
        let mut set = lock(&self.set);
        if self.hand_over.is_asked() {
            return Err(self.being_left());
        }
        if let Some(was) = disk.network.as_ref().and_then(|n| n.attributes.set(name, value)) {
            return was;
        }
        let was = disk.disk.disk().attribute(name).unwrap_or_default();
        disk.disk.set_attribute(name, value).map_err(|e: Error| disk.no_attribute(e))?;
        set.entry(disk.name.clone()).or_default().insert(name.to_owned(), value.to_owned());
        Ok(was)
    }
}

impl Answers for Serving {
    fn answer(&self, request: &Request, pause: &mut Option<Pause>) -> Result<Value, Failure> {
        answer(request, self, pause)
    }

    fn open_files(&self, disk: Option<&str>) -> Result<(Vec<usize>, Vec<OwnedFd>), Failure> {
        let (counts, further): (_, std::io::Result<Vec<OwnedFd>>) = match disk {
            Some(disk) => {
                let held = &named(&self.disks, disk)?.passed.held;
                let files = held.iter().flat_map(HeldDisk::files);
                let files = files.map(|f| Ok(f.try_clone()?.into())).collect();
                (held.iter().map(|disk| disk.files().len()).collect(), files)
            }
            None => {
                let sockets = self.sockets.iter().map(|s| Ok(s.try_clone()?.into())).collect();
                (vec![self.sockets.len()], sockets)
            }
        };
        let further = further
            .map_err(|e| Failure::of_system(Attempt::Descriptor, "no further descriptor", e))?;
        Ok((counts, further))
    }

    fn can_leave(&self) -> Result<(), Failure> {
        if self.stays {
            return Err(ServeError::OfProgram.into());
        }
        if let Some(d) = self.disks.iter().find(|d| !d.outlives) {
            let (disk, spec) = (d.name.clone(), d.spec.clone());
            return Err(ServeError::EndsWithServer { disk, spec }.into());
        }
        if self.is_paused() {
            return Err(ServeError::Paused.into());
        }
        Ok(())
    }

    fn hand_over(&self, stream: UnixStream) -> Result<(), (UnixStream, Failure)> {
        // No pause begins while `set` is locked.
        let _set = lock(&self.set);
        if let Err(why) = self.can_leave() {
            return Err((stream, why));
        }
        self.hand_over.ask(stream).map_err(|by| (by, self.being_left()))
    }
}

fn named<'a>(disks: &'a [Served], disk: &str) -> Result<&'a Served, Failure> {
    disks.iter().find(|d| d.name == name_of(disk)).ok_or_else(|| {
        let served = disks.iter().map(|d| d.name.clone()).collect();
        ServeError::NotServed { disk: disk.to_owned(), served }.into()
    })
}

/// Answers a request.
fn answer(
    request: &Request,
    serving: &Serving,
    pause: &mut Option<Pause>,
) -> Result<Value, Failure> {
    let disks = &serving.disks[..];
    match request {
        Request::Status {} => {
            let all: Vec<Shown> = disks.iter().map(Served::shown).collect();
            Ok(serde_json::to_value(all)?)
        }
        Request::Attributes { disk } => {
            let disk = named(disks, disk)?;
            let all = disk.disk.disk().attributes();
            let mut all: Vec<AttributeShown> = all.iter().map(AttributeShown::of).collect();
            all.extend(disk.network.iter().flat_map(|n| n.attributes.shown()));
            Ok(serde_json::to_value(all)?)
        }
        Request::Set { disk, name, value } => Ok(json!({"was": serving.set(disk, name, value)?})),
        Request::ZoneWplugs { disk } => {
            let mut text = String::new();
            // Writing to a string does not fail.
            let _ = named(disks, disk)?.disk.disk().zone_wplugs(&mut text);
            Ok(Value::String(text))
        }
        Request::Zones { disk, first, count, cells } => {
            let disk = named(disks, disk)?.disk.disk();
            Ok(serde_json::to_value(zone_table(disk, *first, *count, *cells))?)
        }
        Request::Pause { disk, most_ms } => {
            let counted = serving.count_pause()?;
            // A connection has one pause at a time: the previous one ends first.
            *pause = None;
            let most = std::time::Duration::from_millis(*most_ms);
            *pause = Some(Pause::begin(&named(disks, disk)?.disk, most, counted)?);
            Ok(json!({}))
        }
        Request::Resume {} => {
            let paused = pause.take().ok_or(ControlError::NoPause)?.end();
            Ok(json!({"pause_ns": paused.as_nanos() as u64}))
        }
        Request::State {} => Ok(serde_json::to_value(serving.state())?),
        Request::Pass { .. } | Request::HandOver {} | Request::Served {} => {
            Err(ControlError::NoTakeover.into())
        }
    }
}

#[cfg(test)]
impl Serving {
    /// A server of one disk.
    pub(crate) fn of_spec(spec: &str) -> Serving {
        let served = Served {
            door: "ublk",
            name: "ublkb0".to_owned(),
            spec: spec.to_owned(),
            disk: zoneplug_host::HostedDisk::open_spec(spec).unwrap(),
            recovered: false,
            outlives: true,
            counters: Box::new(zoneplug_host::ServedCounters::default),
            network: None,
            passed: crate::served::PassedDisk::default(),
        };
        Serving::new(vec![served], Vec::new(), Vec::new(), HandOver::new(|| ()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The hint for an attribute that does not exist lists those that do: of the disk, and of a door that has some.
    #[test]
    fn an_unknown_attribute_is_answered_with_those_that_exist() {
        use crate::served::{DoorAttributes, Network};
        struct One;
        impl DoorAttributes for One {
            fn shown(&self) -> Vec<AttributeShown> {
                let (name, value) = ("of_the_door".to_owned(), String::new());
                vec![AttributeShown { name, value, writable: true }]
            }
        }
        let hint = |network: Option<Network>| {
            let mut serving = Serving::of_spec("mem,zones=4,zone-size=1M");
            serving.disks[0].network = network;
            let e = serving.set("ublkb0", "no_such_attribute", "1").unwrap_err();
            Error::from(e).what_to_try().unwrap().to_owned()
        };
        let of_disk = hint(None);
        let at = || Network::at("127.0.0.1:3260".parse().unwrap());
        assert_eq!(hint(Some(at())), of_disk);
        let with_one = Network { attributes: Box::new(One), ..at() };
        assert_eq!(hint(Some(with_one)), format!("{of_disk}, of_the_door"));
    }

    /// U9: a disk that is being copied is not handed over.
    #[test]
    fn u9_a_pause_hinders_a_hand_over_until_it_ends() {
        let serving = Serving::of_spec("mem,zones=4,zone-size=1M");
        assert!(serving.can_leave().is_ok());
        let mut pause = None;
        let request = Request::Pause { disk: "ublkb0".to_owned(), most_ms: 60_000 };
        serving.answer(&request, &mut pause).unwrap();
        let e = serving.can_leave().unwrap_err().to_string();
        assert!(e.contains("a client has paused a disk"), "{e}");
        // A pause that has begun since the server was asked whether it can leave hinders the hand-over too.
        let (by, _next) = UnixStream::pair().unwrap();
        let (by, e) = serving.hand_over(by).unwrap_err();
        assert!(e.to_string().contains("a client has paused a disk"), "{e}");
        serving.answer(&Request::Resume {}, &mut pause).unwrap();
        assert!(serving.can_leave().is_ok() && serving.hand_over(by).is_ok());
    }

    /// U9: the next server sets an attribute to the value that it had last.
    #[test]
    fn u9_the_last_value_of_an_attribute_is_handed_over() {
        let serving = Serving::of_spec("mem,zones=4,zone-size=1M,ordered=1");
        for (value, was) in [("2", "1"), ("3", "2")] {
            assert_eq!(serving.set("ublkb0", "zone_write_depth", value).unwrap(), was);
        }
        let state = serving.state();
        assert_eq!(state.disks[0].set, BTreeMap::from([("zone_write_depth".into(), "3".into())]));
    }

    /// U9, U15: the next server may have the state already, so what would change it is refused from then on, also while
    /// the disks drain. If that server is refused, this one goes on as before.
    #[test]
    fn u15_what_is_set_after_another_server_has_asked_is_refused() {
        let serving = Serving::of_spec("mem,zones=4,zone-size=1M,ordered=1");
        let set = |value: &str| serving.set("ublkb0", "zone_write_depth", value);
        assert_eq!(set("2").unwrap(), "1");
        let (next, _) = UnixStream::pair().unwrap();
        serving.hand_over.ask(next).unwrap();
        let (mut pause, _draining) = (None, serving.hand_over.take().unwrap());
        let request = Request::Pause { disk: "ublkb0".to_owned(), most_ms: 60_000 };
        for refused in [set("3").map(drop), serving.answer(&request, &mut pause).map(drop)] {
            let e = refused.unwrap_err().to_string();
            assert!(e.contains("the disks are being left"), "{e}");
        }
        assert_eq!(serving.state().disks[0].set["zone_write_depth"], "2");
        serving.hand_over.refused();
        assert_eq!(set("3").unwrap(), "2");
    }
}
