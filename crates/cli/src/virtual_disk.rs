//! Disks with the times of a drive, on the command line: the flags that say in which ways such a disk is opened side by
//! side. Used by `bench` and `replay`.

use crate::interrupt::is_asked;
use crate::suggest::Suggest;
use crate::term;
use zoneplug_core::Nanos;
use zoneplug_core::disk::{DiskConfig, Mode};
use zoneplug_core::sched::{Policy, Scheduler};
use zoneplug_models::{Way, Workers, Writer, scheduler, ways};

/// All processors, until a signal asks for the end.
pub(crate) fn workers() -> Workers<'static> {
    Workers::all(&is_asked)
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
pub(crate) fn say_what_never_waits(ways: &[Way], rotational: bool) {
    let idle = |policy: Policy| {
        ways.iter().map(|way| &way.config).any(|c| {
            let one = c.zoned_qd1_writes.unwrap_or(rotational) && c.mode == Mode::Plug;
            one && c.zoned_qd1_policy == policy && c.anticipation == Nanos(0)
        })
    };
    for policy in Policy::ALL.into_iter().filter(|p| idle(*p)) {
        if let Some(text) = zoneplug_models::never_waits(policy) {
            term::note(&text);
        }
    }
}

impl Ways {
    /// Whether any was named.
    pub(crate) fn are_given(&self) -> bool {
        !self.policy.is_empty() || !self.scheduler.is_empty()
    }

    /// A way for each, from that of the specification, in these modes.
    pub(crate) fn of(&self, base: &DiskConfig, modes: &[Mode]) -> Vec<Way> {
        ways(base, modes, &self.scheduler, &self.policy)
    }
}
