//! Asynchronous events (Base Specification, *Asynchronous Event Request command*).
//!
//! An event is announced once; the next of its kind only after the host has read the log page for it. That log page
//! contains the changes in between.

use super::{Controller, Kind, check_flags, no_data};
use crate::spec::log::lid;
use crate::spec::{Command, Completion, status};
use crate::target::{Registry, TargetEvent};
use std::collections::{BTreeSet, VecDeque};

/// Most event requests that a controller keeps at a time (AERL plus one).
pub(super) const MAX_EVENT_REQUESTS: usize = 4;

/// The events of an I/O controller (OAES, Asynchronous Event Configuration): the namespaces have changed.
pub(super) const IO_EVENTS: u32 = 1 << 8;
/// Additional events of an I/O controller if there are several ports: the access to namespaces through this port has
/// changed.
pub(super) const ANA_EVENTS: u32 = 1 << 11;
/// The events of a discovery controller: the discovery log has changed.
pub(super) const DISCOVERY_EVENTS: u32 = 1 << 31;
/// Bits for health warnings, which never occur.
const HEALTH_BITS: u32 = 0xff;

/// A change that hosts may want to know of.
#[derive(Debug, Clone, Copy)]
pub(in crate::target) enum Notice<'a> {
    /// These namespaces were added, removed or changed.
    Namespaces(&'a [u32]),
    /// The access to namespaces through the controller's port has changed.
    Access,
    /// The discovery log has changed.
    Discovery,
}

/// The kinds of events: bit of Asynchronous Event Configuration, information (bits 15:8 of the result), log page.
const KINDS: [(u32, u64, u8); 3] = [
    (IO_EVENTS, 0x00, lid::CHANGED_NAMESPACES),
    (ANA_EVENTS, 0x03, lid::ANA),
    (DISCOVERY_EVENTS, 0xf0, lid::DISCOVERY),
];

/// The state of a kind of event.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum State {
    /// The host has read about all changes.
    #[default]
    Quiet,
    /// A change must be announced.
    Pending,
    /// The change was announced; the host has not read the log page yet.
    Announced,
}

/// The events of a controller.
#[derive(Debug, Default)]
pub(super) struct Events {
    /// Commands that wait for an event.
    requests: VecDeque<u16>,
    /// Asynchronous Event Configuration.
    enabled: u32,
    /// The state of each kind.
    states: [State; KINDS.len()],
    /// Namespaces that changed since the host last read the log page.
    changed: BTreeSet<u32>,
}

impl Events {
    pub(super) fn enabled(&self) -> u32 {
        self.enabled
    }
}

impl Controller {
    /// Returns the events that the controller supports.
    pub(super) fn supported_events(&self, registry: &Registry) -> u32 {
        match self.kind {
            Kind::Discovery => DISCOVERY_EVENTS,
            Kind::Io(_) if registry.ports.are_several() => IO_EVENTS | ANA_EVENTS,
            Kind::Io(_) => IO_EVENTS,
        }
    }

    /// Handles an Asynchronous Event Request.
    pub(super) fn request_event(
        &mut self,
        c: &Command,
        events: &mut Vec<TargetEvent>,
    ) -> Result<(), u16> {
        check_flags(c)?;
        no_data(c)?;
        if self.events.requests.len() >= MAX_EVENT_REQUESTS {
            return Err(status::EVENT_LIMIT);
        }
        self.events.requests.push_back(c.cid());
        self.announce(events);
        Ok(())
    }

    /// Ends the requests, and forgets all changes and the host's configuration.
    pub(super) fn abort_event_requests(&mut self, events: &mut Vec<TargetEvent>) {
        let status = status::ABORTED | status::DNR;
        for cid in std::mem::take(&mut self.events).requests {
            let aborted = Completion { cid, status, ..Default::default() };
            events.push(TargetEvent::Complete(self.id, aborted));
        }
    }

    /// Sets the events that the host wants.
    pub(super) fn enable_events(
        &mut self,
        registry: &Registry,
        value: u32,
        events: &mut Vec<TargetEvent>,
    ) -> Result<(), u16> {
        if value & !(self.supported_events(registry) | HEALTH_BITS) != 0 {
            return Err(status::INVALID_FIELD);
        }
        self.events.enabled = value;
        self.announce(events);
        Ok(())
    }

    /// Notes a change. Changes that do not concern this kind of controller are ignored.
    pub(in crate::target) fn note(&mut self, notice: Notice<'_>, events: &mut Vec<TargetEvent>) {
        let kind = match (notice, &self.kind) {
            (Notice::Namespaces(numbers), Kind::Io(_)) => {
                self.events.changed.extend(numbers);
                0
            }
            (Notice::Access, Kind::Io(_)) => 1,
            (Notice::Discovery, Kind::Discovery) => 2,
            _ => return,
        };
        if self.events.states[kind] == State::Quiet {
            self.events.states[kind] = State::Pending;
        }
        self.announce(events);
    }

    /// Returns the namespaces of the log page Changed Namespace List.
    pub(super) fn changed_namespaces(&self) -> impl Iterator<Item = u32> {
        self.events.changed.iter().copied()
    }

    /// Rearms the event of a log page that the host has read in its present state.
    pub(super) fn log_was_read(&mut self, id: u8) {
        let Some(kind) = KINDS.iter().position(|(_, _, log)| *log == id) else { return };
        if id == lid::CHANGED_NAMESPACES {
            self.events.changed.clear();
        }
        self.events.states[kind] = State::Quiet;
    }

    /// Answers requests while there are changes to announce.
    fn announce(&mut self, events: &mut Vec<TargetEvent>) {
        for (kind, (bit, information, log)) in KINDS.into_iter().enumerate() {
            if self.events.states[kind] != State::Pending || self.events.enabled & bit == 0 {
                continue;
            }
            let Some(cid) = self.events.requests.pop_front() else { return };
            self.events.states[kind] = State::Announced;
            // Type 2 (notice), information in bits 15:8, log page in bits 23:16.
            let result = 2 | information << 8 | u64::from(log) << 16;
            events.push(TargetEvent::Complete(
                self.id,
                Completion { result, cid, ..Default::default() },
            ));
        }
    }
}
