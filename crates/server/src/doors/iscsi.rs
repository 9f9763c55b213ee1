//! The door of iSCSI: serves disks over the network as units of one target.

use super::{Looks, known_client, known_client_of};
use crate::compare::{WantedDisk, WantedDoor, is_of};
use crate::door::Door;
use crate::error::{Difference, ServeError};
use crate::inherited::Inherited;
use crate::open_disks::OpenDisks;
use crate::served::{AddClients, Network, PassedDisk, Served};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use zoneplug_control::Failure;
use zoneplug_control::client::{HostShown, StateShown};
use zoneplug_control::names::LOGICAL_UNIT;
use zoneplug_core::{Device, Sector, plain};
use zoneplug_host::iscsi::{self, Disk, Initiator, Iscsi, IscsiListeners, IscsiOptions};
use zoneplug_host::signals::Notifier;
use zoneplug_host::{DiskMark, Specification};

/// The name of this door.
const NAME: &str = "iscsi";

/// The options and disks of the door, checked as far as possible without opening a disk.
#[derive(Debug, Clone)]
pub struct Plan {
    options: IscsiOptions,
    specs: Vec<Specification>,
}

impl Plan {
    /// A plan to serve disks of these specifications with `options`. The first is LUN 0.
    pub fn new(options: IscsiOptions, specs: Vec<Specification>) -> Plan {
        Plan { options, specs }
    }

    /// The specifications of the disks.
    pub fn specs(&self) -> &[Specification] {
        &self.specs
    }

    /// The name of the target.
    pub fn target(&self) -> &str {
        &self.options.name
    }

    /// The addresses at which the target is served.
    pub fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        let more = self.options.also_listen.iter();
        std::iter::once(&self.options.listen).chain(more).copied()
    }

    /// Checks that each disk can be shown as a unit. Opens none for writing.
    pub(super) fn check_disks(&self, looks: &mut Looks) -> Result<(), Failure> {
        let check = |d: &dyn Device| iscsi::check(d.geometry(), d.limits(), &self.options);
        self.specs.iter().try_for_each(|spec| looks.at(spec, check))
    }

    /// Compares what initiators know of a running server with what they would find: the number and the identifier of
    /// each disk.
    fn compare(&self, state: &StateShown) -> Result<(), Difference> {
        let marks: Vec<DiskMark> = self.specs.iter().map(DiskMark::of).collect();
        let known: Vec<Option<DiskMark>> = self
            .specs
            .iter()
            .zip(&marks)
            .map(|(spec, mark)| (!spec.is_volatile()).then_some(*mark))
            .collect();
        let uuids = iscsi::identifiers(&self.options, &known);
        for disk in state.disks.iter().filter(|d| d.door() == NAME) {
            let Some(n) = marks.iter().position(|mark| is_of(disk, *mark)) else { continue };
            let name = plain(&disk.name);
            if LOGICAL_UNIT.disk(&disk.name) != Some(n as u64) {
                return Err(Difference::new(
                    format!("{name}, which would be LUN {n}"),
                    "the disks in the same order",
                ));
            }
            if disk.uuid() != Some(uuids[n]) {
                return Err(Difference::new(
                    format!("{name}, which initiators would take for another disk"),
                    "the same name of the target (--iqn, or the same port), and --conventional-only as before",
                ));
            }
        }
        Ok(())
    }
}

/// The running server with its disks.
struct Server {
    server: Arc<Iscsi>,
    disks: Vec<Disk>,
    passed: Vec<PassedDisk>,
    conventional_only: bool,
    /// Whether initiators prove that they know a secret.
    has_secrets: bool,
}

/// An initiator, as the control socket shows it.
fn shown(i: Initiator) -> HostShown {
    HostShown { nqn: i.name, queues: 1, authenticated: i.authenticated }
}

impl Server {
    /// The name of a disk in `zoneplug status`.
    fn name(&self, lun: usize) -> String {
        LOGICAL_UNIT.name(self.server.address().port(), lun as u64)
    }

