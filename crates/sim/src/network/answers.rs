//! The conclusions that a host draws from an answer.

use super::authentication::is_denied;
use super::commands::{HostCommand, Purpose};
use super::manage::REPORT;
use super::{NetworkWorld, trace};
use crate::class::Class;
use crate::memory::stamps_of;
use zoneplug_core::{Op, Status};
use zoneplug_nvme::initiator::{Data, Done};
use zoneplug_nvme::spec::zone::{ZoneDescriptor, ZoneReportHeader, ZoneState};
use zoneplug_nvme::spec::{Completion, status};

/// A write that has been answered.
struct AnsweredWrite {
    zone: usize,
    generation: u64,
    offset: u32,
    len: u32,
    stamp: Option<u64>,
}

impl NetworkWorld {
    pub(super) fn answered(&mut self, id: u64, done: Done) {
        let Done { completion, ref data } = done;
        let said = Status::from_nvme(completion.status);
        trace!(self, "  command {id}: {said} ({:#x}), {} bytes", completion.status, data.len());
        let sent = self.commands.remove(&id);
        let sent = sent.unwrap_or_else(|| panic!("K3: command {id} is answered again"));
        let ok = completion.status == 0;
        if completion.status & !status::DNR == status::TRANSIENT_TRANSPORT {
            return self.spoilt(id, sent);
        }
        if self.connections[sent.connection].denied && is_denied(&completion, &sent.data) {
            return self.denied(sent);
        }
        let checked = sent.came_up || matches!(sent.what, Purpose::Refused { .. });
        assert!(checked, "K2: answered before it was there: {sent:?}, {completion:?}");
        let asked = if let Data::In(n) = sent.data { n as usize } else { 0 };
        let right = if ok { data.len() == asked } else { data.is_empty() };
        assert!(right, "{} bytes for {sent:?}, {said}", data.len());
        match sent.what {
            Purpose::Write { zone, generation, offset, len, stamp } => {
                let write = AnsweredWrite { zone, generation, offset, len, stamp };
                self.wrote(sent.connection, write, said, &completion);
            }
            Purpose::Append { zone, generation, len, stamp } => {
                self.appended(zone, generation, len, stamp, said, &completion);
            }
            Purpose::Read { expect } => {
                assert!(ok || self.has_faults, "a read: {said}");
                if ok {
                    self.was_read(&expect, data);
                }
            }
            Purpose::Report { zone, activity, quiet } => {
                assert!(ok || self.has_faults, "a report: {said}");
                self.reported(zone, activity, quiet, ok.then_some(&data[..]));
            }
            Purpose::Manage { op, zones, quiet } => self.managed(op, &zones, quiet, said),
            Purpose::Flush | Purpose::Deallocate => assert!(ok || self.has_faults, "{said}"),
            Purpose::Refused { status: right, below } => {
                below.into_iter().for_each(|z| self.zones[z].refused -= 1);
                // The zone may be full by now.
                let full = below.is_some() && completion.status == 0x1b9 | status::DNR;
                let as_told = completion.status == right || full;
                assert!(as_told, "J2: {:#x}, not {right:#x}", completion.status);
            }
            Purpose::Admin => assert!(ok, "an admin command: {completion:?}"),
            // The controller has ended, and answers the waiting requests.
            Purpose::Event => {}
            Purpose::Awaited => {
                self.awaited.insert(id, Some(done));
            }
        }
    }

    /// Handles a command whose data changed on the way: the digest shows it, so the command was not carried out and
    /// is sent again (K5).
    fn spoilt(&mut self, id: u64, sent: HostCommand) {
        let from = &self.connections[sent.connection];
        assert!(from.corrupt && !sent.came_up, "K5: no byte has changed: {sent:?}");
        self.hit(Class::Spoilt);
        if matches!(sent.what, Purpose::Awaited) {
            // A host that cannot connect tries again.
            self.awaited.remove(&id);
            return self.host_closes(sent.connection);
        }
        if let Purpose::Refused { below, .. } = sent.what {
            return below.into_iter().for_each(|z| self.zones[z].refused -= 1);
        }
        match self.any_connection() {
            Some(c) => {
                if let Purpose::Write { stamp: Some(stamp), .. } | Purpose::Append { stamp, .. } =
                    sent.what
                {
                    // The server may have closed the connection meanwhile.
                    self.written_after_all(stamp);
                }
                self.send(c, sent.what, sent.command, sent.data);
            }
            None => self.not_written(sent.what),
        }
    }

    /// Handles a write or an append that the target has not begun.
    pub(super) fn not_written(&mut self, what: Purpose) {
        match what {
            Purpose::Write { zone, offset, stamp, .. } => {
                let z = &mut self.zones[zone];
                z.writes -= 1;
                z.activity += 1;
                z.unsure |= !z.conventional;
                self.never_came(zone, offset);
                stamp.into_iter().for_each(|s| self.never_written(s));
            }
            Purpose::Append { zone, stamp, .. } => {
                let z = &mut self.zones[zone];
                z.appends -= 1;
                z.activity += 1;
                z.unsure = true;
                self.never_written(stamp);
            }
            other => panic!("a command without data: {other:?}"),
        }
    }

