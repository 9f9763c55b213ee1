//! Disturbances: in the network, of hosts, and at the disk.

use super::{NetworkWorld, trace};
use crate::class::Class;
use zoneplug_core::{Nanos, Op, Status};
use zoneplug_devices::stack::{FaultAction, FaultRule, OpSet};
use zoneplug_nvme::spec::Command;
use zoneplug_nvme::spec::fabrics::{Configuration, property};

impl NetworkWorld {
    /// Returns a connection that both sides have.
    pub(super) fn any_path(&mut self) -> Option<usize> {
        let all: Vec<usize> = (0..self.connections.len())
            .filter(|&c| {
                let c = &self.connections[c];
                c.ready && c.initiator.is_some() && c.served.is_some() && c.host_sees.is_none()
            })
            .collect();
        (!all.is_empty()).then(|| self.rng.pick(&all))
    }

    /// Cuts a connection. Its sides see that at different times.
    pub(super) fn cut(&mut self) {
        let Some(c) = self.any_path() else { return };
        let most = if self.rng.one_in(2) { 100_000 } else { 50_000_000 };
        let (host, server) = (self.rng.below(most), self.rng.below(most));
        let connection = &mut self.connections[c];
        // The last acknowledgements may be lost.
        let arrived = connection.to_host.arrived_ever(self.now);
        let lost = if self.rng.one_in(2) { u64::from(self.rng.below(400)) } else { 0 };
        connection.acknowledged = Some(arrived.saturating_sub(lost));
        connection.to_server.cut(&mut self.rng);
        connection.to_host.cut(&mut self.rng);
        connection.out.clear();
        connection.host_sees = Some(self.now.plus(Nanos(u64::from(host))));
        connection.server_sees = Some(self.now.plus(Nanos(u64::from(server))));
        connection.troubled = true;
        self.troubles += 1;
        trace!(self, "  connection {c} is cut: host sees it after {host}, server after {server}");
        if self.commands.values().any(|s| s.connection == c) {
            self.hit(Class::CutLink);
        }
    }

    /// Stalls one direction for a while, perhaps longer than the other side waits.
    pub(super) fn stall(&mut self) {
        let Some(c) = self.any_path() else { return };
        let window = self.config.order_window.0.max(1_000_000) as u32;
        let time = match self.rng.below(10) {
            0 => self.rng.range(200_000_000, 400_000_000),
            1..=5 => self.rng.range(1, 2 * window),
            _ => self.rng.range(1, window / 2),
        };
        let until = self.now.plus(Nanos(u64::from(time)));
        let connection = &mut self.connections[c];
        let link =
            if self.rng.one_in(2) { &mut connection.to_host } else { &mut connection.to_server };
        link.stall(until);
        connection.troubled = true;
        self.troubles += 1;
        trace!(self, "  connection {c} stalls for {time}");
    }

    /// Changes a byte on its way, where digests find that.
    pub(super) fn corrupt(&mut self) {
        let Some(c) = self.any_path() else { return };
        let connection = &mut self.connections[c];
        if !connection.digests {
            return;
        }
        let to_host = self.rng.one_in(4);
        let link = if to_host { &mut connection.to_host } else { &mut connection.to_server };
        if link.corrupt(&mut self.rng) {
            (connection.corrupt, connection.troubled) = (true, true);
            if to_host {
                // If the byte belongs to a length, the host waits in vain and gives up after its timeout.
                connection.host_sees = Some(self.now.plus(Nanos(500_000_000)));
            }
            self.troubles += 1;
            trace!(self, "  a byte changes on connection {c}");
        }
    }

    /// Silences a host for longer than its timeout.
    pub(super) fn fall_silent(&mut self) {
        let h = self.rng.below(self.hosts.len() as u32) as usize;
        let kato = u64::from(self.hosts[h].kato);
        let Some(admin) = self.admin_of(h).filter(|_| kato != 0) else { return };
        trace!(self, "  host {h} is silent");
        self.troubles += 1;
        self.hosts[h].next_keep_alive = None;
        self.connections[admin].troubled = true;
        self.pass_for((kato + 2000) * 1_000_000);
        assert!(self.connections[admin].served.is_none(), "J6: host {h} was silent");
        self.hit(Class::Silent);
    }

    /// Resets a host's controller, whose I/O queues end, and then gives the controller up.
    pub(super) fn reset_controller(&mut self) {
        let h = self.rng.below(self.hosts.len() as u32) as usize;
        let Some(admin) = self.admin_of(h).filter(|&c| self.room(c) > 0) else { return };
        trace!(self, "  host {h} resets its controller");
        self.troubles += 1;
        self.hosts[h].next_keep_alive = None;
        let off = Configuration { enable: false, ..Configuration::START };
        self.send_admin(admin, Command::property_set(property::CC, off.encode()));
        for c in self.connections.iter_mut().filter(|c| c.host == h) {
            c.troubled = true;
        }
        let time = self.rng.below(5_000_000);
        self.pass_for(u64::from(time));
        self.lose_host(h);
        self.hit(Class::Reset);
    }

    /// Makes the next commands of some kind fail at the device.
    pub(super) fn inject_fault(&mut self) {
        use FaultAction as A;
        if !self.seed.is_multiple_of(4) {
            return;
        }
        let status = self.rng.pick(&[Status::Io, Status::Medium, Status::ShortTransfer]);
        let kinds = self.rng.pick(&[
            OpSet::of(&[Op::Write]),
            OpSet::of(&[Op::Read]),
            OpSet::of(&[Op::ZoneReset]),
            OpSet::of(&[Op::ReportZones]),
        ]);
        let torn = self.block * self.rng.range(0, 6);
        let action = match self.rng.below(3) {
            0 => A::Fail(status),
            1 => A::Torn(status, Some(torn)),
            _ => A::Delay(Nanos(u64::from(self.rng.range(1, 5_000_000)))),
        };
        let mut rule = FaultRule::next(kinds, action);
        rule.skip = u64::from(self.rng.below(3));
        trace!(self, "  fault {rule}");
        self.has_faults = true;
        self.troubles += 1;
        self.faults.add(rule);
    }

    /// Makes the device busy for a while.
    pub(super) fn make_device_busy(&mut self) {
        let n = self.rng.range(1, 4);
        trace!(self, "  the device takes nothing {n} times");
        self.troubles += 1;
        self.emu.force_busy(u64::from(n));
    }

    /// Freezes the disk until it is drained.
    pub(super) fn freeze(&mut self) {
        if self.freeze.is_none() {
            trace!(self, "  freeze");
            self.freeze = Some(self.served.disk.begin_freeze());
        }
    }
}
