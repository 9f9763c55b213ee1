//! A controller: the association of one host with a subsystem, and its admin commands.
//!
//! | file | commands |
//! | --- | --- |
//! | `mod.rs` | properties, queues, dispatch |
//! | `identify.rs` | Identify |
//! | `logs.rs` | Get Log Page |
//! | `discovery.rs` | the discovery log |
//! | `features.rs` | Get Features, Set Features |
//! | `events.rs` | Asynchronous Event Request |

mod discovery;
mod events;
mod features;
mod identify;
mod logs;
#[cfg(test)]
mod tests;

pub(super) use events::Notice;
pub use logs::asks_for_activity;

use super::namespace::Namespaces;
use super::nqn::Nqn;
use super::port::AnaState;
use super::subsystem::Subsystem;
use super::{Activity, Registry, Reply, TargetEvent};
use crate::spec::fabrics::{Capabilities, Configuration, VERSION, csts, fctype, property};
use crate::spec::{Command, Completion, admin, opcode, status};
use events::Events;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use zoneplug_core::Nanos;

/// Longest time until a controller is ready, in 500 ms (CAP.TO).
const READY_TIMEOUT: u8 = 20;
/// Granularity of keep alive timeouts in milliseconds (KAS).
const KEEP_ALIVE_MS: u32 = 1000;
/// Time in milliseconds for which a controller that is not ready, or a discovery controller without keep alive, waits
/// for a command (Base Specification, *Discovery Controller*).
const IDLE_MS: u32 = 120_000;

/// The type of a controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    /// I/O, of the subsystem with this name.
    Io(Nqn),
    /// Discovery.
    Discovery,
}

/// An answer: the result and the data of a command, or its status.
type Answer = Result<(u64, Vec<u8>), u16>;

/// The reason for which a place among the controllers is kept for a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Keeps {
    Nothing,
    /// The host is known.
    Known,
    /// The host has a key.
    Keyed,
}

#[derive(Debug)]
pub(super) struct Controller {
    pub(super) id: u16,
    pub(super) kind: Kind,
    pub(super) host: Nqn,
    host_id: [u8; 16],
    /// The address at which the host came in.
    local: SocketAddr,
    /// Whether the host has yet to authenticate on the admin queue.
    pub(super) unauthenticated: bool,
    /// The reason for which a place is kept for the host ([`Target::connect_as`](super::Target::connect_as)).
    pub(super) kept: Keeps,
    /// The port at which the host came in; `access` is that port's ANA state.
    pub(super) port: Option<usize>,
    pub(super) access: AnaState,
    cc: Configuration,
    csts: u32,
    /// Keep alive timeout in milliseconds; 0: none.
    kato: u32,
    /// The time of the host's last command.
    pub(super) heard_at: Nanos,
    /// The time at which the controller ends unless its host sends a command.
    pub(super) deadline: Option<Nanos>,
    /// I/O queues that the host may connect, once it has requested a number.
    granted: Option<u16>,
    /// I/O queues that are connected.
    queues: BTreeSet<u16>,
    /// I/O queues that are connected, or whose commands are still being carried out.
    undrained: u32,
    /// CC.EN was cleared, and commands of the I/O queues are still being carried out.
    resetting: bool,
    events: Events,
    /// The numbers of the health log.
    pub(super) activity: Activity,
}

impl Controller {
    pub(super) fn new(
        id: u16,
        kind: Kind,
        host: Nqn,
        host_id: [u8; 16],
        local: SocketAddr,
        kato: u32,
        now: Nanos,
    ) -> Controller {
        let mut c = Controller {
            id,
            kind,
            host,
            host_id,
            local,
            unauthenticated: false,
            kept: Keeps::Nothing,
            port: None,
            access: AnaState::default(),
            cc: Configuration::default(),
            csts: 0,
            kato,
            heard_at: now,
            deadline: None,
            granted: None,
            queues: BTreeSet::new(),
            undrained: 0,
            resetting: false,
            events: Events::default(),
            activity: Activity::default(),
        };
        c.heard(now);
        c
    }

    /// Returns whether the controller belongs to the subsystem with this name.
    pub(super) fn is_of(&self, nqn: &Nqn) -> bool {
        matches!(&self.kind, Kind::Io(of) if of == nqn)
    }

    /// Returns whether the controller belongs to the host with this name.
    pub(super) fn is_of_host(&self, host: &Nqn) -> bool {
        self.host == *host
    }

    /// Returns whether the controller's host has this identifier.
    pub(super) fn has_host_id(&self, host_id: &[u8; 16]) -> bool {
        self.host_id == *host_id
    }

    /// Checks whether an I/O queue can be connected now.
    pub(super) fn may_open_queue(&self, qid: u16) -> Result<(), u16> {
        // A controller whose host has yet to authenticate counts as not enabled, even if it was enabled before.
        if self.unauthenticated || !self.is_ready() || self.granted.is_none_or(|n| qid > n) {
            return Err(status::CONNECT_PARAMETERS);
        }
        if self.queues.contains(&qid) {
            return Err(status::SEQUENCE);
        }
        Ok(())
    }

