//! Disks in virtual time on the command line: the flags that select the ways to open such a disk for comparison.
//! `bench` and `replay` use them.

use crate::failure::Failure;
use crate::interrupt::is_asked;
use crate::suggest::Suggest;
use crate::{disk, term};
use zoneplug_core::disk::{DiskConfig, Mode};
use zoneplug_core::sched::{Policy, Scheduler};
use zoneplug_models::{Way, Workers, Writer, scheduler, ways};

/// Uses all processors until a signal asks for the end.
pub(crate) fn workers() -> Workers<'static> {
    Workers::all(&is_asked)
}

/// Ways to open a disk, to be compared: every policy with every scheduler.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Ways {
    #[arg(long, value_name = "LIST", value_parser = Suggest::new(Writer::parse_list, policies), hide_possible_values = true, help = policy_help())]
    policy: Vec<Vec<Writer>>,

    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = Suggest::new(scheduler, || Scheduler::NAMES.to_vec()), hide_possible_values = true, help = scheduler_help())]
    scheduler: Vec<Scheduler>,
}

/// The words with which a policy may begin, for completions.
fn policies() -> Vec<&'static str> {
    Policy::NAMES.into_iter().chain(["off"]).collect()
}

fn policy_help() -> String {
    format!(
        "The single writer's policy: {}; with +300us it waits for a zone's next write, with /4s zones have a deadline; or off. In virtual time also an expression, such as '[wait_us + bytes / 1K]': the zone with the highest value is next (docs/models.md). More than one: a row for each",
        Policy::NAMES.join(", ")
    )
}

fn scheduler_help() -> String {
    format!("The I/O scheduler: {}. More than one: a row for each", Scheduler::NAMES.join(", "))
}

/// Warns about policies in `ways` that are designed around waits (`anticipation_us`), where no wait is allowed.
pub(crate) fn warn_of_ways_that_never_wait(ways: &[Way], rotational: bool) {
    let configs: Vec<&DiskConfig> = ways.iter().map(|way| &way.config).collect();
    disk::warn_of_ways_that_never_wait(&configs, rotational);
    for text in ways.iter().filter_map(Way::never_waits) {
        term::note(&text);
    }
}

/// Describes how a disk was opened, for a table; a long expression is cut.
pub(crate) fn short(layer: &str) -> String {
    /// With the other columns of each part of a table, this fits a terminal.
    const LONGEST: usize = 54;
    let too_long = layer.chars().count().saturating_sub(LONGEST);
    match (layer.find('['), layer.rfind(']')) {
        (Some(start), Some(end)) if too_long > 0 => {
            let expression: Vec<char> = layer[start..end].chars().collect();
            let kept = expression.len().saturating_sub(too_long + 3).max(8);
            let kept: String = expression.into_iter().take(kept).collect();
            format!("{}{}...{}", &layer[..start], kept.trim_end(), &layer[end..])
        }
        _ => layer.to_owned(),
    }
}

impl Ways {
    /// Whether the user gave any of the flags.
    pub(crate) fn are_given(&self) -> bool {
        !self.policy.is_empty() || !self.scheduler.is_empty()
    }

    /// Fails if the flags select a policy that works in virtual time only.
    pub(crate) fn check_real_time(&self) -> Result<(), Failure> {
        if self.policy.iter().flatten().any(Writer::is_only_virtual) {
            let names = Policy::NAMES.join(", ");
            return Err(Failure::usage("a policy that is an expression, in real time").hint(
                format!(
                    "virtual time, with --disk sim-smr30 and without --real-time; or one of {names}"
                ),
            ));
        }
        Ok(())
    }

    /// Combines the flags into ways to open a disk, in each of `modes`. A flag that was not given leaves what `base`, the
    /// configuration of the disk's specification, has.
    pub(crate) fn of(&self, base: &DiskConfig, modes: &[Mode]) -> Result<Vec<Way>, Failure> {
        Ok(ways(base, modes, &self.scheduler, &self.policy.concat())?)
    }
}

#[cfg(test)]
mod tests {
    use super::short;

    #[test]
    fn a_long_expression_is_cut_off_in_a_table() {
        for same in ["plug none qd1 fifo +300us 4000ms", "plug none qd1 [-sweep] +300us 4000ms"] {
            assert_eq!(short(same), same);
        }
        let long = format!("plug mq-deadline qd1 [wait_us + {} * 2] +300us 4000ms", "é".repeat(40));
        assert_eq!(short(&long), "plug mq-deadline qd1 [wait_us + éééé...] +300us 4000ms");
        let whole = "plug none qd1 [wait_us + 300 * bytes / (1 + distance)]";
        assert_eq!(short(whole), whole);
        let long = format!("{whole} +300us");
        assert_eq!(short(&long), "plug none qd1 [wait_us + 300 * bytes / (1 +...] +300us");
    }
}
