//! Get Log Page (Base Specification, *Get Log Page command*).

use super::features::FEATURES;
use super::{Answer, Controller, Kind, check_length};
use crate::spec::identify::{csi, encode_namespace_list};
use crate::spec::log::{
    AnaGroup, AnaHeader, CHANGES_CONTENT, ChangedZones, EffectsLog, EnduranceGroupLog, ErrorEntry,
    FeatureLog, FirmwareLog, HealthLog, RETAIN_EVENT, RotationalMediaLog, SUPPORTED, SupportedLogs,
    lid,
};
use crate::spec::{ALL_NAMESPACES, Command, admin, opcode, status, text};
use crate::target::Registry;
use crate::target::namespace::{ROTATIONAL_GROUP, STILL_GROUP};
use crate::target::port::GROUP;

/// RGO, Return Groups Only: command dword 10, in the field LSP (bits 14:8).
const GROUPS_ONLY: u32 = 1 << 8;

const IO_LOGS: &[u8] = &[
    lid::SUPPORTED,
    lid::ERROR,
    lid::HEALTH,
    lid::FIRMWARE,
    lid::CHANGED_NAMESPACES,
    lid::EFFECTS,
    lid::ENDURANCE_GROUP,
    lid::FEATURES,
    lid::ROTATIONAL_MEDIA,
    lid::CHANGED_ZONES,
];
/// The log pages of an I/O controller if there are several ports.
const MULTIPATH_LOGS: &[u8] = &[
    lid::SUPPORTED,
    lid::ERROR,
    lid::HEALTH,
    lid::FIRMWARE,
    lid::CHANGED_NAMESPACES,
    lid::EFFECTS,
    lid::ENDURANCE_GROUP,
    lid::ANA,
    lid::FEATURES,
    lid::ROTATIONAL_MEDIA,
    lid::CHANGED_ZONES,
];
const DISCOVERY_LOGS: &[u8] = &[lid::SUPPORTED, lid::DISCOVERY];

const ADMIN_COMMANDS: [u8; 7] = [
    admin::GET_LOG_PAGE,
    admin::IDENTIFY,
    admin::ABORT,
    admin::SET_FEATURES,
    admin::GET_FEATURES,
    admin::ASYNC_EVENT_REQUEST,
    admin::KEEP_ALIVE,
];
const NVM_COMMANDS: [(u8, u32); 5] = [
    (opcode::FLUSH, 0),
    (opcode::WRITE, CHANGES_CONTENT),
    (opcode::READ, 0),
    (opcode::WRITE_ZEROES, CHANGES_CONTENT),
    (opcode::DATASET_MANAGEMENT, CHANGES_CONTENT),
];
/// Linux makes a namespace without append read-only (Y2).
const ZONED_COMMANDS: [(u8, u32); 3] = [
    (opcode::ZONE_MANAGEMENT_SEND, CHANGES_CONTENT),
    (opcode::ZONE_MANAGEMENT_RECEIVE, 0),
    (opcode::ZONE_APPEND, CHANGES_CONTENT),
];

impl Controller {
    /// Returns a part of a log page: NUMD dwords from the offset LPO. Bytes past the end of the page are 0.
    pub(super) fn log_page(&mut self, registry: &Registry, c: &Command) -> Answer {
        // NUMD: command dwords 10 (31:16) and 11 (15:0), less one.
        let dwords = u64::from(c.cdw(10) >> 16 | c.cdw(11) << 16) + 1;
        check_length(c, dwords * 4)?;
        let most =
            self.subsystem(registry).map_or(crate::target::DISCOVERY_DATA, |s| s.config.max_data);
        // OT, command dword 14 bit 23: the offset is a number of entries.
        if dwords * 4 > u64::from(most) || c.cdw(14) >> 23 & 1 != 0 {
            return Err(status::INVALID_FIELD);
        }
        let offset = c.cdw_pair(12);
        let id = c.cdw(10) as u8;
        let page = self.page(registry, id, c)?;
        if !offset.is_multiple_of(4) || offset > page.len() as u64 {
            return Err(status::INVALID_FIELD);
        }
        let mut part = page[offset as usize..].to_vec();
        part.resize(dwords as usize * 4, 0);
        if c.cdw(10) & RETAIN_EVENT == 0 {
            self.log_was_read(id);
        }
        Ok((0, part))
    }

    fn health(&self) -> HealthLog {
        // Figure *SMART / Health Information Log Page*: units of 1000 times 512 bytes, rounded up.
        let units = |bytes: u64| u128::from(bytes.div_ceil(512_000));
        let done = self.activity;
        HealthLog {
            available_spare: 100,
            spare_threshold: 1,
            data_units_read: units(done.read_bytes),
            data_units_written: units(done.written_bytes),
            host_reads: u128::from(done.reads),
            host_writes: u128::from(done.writes),
            ..Default::default()
        }
    }

