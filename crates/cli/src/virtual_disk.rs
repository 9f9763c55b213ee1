//! Disks with the times of a drive, in virtual time: which specifications name one, the ways in which its disk is
//! opened side by side, and runs on all processors. Used by `bench`, `replay` and `reproduce`; measures nothing itself.

use crate::failure::Failure;
use crate::interrupt::is_asked;
use crate::suggest::Suggest;
use crate::term;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use zoneplug_core::disk::{DiskConfig, Mode, TAGS, find_attribute};
use zoneplug_core::form::{Form, Value, parse_time};
use zoneplug_core::sched::{Policy, Scheduler};
use zoneplug_core::{Error, Nanos};
use zoneplug_devices::emu::timing::{Model, Profile};
use zoneplug_devices::spec::Spec;
use zoneplug_host::{base_of, take_config, take_profile};
use zoneplug_sim::time::Run;

const TEXT: Form = Form::Text("faults");

/// A drive that is modelled, and how its disk is opened.
#[derive(Debug, Clone)]
pub(crate) struct Modelled {
    pub(crate) spec: String,
    pub(crate) profile: Profile,
    pub(crate) config: DiskConfig,
    /// Commands at the drive, if the specification gives a number.
    pub(crate) tags: Option<u16>,
}

impl Modelled {
    /// The drive that a specification names; `None` if it names another kind of device.
    pub(crate) fn parse(text: &str) -> Result<Option<Modelled>, Failure> {
        let base = base_of(text);
        if base.len() < text.len() {
            return match Self::parse(base)? {
                None => Ok(None),
                Some(_) => Err(Failure::usage("a layer on a disk in virtual time")
                    .hint(format!("{base} without it, or zoneplug bench --real-time"))),
            };
        }
        let mut spec = Spec::parse(text)?;
        let config = take_config(&mut spec)?;
        let tags = spec.number(&TAGS)?.map(|n| n as u16);
        // Faults and data are for real time; they are named below.
        let (fault, data) = (spec.take_as("fault", &TEXT)?, spec.take_as("data", &Form::Flag)?);
        let Some(profile) = take_profile(&mut spec) else { return Ok(None) };
        let profile = profile?;
        spec.finish()?;
        let data = data.is_some_and(|d| d.number() == 1);
        for (key, given) in [("fault", fault.is_some()), ("data", data)] {
            if given {
                return Err(Failure::usage(format!("{key}= in virtual time"))
                    .hint(format!("leave {key}= out, or zoneplug bench --real-time")));
            }
        }
        Ok(Some(Modelled { spec: text.to_owned(), profile, config, tags }))
    }

    /// Whether its medium turns.
    pub(crate) fn rotational(&self) -> bool {
        matches!(self.profile.model, Model::Smr(_))
    }

    /// A run on it whose disk is opened in this way.
    pub(crate) fn run(&self, config: &DiskConfig) -> Run {
        let mut profile = self.profile.clone();
        profile.queue_depth = self.tags.unwrap_or(profile.queue_depth);
        Run::on(profile, config.clone())
    }
}

/// How a disk is opened, in the words of the attributes.
pub(crate) fn layer_name(config: &DiskConfig, rotational: bool) -> String {
    let mut text = format!("{} {}", config.mode, config.scheduler);
    if config.zoned_qd1_writes.unwrap_or(rotational) {
        text += &format!(" qd1 {}", config.zoned_qd1_policy);
        if config.anticipation.0 > 0 {
            text += &format!(" +{}us", config.anticipation.0 / 1000);
        }
        if config.zone_deadline.0 > 0 {
            text += &format!(" {}ms", config.zone_deadline.0 / 1_000_000);
        }
    }
    text
}

/// Which writer a disk has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Writer {
    /// Each zone by itself.
    Off,
    /// One for the disk.
    Single { policy: Policy, anticipation: Nanos, deadline: Nanos },
}

