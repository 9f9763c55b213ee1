//! Chooses the next step of the hosts, a command or a disturbance. Sends writes, appends, reads, flushes and
//! deallocations.

use super::commands::Purpose;
use super::order::Placed;
use super::{NetworkWorld, trace};
use crate::class::Class;
use crate::memory::stamp_bytes;
use zoneplug_core::Nanos;
use zoneplug_nvme::initiator::Data;
use zoneplug_nvme::spec::{Command, opcode};

impl NetworkWorld {
    /// Takes one step of the hosts.
    pub(super) fn act(&mut self) {
        self.learn_zones();
        if self.any_connection().is_none() || self.rng.one_in(12) {
            self.reconnect();
        }
        match self.rng.below(100) {
            0..=34 => self.write_train(),
            35..=41 => self.append(),
            42..=54 => self.read(),
            55..=58 => self.report(),
            59..=65 => self.manage(),
            66 => self.manage_all(),
            67..=68 => self.reset_in_flight(),
            69..=70 => self.flush(),
            71 => self.deallocate(),
            72..=77 => self.send_refused(),
            78..=80 => self.write_conventional(),
            81..=82 => self.cut(),
            83..=84 => self.stall(),
            85..=86 => self.corrupt(),
            87 => self.fall_silent(),
            88 => self.reset_controller(),
            89 => self.inject_fault(),
            90 => self.make_device_busy(),
            91..=92 => self.freeze(),
            93 if self.seed.is_multiple_of(3) => self.hand_over(),
            94..=95 if self.keys.is_some() => self.authenticate_again(),
            93..=95 => {
                let most = self.config.order_window.0.max(1_000_000) as u32;
                let time = self.rng.below(most);
                self.pass_for(u64::from(time));
            }
            _ => {
                self.run_to_next_event();
            }
        }
    }

    pub(super) fn any_zone(&mut self) -> usize {
        self.rng.below(self.zones.len() as u32) as usize
    }

    /// Returns the largest number of sectors of a command.
    pub(super) fn max_command_sectors(&self) -> u32 {
        (self.network.max_data >> 9) / self.block * self.block
    }

    /// Writes the next sectors of a zone in pieces, each through a connection chosen at random.
    pub(super) fn write_train(&mut self) {
        let z = self.any_zone();
        let zone = &self.zones[z];
        let unfit = zone.conventional || zone.unsure || zone.fuzzy || zone.managed > 0;
        if unfit || zone.appends > 0 || zone.ghosts > 0 {
            return;
        }
        // Without an order window, the disk refuses writes that arrive out of order. The hosts then usually wait for
        // each write of a zone before they send the next.
        let strict = self.config.order_window == Nanos(0) && !self.rng.one_in(4);
        if strict && zone.writes > 0 {
            return;
        }
        if zone.writes == 0 {
            self.zones[z].train.clear();
        }
        let pieces = if strict { 1 } else { self.rng.range(1, 6) };
        for _ in 0..pieces {
            let zone = &self.zones[z];
            let left = (zone.cap - zone.wp) / self.block;
            if left == 0 {
                return;
            }
            let Some(c) = self.any_connection() else { return };
            let most = left
                .min(self.max_command_sectors() / self.block)
                .min(if self.rng.one_in(3) { 64 } else { 8 });
            let len = self.block * self.rng.range(1, most);
            self.write(c, z, len);
            if self.rng.one_in(3) {
                self.run_to_next_event();
            }
            let zone = &self.zones[z];
            if zone.unsure || zone.managed > 0 {
                return;
            }
        }
    }

    fn write(&mut self, c: usize, z: usize, len: u32) {
        let zeroes = self.emu.config().limits.max_write_zeroes_sectors > 0 && self.rng.one_in(10);
        let stamp = self.stamp(len);
        let (offset, generation) = (self.zones[z].wp, self.zones[z].generation);
        let (command, data) = if zeroes {
            (self.command_at(opcode::WRITE_ZEROES, z, offset, len), Data::None)
        } else {
            self.stamps.add(stamp, len, z, Some(offset));
            self.write_command(z, offset, len, stamp)
        };
        let zone = &mut self.zones[z];
        zone.wp += len;
        zone.writes += 1;
        zone.activity += 1;
        zone.zeroed |= zeroes;
        let stamp = (!zeroes).then_some(stamp);
        let what = Purpose::Write { zone: z, generation, offset, len, stamp };
        self.send(c, what, command, data);
        self.zones[z].train.push(Placed::new(offset));
    }

