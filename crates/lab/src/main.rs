//! The command line of zoneplug-lab, for who measures and researches: parses the flags and runs the command.
//!
//! | file | what it does |
//! | --- | --- |
//! | `main.rs` | commands and the way out |
//! | `load/` | load on disks in real time |
//! | `cases/` | three cases where plugging makes a plain difference |
//! | `threads.rs` | threads that work together |
//! | `outcome.rs` | the build that measured, the failure of a run |
//! | `figures.rs`, `table.rs`, `progress.rs` | figures, aligned columns, a bar on a terminal |
//! | `html/` | pages with plots |
//! | `input.rs` | files that commands read |
//! | `virtual_disk.rs` | disks in virtual time: the flags for ways to open them |
//! | `demo.rs` | `zoneplug-lab demo` |
//! | `bench/` | `zoneplug-lab bench` |
//! | `reproduce/` | `zoneplug-lab reproduce` |
//! | `replay/` | `zoneplug-lab replay` |
//! | `calibrate.rs` | `zoneplug-lab calibrate` |
//! | `sim.rs`, `merge/` | `zoneplug-lab sim`; the results of its shards as those of one run |
//!
//! The crate `zoneplug-command` has the rest: errors, exit codes, JSON, the terminal, help, disks on the command line.

#![forbid(unsafe_code)]

#[cfg(feature = "models")]
mod bench;
#[cfg(feature = "models")]
mod calibrate;
mod cases;
mod demo;
mod examples;
mod figures;
#[cfg(feature = "models")]
mod html;
#[cfg(feature = "models")]
mod input;
mod load;
#[cfg(feature = "worlds")]
mod merge;
mod outcome;
mod progress;
#[cfg(feature = "models")]
mod replay;
#[cfg(feature = "models")]
mod reproduce;
#[cfg(feature = "worlds")]
mod sim;
#[cfg(feature = "models")]
mod table;
mod threads;
#[cfg(feature = "models")]
mod virtual_disk;

use clap::{ArgMatches, CommandFactory, Parser, Subcommand};
use failure::Failure;
use interrupt::FirstSignal;
use std::io::Write;
use std::process::ExitCode;
use zoneplug_command::pages::Pages;
use zoneplug_command::program::{self, Program};
use zoneplug_command::run::{self, Commands};
#[cfg(feature = "models")]
use zoneplug_command::{confirm, csv, output, suggest, zones};
use zoneplug_command::{disk, failure, interrupt, json, term};
#[cfg(feature = "models")]
use zoneplug_control::client as server_client;

/// The features that are built.
const FEATURES: [(&str, bool); 5] = [
    ("crypt", cfg!(feature = "crypt")),
    ("drives", cfg!(feature = "drives")),
    ("models", cfg!(feature = "models")),
    ("probes", cfg!(feature = "probes")),
    ("worlds", cfg!(feature = "worlds")),
];

/// This program.
static PROGRAM: Program = Program {
    name: "zoneplug-lab",
    path: "crates/lab",
    command: Cli::command,
    examples: &examples::EXAMPLES,
    note: "zoneplug makes, serves and operates disks.",
    other: "zoneplug",
    others: &OPERATES,
    left_out: LEFT_OUT,
};

/// The commands that this build leaves out. A build with worlds has models.
const LEFT_OUT: &[&str] = if cfg!(feature = "worlds") {
    &[]
} else if cfg!(feature = "models") {
    &["merge", "sim"]
} else {
    &["bench", "calibrate", "merge", "replay", "reproduce", "sim"]
};

/// The commands of `zoneplug`.
const OPERATES: [&str; 21] = [
    "append",
    "attr",
    "check",
    "close",
    "create",
    "doctor",
    "finish",
    "flush",
    "info",
    "mount",
    "open",
    "read",
    "report",
    "reset",
    "resync",
    "serve",
    "snapshot",
    "status",
    "top",
    "write",
    "zone-wplugs",
];

/// Measurements of zoned disks, models of drives, published tables, and the engine in virtual time.
#[derive(Debug, Parser)]
#[command(name = "zoneplug-lab", version, long_version = program::version(&FEATURES), disable_help_subcommand = true, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show in ten seconds what zoneplug is for, on disks in memory
    Demo(demo::Args),
    /// Measure what plugging costs and show what it is for; or run a workload of one's own
    #[cfg(feature = "models")]
    Bench(bench::Args),
    /// Print the published tables beside what the engine gives on models of the drives, and on this machine
    ///
    /// The exit code is 1 if a cell with a band is outside of it, or a claim does not hold.
    #[cfg(feature = "models")]
    Reproduce(reproduce::Args),
    /// Send a block trace to models of drives, or to a drive: what each disk and policy gives
    ///
    /// A trace is a file of `blktrace`, what `blkparse` prints, what `fio --write_iolog` writes, or a table with the titles
    /// time_us,op,offset,length, or whose columns --columns names. Its lines may stand in any order. A trace of a
    /// conventional disk is laid over zones: see --map. All in virtual time, so an hour of a trace takes seconds. With --real-time the trace goes to any disk by the clock: zeroes replace what is in
    /// the zones that it writes.
    #[cfg(feature = "models")]
    Replay(replay::Args),
    /// Measure a drive and print the profile of a model that behaves like it
    ///
    /// Writes only zones that are named, and asks before that; what is in them is lost. Reads and writes for some minutes. Each number
    /// says how near it is, and some measurements are held back to show how well the profile predicts. Of a model, in virtual time, the
    /// numbers that it has are printed beside those that were found.
    #[cfg(feature = "models")]
    Calibrate(calibrate::Args),
    /// Run the engine in virtual time, world after world, until one breaks a promise
    #[cfg(feature = "worlds")]
    Sim(sim::Args),
    /// Put the results of shards together, which several machines have computed
    ///
    /// Prints what one run of all seeds would have printed. Fails if a shard is missing, is there twice, or has not run
    /// all of its seeds, and says how to run it; and if a promise was broken in one of them. Of the files of a sweep of
    /// the Python package in shards it prints the file of the whole sweep.
    #[cfg(feature = "worlds")]
    Merge(merge::Args),
    #[command(flatten)]
    Pages(Pages),
}

impl Commands for Cli {
    fn on_signal(&self) -> Option<FirstSignal> {
        match &self.command {
            #[cfg(feature = "worlds")]
            Command::Merge(_) => None,
            Command::Pages(pages) => pages.makes_files().then_some(FirstSignal::Ends),
            _ => Some(FirstSignal::Asks),
        }
    }

    fn run(&self, _: &ArgMatches, out: &mut dyn Write) -> Result<(), Failure> {
        match &self.command {
            Command::Demo(args) => demo::run(args, out),
            #[cfg(feature = "models")]
            Command::Bench(args) => bench::run(args, out),
            #[cfg(feature = "models")]
            Command::Reproduce(args) => reproduce::run(args, out),
            #[cfg(feature = "models")]
            Command::Replay(args) => replay::run(args, out),
            #[cfg(feature = "models")]
            Command::Calibrate(args) => calibrate::run(args, out),
            #[cfg(feature = "worlds")]
            Command::Sim(args) => sim::main(args, out),
            #[cfg(feature = "worlds")]
            Command::Merge(args) => merge::run(args, out),
            Command::Pages(pages) => pages.run(PROGRAM.definition(), out),
        }
    }
}

fn main() -> ExitCode {
    run::main::<Cli>(&PROGRAM).0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flags_fit_together() {
        PROGRAM.definition().debug_assert();
    }

    /// Each command has examples, and the parser takes them.
    #[test]
    fn examples_are_command_lines() {
        PROGRAM.check_examples();
    }
}
