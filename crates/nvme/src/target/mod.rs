//! A target without a transport: commands and data go in, completions and data come out.
//!
//! | file | what it owns |
//! | --- | --- |
//! | `mod.rs` | [`Target`]: subsystems, the discovery subsystem, controllers; Connect |
//! | `subsystem.rs`, `nqn.rs`, `keys.rs` | a subsystem: namespaces, hosts that may connect; names; keys |
//! | `auth/` | proof of a host's identity, on each of its queues |
//! | `namespace.rs` | the namespaces that represent a disk |
//! | `room.rs` | the room for controllers, and which hosts have places in it |
//! | `port.rs` | the addresses at which a target listens, and their ANA states |
//! | `controller/` | admin commands: properties, Identify, logs, features, events, keep alive |
//! | `io/` | I/O commands: the requests to a disk, and the meaning of its answers |
//!
//! The caller keeps one [`Target`] for all connections and calls it for the first command of each connection and for
//! the commands of admin queues. After Connect, I/O queues no longer need it: they have the list of [`Namespaces`]
//! and call [`io`].

#[cfg(test)]
mod ana_tests;
pub mod auth;
mod controller;
pub mod io;
mod keys;
mod namespace;
mod nqn;
mod port;
mod room;
mod subsystem;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

pub use controller::asks_for_activity;
pub use keys::Keys;
pub use namespace::{Namespace, Namespaces};
pub use nqn::Nqn;
pub use port::AnaState;
pub use subsystem::{Hosts, SubsystemConfig};

use crate::spec::auth::AUTHENTICATION_REQUIRED;
use crate::spec::fabrics::{
    ANY_CONTROLLER, Connect, ConnectData, DISCOVERY_NQN, connect_offset, fctype,
};
use crate::spec::{Command, Completion, opcode, status};
use crate::tcp::IN_CAPSULE_MAX;
use auth::Authentication;
use controller::{Controller, Keeps, Kind, Notice};
use port::Ports;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use subsystem::Subsystem;
use zoneplug_core::{Error, ErrorKind, Nanos};

/// Entries of the queue of a discovery controller.
const DISCOVERY_ENTRIES: u16 = 128;
/// Longest data of a discovery controller's command, in bytes.
const DISCOVERY_DATA: u32 = 1 << 20;

/// A queue of a controller. A connection carries one queue for its whole life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct QueueId {
    /// The controller.
    pub controller: u16,
    /// 0 for the admin queue.
    pub qid: u16,
}

/// A host: its name, and the identifier that distinguishes hosts with one name (Fabrics, *Connect Command - Data*,
/// HOSTID).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostId {
    /// Its NQN.
    pub nqn: Nqn,
    /// Its identifier.
    pub id: [u8; 16],
}

/// The answer to a Connect that succeeded.
#[derive(Debug)]
pub struct Connected {
    /// The completion to send.
    pub completion: Completion,
    /// The queue that the connection carries from now on.
    pub queue: QueueId,
    /// The host at the other end.
    pub host: HostId,
    /// Entries of the submission queue. At most this many commands, less one, are in flight.
    pub entries: u16,
    /// Whether completions report the head of the submission queue. If not, because the host has disabled flow
    /// control, every completion has FFFFh there, including this one.
    pub sq_flow_control: bool,
    /// Most bytes of a command's data, in either direction.
    pub max_data: u32,
    /// Most bytes of data in a capsule.
    pub in_capsule: u32,
    /// The namespaces of an I/O queue. [`TargetEvent::Namespaces`] replaces them.
    pub namespaces: Option<Arc<Namespaces>>,
    /// The authentication, if the host must authenticate on this queue. It takes the queue's commands until the host
    /// is admitted; then the caller calls [`Target::admitted`]. Until then the target does not know an I/O queue: it
    /// sends it no events, and the caller need not report its end.
    pub authentication: Option<Box<Authentication>>,
}

