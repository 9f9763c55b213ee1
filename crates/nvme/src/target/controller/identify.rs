//! Identify (Base Specification, *Identify command*).

use super::events::{DISCOVERY_EVENTS, MAX_EVENT_REQUESTS};
use super::{Answer, Controller, KEEP_ALIVE_MS, check_length};
use crate::spec::fabrics::{DISCOVERY_NQN, VERSION};
use crate::spec::identify::{
    IDENTIFY_LEN, IdentifyController, IdentifyControllerNvm, IdentifyControllerZoned,
    IdentifyNamespace, IdentifyNamespaceIndependent, cns, csi, encode_namespace_list,
};
use crate::spec::{ALL_NAMESPACES, Command, status, text};
use crate::target::Registry;
use crate::target::namespace::{
    LAST_NSID, MAX_NAMESPACES, Namespace, Namespaces, ROTATIONAL_GROUP, STILL_GROUP,
};
use crate::target::port::GROUP;
use crate::target::subsystem::Subsystem;

/// Model and firmware revision.
const MODEL: &str = "zoneplug";
const REVISION: &str = env!("CARGO_PKG_VERSION");
/// Warning and critical temperature in kelvin. The specification requires values; the target measures none.
pub(super) const WARM_KELVIN: u16 = 343;
const CRITICAL_KELVIN: u16 = 353;

/// Bits of CTRATT.
const LONG_HOST_IDENTIFIERS: u32 = 1;
const ENDURANCE_GROUPS: u32 = 1 << 4;
/// Bits of CMIC.
const SEVERAL_PORTS: u8 = 1;
const SEVERAL_CONTROLLERS: u8 = 1 << 1;
const ANA: u8 = 1 << 3;
/// ANACAP: optimized, non-optimized and inaccessible are reported; a namespace stays in its group.
const ANA_STATES: u8 = 1 | 1 << 1 | 1 << 2;
const ANA_GROUPS_STAY: u8 = 1 << 6;
/// ANATT. State changes take no time.
const ANA_TRANSITION_SECONDS: u8 = 1;

impl Controller {
    pub(super) fn identify(&self, registry: &Registry, c: &Command) -> Answer {
        check_length(c, IDENTIFY_LEN as u64)?;
        let structure = match self.subsystem(registry) {
            Some(subsystem) => self.identify_io(registry, subsystem, c)?,
            None => self.identify_discovery(c)?,
        };
        Ok((0, structure.to_vec()))
    }

    fn identify_discovery(&self, c: &Command) -> Result<[u8; IDENTIFY_LEN], u16> {
        match c.cdw(10) as u8 {
            cns::CONTROLLER => Ok(IdentifyController {
                cntrltype: 2,
                oaes: DISCOVERY_EVENTS,
                maxcmd: crate::target::DISCOVERY_ENTRIES,
                // Linux recognises a discovery controller by this name.
                subnqn: text(DISCOVERY_NQN, 0),
                ..self.common()
            }
            .encode()),
            _ => Err(status::INVALID_FIELD),
        }
    }

    /// Returns the fields that all controllers share.
    fn common(&self) -> IdentifyController {
        IdentifyController {
            mn: text(MODEL, b' '),
            sn: text("discovery", b' '),
            fr: text(REVISION, b' '),
            cntlid: self.id,
            ver: VERSION,
            ctratt: LONG_HOST_IDENTIFIERS,
            aerl: MAX_EVENT_REQUESTS as u8 - 1,
            // Extended data of log pages.
            lpa: 4,
            mdts: crate::target::DISCOVERY_DATA.ilog2() as u8 - 12,
            kas: (KEEP_ALIVE_MS / 100) as u16,
            // SGLs, without alignment, with offsets in the capsule and data moved by the transport.
            sgls: 1 | 1 << 20 | 1 << 21,
            msdbd: 1,
            ..Default::default()
        }
    }

