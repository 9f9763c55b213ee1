//! Hints of errors: what to try, with names that each language spells in its own way.

use crate::plain::one_line;
use std::fmt;

/// A line that says what to try after an error. It may name an option of the failed call, or a command. A command line writes the
/// option `force` as `--force`, Python as `force=True`: a [`Spelling`] decides. [`Display`](fmt::Display) writes `'force'`.
///
/// ```
/// use zoneplug_core::{Error, Hint};
/// let hint = Hint::from("choose another name, or ").option("force").text(" to lose what is in it");
/// assert_eq!(hint.to_string(), "choose another name, or 'force' to lose what is in it");
/// let e = Error::invalid("disk.zbd exists").hint(hint);
/// assert_eq!(e.what_to_try(), Some("choose another name, or 'force' to lose what is in it"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hint {
    parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    Option { name: &'static str, value: Option<String> },
    Command(CommandLine),
}

/// A command of the program `zoneplug` that a hint names.
///
/// ```
/// use zoneplug_core::CommandLine;
/// let create = CommandLine::new("create").operand("FILE").option("size", "20G");
/// assert_eq!(create.to_string(), "zoneplug create FILE --size 20G");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandLine {
    name: &'static str,
    /// The arguments in order. An operand has no name, a flag no value.
    arguments: Vec<(Option<&'static str>, Option<String>)>,
}

impl CommandLine {
    /// The command of this name, without arguments.
    pub fn new(name: &'static str) -> CommandLine {
        CommandLine { name, arguments: Vec::new() }
    }

    /// Adds an operand.
    #[must_use]
    pub fn operand(mut self, operand: impl Into<String>) -> CommandLine {
        self.arguments.push((None, Some(operand.into())));
        self
    }

    /// Adds an option with a value.
    #[must_use]
    pub fn option(mut self, name: &'static str, value: impl Into<String>) -> CommandLine {
        self.arguments.push((Some(name), Some(value.into())));
        self
    }

    /// Adds an option without a value.
    #[must_use]
    pub fn flag(mut self, name: &'static str) -> CommandLine {
        self.arguments.push((Some(name), None));
        self
    }

    /// Returns the name of the command.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the options with their values, in order.
    pub fn options(&self) -> impl Iterator<Item = (&'static str, Option<&str>)> {
        self.arguments.iter().filter_map(|(name, value)| Some(((*name)?, value.as_deref())))
    }
}

/// The text for a shell.
impl fmt::Display for CommandLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "zoneplug {}", self.name)?;
        for (name, value) in &self.arguments {
            name.map_or(Ok(()), |name| write!(f, " --{name}"))?;
            value.as_ref().map_or(Ok(()), |value| write!(f, " {value}"))?;
        }
        Ok(())
    }
}

/// How a language writes the names in a [`Hint`].
///
/// ```
/// use zoneplug_core::{Hint, Spelling};
/// struct Shell;
/// impl Spelling for Shell {
///     fn option(&self, name: &str, value: Option<&str>) -> String {
///         value.map_or_else(|| format!("--{name}"), |value| format!("--{name} {value}"))
///     }
/// }
/// let hint = Hint::from("another number: ").option_with("id", "7");
/// assert_eq!(hint.spelled(&Shell), "another number: --id 7");
/// ```
pub trait Spelling {
    /// Returns the text for an option of the call that failed. `value`: the value that the hint proposes.
    fn option(&self, name: &str, value: Option<&str>) -> String {
        value.map_or_else(|| format!("'{name}'"), |value| format!("'{name}' {value}"))
    }

    /// Returns the text for a command. A language may have a function for it.
    fn command(&self, command: &CommandLine) -> String {
        command.to_string()
    }
}

/// The names in quotation marks, and commands as a shell takes them.
struct Plain;

impl Spelling for Plain {}

impl Hint {
    /// Appends a text.
    #[must_use]
    pub fn text(mut self, text: impl Into<String>) -> Hint {
        self.parts.push(Part::Text(text.into()));
        self
    }

    /// Appends the name of an option.
    #[must_use]
    pub fn option(mut self, name: &'static str) -> Hint {
        self.parts.push(Part::Option { name, value: None });
        self
    }

    /// Appends the name of an option with the value that it is to have.
    #[must_use]
    pub fn option_with(mut self, name: &'static str, value: impl Into<String>) -> Hint {
        self.parts.push(Part::Option { name, value: Some(value.into()) });
        self
    }

    /// Appends a command.
    #[must_use]
    pub fn command(mut self, command: CommandLine) -> Hint {
        self.parts.push(Part::Command(command));
        self
    }

    /// Appends another hint.
    #[must_use]
    pub fn then(mut self, other: impl Into<Hint>) -> Hint {
        self.parts.extend(other.into().parts);
        self
    }

    /// Appends another thing to try.
    #[must_use]
    pub fn and_try(self, more: impl Into<Hint>) -> Hint {
        self.text("; ").then(more)
    }

    /// Returns the text of the hint in a language: one line, safe to show although it may quote a path or a label.
    pub fn spelled(&self, language: &dyn Spelling) -> String {
        let part = |part: &Part| match part {
            Part::Text(text) => text.clone(),
            Part::Option { name, value } => language.option(name, value.as_deref()),
            Part::Command(command) => language.command(command),
        };
        one_line(&self.parts.iter().map(part).collect::<String>()).into_owned()
    }
}

impl fmt::Display for Hint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.spelled(&Plain))
    }
}

impl From<&str> for Hint {
    fn from(text: &str) -> Hint {
        Hint::from(text.to_owned())
    }
}

impl From<String> for Hint {
    fn from(text: String) -> Hint {
        Hint { parts: vec![Part::Text(text)] }
    }
}
