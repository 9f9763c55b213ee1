//! Get Features and Set Features (Base Specification, *Feature Specific Information*).

use super::identify::WARM_KELVIN;
use super::{Answer, Controller, Kind, check_length, no_data};
use crate::spec::{Command, feature, status};
use crate::target::{Registry, TargetEvent};

/// The features of an I/O controller. A discovery controller supports keep alive and events only.
pub(super) const FEATURES: [u8; 12] = [
    feature::ARBITRATION,
    feature::POWER_MANAGEMENT,
    feature::TEMPERATURE_THRESHOLD,
    feature::ERROR_RECOVERY,
    feature::WRITE_CACHE,
    feature::QUEUES,
    feature::WRITE_ATOMICITY,
    feature::ASYNC_EVENTS,
    feature::KEEP_ALIVE_TIMER,
    feature::COMMAND_SET_PROFILE,
    feature::SPINUP_CONTROL,
    feature::HOST_IDENTIFIER,
];
const DISCOVERY_FEATURES: [u8; 2] = [feature::ASYNC_EVENTS, feature::KEEP_ALIVE_TIMER];

/// Save: command dword 10 of Set Features.
const SAVE: u32 = 1 << 31;

impl Controller {
    fn feature(&self, c: &Command) -> Result<u8, u16> {
        let id = c.cdw(10) as u8;
        let known = match self.kind {
            Kind::Io(_) => FEATURES.contains(&id),
            Kind::Discovery => DISCOVERY_FEATURES.contains(&id),
        };
        if known { Ok(id) } else { Err(status::INVALID_FIELD) }
    }

    pub(super) fn get_features(&self, registry: &Registry, c: &Command) -> Answer {
        let id = self.feature(c)?;
        // SELECT: the current value only, because ONCS says that others cannot be selected.
        if c.cdw(10) >> 8 & 7 != 0 {
            return Err(status::INVALID_FIELD);
        }
        if id == feature::HOST_IDENTIFIER {
            // EXHID: 128 bits, which a fabric always has.
            if c.cdw(11) & 1 == 0 {
                return Err(status::INVALID_FIELD);
            }
            check_length(c, 16)?;
            return Ok((0, self.host_id.to_vec()));
        }
        no_data(c)?;
        let value = match id {
            feature::QUEUES => {
                let most = self.subsystem(registry).map_or(1, |s| s.config.max_queues);
                queues(self.granted.unwrap_or(most))
            }
            feature::ASYNC_EVENTS => self.events.enabled(),
            feature::KEEP_ALIVE_TIMER => self.kato,
            feature::WRITE_CACHE => 1,
            // THSEL, bits 21:20: 0 for the upper threshold, 1 for the lower one.
            feature::TEMPERATURE_THRESHOLD if c.cdw(11) >> 20 & 3 == 0 => u32::from(WARM_KELVIN),
            // The other features are 0: arbitration and error recovery by default, power state 0, no lower threshold,
            // atomicity as Identify states it, and combination 0 of command sets.
            _ => 0,
        };
        Ok((u64::from(value), Vec::new()))
    }

    pub(super) fn set_features(
        &mut self,
        registry: &Registry,
        c: &Command,
        events: &mut Vec<TargetEvent>,
    ) -> Answer {
        let (id, value) = (self.feature(c)?, c.cdw(11));
        if c.cdw(10) & SAVE != 0 {
            return Err(status::NOT_SAVEABLE);
        }
        if id == feature::HOST_IDENTIFIER {
            // Connect has set the identifier already.
            return Err(status::SEQUENCE);
        }
        no_data(c)?;
        let result = match id {
            feature::QUEUES => {
                // NSQR and NCQR: the numbers of queues that the host requests, less one.
                let (sq, cq) = (value as u16, (value >> 16) as u16);
                if sq == u16::MAX || cq == u16::MAX {
                    return Err(status::INVALID_FIELD);
                }
                if self.has_io_queues() {
                    return Err(status::SEQUENCE);
                }
                let most = self.subsystem(registry).map_or(1, |s| s.config.max_queues);
                let granted = (sq.min(cq) + 1).min(most);
                self.granted = Some(granted);
                queues(granted)
            }
            feature::ASYNC_EVENTS => {
                self.enable_events(registry, value, events)?;
                0
            }
            // TCP requires Keep Alive (TCP Transport Specification, *Keep Alive Model*). A discovery controller
            // without it has its own time limit.
            feature::KEEP_ALIVE_TIMER if value == 0 && self.kind != Kind::Discovery => {
                return Err(status::KEEP_ALIVE_INVALID);
            }
            feature::KEEP_ALIVE_TIMER => {
                self.kato = value;
                0
            }
            // 0 is the only value that exists.
            feature::POWER_MANAGEMENT | feature::COMMAND_SET_PROFILE | feature::SPINUP_CONTROL
                if value == 0 =>
            {
                0
            }
            feature::COMMAND_SET_PROFILE => return Err(status::COMMAND_SET_REJECTED),
            _ => return Err(status::NOT_CHANGEABLE),
        };
        Ok((u64::from(result), Vec::new()))
    }
}

/// Returns the value of Number of Queues: submission and completion queues, less one each.
fn queues(n: u16) -> u32 {
    let n = u32::from(n) - 1;
    n | n << 16
}
