//! Commands that concern several devices. Such a command becomes commands of this layer's own, and ends when all of
//! them have ended.
//!
//! A flush goes to every device. A write with a preflush goes to its own device after all the others were flushed. A
//! report is put together from the devices' reports. A device whose sequential zones all belong to the disk gets a
//! reset of all zones as one command. On other devices the layer reports the zones that the disk has, and resets
//! those that are not empty one by one (M9).

use super::Map;
use super::lower::Lower;
use crate::stack::part::address;
use std::ops::Range;
use zoneplug_core::bio::{Command, Op, Status};
use zoneplug_core::unit::{Sector, ZoneNo};
use zoneplug_core::zone::{Condition, ZoneInfo};

/// The layer's next step with a command.
pub(super) enum FanOutStep {
    Wait,
    /// The command has ended.
    Done(Box<Command>),
    /// The command can go to its own device now.
    Send(Box<Command>),
}

/// A command that waits for commands of this layer.
struct FanOut {
    whole: Box<Command>,
    /// Commands of this layer that have not ended.
    left: usize,
    /// The status of the first failure. A *busy* gives way to any other failure, because the engine sends a busy
    /// command again and would never see the other one.
    status: Status,
    /// For a report: the disk's zones, and the report of each part.
    range: Range<u32>,
    reports: Vec<Vec<ZoneInfo>>,
}

/// All commands that wait for others.
#[derive(Default)]
pub(super) struct FanOuts {
    /// The waiting commands by number; `None` is free.
    fans: Vec<Option<FanOut>>,
    /// Commands that have not ended: the address of each, and the number of the `FanOut` that it belongs to.
    children: Vec<(usize, usize)>,
}

impl FanOuts {
    pub(super) fn is_empty(&self) -> bool {
        self.children.is_empty()
    }

    /// Begins a command: sends the commands that it needs to the parts. The sector of a report is within the disk.
    pub(super) fn begin(&mut self, map: &Map, c: Box<Command>, lower: &mut [Lower]) -> FanOutStep {
        let parts = map.parts.len();
        let mut fan = FanOut {
            left: 0,
            status: Status::Ok,
            range: 0..0,
            reports: vec![Vec::new(); parts],
            whole: c,
        };
        let id = self.fans.iter().position(Option::is_none).unwrap_or(self.fans.len());
        let all = 0..map.geometry.nr_zones();
        match fan.whole.op {
            Op::ReportZones => {
                let first = map.geometry.zone_of(fan.whole.sector).0.0;
                fan.range = first..first.saturating_add(fan.whole.report_max).min(all.end);
                for part in 0..parts {
                    self.report(map, id, &mut fan, part, lower);
                }
            }
            Op::ZoneResetAll => {
                for part in 0..parts {
                    if map.parts[part].is_whole() {
                        let c = Command::without_data(Op::ZoneResetAll, Sector(0), 0);
                        self.child(id, &mut fan, part, c, lower);
                    } else {
                        fan.range = all.clone();
                        self.report(map, id, &mut fan, part, lower);
                    }
                }
            }
            op => {
                let own = (op != Op::Flush).then(|| map.sector_down(fan.whole.sector).0);
                for part in (0..parts).filter(|p| Some(*p) != own) {
                    let c = Command::without_data(Op::Flush, Sector(0), 0);
                    self.child(id, &mut fan, part, c, lower);
                }
            }
        }
        if fan.left == 0 {
            return finish(map, fan);
        }
        if id == self.fans.len() {
            self.fans.push(None);
        }
        self.fans[id] = Some(fan);
        FanOutStep::Wait
    }

    /// Asks a part for those of its zones that are in `fan.range`.
    fn report(&mut self, map: &Map, id: usize, fan: &mut FanOut, part: usize, lower: &mut [Lower]) {
        let zones = map.zones_of(part, &fan.range);
        if zones.is_empty() {
            return;
        }
        let p = &map.parts[part];
        let start = p.below.zone_start(ZoneNo(p.first + zones.start));
        let mut c = Command::without_data(Op::ReportZones, start, 0);
        c.report_max = zones.end - zones.start;
        self.child(id, fan, part, c, lower);
    }

    fn child(
        &mut self,
        id: usize,
        fan: &mut FanOut,
        part: usize,
        c: Box<Command>,
        lower: &mut [Lower],
    ) {
        fan.left += 1;
        self.children.push((address(&c), id));
        lower[part].out.push_back(c);
    }

    /// Takes back a command from a part, and returns the next step. If the command is not one of this layer's own,
    /// returns it as `Err`.
    pub(super) fn completed(
        &mut self,
        map: &Map,
        part: usize,
        mut c: Box<Command>,
        lower: &mut [Lower],
    ) -> Result<FanOutStep, Box<Command>> {
        let Some(i) = self.children.iter().position(|(a, _)| *a == address(&c)) else {
            return Err(c);
        };
        let (_, id) = self.children.swap_remove(i);
        let Some(mut fan) = self.fans[id].take() else { return Ok(FanOutStep::Wait) };
        fan.left -= 1;
        if fan.status.is_ok() || fan.status == Status::Busy && !c.status.is_ok() {
            fan.status = c.status;
        }
        if c.op == Op::ReportZones && c.status.is_ok() {
            if fan.whole.op == Op::ZoneResetAll {
                self.reset(map, id, &mut fan, part, &c.report, lower);
            } else {
                fan.reports[part] = std::mem::take(&mut c.report);
            }
        }
        if fan.left > 0 {
            self.fans[id] = Some(fan);
            return Ok(FanOutStep::Wait);
        }
        Ok(finish(map, fan))
    }

    /// Resets the zones of a part, except conventional, empty, read-only and offline ones.
    fn reset(
        &mut self,
        map: &Map,
        id: usize,
        fan: &mut FanOut,
        part: usize,
        zones: &[ZoneInfo],
        lower: &mut [Lower],
    ) {
        use Condition::{Empty, NotWp, Offline, ReadOnly};
        let below = &map.parts[part].below;
        for info in zones.iter().filter(|z| !matches!(z.cond, NotWp | Empty | ReadOnly | Offline)) {
            let len = below.zone_len_sectors(below.zone_of(info.start).0);
            let c = Command::without_data(Op::ZoneReset, info.start, len);
            self.child(id, fan, part, c, lower);
        }
    }
}

/// Ends a command when all commands of this layer have ended.
fn finish(map: &Map, fan: FanOut) -> FanOutStep {
    let FanOut { mut whole, status, range, reports, .. } = fan;
    whole.status = status;
    if !status.is_ok() {
        return FanOutStep::Done(whole);
    }
    match whole.op {
        Op::Flush | Op::ZoneResetAll => FanOutStep::Done(whole),
        Op::ReportZones => {
            let mut next: Vec<_> = reports.into_iter().map(Vec::into_iter).collect();
            // In the order of the disk's zones. The report ends where a device has reported fewer zones than it was
            // asked for.
            whole.report.extend(range.map_while(|z| {
                let part = map.down(ZoneNo(z)).0;
                next[part].next().map(|info| map.translate(part, info))
            }));
            FanOutStep::Done(whole)
        }
        _ => FanOutStep::Send(whole),
    }
}
