//! The run without a workload: the published workloads on a disk without data and on one with, then the three
//! cases.

use super::Args;
use super::report::{DiskReport, Fresh, Report, Row};
use crate::cases::{append, order, tags};
use crate::disk::Named;
use crate::failure::Failure;
use crate::interrupt::{self, is_asked};
use crate::load::arena::Arena;
use crate::load::config;
use crate::load::group::{Group, median};
use crate::load::pattern::Verified;
use crate::load::verify::{self, Enough};
use crate::outcome::{Build, failure_of};
use crate::progress::Progress;
use crate::{json, term};
use std::hint::black_box;
use std::io::Write;
use std::time::{Duration, Instant};
use zoneplug_core::disk::Mode;
use zoneplug_models::work::{Rw, Work};

/// A workload, with its name in the published table.
pub(crate) struct Workload {
    pub(crate) name: &'static str,
    pub(crate) rw: Rw,
    block_sectors: u32,
    depth: u32,
}

const fn workload(name: &'static str, rw: Rw, kib: u32, depth: u32) -> Workload {
    Workload { name, rw, block_sectors: kib * 2, depth }
}

/// The six workloads of the table that came with zone write plugging (April 2024), and two more.
pub(crate) const WORKLOADS: [Workload; 8] = [
    workload("seqw4K1", Rw::Write, 4, 1),
    workload("seqw4K16", Rw::Write, 4, 16),
    workload("seqw1M1", Rw::Write, 1024, 1),
    workload("seqw1M16", Rw::Write, 1024, 16),
    workload("rndw4K16", Rw::Randwrite, 4, 16),
    workload("rndw128K16", Rw::Randwrite, 128, 16),
    workload("append4K16", Rw::Append, 4, 16),
    workload("rndr4K16", Rw::Randread, 4, 16),
];

impl Workload {
    fn work(&self) -> Work {
        Work {
            rw: self.rw,
            block_sectors: self.block_sectors,
            depth: self.depth,
            tags: self.depth as u16,
        }
    }
}

/// The published null_blk: 4096 zones of 256 MB, 128 of them open at most.
const NULL: &str = "null,zones=4096,zone-size=256M,max-open=128,append=native";
/// A disk small enough to be written many times a second, so that the kernel has allocated all of its pages.
const MEM: &str = "mem,zones=64,zone-size=2M,append=native";

const MODES: [Mode; 2] = [Mode::Plug, Mode::None];
/// Slices of a figure. `plug` and `none` take turns, so that changes of load on a shared machine affect both.
const SLICES: u32 = 5;
/// Most bytes that one verification writes.
const VERIFY_BYTES: u64 = 32 << 20;

/// Runs the whole suite.
pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<(), Failure> {
    let start = Instant::now();
    let each = Duration::from_secs_f64(args.seconds);
    let nr_figures = (2 * WORKLOADS.len() * MODES.len() + 2 + 3 + 3) as u32;
    let mut run = Run {
        each,
        arena: Arena::default(),
        progress: Progress::new(each * nr_figures),
        text: !args.json && !args.csv,
        out,
    };
    let mut report = Report::new(Build::this(), args.seconds, SLICES);
    run.print(&report.header())?;
    for spec in [NULL, MEM].into_iter().take_while(|_| !is_asked()) {
        let disk = run.disk(spec)?;
        run.print(&disk.to_string())?;
        report.disks.push(disk);
    }
    // The cases have no rows in the CSV.
    let more = || !args.csv && !is_asked();
    for mode in [Mode::None, Mode::Plug].into_iter().take_while(|_| more()) {
        run.progress.say(format!("case 1, {mode}"));
        report.order.push(order::run(mode, each, &mut run.arena)?);
        run.progress.done(each);
    }
    if !report.order.is_empty() {
        run.print(&report.order_text())?;
    }
    let cases = [(Mode::Plug, 0), (Mode::Plug, tags::WRITES), (Mode::Lock, tags::WRITES)];
    for (mode, waiting) in cases.into_iter().take_while(|_| more()) {
        run.progress.say(format!("case 2, {mode}"));
        report.tags.push(tags::run(mode, waiting, each, &mut run.arena)?);
        run.progress.done(each);
    }
    if !report.tags.is_empty() {
        run.print(&report.tags_text())?;
    }
    for way in append::AppendMode::ALL.into_iter().take_while(|_| more()) {
        run.progress.say(format!("case 3, {}", way.name()));
        report.append.push(append::run(way, each, &mut run.arena)?);
        run.progress.done(each);
    }
    if !report.append.is_empty() {
        run.print(&report.append_text())?;
    }
    report.partial = is_asked();
    report.elapsed_s = start.elapsed().as_secs_f64();
    run.print(&report.footer())?;
    let Run { progress, out, .. } = run;
    drop(progress);
    let (refused, wrong) = report.failures();
    let failure = failure_of(refused, wrong, true);
    let failure = interrupt::or_partial(report.partial, failure);
    if args.json {
        return json::end(out, &report, failure);
    }
    if args.csv {
        out.write_all(report.csv().as_bytes())?;
    }
    failure.map_or(Ok(()), Err)
}

struct Run<'a> {
    /// Time for one figure.
    each: Duration,
    arena: Arena,
    progress: Progress,
    text: bool,
    out: &'a mut dyn Write,
}

