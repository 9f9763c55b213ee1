//! A target: its name, its units, who may log in, and its sessions. All connections share it.
//!
//! An initiator port (the name of an initiator and its ISID) has one session. A new login ends the session that it has.
//! The commands of the ended session may still be at the disks; those of the new one wait until they have ended, so that
//! an old write never lands behind a new one.

use super::chap::Secret;
use super::error::CredentialError;
use super::login::{Credentials, LoginFailure, LoginPolicy, Proofs};
use super::text::encode_text;
use crate::spec::sense::{LUNS_CHANGED, UNIT_RESET};
use crate::unit::{
    Answer, Arrived, LogicalUnit, Nexus, Task, TaskStep, TransportId, Unit, answer_without_unit,
    decode_lun,
};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use zoneplug_buf::AlignedBuf;
use zoneplug_core::{Error, Sense};

/// Longest name of a target or an initiator, in bytes (RFC 7143, section 4.2.7.2).
const MAX_NAME: usize = 223;
/// Most initiator ports that a target remembers.
const MAX_PORTS: usize = 4096;

/// Checks the name of a target or an initiator.
///
/// ```
/// use zoneplug_scsi::iscsi::check_name;
/// assert!(check_name("iqn.2026-11.dev.zoneplug:disk").is_ok());
/// assert!(check_name("disk").is_err());
/// ```
pub fn check_name(name: &str) -> Result<(), Error> {
    let sign = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.:".contains(c);
    let form = ["iqn.", "eui.", "naa."].iter().any(|form| name.starts_with(form));
    if !form || name.len() <= 4 || name.len() > MAX_NAME || !name.chars().all(sign) {
        return Err(CredentialError::InvalidName { name: name.to_owned() }.into());
    }
    Ok(())
}

/// The initiators that may log in.
#[derive(Debug, Clone, Default)]
pub struct Access {
    /// The initiators that may log in without a secret. `None`: any, unless there are secrets.
    pub initiators: Option<Vec<String>>,
    /// The secrets of initiators that prove themselves with CHAP, by their names. They log in no other way.
    pub secrets: Vec<Credentials>,
    /// The secret of the target, for initiators that ask for it.
    pub own_secret: Option<Secret>,
}

/// An event for a session, which the driver delivers to the connection with this key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TargetEvent {
    /// Close the connection: the initiator has logged in again.
    Close(u64),
    /// Run the session: it may begin its commands now.
    Run(u64),
    /// Abort the commands of a unit, which was reset.
    Reset(u64, u16),
    /// Tell the initiator of an event of a unit.
    Notify(u64, u16, Sense),
}

/// The place of a session at its target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Member {
    pub(super) nexus: Nexus,
    /// The number of the session, never 0.
    pub(super) tsih: u16,
}

#[derive(Debug)]
struct Port {
    nexus: Nexus,
    /// The session, and the key of its connection.
    session: Option<(u16, u64)>,
    /// Ended sessions with commands at the disks.
    draining: u32,
}

/// A connected initiator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Initiator {
    /// The name of the initiator.
    pub name: String,
    /// Whether the initiator has proven that it knows its secret.
    pub authenticated: bool,
    /// The number of its session.
    pub session: u16,
}

/// A target.
#[derive(Debug)]
pub struct Target {
    name: String,
    access: Access,
    portals: Vec<SocketAddr>,
    units: BTreeMap<u16, LogicalUnit>,
    luns: Vec<u16>,
    ports: BTreeMap<(String, [u8; 6]), Port>,
    last_nexus: u64,
    last_tsih: u16,
    events: Vec<TargetEvent>,
}

/// The beginning of a command.
#[derive(Debug)]
pub(super) enum Begun {
    /// The unit carries it out.
    Task(Arc<Unit>, Task, TaskStep),
    /// There is no such unit.
    Answer(Answer),
}