    /// Returns the ANA log: one group of all namespaces, with their numbers unless only groups are requested.
    fn ana_log(&self, registry: &Registry, groups_only: bool) -> Vec<u8> {
        let change_count = registry.ports.changes;
        let mut numbers: Vec<u32> = match self.subsystem(registry) {
            Some(subsystem) if !groups_only => {
                self.shown(subsystem).iter().map(|(nsid, _)| nsid).collect()
            }
            _ => Vec::new(),
        };
        numbers.sort_unstable();
        let header = AnaHeader { change_count, groups: 1 };
        let nsids = numbers.len() as u32;
        let group = AnaGroup { id: GROUP, nsids, change_count, state: self.access as u8 };
        let mut log = [&header.encode()[..], &group.encode()].concat();
        log.extend(numbers.iter().flat_map(|n| n.to_le_bytes()));
        log
    }

    fn page(&self, registry: &Registry, id: u8, c: &Command) -> Result<Vec<u8>, u16> {
        let logs = match self.kind {
            Kind::Discovery => DISCOVERY_LOGS,
            Kind::Io(_) if registry.ports.are_several() => MULTIPATH_LOGS,
            Kind::Io(_) => IO_LOGS,
        };
        if !logs.contains(&id) {
            return Err(status::INVALID_LOG);
        }
        Ok(match id {
            lid::SUPPORTED => {
                let mut pages = SupportedLogs::default();
                for id in logs {
                    pages.pages[usize::from(*id)] = SUPPORTED;
                }
                pages.encode().to_vec()
            }
            // One empty entry (ELPE 0), because no completion sets the bit *more*.
            lid::ERROR => ErrorEntry::default().encode().to_vec(),
            lid::HEALTH => {
                if !matches!(c.nsid(), 0 | ALL_NAMESPACES) {
                    // LPA bit 0: a namespace has no health log of its own.
                    return Err(status::INVALID_FIELD);
                }
                self.health().encode().to_vec()
            }
            lid::FIRMWARE => {
                let mut log = FirmwareLog { afi: 1, ..Default::default() };
                log.frs[0] = text(env!("CARGO_PKG_VERSION"), b' ');
                log.encode().to_vec()
            }
            lid::CHANGED_NAMESPACES => encode_namespace_list(self.changed_namespaces()).to_vec(),
            lid::EFFECTS => effects((c.cdw(14) >> 24) as u8)?.encode().to_vec(),
            lid::FEATURES => {
                let mut log = FeatureLog::default();
                for id in FEATURES {
                    log.fis[usize::from(id)] = SUPPORTED;
                }
                log.encode().to_vec()
            }
            lid::ENDURANCE_GROUP => match group(c) {
                group @ (STILL_GROUP | ROTATIONAL_GROUP) => EnduranceGroupLog {
                    egfeat: u8::from(group == ROTATIONAL_GROUP),
                    available_spare: 100,
                    spare_threshold: 1,
                    ..Default::default()
                }
                .encode()
                .to_vec(),
                _ => return Err(status::INVALID_FIELD),
            },
            lid::ROTATIONAL_MEDIA => match group(c) {
                // Disks report neither their speed nor how often they were started.
                ROTATIONAL_GROUP => RotationalMediaLog {
                    endgid: ROTATIONAL_GROUP,
                    actuators: 1,
                    ..Default::default()
                }
                .encode()
                .to_vec(),
                _ => return Err(status::INVALID_FIELD),
            },
            lid::ANA => self.ana_log(registry, c.cdw(10) & GROUPS_ONLY != 0),
            // Disks do not report when a zone becomes read-only or offline.
            lid::CHANGED_ZONES => match self.subsystem(registry).map(|s| self.shown(s)) {
                Some(all) if all.get(c.nsid()).is_some_and(|n| n.is_zoned()) => {
                    ChangedZones::default().encode().to_vec()
                }
                _ => return Err(status::INVALID_NAMESPACE),
            },
            _ => self.discovery_log(registry),
        })
    }
}

/// Returns the endurance group of a log page: LSI, bits 31:16 of command dword 11.
fn group(c: &Command) -> u16 {
    (c.cdw(11) >> 16) as u16
}

/// Returns whether an admin command requests a page that contains an [`Activity`](crate::target::Activity).
pub fn asks_for_activity(c: &Command) -> bool {
    c.opcode() == admin::GET_LOG_PAGE && c.cdw(10) as u8 == lid::HEALTH
}

/// Returns the commands of a command set and their effects.
fn effects(set: u8) -> Result<EffectsLog, u16> {
    let more: &[(u8, u32)] = match set {
        csi::NVM => &[],
        csi::ZONED => &ZONED_COMMANDS,
        _ => return Err(status::COMMAND_SET_NOT_SUPPORTED),
    };
    let mut log = EffectsLog::default();
    for command in ADMIN_COMMANDS {
        log.acs[usize::from(command)] = SUPPORTED;
    }
    for (command, effect) in NVM_COMMANDS.iter().chain(more) {
        log.iocs[usize::from(*command)] = SUPPORTED | effect;
    }
    Ok(log)
}
