//! The command line of zoneplug: flags to config to run.
//!
//! | file | what it does |
//! | --- | --- |
//! | `main.rs` | commands and the way out |
//! | `failure.rs` | errors in two lines, exit codes |
//! | `disk.rs` | from a specification to a device |
//! | `term.rs` | colours, the width of the terminal |
//! | `info.rs` | `zoneplug info` |
//! | `bench/` | `zoneplug bench` |
//!
//! | exit code | meaning |
//! | --- | --- |
//! | 0 | done |
//! | 1 | data read back was not what was written, or I/O failed |
//! | 2 | wrong usage, or an impossible device specification |
//! | 3 | a device is busy, or does not exist |
//! | 4 | not supported by this device or build |

#![forbid(unsafe_code)]

mod bench;
mod disk;
mod failure;
mod info;
mod term;

use clap::{Parser, Subcommand};
use failure::Failure;
use std::io::Write;
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  zoneplug bench
  zoneplug bench --disk mem,zones=64,zone-size=4M --rw randwrite --bs 128k --iodepth 16
  zoneplug info mem,zones=512,zone-size=64M,conv=16,max-open=14";

/// Ordered writes at any queue depth for zoned disks, in user space.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100, after_help = format!("{EXAMPLES}\n\n{}", failure::EXIT_CODES))]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measure what plugging costs and show what it is for; or run a workload of one's own
    #[command(after_help = failure::EXIT_CODES)]
    Bench(bench::Args),
    /// Show a disk: geometry, limits, attributes, the conditions of its zones
    #[command(after_help = failure::EXIT_CODES)]
    Info(info::Args),
}

fn run(cli: &Cli) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match &cli.command {
        Command::Bench(args) => bench::run(args, &mut out)?,
        Command::Info(args) => info::run(args, &mut out)?,
    }
    Ok(out.flush()?)
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(e) if e.exit_code() == 0 => {
            // Help or version. A reader that has gone is no error.
            let _ = e.print();
            return ExitCode::SUCCESS;
        }
        Err(e) if e.kind() == clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = e.print();
            return ExitCode::from(failure::Kind::Usage as u8);
        }
        Err(e) => return Failure::from_clap(&e).report(),
    };
    match run(&cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(f) => f.report(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_flags_fit_together() {
        Cli::command().debug_assert();
    }
}