    /// Connects an I/O queue.
    pub(super) fn open_queue(&mut self, qid: u16, now: Nanos) -> Result<(), u16> {
        self.may_open_queue(qid)?;
        self.queues.insert(qid);
        self.undrained += 1;
        self.heard(now);
        Ok(())
    }

    /// Notes the end of an I/O queue's connection. Its commands may still be carried out.
    pub(super) fn close_queue(&mut self, qid: u16) {
        self.queues.remove(&qid);
    }

    /// Ends the connections of all I/O queues.
    pub(super) fn close_queues(&mut self, events: &mut Vec<TargetEvent>) {
        if self.has_io_queues() {
            self.queues.clear();
            events.push(TargetEvent::CloseIo(self.id));
        }
    }

    /// Notes that the last command of an I/O queue without a connection has ended.
    pub(super) fn drained(&mut self) {
        self.undrained = self.undrained.saturating_sub(1);
        if self.is_drained() {
            if self.resetting {
                (self.resetting, self.csts) = (false, 0);
            }
            if self.csts & csts::SHUTDOWN_OCCURRING != 0 {
                self.csts ^= csts::SHUTDOWN_OCCURRING | csts::SHUTDOWN_COMPLETE;
            }
        }
    }

    /// Returns whether all commands of I/O queues without a connection have ended.
    fn is_drained(&self) -> bool {
        self.undrained as usize <= self.queues.len()
    }

    pub(super) fn has_io_queues(&self) -> bool {
        !self.queues.is_empty()
    }

    /// Returns the namespaces that the controller shows: no zoned ones if the host has enabled the NVM Command Set
    /// only, and none with I/O if the port is inaccessible.
    pub(super) fn shown(&self, subsystem: &Subsystem) -> Arc<Namespaces> {
        let inaccessible = self.access == AnaState::Inaccessible;
        match (self.cc.css, inaccessible) {
            (0, false) => Arc::new(subsystem.namespaces.nvm_only()),
            (0, true) => Arc::new(subsystem.namespaces.nvm_only().without_access()),
            (_, true) => Arc::new(subsystem.namespaces.as_ref().clone().without_access()),
            (_, false) => subsystem.namespaces.clone(),
        }
    }

    fn is_ready(&self) -> bool {
        self.csts & csts::READY != 0 && !self.resetting
    }

    /// Restarts the host's time limit after a sign of life. The keep alive timeout counts while the controller is
    /// ready.
    pub(super) fn heard(&mut self, now: Nanos) {
        self.heard_at = now;
        let runs = self.is_ready() && self.csts & csts::SHUTDOWN_COMPLETE == 0;
        let ms = match self.kind {
            _ if !runs => IDLE_MS,
            Kind::Discovery if self.kato == 0 => IDLE_MS,
            _ => self.kato,
        };
        let ms = u64::from(ms).next_multiple_of(u64::from(KEEP_ALIVE_MS));
        self.deadline = (ms != 0).then(|| now.plus(Nanos(ms * 1_000_000)));
    }

    /// Handles an admin command. No supported admin command brings data.
    pub(super) fn admin(
        &mut self,
        registry: &Registry,
        command: &Command,
        now: Nanos,
        events: &mut Vec<TargetEvent>,
    ) -> Reply {
        let answer = match command.opcode() {
            _ if self.unauthenticated => Err(status::AUTHENTICATION_REQUIRED),
            opcode::FABRICS => self.fabrics(registry, command, events),
            _ if !self.is_ready() => Err(status::SEQUENCE),
            admin::ASYNC_EVENT_REQUEST => match self.request_event(command, events) {
                Ok(()) => {
                    self.heard(now);
                    return Reply::Later;
                }
                Err(status) => Err(status),
            },
            _ => check_flags(command).and_then(|()| self.work(registry, command, events)),
        };
        // The timeout may have changed or started with this command.
        self.heard(now);
        let (result, data, status) = match answer {
            Ok((result, data)) => (result, data, status::SUCCESS),
            Err(status) => (0, Vec::new(), status | status::DNR),
        };
        Reply::Now(Completion { result, cid: command.cid(), status, ..Default::default() }, data)
    }

    fn work(&mut self, registry: &Registry, c: &Command, events: &mut Vec<TargetEvent>) -> Answer {
        let io = self.kind != Kind::Discovery;
        match c.opcode() {
            admin::IDENTIFY => self.identify(registry, c),
            admin::GET_LOG_PAGE => self.log_page(registry, c),
            admin::GET_FEATURES => self.get_features(registry, c),
            admin::SET_FEATURES => self.set_features(registry, c, events),
            admin::KEEP_ALIVE => no_data(c).map(|()| (0, Vec::new())),
            // Bit 0: the command was not aborted. The command is being carried out, or has ended.
            admin::ABORT if io => no_data(c).map(|()| (1, Vec::new())),
            _ => Err(status::INVALID_OPCODE),
        }
    }

