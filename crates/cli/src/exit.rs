//! The way out of a command that failed: two lines on stderr, a document on stdout if one is wanted, an exit code.

use crate::failure::{Failure, Kind};
use crate::{json, term};
use std::io::{self, Write};
use std::process::ExitCode;

/// Reports a failure on stderr, and as JSON on stdout if `json` is wanted and no document contains it yet. Prints
/// nothing if the reader of the output has gone.
pub(crate) fn report(failure: &Failure, json: bool) -> ExitCode {
    let (kind, ..) = failure.parts();
    if kind != Kind::BrokenPipe {
        // If these fail, no output is left to report it on.
        if json && !failure.is_in_json() {
            let _ = io::stdout().write_all(json::of_failure(failure).as_bytes());
        }
        let text = term::fold(&failure.to_string(), term::width_of_stderr());
        let _ = io::stderr().write_all(text.as_bytes());
    }
    ExitCode::from(failure.exit_code())
}