/// The answer to an admin command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// The completion, and the data to send before it: empty, or as long as the command's SGL.
    Now(Completion, Vec<u8>),
    /// The command stays in flight: [`TargetEvent::Complete`] answers it.
    Later,
}

/// A request to the caller about another connection than that of the command. The caller takes events with
/// [`Target::take_events`] after every call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TargetEvent {
    /// Send this completion on the admin queue of the controller.
    Complete(u16, Completion),
    /// The I/O queues of the controller show these namespaces from now on.
    Namespaces(u16, Arc<Namespaces>),
    /// Close the connections of the controller's I/O queues, and call [`Target::drained`] for each once its commands
    /// have ended.
    CloseIo(u16),
    /// Close all connections of the controller, which has ended.
    Close(u16),
}

/// The work that a subsystem has done, for the health log. The caller counts it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Activity {
    /// Reads that succeeded.
    pub reads: u64,
    /// Their length in bytes.
    pub read_bytes: u64,
    /// Writes and appends that succeeded.
    pub writes: u64,
    /// Their length in bytes.
    pub written_bytes: u64,
}

/// The state that all controllers share.
#[derive(Debug)]
struct Registry {
    subsystems: Vec<Subsystem>,
    ports: Ports,
    /// Changes whenever the discovery log does.
    generation: u64,
}

impl Registry {
    fn find(&self, nqn: &Nqn) -> Option<&Subsystem> {
        self.subsystems.iter().find(|s| s.config.nqn == *nqn)
    }

    fn find_mut(&mut self, nqn: &Nqn) -> Result<&mut Subsystem, Error> {
        let found = self.subsystems.iter_mut().find(|s| s.config.nqn == *nqn);
        found.ok_or_else(|| Error::new(ErrorKind::NotFound, format!("no subsystem {nqn}")))
    }
}

/// Subsystems and the controllers of the hosts that are connected to them.
///
/// ```
/// use zoneplug_core::Nanos;
/// use zoneplug_core::zone::{Geometry, Limits};
/// use zoneplug_nvme::target::{Namespace, Nqn, SubsystemConfig, Target};
/// let mut target = Target::new(vec!["127.0.0.1:4420".parse()?]);
/// let nqn = Nqn::new("nqn.2026-11.dev.zoneplug:test")?;
/// target.add_subsystem(SubsystemConfig::new(nqn.clone()))?;
/// let g = Geometry::new(64, 0x8000, 0x8000)?;
/// let disk = Namespace::of(0, [1; 16], &g, &Limits::default())?;
/// assert_eq!(target.add_namespaces(&nqn, disk)?, [1]);
/// assert_eq!(target.next_deadline(), None); // no host is connected
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Target {
    registry: Registry,
    controllers: BTreeMap<u16, Controller>,
    /// The number of the last controller that was made.
    last: u16,
    /// The time of the last look that found a host late. Hosts late since then end at the next look.
    late: Option<Nanos>,
    events: Vec<TargetEvent>,
}

impl Target {
    /// Makes a target that listens at `ports`, without subsystems. To a host that asks, a wildcard port (such as
    /// `0.0.0.0`) is shown with the address at which that host came in.
    pub fn new(ports: Vec<SocketAddr>) -> Target {
        let ports = Ports::new(ports);
        let registry = Registry { subsystems: Vec::new(), ports, generation: 1 };
        let (controllers, events) = (BTreeMap::new(), Vec::new());
        Target { registry, controllers, last: 0, late: None, events }
    }

    /// Adds a subsystem. Fails if its name exists already, or if a number of `config` is out of bounds.
    pub fn add_subsystem(&mut self, config: SubsystemConfig) -> Result<(), Error> {
        if self.registry.find(&config.nqn).is_some() || config.nqn.as_str() == DISCOVERY_NQN {
            return Err(Error::new(ErrorKind::Invalid, format!("two subsystems {}", config.nqn))
                .hint("each subsystem has a name of its own"));
        }
        let bounds = [
            ("serial number", config.serial.len() <= 20 && config.serial.is_ascii()),
            ("number of queues", config.max_queues > 0),
            ("queue size", config.queue_entries > 1),
            ("longest transfer", config.max_data.is_power_of_two() && config.max_data >= 4096),
            (
                "data of a capsule",
                config.in_capsule.is_multiple_of(16) && config.in_capsule <= IN_CAPSULE_MAX,
            ),
        ];
        if let Some((what, _)) = bounds.iter().find(|(_, ok)| !ok) {
            return Err(Error::invalid(format!("the {what} of {} is out of bounds", config.nqn)));
        }
        self.registry.subsystems.push(Subsystem::new(config));
        self.discovery_changed();
        Ok(())
    }