    /// Handles the commands that a controller takes before it is ready.
    fn fabrics(
        &mut self,
        registry: &Registry,
        c: &Command,
        events: &mut Vec<TargetEvent>,
    ) -> Answer {
        match c.fctype() {
            fctype::PROPERTY_GET => self.get_property(registry, c).map(|v| (v, Vec::new())),
            fctype::PROPERTY_SET => self.set_property(c, events).map(|()| (0, Vec::new())),
            fctype::CONNECT => Err(status::SEQUENCE),
            fctype::DISCONNECT => Err(status::QUEUE_TYPE),
            _ => Err(status::INVALID_OPCODE),
        }
    }

    fn get_property(&self, registry: &Registry, c: &Command) -> Result<u64, u16> {
        no_data(c)?;
        // ATTRIB, bits 2:0 of byte 40: 0 for 4 bytes and 1 for 8.
        match (c.cdw(11), c.cdw(10) & 7) {
            (property::CAP, 1) => Ok(self.capabilities(registry).encode()),
            (property::VS, 0) => Ok(u64::from(VERSION)),
            (property::CC, 0) => Ok(u64::from(self.cc.encode())),
            (property::CSTS, 0) => Ok(u64::from(self.csts)),
            _ => Err(status::INVALID_FIELD),
        }
    }

    fn capabilities(&self, registry: &Registry) -> Capabilities {
        let (entries, css) = match self.subsystem(registry) {
            // CSS: NVM, and the command sets of Identify.
            Some(s) => (s.config.queue_entries, 0x41),
            None => (super::DISCOVERY_ENTRIES, 0x01),
        };
        Capabilities { mqes: entries - 1, to: READY_TIMEOUT, css }
    }

    /// Sets CC, the only property that can be set (Base Specification, *Controller Configuration*).
    fn set_property(&mut self, c: &Command, events: &mut Vec<TargetEvent>) -> Result<(), u16> {
        no_data(c)?;
        if (c.cdw(11), c.cdw(10) & 7) != (property::CC, 0) {
            return Err(status::INVALID_FIELD);
        }
        let (old, new) = (self.cc, Configuration::decode(c.cdw(12)));
        if self.resetting && new.enable {
            // The host must wait for CSTS.RDY 0 before it sets CC.EN.
            return Err(status::SEQUENCE);
        }
        self.cc = new;
        match (old.enable, new.enable) {
            (false, true) => {
                let sets = match self.kind {
                    // Entries of I/O queues have 64 and 16 bytes.
                    Kind::Io(_) => (new.iosqes, new.iocqes) == (6, 4) && matches!(new.css, 0 | 6),
                    Kind::Discovery => matches!(new.css, 0 | 6 | 7),
                };
                let works = sets && new.mps == 0 && new.ams == 0;
                self.csts = if works { csts::READY } else { csts::FATAL };
            }
            (true, false) => self.reset(events),
            _ => {}
        }
        if new.shn != 0 && self.csts & csts::SHUTDOWN_COMPLETE == 0 {
            self.csts |= match self.is_drained() {
                true => csts::SHUTDOWN_COMPLETE,
                false => csts::SHUTDOWN_OCCURRING,
            };
        }
        Ok(())
    }

    /// Resets the controller (*Controller Level Reset*): I/O queues end, event requests are aborted, the admin queue
    /// stays. CSTS.RDY stays set until the commands of the I/O queues have ended (L8).
    fn reset(&mut self, events: &mut Vec<TargetEvent>) {
        self.granted = None;
        self.abort_event_requests(events);
        self.close_queues(events);
        self.resetting = !self.is_drained();
        if !self.resetting {
            self.csts = 0;
        }
    }

    pub(super) fn subsystem<'a>(&self, registry: &'a Registry) -> Option<&'a Subsystem> {
        match &self.kind {
            Kind::Io(nqn) => registry.find(nqn),
            Kind::Discovery => None,
        }
    }
}

/// Checks FUSE and PSDT: fused commands are not supported, and on a fabric data are described by SGLs.
pub(super) fn check_flags(c: &Command) -> Result<(), u16> {
    let (fuse, psdt) = (c.flags() & 3, c.flags() >> 6);
    if fuse == 0 && matches!(psdt, 1 | 2) { Ok(()) } else { Err(status::INVALID_FIELD) }
}

/// Checks that the command's SGL has `bytes`.
pub(super) fn check_length(c: &Command, bytes: u64) -> Result<(), u16> {
    if u64::from(c.sgl().length) == bytes { Ok(()) } else { Err(status::SGL_LENGTH) }
}

/// Checks that the command has no data.
pub(super) fn no_data(c: &Command) -> Result<(), u16> {
    check_length(c, 0)
}