impl Target {
    /// Makes a target of these units, by their numbers, which are below 16384.
    pub fn new(
        name: &str,
        access: Access,
        portals: Vec<SocketAddr>,
        units: impl IntoIterator<Item = (u16, Arc<Unit>)>,
    ) -> Result<Target, Error> {
        check_name(name)?;
        let units: BTreeMap<_, _> =
            units.into_iter().map(|(lun, unit)| (lun, LogicalUnit::new(unit))).collect();
        let luns = units.keys().copied().collect();
        Ok(Target {
            name: name.to_owned(),
            access,
            portals,
            units,
            luns,
            ports: BTreeMap::new(),
            last_nexus: 0,
            last_tsih: 0,
            events: Vec::new(),
        })
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Takes the events for sessions. The driver delivers them after each call that may have made some.
    pub fn take_events(&mut self) -> Vec<TargetEvent> {
        std::mem::take(&mut self.events)
    }

    /// Returns the most bytes of data of a command to any unit.
    pub fn max_transfer(&self) -> u32 {
        self.units.values().map(|u| u.unit().max_transfer()).max().unwrap_or(0)
    }

    /// Returns whether an initiator has a secret. Each of its sessions has proven that it knows it.
    pub fn has_secret_of(&self, initiator: &str) -> bool {
        self.access.secrets.iter().any(|(name, _)| name == initiator)
    }

    /// Returns the connected initiators.
    pub fn initiators(&self) -> Vec<Initiator> {
        let of = |((name, _), port): (&(String, [u8; 6]), &Port)| {
            let (session, _) = port.session?;
            let authenticated = self.has_secret_of(name);
            Some(Initiator { name: name.clone(), authenticated, session })
        };
        self.ports.iter().filter_map(of).collect()
    }

    /// Replaces a unit by another of the same disk, and tells all initiators of the change.
    pub fn replace(&mut self, lun: u16, unit: Arc<Unit>, sense: Sense) {
        let Some(lu) = self.units.get_mut(&lun) else { return };
        lu.replace(unit);
        lu.notify(sense, None);
        let keys = self.ports.values().filter_map(|p| Some(p.session?.1));
        self.events.extend(keys.map(|key| TargetEvent::Notify(key, lun, sense)));
    }

    /// Removes a unit, and tells all initiators.
    pub fn remove(&mut self, lun: u16) {
        if self.units.remove(&lun).is_none() {
            return;
        }
        self.luns.retain(|l| *l != lun);
        for (lun, lu) in &mut self.units {
            lu.notify(LUNS_CHANGED, None);
            let keys = self.ports.values().filter_map(|p| Some(p.session?.1));
            self.events.extend(keys.map(|key| TargetEvent::Notify(key, *lun, LUNS_CHANGED)));
        }
    }

    /// Notes a session of an initiator port, whose connection has this key. Ends the one that it had.
    pub(super) fn enter(&mut self, initiator: &str, isid: [u8; 6], key: u64) -> Member {
        if self.ports.len() >= MAX_PORTS {
            self.ports.retain(|_, p| p.session.is_some() || p.draining > 0);
        }
        self.last_tsih = self.last_tsih.checked_add(1).unwrap_or(1);
        let (tsih, last) = (self.last_tsih, &mut self.last_nexus);
        let port = self.ports.entry((initiator.to_owned(), isid)).or_insert_with(|| {
            *last += 1;
            Port { nexus: Nexus(*last), session: None, draining: 0 }
        });
        if let Some((_, old)) = port.session.replace((tsih, key)) {
            port.draining += 1;
            self.events.push(TargetEvent::Close(old));
        }
        let nexus = port.nexus;
        let transport_id = transport_id(initiator, isid);
        self.units.values_mut().for_each(|lu| lu.enter(nexus, transport_id.clone()));
        Member { nexus, tsih }
    }

    fn port(&mut self, nexus: Nexus) -> Option<&mut Port> {
        self.ports.values_mut().find(|p| p.nexus == nexus)
    }

    /// Notes that a connection has ended, and that its commands are still at the disks until [`Target::drained`].
    pub(super) fn leave(&mut self, member: Member) {
        let Some(port) = self.port(member.nexus) else { return };
        // Another session of the port has counted this one already.
        if port.session.is_some_and(|(tsih, _)| tsih == member.tsih) {
            (port.session, port.draining) = (None, port.draining + 1);
            self.units.values_mut().for_each(|lu| lu.leave(member.nexus));
        }
    }

    /// Notes that the last command of an ended session has come back. Call it once, after [`Target::leave`].
    pub(super) fn drained(&mut self, member: Member) {
        let Some(port) = self.port(member.nexus) else { return };
        port.draining -= 1;
        if let (0, Some((_, key))) = (port.draining, port.session) {
            self.events.push(TargetEvent::Run(key));
        }
    }

    /// Returns whether a session may begin commands: no earlier one of its port has any at the disks.
    pub(super) fn may_begin(&mut self, member: Member) -> bool {
        self.port(member.nexus).is_none_or(|p| p.draining == 0)
    }

    /// Begins a command.
    pub(super) fn begin(
        &mut self,
        nexus: Nexus,
        lun: [u8; 8],
        cdb: &[u8],
        data: Option<&AlignedBuf>,
        data_len: u32,
        expected: u32,
    ) -> Begun {
        let luns = &self.luns[..];
        match decode_lun(lun).and_then(|lun| self.units.get_mut(&lun)) {
            Some(lu) => {
                let unit = lu.unit().clone();
                let c = Arrived { nexus, cdb, data, data_len, expected, luns };
                let (task, step) = lu.begin(c);
                Begun::Task(unit, task, step)
            }
            None => Begun::Answer(answer_without_unit(cdb, luns)),
        }
    }

    /// Returns the number of a unit. `None`: there is none.
    pub(super) fn unit(&self, lun: [u8; 8]) -> Option<u16> {
        decode_lun(lun).filter(|lun| self.units.contains_key(lun))
    }

    /// Resets a unit, or all: the other sessions abort their commands too, and their initiators are told.
    pub(super) fn reset(&mut self, lun: Option<u16>, by: Member) {
        for (n, lu) in self.units.iter_mut().filter(|(n, _)| lun.is_none_or(|lun| lun == **n)) {
            lu.notify(UNIT_RESET, Some(by.nexus));
            let others = self.ports.values().filter(|p| p.nexus != by.nexus);
            let keys = others.filter_map(|p| Some(p.session?.1));
            self.events.extend(keys.map(|key| TargetEvent::Reset(key, *n)));
        }
    }

    /// Returns the answer to SendTargets: the target, and the addresses where it is. `at`: the address that the
    /// connection has reached.
    pub(super) fn records(&self, at: SocketAddr) -> Vec<u8> {
        let address = |portal: &SocketAddr| {
            let mut portal = *portal;
            if portal.ip().is_unspecified() {
                portal.set_ip(at.ip());
            }
            format!("{portal},1")
        };
        let all: Vec<String> = self.portals.iter().map(address).collect();
        let addresses = all.iter().map(|a| ("TargetAddress", a.as_str()));
        encode_text(std::iter::once(("TargetName", self.name.as_str())).chain(addresses))
    }
}

/// The TransportID of an initiator port (SPC-6): its name, and the number of its session.
fn transport_id(initiator: &str, isid: [u8; 6]) -> TransportId {
    const ISCSI: u8 = 5;
    /// FORMAT CODE: with the number.
    const OF_PORT: u8 = 1 << 6;
    const MIN_LEN: usize = 20;
    let isid: String = isid.iter().map(|b| format!("{b:02x}")).collect();
    let mut name = format!("{initiator},i,0x{isid}\0").into_bytes();
    name.resize(name.len().next_multiple_of(4).max(MIN_LEN), 0);
    let mut id = vec![ISCSI | OF_PORT, 0];
    id.extend((name.len() as u16).to_be_bytes());
    id.extend(name);
    id.into()
}

impl LoginPolicy for Target {
    fn proofs(&self, initiator: &str, target: Option<&str>) -> Result<Proofs, LoginFailure> {
        if target.is_some_and(|t| t != self.name) {
            return Err(LoginFailure::NotFound);
        }
        let access = &self.access;
        let secret = access.secrets.iter().find(|(name, _)| name == initiator);
        let listed = match &access.initiators {
            Some(list) => list.iter().any(|name| name == initiator),
            None => access.secrets.is_empty(),
        };
        if secret.is_none() && !listed {
            return Err(LoginFailure::Authorization);
        }
        // Discovery shows nothing but a name.
        let secret = secret.filter(|_| target.is_some());
        let own = access.own_secret.as_ref().map(|own| (self.name.clone(), own.clone()));
        Ok(Proofs { initiator: secret.cloned(), target: own })
    }
}