    /// Removes a subsystem and its controllers.
    pub fn remove_subsystem(&mut self, nqn: &Nqn) -> Result<(), Error> {
        self.registry.find_mut(nqn)?;
        self.registry.subsystems.retain(|s| s.config.nqn != *nqn);
        let gone: Vec<u16> = self.of_subsystem(nqn).map(|c| c.id).collect();
        for id in gone {
            self.end(id);
        }
        self.discovery_changed();
        Ok(())
    }

    /// Adds namespaces to a subsystem and returns their numbers. Connected hosts are notified.
    pub fn add_namespaces(
        &mut self,
        nqn: &Nqn,
        namespaces: Vec<Namespace>,
    ) -> Result<Vec<u32>, Error> {
        let in_use = self.of_subsystem(nqn).any(|c| !c.unauthenticated);
        let numbers = self.registry.find_mut(nqn)?.add(namespaces, None, in_use)?;
        self.namespaces_changed(nqn, &numbers);
        Ok(numbers)
    }

    /// Like [`Target::add_namespaces`], under numbers by which hosts know the namespaces already. Namespaces that are
    /// added later without numbers get higher ones.
    ///
    /// # Errors
    ///
    /// Another namespace has one of the numbers, or there are not as many numbers as namespaces.
    pub fn add_known_namespaces(
        &mut self,
        nqn: &Nqn,
        namespaces: Vec<Namespace>,
        numbers: &[u32],
    ) -> Result<(), Error> {
        let in_use = self.of_subsystem(nqn).any(|c| !c.unauthenticated);
        let numbers = self.registry.find_mut(nqn)?.add(namespaces, Some(numbers), in_use)?;
        self.namespaces_changed(nqn, &numbers);
        Ok(())
    }

    /// Returns the longest append of a subsystem, encoded as ZASL; 0 if the subsystem does not exist.
    pub fn append_limit(&self, nqn: &Nqn) -> u8 {
        self.registry.find(nqn).map_or(0, |s| s.zasl())
    }

    /// Removes the namespaces of a disk from a subsystem and returns their numbers. Connected hosts are notified. I/O
    /// queues make no more requests to the disk once they have the new list.
    pub fn remove_namespaces(&mut self, nqn: &Nqn, disk: u32) -> Result<Vec<u32>, Error> {
        let numbers = self.registry.find_mut(nqn)?.remove(disk);
        self.namespaces_changed(nqn, &numbers);
        Ok(numbers)
    }

    /// Shows or hides the namespaces of a disk and returns the numbers of those that change. They keep their numbers.
    /// Connected hosts are notified, and their commands in flight are carried out.
    ///
    /// # Errors
    ///
    /// The subsystem does not exist.
    pub fn enable_namespaces(
        &mut self,
        nqn: &Nqn,
        disk: u32,
        enabled: bool,
    ) -> Result<Vec<u32>, Error> {
        let numbers = self.registry.find_mut(nqn)?.enable(disk, enabled);
        self.namespaces_changed(nqn, &numbers);
        Ok(numbers)
    }

    /// Returns the namespaces of a subsystem that are shown.
    pub fn namespaces(&self, nqn: &Nqn) -> Option<Arc<Namespaces>> {
        self.registry.find(nqn).map(|s| s.namespaces.clone())
    }

    /// Returns the most bytes of a command's data while the subsystem is still unknown.
    pub const fn max_connect_data() -> u32 {
        ConnectData::LEN as u32
    }

