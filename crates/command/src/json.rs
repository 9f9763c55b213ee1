//! `--json`: one document on stdout for each run of a command, even if it fails. docs/json.md lists the keys.
//!
//! Each document is an object that begins with `"schema"`. If the command fails, the document has the key `"error"`,
//! beside its results if there are any. stderr has the same two lines as without `--json`.

use crate::failure::{Failure, FailureParts};
use serde::Serialize;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::Write;
use zoneplug_core::is_plain;

/// The version of the documents' form. It grows when a key goes or changes its meaning, not when one is added.
pub const SCHEMA: u32 = 1;

/// The value of `"error"` in a document.
#[derive(Debug, Serialize)]
struct Wrong<'a> {
    /// The name of the exit code.
    kind: &'static str,
    message: &'a str,
    hint: &'a str,
    exit: u8,
}

impl<'a> Wrong<'a> {
    fn of(failure: &'a Failure) -> Wrong<'a> {
        let FailureParts { kind, what: message, hint } = failure.parts();
        Wrong { kind: kind.name(), message, hint, exit: failure.exit_code() }
    }
}

#[derive(Serialize)]
struct Document<'a, T> {
    schema: u32,
    #[serde(flatten)]
    body: T,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Wrong<'a>>,
}

/// Makes JSON harmless on a terminal too: writes characters that are not plain as `\u001b`, which JSON readers decode
/// again. Outside of strings, JSON has no such characters but line ends.
fn harmless(json: String) -> String {
    let is_shown = |c: char| c == '\n' || is_plain(c);
    if json.chars().all(is_shown) {
        return json;
    }
    let mut out = String::with_capacity(json.len() + 64);
    for c in json.chars() {
        match is_shown(c) {
            true => out.push(c),
            false => c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| {
                // Writing to a string does not fail.
                let _ = write!(out, "\\u{unit:04x}");
            }),
        }
    }
    out
}

/// Formats a value as a document of several lines.
fn pretty(value: &impl Serialize) -> Result<String, Failure> {
    Ok(harmless(serde_json::to_string_pretty(value)?))
}

/// Formats a value on one line, for a document that is printed in parts.
pub fn line(value: &impl Serialize) -> Result<String, Failure> {
    Ok(harmless(serde_json::to_string(value)?))
}

/// Prints the document of a command that succeeds. `body` is a struct or a map.
pub fn print(out: &mut dyn Write, body: &impl Serialize) -> Result<(), Failure> {
    end(out, body, None)
}

/// Prints the document of a command, with `failure` in it if there is one, and returns that failure.
pub fn end(
    out: &mut dyn Write,
    body: &impl Serialize,
    failure: Option<Failure>,
) -> Result<(), Failure> {
    let error = failure.as_ref().map(Wrong::of);
    out.write_all(pretty(&Document { schema: SCHEMA, body, error })?.as_bytes())?;
    writeln!(out)?;
    failure.map_or(Ok(()), |f| Err(f.in_json()))
}

/// The document of a command that failed before it had results.
pub fn of_failure(failure: &Failure) -> String {
    #[derive(Serialize)]
    struct Nothing {}
    let error = Some(Wrong::of(failure));
    let document = Document { schema: SCHEMA, body: Nothing {}, error };
    // A struct of texts and numbers cannot fail to serialize.
    pretty(&document).unwrap_or_default() + "\n"
}

/// The value of `"error"` by itself, for a document that is printed in parts.
pub fn error_value(failure: &Failure) -> Result<String, Failure> {
    line(&Wrong::of(failure))
}

/// The given flag that asks for a document in place of tables, if any.
pub fn flag(json: bool, csv: bool) -> Option<&'static str> {
    match (json, csv) {
        (true, _) => Some("--json"),
        (_, true) => Some("--csv"),
        _ => None,
    }
}

/// Whether a command line asks for JSON. Works for command lines with errors too.
pub fn is_wanted(arguments: &[OsString]) -> bool {
    arguments.iter().take_while(|a| *a != "--").any(|a| a == "--json")
}

/// The name of a status or a condition as a key: `not_at_the_write_pointer`, `io_error`.
pub use zoneplug_core::status_key as key;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Kind;

    #[test]
    fn a_failure_is_in_the_document_or_is_the_document() {
        #[derive(Serialize)]
        struct Body {
            zones: u32,
        }
        let failure = || Failure::new(Kind::Device, "it is gone").hint("look");
        let mut text = Vec::new();
        let said = end(&mut text, &Body { zones: 3 }, Some(failure())).unwrap_err();
        let v: serde_json::Value = serde_json::from_slice(&text).unwrap();
        let error = serde_json::json!(
            {"kind": "device", "message": "it is gone", "hint": "look", "exit": 3}
        );
        assert_eq!(v, serde_json::json!({"schema": 1, "zones": 3, "error": error}));
        assert!(said.is_in_json() && !failure().is_in_json());
        let alone: serde_json::Value = serde_json::from_str(&of_failure(&failure())).unwrap();
        assert_eq!(alone, serde_json::json!({"schema": 1, "error": error}));
    }

    #[test]
    fn text_from_outside_is_itself_in_json_and_harmless_on_a_terminal() {
        let text = "a\x1b\u{9b}\u{7f}\u{202e}\u{e0001}\n\"\\ü";
        let json = line(&text).unwrap();
        assert_eq!(json, r#""a\u001b\u009b\u007f\u202e\udb40\udc01\n\"\\ü""#);
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text);
    }

    #[test]
    fn json_is_wanted_before_the_end_of_the_options_only() {
        let of = |line: &str| is_wanted(&line.split(' ').map(OsString::from).collect::<Vec<_>>());
        assert!(of("zoneplug frob --json") && !of("zoneplug write mem -- --json") && !of("x"));
        assert_eq!(key("NOT_WP"), "not_wp");
        assert_eq!(key("device refused the write"), "device_refused_the_write");
        assert_eq!(key("I/O error"), "io_error");
    }
}
