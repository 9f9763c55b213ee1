//! Failures of the command line: clap's errors in two lines, and the exit codes.

use crate::program::{name, program, with_program};
use clap::error::{ContextKind, ContextValue};
pub use zoneplug_control::{Attempt, Failure, FailureParts, Kind};
use zoneplug_core::Error;
use zoneplug_devices::spec::nearest;

/// Turns an error of clap into two lines, in place of its page. `cli`: the parser that reported it.
pub fn from_clap(e: &clap::Error, cli: &clap::Command) -> Failure {
    let text = e.render().to_string();
    let usage_of = format!("Usage: {} ", name());
    let mut what = Vec::new();
    let mut tips = Vec::new();
    let mut command = "";
    for line in text.lines().map(str::trim).filter(|l| !l.is_empty()) {
        if let Some(usage) = line.strip_prefix(&*usage_of) {
            command = usage.split(' ').next().unwrap_or_default();
        }
        if line.starts_with("Usage:") || line.starts_with("For more information") {
            break;
        }
        match line.strip_prefix("tip: ") {
            // clap suggests passing the mistyped option as a value. Users do not mean that.
            Some(tip) if tip.starts_with("to pass") => {}
            Some(tip) => tips.push(tip.to_owned()),
            None => what.push(line.strip_prefix("error: ").unwrap_or(line).to_owned()),
        }
    }
    let given = |kind| match e.get(kind) {
        Some(ContextValue::String(s)) => Some(s.as_str()),
        _ => None,
    };
    let command = cli.find_subcommand(command).or_else(|| command_of(cli));
    match (e.kind(), command) {
        (clap::error::ErrorKind::InvalidSubcommand, _) => {
            if let Some(given) = given(ContextKind::InvalidSubcommand) {
                return no_command(given, cli, &[]);
            }
        }
        (clap::error::ErrorKind::UnknownArgument, Some(command)) if tips.is_empty() => {
            if let Some(given) = given(ContextKind::InvalidArg) {
                return no_argument(given, command);
            }
        }
        (clap::error::ErrorKind::ValueValidation, Some(command)) => {
            let given = [ContextKind::InvalidArg, ContextKind::InvalidValue].map(given);
            if let ([Some(arg), Some(value)], Some(range)) = (given, range_of(&text)) {
                return out_of_range(arg, value, &range, command);
            }
        }
        (clap::error::ErrorKind::MissingRequiredArgument, Some(command)) => {
            if let Some(ContextValue::Strings(missing)) = e.get(ContextKind::InvalidArg) {
                return too_little(missing, command);
            }
        }
        _ => {}
    }
    // A parser's own hint is better than the general one.
    let inner = std::error::Error::source(e).and_then(|s| s.downcast_ref::<Error>());
    let inner = inner.and_then(Error::what_to_try).map(str::to_owned);
    let what = what.join(" ");
    // The text of clap's error repeats the hint.
    let what = match &inner {
        Some(hint) => what.strip_suffix(&format!("; try: {hint}")).unwrap_or(&what),
        None => &what,
    };
    let hint = inner.or_else(|| (!tips.is_empty()).then(|| tips.join("; "))).unwrap_or_else(|| {
        match command {
            Some(c) => format!("{} {} --help", name(), c.get_name()),
            None => format!("{0} --help, or {0} COMMAND --help", name()),
        }
    });
    let what = if what.is_empty() { "wrong usage" } else { what };
    Failure::usage(what).hint(hint)
}