    fn served(&self) -> Vec<Served> {
        let uuids = self.server.uuids();
        let of = |(n, d): (usize, &Disk)| {
            let (for_counters, for_hosts) = (self.server.clone(), self.server.clone());
            let for_failures = self.server.clone();
            Served {
                counters: Box::new(move || for_counters.counters(n)),
                network: Some(Network {
                    nqn: self.server.name().to_owned(),
                    uuid: Some(uuids[n]),
                    hosts: Box::new(move || {
                        for_hosts.initiators().into_iter().map(shown).collect()
                    }),
                    failed_authentications: Box::new(move || for_failures.failed_logins()),
                    ..Network::at(self.server.address())
                }),
                ..Served::new(NAME, self.name(n), &d.spec, &d.disk, &self.passed[n])
            }
        };
        self.disks.iter().enumerate().map(of).collect()
    }

    /// Lines about the target and its units, and the commands that attach them.
    fn lines(&self) -> Vec<String> {
        let target = plain(self.server.name()).into_owned();
        let addresses = self.server.addresses();
        let mut lines: Vec<String> = addresses.iter().map(|a| format!("{a}  {target}")).collect();
        for (n, Disk { disk, spec, .. }) in self.disks.iter().enumerate() {
            let g = disk.geometry();
            let zone = Sector(u64::from(g.zone_sectors())).to_bytes();
            let conventional = match g.nr_conventional() {
                0 => String::new(),
                _ if self.conventional_only => {
                    ", of which the conventional ones at the start are served as a plain disk"
                        .to_owned()
                }
                n => format!(", {n} of them conventional"),
            };
            let volatile =
                if spec.is_volatile() { ", in memory: gone when this process ends" } else { "" };
            lines.push(format!(
                "LUN {n}  {}  {}, {} zones of {zone}{conventional}{volatile}",
                plain(spec),
                g.capacity_bytes(),
                g.nr_zones()
            ));
        }
        for address in addresses {
            let host = match address.ip().is_unspecified() {
                true => format!("ADDRESS:{}", address.port()),
                false => address.to_string(),
            };
            lines.push(format!("iscsiadm -m discovery -t sendtargets -p {host}"));
            lines.push(format!("iscsiadm -m node -T {target} -p {host} --login"));
        }
        if self.has_secrets {
            lines.push("before the login: iscsiadm -m node -o update -n node.session.auth.authmethod -v CHAP, and the name and secret".to_owned());
        }
        lines
    }
}

/// The door of iSCSI.
pub struct IscsiDoor {
    plan: Plan,
    listeners: Option<IscsiListeners>,
    server: Option<Server>,
}

impl IscsiDoor {
    /// A door that does not listen yet.
    pub fn new(plan: Plan) -> IscsiDoor {
        IscsiDoor { plan, listeners: None, server: None }
    }
}

impl Door for IscsiDoor {
    fn specs(&self) -> Vec<&Specification> {
        self.plan.specs.iter().collect()
    }

