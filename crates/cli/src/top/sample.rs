//! Takes samples: asks servers at their sockets, or reads the file of a disk.

use super::model::{DiskSample, Sample, Want, ZonesSample};
use crate::failure::Failure;
use crate::server_client::zones::{ZoneShown, ZonesShown};
use crate::server_client::{self, Asked, Measured, Request, Server, Shown};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use zoneplug_control::names::name_of;
use zoneplug_core::zone::{Condition, ZoneInfo};
use zoneplug_core::{Sector, ZoneNo};
use zoneplug_host::{BlockingDisk, HostedDisk, Specification};

/// How long a server may take to answer a question.
const PATIENCE: Duration = Duration::from_secs(3);
/// Zones of a file that are read at a time.
const AT_ONCE: u32 = 4096;

/// The source of samples.
#[derive(Debug, Clone)]
pub(crate) enum Source {
    /// The server at a socket, or all servers; one of their disks, or all.
    Servers { socket: Option<PathBuf>, disk: Option<String> },
    /// A disk that is opened read-only for each sample.
    Disk { spec: Specification },
}

/// Takes samples.
pub(crate) struct Sampler {
    source: Source,
    start: Instant,
}

impl Sampler {
    pub(crate) fn new(source: Source) -> Sampler {
        Sampler { source, start: Instant::now() }
    }

    /// Takes a sample, which includes errors.
    pub(crate) fn take(&self, want: &Want) -> Sample {
        let mut sample = match &self.source {
            Source::Servers { .. } => self.of_servers(want),
            Source::Disk { spec } => of_disk(spec, want)
                .unwrap_or_else(|f| Sample { trouble: Some(f), ..Sample::default() }),
        };
        sample.at = self.start.elapsed();
        sample
    }

    fn of_servers(&self, want: &Want) -> Sample {
        let Source::Servers { socket, disk } = &self.source else { return Sample::default() };
        let Asked { answered, silent } = server_client::disks_of_all(socket.as_deref(), PATIENCE);
        let trouble = silent.into_iter().next().map(|s| s.failure);
        let mut sample = Sample { trouble, ..Sample::default() };
        for (server, disks) in answered {
            let mut server = server.with_patience(PATIENCE);
            let wanted = |d: &Shown| disk.as_ref().is_none_or(|name| d.name == name_of(name));
            for shown in disks.into_iter().filter(wanted) {
                // The key has no process or socket, because a restarted server has new ones.
                let key =
                    format!("{} {}", shown.name, shown.address.as_deref().unwrap_or_default());
                // The first disk is selected if the user has not chosen one.
                let is_wanted = want.key.as_ref().map_or(sample.zones.is_none(), |k| *k == key);
                if is_wanted {
                    sample.zones = Some(zones(&mut server, &shown, key.clone(), want));
                }
                sample.disks.push(DiskSample { key, shown, counts: true });
            }
        }
        sample
    }
}

fn zones(server: &mut Server, shown: &Shown, key: String, want: &Want) -> ZonesSample {
    let mut ask = |first: u32, count: Option<u32>, cells: u32| -> Result<ZonesShown, String> {
        let (disk, cells) = (shown.name.clone(), Some(cells));
        let answer = server.ask(&Request::Zones { disk, first, count, cells });
        let answer = answer.map_err(|f| match f.parts().what.contains("unknown variant") {
            true => "its server is of a version that does not show zones".to_owned(),
            false => f.parts().what.to_owned(),
        })?;
        serde_json::from_value(answer).map_err(|e| e.to_string())
    };
    let count = Some(want.zones.len() as u32).filter(|n| *n > 0);
    let table = ask(want.zones.start, count, want.cells);
    let one = want.zone.filter(|_| table.is_ok());
    let zone = one.and_then(|z| Some((z, ask(z, Some(1), 1).ok()?.cells().next()?)));
    ZonesSample { key, table, zone }
}

fn of_disk(spec: &Specification, want: &Want) -> Result<Sample, Failure> {
    let named = spec.open_to_look()?;
    let disk = HostedDisk::open(named.device, named.config)?;
    let mut io = BlockingDisk::new(&disk)?;
    let g = disk.disk().geometry();
    let all = g.nr_zones();
    let range = if want.zones.is_empty() { 0..all } else { want.zones.clone() };
    let mut table = ZonesShown::new(range.start, range.len() as u32, want.cells);
    let (mut conditions, mut zone) = (BTreeMap::<String, u64>::new(), None);
    let mut next = 0;
    while next < all {
        let found = io.report(g.zone_start(ZoneNo(next)), AT_ONCE.min(all - next))?;
        if found.is_empty() {
            break;
        }
        for info in &found {
            *conditions.entry(key_of(info.cond).to_owned()).or_default() += 1;
            if range.contains(&next) {
                table.push(cell(info));
            }
            if want.zone == Some(next) {
                zone = Some((next, cell(info)));
            }
            next += 1;
        }
    }
    let shown = Shown {
        name: spec.rsplit('/').next().unwrap_or(spec).to_owned(),
        spec: spec.to_string(),
        capacity_bytes: g.capacity_bytes().0,
        zones: all,
        zone_bytes: Sector(u64::from(g.zone_sectors())).to_bytes().0,
        measured: Measured { conditions, ..Measured::default() },
        ..Shown::default()
    };
    let key = spec.to_string();
    Ok(Sample {
        zones: Some(ZonesSample { key: key.clone(), table: Ok(table), zone }),
        disks: vec![DiskSample { key, shown, counts: false }],
        ..Sample::default()
    })
}

/// The key of a condition among the counts of a server. Zones that are open have one, however they were opened.
pub(crate) fn key_of(condition: Condition) -> &'static str {
    match condition {
        Condition::NotWp => "conventional",
        Condition::Empty => "empty",
        Condition::ImpOpen | Condition::ExpOpen => "open",
        Condition::Closed => "closed",
        Condition::Active => "active",
        Condition::Full => "full",
        Condition::ReadOnly => "read_only",
        Condition::Offline => "offline",
    }
}

fn cell(z: &ZoneInfo) -> ZoneShown {
    ZoneShown {
        condition: Some(z.cond),
        written_sectors: crate::zones::written(z),
        capacity_sectors: z.capacity_sectors,
        waiting: 0,
        in_flight: 0,
    }
}
