//! Clients as text: what a row of the published tables runs on a model or on this machine, and its
//! name in a table. Runs nothing.

use crate::time::{Client, HostTimes, RandomReader, Workload};
use crate::work::{Rw, Work};
use zoneplug_core::form::Form;
use zoneplug_core::{Error, Nanos};
use zoneplug_devices::spec::Spec;

/// A client in virtual time: `fio,jobs=16,depth=32,bs=1M,zones=8`.
///
/// | kind | options |
/// | --- | --- |
/// | `seq` | `bs`, `depth`: one job, zone after zone |
/// | `fio` | `jobs`, `depth`, `bs`, `zones`: fio's zoned mode, random |
/// | `full` | `outstanding`, `bs`, `zones`: a full queue, no locks |
/// | `append` | the same with zone append |
///
/// All kinds take `reads`, `read-bs`: random reads beside the client; `warm-up`, `length`: other
/// times than the table's; `drives`: the number of the table's drives that are joined; `disks`: the
/// number of disks, each opened separately and with its own client.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Modelled {
    /// The workload.
    pub workload: Workload,
    /// Outstanding reads, and their length in bytes.
    pub reads: Option<(u32, u32)>,
    /// How many of the table's drives are joined.
    pub drives: u32,
    /// How many disks are opened, each with its own client.
    pub disks: u32,
    /// Virtual time before measuring starts, if not the table's.
    pub warm_up: Option<Nanos>,
    /// Virtual time that is measured, if not the table's.
    pub length: Option<Nanos>,
}

/// The range of counts that are at least 1.
const COUNT: Form = Form::Number { min: 1, max: u32::MAX as u64, unit: "" };

/// The range of counts that may be 0.
const ANY: Form = Form::Number { min: 0, max: u32::MAX as u64, unit: "" };

/// The page that errors of a client refer to.
const PAGE: &str = "docs/models.md";

fn number(spec: &mut Spec, key: &'static str) -> Result<u32, Error> {
    let n = spec.take_as(key, &COUNT)?.map(|v| v.number() as u32);
    n.ok_or_else(|| {
        Error::invalid(format!("a client {} without {key}", spec.kind()))
            .hint(format!("{key}=1 or more"))
    })
}

fn size(spec: &mut Spec, key: &'static str) -> Result<u32, Error> {
    let sectors = spec.take_as(key, &Form::Size { min: 1, max: 32 << 10 })?;
    sectors.map(|n| (n.number() as u32) << 9).ok_or_else(|| {
        Error::invalid(format!("a client {} without {key}", spec.kind()))
            .hint(format!("{key}=1M: up to 16M"))
    })
}

impl Modelled {
    /// Parses the text.
    pub fn parse(text: &str) -> Result<Modelled, Error> {
        let mut spec = Spec::parse(text)?.explained_by(PAGE);
        let s = &mut spec;
        let workload = match s.kind() {
            "seq" => Workload::Sequential { bs: size(s, "bs")?, depth: number(s, "depth")? },
            "fio" => Workload::Random {
                jobs: number(s, "jobs")?,
                depth: number(s, "depth")?,
                bs: size(s, "bs")?,
                zones: number(s, "zones")?,
            },
            "full" => Workload::FullQueue {
                outstanding: number(s, "outstanding")?,
                bs: size(s, "bs")?,
                zones: number(s, "zones")?,
            },
            "append" => Workload::Append {
                outstanding: number(s, "outstanding")?,
                bs: size(s, "bs")?,
                zones: number(s, "zones")?,
            },
            _ => return Err(s.unknown_kind(&["seq", "fio", "full", "append"])),
        };
        let reads = match s.take_as("reads", &ANY)? {
            Some(n) => Some((n.number() as u32, size(s, "read-bs")?)),
            None => None,
        };
        let drives = s.take_as("drives", &ANY)?.map_or(1, |v| v.number() as u32).max(1);
        let disks = s.take_as("disks", &ANY)?.map_or(1, |v| v.number() as u32).max(1);
        let mut time = |key| -> Result<Option<Nanos>, Error> {
            let form = Form::Time { min: 0, max: u64::MAX };
            Ok(s.take_as(key, &form)?.map(|v| Nanos(v.number())))
        };
        let (warm_up, length) = (time("warm-up")?, time("length")?);
        spec.finish()?;
        Ok(Modelled { workload, reads, drives, disks, warm_up, length })
    }

    /// Whether the client uses its seed.
    pub fn draws(&self) -> bool {
        self.reads.is_some() || !matches!(self.workload, Workload::Sequential { .. })
    }