    /// Handles the first command of a connection, which must be Connect. `data` is its data, `local` the address at
    /// which the connection came in. The error is the completion to send before the caller closes the connection
    /// (J1).
    pub fn connect(
        &mut self,
        command: &Command,
        data: &[u8],
        local: SocketAddr,
        now: Nanos,
    ) -> Result<Connected, Completion> {
        self.connect_as(command, data, local, true, now)
    }

    /// Like [`Target::connect`]. `kept`: a place is kept for the host. All other hosts share half of a subsystem's
    /// controllers. In a subsystem with keys, hosts without a key leave a quarter of the controllers to hosts with
    /// one.
    pub fn connect_as(
        &mut self,
        command: &Command,
        data: &[u8],
        local: SocketAddr,
        kept: bool,
        now: Nanos,
    ) -> Result<Connected, Completion> {
        let cid = command.cid();
        let refuse = |status: u16, result: u64| Completion {
            result,
            cid,
            status: status | status::DNR,
            ..Default::default()
        };
        if command.opcode() != opcode::FABRICS || command.fctype() != fctype::CONNECT {
            return Err(refuse(status::SEQUENCE, 0));
        }
        let data = match data.first_chunk() {
            Some(data) if command.sgl().length as usize == ConnectData::LEN => {
                ConnectData::decode(data)
            }
            _ => return Err(refuse(status::SGL_LENGTH, 0)),
        };
        let fields = Connect::decode(command);
        if fields.recfmt != 0 {
            return Err(refuse(status::CONNECT_FORMAT, 0));
        }
        // The result names the wrong field: its offset in the command or in the data.
        let in_command = |offset: u16| refuse(status::CONNECT_PARAMETERS, u64::from(offset));
        let in_data = |offset: u16| {
            refuse(status::CONNECT_PARAMETERS, u64::from(offset) | connect_offset::IN_DATA)
        };
        let host = Nqn::decode(&data.hostnqn).ok_or(in_data(connect_offset::HOSTNQN))?;
        let host_id = HostId { nqn: host.clone(), id: data.hostid };
        let nqn = Nqn::decode(&data.subnqn).ok_or(in_data(connect_offset::SUBNQN))?;
        let subsystem = match self.registry.find(&nqn) {
            Some(s) => Some(s),
            None if nqn.as_str() == DISCOVERY_NQN => None,
            None => return Err(in_data(connect_offset::SUBNQN)),
        };
        if subsystem.is_some_and(|s| !s.config.admits(&host)) {
            return Err(refuse(status::CONNECT_HOST, 0));
        }
        let most = subsystem.map_or(DISCOVERY_ENTRIES, |s| match fields.qid {
            0 => s.admin_entries(),
            _ => s.config.queue_entries,
        });
        if fields.sqsize == 0 || fields.sqsize >= most {
            return Err(in_command(connect_offset::SQSIZE));
        }
        let keys = subsystem.map(|s| &s.config.keys);
        let authentication = keys.and_then(|keys| Authentication::of(&host, &nqn, keys));
        let (id, namespaces) = if fields.qid == 0 {
            if data.cntlid != ANY_CONTROLLER {
                return Err(in_data(connect_offset::CNTLID));
            }
            let kind = subsystem.map_or(Kind::Discovery, |_| Kind::Io(nqn.clone()));
            let kept = match kept {
                _ if authentication.is_some() => Keeps::Keyed,
                true => Keeps::Known,
                false => Keeps::Nothing,
            };
            let Some(id) = self.make_place(&kind, kept) else {
                // Another host may leave, so this one may try again.
                return Err(Completion { status: status::CONNECT_BUSY, ..refuse(0, 0) });
            };
            let mut controller =
                Controller::new(id, kind, host, data.hostid, local, fields.kato, now);
            (controller.unauthenticated, controller.kept) = (authentication.is_some(), kept);
            controller.port = self.registry.ports.at(local);
            controller.access = self.registry.ports.state(controller.port);
            self.controllers.insert(id, controller);
            self.last = id;
            (id, None)
        } else {
            let id = data.cntlid;
            let Some(subsystem) = subsystem else { return Err(in_command(connect_offset::QID)) };
            let Some(controller) = self.controllers.get_mut(&id) else {
                return Err(in_data(connect_offset::CNTLID));
            };
            if !controller.is_of(&nqn) {
                return Err(in_data(connect_offset::CNTLID));
            }
            if !controller.is_of_host(&host) {
                return Err(in_data(connect_offset::HOSTNQN));
            }
            if !controller.has_host_id(&data.hostid) {
                return Err(in_data(connect_offset::HOSTID));
            }
            let opened = match authentication {
                Some(_) => controller.may_open_queue(fields.qid),
                None => controller.open_queue(fields.qid, now),
            };
            opened.map_err(|status| match status {
                status::CONNECT_PARAMETERS => in_command(connect_offset::QID),
                status => refuse(status, 0),
            })?;
            (id, Some(controller.shown(subsystem)))
        };
        let subsystem = self.registry.find(&nqn);
        let required = if authentication.is_some() { AUTHENTICATION_REQUIRED } else { 0 };
        let result = u64::from(id) | required;
        Ok(Connected {
            completion: Completion { result, cid, ..Default::default() },
            queue: QueueId { controller: id, qid: fields.qid },
            host: host_id,
            entries: fields.sqsize + 1,
            sq_flow_control: fields.cattr & Connect::NO_SQ_FLOW_CONTROL == 0,
            max_data: subsystem.map_or(DISCOVERY_DATA, |s| s.config.max_data),
            in_capsule: subsystem.map_or(IN_CAPSULE_MAX, |s| s.config.in_capsule),
            namespaces,
            authentication: authentication.map(Box::new),
        })
    }