    pub(super) fn append(&mut self) {
        let z = self.any_zone();
        let zone = &self.zones[z];
        let unfit = zone.conventional || zone.unsure || zone.fuzzy || zone.managed > 0;
        if unfit || zone.writes > 0 || zone.ghosts > 0 {
            return;
        }
        self.zones[z].train.clear();
        for _ in 0..self.rng.range(1, 4) {
            let zone = &self.zones[z];
            let limits = &self.emu.config().limits;
            let longest = self.max_command_sectors().min(limits.transfer_sectors()).min(zone.len);
            let most = ((zone.cap - zone.wp) / self.block).min(longest / self.block).min(12);
            if most == 0 || zone.unsure {
                return;
            }
            let Some(c) = self.any_connection() else { return };
            let len = self.block * self.rng.range(1, most);
            let stamp = self.stamp(len);
            self.stamps.add(stamp, len, z, None);
            let command = self.command_at(opcode::ZONE_APPEND, z, 0, len);
            let command = self.with_flags(command);
            let zone = &mut self.zones[z];
            zone.wp += len;
            zone.appends += 1;
            zone.activity += 1;
            let what = Purpose::Append { zone: z, generation: zone.generation, len, stamp };
            self.send(c, what, command, Data::Out(stamp_bytes(len, stamp)));
            if self.rng.one_in(3) {
                self.run_to_next_event();
            }
            let zone = &self.zones[z];
            if zone.unsure || zone.managed > 0 {
                return;
            }
        }
    }

    fn write_conventional(&mut self) {
        let z = self.any_zone();
        let zone = &self.zones[z];
        if !zone.conventional || zone.writes > 0 || zone.ghosts > 0 {
            return;
        }
        let Some(c) = self.any_connection() else { return };
        let blocks = self.zones[z].len / self.block;
        let first = self.rng.below(blocks);
        let most = (blocks - first).min(self.max_command_sectors() / self.block);
        let (offset, len) = (first * self.block, self.block * self.rng.range(1, most));
        let stamp = self.stamp(len);
        let (command, data) = self.write_command(z, offset, len, stamp);
        let zone = &mut self.zones[z];
        zone.writes += 1;
        zone.activity += 1;
        zone.generation += 1;
        zone.shadow[offset as usize..(offset + len) as usize].fill(None);
        let generation = zone.generation;
        let what = Purpose::Write { zone: z, generation, offset, len, stamp: Some(stamp) };
        self.send(c, what, command, data);
        self.hit(Class::Conventional);
    }

    pub(super) fn read(&mut self) {
        let z = self.any_zone();
        let Some(c) = self.any_connection() else { return };
        let zone = &self.zones[z];
        let blocks = zone.len / self.block;
        let first = self.rng.below(blocks);
        let most = (blocks - first).min(self.max_command_sectors() / self.block).min(40);
        let (offset, len) = (first * self.block, self.block * self.rng.range(1, most));
        let zone = &self.zones[z];
        let changing = zone.managed > 0 || zone.fuzzy || zone.conventional && !zone.is_quiet();
        let known = |i: u32| zone.shadow[i as usize].filter(|_| !changing);
        let expect = (offset..offset + len).map(|i| (z, zone.generation, known(i))).collect();
        let command = self.command_at(opcode::READ, z, offset, len);
        self.send(c, Purpose::Read { expect }, command, Data::In(len << 9));
    }

    fn flush(&mut self) {
        let z = self.any_zone();
        let Some(c) = self.any_connection() else { return };
        let (nsid, _) = self.address(z, 0);
        let command = Command::new(opcode::FLUSH).with_nsid(nsid);
        self.send(c, Purpose::Flush, command, Data::None);
        trace!(self, "  flush");
    }

    /// Deallocation is a hint, and blocks of sequential zones keep their data (J10).
    fn deallocate(&mut self) {
        let z = self.any_zone();
        if self.zones[z].conventional {
            return;
        }
        let Some(c) = self.any_connection() else { return };
        let (nsid, lba) = self.address(z, 0);
        let mut range = vec![0; 16];
        range[4..8].copy_from_slice(&(self.zones[z].len / self.block).to_le_bytes());
        range[8..].copy_from_slice(&lba.to_le_bytes());
        let command = Command::new(opcode::DATASET_MANAGEMENT);
        let command = command.with_nsid(nsid).with_cdw(11, 1 << 2);
        self.send(c, Purpose::Deallocate, command, Data::Out(range));
    }
}
