//! What a server answers: one line of JSON for one line of JSON, whatever is in it. Reads no socket, and knows nothing
//! of time.

use super::end::flush;
use super::handover::HandOver;
use super::measure::measure;
use super::pause::{self, Pause};
pub(crate) use super::served::{Network, Served};
use super::zone_table::zone_table;
use crate::failure::{Failure, Kind};
use crate::plain::plain;
pub(crate) use crate::server_client::HostShown;
use crate::server_client::{
    self, Answer, AttributeShown, Request, Shown, StateOfDisk, StateShown, Wrong,
};
use serde_json::{Value, json};
use zoneplug_core::{Error, Sector};
use zoneplug_host::{DiskMark, STATE_VERSION};

/// What a server answers from.
pub(crate) struct Serving {
    pub(crate) disks: Vec<Served>,
    pub(crate) hand_over: HandOver,
}

impl Served {
    /// What it is, and what it has done.
    pub(super) fn shown(&self) -> Shown {
        let (g, c, k) =
            (self.disk.disk().geometry(), (self.counters)(), self.disk.disk().counters());
        Shown {
            name: self.name.clone(),
            spec: self.spec.clone(),
            capacity_bytes: g.capacity_bytes().0,
            zones: g.nr_zones(),
            zone_bytes: Sector(u64::from(g.zone_sectors())).to_bytes().0,
            pid: std::process::id(),
            recovered: self.recovered,
            reads: c.reads,
            read_bytes: c.read_bytes,
            writes: c.writes,
            written_bytes: c.written_bytes,
            others: c.others,
            errors: c.errors,
            replayed: c.replayed,
            waiting: k.waiting,
            live_plugs: k.live_plugs,
            held: k.window.writes,
            held_total: k.window.held,
            held_expired: k.window.expired,
            address: self.network.as_ref().map(|n| n.address.clone()),
            nqn: self.network.as_ref().map(|n| n.nqn.clone()),
            hosts: self.network.as_ref().map(|n| (n.hosts)()),
            failed_authentications: self
                .network
                .as_ref()
                .map_or(0, |n| (n.failed_authentications)()),
            paths: self.network.as_ref().map_or_else(Vec::new, |n| n.attributes.paths()),
            enabled: self.network.as_ref().is_none_or(|n| n.attributes.is_enabled()),
            measured: measure(self, &c),
        }
    }
}

impl Serving {
    fn state(&self) -> StateShown {
        let of = |d: &Served| {
            let DiskMark { disks, layers, place } = DiskMark::held(&d.disk, &d.spec);
            StateOfDisk {
                name: d.name.clone(),
                spec: d.spec.clone(),
                disks,
                layers,
                place,
                outlives: d.outlives,
                address: d.network.as_ref().map(|n| n.address.clone()),
            }
        };
        StateShown {
            state: STATE_VERSION,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            disks: self.disks.iter().map(of).collect(),
        }
    }

    /// Has the server leave its disks to another one.
    fn hand_over(&self) -> Result<Value, Failure> {
        if let Some(d) = self.disks.iter().find(|d| !d.outlives) {
            let what = format!("{} goes with its server: {}", d.name, plain(&d.spec));
            return Err(Failure::new(Kind::Device, what)
                .hint("disks in files, and no --no-recovery; or end that server first"));
        }
        // What a flush cannot make durable is this server's to tell: its clients have written it here.
        for d in &self.disks {
            flush(&d.disk).map_err(|f| {
                let what = format!("{} cannot make its disk durable: {}", d.name, f.parts().1);
                Failure::new(Kind::Io, what).hint(
                    "the server goes on; its clients are told at their next flush; mend the device below, then end it",
                )
            })?;
        }
        self.hand_over.ask();
        Ok(json!({}))
    }
}

/// The line that answers a failure.
pub(crate) fn refusal(f: &Failure) -> Vec<u8> {
    let (kind, what, hint) = f.parts();
    let (what, hint) = (what.to_owned(), hint.to_owned());
    line(&Answer::Error(Wrong { code: kind as u8, what, hint }))
}

/// A line without its end, which is added.
fn line(answer: &Answer) -> Vec<u8> {
    // A value of JSON, numbers and texts: it does not fail.
    let mut text = serde_json::to_vec(answer).unwrap_or_default();
    text.push(b'\n');
    text
}

/// What answers the questions of clients.
pub(crate) trait Answers: Send + Sync + 'static {
    /// `pause`: what the connection has paused.
    fn answer(&self, request: &Request, pause: &mut Option<Pause>) -> Result<Value, Failure>;
}

