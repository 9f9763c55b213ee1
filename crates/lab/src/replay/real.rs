//! `zoneplug-lab replay --real-time`: opens the disks, prepares their zones for the trace, and asks before data is
//! destroyed.
//!
//! A replay writes zeroes, and changes only zones that the trace changes. If the trace begins inside an empty zone,
//! the zone is filled with zeroes up to there.

use super::Args;
use crate::disk::{Named, forced};
use crate::failure::Failure;
use crate::interrupt::{self, is_asked};
use crate::zones::{count, has_wp, holds_data, numbers, written};
use std::time::Instant;
use zoneplug_buf::AlignedBuf;
use zoneplug_core::disk::DiskConfig;
use zoneplug_core::zone::ZoneInfo;
use zoneplug_core::{Sector, ZoneNo};
use zoneplug_host::{BlockingDisk, HostedDisk, Specification};
use zoneplug_models::replay::{Map, RealDisk, Replay, Row, Trace};
use zoneplug_models::time::Pace;
use zoneplug_models::{Way, Workers};

/// Default number of commands at a disk, as with SATA.
const TAGS: u32 = 32;

/// The disks of a replay in real time.
pub(super) struct Disks {
    disks: Vec<RealDisk>,
    configs: Vec<DiskConfig>,
    /// The changes that the user has agreed to.
    plans: Vec<Plan>,
}

/// The required state of a zone when the trace begins.
struct RequiredZone {
    no: ZoneNo,
    /// The sector in the zone at which the trace begins to write. `None`: the trace empties the zone first.
    from: Option<u64>,
}

/// The zones of a disk that a trace changes.
struct Plan {
    zones: Vec<RequiredZone>,
    /// Whether all of these zones are emptied before the first row too.
    empties: bool,
}

impl Disks {
    /// Opens the disks that the flags name.
    pub(super) fn open(args: &Args) -> Result<Disks, Failure> {
        args.ways.check_real_time()?;
        let mut all = Disks { disks: Vec::new(), configs: Vec::new(), plans: Vec::new() };
        for spec in &args.disks {
            let (disk, config) = open(spec.parse()?, args)?;
            all.disks.push(disk);
            all.configs.push(config);
        }
        Ok(all)
    }

    /// The ways to open each disk.
    pub(super) fn ways(&self, args: &Args) -> Result<Vec<Vec<Way>>, Failure> {
        self.configs.iter().map(|c| args.ways.of(c, &args.mode)).collect()
    }

    /// Whether each disk rotates.
    pub(super) fn rotational(&self) -> Vec<bool> {
        self.disks.iter().map(|d| d.device.limits().rotational).collect()
    }

    /// Examines the trace for these disks.
    pub(super) fn prepare<'a>(
        &self,
        trace: &'a Trace<'a>,
        workers: &Workers<'_>,
    ) -> Result<Replay<'a>, zoneplug_core::Error> {
        Replay::in_real_time(trace, &self.disks, workers)
    }

    /// Refuses zones in another state than the trace expects, and asks whether data may be destroyed. Changes
    /// nothing.
    pub(super) fn agree(
        &mut self,
        args: &Args,
        replay: &Replay<'_>,
        ways: &[Vec<Way>],
    ) -> Result<(), Failure> {
        for (i, disk) in self.disks.iter().enumerate() {
            let plan = Plan::of(args, replay, i);
            plan.agree(args, replay, disk, i, ways[i].len())?;
            self.plans.push(plan);
        }
        Ok(())
    }

    /// Sends the trace to each disk in each way, one after the other. Called after the user has agreed.
    pub(super) fn rows(
        mut self,
        args: &Args,
        replay: &Replay<'_>,
        ways: &[Vec<Way>],
        pace: Pace,
        workers: &Workers<'_>,
    ) -> Result<Vec<Row>, Failure> {
        let mut rows = Vec::new();
        for (i, ways) in ways.iter().enumerate() {
            for (nth, way) in ways.iter().enumerate() {
                if is_asked() {
                    return Ok(rows);
                }
                // A new disk in memory has no data of the row before.
                let spec = &self.disks[i].spec;
                if nth > 0 && spec.is_volatile() && spec.files().next().is_none() {
                    self.disks[i] = open(spec.clone(), args)?.0;
                }
                let disk = &self.disks[i];
                self.plans[i].prepare(disk, nth == 0)?;
                rows.push(replay.row_in_real_time(i, disk, way, args.map, pace, workers)?);
            }
        }
        Ok(rows)
    }
}

fn open(spec: Specification, args: &Args) -> Result<(RealDisk, DiskConfig), Failure> {
    let opened = Instant::now();
    let named = Named::of(&forced(spec.clone(), args.consent)?)?;
    let tags = args.iodepth.unwrap_or(TAGS).clamp(TAGS, 4096) as u16;
    let tags = named.tags.unwrap_or(tags);
    let disk = RealDisk { spec, device: named.device, tags, opened };
    Ok((disk, named.config))
}

/// A client that reads and empties zones of a disk.
fn client(disk: &RealDisk) -> Result<BlockingDisk, Failure> {
    let hosted = HostedDisk::open(disk.device.clone(), DiskConfig::default())?;
    Ok(BlockingDisk::new(&hosted)?)
}