impl Writer {
    /// `fifo`, `clook+300us/4s`, `off`.
    fn parse(text: &str) -> Result<Writer, Error> {
        let wrong = || {
            let all = Policy::NAMES.join(", ");
            Error::invalid(format!("'{text}' is no policy")).hint(format!(
                "{all}, with +300us to wait for the zone's next write and /4s as deadline; or off"
            ))
        };
        if text == "off" {
            return Ok(Writer::Off);
        }
        // The bounds are those of the attributes.
        let time = |t: Option<&str>, attribute: &str| match t {
            None => Ok(Nanos(0)),
            Some(t) => {
                let form = find_attribute(attribute).map(|a| a.key.form);
                let fits = |n: &u64| form.is_some_and(|f| f.has(&Value::Number(*n)));
                parse_time(t).filter(fits).map(Nanos).ok_or_else(wrong)
            }
        };
        let (rest, deadline) = match text.split_once('/') {
            Some((rest, deadline)) => (rest, Some(deadline)),
            None => (text, None),
        };
        let (name, anticipation) = match rest.split_once('+') {
            Some((name, anticipation)) => (name, Some(anticipation)),
            None => (rest, None),
        };
        Ok(Writer::Single {
            policy: Policy::from_name(name).ok_or_else(wrong)?,
            anticipation: time(anticipation, "anticipation_us")?,
            deadline: time(deadline, "zone_deadline_ms")?,
        })
    }

    fn apply(self, config: &mut DiskConfig) {
        match self {
            Writer::Off => config.zoned_qd1_writes = Some(false),
            Writer::Single { policy, anticipation, deadline } => {
                config.zoned_qd1_writes = Some(true);
                config.zoned_qd1_policy = policy;
                config.anticipation = anticipation;
                config.zone_deadline = deadline;
            }
        }
    }
}

/// Ways to open a disk, to be compared: every policy with every scheduler.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Ways {
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = Suggest::new(Writer::parse, policies), hide_possible_values = true, help = policy_help())]
    policy: Vec<Writer>,

    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = Suggest::new(scheduler, || Scheduler::NAMES.to_vec()), hide_possible_values = true, help = scheduler_help())]
    scheduler: Vec<Scheduler>,
}

/// What a policy begins with.
fn policies() -> Vec<&'static str> {
    Policy::NAMES.into_iter().chain(["off"]).collect()
}

fn policy_help() -> String {
    format!(
        "The single writer's policy: {}; with +300us it waits for a zone's next write, with /4s zones have a deadline; or off. More than one: a row for each",
        Policy::NAMES.join(", ")
    )
}

fn scheduler_help() -> String {
    format!("The I/O scheduler: {}. More than one: a row for each", Scheduler::NAMES.join(", "))
}

/// Warns about policies among `ways` that have no effect because waiting is not allowed.
pub(crate) fn say_what_never_waits(ways: &[DiskConfig], rotational: bool) {
    let idle = |policy: Policy| {
        ways.iter().any(|c| {
            let one = c.zoned_qd1_writes.unwrap_or(rotational) && c.mode == Mode::Plug;
            one && c.zoned_qd1_policy == policy && c.anticipation == Nanos(0)
        })
    };
    for policy in Policy::ALL.into_iter().filter(|p| idle(*p)) {
        if let Some(text) = never_waits(policy) {
            term::note(&text);
        }
    }
}

/// A note on a policy that depends on waiting, for a disk on which no wait is allowed. `None` for other policies.
pub(crate) fn never_waits(policy: Policy) -> Option<String> {
    let left = match policy {
        Policy::Brief => "it is fifo",
        _ => "its order is left",
    };
    let text = format!("{policy} without +300us (anticipation_us) never waits: {left}");
    policy.is_about_waiting().then_some(text)
}

fn scheduler(text: &str) -> Result<Scheduler, Error> {
    Scheduler::from_name(text).ok_or_else(|| {
        Error::invalid(format!("'{text}' is no scheduler"))
            .hint(format!("one of {}", Scheduler::NAMES.join(", ")))
    })
}

impl Ways {
    /// Whether any was named.
    pub(crate) fn are_given(&self) -> bool {
        !self.policy.is_empty() || !self.scheduler.is_empty()
    }

    /// A configuration for each, from that of the specification, in these modes; the specification's if none is named.
    pub(crate) fn of(&self, base: &DiskConfig, modes: &[Mode]) -> Vec<DiskConfig> {
        let modes = if modes.is_empty() { vec![base.mode] } else { modes.to_vec() };
        let schedulers =
            if self.scheduler.is_empty() { vec![base.scheduler] } else { self.scheduler.clone() };
        let mut all: Vec<DiskConfig> = Vec::new();
        for mode in modes {
            for &scheduler in &schedulers {
                let mut one = DiskConfig { mode, scheduler, ..base.clone() };
                if mode != Mode::Plug {
                    // Only plugs have a single writer.
                    one.zoned_qd1_writes = Some(false);
                }
                if mode != Mode::Plug || self.policy.is_empty() {
                    all.push(one);
                    continue;
                }
                all.extend(self.policy.iter().map(|writer| {
                    let mut config = one.clone();
                    writer.apply(&mut config);
                    config
                }));
            }
        }
        all
    }
}