impl Answers for Serving {
    fn answer(&self, request: &Request, pause: &mut Option<Pause>) -> Result<Value, Failure> {
        answer(request, self, pause)
    }
}

/// The line that answers a line. `pause`: what the connection has paused.
pub(super) fn respond(
    question: &[u8],
    serving: &impl Answers,
    pause: &mut Option<Pause>,
) -> Vec<u8> {
    let request = serde_json::from_slice(question).map_err(|e| {
        Failure::usage(format!("not a question: {e}")).hint(r#"a line such as {"cmd":"status"}"#)
    });
    match request.and_then(|r| serving.answer(&r, pause)) {
        Ok(value) => line(&Answer::Ok(value)),
        Err(f) => refusal(&f),
    }
}

fn named<'a>(disks: &'a [Served], disk: &str) -> Result<&'a Served, Failure> {
    disks.iter().find(|d| d.name == server_client::name_of(disk)).ok_or_else(|| {
        let all: Vec<&str> = disks.iter().map(|d| &*d.name).collect();
        Failure::new(Kind::Device, format!("{disk} is not served here"))
            .hint(format!("served: {}", all.join(", ")))
    })
}

/// Answers one question.
fn answer(
    request: &Request,
    serving: &Serving,
    pause: &mut Option<Pause>,
) -> Result<Value, Failure> {
    let disks = &serving.disks[..];
    match request {
        Request::Status {} => {
            let all: Vec<Shown> = disks.iter().map(Served::shown).collect();
            Ok(serde_json::to_value(all)?)
        }
        Request::Attributes { disk } => {
            let disk = named(disks, disk)?;
            let all = disk.disk.disk().attributes();
            let mut all: Vec<AttributeShown> = all.iter().map(AttributeShown::of).collect();
            all.extend(disk.network.iter().flat_map(|n| n.attributes.shown()));
            Ok(serde_json::to_value(all)?)
        }
        Request::Set { disk, name, value } => {
            let disk = named(disks, disk)?;
            if let Some(was) = disk.network.as_ref().and_then(|n| n.attributes.set(name, value)) {
                return Ok(json!({"was": was?}));
            }
            let hosted = &disk.disk;
            let was = hosted.disk().attribute(name).unwrap_or_default();
            hosted.set_attribute(name, value).map_err(|e: Error| Failure::from(e))?;
            Ok(json!({"was": was}))
        }
        Request::ZoneWplugs { disk } => {
            let mut text = String::new();
            // Writing to a string does not fail.
            let _ = named(disks, disk)?.disk.disk().zone_wplugs(&mut text);
            Ok(Value::String(text))
        }
        Request::Zones { disk, first, count, cells } => {
            let disk = named(disks, disk)?.disk.disk();
            Ok(serde_json::to_value(zone_table(disk, *first, *count, *cells))?)
        }
        Request::Pause { disk, most_ms } => {
            // One at a time: the last one ends first.
            *pause = None;
            let most = std::time::Duration::from_millis(*most_ms);
            *pause = Some(Pause::begin(&named(disks, disk)?.disk, most)?);
            Ok(json!({}))
        }
        Request::Resume {} => {
            let paused = pause.take().ok_or_else(pause::no_pause)?.end();
            Ok(json!({"pause_ns": paused.as_nanos() as u64}))
        }
        Request::State {} => Ok(serde_json::to_value(serving.state())?),
        Request::HandOver {} => serving.hand_over(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zoneplug_host::{HostedDisk, ServedCounters};

    /// U11. A server hands over nothing that it cannot make durable, and goes on with it.
    #[test]
    fn u11_a_server_whose_disk_cannot_be_flushed_stays() {
        let spec = "mem,zones=4,zone-size=1M,fault=flush/io";
        let served = Served {
            name: "ublkb0".to_owned(),
            spec: spec.to_owned(),
            disk: HostedDisk::open_spec(spec).unwrap(),
            recovered: false,
            outlives: true,
            counters: Box::new(ServedCounters::default),
            network: None,
        };
        let serving = Serving { disks: vec![served], hand_over: HandOver::new(|| ()) };
        let e = serving.hand_over().unwrap_err().to_string();
        assert!(e.contains("ublkb0 cannot make its disk durable"), "{e}");
        assert!(!serving.hand_over.is_asked());
        assert!(serving.hand_over().is_ok(), "the next flush succeeds");
        assert!(serving.hand_over.is_asked());
    }
}