    fn wrote(&mut self, c: usize, write: AnsweredWrite, said: Status, completion: &Completion) {
        let AnsweredWrite { zone: z, generation, offset, len, stamp } = write;
        let zone = &mut self.zones[z];
        zone.writes -= 1;
        zone.activity += 1;
        if !said.is_ok() {
            zone.unsure |= !zone.conventional;
            let fuzzy = zone.fuzzy;
            let place = completion.status & !status::DNR == 0x1bc;
            // The zone may be full because it was finished meanwhile.
            assert!(place || fuzzy || !self.is_calm(), "a write: {said} {:?}", self.zones[z]);
            if place && !fuzzy && self.is_calm() {
                self.check_refusal(c, z, offset);
            }
            if self.is_calm() {
                stamp.into_iter().for_each(|s| self.never_written(s));
            }
            return;
        }
        if zone.generation != generation || zone.fuzzy || zone.managed > 0 {
            return;
        }
        zone.acknowledged(offset, (0..len).map(|i| stamp.map_or(0, |s| s + u64::from(i))));
        self.check_there(z, offset, len);
    }

    fn appended(
        &mut self,
        z: usize,
        generation: u64,
        len: u32,
        stamp: u64,
        said: Status,
        completion: &Completion,
    ) {
        let fuzzy = self.zones[z].fuzzy;
        let zone = &mut self.zones[z];
        zone.appends -= 1;
        zone.activity += 1;
        if !said.is_ok() {
            zone.unsure = true;
            assert!(fuzzy || !self.is_calm(), "an append: {said} {:?}", self.zones[z]);
            if self.is_calm() {
                self.never_written(stamp);
            }
            return;
        }
        let (_, first) = self.address(z, 0);
        let blocks = completion.result.checked_sub(first);
        let blocks = blocks.unwrap_or_else(|| panic!("Y5: landed at {completion:?}, zone {z}"));
        let offset = blocks as u32 * self.block;
        let zone = &mut self.zones[z];
        assert!(offset + len <= zone.cap, "A4: {completion:?} in zone {z}");
        self.placed(stamp, offset);
        let zone = &mut self.zones[z];
        if zone.generation != generation || fuzzy || zone.managed > 0 {
            return;
        }
        zone.acknowledged(offset, stamp..stamp + u64::from(len));
        self.check_there(z, offset, len);
    }

    fn was_read(&self, expect: &[(usize, u64, Option<u64>)], data: &[u8]) {
        for (i, (found, (z, generation, stamp))) in stamps_of(data).zip(expect).enumerate() {
            let zone = &self.zones[*z];
            if let Some(s) = stamp.filter(|_| zone.generation == *generation && !zone.fuzzy) {
                assert_eq!(found, s, "sector {i} of a read of zone {z}");
            }
        }
    }

    /// Takes the reported write pointer of a zone, as an offset.
    fn reported(&mut self, z: usize, activity: u64, quiet: bool, data: Option<&[u8]>) {
        let (_, first) = self.address(z, 0);
        let block = self.block;
        let zone = &mut self.zones[z];
        let asked = std::mem::take(&mut zone.asked);
        let Some(data) = data else { return };
        assert_eq!(data.len(), REPORT as usize);
        let header = ZoneReportHeader::read(data).expect("a header");
        assert_eq!(header.nr_zones, 1, "J7");
        let d = ZoneDescriptor::decode(data[64..].first_chunk().expect("a descriptor"));
        let geometry = (d.zslba, d.zcap * u64::from(block));
        assert_eq!(geometry, (first, u64::from(zone.cap)), "Y3: zone {z}: {d:?}");
        if !quiet || activity != zone.activity {
            return;
        }
        let wp = match ZoneState::from_u8(d.state()) {
            Some(ZoneState::Full) => zone.cap,
            _ => (d.wp - first) as u32 * block,
        };
        if zone.unsure && asked {
            return self.learn(z, wp);
        }
        let known = !zone.unsure && !zone.fuzzy;
        assert!(!known || wp == zone.wp, "a report says {wp}: {zone:?}");
    }

    fn managed(&mut self, op: Op, zones: &[usize], quiet: bool, said: Status) {
        let ok = said.is_ok();
        let changes = matches!(op, Op::ZoneReset | Op::ZoneFinish);
        let next_stamp = self.next_stamp;
        for &z in zones {
            let zone = &mut self.zones[z];
            zone.managed -= 1;
            zone.activity += 1;
            if !changes {
                continue;
            }
            if !ok {
                zone.shadow.fill(None);
                (zone.unsure, zone.fuzzy, zone.mixed) = (true, true, true);
            } else if quiet && zone.is_quiet() {
                zone.train.clear();
                if op == Op::ZoneReset {
                    zone.shadow.fill(None);
                    (zone.wp, zone.born) = (0, next_stamp);
                    (zone.mixed, zone.zeroed) = (false, false);
                    (zone.fuzzy, zone.unsure) = (false, false);
                } else {
                    (zone.wp, zone.zeroed) = (zone.cap, true);
                }
            }
        }
        if quiet && changes && !ok {
            assert!(!self.is_calm(), "{op:?} of zones at rest: {said}");
        }
    }
}
