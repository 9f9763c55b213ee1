//! `help`, `completions` and `man`: made from the definitions that the parser uses.

mod man;
mod spec;

use crate::failure::{Failure, no_command};
use crate::program::{Program, name, program};
use crate::suggest::{Suggest, specifications};
use clap::Command;
use clap::builder::StringValueParser;
use clap_complete::Shell;
use std::io::Write;

/// Flags of `completions`.
#[derive(Debug, clap::Args)]
pub struct CompletionArgs {
    /// Whose
    #[arg(value_name = "SHELL")]
    shell: Shell,

    /// Print the specifications that begin so, for the completions themselves
    #[arg(long, value_name = "WORD", hide = true)]
    spec: Option<String>,
}

/// The function that bash calls in place of clap's. The words before the current one do not tell whether it is a
/// specification, so its own text decides. bash also splits words at `=` and `@`, and replaces only the last part,
/// `$2`.
const BASH: &str = r#"
_PROGRAM_spec() {
    local word="${COMP_LINE:0:COMP_POINT}" found
    word="${word##*[[:space:]]}"
    if [[ "$word" == --*=* ]]; then
        word="${word#*=}"
    fi
    if [[ "$word" == *[,@]* && "$word" == *"$2" ]]; then
        mapfile -t found < <("$1" completions bash --spec="$word" 2>/dev/null)
        if [[ ${#found[@]} -gt 0 ]]; then
            COMPREPLY=("${found[@]#"${word%"$2"}"}")
            compopt -o nospace 2>/dev/null
            return 0
        fi
    fi
    _PROGRAM "$@"
}
"#;

/// The commands about the program itself.
#[derive(Debug, clap::Subcommand)]
pub enum Pages {
    /// Print the completions of a shell
    Completions(CompletionArgs),
    /// Write the man pages
    Man(man::ManArgs),
    /// Print this help, the help of a command, or how disks are written (spec)
    Help(HelpArgs),
}

impl Pages {
    /// Runs the command of a program whose command line `command` defines.
    pub fn run(&self, command: Command, out: &mut dyn Write) -> Result<(), Failure> {
        match self {
            Pages::Completions(args) => completions(args, command, out),
            Pages::Man(args) => man::man(args, command, out),
            Pages::Help(args) => help(args, command, out),
        }
    }

    /// Whether the command has a temporary file beside the file that it makes.
    pub fn makes_files(&self) -> bool {
        matches!(self, Pages::Man(_))
    }
}

/// Prints the completions of a shell.
fn completions(
    args: &CompletionArgs,
    mut command: Command,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    if let Some(word) = &args.spec {
        for spec in specifications(word) {
            writeln!(out, "{spec}")?;
        }
        return Ok(());
    }
    let mut text = Vec::new();
    if args.shell == Shell::Bash {
        // clap_complete names the cases of a program with a dash in two ways, so that none is found.
        let program = name().replace('-', "_");
        clap_complete::generate(args.shell, &mut command, &*program, &mut text);
        let script = String::from_utf8_lossy(&text);
        let (functions, registered) =
            script.split_at(script.rfind("\nif ").unwrap_or(script.len()));
        let [usual, own] = ["", "_spec"].map(|end| format!("-F _{program}{end} "));
        let registered = registered.replace(&usual, &own);
        let registered = registered.replace(&format!(" {program}\n"), &format!(" {}\n", name()));
        let bash = BASH.replace("PROGRAM", &program);
        text = format!("{functions}{bash}{registered}").into_bytes();
    } else {
        clap_complete::generate(args.shell, &mut command, name(), &mut text);
    }
    Ok(out.write_all(&text)?)
}

/// Flags of `help`.
#[derive(Debug, clap::Args)]
pub struct HelpArgs {
    /// A command, or spec: how disks are written as text
    #[arg(value_name = "COMMAND|spec", value_parser = Suggest::new(StringValueParser::new(), topics), hide_possible_values = true)]
    topic: Option<String>,
}

/// A topic of the help beside the commands.
const SPEC: &str = "spec";

/// The topics of the help, which the completions offer.
fn topics() -> Vec<&'static str> {
    let commands = program().map(Program::definition);
    let names = commands
        .iter()
        .flat_map(Command::get_subcommands)
        .map(|c| &*c.get_name().to_owned().leak());
    names.chain([SPEC]).collect()
}

/// Prints the help of a command, of the program, or the manual of specifications.
fn help(args: &HelpArgs, mut command: Command, out: &mut dyn Write) -> Result<(), Failure> {
    let topic = match args.topic.as_deref() {
        None => None,
        Some(SPEC) => return Ok(out.write_all(spec::text().as_bytes())?),
        Some(name) if command.find_subcommand(name).is_none() => {
            return Err(no_command(name, &command, &[SPEC]));
        }
        Some(name) => Some(name),
    };
    // `zoneplug COMMAND --help` prints the help; clap returns it as an error.
    let given = std::iter::once(name()).chain(topic).chain(["--help"]);
    match command.try_get_matches_from_mut(given) {
        Err(e) if e.exit_code() == 0 => Ok(e.print()?),
        _ => Err(Failure::usage("no help").hint("zoneplug --help")),
    }
}