/// The failure for a command that this program does not have, or that this build leaves out. Names the other program if
/// it has the command. Suggests a command or one of the `more` words, but only a nearly identical one, because some
/// commands destroy data.
pub fn no_command(given: &str, cli: &clap::Command, more: &[&str]) -> Failure {
    if let Some(other) = program().filter(|p| p.others.contains(&given)).map(|p| p.other) {
        return Failure::usage(format!("{given} is a command of {other}"))
            .hint(with_program(other));
    }
    if let Some(own) = program().filter(|p| p.left_out.contains(&given)) {
        return Failure::new(Kind::NotSupported, format!("this build has no {given}"))
            .hint(format!("cargo install --path {}, with its default features", own.path));
    }
    let names = cli.get_subcommands().map(clap::Command::get_name);
    let names: Vec<&str> = names.chain(more.iter().copied()).collect();
    let hint = match nearest(given, &names) {
        Some(command) => format!("{0} {command}; {0} --help lists all commands", name()),
        None => format!("{} --help lists the commands", name()),
    };
    Failure::usage(format!("there is no command '{given}'")).hint(hint)
}

/// The command of an error in which clap does not name it: the parser's own, else the one on the command line.
fn command_of(cli: &clap::Command) -> Option<&clap::Command> {
    let mut all = cli.get_subcommands();
    match (all.next(), all.next()) {
        (Some(only), None) => Some(only),
        _ => std::env::args().skip(1).find_map(|word| cli.find_subcommand(word)),
    }
}

/// Finds the valid range in an error of clap: `1 to 64` in `65 is not in 1..=64`.
fn range_of(text: &str) -> Option<String> {
    let range = text.lines().next()?.rsplit_once(" is not in ")?.1;
    let (first, last) = range.split_once("..")?;
    Some(match last.strip_prefix('=') {
        Some(last) => format!("{first} to {last}"),
        // The largest value of the type is no real bound.
        None if last.is_empty() || last == u64::MAX.to_string() => format!("{first} or more"),
        None => format!("{first} to below {last}"),
    })
}

/// The failure for a number outside its range.
fn out_of_range(arg: &str, value: &str, range: &str, command: &clap::Command) -> Failure {
    let flag = arg.split(' ').next().unwrap_or(arg);
    Failure::usage(format!("{flag} is {range}, not {value}")).hint(format!(
        "{} {} --help shows what it takes",
        name(),
        command.get_name()
    ))
}

/// The failure for missing arguments.
fn too_little(missing: &[String], command: &clap::Command) -> Failure {
    let name = format!("{} {}", name(), command.get_name());
    let one = |arg: &String| match arg.strip_prefix('<').and_then(|a| a.strip_suffix('>')) {
        // A choice between arguments, as in <--size <BYTES>|--zones <N>>.
        Some(several) if several.contains('|') => several.replace('|', " or "),
        _ => arg.clone(),
    };
    let mut all: Vec<String> = missing.iter().map(one).collect();
    // Words come before options, as on a command line.
    all.sort_by_key(|a| a.starts_with('-'));
    let all = all.join("; ");
    Failure::usage(format!("{name} needs {all}")).hint(format!("{name} --help shows what it takes"))
}

/// The failure for an unknown option or an extra word.
fn no_argument(given: &str, command: &clap::Command) -> Failure {
    let name = format!("{} {}", name(), command.get_name());
    if !given.starts_with('-') {
        let hint = match command.get_name() {
            "serve" => format!("zoneplug serve --ublk {given}"),
            _ => format!("{name} --help shows what it takes"),
        };
        return Failure::usage(format!("{name} does not take '{given}' here")).hint(hint);
    }
    let zones = command.get_arguments().any(|a| a.get_id() == "count");
    let zones =
        if zones { "--offset SECTOR and --count N say which zones; " } else { Default::default() };
    Failure::usage(format!("{name} has no option '{given}'"))
        .hint(format!("{zones}{name} --help lists its options"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::EXIT_CODES;

    #[test]
    fn every_kind_is_in_the_table_of_exit_codes() {
        for k in [Kind::Io, Kind::Usage, Kind::Device, Kind::NotSupported, Kind::Interrupted] {
            assert!(EXIT_CODES.contains(&format!("\n  {}  ", k as u8)));
        }
        assert!(EXIT_CODES.lines().all(|l| l.len() <= 80));
    }
}