/// Does `n` pieces of work on all processors. The results are in the order of the work. If a signal asks for the end,
/// no further piece is begun, and its result is missing.
pub(crate) fn spread<T: Send>(
    n: usize,
    work: impl Fn(usize) -> Result<T, Failure> + Sync,
) -> Result<Vec<T>, Failure> {
    let (next, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    let found = Mutex::new(Vec::with_capacity(n));
    let some = || -> Result<(), Failure> {
        loop {
            let i = next.fetch_add(1, Ordering::Relaxed);
            if i >= n || stop.load(Ordering::Relaxed) || is_asked() {
                return Ok(());
            }
            let result = work(i).inspect_err(|_| stop.store(true, Ordering::Relaxed))?;
            zoneplug_core::poison::lock(&found).push((i, result));
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(n);
    std::thread::scope(|s| {
        // This thread works too, and does all of it if the system gives it no other.
        let more = (1..threads).map_while(|_| {
            std::thread::Builder::new().name("zoneplug-run".to_owned()).spawn_scoped(s, some).ok()
        });
        let more: Vec<_> = more.collect();
        let own = some();
        more.into_iter().fold(own, |result, t| match t.join() {
            Ok(other) => result.and(other),
            Err(_) => Err(Failure::io("a run panicked").hint("this is a bug")),
        })
    })?;
    let mut found = zoneplug_core::poison::unpoisoned(found.into_inner());
    found.sort_by_key(|(i, _)| *i);
    Ok(found.into_iter().map(|(_, result)| result).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_are_read_with_their_times() {
        let single = |policy, us: u64, ms: u64| Writer::Single {
            policy,
            anticipation: Nanos(us * 1_000),
            deadline: Nanos(ms * 1_000_000),
        };
        for (text, writer) in [
            ("off", Writer::Off),
            ("fifo", single(Policy::Fifo, 0, 0)),
            ("clook+300us", single(Policy::Clook, 300, 0)),
            ("score/1s", single(Policy::Score, 0, 1000)),
            ("clook+300us/4s", single(Policy::Clook, 300, 4000)),
        ] {
            assert_eq!(Writer::parse(text).unwrap(), writer, "{text}");
        }
        for text in ["", "elevator", "fifo+", "fifo+2", "fifo/1", "fifo+2s", "off+1us", "fifo/2h"] {
            assert!(Writer::parse(text).unwrap_err().what_to_try().is_some(), "{text}");
        }
    }

    #[test]
    fn every_policy_is_combined_with_every_scheduler_but_only_plugs_have_one() {
        let ways = Ways {
            policy: vec![Writer::Off, Writer::parse("clook").unwrap()],
            scheduler: vec![Scheduler::None, Scheduler::MqDeadline],
        };
        let names = |modes: &[Mode]| -> Vec<String> {
            let all = ways.of(&DiskConfig::default(), modes);
            all.iter().map(|c| layer_name(c, true)).collect()
        };
        let plug =
            ["plug none", "plug none qd1 clook", "plug mq-deadline", "plug mq-deadline qd1 clook"];
        assert_eq!(names(&[]), plug);
        assert_eq!(names(&[Mode::Lock]), ["lock none", "lock mq-deadline"]);
        let none = Ways { policy: vec![], scheduler: vec![] };
        assert_eq!(none.of(&DiskConfig::default(), &[]), [DiskConfig::default()]);
    }

    #[test]
    fn only_modelled_drives_are_in_virtual_time() {
        let m = Modelled::parse("sim-smr30,qd1=0,tags=4,cache=64M").unwrap().unwrap();
        assert_eq!((m.rotational(), m.run(&m.config).tags), (true, 4));
        assert!(Modelled::parse("mem,latency=1ms").unwrap().is_none());
        assert!(Modelled::parse("po2@mem").unwrap().is_none());
        for text in
            ["po2@sim-zns1", "sim-smr30,fault=write/io", "sim-smr30,data=1", "sim-smr30,x=1", "sim"]
        {
            assert!(Modelled::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn work_that_is_spread_comes_back_in_order() {
        assert_eq!(spread(100, |i| Ok(i * i)).unwrap()[99], 99 * 99);
        assert!(spread(4, |i| if i == 3 { Err(Failure::io("x")) } else { Ok(i) }).is_err());
        assert!(spread(0, Ok).unwrap().is_empty());
    }
}