    fn identify_io(
        &self,
        registry: &Registry,
        subsystem: &Subsystem,
        c: &Command,
    ) -> Result<[u8; IDENTIFY_LEN], u16> {
        let several = registry.ports.are_several();
        let (nmic, anagrpid) = (u8::from(several), if several { GROUP } else { 0 });
        let (set, nsid) = ((c.cdw(11) >> 24) as u8, c.nsid());
        let all = self.shown(subsystem);
        // A namespace that does not exist gives zeroes; the broadcast number is not allowed.
        let of = |say: &dyn Fn(&Namespace) -> [u8; IDENTIFY_LEN]| match all.get(nsid) {
            Some(n) => Ok(say(n)),
            None if nsid == 0 || nsid == ALL_NAMESPACES => Err(status::INVALID_NAMESPACE),
            None => Ok([0; IDENTIFY_LEN]),
        };
        let active = |of_set: &dyn Fn(&Namespace) -> bool| {
            if nsid >= ALL_NAMESPACES - 1 {
                return Err(status::INVALID_NAMESPACE);
            }
            let above = all.iter().filter(|(i, n)| *i > nsid && of_set(n));
            let mut above: Vec<u32> = above.map(|(i, _)| i).collect();
            above.sort_unstable();
            Ok(encode_namespace_list(above))
        };
        match c.cdw(10) as u8 {
            cns::NAMESPACE => {
                of(&|n| IdentifyNamespace { nmic, anagrpid, ..n.identify() }.encode())
            }
            cns::CONTROLLER => Ok(self.identify_controller(registry, subsystem, &all).encode()),
            cns::ACTIVE_NAMESPACES => active(&|_| true),
            cns::NAMESPACE_DESCRIPTORS => match all.get(nsid) {
                Some(n) => Ok(n.descriptors()),
                None => Err(status::INVALID_NAMESPACE),
            },
            cns::COMMAND_SET_NAMESPACE => match (all.get(nsid), set) {
                (Some(n), csi::ZONED) => {
                    n.identify_zoned().map(|id| id.encode()).ok_or(status::COMMAND_SET)
                }
                // Metadata and larger tags are not supported, so all fields are 0.
                (Some(_), csi::NVM) => Ok([0; IDENTIFY_LEN]),
                (None, csi::NVM | csi::ZONED) => of(&|_| [0; IDENTIFY_LEN]),
                _ => Err(status::INVALID_FIELD),
            },
            cns::COMMAND_SET_CONTROLLER => match set {
                csi::NVM => Ok(IdentifyControllerNvm::default().encode()),
                csi::ZONED => Ok(IdentifyControllerZoned { zasl: subsystem.zasl() }.encode()),
                _ => Err(status::INVALID_FIELD),
            },
            cns::COMMAND_SET_ACTIVE_NAMESPACES => match set {
                csi::NVM | csi::ZONED => active(&|n| n.csi() == set),
                _ => Err(status::INVALID_FIELD),
            },
            cns::INDEPENDENT_NAMESPACE => of(&|n| {
                IdentifyNamespaceIndependent { nmic, anagrpid, ..n.identify_independent() }.encode()
            }),
            cns::ENDURANCE_GROUPS => {
                // CNSSID: the first group of the list.
                let first = c.cdw(11) as u16;
                let groups = [STILL_GROUP, ROTATIONAL_GROUP].into_iter().filter(|g| *g >= first);
                let mut list = [0; IDENTIFY_LEN];
                for (i, group) in groups.enumerate() {
                    list[0] = i as u8 + 1;
                    list[2 * (i + 1)..][..2].copy_from_slice(&group.to_le_bytes());
                }
                Ok(list)
            }
            cns::COMMAND_SETS => {
                // The controller that the host asks about: this one, or FFFFh.
                let id = (c.cdw(10) >> 16) as u16;
                if id != self.id && id != u16::MAX {
                    return Err(status::INVALID_FIELD);
                }
                // One combination: both command sets.
                let mut list = [0; IDENTIFY_LEN];
                list[0] = 1 << csi::NVM | 1 << csi::ZONED;
                Ok(list)
            }
            _ => Err(status::INVALID_FIELD),
        }
    }

    fn identify_controller(
        &self,
        registry: &Registry,
        subsystem: &Subsystem,
        all: &Namespaces,
    ) -> IdentifyController {
        let ana = match registry.ports.are_several() {
            true => IdentifyController {
                cmic: SEVERAL_PORTS | SEVERAL_CONTROLLERS | ANA,
                anatt: ANA_TRANSITION_SECONDS,
                anacap: ANA_STATES | ANA_GROUPS_STAY,
                anagrpmax: GROUP,
                nanagrpid: 1,
                ..self.common()
            },
            // One port is not marked as shared: Linux gives a multipath block device no scheduler, and some programs
            // insist on one.
            false => self.common(),
        };
        let config = &subsystem.config;
        let any = |f: &dyn Fn(&Namespace) -> bool| all.iter().any(|(_, n)| f(n));
        let zeroes = all.iter().all(|(_, n)| n.can_write_zeroes());
        let discard = any(&Namespace::can_discard);
        IdentifyController {
            sn: text(&config.serial, b' '),
            mdts: (config.max_data / 4096).ilog2() as u8,
            oaes: self.supported_events(registry),
            ctratt: LONG_HOST_IDENTIFIERS | ENDURANCE_GROUPS,
            endgidmax: ROTATIONAL_GROUP,
            cntrltype: 1,
            acl: 3,
            // One slot, read-only.
            frmw: 1 | 1 << 1,
            // Effects log, extended data.
            lpa: 2 | 4,
            wctemp: WARM_KELVIN,
            cctemp: CRITICAL_KELVIN,
            sqes: 0x66,
            cqes: 0x44,
            maxcmd: config.queue_entries,
            nn: LAST_NSID,
            mnan: MAX_NAMESPACES,
            oncs: u16::from(discard) << 2 | u16::from(zeroes) << 3,
            // A host reads this once, and disks with a cache may be added later; a disk without one takes flushes,
            // too. A flush affects one namespace.
            vwc: 1 | 2 << 1,
            subnqn: text(config.nqn.as_str(), 0),
            ioccsz: (64 + config.in_capsule) / 16,
            iorcsz: 1,
            ..ana
        }
    }
}
