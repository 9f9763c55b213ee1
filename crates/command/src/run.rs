//! A program from its first line to its exit code.

use crate::failure::{Failure, Kind, from_clap};
use crate::interrupt::{FirstSignal, listen};
use crate::program::{self, Program};
use crate::{exit, interrupt, json, output};
use clap::error::ErrorKind;
use clap::{ArgMatches, CommandFactory, FromArgMatches};
use std::ffi::OsString;
use std::io::{BufWriter, Write};
use std::process::ExitCode;
use zoneplug_host::signals::{Held, survive_file_limit};

/// The commands of a program.
pub trait Commands: CommandFactory + FromArgMatches {
    /// The effect of the first signal on this command. `None`: signals keep their usual effect.
    fn on_signal(&self) -> Option<FirstSignal>;

    /// Runs the command. `matches`: the parsed command line, for a command that needs to know where a value came from.
    fn run(&self, matches: &ArgMatches, out: &mut dyn Write) -> Result<(), Failure>;
}

/// Parses the command line and runs the command. Returns the exit code, and the failure if the command failed.
pub fn main<C: Commands>(program: &'static Program) -> (ExitCode, Option<Failure>) {
    // Blocks signals until the command is known and says what they do. If the system refuses this, a signal ends the
    // process at once.
    let held = Held::begin().ok();
    survive_file_limit();
    program::set(program);
    let given: Vec<OsString> = std::env::args_os().collect();
    let json = json::is_wanted(&given);
    let matches = program.definition().try_get_matches_from(given);
    let (cli, matches) = match matches.and_then(|m| Ok((C::from_arg_matches(&m)?, m))) {
        Ok(both) => both,
        Err(e) if e.exit_code() == 0 => {
            // Help or version. A reader that has gone is no error.
            let _ = e.print();
            return (ExitCode::SUCCESS, None);
        }
        Err(e) if e.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = e.print();
            return (ExitCode::from(Kind::Usage as u8), None);
        }
        Err(e) => return (exit::report(&from_clap(&e, &program.definition()), json), None),
    };
    let result = run(&cli, &matches, held);
    interrupt::command_is_over();
    match result {
        Ok(()) => (ExitCode::SUCCESS, None),
        Err(f) => (exit::report(&f, json), Some(f)),
    }
}

fn run(cli: &impl Commands, matches: &ArgMatches, held: Option<Held>) -> Result<(), Failure> {
    output::refuse_disk_as_stdout()?;
    match cli.on_signal() {
        Some(first) => listen(first, held),
        None => held.into_iter().for_each(Held::release),
    }
    let mut out = BufWriter::new(std::io::stdout().lock());
    cli.run(matches, &mut out)?;
    Ok(out.flush()?)
}
