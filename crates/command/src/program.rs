//! Which program this is, and which one has the other commands.

use std::sync::OnceLock;

/// The exit codes, as the help shows them.
pub const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  I/O failed, data read back is not what was written, or a figure is outside
     of its band
  2  wrong usage, or an impossible specification of a disk
  3  a device or address is busy, or a device or file does not exist
  4  not supported by this device or build, or not permitted to this user
  130  ended by Ctrl-C; 128 and the number of the signal, after another one";

/// A program, and the other one, to which it refers its users.
#[derive(Debug)]
pub struct Program {
    /// Its name.
    pub name: &'static str,
    /// Its crate, as `cargo install --path` takes it.
    pub path: &'static str,
    /// The definition of its command line, without what [`Program::definition`] adds.
    pub command: fn() -> clap::Command,
    /// Command lines that show how each command is used; `""` is the program itself.
    pub examples: &'static [(&'static str, &'static [&'static str])],
    /// The line of the help that says what the other program is for.
    pub note: &'static str,
    /// The name of the other program.
    pub other: &'static str,
    /// The commands of the other program.
    pub others: &'static [&'static str],
    /// Commands of this program that need a default feature, in a build without it.
    pub left_out: &'static [&'static str],
}

impl Program {
    /// The command lines that show how a command is used.
    pub fn examples(&self, command: &str) -> &'static [&'static str] {
        self.examples.iter().find(|(of, _)| *of == command).map_or(&[], |(_, lines)| lines)
    }

    /// The definition of its command line. The help of the program and of each command ends with examples and exit codes.
    pub fn definition(&self) -> clap::Command {
        let command = (self.command)();
        let names: Vec<String> =
            command.get_subcommands().map(|c| c.get_name().to_owned()).collect();
        let end = |command: &str, note: &str| {
            let lines: String =
                self.examples(command).iter().map(|line| format!("\n  {line}")).collect();
            let examples = if lines.is_empty() { lines } else { format!("Examples:{lines}\n\n") };
            format!("{examples}{note}{EXIT_CODES}")
        };
        names
            .iter()
            .fold(command.after_help(end("", &format!("{}\n\n", self.note))), |all, name| {
                all.mut_subcommand(name, |c| c.after_help(end(name, "")))
            })
    }

    /// Panics unless each command has examples, and the parser takes each. For the tests of the program.
    pub fn check_examples(&self) {
        let definition = self.definition();
        for command in definition.get_subcommands().map(clap::Command::get_name).chain([""]) {
            let lines = self.examples(command);
            assert!(!lines.is_empty(), "{command} has no example");
            let parts = lines.iter().flat_map(|line| line.split(['|', '&', '>']));
            for part in parts.map(str::trim).filter(|p| p.starts_with(self.name)) {
                let parsed = self.definition().try_get_matches_from(part.split(' '));
                let of = parsed.unwrap_or_else(|e| panic!("{part}: {e}"));
                assert!(
                    ["", of.subcommand_name().unwrap_or_default()].contains(&command),
                    "{part}"
                );
            }
            assert!(lines.iter().all(|line| line.len() <= 78), "{command}: too wide");
        }
    }
}

/// The program of this process.
static PROGRAM: OnceLock<&Program> = OnceLock::new();

/// Makes `program` the one of this process.
pub(crate) fn set(program: &'static Program) {
    // A second one is set by tests only.
    let _ = PROGRAM.set(program);
}

/// The program of this process, once it has begun.
pub fn program() -> Option<&'static Program> {
    PROGRAM.get().copied()
}

/// The name of the program of this process.
pub fn name() -> &'static str {
    program().map_or("zoneplug", |p| p.name)
}

/// The profile of the build: `debug`, `release`, or `dist` (whole-program optimization).
pub const PROFILE: &str = env!("ZONEPLUG_PROFILE");

/// The text of `--version`: the version, the commit of the build, and the features that are built, each given with
/// whether it is.
pub fn version(features: &[(&str, bool)]) -> &'static str {
    let built: Vec<&str> = features.iter().filter(|f| f.1).map(|f| f.0).collect();
    let built = if built.is_empty() { "none".to_owned() } else { built.join(" ") };
    let (version, commit) = (env!("CARGO_PKG_VERSION"), env!("ZONEPLUG_COMMIT"));
    format!("{version}\nbuild: {commit}\nfeatures: {built}").leak()
}

/// The command line of this process with another program, as a shell takes it.
pub(crate) fn with_program(name: &str) -> String {
    let words = std::env::args_os().skip(1).map(|word| quoted(&word.to_string_lossy()));
    std::iter::once(name.to_owned()).chain(words).collect::<Vec<_>>().join(" ")
}

/// Quotes a word for a shell.
pub fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_@%+=:,./-".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn words_are_quoted_where_a_shell_would_read_more_than_a_word() {
        assert_eq!(quoted("off,clook+300us/4s"), "off,clook+300us/4s");
        assert_eq!(quoted("[wait_us * 2]"), "'[wait_us * 2]'");
        assert_eq!((quoted("it's"), quoted("")), (r"'it'\''s'".into(), "''".into()));
    }
}
