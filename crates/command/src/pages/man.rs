//! `man`: pages from the definitions that the parser uses, the examples and the exit codes.

use super::spec;
use crate::failure::Failure;
use crate::output::{Output, Over};
use crate::program::{EXIT_CODES, name, program};
use clap::Command;
use clap_mangen::roff::{Roff, bold, roman};
use std::io::Write;
use std::path::PathBuf;
use zoneplug_core::plain;
use zoneplug_host::cannot_make;

/// Flags of `man`.
#[derive(Debug, clap::Args)]
pub struct ManArgs {
    /// Write the page of the program, zoneplug-spec.5 and a page for each command into this directory; without it, the
    /// page of the program goes to stdout
    #[arg(value_name = "DIR")]
    dir: Option<PathBuf>,

    /// Print zoneplug-spec(5), the manual of specifications
    #[arg(long, conflicts_with = "dir")]
    spec: bool,
}

/// Writes the man pages.
pub(super) fn man(
    args: &ManArgs,
    mut command: Command,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    command.build();
    if args.spec {
        return Ok(out.write_all(specifications().as_bytes())?);
    }
    let Some(dir) = &args.dir else { return page(command, out) };
    std::fs::create_dir_all(dir).map_err(|e| cannot_make(dir, e))?;
    let commands: Vec<Command> = command.get_subcommands().cloned().collect();
    let path = dir.join("zoneplug-spec.5");
    Output::create(&path, Over::Files, [])?.end_with(specifications().as_bytes())?;
    writeln!(out, "{}", plain(&path.display().to_string()))?;
    for c in commands.into_iter().chain([command]) {
        // clap's `build` has set display names such as `zoneplug-reset`.
        let path = dir.join(format!("{}.1", c.get_display_name().unwrap_or(c.get_name())));
        let mut text = Vec::new();
        page(c, &mut text)?;
        Output::create(&path, Over::Files, [])?.end_with(&text)?;
        writeln!(out, "{}", plain(&path.display().to_string()))?;
    }
    Ok(())
}

/// zoneplug-spec(5).
fn specifications() -> String {
    tidy(&String::from_utf8_lossy(&spec::roff()))
}

/// Writes the page of a program or of one of its commands.
fn page(command: Command, out: &mut dyn Write) -> Result<(), Failure> {
    let program = program();
    let of = command.get_name().to_owned();
    let is_program = program.is_none_or(|p| p.name == of);
    let of = if is_program { "" } else { &*of };
    let source = format!("{} {}", name(), env!("CARGO_PKG_VERSION"));
    let has_commands = command.has_subcommands();
    let command = command.disable_help_subcommand(true);
    let synopsis = synopsis(&command);
    let page = clap_mangen::Man::new(command).source(source).date(env!("ZONEPLUG_DATE"));
    let mut text = Vec::new();
    // Writing to memory does not fail.
    page.render_title(&mut text)?;
    page.render_name_section(&mut text)?;
    synopsis.to_writer(&mut text)?;
    page.render_description_section(&mut text)?;
    page.render_options_section(&mut text)?;
    if has_commands {
        page.render_subcommands_section(&mut text)?;
    }
    let mut end = Roff::new();
    let examples = program.map_or(&[][..], |p| p.examples(of));
    if !examples.is_empty() {
        end.control("SH", ["EXAMPLES"]).control("nf", []);
        examples.iter().for_each(|line| _ = end.text([roman(*line)]));
        end.control("fi", []);
    }
    end.control("SH", ["EXIT STATUS"]);
    for code in exit_codes() {
        let (number, what) = code.split_once("  ").unwrap_or_default();
        end.control("TP", []).text([bold(number)]).text([roman(what)]);
    }
    let others = program.map_or("zoneplug-lab", |p| p.other);
    let own = (!is_program).then(name);
    let also = own.into_iter().chain([others]).map(|p| format!("{p}(1)"));
    let also: Vec<String> = also.chain(["zoneplug-spec(5)".to_owned()]).collect();
    end.control("SH", ["SEE ALSO"]).text([roman(also.join(", "))]);
    end.to_writer(&mut text)?;
    if is_program {
        page.render_version_section(&mut text)?;
    }
    Ok(out.write_all(tidy(&String::from_utf8_lossy(&text)).as_bytes())?)
}

/// The synopsis of a command, with the values of its options. That of clap_mangen leaves the values out.
fn synopsis(command: &Command) -> Roff {
    let name = command.get_bin_name().unwrap_or(command.get_name());
    let mut words = vec![bold(name)];
    let shown = command.get_arguments().filter(|arg| !arg.is_hide_set());
    let (places, options): (Vec<_>, Vec<_>) = shown.partition(|arg| arg.is_positional());
    for arg in options {
        let optional = if arg.is_required_set() { arg.to_string() } else { format!("[{arg}]") };
        words.push(roman(format!(" {optional}")));
    }
    words.extend(places.iter().map(|arg| roman(format!(" {arg}"))));
    if command.has_subcommands() {
        words.push(roman(" <COMMAND>"));
    }
    let mut section = Roff::new();
    section.control("SH", ["SYNOPSIS"]).text(words);
    section
}

/// The exit codes, a line each.
fn exit_codes() -> Vec<String> {
    let mut codes: Vec<String> = Vec::new();
    for line in EXIT_CODES.lines().skip(1) {
        match (line.strip_prefix("     "), codes.last_mut()) {
            (Some(rest), Some(code)) => code.extend([" ", rest.trim()]),
            _ => codes.push(line.trim().to_owned()),
        }
    }
    codes
}

/// The page without what mandoc(1) warns of: blanks at ends of lines, and breaks beside a paragraph or a title.
fn tidy(page: &str) -> String {
    let mut lines: Vec<&str> = Vec::new();
    let starts_text = |line: &str| ["", ".PP", ".sp"].contains(&line) || line.starts_with(".SH");
    for line in page.lines().map(str::trim_end) {
        let last = lines.last().copied().unwrap_or_default();
        match line {
            "" | ".br" | ".sp" | ".PP" if starts_text(last) => continue,
            "" | ".sp" | ".PP" if last == ".br" => _ = lines.pop(),
            _ => {}
        }
        lines.push(line);
    }
    lines.join("\n") + "\n"
}
