//! What must be there after a cut or a kill: the oracle. It knows what was asked for and when that was acknowledged.

use crate::world::*;
use std::fmt::Write as _;
use std::task::Waker;
use zoneplug_core::zone::{Condition, ZoneInfo};
use zoneplug_core::{Command, Commands, Device, IoBuf, Op, Sector, ZoneNo};
use zoneplug_host::file::FileDisk;

/// The report of all zones, and the numbers of their sectors.
pub(crate) type Shown = (Vec<ZoneInfo>, Vec<Vec<u32>>);

impl World {
    /// Checks what is there after a cut, or a kill, at `moment`; returns the zones as they are then, and their data.
    pub(crate) fn check(
        &self,
        disk: &FileDisk,
        moment: usize,
        kill: bool,
        memory: &mut IoBuf,
    ) -> Result<(Vec<KnownZone>, Shown), String> {
        // After a failure nothing is promised but what was flushed.
        let kill = kill && self.storage.first_failure().is_none_or(|f| moment <= f);
        let g = self.disk.geometry();
        let mut queue = disk.open_queue(4, Waker::noop().clone()).unwrap();
        let mut report = Command::without_data(Op::ReportZones, Sector(0), 0);
        report.report_max = u32::MAX;
        let report = run(&mut *queue, Commands::from([report])).pop_front().unwrap().report;
        let (active, most) =
            (report.iter().filter(|z| z.cond.is_active()).count(), disk.limits().max_active_zones);
        if most > 0 && active > most as usize {
            return Err(format!("{active} zones are active, there may be {most}"));
        }
        let mut zones = Vec::new();
        let mut shown = Vec::new();
        for (n, info) in (0..).zip(&report) {
            let len = g.zone_len_sectors(ZoneNo(n));
            let status = read(&mut *queue, memory, info.start, len);
            if !status.is_ok() {
                return Err(format!("zone {n} cannot be read: {status}"));
            }
            let mut sectors = Vec::new();
            for i in 0..len {
                let mut s = [0; 512];
                memory.copy_to(i * 512, &mut s);
                let what = number(&s).ok_or(format!("zone {n}: sector {i} is torn"))?;
                sectors.push(what);
            }
            shown.push(sectors);
            zones.push(KnownZone::default());
        }
        // A write with a preflush that is there brings all that was acknowledged before it.
        let mut flushes: Vec<usize> = Vec::new();
        for a in self.asked.iter().filter(|a| a.start <= moment) {
            match &a.kind {
                Kind::Flush if a.ack <= moment => flushes.push(a.start),
                Kind::Write { preflush: true, zone, at, len, generation, .. } => {
                    let there = &shown[*zone as usize][*at as usize..(at + len) as usize];
                    let want = &self.numbers[&(*zone, *generation)];
                    let all = want.len() >= (at + len) as usize
                        && want[*at as usize..(at + len) as usize] == *there
                        && there.iter().any(|n| *n != 0);
                    if a.ack <= moment || all {
                        flushes.push(a.start);
                    }
                }
                _ => {}
            }
        }
        let durable = |a: &Asked, fua: bool| {
            a.ack <= moment && (kill || fua || flushes.iter().any(|f| *f >= a.ack))
        };
        for (n, info) in (0..).zip(&report) {
            let sectors = &shown[n as usize];
            if g.is_conventional(ZoneNo(n)) {
                self.check_conventional(n, moment, sectors, &durable)?;
            } else {
                zones[n as usize] = self.check_zone(n, moment, info, sectors, &durable)?;
            }
        }
        self.check_counts(disk, moment, &durable)?;
        Ok((zones, (report, shown)))
    }

    fn check_counts(
        &self,
        disk: &FileDisk,
        moment: usize,
        durable: &dyn Fn(&Asked, bool) -> bool,
    ) -> Result<(), String> {
        for n in 0..self.zones.len() as u32 {
            let (mut least, mut most) = (0, 0);
            for a in &self.asked {
                if let Kind::Conventional { zone, number: 0, .. } = a.kind {
                    // A discard counts where it cannot make a hole, or is the first change after a flush.
                    most += 2 * u64::from(zone == n && a.start <= moment);
                    continue;
                }
                if let Kind::Write { zone, fua, .. } | Kind::Conventional { zone, fua, .. } = a.kind
                    && zone == n
                {
                    least += u64::from(durable(a, fua));
                    // The first write of a conventional zone after a flush counts when it begins, too.
                    let times = if matches!(a.kind, Kind::Conventional { .. }) { 2 } else { 1 };
                    most += times * u64::from(a.start <= moment);
                }
            }
            let count = disk.write_count(ZoneNo(n)) - self.counts[n as usize];
            if !(least..=most).contains(&count) {
                return Err(format!("zone {n}: {count} writes, not {least} to {most}"));
            }
        }
        Ok(())
    }