    /// Notes a command on the admin queue that is not for [`Target::admin`]. If the host has authenticated, the
    /// command is a sign of life.
    pub fn heard(&mut self, controller: u16, now: Nanos) {
        if let Some(c) = self.controllers.get_mut(&controller).filter(|c| !c.unauthenticated) {
            c.heard(now);
        }
    }

    /// Handles a command of an admin queue. No supported command brings data, so any data are dropped. If the
    /// controller has ended, the answer is *Command Abort Requested*.
    pub fn admin(&mut self, controller: u16, command: &Command, now: Nanos) -> Reply {
        match self.controllers.get_mut(&controller) {
            Some(c) => c.admin(&self.registry, command, now, &mut self.events),
            None => {
                let status = status::ABORTED | status::DNR;
                Reply::Now(
                    Completion { cid: command.cid(), status, ..Default::default() },
                    Vec::new(),
                )
            }
        }
    }

    /// Sets the work that a controller's subsystem has done so far, before a command that [`asks_for_activity`].
    pub fn set_activity(&mut self, controller: u16, activity: Activity) {
        if let Some(c) = self.controllers.get_mut(&controller) {
            c.activity = activity;
        }
    }

    /// Notes that a connection has ended and that no command of it is being carried out. If it carried an admin
    /// queue, the controller ends.
    pub fn disconnected(&mut self, queue: QueueId) {
        self.draining(queue);
        self.drained(queue);
    }

    /// Notes that a connection has ended. If it carried an I/O queue whose commands are still being carried out, the
    /// caller calls [`Target::drained`] when they have ended.
    pub fn draining(&mut self, queue: QueueId) {
        match queue.qid {
            0 => self.end(queue.controller),
            qid => {
                if let Some(c) = self.controllers.get_mut(&queue.controller) {
                    c.close_queue(qid);
                }
            }
        }
    }

    /// Notes that the last command of an I/O queue without a connection has ended, once for each queue that was
    /// connected. Until then, a controller that is reset or shut down does not report completion (L8).
    pub fn drained(&mut self, queue: QueueId) {
        if let Some(c) = self.controllers.get_mut(&queue.controller).filter(|_| queue.qid != 0) {
            c.drained();
        }
    }