    /// The reader beside the client, if it has one.
    pub fn reader(&self, times: &HostTimes, seed: u64) -> Option<Box<dyn Client>> {
        let (depth, bs) = self.reads?;
        let mut reader = RandomReader::new(depth, bs, seed);
        reader.reap = times.reap;
        Some(Box::new(reader))
    }

    /// Its name in a table.
    pub fn name(&self) -> String {
        let mut text = match self.workload {
            Workload::Sequential { bs, depth } => format!("sequential 1x{depth} {}", length(bs)),
            Workload::Random { jobs, depth, bs, zones } => {
                format!("fio {jobs}x{depth} {}, {}", length(bs), count(zones))
            }
            Workload::FullQueue { outstanding, bs, zones } => {
                format!("full queue {outstanding} {}, {}", length(bs), count(zones))
            }
            Workload::Append { outstanding, bs, zones } => {
                format!("append {outstanding} {}, {}", length(bs), count(zones))
            }
        };
        if self.disks > 1 {
            text += &format!(", {} disks", self.disks);
        }
        if self.drives > 1 {
            text += &format!(", {} drives", self.drives);
        }
        if let Some((n, bs)) = self.reads {
            text += &format!("; {n} reads {}", length(bs));
        }
        text
    }
}

/// Parses a client on this machine: `write,bs=4K,depth=16`, with `jobs` if there is more than one.
pub fn measured(text: &str) -> Result<(Work, u32), Error> {
    let mut spec = Spec::parse(text)?.explained_by(PAGE);
    let all = [Rw::Write, Rw::Randwrite, Rw::Append, Rw::Read, Rw::Randread];
    let Some(rw) = all.into_iter().find(|rw| rw.to_string() == spec.kind()) else {
        return Err(spec.unknown_kind(&["write", "randwrite", "append", "read", "randread"]));
    };
    let block_sectors = size(&mut spec, "bs")? >> 9;
    let depth = number(&mut spec, "depth")?;
    let jobs = spec.take_as("jobs", &ANY)?.map_or(1, |v| v.number() as u32).max(1);
    spec.finish()?;
    Ok((Work { rw, block_sectors, depth, tags: depth.min(4096) as u16 }, jobs))
}

/// The name of a client on this machine in a table.
pub fn measured_name(work: Work, jobs: u32) -> String {
    format!("{} {jobs}x{} {}", work.rw, work.depth, length(work.block_sectors << 9))
}

/// A length with its unit.
pub fn length(bytes: u32) -> String {
    match bytes {
        b if b >= 1 << 20 && b.is_multiple_of(1 << 20) => format!("{}M", b >> 20),
        b => format!("{}K", b >> 10),
    }
}

fn count(zones: u32) -> String {
    if zones == 1 { "1 zone".to_owned() } else { format!("{zones} zones") }
}

#[cfg(test)]
mod tests {
    use super::super::published::{Expect, How, tables};
    use super::*;

    #[test]
    fn every_client_of_the_published_tables_is_one() {
        for t in tables().unwrap() {
            for cell in t.rows.iter().flat_map(|r| &r.cells) {
                if matches!(cell.expect, Expect::Not(_)) {
                    continue;
                }
                match t.how {
                    How::Model => drop(Modelled::parse(cell.client).unwrap()),
                    How::Measure => drop(measured(cell.client).unwrap()),
                }
            }
        }
    }

    #[test]
    fn a_client_says_what_it_is() {
        let m = Modelled::parse("fio,jobs=16,depth=32,bs=1M,zones=8").unwrap();
        assert_eq!(m.name(), "fio 16x32 1M, 8 zones");
        let m = Modelled::parse("full,outstanding=64,bs=128K,zones=1,reads=4,read-bs=4K").unwrap();
        assert_eq!(m.name(), "full queue 64 128K, 1 zone; 4 reads 4K");
        assert!(m.draws());
        let (work, jobs) = measured("randwrite,bs=4K,depth=16").unwrap();
        assert_eq!(measured_name(work, jobs), "randwrite 1x16 4K");
    }

    #[test]
    fn a_client_that_is_none_says_why() {
        for (text, says) in [
            ("seq,bs=1M", "without depth"),
            ("seq,bs=1M,depth=0", "depth=0 is not possible"),
            ("tape,bs=1M", "tape"),
            ("fio,jobs=1,depth=1,bs=1M,zones=1,zone=2", "zone"),
        ] {
            let e = Modelled::parse(text).unwrap_err();
            assert!(e.to_string().contains(says) && e.what_to_try().is_some(), "{e}");
        }
        assert!(measured("seq,bs=4K,depth=1").is_err());
    }
}
