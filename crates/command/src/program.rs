//! Which program this is, and which one has the other commands.

use std::sync::OnceLock;

/// A program, and the other one, to which it refers its users.
#[derive(Debug)]
pub struct Program {
    /// Its name.
    pub name: &'static str,
    /// Its crate, as `cargo install --path` takes it.
    pub path: &'static str,
    /// The definition of its command line.
    pub command: fn() -> clap::Command,
    /// The name of the other program.
    pub other: &'static str,
    /// The commands of the other program.
    pub others: &'static [&'static str],
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