    fn check_conventional(
        &self,
        n: u32,
        moment: usize,
        sectors: &[u32],
        durable: &dyn Fn(&Asked, bool) -> bool,
    ) -> Result<(), String> {
        for (i, got) in (0..).zip(sectors) {
            let mut allowed = vec![self.first.get(&(n, i)).copied().unwrap_or(0)];
            for a in self.asked.iter().filter(|a| a.start <= moment) {
                if let Kind::Conventional { zone, at, len, number, fua } = a.kind
                    && zone == n
                    && (at..at + len).contains(&i)
                {
                    if durable(a, fua) {
                        allowed.clear();
                    }
                    allowed.push(if number == 0 { 0 } else { number + i - at });
                }
            }
            if !allowed.contains(got) {
                return Err(format!("zone {n}: sector {i} is {got}, not one of {allowed:?}"));
            }
        }
        Ok(())
    }

    fn check_zone(
        &self,
        n: u32,
        moment: usize,
        info: &ZoneInfo,
        sectors: &[u32],
        durable: &dyn Fn(&Asked, bool) -> bool,
    ) -> Result<KnownZone, String> {
        let z = &self.zones[n as usize];
        let capacity = self.disk.geometry().capacity_of(ZoneNo(n));
        // Generations that it may be in.
        let mut generations = vec![z.base_generation];
        for a in self.asked.iter().filter(|a| a.start <= moment) {
            if let Kind::Reset { zone, generation } = a.kind
                && zone == n
            {
                if a.ack <= moment {
                    generations.clear();
                }
                generations.push(generation);
            }
        }
        let mut why = String::new();
        for &generation in &generations {
            let base = generation == z.base_generation;
            let (mut least, mut most) = if base { (z.base, z.base) } else { (0, 0) };
            let (mut must_full, mut may_full) = (base && z.base_full, base && z.base_full);
            for a in self.asked.iter().filter(|a| a.start <= moment) {
                match a.kind {
                    Kind::Write { zone, generation: of, at, len, fua, .. }
                        if (zone, of) == (n, generation) =>
                    {
                        most = most.max(at + len);
                        if durable(a, fua) {
                            least = least.max(at + len);
                        }
                    }
                    Kind::Finish { zone, generation: of, wp } if (zone, of) == (n, generation) => {
                        may_full = true;
                        if a.ack <= moment {
                            must_full = true;
                            least = least.max(wp);
                        }
                    }
                    _ => {}
                }
            }
            let none = Vec::new();
            let numbers = self.numbers.get(&(n, generation)).unwrap_or(&none);
            // How much of what was written is there.
            let full = info.cond == Condition::Full;
            let wp = match full {
                true => {
                    let zeroes = sectors.iter().rev().take_while(|s| **s == 0).count();
                    ((sectors.len() - zeroes) as u32).max(least).min(capacity)
                }
                false => (info.wp.0 - info.start.0) as u32,
            };
            let said = match info.cond {
                Condition::Empty => wp == 0 && !must_full && least == 0,
                Condition::Closed => wp > 0 && wp < capacity && !must_full,
                Condition::Full => may_full || most == capacity,
                _ => false,
            };
            let data = wp as usize <= numbers.len()
                && sectors[..wp as usize] == numbers[..wp as usize]
                && sectors[wp as usize..].iter().all(|s| *s == 0);
            if said && data && wp >= least && wp <= most {
                let wp = if full && most == capacity && !may_full { capacity } else { wp };
                return Ok(KnownZone {
                    generation,
                    wp,
                    base: wp,
                    full,
                    base_full: full,
                    base_generation: generation,
                    busy: false,
                });
            }
            let _ = write!(
                why,
                "generation {generation}: {} with {wp} sectors, {least} to {most} expected, full {must_full} {may_full}, data {data}; ",
                info.cond
            );
        }
        Err(format!("zone {n}: {why}"))
    }
}