impl Run<'_> {
    fn print(&mut self, text: &str) -> Result<(), Failure> {
        let out = &mut *self.out;
        if self.text {
            let text = term::fold(text, term::width());
            self.progress.aside(|| writeln!(out, "{text}").and_then(|()| out.flush()))?;
        }
        Ok(())
    }

    /// Measures all workloads on one disk, in both modes.
    fn disk(&mut self, spec: &str) -> Result<DiskReport, Failure> {
        let named = Named::open(spec)?;
        let keeps_data = named.keeps_data;
        let fresh = if keeps_data { Some(self.fresh(&named)?) } else { None };
        let mut rows = Vec::new();
        for w in WORKLOADS.iter().take_while(|_| !is_asked()) {
            self.progress.say(format!("{} on {spec}", w.name));
            rows.push(self.row(w, &named)?);
        }
        let mut verified = [Verified::default(); 2];
        if keeps_data {
            for w in WORKLOADS.iter().take_while(|_| !is_asked()) {
                self.progress.say(format!("verifying {} on {spec}", w.name));
                for (mode, sum) in MODES.iter().zip(&mut verified) {
                    let enough = Enough { bytes: VERIFY_BYTES, time: self.each / 4 };
                    sum.add(verify::pass(
                        &named,
                        config(*mode),
                        w.work(),
                        1,
                        enough,
                        &mut self.arena,
                    )?);
                }
            }
        }
        let [plug, none] = verified;
        Ok(DiskReport {
            spec: spec.to_owned(),
            fresh,
            rows,
            verified_plug: keeps_data.then_some(plug),
            verified_none: keeps_data.then_some(none),
        })
    }

    /// Measures a workload in both modes by turns on one device. Each mode leaves the zones empty, so both use the
    /// same memory.
    fn row(&mut self, w: &Workload, named: &Named) -> Result<Row, Failure> {
        let work = w.work();
        let plug = Group::new(named, config(Mode::Plug), work, 1, &mut self.arena)?;
        let none = Group::new(named, config(Mode::None), work, 1, &mut self.arena)?;
        let mut groups = [plug, none];
        let slice = self.each / SLICES;
        for i in 0..=SLICES {
            for group in &mut groups {
                group.run_slice(if i == 0 { slice / 8 } else { slice }, i > 0)?;
            }
            if i > 0 {
                self.progress.done(slice * 2);
            }
            if is_asked() {
                break;
            }
        }
        let [plug, none] = groups.map(Group::measure);
        Ok(Row {
            name: w.name,
            rw: w.rw,
            block_bytes: u64::from(w.block_sectors) * 512,
            depth: w.depth,
            unit: if w.rw.is_counted() { "kiops" } else { "mb_per_s" },
            plug,
            none,
        })
    }

    /// Measures the first pass over a disk in memory, and the cost of copying there afterwards.
    fn fresh(&mut self, named: &Named) -> Result<Fresh, Failure> {
        self.progress.say("the first pass over fresh pages");
        let work = Work { rw: Rw::Write, block_sectors: 8, depth: 16, tags: 16 };
        let mut pass = |mode, named| {
            Ok::<_, Failure>(Group::new(named, config(mode), work, 1, &mut self.arena)?.fill())
        };
        let plug = pass(Mode::Plug, named)?;
        let none = pass(Mode::None, &Named::of(&named.spec)?)?;
        Ok(Fresh {
            plug_ns_per_bio: plug,
            none_ns_per_bio: none,
            memcpy_4k_ns: memcpy(4096, self.each / 20),
            memcpy_1m_ns: memcpy(1 << 20, self.each / 20),
        })
    }
}

/// Copies one buffer of `len` bytes all over warm memory. Returns ns for each copy.
fn memcpy(len: usize, time: Duration) -> f64 {
    let src = vec![1u8; len];
    let mut dst = vec![2u8; 128 << 20];
    let mut passes = Vec::new();
    let start = Instant::now();
    while passes.len() < 3 || (start.elapsed() < time && passes.len() < 1000) {
        let n = dst.len() / len;
        let pass = Instant::now();
        for chunk in dst.chunks_exact_mut(len) {
            chunk.copy_from_slice(black_box(&src));
        }
        passes.push(pass.elapsed().as_nanos() as f64 / n as f64);
        black_box(&mut dst);
    }
    median(passes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The columns of the published table.
    #[test]
    fn a_workload_is_what_its_name_says() {
        for w in &WORKLOADS {
            let kib = w.block_sectors / 2;
            let size = if kib >= 1024 { format!("{}M", kib / 1024) } else { format!("{kib}K") };
            let kind = match w.rw {
                Rw::Write => "seqw",
                Rw::Randwrite => "rndw",
                Rw::Append => "append",
                Rw::Read => "seqr",
                Rw::Randread => "rndr",
            };
            assert_eq!(w.name, format!("{kind}{size}{}", w.depth));
        }
    }

    #[test]
    fn the_null_disk_is_the_published_one() {
        let named = Named::open(NULL).unwrap();
        let g = named.device.geometry();
        assert_eq!((g.nr_zones(), g.zone_sectors()), (4096, 256 << 11));
        assert_eq!(named.device.limits().max_open_zones, 128);
    }
}
