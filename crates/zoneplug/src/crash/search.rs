//! The choice of cuts, and the search for the smallest that fails.

use super::image::{Cut, Image, Loss};
use super::record::{Recorded, Recorder, Tape};
use super::report::{Case, CrashFailure, CrashReport, story};
use super::{Crash, REPEAT, Work};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Once};
use zoneplug_core::disk::DiskConfig;
use zoneplug_core::{Error, Random};
use zoneplug_devices::emu::{EmuConfig, EmuKind};
use zoneplug_host::HostedDisk;

/// The number of draws at every moment.
const DRAWS: u64 = 4;
/// The number of draws at each moment that are tried for a smaller failure.
const SMALLER: u64 = 8;
/// The most checks in a search for a smaller failure.
const PATIENCE: u64 = 5_000;

/// A run of the work.
struct Run<P> {
    seed: u64,
    tape: Tape,
    promises: Vec<(usize, P)>,
}

impl<P: Clone> Run<P> {
    fn promised(&self, point: usize) -> Vec<P> {
        self.promises.iter().take_while(|(at, _)| *at <= point).map(|(_, p)| p.clone()).collect()
    }
}

/// The result of a check: its message if it failed, and the changes that it made.
type Checked = (Option<String>, Tape);

/// The check of a disk that a cut has left.
type Check<'a, P, F> = &'a dyn Fn(&HostedDisk, &[P]) -> Result<(), F>;

struct Search<'a, P> {
    config: EmuConfig,
    check: Check<'a, P, String>,
    report: CrashReport,
}

thread_local! {
    /// Whether panics on this thread are hidden: those of checks, after the first one was shown.
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Hides panics until it is dropped.
struct Quiet;

impl Quiet {
    fn new() -> Quiet {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let before = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |info| {
                if !QUIET.get() {
                    before(info);
                }
            }));
        });
        QUIET.set(true);
        Quiet
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        QUIET.set(false);
    }
}

/// The message of a panic.
fn panicked(payload: &(dyn std::any::Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|s| (*s).to_owned());
    let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
    format!("panicked: {}", text.unwrap_or_else(|| "with something that is no text".to_owned()))
}

/// The disk of a specification: one that keeps data and loses them at a power cut.
pub(super) fn config(spec: &str) -> Result<EmuConfig, Error> {
    let config: EmuConfig = spec.parse()?;
    if config.kind != EmuKind::Mem {
        return Err(Error::invalid(format!("'{spec}' keeps no data"))
            .hint("power cuts are for disks in memory: mem,zones=8,zone-size=256K"));
    }
    if config.reorder.is_some() {
        return Err(Error::invalid("reorder= and power cuts do not go together").hint(
            "leave reorder= out: what is in flight when the power goes is lost in part anyway",
        ));
    }
    Ok(config)
}

fn open(image: &Image, config: &EmuConfig, recorder: &Recorder) -> Result<HostedDisk, Error> {
    let device = Recorded::new(image.disk(config)?, recorder.clone());
    HostedDisk::open(device, DiskConfig::default())
}

pub(super) fn run<P, E, F>(
    crash: &Crash,
    work: &dyn Fn(&Work<P>) -> Result<(), E>,
    check: Check<'_, P, F>,
) -> Result<CrashReport, CrashFailure>
where
    P: Clone,
    E: fmt::Display,
    F: fmt::Display,
{
    let check = |disk: &HostedDisk, promised: &[P]| match catch_unwind(AssertUnwindSafe(|| {
        check(disk, promised)
    })) {
        Ok(result) => result.map_err(|e| e.to_string()),
        Err(payload) => Err(panicked(&*payload)),
    };
    let config = config(&crash.disk).map_err(|e| CrashFailure::setup(&e))?;
    let mut search = Search { config, check: &check, report: CrashReport::default() };
    if let Ok(text) = std::env::var(REPEAT) {
        let wrong = || Error::invalid(format!("{REPEAT}={text} names no power cut"));
        let case = Case::parse(&text).ok_or_else(|| CrashFailure::setup(&wrong()))?;
        let run = search.work(case.seed, work)?;
        return match search.fails(&run, &case)? {
            Some(message) => Err(search.failure(&run, case, message, 1)),
            None => Ok(search.report),
        };
    }
    let runs = crash.seeds.end.saturating_sub(crash.seeds.start).max(1);
    for (i, seed) in (0..).zip(crash.seeds.clone()) {
        let share = crash.cuts / runs + u64::from(i < crash.cuts % runs);
        let run = search.work(seed, work)?;
        let points = run.tape.events.len() as u64 + 1;
        search.report.points += points;
        let mut random = Random::new(seed);
        let cuts = if crash.every { points * DRAWS } else { share };
        for n in 0..cuts {
            let (point, draw) = match cuts >= points {
                true => (n % points, n / points),
                false => (random.draw() % points, random.draw() % 64),
            };
            let cut = Cut { point: point as usize, draw, keep: BTreeMap::new() };
            let nr = search.report.cuts + 1;
            let mut case = Case { seed, cut, again: None };
            let (mut failed, made) = search.checked(&run, &case.cut)?;
            if failed.is_none() && crash.cut_check && !made.events.is_empty() {
                let point = (random.draw() % (made.events.len() as u64 + 1)) as usize;
                let draw = random.draw() % 64;
                case.again = Some(Cut { point, draw, keep: BTreeMap::new() });
                failed = search.checked_again(&run, &case, &made)?;
            }
            if let Some(message) = failed {
                let (case, message) = search.smaller(&run, case, message)?;
                return Err(search.failure(&run, case, message, nr));
            }
        }
    }
    Ok(search.report)
}