    fn wanted(&self) -> WantedDoor<'_> {
        let disks = self.plan.specs.iter().map(|spec| WantedDisk::new(spec, None, true)).collect();
        let addresses: Vec<SocketAddr> = self.plan.addresses().collect();
        let door = WantedDoor::new(NAME, disks).at(&addresses);
        WantedDoor { clients: Box::new(|state| self.plan.compare(state)), ..door }
    }

    fn listen(&mut self, given: &mut Vec<TcpListener>) -> Result<(), Failure> {
        self.listeners = Some(IscsiListeners::bind(&self.plan.options, given)?);
        Ok(())
    }

    fn sockets(&self) -> Vec<&TcpListener> {
        self.listeners.iter().flat_map(IscsiListeners::sockets).collect()
    }

    fn start(
        &mut self,
        disks: &OpenDisks,
        inherited: &Inherited,
        notifier: &Notifier,
    ) -> Result<(), Failure> {
        let Some(listeners) = &self.listeners else { return Ok(()) };
        let known = inherited.states.iter().flat_map(|s| &s.known_initiators);
        self.plan.options.known_initiators = known.filter_map(known_client_of).collect();
        let (mut all, mut passed) = (Vec::new(), Vec::new());
        for spec in &self.plan.specs {
            let Some(open) = disks.get(spec) else { continue };
            all.push(Disk { disk: open.disk.clone(), spec: spec.clone(), tags: open.tags });
            passed.push(open.passed.clone());
        }
        let (options, notifier) = (&self.plan.options, notifier.clone());
        let tell = move || notifier.notify();
        let server = Iscsi::start_at(listeners.clone(), options, all.clone(), tell)?;
        let (server, has_secrets) = (Arc::new(server), !options.secrets.is_empty());
        let conventional_only = options.conventional_only;
        let disks = all;
        self.server = Some(Server { server, disks, passed, conventional_only, has_secrets });
        Ok(())
    }

    fn served(&self) -> Vec<Served> {
        self.server.iter().flat_map(Server::served).collect()
    }

    fn of_clients(&self) -> Option<AddClients> {
        let server = self.server.as_ref()?.server.clone();
        Some(Box::new(move |state| {
            let known = server.known_initiators().into_iter().map(known_client);
            state.known_initiators.extend(known);
        }))
    }

    fn lines(&self) -> Vec<String> {
        self.server.iter().flat_map(Server::lines).collect()
    }

    fn addresses(&self) -> Vec<SocketAddr> {
        self.server.iter().flat_map(|s| s.server.addresses()).copied().collect()
    }

    fn check_running(&self) -> Result<(), Failure> {
        let Some(Server { server, .. }) = &self.server else { return Ok(()) };
        match server.failure() {
            None => Ok(()),
            Some(why) => Err(ServeError::DoorFailed {
                at: server.address().to_string(),
                because: why,
                then: "initiators connect again by themselves",
            }
            .into()),
        }
    }

    /// Ends all connections. Initiators connect again, and resend commands without an answer.
    fn leave_disks(&mut self) {
        self.server = None;
        self.listeners = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use zoneplug_control::client::StateOfDisk;

    const NAME_OF_TARGET: &str = "iqn.2026-11.dev.zoneplug:test";

    fn plan(specs: &[&str], name: &str) -> Plan {
        let options = IscsiOptions::new("127.0.0.1:3260".parse().unwrap(), name);
        Plan::new(options, specs.iter().map(|s| s.parse().unwrap()).collect())
    }

    fn state(disks: &[(&str, usize)]) -> StateShown {
        let specs: Vec<Specification> = disks.iter().map(|(s, _)| s.parse().unwrap()).collect();
        let marks: Vec<_> = specs.iter().map(|s| Some(DiskMark::of(s))).collect();
        let uuids = iscsi::identifiers(&plan(&[], NAME_OF_TARGET).options, &marks);
        let disk = |(n, (spec, lun)): (usize, &(&str, usize))| {
            let mark = marks[n].unwrap();
            StateOfDisk {
                name: format!("iscsi3260l{lun}"),
                spec: (*spec).to_owned(),
                door: Some(NAME.to_owned()),
                disks: mark.disks,
                layers: mark.layers,
                place: mark.place,
                outlives: true,
                address: Some("127.0.0.1:3260".to_owned()),
                uuid: Some(StateOfDisk::uuid_text(&uuids[n])),
                enabled: true,
                set: BTreeMap::new(),
            }
        };
        StateShown {
            state: 0,
            version: String::new(),
            disks: disks.iter().enumerate().map(disk).collect(),
            passes_on: true,
            descriptors: 0,
            subsystem: None,
            known_initiators: Vec::new(),
            handed_over_to: None,
        }
    }

    /// U15, S11: a take-over that would give disks other numbers or identifiers is refused.
    #[test]
    fn u15_initiators_find_the_units_that_they_know() {
        let (a, b) = ("/nowhere/a.zbd", "/nowhere/b.zbd");
        let running = state(&[(a, 0), (b, 1)]);
        let ask = |specs: &[&str], name| plan(specs, name).compare(&running).map_err(|d| d.what);
        assert_eq!(ask(&[a, b], NAME_OF_TARGET), Ok(()));
        assert_eq!(ask(&[a, b, "/nowhere/c.zbd"], NAME_OF_TARGET), Ok(()), "a new disk");
        let e = ask(&[b, a], NAME_OF_TARGET).unwrap_err();
        assert!(e.contains("would be LUN"), "{e}");
        let e = ask(&[a, b], "iqn.2026-11.dev.zoneplug:other").unwrap_err();
        assert!(e.contains("for another disk"), "{e}");
    }
}