impl Plan {
    /// The plan for the disk with this number.
    fn of(args: &Args, replay: &Replay<'_>, disk: usize) -> Plan {
        let fit = &replay.fits[disk];
        let log = replay.map_of(disk, args.map) == Map::Log;
        let begin = if log { Vec::new() } else { fit.begin() };
        let zones = fit.changes().map_or(Vec::new(), |c| c.zones(log));
        let zone = |no: ZoneNo| {
            let is_emptied = fit.changes().is_some_and(|c| c.is_emptied(no));
            let at = begin.binary_search_by_key(&no, |b| b.0).map_or(0, |i| begin[i].1);
            RequiredZone { no, from: (log || !is_emptied).then_some(u64::from(at)) }
        };
        Plan { zones: zones.into_iter().map(zone).collect(), empties: log || args.reset }
    }

    /// Reports the zones.
    fn report(&self, io: &mut BlockingDisk) -> Result<Vec<ZoneInfo>, Failure> {
        let (Some(first), Some(last)) = (self.zones.first(), self.zones.last()) else {
            return Ok(Vec::new());
        };
        let start = io.geometry().zone_start(first.no);
        let all = io.report(start, last.no.0 - first.no.0 + 1)?;
        let of = |z: &RequiredZone| all.get((z.no.0 - first.no.0) as usize).copied();
        let these: Vec<_> = self.zones.iter().filter_map(of).collect();
        if these.len() != self.zones.len() {
            return Err(Failure::io("the disk reports fewer zones than it has")
                .hint("zoneplug check, or look at the device"));
        }
        Ok(these)
    }

    /// Refuses zones in another state than the trace expects, and asks whether data may be destroyed.
    fn agree(
        &self,
        args: &Args,
        replay: &Replay<'_>,
        disk: &RealDisk,
        number: usize,
        rows: usize,
    ) -> Result<(), Failure> {
        let mut io = client(disk)?;
        let mut infos = self.report(&mut io)?;
        if !self.empties {
            let pairs = self.zones.iter().zip(&infos);
            let keeps: Vec<_> = pairs.filter(|(z, info)| is_in_use(z, info)).collect();
            let odd: Vec<_> =
                keeps.iter().filter(|(z, info)| Some(written(info)) != z.from).collect();
            if let Some((z, info)) = odd.first() {
                let (are, it) = if odd.len() == 1 { ("is", "it") } else { ("are", "them") };
                return Err(Failure::usage(format!(
                    "{} of {} {are} not as the trace had {it}: zone {} is written up to sector {}, and the trace begins at {}",
                    count(odd.len(), "zone"),
                    disk.spec,
                    z.no.0,
                    written(info),
                    z.from.unwrap_or(0)
                ))
                .hint("--reset, which empties the zones that the trace writes; or --map log"));
            }
            if let (Some((z, _)), true) = (keeps.first(), rows > 1) {
                return Err(Failure::usage(format!(
                    "more than one row, and the trace goes on behind the data of zone {}",
                    z.no.0
                ))
                .hint("--reset, which replaces these data by zeroes; or one row"));
            }
        }
        if replay.fits[number].changes().is_some_and(|c| c.resets_all()) {
            infos = io.report(Sector(0), io.geometry().nr_zones())?;
        }
        // A conventional zone does not tell whether it holds data, so on a lasting disk it counts as holding some.
        let lasts = !disk.spec.is_volatile();
        let g = io.geometry();
        let lost = infos.iter().filter(|z| {
            let no = g.zone_of(z.start).0;
            let is_written = || self.zones.binary_search_by_key(&no, |z| z.no).is_ok();
            holds_data(z) || lasts && g.is_conventional(no) && is_written()
        });
        let lost: Vec<u32> = lost.map(|z| g.zone_of(z.start).0.0).collect();
        if lost.is_empty() {
            return Ok(());
        }
        let what = format!(
            "destroys or overwrites data of {} of {} ({})",
            count(lost.len(), "zone"),
            disk.spec,
            numbers(&lost)
        );
        // Asks even for one zone, as bench does.
        args.consent.ask(&what, lost.len().max(2))
    }

    /// Brings the zones into the required state. `first`: before the first row.
    fn prepare(&self, disk: &RealDisk, first: bool) -> Result<(), Failure> {
        let mut io = client(disk)?;
        let infos = self.report(&mut io)?;
        for (zone, info) in self.zones.iter().zip(&infos) {
            if is_asked() {
                return Err(interrupt::failure("nothing was replayed yet; zones were emptied"));
            }
            if io.geometry().is_conventional(zone.no) {
                continue;
            }
            let mut has = written(info);
            let empties = self.empties || !first;
            if empties && (has > 0 || !has_wp(info)) {
                io.reset(info.start, u64::from(io.geometry().zone_len_sectors(zone.no)))?;
                has = 0;
            }
            if has == 0 {
                fill(&mut io, info.start, zone.from.unwrap_or(0))?;
            }
        }
        Ok(())
    }
}

/// Whether a zone holds data that the trace does not empty first.
fn is_in_use(zone: &RequiredZone, info: &ZoneInfo) -> bool {
    zone.from.is_some() && holds_data(info)
}

/// Writes `sectors` of zeroes to an empty zone.
fn fill(io: &mut BlockingDisk, start: Sector, sectors: u64) -> Result<(), Failure> {
    const MOST: u64 = (1 << 20) >> 9;
    let mut at = 0;
    let mut buf = AlignedBuf::zeroed(0);
    while at < sectors {
        let n = (sectors - at).min(MOST);
        if u64::from(buf.len()) != n << 9 {
            buf = AlignedBuf::zeroed((n << 9) as u32);
        }
        buf = io.write(start.plus(at), buf)?;
        at += n;
    }
    Ok(())
}