impl<P: Clone> Search<'_, P> {
    /// Runs the work.
    fn work<E: fmt::Display>(
        &mut self,
        seed: u64,
        work: &dyn Fn(&Work<P>) -> Result<(), E>,
    ) -> Result<Run<P>, CrashFailure> {
        let recorder = Recorder::default();
        let image = Image::empty(&self.config.geometry);
        let disk = open(&image, &self.config, &recorder).map_err(|e| CrashFailure::setup(&e))?;
        let work_of = Work { disk, seed, recorder: recorder.clone(), promises: Arc::default() };
        match catch_unwind(AssertUnwindSafe(|| work(&work_of))) {
            Ok(Ok(())) => {}
            Ok(Err(e)) => return Err(CrashFailure::work(seed, &e.to_string())),
            Err(payload) => return Err(CrashFailure::work(seed, &panicked(&*payload))),
        }
        let promises = std::mem::take(&mut *zoneplug_core::poison::lock(&work_of.promises));
        let tape = recorder.take();
        self.report.runs += 1;
        self.report.commands += tape.changes.len() as u64;
        Ok(Run { seed, tape, promises })
    }

    /// The content of the medium after a cut, and the losses of the cut.
    fn left(&self, run: &Run<P>, cut: &Cut) -> (Image, Vec<Loss>) {
        let g = &self.config.geometry;
        Image::empty(g).after(g, &run.tape, cut).cut(&self.config, cut)
    }

    fn check(&mut self, image: &Image, promised: &[P]) -> Result<Checked, CrashFailure> {
        self.report.cuts += 1;
        let recorder = Recorder::default();
        let disk = open(image, &self.config, &recorder).map_err(|e| CrashFailure::setup(&e))?;
        let failed = (self.check)(&disk, promised).err();
        drop(disk);
        Ok((failed, recorder.take()))
    }

    fn checked(&mut self, run: &Run<P>, cut: &Cut) -> Result<Checked, CrashFailure> {
        let (image, _) = self.left(run, cut);
        self.check(&image, &run.promised(cut.point))
    }

    /// Cuts the power in the middle of a check that made the changes `made`, and checks the disk
    /// that is left.
    fn checked_again(
        &mut self,
        run: &Run<P>,
        case: &Case,
        made: &Tape,
    ) -> Result<Option<String>, CrashFailure> {
        let Some(again) = &case.again else { return Ok(None) };
        let g = self.config.geometry;
        let (first, _) = self.left(run, &case.cut);
        let (image, _) = first.after(&g, made, again).cut(&self.config, again);
        Ok(self.check(&image, &run.promised(case.cut.point))?.0)
    }

    fn fails(&mut self, run: &Run<P>, case: &Case) -> Result<Option<String>, CrashFailure> {
        let (failed, made) = self.checked(run, &case.cut)?;
        match failed {
            None if case.again.is_some() => self.checked_again(run, case, &made),
            failed => Ok(failed),
        }
    }

    /// Searches for the earliest moment at which a cut fails, and there for the cut with the
    /// smallest losses.
    fn smaller(
        &mut self,
        run: &Run<P>,
        mut case: Case,
        mut message: String,
    ) -> Result<(Case, String), CrashFailure> {
        let _quiet = Quiet::new();
        let until = self.report.cuts + PATIENCE;
        let draws = || (0..SMALLER).chain([case.cut.draw]);
        'found: for point in 0..=case.cut.point {
            for draw in draws() {
                let cut = Cut { point, draw, keep: BTreeMap::new() };
                let smaller = Case { cut, ..case.clone() };
                if smaller == case || self.report.cuts > until {
                    break 'found;
                }
                if let Some(why) = self.fails(run, &smaller)? {
                    (case, message) = (smaller, why);
                    break 'found;
                }
            }
        }
        // Names the losses of each zone explicitly; then lets each zone in turn keep as much as
        // possible while the check still fails.
        let (_, losses) = self.left(run, &case.cut);
        let mut named = case.clone();
        named.cut.draw = 1;
        named.cut.keep = losses.iter().map(|l| (l.zone, l.kept)).collect();
        if let Some(why) = self.fails(run, &named)? {
            (case, message) = (named, why);
        }
        let unit = self.config.limits.write_granularity_sectors;
        for loss in losses {
            let mut keep = loss.written;
            while keep > loss.kept && self.report.cuts <= until {
                let mut less = case.clone();
                less.cut.keep.insert(loss.zone, keep);
                if let Some(why) = self.fails(run, &less)? {
                    (case, message) = (less, why);
                    break;
                }
                keep = keep.saturating_sub(unit);
            }
        }
        if case.cut.draw == 1 {
            let (_, losses) = self.left(run, &case.cut);
            case.cut.keep.retain(|zone, _| losses.iter().any(|l| l.zone == *zone));
        }
        Ok((case, message))
    }

    fn failure(&self, run: &Run<P>, case: Case, message: String, nr: u64) -> CrashFailure {
        let point = case.cut.point;
        let (_, losses) = self.left(run, &case.cut);
        let promised = run.promised(point).len();
        let mut story = story(&self.config.geometry, &run.tape, point, promised, &losses);
        if let Some(again) = &case.again {
            story += &format!("and once more after event {} of the check\n", again.point);
        }
        CrashFailure {
            message,
            seed: run.seed,
            point: Some(point),
            nr,
            repeat: case.to_string(),
            story,
        }
    }
}
