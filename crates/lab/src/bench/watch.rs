//! A socket on which a running bench answers, so that `zoneplug top` can watch it.

use crate::failure::{Failure, Kind};
use crate::load::notes::Noted;
use crate::server_client::{
    AttributeShown, LatencyShown, Measured, OperationShown, Request, Shown,
};
use serde_json::Value;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use zoneplug_control::names::name_of;
use zoneplug_control::{Access, Answers, Pause, Socket, zone_table};
use zoneplug_core::Sector;
use zoneplug_core::disk::Disk;
use zoneplug_models::work::Rw;

/// The disk of a bench.
pub(super) struct Watched {
    spec: String,
    disk: Disk,
    rw: Rw,
    clients: Vec<Arc<Noted>>,
}

/// Answers on a socket at `path` until the returned value is dropped.
pub(super) fn watch(
    path: &Path,
    spec: &str,
    disk: Disk,
    rw: Rw,
    clients: Vec<Arc<Noted>>,
) -> Result<Socket<Watched>, Failure> {
    Socket::open(
        Some(path),
        Access::default(),
        Watched { spec: spec.to_owned(), disk, rw, clients },
    )
}

impl Watched {
    fn name() -> String {
        format!("bench{}", std::process::id())
    }

    fn shown(&self) -> Shown {
        let (g, k) = (self.disk.geometry(), self.disk.counters());
        let sum = |of: fn(&Noted) -> &AtomicU64| -> u64 {
            self.clients.iter().map(|n| of(n).load(Ordering::Relaxed)).sum()
        };
        let (bios, bytes, failed) = (sum(|n| &n.bios), sum(|n| &n.bytes), sum(|n| &n.failed));
        let done = bios.saturating_sub(failed);
        let mut all = LatencyShown::default();
        for c in &self.clients {
            all.add(&zoneplug_core::poison::lock(&c.latency));
        }
        let op = match self.rw {
            Rw::Read | Rw::Randread => "read",
            Rw::Append => "zone_append",
            Rw::Write | Rw::Randwrite => "write",
        };
        let reads = self.rw.is_read();
        let of = |mine: bool, n: u64| if mine { n } else { 0 };
        Shown {
            name: Self::name(),
            spec: self.spec.clone(),
            capacity_bytes: g.capacity_bytes().0,
            zones: g.nr_zones(),
            zone_bytes: Sector(u64::from(g.zone_sectors())).to_bytes().0,
            pid: std::process::id(),
            reads: of(reads, done),
            read_bytes: of(reads, bytes),
            writes: of(!reads, done),
            written_bytes: of(!reads, bytes),
            errors: failed,
            waiting: k.waiting,
            live_plugs: k.live_plugs,
            enabled: true,
            measured: Measured {
                version: env!("CARGO_PKG_VERSION").to_owned(),
                operations: vec![OperationShown {
                    op: op.to_owned(),
                    count: done,
                    bytes,
                    errors: failed,
                    latency: Some(all),
                }],
                issued: k.plugs.issued,
                parked: k.plugs.parked,
                merged: k.plugs.merged,
                aborted: k.plugs.aborted,
                timeouts: k.timeouts,
                late: k.late,
                ..Measured::default()
            },
            ..Shown::default()
        }
    }

    fn known(&self, disk: &str) -> Result<&Disk, Failure> {
        let name = Self::name();
        if name_of(disk) == name {
            return Ok(&self.disk);
        }
        Err(Failure::new(Kind::Device, format!("{disk} is not here"))
            .hint(format!("it has {name}")))
    }
}

impl Answers for Watched {
    fn answer(&self, request: &Request, _: &mut Option<Pause>) -> Result<Value, Failure> {
        match request {
            Request::Status {} => Ok(serde_json::to_value([self.shown()])?),
            Request::Attributes { disk } => {
                let all = self.known(disk)?.attributes();
                let all: Vec<AttributeShown> = all.iter().map(AttributeShown::of).collect();
                Ok(serde_json::to_value(all)?)
            }
            Request::ZoneWplugs { disk } => {
                let mut text = String::new();
                // Writing to a string does not fail.
                let _ = self.known(disk)?.zone_wplugs(&mut text);
                Ok(Value::String(text))
            }
            Request::Zones { disk, first, count, cells } => {
                Ok(serde_json::to_value(zone_table(self.known(disk)?, *first, *count, *cells))?)
            }
            _ => Err(Failure::new(Kind::NotSupported, "a bench is only watched")
                .hint("zoneplug serve has disks that can be changed")),
        }
    }
}
