//! Zone management, reports, and commands that must be refused.

use super::NetworkWorld;
use super::commands::Purpose;
use crate::class::Class;
use zoneplug_core::Op;
use zoneplug_nvme::initiator::Data;
use zoneplug_nvme::spec::{Command, PARTIAL_REPORT, SELECT_ALL, ZoneAction, opcode, status};

/// Zone Invalid Write.
const MISPLACED: u16 = 0x1bc;
/// Bytes of a report of one zone.
pub(super) const REPORT: u32 = 128;

impl NetworkWorld {
    /// Resets, finishes, opens or closes one zone at rest.
    pub(super) fn manage(&mut self) {
        let z = self.any_zone();
        let zone = &self.zones[z];
        if zone.conventional || !zone.is_quiet() || zone.unsure {
            return;
        }
        let op = self.rng.pick(&[
            Op::ZoneReset,
            Op::ZoneReset,
            Op::ZoneReset,
            Op::ZoneFinish,
            Op::ZoneOpen,
            Op::ZoneClose,
        ]);
        self.manage_zones(op, vec![z], true);
    }

    /// Resets all zones at rest, by one command.
    pub(super) fn manage_all(&mut self) {
        let zones: Vec<usize> =
            (0..self.zones.len()).filter(|&z| !self.zones[z].conventional).collect();
        if zones.iter().all(|&z| self.zones[z].is_quiet() && !self.zones[z].unsure) {
            self.manage_zones(Op::ZoneReset, zones, true);
        }
    }

    /// Resets or finishes a zone that has writes in flight (M4).
    pub(super) fn reset_in_flight(&mut self) {
        let z = self.any_zone();
        let zone = &self.zones[z];
        // Behind a reset, a write that was to be refused is at the write pointer.
        if zone.writes > 0 && zone.refused == 0 && zone.managed == 0 && !zone.conventional {
            let op = self.rng.pick(&[Op::ZoneReset, Op::ZoneFinish]);
            self.hit(Class::FuzzyReset);
            self.manage_zones(op, vec![z], false);
        }
    }

    fn manage_zones(&mut self, op: Op, zones: Vec<usize>, quiet: bool) {
        let Some(c) = self.any_connection() else { return };
        let action = match op {
            Op::ZoneReset => ZoneAction::Reset,
            Op::ZoneFinish => ZoneAction::Finish,
            Op::ZoneOpen => ZoneAction::Open,
            _ => ZoneAction::Close,
        };
        let all = if zones.len() > 1 { SELECT_ALL } else { 0 };
        let (nsid, lba) = self.address(zones[0], 0);
        let command = Command::new(opcode::ZONE_MANAGEMENT_SEND).with_nsid(nsid);
        let command = command.with_cdw_pair(10, lba).with_cdw(13, action as u32 | all);
        for &z in &zones {
            let zone = &mut self.zones[z];
            zone.managed += 1;
            zone.activity += 1;
            zone.generation += 1;
            if !quiet {
                (zone.fuzzy, zone.unsure, zone.mixed) = (true, true, true);
                zone.shadow.fill(None);
            }
        }
        self.send(c, Purpose::Manage { op, zones, quiet }, command, Data::None);
    }

    pub(super) fn report(&mut self) {
        let z = self.any_zone();
        if !self.zones[z].conventional
            && let Some(c) = self.any_connection()
        {
            self.report_through(c, z);
        }
    }

    pub(super) fn report_through(&mut self, c: usize, z: usize) {
        let (nsid, lba) = self.address(z, 0);
        let command = Command::new(opcode::ZONE_MANAGEMENT_RECEIVE).with_nsid(nsid);
        let command = command.with_cdw_pair(10, lba).with_cdw(12, REPORT / 4 - 1);
        let (activity, quiet) = (self.zones[z].activity, self.zones[z].is_quiet());
        let what = Purpose::Report { zone: z, activity, quiet };
        self.send(c, what, command.with_cdw(13, PARTIAL_REPORT), Data::In(REPORT));
    }

    /// Asks for the zones whose state the hosts have lost, if they are at rest. A zone whose reset or finish has met
    /// writes is reset, because its content is not defined until then (M4).
    pub(super) fn learn_zones(&mut self) {
        for z in 0..self.zones.len() {
            let zone = &self.zones[z];
            if !zone.unsure || zone.asked || !zone.is_quiet() {
                continue;
            }
            let Some(c) = self.any_connection() else { return };
            if self.zones[z].fuzzy {
                self.manage_zones(Op::ZoneReset, vec![z], true);
                continue;
            }
            self.zones[z].asked = true;
            self.report_through(c, z);
        }
    }

    /// Sends a command that fails, and changes nothing (J2).
    pub(super) fn send_refused(&mut self) {
        let z = self.any_zone();
        let Some(c) = self.any_connection() else { return };
        let zone = &self.zones[z];
        let sequential = !zone.conventional;
        let (block, len, wp, cap) = (self.block, zone.len, zone.wp, zone.cap);
        let known = zone.is_quiet() && !zone.unsure && !zone.fuzzy;
        let last = z + 1 == self.zones.len();
        let bytes = |sectors: u32| Data::Out(vec![0xbb; (sectors as usize) << 9]);
        let at = |world: &NetworkWorld, code, offset, len| world.command_at(code, z, offset, len);
        let (command, data, status) = match self.rng.below(9) {
            0 => {
                let c = at(self, opcode::READ, 0, block).with_cdw_pair(10, 1 << 40);
                (c, Data::In(block << 9), status::LBA_RANGE)
            }
            1 if self.max_command_sectors() > block => {
                (at(self, opcode::READ, 0, block), Data::In((block << 9) + 4), status::SGL_LENGTH)
            }
            2 if self.max_command_sectors() >= 2 * block => {
                (at(self, opcode::WRITE, 0, 2 * block), bytes(block), status::SGL_LENGTH)
            }
            3 => {
                let c = at(self, opcode::READ, 0, block).with_nsid(77);
                (c, Data::In(block << 9), status::INVALID_NAMESPACE)
            }
            4 => (at(self, 0x05, 0, block), bytes(block), status::INVALID_OPCODE),
            5 if sequential => {
                (at(self, opcode::ZONE_APPEND, block, block), bytes(block), status::INVALID_FIELD)
            }
            6 if sequential && !last && self.max_command_sectors() >= 2 * block => {
                let c = at(self, opcode::WRITE, len - block, 2 * block);
                (c, bytes(2 * block), status::ZONE_BOUNDARY)
            }
            7 if sequential && known && (block..cap).contains(&wp) => {
                // Below the write pointer, where an order window does not help either.
                (at(self, opcode::WRITE, wp - block, block), bytes(block), MISPLACED)
            }
            8 if sequential => {
                let c = at(self, opcode::ZONE_MANAGEMENT_SEND, 0, block).with_cdw(12, 0);
                (c.with_cdw(13, 0x20), Data::None, status::INVALID_FIELD)
            }
            _ => return,
        };
        self.hit(Class::Refused);
        let below = (status == MISPLACED).then_some(z);
        below.into_iter().for_each(|z| self.zones[z].refused += 1);
        self.send(c, Purpose::Refused { status: status | status::DNR, below }, command, data);
    }
}