    /// Returns the time at which [`Target::expire`] has work to do.
    pub fn next_deadline(&self) -> Option<Nanos> {
        self.controllers.values().filter_map(|c| c.deadline).min()
    }

    /// Ends the controllers whose hosts were silent for too long, for a server that checks now and then. A host that
    /// is late for the first time gets until the next check: after a stall of the server, commands of the host may
    /// not have been read yet (J6).
    pub fn expire_at_second_look(&mut self, now: Nanos) {
        if let Some(at) = self.late.take() {
            self.expire(at);
        }
        self.late = self.next_deadline().filter(|at| *at <= now).map(|_| now);
    }

    /// Ends the controllers whose hosts were silent for too long (J6).
    pub fn expire(&mut self, now: Nanos) {
        let late = |c: &&Controller| c.deadline.is_some_and(|d| d <= now);
        let late: Vec<u16> = self.controllers.values().filter(late).map(|c| c.id).collect();
        for id in late {
            self.end(id);
        }
    }

    /// Sets the ANA state of a port, which is named by its index. Hosts connected there are notified.
    ///
    /// ```
    /// use zoneplug_nvme::target::{AnaState, Target};
    /// let mut target = Target::new(vec!["127.0.0.1:4420".parse()?, "127.0.0.1:4421".parse()?]);
    /// target.set_ana_state(1, AnaState::NonOptimized);
    /// assert_eq!(target.ana_state(1), AnaState::NonOptimized);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_ana_state(&mut self, port: usize, state: AnaState) {
        if !self.registry.ports.set(port, state) {
            return;
        }
        let registry = &self.registry;
        for c in self.controllers.values_mut().filter(|c| c.port == Some(port)) {
            c.access = state;
            if let Some(subsystem) = c.subsystem(registry).filter(|_| c.has_io_queues()) {
                self.events.push(TargetEvent::Namespaces(c.id, c.shown(subsystem)));
            }
            c.note(Notice::Access, &mut self.events);
        }
    }

    /// Returns the ANA state of a port.
    pub fn ana_state(&self, port: usize) -> AnaState {
        self.registry.ports.state(Some(port))
    }

    /// Takes the requests for other connections, in order.
    pub fn take_events(&mut self) -> Vec<TargetEvent> {
        std::mem::take(&mut self.events)
    }

    /// Returns the hosts that are connected to a subsystem, one for each controller. Hosts that have yet to
    /// authenticate are left out.
    pub fn hosts(&self, nqn: &Nqn) -> impl Iterator<Item = (u16, &Nqn)> {
        self.of_subsystem(nqn).filter(|c| !c.unauthenticated).map(|c| (c.id, &c.host))
    }

    /// Returns whether a host must authenticate to connect to a subsystem.
    pub fn has_key(&self, nqn: &Nqn, host: &Nqn) -> bool {
        self.registry.find(nqn).is_some_and(|s| s.config.keys.of(host).is_some())
    }

    fn of_subsystem(&self, nqn: &Nqn) -> impl Iterator<Item = &Controller> {
        self.controllers.values().filter(move |c| c.is_of(nqn))
    }

    fn end(&mut self, id: u16) {
        if self.controllers.remove(&id).is_some() {
            self.events.push(TargetEvent::Close(id));
        }
    }

    fn namespaces_changed(&mut self, nqn: &Nqn, numbers: &[u32]) {
        let subsystem = self.registry.find(nqn).filter(|_| !numbers.is_empty());
        let Some(subsystem) = subsystem else { return };
        for c in self.controllers.values_mut().filter(|c| c.is_of(nqn)) {
            if c.has_io_queues() {
                self.events.push(TargetEvent::Namespaces(c.id, c.shown(subsystem)));
            }
            c.note(Notice::Namespaces(numbers), &mut self.events);
        }
    }

    fn discovery_changed(&mut self) {
        self.registry.generation += 1;
        for c in self.controllers.values_mut() {
            c.note(Notice::Discovery, &mut self.events);
        }
    }
}
